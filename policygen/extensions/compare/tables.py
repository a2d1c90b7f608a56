"""A comparison as tables: scores beside published ones, costs, and the difference of every pair."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policygen.errors import UsageError
from policygen.extensions.compare.comparison import (
    ALL_TASKS,
    ComparisonRow,
    Pair,
    aggregates,
    best_published,
    pairs_of,
    rows_of,
    surely_highest,
)
from policygen.extensions.compare.contenders import Field
from policygen.extensions.compare.words import in_brackets, more_seeds, number, verdict
from policygen.extensions.export.latex import escaped
from policygen.extensions.plots.tables import as_csv
from policygen.files import write_named
from policygen.progress import duration

if TYPE_CHECKING:
    import pandas as pd

FEWEST_FOR_INTERVAL = 5  # runs; a bootstrap of fewer resamples only a handful of values
FORMATS = ("md", "csv", "tex", "html")
NORMALISED = (
    "Normalised score: 0 is the mean of random actions, 100 the best known score (or, if none is known, the score that "
    "counts as solved). Better policies exceed 100."
)


@dataclass(frozen=True, slots=True)
class Section:
    """A table of texts; `bold` holds the (row, column) of bold cells."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Report:
    """A comparison as tables, notes and a summary sentence."""

    sections: tuple[Section, ...]
    notes: tuple[str, ...]
    sentence: str


def report_of(field: Field) -> Report:
    """Build the tables, notes and sentence of a comparison."""
    rows, pairs = rows_of(field), pairs_of(field)
    sections = [_scores(field, rows, pairs)]
    if len(field.tasks) > 1 and (points := _points(field)).rows:
        sections.append(points)
    sections.append(_details(rows))
    if pairs:
        sections.append(_differences(pairs))
    notes = [
        "Scores: mean ± standard deviation over runs [95% bootstrap interval of the mean]. Bold: significantly above "
        "all others in its row (p ≤ 0.05, Holm-corrected). All comparisons are of means.",
        *(f"{note[:1].upper()}{note[1:]}." for note in field.notes),
        *(f"{column.name}: {column.source}." for column in field.published),
    ]
    if any(1 < row.runs < FEWEST_FOR_INTERVAL for row in rows):
        notes.insert(1, f"Intervals from fewer than {FEWEST_FOR_INTERVAL} runs are too narrow.")
    if any(pair.task == ALL_TASKS for pair in pairs) or len(field.tasks) > 1:
        notes.append(NORMALISED)
        if lacking := [name for name in field.contenders if not all(field.of(task, name) for task in field.tasks)]:
            notes.append(f"No mean over all tasks, because runs of some tasks are missing: {', '.join(lacking)}.")
    if field.published:
        notes.append(
            "Published means are tested with Welch's t-test if their spread and runs are known, else as exact values."
        )
    return Report(tuple(sections), tuple(notes), verdict(field, pairs))


def _scores(field: Field, rows: Sequence[ComparisonRow], pairs: Sequence[Pair]) -> Section:
    """Build the table of scores: tasks down, contenders and published columns across."""
    by_place = {(row.task, row.contender): row for row in rows}
    cells, bold = [], set()
    for i, task in enumerate(field.tasks):
        line = [task]
        for contender in field.contenders:
            row = by_place.get((task, contender))
            line.append(_score(row) if row is not None else "")
        for column in field.published:
            mean, std = column.scores.get(task, (None, None))
            spread = f" ± {number(std)}" if std is not None else ""
            line.append(f"{number(mean)}{spread}" if mean is not None else "")
        if (best := surely_highest(field, pairs, task)) is not None:
            bold.add((i, 1 + field.contenders.index(best)))
        cells.append(tuple(line))
    header = ("task", *field.contenders, *(column.name for column in field.published))
    return Section("Scores", header, tuple(cells), frozenset(bold))


def _score(row: ComparisonRow) -> str:
    spread = f" ± {number(row.std)}" if row.runs > 1 else ""
    return f"{number(row.mean)}{spread}{in_brackets(row.mean_interval)}"


def _points(field: Field) -> Section:
    rows = tuple((name, f"{number(mean)}{in_brackets(ci)}") for name, (mean, ci) in aggregates(field).items())
    return Section("Over all tasks", ("contender", "mean normalised score [95% interval, stratified by task]"), rows)


def _details(rows: Sequence[ComparisonRow]) -> Section:
    header = ("task", "contender", "runs", "mean", "std", "LLM calls", "tokens", "USD", "episodes", "time")
    lines = [
        (
            row.task,
            row.contender,
            str(row.runs),
            number(row.mean),
            number(row.std) if row.runs > 1 else "",
            _count(row.calls),
            _count(row.tokens),
            "" if row.usd is None else f"{row.usd:.4f}",
            _count(row.episodes),
            "" if row.seconds is None else duration(row.seconds),
        )
        for row in rows
    ]
    return Section("Costs: means over runs", header, tuple(lines))


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _differences(pairs: Sequence[Pair]) -> Section:
    header = (
        "task",
        "A",
        "B",
        "B - A [95% interval]",
        "P(B > A), ties count half",
        "p",
        "p, Holm",
        "seeds",
        "more seeds needed",
    )
    lines = [
        (
            pair.task if pair.tasks == 1 else f"{pair.tasks} tasks, normalised",
            pair.first,
            pair.second,
            f"{number(pair.gain)}{in_brackets(pair.interval)}",
            f"{pair.better:.2f}",
            _p(pair.p),
            _p(pair.corrected),
            str(pair.seeds) if pair.seeds else f"{pair.runs[0]} and {pair.runs[1]}, not paired",
            "settled" if pair.more == 0 else "not practical" if pair.more is None else more_seeds(pair.more),
        )
        for pair in pairs
    ]
    title = "Differences of means over shared seeds; p-values of permutation tests, Holm-corrected"
    return Section(title, header, tuple(lines))


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


