"""Pictures of plants: the observations of a real episode beside those that the equations predict from its start."""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.style import OKABE_ITO, style
from policygen.plants.account import predicted
from policygen.policies.plant import Equations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS = 12  # observations
MOST_STEPS = 300
_WIDE, _NARROW, _PANEL = 8.0, 4.4, 1.9  # inches: widths, and the height of a panel
_ROOM = 0.25  # of the real range that a prediction may leave before it is cut off


def plant_figure(equations: Equations, episode: Trajectory, *, narrow: bool = False) -> Figure:
    """Draw each observation over the steps of an episode, as it was and as predicted from the same start and actions.

    Args:
        narrow: for a narrow screen: one column of panels.
    """
    names = equations.task.observations[:MOST_PANELS]
    real, found = episode.observations[: MOST_STEPS + 1], predicted(equations, episode)[: MOST_STEPS + 1]
    across = 1 if narrow else min(2, len(names))
    down = math.ceil(len(names) / across)
    with style():
        from matplotlib.figure import Figure

        size = (_NARROW if narrow else _WIDE, _PANEL * down + 0.6)
        figure = Figure(figsize=size, layout="constrained")
        first: Any = None
        for i, observation in enumerate(names):
            axes = figure.add_subplot(down, across, i + 1, sharex=first)
            first = first or axes
            axes.plot(real[:, i], color=OKABE_ITO[0], linewidth=2.6, alpha=0.55, label="real")
            axes.plot(found[:, i], color=OKABE_ITO[5], linewidth=1.2, linestyle="--", label="predicted")
            finite = real[np.isfinite(real[:, i]), i].astype(np.float64)
            if len(finite) and np.ptp(finite) > 0:
                room = _ROOM * float(np.ptp(finite))
                low, high = axes.get_ylim()
                axes.set_ylim(max(low, float(finite.min()) - room), min(high, float(finite.max()) + room))
            unit = f" [{observation.unit}]" if observation.unit else ""
            axes.set_ylabel(f"{observation.name}{unit}")
            axes.locator_params(axis="x", integer=True)
            if i >= len(names) - across:
                axes.set_xlabel("step")
        handles, labels = first.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
        return figure
