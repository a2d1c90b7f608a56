"""Groups of runs that may be averaged, and their names, for curves and comparisons.

The runs of a group differ only in their seed and in the settings `WITHOUT_EFFECT`. Unfinished runs belong to groups,
too, but are never averaged, because they have searched less.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policygen.errors import PathError
from policygen.extensions.sweeps.plan import cell_folders, intact, is_sweep
from policygen.llm import read_spec, reads_prompts
from policygen.runs.config import RunConfig
from policygen.runs.facts import RunRecord, curve_table, read_record
from policygen.runs.logbook import Logbook
from policygen.runs.request_log import FILE, used_comments
from policygen.tasks.records import task_to_record

# Settings in which runs of a group may differ: limits of spending, prices, and others that do not affect the search.
# Limits of episodes and steps do affect it: tuning gets shares of them.
WITHOUT_EFFECT = {
    *("max_calls", "max_tokens", "max_usd", "prices"),
    *("jobs", "base_url", "timeout_seconds", "step_timeout", "final_episodes", "fragility"),
}


@dataclass(frozen=True)
class Member(RunRecord):
    """A run, with a digest of its prompt templates, comments and task, which its settings do not state."""

    version: str

    @cached_property
    def curve(self) -> NDArray[np.void]:
        """A row per attempt, in order: the columns of `learning_curve.csv`, `tokens`, `seconds`, and `level`.

        `level` is the best score so far, or the score of random actions before the first policy.

        Raises:
            PathError: the run has no attempts.
        """
        if not self.attempts:
            raise PathError(f"{self.folder} has no attempts yet: there is nothing to plot")
        # Not a data frame: every run draws its curve at its end, and importing pandas is slow.
        columns = {name: np.array(values, np.float64) for name, values in curve_table(self.attempts).items()}
        columns["tokens"] = columns["tokens_in"] + columns["tokens_out"]
        columns["seconds"] = columns["wall_seconds"]
        columns["level"] = np.where(np.isnan(columns["best"]), columns["score"][0], columns["best"])
        return np.array([*zip(*columns.values(), strict=True)], [(name, np.float64) for name in columns])


def read_member(folder: Path) -> Member:
    """Read a run, finished or not.

    Raises:
        LogbookError: it is not a run folder, or is damaged.
    """
    run, logbook, texts = read_record(folder), Logbook(folder), list[Any]()
    if reads_prompts(run.config.llm):
        used = used_comments(logbook.transcript) if (folder / FILE).exists() else {}
        texts = [logbook.templates(), used]
    version = _digest([*texts, task_to_record(run.task)])
    return Member(**vars(run), version=version)


def unique_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the run folders in order, each once; a sweep is replaced by its runs.

    Raises:
        PathError: no run of a sweep has begun.
        LogbookError: the manifest of a sweep is damaged.
    """
    runs: list[Path] = []
    for folder in intact(folders):
        own = cell_folders(folder) if is_sweep(folder) else [folder]
        if not own:
            raise PathError(f"there is no run in {folder} yet, so there is nothing to plot")
        runs += own
    return list({run.resolve(): run for run in runs}.values())


def grouped(runs: Sequence[Member]) -> dict[tuple[str, str], list[Member]]:
    """Return the runs by task and group name, in order of first appearance."""
    groups: dict[tuple[str, str], list[Member]] = {}
    for run, name in zip(runs, names_of(runs), strict=True):
        groups.setdefault((run.task.name, name), []).append(run)
    return groups


def names_of(runs: Sequence[Member], by: str | None = None) -> list[str]:
    """Return the name of each run's group: the settings in which the runs of one task differ.

    The model is left out if all runs share it and differ in another setting; so is a setting that a run does not use.
    If templates, comments or the task differ between runs with the same settings, a digest tells them apart.

    Args:
        by: the only setting that separates groups; `task` for none.
    """
    starts = len({run.config.start for run in runs} - {None})
    if by is not None:
        return ["all runs" if by == "task" else _in_words(run, by, starts) for run in runs]
    found = differing(runs)
    order = found if found and "llm" not in found else ["llm", *(name for name in found if name != "llm")]
    said = [[name for name in order if _value(run, name) not in (None, False)] for run in runs]
    names = [
        ", ".join(_in_words(run, name, starts) for name in own or order) for run, own in zip(runs, said, strict=True)
    ]
    versions: dict[tuple[str, str], set[str]] = {}
    for run, name in zip(runs, names, strict=True):
        versions.setdefault((run.task.name, name), set()).add(run.version)
    several = {key for key, known in versions.items() if len(known) > 1}
    return [
        f"{name}, version {run.version}" if (run.task.name, name) in several else name
        for run, name in zip(runs, names, strict=True)
    ]


def differing(runs: Sequence[Member]) -> list[str]:
    """Return the settings that may affect a score and in which runs of one task differ, `perturb` included."""

    def differ(name: str) -> bool:
        found: dict[str, Any] = {}
        return any(found.setdefault(run.task.name, value) != value for run in runs for value in [_value(run, name)])

    settings = [name for name in RunConfig.model_fields if name not in WITHOUT_EFFECT | {"task", "seed"}]
    return [name for name in (*settings, "perturb") if differ(name)]


def _value(run: Member, name: str) -> Any:
    return ", ".join(map(str, run.task.perturb)) or False if name == "perturb" else getattr(run.config, name)


def _in_words(run: Member, name: str, starts: int) -> str:
    """Return a setting of a run in words; `starts` is the number of policies that all runs together started from."""
    value = _value(run, name)
    if name == "start" and value is not None:  # a policy
        return f"start {_digest(value)}" if starts > 1 else "with a start"
    if name == "llm":
        return proposals_label(value)
    if name == "policy":
        return "tables" if value == "table" else "equations"
    if name == "perturb" and value:
        return f"perturbed by {value}"
    if value is None or value is False:
        return f"{name}=default" if value is None and name != "start" else f"no {name}"
    return name if value is True else f"{name}={value}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]


def proposals_label(llm: str) -> str:
    """Return the name of the proposer for tables and legends."""
    entry = read_spec(llm).entry
    return f"{llm} (no language model)" if entry is not None and not entry.is_language_model else llm
