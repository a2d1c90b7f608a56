"""Tables of runs: a table of their final scores, to read or to print, and tidy tables for analysis."""

# Imports inside functions: pandas is slow to load.

from __future__ import annotations

import io
import json
from collections.abc import Collection, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.score import Score
from policygen.errors import PathError, UsageError
from policygen.extensions.plots import groups
from policygen.extensions.plots.reports import Report, Table, as_csv, as_html, as_latex, as_markdown
from policygen.extensions.plots.style import check_suffix
from policygen.files import write_named
from policygen.runs.logbook import Logbook
from policygen.runs.records import FinalScore, Summary, curve_csv

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("md", "csv", "tex", "html")

_COLUMNS = [
    *("task", "proposals", "policy", "what", "seed", "attempts", "llm_calls", "search_episodes"),
    *("final_score", "low", "high", "exact", "final_episodes"),
]
# Fields of a summary, by their column.
_SPENT = {"attempts": "attempts", "llm_calls": "llm_calls", "search_episodes": "episodes"}
_HEADER = [
    *("task", "proposals", "policy", "seed", "attempts", "LLM calls", "search episodes"),
    *("final score", "95% interval", "final episodes"),
]


def write_table(folders: Sequence[str | Path], path: str | Path) -> Path:
    """Write `comparison` into a .md, .csv, .tex or .html file, by its suffix; return the path.

    Raises:
        UsageError: the suffix is unknown.
        LogbookError: no folder is a finished run, or the file cannot be written.
    """
    path = Path(path)
    check_suffix(path, FORMATS)
    rows = comparison([Path(folder) for folder in folders])
    kind = path.suffix.lower().removeprefix(".")
    if kind == "csv":
        text = as_csv(rows)
    elif kind == "tex":
        text = _as_latex(rows)
    else:
        text = (as_markdown if kind == "md" else as_html)(report_of_runs(rows))
    write_named(path, text)
    return path


