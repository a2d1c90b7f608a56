"""Tables of runs: Markdown to read, LaTeX and HTML to print, CSV and tidy tables for analysis."""

# Imports inside functions: pandas is slow to load.

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from policygen.episodes.score import Score
from policygen.errors import PathError, UsageError
from policygen.extensions.export.latex import escaped
from policygen.extensions.plots import groups
from policygen.extensions.plots.style import check_suffix
from policygen.files import write_named
from policygen.runs.logbook import Logbook
from policygen.runs.records import FinalScore, Summary, curve_csv

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

FORMATS = ("md", "csv", "tex", "html")
LATEX_PACKAGES = "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}\n"

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
    frame = comparison([Path(folder) for folder in folders])
    write_named(path, _WRITERS[path.suffix.lower().removeprefix(".")](frame))
    return path


def comparison(folders: Sequence[Path]) -> pd.DataFrame:
    """Return a row per run, by group and seed, then a row per group of several finished runs.

    An unfinished run has a row but no score, and enters no mean. The interval of a run is over episodes; the interval
    of a group is a bootstrap over its runs. Numbers are not rounded; unknown values are missing.

    Returns:
        The columns `task`, `proposals`, `policy`, `what` (`run`, `unfinished run`, or a description of the mean),
        `seed`, `attempts`, `llm_calls`, `search_episodes`, `final_score`, `low`, `high` (95% interval), `exact` and
        `final_episodes`.

    Raises:
        LogbookError: no folder is a finished run.
    """
    import pandas as pd

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
    return pd.DataFrame(rows, columns=_COLUMNS).convert_dtypes()


def _named(group: groups.Group) -> dict[str, Any]:
    return {"task": group.task, "proposals": group.proposals, "policy": group.policy}


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


# --- as text ---------------------------------------------------------------------------------------------------------


def _is_mean(row: Any) -> bool:
    return str(row.what).startswith("mean")


def _readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Format the table for reading: rounded numbers, intervals in one column; all cells are texts."""
    import pandas as pd

    rows, known = [], cast(Any, frame.astype(object).where(frame.notna(), None))
    for row in known.itertuples(index=False):
        mean, digits = _is_mean(row), 4 if row.exact else 1
        interval = f"{row.low:.{digits}f} to {row.high:.{digits}f}" if row.low is not None else ""
        score = "unfinished" if row.what == "unfinished run" else "no policy"
        score = f"{row.final_score:.{digits}f}" if row.final_score is not None else score
        spent = zip((row.attempts, row.llm_calls, row.search_episodes), (1, 1, 0) if mean else (0, 0, 0), strict=True)
        cells = [row.task, row.proposals, row.policy, row.what if mean else str(row.seed)]
        cells += ["" if count is None else f"{count:.{places}f}" for count, places in spent]
        if mean:
            cells += [score, f"{interval} over runs" if interval else "", ""]
        elif row.exact:
            cells += [score, "exact", "-"]
        else:
            cells += [score, interval, "" if row.final_episodes is None else str(row.final_episodes)]
        rows.append(cells)
    return pd.DataFrame(rows, columns=_HEADER)


def as_markdown(frame: pd.DataFrame) -> str:
    """Format a `comparison` as a Markdown table, means in bold."""
    rows = [[markdown_cell(cell) for cell in row] for row in _readable(frame).to_numpy().tolist()]
    for cells, row in zip(rows, frame.itertuples(), strict=True):
        if _is_mean(row):
            cells[0], cells[7] = f"**{cells[0]}**", f"**{cells[7]}**"
    lines = [_HEADER, ["---"] * len(_HEADER), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def markdown_cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table, on one line."""
    return re.sub(r"([\\|*`<])", r"\\\1", " ".join(text.split()))


def as_csv(frame: pd.DataFrame) -> str:
    """Format a table as CSV; an apostrophe begins texts that a spreadsheet would take for formulas."""
    risky = ("=", "+", "-", "@", "\t", "\r")
    safe = frame.map(lambda cell: f"'{cell}" if isinstance(cell, str) and cell.startswith(risky) else cell)
    return str(safe.to_csv(index=False))


def _as_latex(frame: pd.DataFrame) -> str:
    """Format a `comparison` for paper, with short names of models; columns with one value move to the caption."""
    short = groups.short_names(frame["proposals"].unique().tolist())
    common = {name: frame[name].iloc[0] for name in ("task", "proposals", "policy") if frame[name].nunique() == 1}
    whole = groups.whole_names(short) if "proposals" not in common else {}
    words = [
        "Final scores on fresh episodes. 95% intervals: of a run over its episodes (Student's t; a bootstrap for other "
        "statistics than means), of a mean of runs over these runs (bootstrap)",
        "; ".join(f"{own}: {name}" for own, name in whole.items()),
        f"All rows: {', '.join(common.values())}" if common else "",
    ]
    styled = _styled(frame.assign(proposals=frame["proposals"].map(short)), "latex").hide([*common], axis="columns")
    table = styled.to_latex(
        hrules=True,
        convert_css=True,
        caption=f"{escaped('. '.join(filter(None, words)))}.",
        label="tab:runs",
        environment="table*",  # as wide as a page of two columns
        position_float="centering",
        column_format="l" * (3 - len(common)) + "r" * (len(_HEADER) - 3),
    )
    table = table.replace(" over runs", "")  # the caption says so
    return LATEX_PACKAGES + with_minus_signs(table).replace(r"\centering", latex_start(True), 1)


def latex_start(is_wide: bool) -> str:
    """Return the LaTeX commands that begin a table for paper: sizes of letters and gaps."""
    return rf"\centering\{'scriptsize' if is_wide else 'footnotesize'}\setlength{{\tabcolsep}}{{3pt}}"


def with_minus_signs(text: str) -> str:
    """Return LaTeX text with minus signs before numbers, in place of hyphens."""
    return re.sub(r"(?<![\w.-])-(?=\d)", "$-$", text)


def _as_html(frame: pd.DataFrame) -> str:
    # The default identifier is random, so the same runs would give different files.
    return str(_styled(frame, "html").set_uuid("runs").to_html(doctype_html=True, encoding="utf-8"))


def _styled(frame: pd.DataFrame, language: str) -> Styler:
    """Return the readable table, escaped for `latex` or `html`, with means in bold."""
    bold = [_is_mean(row) for row in frame.itertuples()]
    styled = _readable(frame).style.hide(axis="index")
    styled = styled.format(escape=language).format_index(escape=language, axis="columns")
    return styled.apply(lambda column: ["font-weight: bold" if b else "" for b in bold], subset=["task", "final score"])


_WRITERS: dict[str, Callable[[pd.DataFrame], str]] = {
    "md": as_markdown,
    "csv": as_csv,
    "tex": _as_latex,
    "html": _as_html,
}


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
