"""Which runs may be averaged with which, what their group is called, and how they are averaged.

Curves, tables and comparisons all ask here. Runs of a group differ in nothing but their seed and in settings that
change no score that is reached. An unfinished run belongs to its group, but is never averaged: it would stand for less
searching than the others did.
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
MOST_POINTS = 200  # of a mean curve; a bootstrap at every wall-clock time of every run would take minutes
NOT_RECORDED = "not recorded"
FEWEST_FOR_IQM = 4  # whole runs are left out at both ends from here on; of three none would be

# Settings that always tell runs apart where they are not the default ...
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
# ... and those that never do: who is asked and for what is said anyway, and the rest changes no score that is reached.
_SAID = frozenset(("task", "llm", "policy", "seed"))
_SILENT = frozenset(name for name in RunConfig.model_fields if name.startswith(("max_", "price_"))) | {
    *("jobs", "base_url", "timeout_seconds", "final_episodes", "buffer_steps")
}


@dataclass(frozen=True)
class Member:
    """A run as far as groups need it.

    Attributes:
        templates: the digest of the templates its prompts were rendered from, or all of them and their first attempts
            where they changed half way, and a digest of what a user had them say; `not recorded` where none are, and
            empty where the provider reads no prompts.
        summary: what the run reported when it ended; None while it is unfinished.
        extended: what its sweep did not give it and it was given since, in words, where `config` leaves that out.
    """

    folder: Path
    config: RunConfig
    task: Task
    templates: str
    summary: Summary | None
    extended: str = field(default="", kw_only=True)

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return self.summary is not None

    @property
    def final(self) -> FinalScore | None:
        """The record of the final score; None while there is none, and where no policy was found."""
        return self.summary.final if self.summary is not None else None


M = TypeVar("M", bound=Member)


@dataclass(frozen=True)
class Group(Generic[M]):
    """Runs that may be averaged, and those of the same kind that are unfinished, each in the order given.

    Attributes:
        proposals: who proposed: the provider and model, in words.
        kind: the kind of policy.
        settings: what else tells the group from the others it is shown with, such as `refine cma:4000`.
    """

    task: str
    proposals: str
    kind: str
    settings: tuple[str, ...]
    averaged: tuple[M, ...]
    unfinished: tuple[M, ...]

    @property
    def policy(self) -> str:
        """Kind of policy and settings: `table, refine cma:4000`."""
        return ", ".join((self.kind, *self.settings))

    @property
    def label(self) -> str:
        """The group in words, without its task."""
        return ", ".join((self.proposals, f"{self.kind} policy", *self.settings))

    @property
    def final_score(self) -> Score | None:
        """Mean of the final scores with a bootstrap interval over runs; runs that found no policy have none."""
        finals = np.array([run.final.mean for run in self.averaged if run.final is not None])
        if not len(finals):
            return None
        score, interval = score_of_returns(finals, (), "runs"), interval_over_seeds(finals)
        if interval is not None:  # equal scores and their mean may differ by rounding
            interval = min(interval[0], score.mean), max(interval[1], score.mean)
        return replace(score, ci95=interval)

    @property
    def without_policy(self) -> int:
        """How many finished runs found no policy."""
        return sum(run.final is None for run in self.averaged)

    @property
    def extended(self) -> tuple[str, ...]:
        """How many finished runs were extended beyond what their sweep gave them, in words."""
        counts = Counter(run.extended for run in self.averaged if run.extended)
        return tuple(f"{count} extended to {words}" for words, count in counts.items())


def read_member(folder: Path) -> Member:
    """Read what groups need of a run, finished or not.

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
    """What a user had the prompts of a run say: a digest; empty for a run that nobody steered."""
    said = Steering(folder).read()
    texts = {comment.number: comment.text for comment in said.comments}
    told = {str(n): [texts.get(k, "") for k in numbers] for n, numbers in said.carried.items() if numbers}
    return f"comments {_digest(told)}" if told else ""


def each_once(folders: Sequence[Path]) -> list[Path]:
    """The run folders in order, those of a sweep in its place; one that is given twice, in whatever words, counts once.

    Raises:
        PlaceError: no run of a sweep was begun.
        LogbookError: a sweep's manifest is damaged.
    """
    runs: list[Path] = []
    for folder in folders:
        own = cell_folders(folder) if is_sweep(folder) else [folder]
        if not own:
            raise PlaceError(f"there is no run in {folder} yet: there is nothing to plot")
        runs += own
    return list({run.resolve(): run for run in runs}.values())


