"""Pictures of whole episodes: observed and applied signals over the steps, with the limits of requirements."""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.requirements import Requirements, Sides
from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.style import GREY, OKABE_ITO, style
from policygen.quantities.tree import Call, Name
from policygen.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 12
MOST_LINES = 4  # of a panel
_WIDE, _NARROW, _PANEL = 3.6, 4.4, 1.5  # inches: width of a column, of the only one, and height of a panel


@dataclass(frozen=True, slots=True)
class Signal:
    """A quantity over the rows of an episode.

    Attributes:
        labels: names of the values 0, 1, ... of a choice.
        limits: values that it should stay below or above, over the rows, each with the name of its requirement.
    """

    name: str
    values: npt.NDArray[np.float64]
    unit: str = ""
    labels: tuple[str, ...] = ()
    limits: tuple[tuple[str, npt.NDArray[np.float64]], ...] = ()


def signals_figure(task: Task, episodes: Sequence[tuple[str, Trajectory]], *, narrow: bool = False) -> Figure:
    """Draw the signals of some episodes, a column for each: observations, actions, and what requirements compare.

    Signals of the same unit share a panel, so that a set point is drawn with the measured value.

    Args:
        episodes: with their titles.
        narrow: for a narrow screen: only the last episode.
    """
    shown = episodes[-1:] if narrow else episodes
    panels = [_panels(task, episode) for _, episode in shown]
    names = [tuple(signal.name for signal in panel) for panel in panels[0]][:MOST_PANELS]
    with style():
        from matplotlib.figure import Figure

        size = (_NARROW if narrow else max(6.0, _WIDE * len(shown)), _PANEL * len(names) + 0.7)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(names), len(shown), squeeze=False, sharex="col", sharey="row")
        for column, (title, episode), found in zip(grid.T, shown, panels, strict=True):
            column[0].set_title(f"{title}\nreturn {episode.episode_return:.5g}, seed {episode.seed}", fontsize=9)
            for axes, signals in zip(column, found, strict=False):
                _draw(axes, signals)
            column[-1].set_xlabel("step")
        for axes, signals in zip(grid[:, 0], panels[0], strict=False):
            unit = f" [{signals[0].unit}]" if signals[0].unit else ""
            axes.set_ylabel(f"{signals[0].name}{unit}" if len(signals) == 1 else signals[0].unit)
        figure.align_ylabels(list(grid[:, 0]))
        return figure


def best_median_worst(episodes: Sequence[Trajectory]) -> list[tuple[str, Trajectory]]:
    """Return the episodes with the highest, the median and the lowest return, with titles; fewer if there are fewer."""
    order = sorted(episodes, key=lambda episode: -episode.episode_return)
    chosen = {0: "best", len(order) // 2: "median", len(order) - 1: "worst"}
    return [(f"{title} of {len(order)}", order[place]) for place, title in chosen.items() if order]


def _panels(task: Task, episode: Trajectory) -> list[list[Signal]]:
    """Return the signals of an episode, those of one panel together."""
    observed = episode.observations.astype(np.float64)
    known = {name for name, _ in episode.info}
    readable = tuple(one for one in task.requirements if one.info_names <= known)  # files do not keep `info`
    compared = Requirements(replace(task, requirements=readable)).sides(episode)
    signals = [
        Signal(one.name, observed[:, i], one.unit, limits=_limits(one.name, compared))
        for i, one in enumerate(task.observations)
    ]
    panels = _together(signals)
    actions = np.asarray(episode.actions, np.float64).reshape(episode.length, -1)
    applied = [
        Signal(one.name, actions[:, i], one.unit, one.labels)
        for i, one in enumerate(task.actuators)
        if i < actions.shape[1]
    ]
    others = [
        [Signal(side.text, side.left, limits=((side.requirement, side.right),))]
        for side in compared
        if _name_of(side) not in {one.name for one in task.observations}
    ]
    return [*panels, *_together(applied), *others]


def _name_of(side: Sides) -> str:
    """Return the observation that a requirement limits: `x` of `x < 1` and of `abs(x) < 1`; empty for others."""
    match side.node:
        case Name(name) | Call("abs", (Name(name),)):
            return name
    return ""


def _limits(name: str, compared: Sequence[Sides]) -> tuple[tuple[str, npt.NDArray[np.float64]], ...]:
    found: list[tuple[str, npt.NDArray[np.float64]]] = []
    for side in compared:
        if _name_of(side) == name:
            found.append((side.requirement, side.right))
            if isinstance(side.node, Call):
                found.append((side.requirement, -side.right))
    return tuple(found)


def _together(signals: Sequence[Signal]) -> list[list[Signal]]:
    """Return signals by panel: those of one unit together, at most `MOST_LINES`."""
    panels: list[list[Signal]] = []
    for signal in signals:
        fitting = [
            panel
            for panel in panels
            if signal.unit and panel[0].unit == signal.unit and len(panel) < MOST_LINES and not signal.labels
        ]
        if fitting:
            fitting[0].append(signal)
        else:
            panels.append([signal])
    return panels


def _draw(axes: Axes, signals: Sequence[Signal]) -> None:
    for k, signal in enumerate(signals):
        drawn: dict[str, Any] = {"color": OKABE_ITO[k % len(OKABE_ITO)], "linewidth": 1.2, "label": signal.name}
        if signal.labels:
            axes.step(range(len(signal.values)), signal.values, where="post", **drawn)
            axes.set_yticks(range(len(signal.labels)), signal.labels)
        else:
            axes.plot(signal.values, **drawn)
        for requirement, limit in signal.limits:
            axes.plot(limit, color=GREY, linestyle="--", linewidth=1)
            axes.annotate(requirement, (0, limit[0]), fontsize=7, color=GREY, xytext=(2, 2), textcoords="offset points")
    if len(signals) > 1:
        axes.legend(fontsize=7, loc="best", ncols=2)
