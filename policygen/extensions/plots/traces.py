"""Traces of episodes: observations and actions over time, with the limits of requirements."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.copies import pool_for
from policygen.episodes.requirements import Requirements
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import ParallelSimulator
from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.style import GREY, OKABE_ITO, Numbers, new_figure, style, with_unit
from policygen.policies.policy import Policy
from policygen.quantities.text import to_text
from policygen.quantities.tree import Call, Name
from policygen.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPISODES = 20  # number from which the best, the median and the worst are chosen
MOST_PANELS = 12
MOST_LINES = 4  # per panel
MOST_CHANGES = 60  # of a choice, to be drawn as a line
LONGEST_LABEL = 20  # characters per line beside a panel
_COLUMN_WIDTH, _PANEL_HEIGHT = 3.6, 1.5  # inches


@dataclass(frozen=True, slots=True)
class Signal:
    """A quantity over the steps of an episode."""

    name: str
    values: Numbers
    unit: str = ""
    labels: tuple[str, ...] = ()  # names of the values 0, 1, ... of a choice
    # the name of a requirement, and its limit at each step
    limits: tuple[tuple[str, Numbers], ...] = ()


def scored_episodes(policy: Policy, episodes: int, seed: int) -> list[Trajectory]:
    """Play the first episodes that `policygen eval` plays with the same seed.

    Warns:
        UserWarning: EnvPool scores this task, whose episodes differ.

    Raises:
        TaskError, EnvironmentFault: the environment cannot be made, or fails.
    """
    if pool_for(policy.task, 1) is not None:
        what = "EnvPool, which scores this task, starts episodes differently; these are episodes of Gymnasium"
        warnings.warn(what, stacklevel=2)
    with ParallelSimulator(policy.task, use_pool=False) as players:
        return list(players.play(policy, episode_seeds(seed, "evaluation", episodes)))


def best_median_worst(episodes: Sequence[Trajectory]) -> dict[str, Trajectory]:
    """Return the episodes with the highest, median and lowest return, by title; one or two episodes give fewer."""
    order = sorted(episodes, key=lambda episode: -episode.episode_return)
    chosen = {0: "best", len(order) // 2: "median", len(order) - 1: "worst"}
    return {f"{title} of {len(order)}": order[place] for place, title in chosen.items() if order}


def traces_figure(task: Task, episodes: Mapping[str, Trajectory]) -> Figure:
    """Draw the signals of some episodes over time: observations and actions, with the limits of requirements.

    Signals with the same unit share a panel, so that a set point is drawn with the measured value. Time is in seconds
    if the task states the length of a step.

    Args:
        episodes: episodes by title, one column each.
    """
    panels = [panels_of(task, episode) for episode in episodes.values()]
    count = min(len(panels[0]), MOST_PANELS)
    with style():
        figure = new_figure(max(6.0, _COLUMN_WIDTH * len(episodes)), _PANEL_HEIGHT * count + 0.7)
        grid = figure.subplots(count, len(episodes), squeeze=False, sharex="col", sharey="row")
        last = len(episodes) - 1
        for place, (title, episode) in enumerate(episodes.items()):
            column, found = grid[:, place], panels[place]
            column[0].set_title(f"{title}\nreturn {episode.episode_return:.5g}, seed {episode.seed}", fontsize=9)
            for axes, signals in zip(column, found, strict=False):
                draw_panel(axes, signals, task.step_seconds, limit_names=place == last)
                if len(signals) > 1:
                    axes.legend(fontsize=7, loc="best", ncols=2)
            column[-1].set_xlabel("time [s]" if task.step_seconds else "step")
        for axes, signals in zip(grid[:, 0], panels[0], strict=False):
            names = with_unit(", ".join(signal.name for signal in signals), signals[0].unit)
            axes.set_ylabel(textwrap.fill(names, LONGEST_LABEL), fontsize=8 if len(names) > LONGEST_LABEL else None)
        figure.align_ylabels(list(grid[:, 0]))
        return figure


def panels_of(task: Task, episode: Trajectory) -> list[list[Signal]]:
    """Return the signals of an episode by panel."""
    known = {name for name, _ in episode.info}
    readable = tuple(one for one in task.requirements if one.info_names <= known)  # files do not keep `info`
    at_end = {one.name for one in readable if one.at_end}
    compared = [
        side._replace(right=_last_alone(side.right)) if side.requirement in at_end else side
        for side in Requirements(replace(task, requirements=readable)).sides(episode)
    ]
    observed = zip(task.observations, episode.observations.astype(np.float64).T, strict=False)  # texts come last
    actions = np.asarray(episode.actions, np.float64).reshape(episode.length, -1)
    limits: dict[str, list[tuple[str, Numbers]]] = {}
    others = []
    for side in compared:
        match side.node:
            case Name(name) if name in task.observation_names:  # x < 1
                limits.setdefault(name, []).append((side.requirement, side.right))
            case Call("abs", (Name(name),)) if name in task.observation_names:  # abs(x) < 1
                limits.setdefault(name, []).extend([(side.requirement, side.right), (side.requirement, -side.right)])
            case _:
                others.append([Signal(to_text(side.node), side.left, limits=((side.requirement, side.right),))])
    return [
        *_by_panel([Signal(o.name, row, o.unit, limits=tuple(limits.get(o.name, ()))) for o, row in observed]),
        *_by_panel([Signal(o.name, row, o.unit, o.labels) for o, row in zip(task.actuators, actions.T, strict=True)]),
        *others,
    ]


def _last_alone(limit: Numbers) -> Numbers:
    """Return a limit that is required at the end only, with NaN before its last twentieth."""
    return np.where(np.arange(len(limit)) < 0.95 * (len(limit) - 1), np.nan, limit)


def _by_panel(signals: Sequence[Signal]) -> list[list[Signal]]:
    """Return the signals of each panel: at most `MOST_LINES` with the same unit share one."""
    panels: list[list[Signal]] = []
    for signal in signals:
        alike = (panel for panel in panels if signal.unit and panel[0].unit == signal.unit and not signal.labels)
        fitting = next((panel for panel in alike if len(panel) < MOST_LINES), None)
        if fitting is None:
            panels.append([signal])
        else:
            fitting.append(signal)
    return panels


def draw_panel(axes: Axes, signals: Sequence[Signal], step_seconds: float | None, *, limit_names: bool = True) -> None:
    """Draw signals over time in seconds, or over steps if the length of a step is unknown.

    Args:
        limit_names: whether to name the limits to the right of the panel.
    """
    for k, signal in enumerate(signals):
        times = (step_seconds or 1) * np.arange(len(signal.values))
        drawn: dict[str, Any] = {"color": OKABE_ITO[k % len(OKABE_ITO)], "linewidth": 1.2, "label": signal.name}
        if signal.labels:
            if np.count_nonzero(np.diff(signal.values)) > MOST_CHANGES:  # lines would fill the panel
                drawn |= {"linestyle": "none", "marker": "|", "markeredgewidth": 0.3}
            axes.step(times, signal.values, where="post", **drawn)
            axes.set_yticks(range(len(signal.labels)), signal.labels)
            axes.margins(y=0.2)
        else:
            axes.plot(times, signal.values, **drawn)
        for requirement, limit in signal.limits:
            axes.plot(times[: len(limit)], limit, color=GREY, linestyle="--", linewidth=1)
            known = limit[~np.isnan(limit)]
            if limit_names and len(known):
                place: dict[str, Any] = {"xy": (1.02, known[-1]), "xycoords": ("axes fraction", "data")}
                axes.annotate(requirement, **place, fontsize=7, color=GREY, va="center", annotation_clip=False)
    axes.locator_params(axis="x", integer=step_seconds is None)
