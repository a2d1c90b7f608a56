"""Scores of policies under perturbations of their environment, and the margins that follow from them."""

# Imports inside functions: Matplotlib is only needed for pictures.

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.agents import ENGINE, play_agent
from policygen.episodes.players import Players
from policygen.episodes.requirements import excess
from policygen.episodes.score import (
    Score,
    difference,
    engine_words,
    episode_seeds,
    sampled_score,
    score_with_violations,
)
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.errors import UsageError
from policygen.extensions.plots.reports import Table, markdown_table
from policygen.extensions.plots.statistics import with_interval
from policygen.extensions.plots.style import GREY, look, new_figure, save, style, write_cells
from policygen.files import write_named
from policygen.policies.policy import Policy
from policygen.tasks.environments import fits
from policygen.tasks.perturb import KINDS, NOMINAL, SENSORS, Perturbation, perturbation
from policygen.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEPT = 0.9  # of the nominal gain over random actions: below, a policy counts as failing
FORMATS = ("html", "md", "json", "png")  # a page is written by `page.render`
LINES = "Mean return over the size of each perturbation, with 95% intervals. Dotted: a policy fails below this score."
HEAT = "Mean return for each combination; in brackets: the policy fails."
# The sizes that are tried where none are given.
SIZES: Mapping[str, Sequence[float]] = {
    "action_delay": (1, 2, 3, 5),
    "sensor_noise": (0.02, 0.05, 0.1, 0.2),
    "sensor_bias": (0.02, 0.05, 0.1, 0.2),
    "sensor_dropout": (0.1, 0.2, 0.4),
    "quantisation": (0.05, 0.1, 0.2, 0.5),
    "actuator_gain": (0.5, 0.7, 0.85, 1.15, 1.3, 1.5),
    "deadband": (0.02, 0.05, 0.1, 0.2),
    "saturation": (0.9, 0.7, 0.5),
    "random_start": (5, 20, 50),
    "mass": (0.7, 0.85, 1.15, 1.3, 1.5, 2),
    "friction": (0.5, 0.7, 1.5, 2),
    "motor": (0.7, 0.85, 1.15, 1.3),
    "gravity": (0.9, 1.1),
}
_UNITS = {
    **dict.fromkeys(("action_delay", "random_start"), "steps"),
    **dict.fromkeys(("actuator_gain", "mass", "friction", "motor", "gravity"), "factor"),
    "sensor_dropout": "probability",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """The score of one policy under one perturbation, or under two at once.

    Attributes:
        policy: name of the policy.
        gain, p: mean difference from the baseline in the same episodes, and one-sided p-value; None without one.
        holds: whether it still meets hard requirements and scores at least `Margins.threshold`.
        worst: the episode with the lowest return.
    """

    policy: str
    perturbations: tuple[Perturbation, ...]
    score: Score
    gain: float | None
    p: float | None
    holds: bool
    worst: Trajectory | None = None

    @property
    def name(self) -> str:
        """The names of the perturbations."""
        return " and ".join(one.name for one in self.perturbations)

    @property
    def sizes(self) -> tuple[float, ...]:
        """The sizes of the perturbations."""
        return tuple(one.low for one in self.perturbations)


@dataclass(frozen=True, slots=True)
class Margins:
    """The sizes of perturbations that a policy withstands, with all its scores.

    Attributes:
        nominal: its score without perturbations.
        threshold: the score from which a perturbed policy counts as holding.
        trials: its scores under perturbations, by kind and size.
    """

    policy: str
    nominal: Score
    threshold: float
    trials: tuple[Trial, ...]

    def words(self, name: str) -> str:
        """Return up to which sizes of a perturbation the policy holds, in a line."""
        own = sorted((trial for trial in self.trials if trial.name == name), key=lambda trial: trial.sizes)
        if len(own[0].sizes) > 1:
            return f"holds in {sum(trial.holds for trial in own)} of {len(own)} combinations"
        if name.startswith("kwargs."):  # their nominal value is not known
            held, failed = ([trial for trial in own if trial.holds is holds] for holds in (True, False))
            parts = [f"holds at {', '.join(f'{trial.sizes[0]:g}' for trial in held)}"] if held else []
            return "; ".join([*parts, *(_failing(trial) for trial in failed)])
        middle = NOMINAL.get(name, 0.0)
        above = [trial for trial in own if trial.sizes[0] > middle]
        below = [trial for trial in own if trial.sizes[0] < middle][::-1]
        parts = []
        for side in (trials for trials in (below, above) if trials):
            held = list(itertools.takewhile(lambda trial: trial.holds, side))
            words = [f"holds to {held[-1].sizes[0]:g}"] if held else []
            words += ["the furthest tried" if len(held) == len(side) else _failing(side[len(held)])]
            parts.append(", ".join(words))
        return "; ".join(parts)


def _failing(trial: Trial) -> str:
    violated = [one.name for one in trial.score.violations if one.excess]
    why = f", violates {', '.join(violated)}" if violated else ""
    return f"fails at {trial.sizes[0]:g} ({trial.score.mean:.4g}{why})"


def perturbations_for(task: Task, wanted: Sequence[str] = (), *, grid: bool = False) -> list[tuple[Perturbation, ...]]:
    """Return the perturbations to try: those asked for as `NAME` or `NAME=SIZE,SIZE,...`, else all that fit the task.

    A perturbation of the task file is tried at its ends and in the middle, also if it is a keyword argument. With
    `grid`, all sizes of two perturbations are combined, the nominal ones included. Raises UsageError if there is no
    such perturbation, or if there are not two for a grid.
    """
    found: list[Perturbation] = []
    stated = {one.name: one for one in task.perturb}
    smallest = {name: perturbation(name, sizes[0], sizes[0]) for name, sizes in SIZES.items()}
    fitting = [name for name in KINDS if name not in stated and fits(task, smallest[name])]
    names = list(wanted) or [*stated, *fitting]
    for text in names:
        name, equals, sizes = text.partition("=")
        if equals:
            try:
                values = [float(size) for size in sizes.split(",")]
            except ValueError:
                raise UsageError(f"--perturb {text:.60}: write numbers after `=`, as in mass=0.7,1.3") from None
        elif name in stated:
            values = sorted({stated[name].low, (stated[name].low + stated[name].high) / 2, stated[name].high})
        elif name in SIZES:
            values = list(SIZES[name])
        else:
            raise UsageError(
                f"--perturb {text:.60}: write its sizes, as in {name}=0.8,1.2; known are {', '.join(KINDS)}"
            )
        found += [perturbation(name, value, value) for value in values]
    if not grid:
        return [(one,) for one in found]
    sides = {one.name: {one} for one in found}
    if len(sides) != 2:
        raise UsageError("--grid combines two perturbations: give two, as in --perturb action_delay --perturb mass")
    for one in found:
        sides[one.name].add(one)
    for name, side in sides.items():
        if not name.startswith("kwargs."):  # the nominal value of an argument of the environment is unknown
            nominal = NOMINAL.get(name, 0.0)
            side.add(Perturbation(name, nominal, nominal))
    return list(itertools.product(*(sorted(side, key=lambda one: one.low) for side in sides.values())))


def margins(
    policies: Mapping[str, Policy | Any],
    task: Task,
    perturbations: Sequence[tuple[Perturbation, ...]],
    *,
    episodes: int = 50,
    seed: int = 0,
    against: str | None = None,
) -> list[Margins]:
    """Score policies on the same episodes under each entry of `perturbations`, and without any.

    A policy holds if hard requirements are violated in no larger share of episodes than allowed, and its mean return is
    at least the threshold: the score that counts as solved. If it does not reach that without perturbations, it must
    keep nine tenths of its gain over random actions; without a gain, the threshold is its score without perturbations.

    Args:
        policies: by name; also agents of other libraries, see `play_agent`.
        task: that of the policies.
        against: name of the policy with which the others are compared.

    Raises:
        TaskError: a perturbation does not fit the environment.
    """
    nominal_task = replace(task, perturb=())
    seeds = episode_seeds(seed, "evaluation", episodes)
    with Players(nominal_task) as players:
        random = sampled_score(players.play(RandomActor(nominal_task, seed), seeds), players.engine).mean
    nominal = scores_of(policies, nominal_task, seeds)
    thresholds = {}
    for name, score in nominal.items():
        if task.solved is not None and score.mean >= task.solved:
            thresholds[name] = task.solved
        else:
            thresholds[name] = random + KEPT * (score.mean - random) if score.mean > random else score.mean
    found: dict[str, list[Trial]] = {name: [] for name in policies}
    for entry in perturbations:
        played = _played(policies, replace(task, perturb=entry), seeds)
        for name, (score, trajectories) in played.items():
            gain = p = None
            if against is not None and against != name:
                compared = difference(score, played[against][0])
                gain, p = compared.gain, compared.p
            holds = score.mean >= thresholds[name] and not excess(score.violations)
            worst = min(trajectories, key=lambda one: one.episode_return)
            found[name].append(Trial(name, entry, score, gain, p, holds, worst))
    return [Margins(name, nominal[name], thresholds[name], tuple(found[name])) for name in policies]


def scores_of(policies: Mapping[str, Any], task: Task, seeds: Sequence[int]) -> dict[str, Score]:
    """Score policies, and agents of other libraries, on the same episodes, one per seed."""
    return {name: score for name, (score, _) in _played(policies, task, seeds).items()}


def _played(
    policies: Mapping[str, Any], task: Task, seeds: Sequence[int]
) -> dict[str, tuple[Score, Sequence[Trajectory]]]:
    """Return the score and the episodes of each policy."""
    found: dict[str, tuple[Score, Sequence[Trajectory]]] = {}
    with Players(task) as players:
        for name, policy in policies.items():
            own = isinstance(policy, Policy)
            episodes = players.play(policy, seeds) if own else play_agent(policy, task, seeds)
            engine = players.engine if own else engine_words(ENGINE, task)
            found[name] = score_with_violations(task, episodes, engine), episodes
    return found


def worst_of(margins: Margins) -> list[tuple[str, Trajectory]]:
    """Return the worst episode of each perturbation at the size with the lowest mean, with a title."""
    lowest: dict[str, Trial] = {}
    for trial in margins.trials:
        if trial.score.mean < lowest.setdefault(trial.name, trial).score.mean:
            lowest[trial.name] = trial
    return [(", ".join(map(str, one.perturbations)), one.worst) for one in lowest.values() if one.worst is not None]


# --- shown -----------------------------------------------------------------------------------------------------------


def names_of(found: Sequence[Margins]) -> list[str]:
    """Return the perturbations that were tried, in their order."""
    return list(dict.fromkeys(trial.name for one in found for trial in one.trials))


def protocol(perturbations: Sequence[tuple[Perturbation, ...]], episodes: int, seed: int) -> str:
    """Return sentences on how margins were measured, and on what the perturbations are."""
    together = "two perturbations" if len(perturbations[0]) > 1 else "one perturbation"
    kinds = dict.fromkeys(one.name for entry in perturbations for one in entry if one.name in KINDS)
    meanings = "; ".join(f"{name}: {KINDS[name]}" for name in kinds)
    return (
        f"Mean returns over {episodes} episodes each (seed {seed}), the same for all; {together} at a time. {meanings}"
    )


def lines(found: Sequence[Margins]) -> list[str]:
    """Return a description of the margins of each policy, with a line for each perturbation."""
    described = []
    for one in found:
        already = "; fails without perturbations, too" if excess(one.nominal.violations) else ""
        described.append(f"{one.policy}: {one.nominal}; counts as failing below {one.threshold:.4g}{already}")
        described += [f"  requirement {violations}" for violations in one.nominal.violations]
        described += [f"  {name}: {one.words(name)}" for name in names_of(found)]
    return described


def table(found: Sequence[Margins]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of the table of all scores."""
    compared = any(trial.gain is not None for one in found for trial in one.trials)
    violated = any(one.nominal.violations for one in found)
    header: tuple[str, ...] = ("perturbation", "size", "policy", "score [95% interval]", "holds")
    header += ("violations",) * violated + ("against the baseline",) * compared
    order = names_of(found)
    trials = [trial for one in found for trial in one.trials]
    rows = []
    for trial in sorted(trials, key=lambda trial: (order.index(trial.name), trial.sizes)):
        counts = ", ".join(f"{v.name} {v.violated} of {v.episodes}" for v in trial.score.violations if v.violated)
        gain = f"{trial.gain:+.4g} (p = {trial.p:.2g})" if trial.gain is not None else ""
        sizes = " and ".join(f"{size:g}" for size in trial.sizes)
        score = with_interval(trial.score.mean, trial.score.ci95)
        row = (trial.name, sizes, trial.policy, score, "yes" if trial.holds else "no")
        rows.append((*row, *(counts or "none",) * violated, *(gain,) * compared))
    return header, rows


def picture(found: Sequence[Margins], *, narrow: bool = False) -> Figure:
    """Draw the score of each policy over the size of each perturbation, with 95% intervals; a grid as heat maps.

    A picture for a `narrow` screen has one column of panels; heat maps stay as they are.
    """
    if any(len(trial.sizes) > 1 for one in found for trial in one.trials):
        return _heat_maps(found)
    names = names_of(found)
    columns = 1 if narrow else min(3, max(1, len(names)))
    rows = math.ceil(len(names) / columns)
    with style():
        figure = new_figure(4.4 if narrow else 4 * columns, 2.6 * rows)
        for place, name in enumerate(names):
            panel = figure.add_subplot(rows, columns, place + 1)
            for k, one in enumerate(found):
                own = [(trial.sizes[0], trial.score) for trial in one.trials if trial.name == name]
                if not name.startswith("kwargs."):
                    own.append((NOMINAL.get(name, 0.0), one.nominal))
                own.sort(key=lambda pair: pair[0])
                sizes, means = [size for size, _ in own], [score.mean for _, score in own]
                low, high = zip(*(score.ci95 or (score.mean, score.mean) for _, score in own), strict=True)
                drawn = look(k) | {"linestyle": "-"}
                colour = drawn["color"]
                panel.plot(sizes, means, markersize=4, label=one.policy, **drawn)
                panel.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)
                panel.axhline(one.threshold, color=colour if len(found) > 1 else GREY, linestyle=":", linewidth=1)
            panel.set(title=name, xlabel=_unit(name), ylabel="" if place % columns else "mean return")
        if len(found) > 1:
            ncols = 1 if narrow else min(3, len(found))
            figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=ncols)
    return figure


def _heat_maps(found: Sequence[Margins]) -> Figure:
    """Draw for each policy its scores over the sizes of two perturbations; those that do not hold are in brackets."""
    import matplotlib
    from matplotlib.colors import Normalize

    kinds = [one.name for one in found[0].trials[0].perturbations]
    across, up = (sorted({trial.sizes[k] for trial in found[0].trials}) for k in (0, 1))
    means = [trial.score.mean for one in found for trial in one.trials]
    colors, norm = matplotlib.colormaps["viridis"], Normalize(min(means), max(means))
    with style():
        width = max(3.2, 0.7 * len(across) + 1)
        figure = new_figure(width * len(found) + 1, max(3.4, 0.45 * len(up) + 1.6))
        panels = figure.subplots(1, len(found), squeeze=False)[0]
        for panel, one in zip(panels, found, strict=True):
            trials = sorted(one.trials, key=lambda trial: trial.sizes[::-1])
            scores = np.reshape([trial.score.mean for trial in trials], (len(up), len(across)))
            texts = [f"{t.score.mean:.3g}" if t.holds else f"({t.score.mean:.3g})" for t in trials]
            image = panel.pcolormesh(scores, cmap=colors, norm=norm)
            write_cells(panel, scores, np.reshape(texts, scores.shape), colors, norm, size=8)
            panel.set_xticks(np.arange(len(across)) + 0.5, [f"{size:g}" for size in across])
            panel.set_yticks(np.arange(len(up)) + 0.5, [f"{size:g}" for size in up])
            panel.set(title=one.policy, xlabel=f"{kinds[0]} ({_unit(kinds[0])})")
        panels[0].set_ylabel(f"{kinds[1]} ({_unit(kinds[1])})")
        figure.colorbar(image, ax=list(panels), label="mean return; in brackets: does not hold")
    return figure


def _unit(name: str) -> str:
    if name.startswith("kwargs."):
        return "value"
    return _UNITS.get(name, "share of the spread" if name in SENSORS else "share of the range")


def write(found: Sequence[Margins], path: Path, task: Task, about: str) -> Path:
    """Write margins as a table (.md), data (.json) or picture (.png); `about` is the protocol in a sentence.

    Raises LogbookError if the file cannot be written.
    """
    kind = path.suffix.lower()
    if kind == ".png":
        return save(picture(found), path)
    if kind == ".json":
        plain = [replace(one, trials=tuple(replace(trial, worst=None) for trial in one.trials)) for one in found]
        record = [{**asdict(one), "margins": {name: one.words(name) for name in names_of(found)}} for one in plain]
        text = json.dumps({"task": task.name, "about": about, "policies": record}, default=float) + "\n"
    else:
        header, rows = table(found)
        listed = (f"- {line.strip()}" for line in lines(found))
        scores = markdown_table(Table("scores", "", header, tuple(rows)))
        text = "\n".join([f"# Robustness on {task.name}", "", about, "", *listed, "", scores])
    write_named(path, text)
    return path