def comparison(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return a record per run, by group and seed, then a record per group of several finished runs.

    An unfinished run has a record but no score, and enters no mean. The interval of a run is over episodes; the
    interval of a group is a bootstrap over its runs. Numbers are not rounded; unknown values are None.

    Returns:
        Records with `task`, `proposals`, `policy`, `what` (`run`, `unfinished run`, or a description of the mean),
        `seed`, `attempts`, `llm_calls`, `search_episodes`, `final_score`, `low`, `high` (95% interval), `exact` and
        `final_episodes`.

    Raises:
        LogbookError: no folder is a finished run.
    """
    runs = [groups.read_member(folder) for folder in groups.unique_runs(folders)]
    if not any(run.finished for run in runs):
        folder = runs[0].folder
        raise PathError(f"{folder} is not a finished run; finish it with: {Logbook(folder).resume_command()}")
    found = sorted(groups.grouped(groups.without_extensions(runs)[0]), key=attrgetter("task", "proposals", "policy"))
    rows = []
    for group in found:
        members = sorted((*group.averaged, *group.unfinished), key=lambda run: run.config.seed)
        rows += [_named(group) | _run_cells(run) for run in members]
    rows += [_named(group) | _mean_cells(group) for group in found if len(group.averaged) > 1]
    return rows


def _named(group: groups.Group) -> dict[str, Any]:
    named = {"task": group.task, "proposals": group.proposals, "policy": group.policy}
    return dict.fromkeys(_COLUMNS) | named


def _run_cells(run: groups.Member) -> dict[str, Any]:
    """Return the cells of a run's row that are known, by column."""
    row: dict[str, Any] = {"what": "run" if run.finished else "unfinished run", "seed": run.config.seed}
    row |= {column: getattr(run.summary, name) for column, name in _SPENT.items() if run.finished}
    return row | (_score_cells(run.final) if run.final is not None else {})


def _mean_cells(group: groups.Group) -> dict[str, Any]:
    """Return the means over finished runs, by column; the mean final score covers only runs that found a policy."""
    omitted = {"without a policy": group.without_policy, "unfinished": len(group.unfinished)}
    words = [f"mean of {len(group.averaged) - group.without_policy} runs", *group.extended]
    words += [f"{count} {why} left out" for why, count in omitted.items() if count]
    row: dict[str, Any] = {"what": ", ".join(words)}
    row |= {c: float(np.mean([getattr(run.summary, name) for run in group.averaged])) for c, name in _SPENT.items()}
    if group.final_score is not None:
        row |= _score_cells(group.final_score)
        row["exact"] = all(run.final.exact for run in group.averaged if run.final is not None)
        row["final_episodes"] = None
    return row


def _score_cells(score: Score | FinalScore) -> dict[str, Any]:
    low, high = score.ci95 or (None, None)
    spent = {"exact": score.exact, "final_episodes": score.episodes}
    return {"final_score": score.value, "low": low, "high": high, **spent}


def report_of_runs(rows: Sequence[dict[str, Any]], *, omitted: Collection[str] = (), caption: str = "") -> Report:
    """Return a `comparison` as a table: rounded numbers, intervals in one column, means in bold.

    Args:
        omitted: columns without a place in the table.
        caption: its caption in LaTeX.
    """
    header = tuple(name for name in _HEADER if name not in omitted)
    means = [i for i, row in enumerate(rows) if _is_mean(row)]
    bold = {(i, header.index(name)) for i in means for name in ("task", "final score") if name in header}
    cells = [dict(zip(_HEADER, _texts(row), strict=True)) for row in rows]
    texts = tuple(tuple(one[name] for name in header) for one in cells)
    return Report((Table("runs", "", header, texts, frozenset(bold), caption),))


def _is_mean(row: dict[str, Any]) -> bool:
    return str(row["what"]).startswith("mean")


def _texts(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row for reading, in the order of `_HEADER`."""
    mean, digits = _is_mean(row), 4 if row["exact"] else 1
    interval = f"{row['low']:.{digits}f} to {row['high']:.{digits}f}" if row["low"] is not None else ""
    score = "unfinished" if row["what"] == "unfinished run" else "no policy"
    score = f"{row['final_score']:.{digits}f}" if row["final_score"] is not None else score
    cells = [row["task"], row["proposals"], row["policy"], row["what"] if mean else str(row["seed"])]
    places = (1, 1, 0) if mean else (0, 0, 0)
    cells += ["" if row[c] is None else f"{row[c]:.{n}f}" for c, n in zip(_SPENT, places, strict=True)]
    if mean:
        return [*cells, score, f"{interval} over runs" if interval else "", ""]
    if row["exact"]:
        return [*cells, score, "exact", "-"]
    return [*cells, score, interval, "" if row["final_episodes"] is None else str(row["final_episodes"])]


def _as_latex(rows: Sequence[dict[str, Any]]) -> str:
    """Format a `comparison` for paper, with short names of models; columns with one value move to the caption."""
    values = {name: list(dict.fromkeys(row[name] for row in rows)) for name in ("task", "proposals", "policy")}
    common = {name: own[0] for name, own in values.items() if len(own) == 1}
    short = groups.short_names(values["proposals"]) if "proposals" not in common else {}
    words = [
        "Final scores on fresh episodes. 95% intervals: of a run over its episodes (Student's t; a bootstrap for other "
        "statistics than means), of a mean of runs over these runs (bootstrap)",
        *([f"All rows: {', '.join(common.values())}"] if common else []),
    ]
    named = [row | {"proposals": short.get(row["proposals"], row["proposals"])} for row in rows]
    text = as_latex(report_of_runs(named, omitted=common, caption=". ".join(words)), short)
    return text.replace(" over runs", "")  # the caption says so


# --- tidy tables -----------------------------------------------------------------------------------------------------

# Fields of a summary without a column of their own: settings, which have one already, and lists.
_ELSEWHERE = ("task", "gym_id", "policy_kind", "llm", "seed", "finished", "shares", "perturbed_by", "assumed")
_OF_SCORE = ("score", "low", "high", "mean", "std", "exact", "played")


def tidy(folders: Sequence[Path], *, curves: bool = False) -> pd.DataFrame:
    """Return a table with a row for each run of the folders, in order; a sweep has a row for each of its runs.

    Args:
        curves: return a row for each attempt of each run instead.

    Returns:
        The columns that docs/files.md lists. Unknown values are missing.

    Raises:
        LogbookError: a folder is not a run, or is damaged.
    """
    import pandas as pd

    members = [groups.read_member(folder) for folder in groups.unique_runs(folders)]
    if curves:
        return pd.concat([_attempts(member) for member in members], ignore_index=True).convert_dtypes()
    return pd.DataFrame([_settings(member) for member in members]).convert_dtypes()


def write_tidy(folders: Sequence[Path], path: Path, *, curves: bool) -> Path:
    """Write `tidy` into a .csv or .parquet file; return the path.

    Raises:
        UsageError: the suffix is unknown, or the package that Parquet needs is missing.
        LogbookError: a folder is not a run, is damaged, or the file cannot be written.
    """
    check_suffix(path, ("csv", "parquet"))
    frame = tidy(folders, curves=curves)
    if path.suffix.lower() == ".csv":
        write_named(path, frame.to_csv(index=False, lineterminator="\n"))
        return path
    content = io.BytesIO()
    try:
        frame.to_parquet(content, index=False)
    except ImportError:
        raise UsageError("Parquet needs a package: pip install pyarrow; or write a .csv") from None
    write_named(path, content.getvalue())
    return path


def _settings(member: groups.Member) -> dict[str, Any]:
    row: dict[str, Any] = {"run": str(member.folder), "task": member.task.name, "gym_id": member.task.gym_id}
    for name, value in member.config.model_dump(mode="json", exclude={"task"}).items():
        row[name] = json.dumps(value) if isinstance(value, dict) else value
    row |= {"templates": member.templates, "finished": member.finished}
    known = _results(member.summary or Summary())
    return row | (known if member.finished else dict.fromkeys(known))


def _results(summary: Summary) -> dict[str, Any]:
    """Return the columns of a run's results; a result with the name of a setting gets another name."""
    own = {"iterations": "rounds", "episodes": "search_episodes", "repairs": "repair_requests"}
    baseline = summary.baseline
    scores = {"final": summary.final, "perturbed": summary.perturbed, "baseline": baseline.score if baseline else None}
    row: dict[str, Any] = {}
    for one in fields(Summary):
        if one.name in scores:
            row |= _columns(one.name, scores[one.name])
        elif one.name not in _ELSEWHERE:
            row[own.get(one.name, one.name)] = getattr(summary, one.name)
    row["baseline_gain"] = baseline.gain if baseline else None
    violations = summary.final.violations if summary.final is not None else ()
    return row | {f"violated_{one.name}": one.share for one in violations}


def _columns(name: str, score: FinalScore | None) -> dict[str, Any]:
    """Return the columns of a score; `NAME_score` is the statistic that `NAME_low` and `NAME_high` enclose."""
    values: tuple[Any, ...] = (None,) * 7
    if score is not None:
        low, high = score.ci95 or (None, None)
        values = (score.value, low, high, score.mean, score.std, score.exact, score.episodes)
    return dict(zip((f"{name}_{one}" for one in _OF_SCORE), values, strict=True))


def _attempts(member: groups.Member) -> pd.DataFrame:
    import pandas as pd

    attempts = list(Logbook(member.folder).attempts())
    frame = pd.read_csv(io.StringIO(curve_csv(attempts)))
    named: dict[str, Any] = {"run": str(member.folder), "task": member.task.name, "llm": member.config.llm}
    named |= {"policy": member.config.policy, "seed": member.config.seed}
    for place, (name, value) in enumerate(named.items()):
        frame.insert(place, name, value)
    frame["kind"] = ["random" if one.number == 0 else one.kind for one in attempts]
    frame["model"] = [one.requests.model for one in attempts]
    frame["repairs"] = [one.requests.repairs for one in attempts]
    frame["verdict"] = [one.verdict for one in attempts]
    return frame
