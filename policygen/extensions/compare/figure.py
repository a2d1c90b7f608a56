"""A comparison as one figure: the learning curves and the final scores of each task."""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from policygen.extensions.compare.comparison import Comparison
from policygen.extensions.plots.curves import X_AXES, Looks, count_axis, draw_mean
from policygen.extensions.plots.statistics import interval_over_seeds
from policygen.extensions.plots.style import arms, look, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, PANEL = 11.0, 2.2  # inches: the figure, and the height of a panel
ACROSS = 3  # panels in a row


def comparison_figure(comparison: Comparison) -> Figure:
    """Draw a comparison over the episodes played, with a panel for each task; return the figure.

    Curves are means of the best score so far, on each run's own search seeds, with a 95% bootstrap band; they end where
    all runs have ended. Marks at the right are means of the final scores on fresh seeds, with a 95% interval. A black
    line is the best published score.
    """
    tasks = comparison.tasks
    with style():
        across = min(ACROSS, len(tasks))
        down = math.ceil(len(tasks) / across)
        looks: Looks = {name: look(i) for i, name in enumerate(comparison.contenders)}
        figure = new_figure(WIDTH, PANEL * down + 0.25 * (3 + len(looks)))
        for place, task in enumerate(tasks):
            panel = figure.add_subplot(down, across, place + 1)
            _draw_task(panel, comparison, looks, task)
            if place % across == 0:
                panel.set_ylabel("best mean return\nper episode")
            if place + across >= len(tasks):
                panel.set_xlabel(X_AXES["episodes"])
        axes = figure.axes[0]  # it has an invisible line for each entry, because not every contender has a curve
        for name, own in looks.items():
            counts = sorted({len(found) for task in tasks if (found := comparison.of(task, name))})
            runs = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
            axes.plot([], [], label=f"{name} ({runs})", **own)
        if comparison.compared.published:
            axes.plot([], [], label="best published score", color="black")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=1 if max(map(len, labels)) > 40 else 3)
        return figure


def _draw_task(axes: Axes, comparison: Comparison, looks: Looks, task: str) -> None:
    """Draw the panel of a task: curves, final scores beyond their ends, and the best published score."""
    seen: list[float] = []
    drawn = [name for name in comparison.contenders if comparison.of(task, name)]
    curves = {name: [run.curve for run in comparison.of(task, name) if len(run.curve[0])] for name in drawn}
    end = float(max((x[-1] for own in curves.values() for x, _ in own), default=0.0)) or 1.0
    for i, name in enumerate(drawn):
        own = looks[name]
        band = draw_mean(axes, curves[name], **own | {"marker": ""})
        if band is not None:
            seen += band.centre[band.x >= 0.1 * band.x[-1]].tolist()  # the beginning may lie far below
        scores = comparison.scores(task, name)
        mean, interval = float(scores.mean()), interval_over_seeds(scores)
        place = [end * (1.05 + 0.05 * i)]
        axes.errorbar(place, [mean], yerr=arms(mean, interval), fmt=own["marker"], color=own["color"], zorder=4)
        seen += [mean, *(interval or ())]
    if published := comparison.published(task):
        seen.append(max(one.mean for one in published.values()))
        axes.axhline(seen[-1], color="black", linewidth=0.8, zorder=1)
    margin = 0.07 * (max(seen) - min(seen)) or 0.5
    axes.set(title=task, xlim=(0, end * (1.05 + 0.05 * len(drawn))), ylim=(min(seen) - margin, max(seen) + margin))
    count_axis(axes, "episodes", end, 4)
