"""A comparison as one figure: the learning curves and the final scores of each task."""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.errors import PathError
from policygen.extensions.compare.comparison import Comparison
from policygen.extensions.plots.curves import X_AXES, Looks, count_axis, draw_mean
from policygen.extensions.plots.statistics import interval_over_seeds
from policygen.extensions.plots.style import GREY, arms, look, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, PANEL = 7.16, 1.42  # inches: two columns of a paper, and the height of a panel
ACROSS = 3  # panels in a row
_BEST: dict[str, Any] = {"color": "black", "linewidth": 0.8, "zorder": 1}
_OTHERS: dict[str, Any] = {"color": GREY, "linewidth": 0.4, "alpha": 0.7, "zorder": 1}
_PAPER = {  # style of a figure in a paper
    **{"font.size": 7, "axes.titlesize": 7.5, "axes.titlepad": 3, "axes.labelsize": 7, "legend.fontsize": 7},
    **{"axes.linewidth": 0.6, "lines.linewidth": 0.75, "lines.markersize": 3, "errorbar.capsize": 1.5},
    **{"xtick.labelsize": 6.5, "ytick.labelsize": 6.5, "figure.dpi": 300},
}


def comparison_figure(comparison: Comparison, *, x: str = "episodes") -> Figure:
    """Draw a comparison as wide as two columns of a paper, over one of `X_AXES`; return the figure.

    Each task has a panel. Its curves are means of the best score so far, on each run's own search seeds, with a 95%
    bootstrap band; they end where all runs have ended. Marks at the right are means of the final scores on fresh
    seeds, with a 95% interval. Horizontal lines are published scores; the best is black.

    Raises PathError if no run counts `x`, or one does not know its seconds or its cost.
    """
    results, tasks = comparison.compared.results, comparison.tasks
    without = next((run for run in results if run.curve and x not in run.curve), None)
    if without is not None and x in ("seconds", "usd"):
        raise PathError(f"{without.contender} on {without.task}: its {x} are unknown; choose another --x")
    if not any(np.any(run.curve.get(x, 0)) for run in results):
        raise PathError(f"no run counts {x}; choose another --x")
    with style(_PAPER):
        across = min(ACROSS, len(tasks))
        down = math.ceil(len(tasks) / across)
        looks: Looks = {name: look(i) for i, name in enumerate(comparison.contenders)}
        figure = new_figure(WIDTH, PANEL * down + 0.16 * (3 + len(looks)))
        for place, task in enumerate(tasks):
            panel = figure.add_subplot(down, across, place + 1)
            _draw_task(panel, comparison, looks, task, x)
            if place % across == 0:
                panel.set_ylabel("best mean return\nper episode")
            if place + across >= len(tasks):
                panel.set_xlabel(X_AXES[x])
        axes = figure.axes[0]  # it has an invisible line for each entry, because not every contender has a curve
        for name, own in looks.items():
            counts = sorted({len(found) for task in tasks if (found := comparison.of(task, name))})
            runs = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
            axes.plot([], [], linewidth=1.1, label=f"{name} ({runs})", **own)
        if comparison.compared.published:
            axes.plot([], [], label="best published score", **_BEST)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=1 if max(map(len, labels)) > 40 else 3)
        return figure


def _draw_task(axes: Axes, comparison: Comparison, looks: Looks, task: str, x: str) -> None:
    """Draw the panel of a task: curves, final scores beyond their ends, and published scores."""
    seen: list[float] = []
    drawn = [name for name in comparison.contenders if comparison.of(task, name)]
    ends = [run.curve[x][-1] for name in drawn for run in comparison.of(task, name) if len(run.curve.get(x, ()))]
    end = float(max(ends, default=0.0)) or 1.0
    for i, name in enumerate(drawn):
        own = looks[name]
        curves = [(run.curve[x], run.curve["level"]) for run in comparison.of(task, name) if len(run.curve.get(x, ()))]
        band = draw_mean(axes, curves, **own | {"marker": ""})
        if band is not None:
            seen += band.centre[band.x >= 0.1 * band.x[-1]].tolist()  # the beginning may lie far below
        scores = comparison.scores(task, name)
        mean, interval = float(scores.mean()), interval_over_seeds(scores)
        place = [end * (1.05 + 0.05 * i)]
        axes.errorbar(place, [mean], yerr=arms(mean, interval), fmt=own["marker"], color=own["color"], zorder=4)
        seen += [mean, *(interval or ())]
    published = sorted(mean for mean, *_ in comparison.published(task).values())
    for level in published:
        axes.axhline(level, **(_BEST if level == published[-1] else _OTHERS))
    seen += published[-2:]  # a published level far below these would squeeze the curves
    margin = 0.07 * (max(seen) - min(seen)) or 0.5
    axes.set(title=task, xlim=(0, end * (1.05 + 0.05 * len(drawn))), ylim=(min(seen) - margin, max(seen) + margin))
    count_axis(axes, x, end, 4)
