"""Groups of runs that may be averaged, and their names, for curves, tables and comparisons.

Runs of a group differ only in their seed and in the settings `WITHOUT_EFFECT`. An unfinished run belongs to its group
but is never averaged, because it has searched less.
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
from policygen.extensions.plots.statistics import Interval, interval_over_seeds
from policygen.extensions.sweeps.plan import cell_folders, intact, is_sweep
from policygen.llm import read_spec, reads_prompts
from policygen.runs.comments import FILE, used_comments
from policygen.runs.config import RunConfig
from policygen.runs.facts import RunRecord, curve_table, read_record
from policygen.runs.logbook import Logbook
from policygen.runs.records import FinalScore
from policygen.tasks.records import task_to_record
from policygen.tasks.task import KIND_WORDS

# Settings that the name of a group states if they are not the default.
_ALWAYS_NAMED = {
    *("template", "refine", "shape", "memory", "ablate", "grid"),
    *("conversation", "start", "episodes_shown"),
}
# Settings that are not listed among the settings in the name: task, provider and kind of policy are stated elsewhere,
# and runs with other seeds belong to the same group.
_NAMED_ANYWAY = {"task", "llm", "policy", "seed"}
# Settings in which runs of a group may differ: limits of spending, prices, and others that do not affect the search.
# Limits of episodes and steps do, because tuning gets shares of them.
WITHOUT_EFFECT = {
    *("max_calls", "max_tokens", "max_usd", "prices"),
    *("jobs", "base_url", "timeout_seconds", "step_timeout", "final_episodes", "fragility"),
}


@dataclass(frozen=True)
class Member(RunRecord):
    """A run, with a digest of its prompt templates and of the user's comments (empty if its provider reads none)."""

    templates: str

    @cached_property
    def curve(self) -> NDArray[np.void]:
        """A row per attempt, in order: the columns of `learning_curve.csv`, `tokens`, `seconds`, and `level`.

        `level` is the best score so far, or the score of random actions before the first policy.

        Raises:
            PathError: the run has no attempts.
        """
        if not self.attempts:
            raise PathError(f"{self.folder} has no attempts yet: there is nothing to plot")
        # Not with pandas: every run draws its curve at its end, and would have to wait for that import.
        columns = {name: np.array(values, np.float64) for name, values in curve_table(self.attempts).items()}
        columns["tokens"] = columns["tokens_in"] + columns["tokens_out"]
        columns["seconds"] = columns["wall_seconds"]
        columns["level"] = np.where(np.isnan(columns["best"]), columns["score"][0], columns["best"])
        return np.array([*zip(*columns.values(), strict=True)], [(name, np.float64) for name in columns])

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.summary.finished

    @property
    def final(self) -> FinalScore | None:
        """The final score; None while the run is unfinished, or if it found no policy."""
        return self.summary.final


@dataclass(frozen=True)
class Group:
    """Runs that may be averaged, and unfinished runs of the same kind, in the order given."""

    task: str
    label: str  # its name without the task: provider, kind of policy, and settings such as `refine cma:4000`
    averaged: tuple[Member, ...]
    unfinished: tuple[Member, ...]

    @property
    def final_score(self) -> tuple[float, Interval | None] | None:
        """Mean of the final scores with a bootstrap interval over the runs that found a policy; None without any."""
        finals = np.array([run.final.mean for run in self.averaged if run.final is not None])
        return (float(finals.mean()), interval_over_seeds(finals)) if len(finals) else None

    @property
    def without_policy(self) -> int:
        """Number of finished runs that found no policy."""
        return sum(run.final is None for run in self.averaged)


def read_member(folder: Path) -> Member:
    """Read the values of a run that groups need, finished or not.

    Raises:
        LogbookError: it is not a run folder, or is damaged.
    """
    run = read_record(folder)
    return Member(run.folder, run.task, run.config, run.attempts, run.summary, _templates(Logbook(folder), run.config))


def _templates(logbook: Logbook, config: RunConfig) -> str:
    """Return a digest of the texts in the run's prompts, as `Member.templates`."""
    if not reads_prompts(config.llm):
        return ""
    used = used_comments(logbook.transcript) if (logbook.folder / FILE).exists() else {}
    return _digest([logbook.templates(), used])


def policy_words(kind: str) -> str:
    """Return the name of a kind of policy in labels: `table policy` or `equations`."""
    return "table policy" if kind == "table" else "equations"


def unique_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the run folders in order, each once, with the runs of a sweep in place of the sweep.

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


def grouped(runs: Sequence[Member]) -> tuple[Group, ...]:
    """Group the runs, in order of first appearance; groups of the same name get the digest of their inputs."""
    parts: dict[str, list[Member]] = {}
    for run in runs:
        parts.setdefault(_identity(run), []).append(run)
    names = {key: (members[0].task.name, _label(members[0], runs)) for key, members in parts.items()}
    known = list(names.values())
    return tuple(
        Group(
            task,
            label if known.count((task, label)) == 1 else f"{label}, version {_digest(key)}",
            tuple(run for run in parts[key] if run.finished),
            tuple(run for run in parts[key] if not run.finished),
        )
        for key, (task, label) in names.items()
    )


def _identity(run: Member) -> str:
    """Return everything in which the runs of a group must agree, as JSON.

    A new input that a run records must be added here; settings are included already.
    """
    settings = run.config.model_dump(exclude=WITHOUT_EFFECT | {"seed"})
    return json.dumps([settings, run.templates, task_to_record(run.task)], sort_keys=True)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]


def _label(run: Member, among: Sequence[Member]) -> str:
    """Return proposals, kind of policy, and the settings to name, such as `refine cma:4000`."""
    others = [other.config for other in among if other.task.name == run.task.name]
    words = [proposals_label(run.config.llm), policy_words(KIND_WORDS[run.config.policy])]
    for name, known in RunConfig.model_fields.items():
        value = getattr(run.config, name)
        if name in _NAMED_ANYWAY | WITHOUT_EFFECT or value == known.default:
            continue
        if name in _ALWAYS_NAMED or any(getattr(other, name) != value for other in others):
            # A start is a whole policy.
            words.append(name if value is True else f"{name} {_digest(value) if name == 'start' else value}")
    words += [f"perturbed: {', '.join(map(str, run.task.perturb))}"] if run.task.perturb else []
    return ", ".join(words)


def proposals_label(llm: str) -> str:
    """Return the name of the proposer for tables and legends."""
    entry = read_spec(llm).entry
    return f"{llm} (no language model)" if entry is not None and not entry.is_language_model else llm
