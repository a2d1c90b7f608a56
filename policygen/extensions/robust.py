"""The sizes of perturbations that a policy withstands: its scores, as a table and a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from policygen.episodes.requirements import excess
from policygen.episodes.score import Score, episode_seeds, number, sampled_score, score_with_violations
from policygen.episodes.simulator import ParallelSimulator
from policygen.episodes.trajectory import RandomActor
from policygen.extensions.plots.style import GREY, curve_style, new_figure, style
from policygen.outgoing import in_columns
from policygen.policies.policy import Policy
from policygen.tasks.environments import fits, opened
from policygen.tasks.perturbed_env import SPREAD_STEPS, spread_of
from policygen.tasks.task import NOMINAL, OF_SPREAD, PERTURBATIONS, STEP_COUNTS, Perturbation, Task, perturbation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEPT = 0.9  # share of the nominal gain over random actions below which a policy fails
# The sizes to try if none are given.
SIZES: Mapping[str, Sequence[float]] = {
    "action_delay": (1, 2, 3, 5),
    "sensor_noise": (0.02, 0.05, 0.1, 0.2),
    "sensor_bias": (0.02, 0.05, 0.1, 0.2),
    "sensor_dropout": (0.1, 0.2, 0.4),
    "actuator_gain": (0.5, 0.7, 0.85, 1.15, 1.3, 1.5),
    "random_start": (5, 20, 50),
    "mass": (0.7, 0.85, 1.15, 1.3, 1.5, 2),
    "friction": (0.5, 0.7, 1.5, 2),
    "motor": (0.7, 0.85, 1.15, 1.3),
}
_UNITS = {
    **dict.fromkeys(STEP_COUNTS, "steps"),
    **dict.fromkeys(NOMINAL, "factor"),
    **dict.fromkeys(OF_SPREAD, "standard deviations"),
    "sensor_dropout": "probability per step",
    "random_start": "random steps before the policy acts",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """The score of a policy under a perturbation of one size, and whether it meets hard requirements and threshold."""

    size: float
    score: Score
    works: bool


@dataclass(frozen=True, slots=True)
class Margins:
    """The scores of a policy with and without perturbations."""

    task: Task
    nominal: Score  # without perturbations
    threshold: float  # minimum score of a policy that works
    trials: Mapping[str, Sequence[Trial]]  # for each perturbation, from its smallest size to its largest


def sizes_for(task: Task, ranges: Sequence[Perturbation] = ()) -> dict[str, list[float]]:
    """Return the sizes to try for each perturbation, in order: both ends and the middle of each range.

    Without `ranges`, the task's perturbations are used, and `SIZES` for all others that fit the task.
    """
    found: dict[str, list[float]] = {}
    for one in ranges or task.perturb:
        found[one.name] = sorted({one.low, (one.low + one.high) / 2, one.high})
        if one.name in STEP_COUNTS:
            found[one.name] = sorted(set(map(round, found[one.name])))
    if not ranges:
        for name in PERTURBATIONS:
            if name not in found and fits(task, Perturbation(name, SIZES[name][0], SIZES[name][0])):
                found[name] = list(SIZES[name])
    return found


def margins(policy: Policy, task: Task, sizes: Mapping[str, Sequence[float]], *, episodes: int, seed: int) -> Margins:
    """Score a policy on the same episodes with perturbations of these sizes, and without any.

    It works if it violates no hard requirement more often than allowed, and its mean return reaches the threshold: the
    score that counts as solved. If it does not reach that even without perturbations, the threshold is nine tenths of
    its gain over random actions; without a gain, its score without perturbations.

    Raises:
        TaskError: a perturbation does not fit the environment.
    """
    seeds = episode_seeds(seed, "evaluation", episodes)

    def score(played: Task) -> Score:
        with ParallelSimulator(played) as players:
            return score_with_violations(played, players.play(policy, seeds), players.engine)

    bare = replace(task, perturb=())
    nominal = score(bare)
    if task.solved is not None and nominal.mean >= task.solved:
        threshold = task.solved
    else:
        with ParallelSimulator(bare) as players:
            random = sampled_score(players.play(RandomActor(bare, seed), seeds), players.engine).mean
        threshold = random + KEPT * (nominal.mean - random) if nominal.mean > random else nominal.mean
    trials: dict[str, list[Trial]] = {}
    for name in sizes:
        for size in sizes[name]:
            found = score(replace(task, perturb=(perturbation(name, size, size),)))
            works = found.mean >= threshold and not excess(found.violations)
            trials.setdefault(name, []).append(Trial(size, found, works))
    return Margins(task, nominal, threshold, trials)


def lines(found: Margins) -> Iterator[str]:
    """Yield the lines of the table, and the spreads that sizes are shares of."""
    yield f"{found.task.name}: mean return {found.nominal}; {_threshold_words(found)}"
    yield from (f"requirement {one}" for one in found.nominal.violations)
    rows = [("perturbation", "works at", "fails at (mean return, violations of hard requirements)")]
    for name, trials in found.trials.items():
        works = ", ".join(f"{one.size:g}" for one in trials if one.works)
        fails = ", ".join(_failure(one) for one in trials if not one.works)
        rows.append((f"{name} ({_unit(name, found.task)})", works or "-", fails or "-"))
    yield from in_columns(rows)
    if any(name in OF_SPREAD for name in found.trials):
        with opened(replace(found.task, perturb=())) as env:
            signals = [*zip(found.task.observations, spread_of(env), strict=True)]
        sizes = [f"{one.name} {size:.3g} {one.unit}".strip() for one, size in signals if size > 0]
        yield f"standard deviations over {SPREAD_STEPS:,} steps with random actions: {', '.join(sizes)}"
        if still := [one.name for one, size in signals if not size]:
            yield f"constant within episodes, hence without noise: {', '.join(still)}"


def _failure(one: Trial) -> str:
    violated = [f"{v.name} in {v.violated} of {v.episodes}" for v in one.score.violations if v.excess]
    return f"{one.size:g} ({', '.join((number(one.score.mean), *violated))})"


def _unit(name: str, task: Task) -> str:
    kind, _, signal = name.partition(".")
    if kind != "kwargs" and signal:
        return next(one.unit for one in task.observations if one.name == signal) or "its unit"
    return _UNITS.get(kind, "value")


def picture(found: Margins) -> Figure:
    """Draw the mean return over the size of each perturbation, with 95% intervals, and the threshold.

    Intervals are clipped to the lowest and highest return played, because Student's interval for few episodes can
    exceed what is possible.
    """
    scores = [found.nominal, *(trial.score for trials in found.trials.values() for trial in trials)]
    played, panels = [value for one in scores for value in one.returns], found.trials
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    with style():
        figure = new_figure(4 * columns, 2.6 * rows)
        for place, (name, trials) in enumerate(panels.items()):
            axes = figure.add_subplot(rows, columns, place + 1)
            points = [(one.size, one.score) for one in trials]
            if not name.startswith("kwargs."):  # the nominal value of an argument is unknown
                points.append((NOMINAL.get(name, 0.0), found.nominal))
            points.sort(key=lambda point: point[0])
            numbers = [(size, score.mean, *(score.ci95 or (score.mean, score.mean))) for size, score in points]
            sizes, means, low, high = np.array(numbers).T
            low, high = np.clip((low, high), min(played), max(played))
            drawn = curve_style(0) | {"linestyle": "-"}
            axes.plot(sizes, means, markersize=4, label="mean return", **drawn)
            band = f"95% interval of the mean of {found.nominal.episodes} episodes, within the returns played"
            axes.fill_between(sizes, low, high, color=drawn["color"], alpha=0.2, linewidth=0, label=band)
            axes.axhline(found.threshold, color=GREY, linestyle=":", linewidth=1.4, label=_threshold_words(found))
            axes.set(title=name, xlabel=_unit(name, found.task), ylabel="" if place % columns else "mean return")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", fontsize=8)
    return figure


def _threshold_words(found: Margins) -> str:
    why = "counts as solved" if found.threshold == found.task.solved else f"{KEPT:.0%} of the gain over random actions"
    why = why if found.nominal.mean > found.threshold else "its own without perturbations"
    return f"works with a mean return of {number(found.threshold)} or more ({why})"
