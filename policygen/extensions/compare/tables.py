"""A comparison as tables: scores beside published ones, costs, and the difference of every pair."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from policygen.episodes.requirements import Violations
from policygen.extensions.compare.comparison import (
    ComparisonRow,
    Pair,
    means_over_tasks,
    pairs_of,
    rows_of,
    significantly_highest,
)
from policygen.extensions.compare.contenders import ComparedScores, contender_names
from policygen.extensions.compare.words import in_brackets, more_seeds, number, verdict
from policygen.extensions.export.latex import escaped
from policygen.extensions.plots.groups import whole_names
from policygen.extensions.plots.tables import LATEX_PACKAGES, as_csv, latex_start, markdown_cell, with_minus_signs
from policygen.files import write_named
from policygen.progress import duration

FEWEST_FOR_INTERVAL = 5  # runs; a bootstrap interval from fewer is too narrow
FORMATS = ("md", "csv", "tex", "html", "json")
# Characters in a row of a LaTeX table: a wider one spans both columns of a page; a still wider one has smaller type.
WIDEST_COLUMN, WIDEST_PAGE = 55, 110
COSTS = "Costs: means over runs"  # title of a table
IN_COMMON = "All runs: "  # the note about settings that all runs share begins with this
NORMALISED = (
    "Normalised score: 0 is the mean of random actions, 100 the best known score (or, if none is known, the score that "
    "counts as solved). Better policies exceed 100."
)
BETTER = "P(B > A): probability that a result of B is better than one of A; ties count half."
_NUMBER = re.compile(r"[-+<≥≤$ ]*[\d.,]+")
_ADDRESS = re.compile(r"https?://[^\s,;]+")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        bold: (row, column) of each bold cell.
        caption: the caption in LaTeX; by default the title.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A comparison as tables, notes, and sentences that sum it up."""

    sections: tuple[Table, ...]
    notes: tuple[str, ...]
    sentence: str


def report_of(compared: ComparedScores) -> Report:
    """Return the report of a comparison."""
    rows, pairs = rows_of(compared), pairs_of(compared)
    statistics = _statistics(compared, rows)
    several_tasks = len(compared.tasks) > 1
    sections = [
        replace(_scores(compared, rows, pairs), caption=" ".join(statistics)),
        *([_normalised(compared)] if several_tasks else []),
        _violations(compared),
        *([_costs(rows)] if compared.unit == "seed" else []),
        *([_differences(pairs)] if pairs else []),
    ]
    notes = [
        *statistics,
        *(f"{note[:1].upper()}{note[1:]}." for note in compared.notes),
        *(f"{column.name}: {column.source}." for column in compared.published),
    ]
    notes += [BETTER] if pairs else []
    if several_tasks:
        notes.append(NORMALISED)
        lacking = [name for name in compared.contenders if not all(compared.of(task, name) for task in compared.tasks)]
        if lacking:
            notes.append(f"No mean over all tasks, because runs of some tasks are missing: {', '.join(lacking)}.")
    if compared.published:
        notes.append(
            "Published means are tested with Welch's t-test if their spread and runs are known, else as exact values."
        )
    return Report(tuple(section for section in sections if section.rows), tuple(notes), verdict(compared, pairs))


def _statistics(compared: ComparedScores, rows: Sequence[ComparisonRow]) -> list[str]:
    """Return notes on what a score, its spread and its interval are, and over how many runs."""
    samples = "episodes" if compared.unit == "episode" else "runs"
    fewest, most = min(row.runs for row in rows), max(row.runs for row in rows)
    count = str(most) if fewest == most else f"{fewest} to {most}"
    what = f"mean ± standard deviation over {count} {samples} [95% bootstrap interval of the mean]"
    bold = "Bold: significantly above all others in its row (p ≤ 0.05, Holm-corrected). All comparisons are of means."
    words = [f"Scores: {what if most > 1 else 'of a single run each'}. {bold}"]
    if any(1 < row.runs < FEWEST_FOR_INTERVAL for row in rows):
        words.append(f"Intervals from fewer than {FEWEST_FOR_INTERVAL} {samples} are too narrow.")
    return words


def _scores(compared: ComparedScores, rows: Sequence[ComparisonRow], pairs: Sequence[Pair]) -> Table:
    """Return the table of scores: a row for each task, a column for each contender and each published column."""
    by_place = {
        (row.task, row.contender): _with_spread(row.mean, row.std if row.runs > 1 else None)
        + in_brackets(row.mean_interval)
        for row in rows
    }
    cells, bold = [], set()
    for i, task in enumerate(compared.tasks):
        own = [by_place.get((task, contender), "") for contender in compared.contenders]
        all_published = (column.scores.get(task) for column in compared.published)
        cells.append((task, *own, *(_with_spread(*score) if score is not None else "" for score in all_published)))
        if (best := significantly_highest(compared, pairs, task)) is not None:
            bold.add((i, 1 + compared.contenders.index(best)))
    header = ("task", *compared.contenders, *(column.name for column in compared.published))
    return Table("Scores", header, tuple(cells), frozenset(bold))


