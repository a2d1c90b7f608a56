"""A comparison as tables: scores beside published ones, costs, and the difference of every pair."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
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
from policygen.extensions.compare.reports import Report, Table, as_csv, as_html, as_latex, as_markdown
from policygen.extensions.compare.words import in_brackets, more_seeds, number, verdict
from policygen.files import write_named
from policygen.progress import duration

FEWEST_FOR_INTERVAL = 5  # runs; a bootstrap interval from fewer is too narrow
FORMATS = ("md", "csv", "tex", "html", "json")
IN_COMMON = "All runs: "  # the note about settings that all runs share begins with this
NORMALISED = (
    "Normalised score: 0 is the mean of random actions, 100 the best known score (or, if none is known, the score that "
    "counts as solved). Better policies exceed 100."
)
BETTER = "P(B > A): probability that a result of B is better than one of A; ties count half."


def report_of(compared: ComparedScores, *, costs: bool = True) -> Report:
    """Return the report of a comparison, with or without the table of costs."""
    rows, pairs = rows_of(compared), pairs_of(compared)
    statistics = _statistics(compared, rows)
    remarks = [f"{note[:1].upper()}{note[1:]}." for note in compared.notes]
    in_common = [remark for remark in remarks if remark.startswith(IN_COMMON)]
    several_tasks = len(compared.tasks) > 1
    sections = [
        replace(_scores(compared, rows, pairs), caption=" ".join([*statistics, *in_common])),
        *([_normalised(compared)] if several_tasks else []),
        _violations(compared),
        *([_costs(rows)] if costs and compared.unit == "seed" else []),
        *([_differences(pairs)] if pairs else []),
    ]
    notes = [
        *statistics,
        *remarks,
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
    return Table("scores", "Scores", header, tuple(cells), frozenset(bold))


def _with_spread(mean: float, std: float | None) -> str:
    return f"{number(mean)} ± {number(std)}" if std is not None else number(mean)


def _normalised(compared: ComparedScores) -> Table:
    rows = tuple((name, f"{number(mean)}{in_brackets(ci)}") for name, (mean, ci) in means_over_tasks(compared).items())
    header = ("contender", "mean normalised score [95% interval, stratified by task]")
    return Table(
        "over-all-tasks",
        "Over all tasks",
        header,
        rows,
        caption=f"Over all tasks, with bootstrap intervals. {NORMALISED}",
    )


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
    return Table("requirements", "Requirements", header, tuple(rows), caption=caption)


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
    title = "Costs: means over runs"
    return Table("costs", title, header, cells, caption=f"{title}; std: standard deviation of the scores.")


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
    return Table("differences", title, header, cells, caption=f"{title}; bootstrap intervals. {BETTER}")


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
        tables = {name: rows for name, rows in _records(compared).items() if rows}
        places = {name: path if name == "scores" else path.with_name(f"{path.stem}-{name}.csv") for name in tables}
        for name, rows in tables.items():
            write_named(places[name], as_csv(rows))
        return list(places.values())
    if kind == "tex":
        short = contender_names(compared)
        named = tuple(replace(one, contender=short[one.contender]) for one in compared.results)
        text = as_latex(report_of(replace(compared, results=named)), short)
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
        text = (as_markdown if kind == "md" else as_html)(report_of(compared))
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
