"""Pictures of episodes over their steps: signals with the limits of requirements, and a plant's predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.requirements import Requirements
from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.style import GREY, OKABE_ITO, Numbers, new_figure, style, with_unit
from policygen.plants.record import predicted
from policygen.policies.plant import Equations
from policygen.quantities.text import to_text
from policygen.quantities.tree import Call, Name
from policygen.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 12
MOST_LINES = 4  # of a panel
_COLUMN_WIDTH, _SINGLE_WIDTH, _PANEL_HEIGHT = 3.6, 4.4, 1.5  # inches; _SINGLE_WIDTH: of a figure with one column
_PREDICTION_WIDTH, _PREDICTION_HEIGHT = 8.0, 1.9  # inches: width of two columns, height of a panel
_PREDICTION_STEPS = 300
_PREDICTION_MARGIN = 0.25  # share of the real range by which a prediction may leave it before it is cut off


@dataclass(frozen=True, slots=True)
class _Signal:
    """A quantity over the steps of an episode."""

    name: str
    values: Numbers
    unit: str = ""
    labels: tuple[str, ...] = ()  # names of the values 0, 1, ... of a choice
    # limits at each step, each with the name of the requirement that states it
    limits: tuple[tuple[str, Numbers], ...] = ()


def signals_figure(task: Task, episodes: Sequence[tuple[str, Trajectory]], *, narrow: bool = False) -> Figure:
    """Draw the signals of some episodes: observations, actions, and quantities that requirements limit.

    Each episode has a column with its title. Signals of the same unit share a panel, so that a set point is drawn with
    the measured value. If `narrow`, only the last episode is drawn, for a narrow screen.
    """
    shown = episodes[-1:] if narrow else episodes
    panels = [_panels(task, episode) for _, episode in shown]
    names = [tuple(signal.name for signal in panel) for panel in panels[0]][:MOST_PANELS]
    with style():
        width = _SINGLE_WIDTH if narrow else max(6.0, _COLUMN_WIDTH * len(shown))
        figure = new_figure(width, _PANEL_HEIGHT * len(names) + 0.7)
        grid = figure.subplots(len(names), len(shown), squeeze=False, sharex="col", sharey="row")
        for column, (title, episode), found in zip(grid.T, shown, panels, strict=True):
            column[0].set_title(f"{title}\nreturn {episode.episode_return:.5g}, seed {episode.seed}", fontsize=9)
            for axes, signals in zip(column, found, strict=False):
                _draw(axes, signals)
            column[-1].set_xlabel("step")
        for axes, signals in zip(grid[:, 0], panels[0], strict=False):
            first = signals[0]
            axes.set_ylabel(with_unit(first.name, first.unit) if len(signals) == 1 else first.unit)
        figure.align_ylabels(list(grid[:, 0]))
        return figure


def best_median_worst(episodes: Sequence[Trajectory]) -> list[tuple[str, Trajectory]]:
    """Return the episodes with the highest, the median and the lowest return, with titles; fewer if there are fewer."""
    order = sorted(episodes, key=lambda episode: -episode.episode_return)
    chosen = {0: "best", len(order) // 2: "median", len(order) - 1: "worst"}
    return [(f"{title} of {len(order)}", order[place]) for place, title in chosen.items() if order]


def plant_figure(equations: Equations, episode: Trajectory, *, narrow: bool = False) -> Figure:
    """Draw each observation over the steps of an episode, real and predicted from the same start and actions.

    If `narrow`, the panels are in one column, for a narrow screen.
    """
    names = equations.task.observations[:MOST_PANELS]
    real, found = (rows[: _PREDICTION_STEPS + 1] for rows in (episode.observations, predicted(equations, episode)))
    across = 1 if narrow else min(2, len(names))
    down = math.ceil(len(names) / across)
    with style():
        figure = new_figure(_SINGLE_WIDTH if narrow else _PREDICTION_WIDTH, _PREDICTION_HEIGHT * down + 0.6)
        first: Any = None
        for i, observation in enumerate(names):
            axes = figure.add_subplot(down, across, i + 1, sharex=first)
            first = first or axes
            axes.plot(real[:, i], color=OKABE_ITO[0], linewidth=2.6, alpha=0.55, label="real")
            axes.plot(found[:, i], color=OKABE_ITO[5], linewidth=1.2, linestyle="--", label="predicted")
            finite = real[np.isfinite(real[:, i]), i].astype(np.float64)
            if len(finite) and np.ptp(finite) > 0:
                room = _PREDICTION_MARGIN * float(np.ptp(finite))
                low, high = axes.get_ylim()
                axes.set_ylim(max(low, float(finite.min()) - room), min(high, float(finite.max()) + room))
            axes.set_ylabel(with_unit(observation.name, observation.unit))
            axes.locator_params(axis="x", integer=True)
            if i >= len(names) - across:
                axes.set_xlabel("step")
        figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=2)
        return figure


def _panels(task: Task, episode: Trajectory) -> list[list[_Signal]]:
    """Return the signals of an episode by panel."""
    known = {name for name, _ in episode.info}
    readable = tuple(one for one in task.requirements if one.info_names <= known)  # files do not keep `info`
    compared = Requirements(replace(task, requirements=readable)).sides(episode)
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
                others.append([_Signal(to_text(side.node), side.left, limits=((side.requirement, side.right),))])
    return [
        *_by_panel([_Signal(o.name, row, o.unit, limits=tuple(limits.get(o.name, ()))) for o, row in observed]),
        *_by_panel([_Signal(o.name, row, o.unit, o.labels) for o, row in zip(task.actuators, actions.T, strict=True)]),
        *others,
    ]


def _by_panel(signals: Sequence[_Signal]) -> list[list[_Signal]]:
    """Return signals by panel: at most `MOST_LINES` of one unit share a panel."""
    panels: list[list[_Signal]] = []
    for signal in signals:
        alike = (panel for panel in panels if signal.unit and panel[0].unit == signal.unit and not signal.labels)
        fitting = next((panel for panel in alike if len(panel) < MOST_LINES), None)
        if fitting is None:
            panels.append([signal])
        else:
            fitting.append(signal)
    return panels


def _draw(axes: Axes, signals: Sequence[_Signal]) -> None:
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
