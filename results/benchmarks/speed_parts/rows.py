"""Rows of a speed table: two ways of doing the same timed in turn, a measure against its limit, and how they are shown.

Ratios are taken from runs in turn (A, B, A, B, ...), so that a machine whose speed drifts does not spoil them; each row
gives the median and the range.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from policygen.errors import PathError
from policygen.extensions.plots.style import OKABE_ITO, save, style
from policygen.files import write_atomically
from policygen.portable import usable_cores


@dataclass(frozen=True, slots=True)
class Bar:
    """The limit for a ratio: at least `limit` if `more_is_better`, else at most `limit`."""

    limit: float
    text: str
    more_is_better: bool = False

    def met_by(self, ratio: float) -> bool:
        """Whether a ratio is on the good side."""
        return ratio >= self.limit if self.more_is_better else ratio <= self.limit


def faster(times: float) -> Bar:
    """Ours must be so many times faster."""
    return Bar(times, f"at least {times:g} x faster", more_is_better=True)


def within(times: float) -> Bar:
    """Ours may take so many times as long."""
    return Bar(times, f"ours at most {times:g} x")


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison.

    `ours` and `theirs` are median seconds, or whatever `unit` says. `ratio` is taken run by run; `low` and `high`
    are its least and greatest: theirs / ours where the bar says how much faster, else ours / theirs. A row that is not
    `judged` shows its bar all the same: it was measured on smaller work than the bar is meant for.
    """

    name: str
    ours: float
    theirs: float
    against: str
    ratio: float
    low: float
    high: float
    unit: str = "s"
    bar: Bar | None = None
    judged: bool = True

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where there is none, or the row is not judged."""
        return self.bar.met_by(self.ratio) if self.bar is not None and self.judged else None


@dataclass(frozen=True, slots=True)
class Missing:
    """A comparison that could not be made, and why."""

    name: str
    why: str


def compared(
    name: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    against: str,
    *,
    repeats: int,
    bar: Bar | None = None,
    inner: tuple[int, int] = (1, 1),
) -> Row:
    """Time two ways in turn, after a warm-up of each; `inner` calls are averaged within each measurement."""
    ours(), theirs()
    mine, other = [], []
    for _ in range(repeats):
        mine.append(timed(ours, inner[0]))
        other.append(timed(theirs, inner[1]))
    a, b = np.array(mine), np.array(other)
    ratios = b / a if bar is not None and bar.more_is_better else a / b
    amounts = [float(np.median(values)) for values in (a, b, ratios)]
    return Row(name, amounts[0], amounts[1], against, amounts[2], float(ratios.min()), float(ratios.max()), bar=bar)


def timed(call: Callable[[], Any], times: int) -> float:
    """Seconds that one of so many calls takes."""
    started = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - started) / times


def scaled(row: Row, factor: float, timed_on: str) -> Row:
    """The row, which says how much faster, with the other side's time extrapolated from what it was timed on."""
    return replace(
        row,
        theirs=row.theirs * factor,
        against=f"{row.against} (timed on {timed_on})",
        ratio=row.ratio * factor,
        low=row.low * factor,
        high=row.high * factor,
    )


def absolute(
    name: str,
    amounts: Sequence[float],
    limit: float,
    against: str = "the bar",
    *,
    unit: str = "s",
    bar: str | None = None,
) -> Row:
    """A row for repeated measurements of what has a limit of its own, and nothing beside it to be compared with.

    Args:
        bar: the limit in words, if not `at most LIMIT UNIT`; "" is no bar.
    """
    middle = float(np.median(amounts))
    shares = (middle / limit, min(amounts) / limit, max(amounts) / limit)
    text = f"at most {limit:,g} {unit}" if bar is None else bar
    return Row(name, middle, limit, against, *shares, unit=unit, bar=Bar(1.0, text) if text else None)


# --- tables ----------------------------------------------------------------------------------------------------------


def machine() -> str:
    """Describe the machine and the versions of the measurement, in one sentence."""
    return (
        f"{usable_cores()} cores, Python {sys.version.split()[0]}, numpy {np.__version__}, "
        f"gymnasium {gym.__version__}; medians of alternating runs, and the range of the ratio."
    )


UNJUDGED = "Smaller work than the bars are meant for: nothing is judged by them."