# --- as files --------------------------------------------------------------------------------------------------------


def write_report(field: Field, path: Path) -> list[Path]:
    """Write a comparison as .md, .csv, .tex or .html; returns what was written.

    CSV writes two more files: NAME-runs.csv with a row for each run, and NAME-pairs.csv with a row for each pair.

    Raises:
        UsageError: the suffix is unknown.
        LogbookError: a file cannot be written.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"cannot write {path.name}: end the name in {', '.join('.' + name for name in FORMATS)}")
    if kind == "csv":
        pairs = pairs_of(field)
        frames = {path: frame_of(field), path.with_name(f"{path.stem}-runs.csv"): _run_frame(field)}
        if pairs:
            frames[path.with_name(f"{path.stem}-pairs.csv")] = _pair_frame(pairs)
        for place, frame in frames.items():
            write_named(place, as_csv(frame))
        return list(frames)
    write_named(path, _WRITERS[kind](report_of(field)))
    return [path]


def frame_of(field: Field) -> pd.DataFrame:
    """Return a row for each task and contender, published columns included; numbers are not rounded."""
    import pandas as pd

    records: list[dict[str, Any]] = []
    for row in rows_of(field):
        record = asdict(row)
        record["mean_low"], record["mean_high"] = record.pop("mean_interval") or (None, None)
        best = best_published(field, row.task)
        records.append({**record, "published": False, "best_published": best, "source": ""})
    for column in field.published:
        for task, (mean, std) in column.scores.items():
            said = {"task": task, "contender": column.name, "runs": column.runs, "mean": mean, "std": std}
            records.append({**said, "published": True, "source": column.source})
    return pd.DataFrame(records).convert_dtypes()


def _run_frame(field: Field) -> pd.DataFrame:
    """Return a row for each run: its final score and costs."""
    import pandas as pd

    columns = ("seed", "score", "exact", "llm_calls", "tokens", "usd", "seconds")
    records = [
        {"task": task, "contender": name, **{column: getattr(run, column) for column in columns}}
        | {"episodes": run.episodes[-1] if len(run.episodes) else None}
        for task in field.tasks
        for name in field.contenders
        for run in field.of(task, name)
    ]
    return pd.DataFrame(records).convert_dtypes()


def _pair_frame(pairs: Sequence[Pair]) -> pd.DataFrame:
    import pandas as pd

    records = []
    for pair in pairs:
        record = asdict(pair)
        record["low"], record["high"] = record.pop("interval") or (None, None)
        record["first_runs"], record["second_runs"] = record.pop("runs")
        records.append(record)
    return pd.DataFrame(records).convert_dtypes()


def as_markdown(report: Report, *, details: bool = True) -> str:
    """Format the report as Markdown; without `details` only scores, differences and the sentence."""
    parts = []
    for section in report.sections:
        if not details and section.title.startswith("Costs"):
            continue
        lines = [[_markdown(name) for name in section.header], ["---"] * len(section.header)]
        for i, row in enumerate(section.rows):
            cells = [_markdown(cell) for cell in row]
            lines.append([f"**{cell}**" if (i, j) in section.bold and cell else cell for j, cell in enumerate(cells)])
        parts.append(f"{section.title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines))
    notes = "".join(f"- {_markdown(note)}\n" for note in report.notes)
    return "\n".join([*parts, notes, f"{_markdown(report.sentence)}\n"])


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*`<])", r"\\\1", " ".join(text.split()))


def _as_latex(report: Report) -> str:
    parts = ["% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}\n"]
    for section in report.sections:
        table = _styled(section, "latex").to_latex(hrules=True, convert_css=True).replace("±", "$\\pm$")
        parts.append(f"% {section.title}\n{table}")
    return "\n".join([*parts, *(f"% {' '.join(note.split())}" for note in (*report.notes, report.sentence)), ""])


def _as_html(report: Report) -> str:
    from html import escape

    tables = [
        f"<h2>{escape(section.title)}</h2>\n{_styled(section, 'html').set_uuid(f'part{i}').to_html()}"
        for i, section in enumerate(report.sections)
    ]
    notes = "".join(f"<li>{escape(note)}</li>\n" for note in report.notes)
    body = "\n".join([*tables, f"<ul>\n{notes}</ul>", f"<p>{escape(report.sentence)}</p>"])
    head = '<head><meta charset="utf-8"><title>Comparison</title></head>'
    return f"<!DOCTYPE html>\n<html>\n{head}\n<body>\n{body}\n</body>\n</html>\n"


def _styled(section: Section, language: str) -> Any:
    """Escape the texts of a section for a language, and make bold cells bold."""
    import pandas as pd

    # Two contenders may have the same name after shortening: columns are numbers until the names are written.
    frame = pd.DataFrame([list(row) for row in section.rows], columns=range(len(section.header)))
    styled = frame.style.hide(axis="index").format(escape=language)
    names = dict(enumerate(section.header))
    styled = styled.format_index(lambda i: _escaped(names[int(str(i))], language), axis="columns")
    weight = [[(i, j) in section.bold for j in range(len(section.header))] for i in range(len(section.rows))]
    return styled.apply(lambda _: pd.DataFrame(weight).replace({True: "font-weight: bold", False: ""}), axis=None)


def _escaped(text: str, language: str) -> str:
    if language == "html":
        from html import escape

        return escape(text)
    return escaped(text)


_WRITERS: dict[str, Callable[[Report], str]] = {"md": as_markdown, "tex": _as_latex, "html": _as_html}
