"""Groups of runs that may be averaged, their names, and their averages.

Curves, tables and comparisons use these groups. Runs of a group differ only in their seed and in settings that cannot
change a score. An unfinished run belongs to its group but is never averaged, because it has searched less.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from policygen.episodes.score import Score, score_of_returns
from policygen.errors import PlaceError
from policygen.extensions.plots.statistics import interval_over_seeds
from policygen.extensions.plots.style import Numbers
from policygen.extensions.sweeps.plan import cell_folders, is_sweep
from policygen.llm import read_spec, reads_prompts
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook
from policygen.runs.records import FinalScore, Summary
from policygen.runs.steering import Steering
from policygen.runs.texts import templates_identity
from policygen.tasks.records import task_to_record
from policygen.tasks.task import Task

RESAMPLES = 2_000
MOST_POINTS = 200  # of a mean curve; a bootstrap at every time of every run would take minutes
NOT_RECORDED = "not recorded"
FEWEST_FOR_IQM = 4  # runs; with fewer, no whole run would be left out

# Settings that always separate runs if they are not the default ...
_TELLING = frozenset(
    (
        "template",
        "example",
        "demonstrations",
        "refine",
        "shape",
        "normalise",
        "memory",
        "ablate",
        "grid",
        "conversation",
        "unseeded",
    )
)
# ... and settings that never do: some are named anyway, the others cannot change a score.
_SAID = frozenset(("task", "llm", "policy", "seed"))
_SILENT = frozenset(name for name in RunConfig.model_fields if name.startswith(("max_", "price_"))) | {
    *("jobs", "base_url", "timeout_seconds", "final_episodes", "buffer_steps")
}


@dataclass(frozen=True)
class Member:
    """A run, reduced to the values that groups need.

    Attributes:
        templates: digest of the prompt templates; with a digest of the user's comments if there are any. If templates
            changed during the run, all digests with their first attempts. `not recorded` if unknown, empty if the
            provider reads no prompts.
        summary: the summary of the finished run; None while it is unfinished.
        extended: the extension beyond the sweep's budget, in words, if `config` leaves it out.
    """

    folder: Path
    config: RunConfig
    task: Task
    templates: str
    summary: Summary | None
    extended: str = field(default="", kw_only=True)

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.summary is not None

    @property
    def final(self) -> FinalScore | None:
        """The final score; None if there is none yet, or no policy was found."""
        return self.summary.final if self.summary is not None else None


M = TypeVar("M", bound=Member)


@dataclass(frozen=True)
class Group(Generic[M]):
    """Runs that may be averaged, and unfinished runs of the same kind, in the order given.

    Attributes:
        proposals: provider and model, in words.
        kind: the kind of policy.
        settings: further differences to the other groups shown, such as `refine cma:4000`.
    """

    task: str
    proposals: str
    kind: str
    settings: tuple[str, ...]
    averaged: tuple[M, ...]
    unfinished: tuple[M, ...]

    @property
    def policy(self) -> str:
        """The kind of policy and settings: `table, refine cma:4000`."""
        return ", ".join((self.kind, *self.settings))

    @property
    def label(self) -> str:
        """The name of the group, without its task."""
        return ", ".join((self.proposals, f"{self.kind} policy", *self.settings))

    @property
    def final_score(self) -> Score | None:
        """Mean of the final scores with a bootstrap interval over the runs that found a policy."""
        finals = np.array([run.final.mean for run in self.averaged if run.final is not None])
        if not len(finals):
            return None
        score, interval = score_of_returns(finals, (), "runs"), interval_over_seeds(finals)
        if interval is not None:  # rounding may put the mean of equal scores outside
            interval = min(interval[0], score.mean), max(interval[1], score.mean)
        return replace(score, ci95=interval)

    @property
    def without_policy(self) -> int:
        """Number of finished runs that found no policy."""
        return sum(run.final is None for run in self.averaged)

    @property
    def extended(self) -> tuple[str, ...]:
        """Numbers of finished runs that were extended beyond their sweep's budget, in words."""
        counts = Counter(run.extended for run in self.averaged if run.extended)
        return tuple(f"{count} extended to {words}" for words, count in counts.items())


def read_member(folder: Path) -> Member:
    """Read the values of a run that groups need, finished or not.

    Raises:
        LogbookError: it is not a run folder, or is damaged.
    """
    logbook = Logbook(folder)
    config = logbook.config()
    return Member(folder, config, logbook.task(), _templates(logbook, config), logbook.summary())


def _templates(logbook: Logbook, config: RunConfig) -> str:
    if not reads_prompts(config.llm):
        return ""
    return ", ".join(filter(None, (templates_identity(logbook.templates()), _comments(logbook.folder)))) or NOT_RECORDED


def _comments(folder: Path) -> str:
    """Return a digest of the user's comments in prompts; empty if there are none."""
    said = Steering(folder).read()
    texts = {comment.number: comment.text for comment in said.comments}
    told = {str(n): [texts.get(k, "") for k in numbers] for n, numbers in said.carried.items() if numbers}
    return f"comments {_digest(told)}" if told else ""


def each_once(folders: Sequence[Path]) -> list[Path]:
    """Return the run folders in order, those of a sweep in its place; a run given twice counts once.

    Raises:
        PlaceError: no run of a sweep has begun.
        LogbookError: the manifest of a sweep is damaged.
    """
    runs: list[Path] = []
    for folder in folders:
        own = cell_folders(folder) if is_sweep(folder) else [folder]
        if not own:
            raise PlaceError(f"there is no run in {folder} yet, so there is nothing to plot")
        runs += own
    return list({run.resolve(): run for run in runs}.values())