def as_markdown(rows: Sequence[Row | Missing]) -> str:
    """The rows as a Markdown table, with the machine they were measured on."""
    header = "| what | ours | against | theirs | ratio | range | bar | met |"
    remarks = [machine()] + ([UNJUDGED] if any(isinstance(row, Row) and not row.judged for row in rows) else [])
    lines = [*remarks, "", header, "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    return "\n".join(lines + [line_of(row) for row in rows]) + "\n"


def line_of(row: Row | Missing) -> str:
    """One row of the Markdown table."""
    if isinstance(row, Missing):
        return f"| {row.name} | not measured | {row.why} | | | | | |"
    met = {True: "yes", False: "**no**", None: "not judged" if row.bar is not None else ""}[row.met]
    return (
        f"| {row.name} | {_amount(row.ours, row.unit)} | {row.against} | {_amount(row.theirs, row.unit)} | "
        f"{row.ratio:.3g} | {row.low:.3g} to {row.high:.3g} | {_bar_text(row)} | {met} |"
    )


def _bar_text(row: Row) -> str:
    return row.bar.text if row.bar is not None else ""


def _amount(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.3g} {unit}" if unit != "characters" else f"{value:,.0f} {unit}"
    for factor, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if value >= factor:
            return f"{value / factor:.3g} {name}"
    return f"{value:.3g} s"


def as_csv(rows: Sequence[Row | Missing]) -> str:
    """The measured rows as CSV, times in seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["what", "ours", "against", "theirs", "unit", "ratio", "low", "high", "bar", "met"])
    for row in rows:
        if isinstance(row, Row):
            amounts = (row.ours, row.against, row.theirs, row.unit, row.ratio, row.low, row.high)
            writer.writerow([row.name, *amounts, _bar_text(row), row.met])
    return text.getvalue()


def as_json(rows: Sequence[Row | Missing]) -> str:
    """All rows as JSON, those that could not be measured with the reason."""
    return json.dumps({"machine": machine(), "rows": [_record(row) for row in rows]}, indent=1)


def _record(row: Row | Missing) -> dict[str, Any]:
    return asdict(row) if isinstance(row, Missing) else {**asdict(row), "bar": _bar_text(row), "met": row.met}


def write_results(rows: Sequence[Row | Missing], folder: Path) -> None:
    """Write `speed.csv`, `speed.md` and `speed.png` into a folder.

    Raises:
        LogbookError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PathError(f"cannot make the folder {folder}: {error.strerror}") from None
    write_atomically(folder / "speed.csv", as_csv(rows))
    write_atomically(folder / "speed.md", "# Speed\n\nMade with `make bench`.\n\n" + as_markdown(rows))
    picture(rows, folder / "speed.png")


def picture(rows: Sequence[Row | Missing], path: Path) -> None:
    """Every row with a bar: how far it is on the good side of it, as a factor, with the range over repeats."""
    from matplotlib.figure import Figure

    shown = [(row, *_margin(row)) for row in rows if isinstance(row, Row) and row.met is not None]
    with style():
        figure = Figure(figsize=(11, 1.2 + 0.42 * len(shown)), layout="constrained")
        axes = figure.add_subplot()
        for i, (row, middle, low, high) in enumerate(reversed(shown)):
            colour = OKABE_ITO[2] if row.met else OKABE_ITO[5]
            axes.plot([low, high], [i, i], color=colour, linewidth=2, alpha=0.5)
            axes.plot(middle, i, "o", color=colour)
            axes.annotate(
                f"{middle:.3g} x", (max(high, middle), i), (7, 0), textcoords="offset points", va="center", fontsize=8
            )
        labels = [f"{row.name}\nagainst {row.against}: {_bar_text(row)}" for row, *_ in reversed(shown)]
        axes.set_yticks(range(len(shown)), labels, fontsize=7)
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xscale("log")
        axes.margins(x=0.2)
        axes.grid(axis="x", alpha=0.3)
        axes.set_xlabel("times better than the bar (left of 1: missed);\nlines: range over repeats")
    save(figure, path)


def _margin(row: Row) -> tuple[float, float, float]:
    """Median, least and greatest of ratio over bar, turned so that more is better."""
    assert row.bar is not None
    ratios = np.array([row.ratio, row.low, row.high])
    middle, low, high = ratios / row.bar.limit if row.bar.more_is_better else row.bar.limit / ratios[[0, 2, 1]]
    return float(middle), float(low), float(high)


def installed(package: str) -> bool:
    """Whether a package can be imported, without importing it."""
    import importlib.util

    return importlib.util.find_spec(package) is not None