def _with_spread(mean: float, std: float | None) -> str:
    return f"{number(mean)} ± {number(std)}" if std is not None else number(mean)


def _normalised(compared: ComparedScores) -> Table:
    rows = tuple((name, f"{number(mean)}{in_brackets(ci)}") for name, (mean, ci) in means_over_tasks(compared).items())
    header = ("contender", "mean normalised score [95% interval, stratified by task]")
    return Table("Over all tasks", header, rows, caption=f"Over all tasks, with bootstrap intervals. {NORMALISED}")


def _violations(compared: ComparedScores) -> Table:
    """Return the table of violated requirements: the shares of the episodes of all final scores."""
    rows = []
    for task, contender in itertools.product(compared.tasks, compared.contenders):
        by_name: dict[str, list[Violations]] = {}
        for run in compared.of(task, contender):
            for one in run.violations:
                by_name.setdefault(one.name, []).append(one)
        for name, found in by_name.items():
            sums = replace(found[0], violated=sum(v.violated for v in found), episodes=sum(v.episodes for v in found))
            share = f"{100 * sums.share:.3g}% of {sums.episodes:,} (below {100 * sums.upper:.2g}%)"
            # Which of several runs is worst depends on the requirement's comparison, which is not recorded.
            known = len(found) == 1 and sums.worst is not None
            worst = f"{sums.worst:.4g} with seed {sums.seed}" if known else ""
            rows.append((task, contender, name, share, worst))
    header = ("task", "contender", "requirement", "episodes that violate it (95% upper bound)", "worst value")
    caption = "Requirements: share of all final episodes that violate one (one-sided bound of Clopper and Pearson)."
    return Table("Requirements", header, tuple(rows), caption=caption)


def _costs(rows: Sequence[ComparisonRow]) -> Table:
    header = ("task", "contender", "runs", "mean", "std", "LLM calls", "tokens", "USD", "episodes", "time")
    cells = tuple(
        (
            *(row.task, row.contender, str(row.runs)),
            *(number(row.mean), number(row.std) if row.runs > 1 else ""),
            *(_count(row.calls), _count(row.tokens), "" if row.usd is None else f"{row.usd:.4f}"),
            *(_count(row.episodes), "" if row.seconds is None else duration(row.seconds)),
        )
        for row in rows
    )
    return Table(COSTS, header, cells, caption=f"{COSTS}; std: standard deviation of the scores.")


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _differences(pairs: Sequence[Pair]) -> Table:
    unit = pairs[0].unit
    header = ("task", "A", "B", "B - A [95% interval]", "P(B > A)", "p", "p, Holm", f"{unit}s", f"more {unit}s")
    cells = tuple(
        (
            pair.task if pair.tasks == 1 else f"{pair.tasks} tasks, normalised",
            *(pair.first, pair.second, f"{number(pair.gain)}{in_brackets(pair.interval)}", f"{pair.better:.2f}"),
            *(_p(pair.p), _p(pair.corrected)),
            str(pair.seeds or f"{pair.runs[0]} and {pair.runs[1]}, not paired"),
            "settled" if pair.more == 0 else "not practical" if pair.more is None else more_seeds(pair.more),
        )
        for pair in pairs
    )
    title = f"Differences of means over shared {unit}s; p-values of permutation tests, Holm-corrected"
    return Table(title, header, cells, caption=f"{title}; bootstrap intervals. {BETTER}")


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


# --- as files --------------------------------------------------------------------------------------------------------


def write_report(compared: ComparedScores, path: Path) -> list[Path]:
    """Write a comparison as one of `FORMATS`, by the suffix, and return the paths of the files.

    A .csv has two more files beside it: NAME-runs.csv with a row for each run, and NAME-pairs.csv for each pair. Raises
    LogbookError if a file cannot be written.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind == "csv":
        import pandas as pd  # slow to import

        frames = {name: pd.DataFrame(rows).convert_dtypes() for name, rows in _records(compared).items() if rows}
        places = {name: path if name == "scores" else path.with_name(f"{path.stem}-{name}.csv") for name in frames}
        for name, frame in frames.items():
            write_named(places[name], as_csv(frame))
        return list(places.values())
    if kind == "tex":
        text = _as_latex(compared)
    elif kind == "json":
        report = report_of(compared)
        counts = [
            {"task": run.task, "contender": run.contender, **asdict(one)}
            for run in compared.results
            for one in run.violations
        ]
        words = {"requirements": counts, "unit": compared.unit, "notes": report.notes, "sentence": report.sentence}
        text = json.dumps({**_records(compared), **words}, indent=1, ensure_ascii=False) + "\n"
    else:
        text = (as_markdown if kind == "md" else _as_html)(report_of(compared))
    write_named(path, text)
    return [path]


def _records(compared: ComparedScores) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables `scores` (with the published ones), `runs` and `pairs`; nothing is rounded."""
    scores: list[dict[str, Any]] = []
    for row in rows_of(compared):
        record = asdict(row)
        record["mean_low"], record["mean_high"] = record.pop("mean_interval") or (None, None)
        best = max(compared.published_means(row.task), default=None)
        scores.append({**record, "published": False, "best_published": best, "source": ""})
    for column in compared.published:
        for task, (mean, std) in column.scores.items():
            values = {"task": task, "contender": column.name, "runs": column.runs, "mean": mean, "std": std}
            scores.append({**values, "published": True, "source": column.source})
    columns = ("task", "contender", "seed", "score", "exact", "llm_calls", "tokens", "usd", "seconds")
    runs = [
        {**{column: getattr(run, column) for column in columns}, "episodes": run.total("episodes")}
        for task, name in itertools.product(compared.tasks, compared.contenders)
        for run in compared.of(task, name)
    ]
    pairs = []
    for pair in pairs_of(compared):
        record = asdict(pair)
        del record["spread"], record["differing"]
        record["low"], record["high"] = record.pop("interval") or (None, None)
        record["first_runs"], record["second_runs"] = record.pop("runs")
        pairs.append(record)
    return {"scores": scores, "runs": runs, "pairs": pairs}