def grouped(runs: Sequence[M]) -> tuple[Group[M], ...]:
    """Group the runs, in order of first appearance."""
    parts: dict[str, list[M]] = {}
    for run in runs:
        parts.setdefault(json.dumps(_identity(run), sort_keys=True), []).append(run)
    named = [(members, json.loads(key), _words(members[0], runs)) for key, members in parts.items()]
    return tuple(
        Group(
            *words[:3],
            (*words[3], *_versions(identity, [other for _, other, others_words in named if others_words == words])),
            tuple(run for run in members if run.finished),
            tuple(run for run in members if not run.finished),
        )
        for members, identity, words in named
    )


def repeated_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the runs that repeat the group and seed of an earlier run in the list.

    Raises:
        LogbookError: a folder is not a run, or is damaged.
    """
    seen: set[str] = set()
    repeated = []
    for folder in each_once(folders):
        run = read_member(folder)
        key = json.dumps([_identity(run), run.config.seed], sort_keys=True)
        if key in seen:
            repeated.append(folder)
        seen.add(key)
    return repeated


def _identity(run: Member) -> dict[str, Any]:
    """Return everything in which runs of a group must agree, as JSON values; long texts as digests.

    Add any new setting or input that a run records.
    """
    settings = run.config.model_dump(exclude=set(_SILENT | {"seed", "llm"}))
    replayed = _replayed(run.config.llm)
    if replayed is not None:
        del settings["template"]  # the prompts were those of the replayed run
    return {
        "settings": settings,
        "proposals": run.config.llm if replayed is None else f"replay:{replayed.resolve()}",
        "templates": run.templates,
        "task": _digest(task_to_record(run.task)),
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]


def _versions(identity: dict[str, Any], others: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the versions of texts or files that separate groups with the same name."""
    parts = [part for part in identity if any(other[part] != identity[part] for other in others)]
    said = {part: _digest(identity[part]) for part in parts}
    if "templates" in said:
        said["templates"] = identity["templates"]  # the digest that the run folder has
    return tuple(f"{part} {words}" for part, words in said.items())


def _words(run: Member, among: Sequence[Member]) -> tuple[str, str, str, tuple[str, ...]]:
    others = [other.config for other in among if other.task.name == run.task.name]
    config = run.config
    if _replayed(config.llm) is not None:
        config = config.model_copy(update={"template": None})  # replayed replies do not depend on it
    return run.task.name, proposals_label(config.llm), config.policy, special_settings(config, others)


def _replayed(llm: str) -> Path | None:
    spec = read_spec(llm)
    return Path(spec.argument) if spec.name == "replay" and spec.argument else None


def proposals_label(llm: str) -> str:
    """Name the proposer, as in tables and legends."""
    replayed = _replayed(llm)
    if replayed is not None:
        return f"replay of {replayed.name}"
    entry = read_spec(llm).entry
    return f"{llm} (no language model)" if entry is not None and not entry.is_language_model else llm


def special_settings(config: RunConfig, among: Sequence[RunConfig] = ()) -> tuple[str, ...]:
    """Describe settings other than provider, kind of policy and seed that separate runs, such as `refine cma:4000`.

    Args:
        among: other runs of the same task; a setting in which any of them differs is named.
    """
    words = []
    for name, known in RunConfig.model_fields.items():
        value = getattr(config, name)
        if name in _SAID | _SILENT or value == known.default:
            continue
        if name in _TELLING or any(getattr(other, name) != value for other in among):
            words.append(name if value is True else f"{name} {value}")
    return tuple(words)


# --- averages of curves ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Band:
    """A centre and its 95% interval over runs at each x; arrays of shape (points,)."""

    x: Numbers
    centre: Numbers
    low: Numbers
    high: Numbers


def centre_name(runs: int) -> str:
    """Name the mean that `average` computes for a number of runs."""
    return "interquartile mean" if runs >= FEWEST_FOR_IQM else "mean"


def average(
    xs: Sequence[Numbers], levels: Sequence[Numbers], seed: int = 0, mean: Callable[..., Numbers] | None = None
) -> Band:
    """Average step functions over runs, with a 95% percentile bootstrap interval.

    From four runs on, the average is the interquartile mean: it leaves out the lowest and the highest quarter, counting
    fractions of runs (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice"). A
    run that ends early keeps its last level. For two runs the band is their range; for few runs it is too narrow.

    Args:
        xs: per run the increasing positions of its steps; shapes (attempts of the run,).
        levels: per run the level from each step on; same shapes.
        mean: the average to use instead, for any number of runs; called like `numpy.mean`.
    """
    points = np.unique(np.concatenate(xs))
    if len(points) > MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)]
    rows = [
        level[np.maximum(np.searchsorted(at, points, side="right") - 1, 0)]
        for at, level in zip(xs, levels, strict=True)
    ]
    table = np.array(rows, dtype=np.float64)
    known = ~np.isnan(table).any(axis=0)  # without warm-up a run has no level before its first policy
    points, table = points[known], table[:, known]
    taken = mean or _centre
    centre = taken(table, axis=0)
    if len(table) < 2 or not len(points):
        return Band(points, centre, centre, centre)
    from scipy.stats import bootstrap

    interval = bootstrap(
        (table,),
        taken,
        axis=0,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=100,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return Band(points, centre, interval.low, interval.high)


def _centre(table: Numbers, axis: int = 0) -> Numbers:
    runs = table.shape[axis]
    if runs < FEWEST_FOR_IQM:
        mean: Numbers = np.mean(table, axis=axis)
        return mean
    # The part of each run, in order of level, that lies between the quartiles.
    share = np.diff(np.clip(np.arange(runs + 1), runs / 4, runs * 3 / 4)) / (runs / 2)
    centre: Numbers = np.moveaxis(np.sort(table, axis=axis), axis, -1) @ share
    return centre
