"""Tidy tables of runs for one's own analysis: a row for each run, or for each attempt."""

# Imports inside functions: pandas is slow to load.

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policygen.errors import UsageError
from policygen.extensions.plots.groups import Member, read_member, unique_runs
from policygen.extensions.plots.style import check_suffix
from policygen.files import write_named
from policygen.runs.logbook import Logbook
from policygen.runs.records import curve_csv

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "parquet")


def tidy(folders: Sequence[Path], *, curves: bool = False) -> pd.DataFrame:
    """Return a row for each run of the folders, in order; a sweep stands for its runs.

    Args:
        curves: return a row for each attempt of each run instead.

    Returns:
        Columns of a run: `run` (its folder), `task`, `gym_id`, every setting under its name, `templates` (a digest),
        `finished`, and the fields of `summary.json`: `rounds`, `search_episodes` and `repair_requests` in place of
        those with the name of a setting; `final_mean`, `final_std`, `final_low`, `final_high`, `final_exact` and
        `final_played` (episodes) for the final score, likewise `perturbed_...`; and `violated_NAME`, the share of the
        final episodes that violate the requirement NAME. Columns of an attempt: `run`, `task`, `llm`, `policy`, `seed`,
        those of `learning_curve.csv`, and `kind`, `model`, `repairs` and `verdict`. Unknown values are missing.

    Raises:
        LogbookError: a folder is not a run, or is damaged.
    """
    import pandas as pd

    members = [read_member(folder) for folder in unique_runs(folders)]
    if curves:
        return pd.concat([_attempts(member) for member in members], ignore_index=True).convert_dtypes()
    return pd.DataFrame([_run(member) for member in members]).convert_dtypes()


def write_tidy(folders: Sequence[Path], path: Path, *, curves: bool = False) -> Path:
    """Write `tidy` into a .csv or .parquet file; return the path.

    Raises:
        UsageError: the ending is another one, or the package for Parquet is missing.
        LogbookError: a folder is not a run, is damaged, or the file cannot be written.
    """
    check_suffix(path, FORMATS)
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


def _run(member: Member) -> dict[str, Any]:
    row: dict[str, Any] = {"run": str(member.folder), "task": member.task.name, "gym_id": member.task.gym_id}
    for name, value in member.config.model_dump(mode="json", exclude={"task"}).items():
        row[name] = json.dumps(value) if isinstance(value, dict) else value
    row |= {"templates": member.templates, "finished": member.finished}
    if member.summary is None:
        return row
    # Settings keep their names; fields of the summary with the name of a setting get another.
    own = {"iterations": "rounds", "episodes": "search_episodes", "repairs": "repair_requests"}
    for name, value in asdict(member.summary).items():
        if name in ("final", "perturbed"):
            row |= _scored(name, value)
        elif name not in ("shares", "perturbed_by", "assumed", "task", "gym_id", "policy_kind", "llm", "seed"):
            row[own.get(name, name)] = value
    return row


def _scored(name: str, score: dict[str, Any] | None) -> dict[str, Any]:
    if score is None:
        return {}
    low, high = score["ci95"] or (None, None)
    row = {f"{name}_{column}": score[column] for column in ("mean", "std", "exact")}
    row |= {f"{name}_low": low, f"{name}_high": high, f"{name}_played": score["episodes"]}
    if name == "final":
        row |= {f"violated_{one['name']}": one["violated"] / one["episodes"] for one in score["violations"]}
    return row


def _attempts(member: Member) -> pd.DataFrame:
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