def _cells(section: Table, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    """Return the cells of a table, escaped for a language; `bold` is the format of a bold one."""
    return [
        [bold.format(escape(cell)) if (i, j) in section.bold and cell else escape(cell) for j, cell in enumerate(row)]
        for i, row in enumerate(section.rows)
    ]


def as_markdown(report: Report, *, details: bool = True) -> str:
    """Return the report as Markdown; without `details`, it has no table of costs."""
    parts = []
    for section in report.sections:
        if not details and section.title == COSTS:
            continue
        lines = [[markdown_cell(name) for name in section.header], ["---"] * len(section.header)]
        lines += _cells(section, markdown_cell, "**{}**")
        parts.append(f"{section.title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines))
    notes = "".join(f"- {markdown_cell(note)}\n" for note in report.notes)
    return "\n".join([*parts, notes, f"{markdown_cell(report.sentence)}\n"])


def _as_latex(compared: ComparedScores) -> str:
    """Return the report as LaTeX: short names in the tables, whole ones in the caption of the first."""
    short = contender_names(compared)
    report = report_of(
        replace(compared, results=tuple(replace(one, contender=short[one.contender]) for one in compared.results))
    )
    whole = "; ".join(f"{own}: {name}" for own, name in whole_names(short).items())
    common = [note for note in report.notes if note.startswith(IN_COMMON)]
    parts = [LATEX_PACKAGES]
    for section in report.sections:
        first = section == report.sections[0]
        words = [f"{section.caption or section.title}".removesuffix("."), *([whole, *common] if first else [])]
        caption = ". ".join(_latex(_ADDRESS.sub("ADDRESS", one.removesuffix("."))) for one in words if one)
        caption += "" if first or not whole else r". Names as in Table~\ref{tab:scores}"
        rows = [[_latex(name) for name in section.header], *_cells(section, _latex, r"\bfseries {}")]
        header, *lines = [f"{' & '.join(row)} \\\\" for row in rows]
        body = "\n".join(["\\toprule", header, "\\midrule", *lines, "\\bottomrule"])
        columns = [[cell for cell in column if cell] for column in zip(*section.rows, strict=True)]
        aligned = "".join("r" if column and all(map(_NUMBER.match, column)) else "l" for column in columns)
        label = re.split("[:;]| of ", section.title.lower())[0].replace(" ", "-")
        wide = sum(max(map(len, column)) + 1 for column in zip(section.header, *section.rows, strict=True))
        place = "table*" if wide > WIDEST_COLUMN else "table"
        parts.append(
            f"\\begin{{{place}}}\n{latex_start(wide > WIDEST_PAGE)}\n\\caption{{{caption}.}}\n\\label{{tab:{label}}}\n"
            f"\\begin{{tabular}}{{{aligned}}}\n{body}\n\\end{{tabular}}\n\\end{{{place}}}\n"
        )
    notes = [_ADDRESS.sub("ADDRESS", " ".join(note.split())) for note in (*report.notes, report.sentence)]
    return "\n".join([*parts, *(f"% {note}" for note in notes), ""])


def _latex(text: str) -> str:
    plain = escaped(" ".join(text.split())).replace("±", "$\\pm$").replace("≤", "$\\leq$")
    plain = with_minus_signs(plain)
    # At the start of a row, LaTeX would read `[` or `*` as an argument of the `\\` before.
    return f"{{}}{plain}" if plain.startswith(("[", "*")) else plain


def _as_html(report: Report) -> str:
    parts = []
    for section in report.sections:
        rows = [[f"<th>{escape(name)}</th>" for name in section.header]]
        rows += [[f"<td>{cell}</td>" for cell in row] for row in _cells(section, escape, "<b>{}</b>")]
        lines = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
        parts.append(f"<h2>{escape(section.title)}</h2>\n<table>\n{lines}</table>")
    notes = "".join(f"<li>{escape(note)}</li>\n" for note in report.notes)
    body = "\n".join([*parts, f"<ul>\n{notes}</ul>", f"<p>{escape(report.sentence)}</p>"])
    head = '<head><meta charset="utf-8"><title>Comparison</title></head>'
    return f"<!DOCTYPE html>\n<html>\n{head}\n<body>\n{body}\n</body>\n</html>\n"