def grouped(runs: Sequence[M]) -> tuple[Group[M], ...]:
    """The runs by group, in order of first appearance."""
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
    """The runs whose group and seed are those of an earlier one in the list: they say nothing new.

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
    """All in which runs of one group must agree, as JSON values; what words cannot tell apart as digests.

    What a run comes to record of its origin belongs here.
    """
    settings = run.config.model_dump(exclude=set(_SILENT | {"seed", "llm"}))
    replayed = _replayed(run.config.llm)
    if replayed is not None:
        del settings["template"]  # what the replies answered were the prompts of the run they are from
    return {
        "settings": settings,
        "proposals": run.config.llm if replayed is None else f"replay:{replayed.resolve()}",
        "templates": run.templates,
        "task": _digest(task_to_record(run.task)),
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]


def _versions(identity: dict[str, Any], others: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """What tells a group from others of the same words: which of several versions of a text or file it used."""
    parts = [part for part in identity if any(other[part] != identity[part] for other in others)]
    said = {part: _digest(identity[part]) for part in parts}
    if "templates" in said:
        said["templates"] = identity["templates"]  # a digest as it stands in the run folder
    return tuple(f"{part} {words}" for part, words in said.items())


def _words(run: Member, among: Sequence[Member]) -> tuple[str, str, str, tuple[str, ...]]:
    others = [other.config for other in among if other.task.name == run.task.name]
    config = run.config
    if _replayed(config.llm) is not None:
        config = config.model_copy(update={"template": None})  # it had no part in replies that are repeated
    return run.task.name, proposals_label(config.llm), config.policy, special_settings(config, others)


def _replayed(llm: str) -> Path | None:
    spec = read_spec(llm)
    return Path(spec.argument) if spec.name == "replay" and spec.argument else None


def proposals_label(llm: str) -> str:
    """Who proposed, as tables and legends say it."""
    replayed = _replayed(llm)
    if replayed is not None:
        return f"replay of {replayed.name}"
    entry = read_spec(llm).entry
    return f"{llm} (no language model)" if entry is not None and not entry.is_language_model else llm


def special_settings(config: RunConfig, among: Sequence[RunConfig] = ()) -> tuple[str, ...]:
    """What else than provider, kind of policy and seed keeps runs apart, such as `refine cma:4000`.

    Args:
        among: the runs of the same task it is compared with: what any of them has otherwise tells it apart.
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
    """A centre and its 95% interval over some runs at each x; arrays of shape (points,)."""

    x: Numbers
    centre: Numbers
    low: Numbers
    high: Numbers


def centre_name(runs: int) -> str:
    """What `average` takes for so many runs."""
    return "interquartile mean" if runs >= FEWEST_FOR_IQM else "mean"


def average(
    xs: Sequence[Numbers], levels: Sequence[Numbers], seed: int = 0, mean: Callable[..., Numbers] | None = None
) -> Band:
    """The mean of step functions, from four on the interquartile mean, with a 95% percentile bootstrap over the runs.

    The interquartile mean leaves out the lowest and the highest quarter, fractions of a run included (used for runs by
    Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice"). A run that ended early
    keeps its last level. Of two runs the band is their range; of a handful it is too narrow rather than too wide.

    Args:
        xs: per run the positions of its steps, increasing; shapes (attempts of the run,).
        levels: per run the level from each step on; same shapes.
        mean: taken instead, for any number of runs, and called as `numpy.mean` is.
    """
    points = np.unique(np.concatenate(xs))
    if len(points) > MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)]
    rows = [
        level[np.maximum(np.searchsorted(at, points, side="right") - 1, 0)]
        for at, level in zip(xs, levels, strict=True)
    ]
    table = np.array(rows, dtype=np.float64)
    known = ~np.isnan(table).any(axis=0)  # a run without warm-up has no level before its first policy
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
    # How much of each run, in order of level, lies between the quartiles.
    share = np.diff(np.clip(np.arange(runs + 1), runs / 4, runs * 3 / 4)) / (runs / 2)
    centre: Numbers = np.moveaxis(np.sort(table, axis=axis), axis, -1) @ share
    return centre
