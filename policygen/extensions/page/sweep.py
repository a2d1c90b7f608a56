"""The content of a sweep's page: comparison tables, curves, and every run with its score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from policygen.errors import LogbookError, PolicygenError
from policygen.extensions.compare.contenders import Field, read_field
from policygen.extensions.compare.figure import comparison_figure
from policygen.extensions.compare.tables import Report, report_of
from policygen.extensions.compare.words import number
from policygen.extensions.page.pictures import Picture, picture
from policygen.extensions.sweeps.plan import Cell, cells_of, read_plan
from policygen.runs.logbook import Logbook
from policygen.runs.reading import best_policy

MOST_POLICIES = 24  # policies that are shown as text


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run of the sweep: its cell, progress and score."""

    key: str
    contender: str
    seed: int
    state: str
    score: str = ""
    value: float | None = None
    cost: str = ""


@dataclass(frozen=True, slots=True)
class BestPolicy:
    """The policy with the highest final score of a task and contender."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class SweepContent:
    """The content of a sweep's page; `report` is None until a run is finished."""

    folder: Path
    title: str
    state: str
    report: Report | None
    curves: Picture | None
    runs: tuple[RunRow, ...]
    policies: tuple[BestPolicy, ...]
    settings: tuple[str, ...]


def read_sweep(folder: Path) -> SweepContent:
    """Read the content of a sweep's page.

    Raises:
        LogbookError: the manifest is damaged.
    """
    plan = read_plan(folder)
    cells = cells_of(plan)
    rows = tuple(_row(folder, cell) for cell in cells)
    finished = [row for row in rows if row.state == "finished"]
    field = _field(folder) if finished else None
    count = len(finished)
    return SweepContent(
        folder,
        ", ".join(dict.fromkeys(cell.entry.task for cell in cells)),
        f"all {count} runs are finished" if count == len(rows) else f"{count} of {len(rows)} runs are finished",
        report_of(field) if field is not None else None,
        _curves(field) if field is not None else None,
        rows,
        tuple(_policies(folder, finished)),
        plan.settings,
    )


def _row(folder: Path, cell: Cell) -> RunRow:
    own = folder / cell.key
    place = (cell.key, cell.row, cell.seed)
    if not (own / "config.toml").is_file():
        return RunRow(*place, "not begun")
    try:
        summary = Logbook(own).summary()
    except LogbookError:
        return RunRow(*place, "damaged")
    if summary is None:
        return RunRow(*place, "unfinished")
    cost = "" if not summary.is_language_model else "cost unknown" if summary.usd is None else f"${summary.usd:.4f}"
    final = summary.final
    if final is None:
        return RunRow(*place, "finished", "no policy", None, cost)
    interval = f" [{number(final.ci95[0])}, {number(final.ci95[1])}]" if final.ci95 and not final.exact else ""
    words = f"{number(final.mean)}{' (exact)' if final.exact else interval}"
    return RunRow(*place, "finished", words, final.mean, cost)


def _field(folder: Path) -> Field | None:
    try:
        return read_field([str(folder)])
    except PolicygenError:  # damaged runs: the list of runs says so
        return None


def _curves(field: Field) -> Picture | None:
    try:
        return picture(comparison_figure(field), "Curves of all runs")
    except PolicygenError:
        return None


def _policies(folder: Path, finished: list[RunRow]) -> list[BestPolicy]:
    best: dict[str, RunRow] = {}
    for row in finished:
        if row.value is not None and (row.contender not in best or row.value > (best[row.contender].value or 0.0)):
            best[row.contender] = row
    found = []
    for row in list(best.values())[:MOST_POLICIES]:
        try:
            text = best_policy(folder / row.key).to_text(whole=True)
        except PolicygenError:
            continue
        found.append(BestPolicy(f"{row.contender}, seed {row.seed}: {row.score}", text))
    return found
