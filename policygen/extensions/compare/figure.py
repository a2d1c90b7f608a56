"""A comparison as one figure: learning curves of each task, performance profiles and mean scores over all tasks.

The figure is as wide as one or two columns of a paper; fifteen tasks fit on a page.
"""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.errors import PathError, UsageError
from policygen.extensions.compare.comparison import means_over_tasks, normalised_scores
from policygen.extensions.compare.contenders import ComparedScores, contender_names
from policygen.extensions.compare.statistics import performance_profile
from policygen.extensions.compare.words import number
from policygen.extensions.plots.curves import X_AXES, Looks, count_axis, draw_mean
from policygen.extensions.plots.statistics import Interval, interval_over_seeds
from policygen.extensions.plots.style import GREY, arms, look, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS = {1: 3.5, 2: 7.16}  # inches, by the number of columns
ACROSS = {1: 2, 2: 3}  # panels in a row, by the number of columns
PANEL = 1.42  # height in inches
_TICKS = {"labelsize": 6.5, "major.size": 2, "major.pad": 1.5, "major.width": 0.6}
# Lines to compare with: the best published score of a task, its other published scores, and random actions.
_BEST: dict[str, Any] = {"color": "black", "linewidth": 0.8}
_OTHERS: dict[str, Any] = {"color": GREY, "linewidth": 0.4, "alpha": 0.7}
_RANDOM: dict[str, Any] = {"color": GREY, "linewidth": 0.8, "linestyle": ":"}
_PAPER = {  # style of a figure as wide as a column
    **{"font.size": 7, "axes.titlesize": 7.5, "axes.titlepad": 3, "axes.labelsize": 7, "legend.fontsize": 7},
    **{"axes.linewidth": 0.6, "lines.linewidth": 0.75, "lines.markersize": 3, "errorbar.capsize": 1.5},
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in _TICKS.items()},
    "figure.dpi": 300,
}


def comparison_figure(compared: ComparedScores, *, columns: int = 2, x: str = "episodes") -> Figure:
    """Draw a comparison, as wide as 1 or 2 `columns` of a paper, over one of `X_AXES`; return the figure.

    Each task has a panel. Its curves are means of the best score so far, on each run's own search seeds, with a 95%
    bootstrap band; they are dashed after all runs have ended. Marks at the right are means of the final scores on fresh
    seeds, with a 95% interval. Horizontal lines are the published columns (the best is black) and random actions
    (dotted). A panel may leave out the first tenth of its curves, and then says where they begin. Several tasks and
    contenders add two panels: performance profiles and mean normalised scores.

    Raises:
        UsageError: the comparison has no learning curves.
        PathError: no run counts `x`, or one does not know its seconds or its cost.
    """
    if compared.unit == "episode":
        raise UsageError("policies that are played have no learning curves to draw; write a .md, .html or .json")
    without = next((run for run in compared.results if len(run.curve) and x not in run.spent), None)
    if x in ("seconds", "usd") and without is not None:
        why = f"its file has no column `{x}`" if without.seed is None else "the price of a model is unknown"
        raise PathError(f"{without.contender} on {without.task}: {why}; choose another --x")
    if not any(np.any(run.spent.get(x, 0)) for run in compared.results):
        raise PathError(f"no run counts {x}; choose another --x")
    with style(_PAPER):
        tasks = compared.tasks
        across = min(ACROSS[columns], max(1, len(tasks)))
        down = math.ceil(len(tasks) / across)
        means = means_over_tasks(compared) if len(tasks) > 1 else {}
        stacked = 3 - columns  # a column is too narrow for the last two side by side
        heights = [PANEL * down] + ([PANEL * 1.3 * stacked] if len(means) > 1 else [])
        looks = {name: look(i) for i, name in enumerate(compared.contenders)}
        legend = 0.16 * (2 + math.ceil((len(compared.contenders) + bool(compared.published)) / across))
        figure = new_figure(WIDTHS[columns], sum(heights) + legend)
        # In a subfigure of its own, a long name below does not narrow the panels above.
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        for place, task in enumerate(tasks):
            panel = parts[0].add_subplot(down, across, place + 1)
            _draw_task(panel, compared, looks, task, x)
            if place % across == 0:
                panel.set_ylabel("best mean return\nper episode")
            if place + across >= len(tasks):
                panel.set_xlabel(X_AXES[x])
        if len(means) > 1:
            profiles, points = parts[1].subplots(stacked, columns)
            _draw_overall(profiles, points, compared, looks, means)
        _draw_legend(figure, compared, looks)
        return figure


def _draw_task(axes: Axes, compared: ComparedScores, looks: Looks, task: str, x: str) -> None:
    """Draw the panel of a task: curves, final scores beyond their ends, published columns and random actions."""
    from matplotlib.ticker import MaxNLocator

    seen: list[float] = []
    end = max((run.total(x) or 0.0 for run in compared.results if run.task == task), default=0.0) or 1.0
    drawn = [name for name in compared.contenders if compared.of(task, name)]
    begin = math.inf
    for i, name in enumerate(drawn):
        curves = [(run.spent[x], run.curve) for run in compared.of(task, name) if len(run.spent.get(x, ()))]
        if curves:
            band = draw_mean(axes, curves, end, mean=np.mean, **looks[name] | {"marker": ""})
            begin = min(begin, float(band.centre.min()))
            seen += band.centre[band.x >= 0.1 * band.x[-1]].tolist()
        scores = compared.scores(task, name)
        mean, interval = float(scores.mean()), interval_over_seeds(scores)
        mark = {"fmt": looks[name]["marker"], "color": looks[name]["color"]}
        axes.errorbar([end * (1.05 + 0.05 * i)], [mean], yerr=arms(mean, interval), zorder=4, **mark)
        seen += [mean, *(interval or ())]
    published = sorted(compared.published_means(task))
    for level in published:
        axes.axhline(level, zorder=1, **(_BEST if level == published[-1] else _OTHERS))
    random = [run.random for run in compared.results if run.task == task and run.random is not None]
    if random:
        axes.axhline(float(np.mean(random)), zorder=1, **_RANDOM)
    seen += published[-2:]  # a published level far below these would squeeze the curves
    low, high = min(seen, default=0.0), max(seen, default=1.0)
    margin = 0.07 * (high - low) or 0.5
    right = end * (1.05 + 0.05 * len(drawn))
    axes.set(title=task, xlim=(0, right), ylim=(low - margin, high + margin))
    if begin < low - margin:
        note = f"curves begin at {number(begin)}"
        axes.text(0.99, 0.02, note, transform=axes.transAxes, ha="right", fontsize=5.5, color=GREY, in_layout=False)
    count_axis(axes, x, end, 4)
    axes.yaxis.set_major_locator(MaxNLocator(4))


def _draw_overall(
    profiles: Axes,
    points: Axes,
    compared: ComparedScores,
    looks: Looks,
    means: dict[str, tuple[float, Interval | None]],
) -> None:
    """Draw the panels over all tasks: performance profiles, and the mean normalised scores `means`."""
    thresholds = np.linspace(0, 110, 111)
    for i, (name, (mean, interval)) in enumerate(means.items()):
        color = looks[name]["color"]
        profile = performance_profile([normalised_scores(compared, task, name) for task in compared.tasks], thresholds)
        profiles.fill_between(thresholds, profile.low, profile.high, color=color, alpha=0.2, linewidth=0)
        profiles.plot(thresholds, profile.centre, **looks[name] | {"linewidth": 1.1, "marker": ""})
        mark = {"fmt": looks[name]["marker"], "color": color, "markersize": 4, "capsize": 2, "linewidth": 1.5}
        points.errorbar([mean], [-i], xerr=arms(mean, interval), **mark)
    profiles.set(title="performance profile", xlim=(0, 110), ylim=(-0.02, 1.02))
    profiles.set(xlabel="normalised score (100: best known)", ylabel="share of runs above")
    points.set(title="mean over all tasks", xlabel="normalised score, 95% interval", ylim=(0.4 - len(means), 0.6))
    short = contender_names(compared)
    points.set_yticks([-i for i in range(len(means))], [textwrap.fill(short[name], 22) for name in means])


def _draw_legend(figure: Figure, compared: ComparedScores, looks: Looks) -> None:
    axes = figure.axes[0]  # it has an invisible line for each entry, because not every contender has a curve
    for name, own in looks.items():
        counts = [len(found) for task in compared.tasks if (found := compared.of(task, name))] or [0]
        runs = f"n = {min(counts)}" if min(counts) == max(counts) else f"n = {min(counts)} to {max(counts)}"
        # Scores of other programs state what they are, such as a mean of training episodes.
        meanings = dict.fromkeys(run.meaning.partition(",")[0] for run in compared.results if run.contender == name)
        runs = "; ".join(filter(None, (runs, *meanings)))
        axes.plot([], [], linewidth=1.1, label=f"{name} ({runs})", **own)
    if compared.published:
        axes.plot([], [], label="best published score", **_BEST)
        names = ", ".join(column.name for column in compared.published)
        axes.plot([], [], label=textwrap.shorten(f"others of {names}", 60), **_OTHERS)
    if any(run.random is not None for run in compared.results):
        axes.plot([], [], label="random actions", **_RANDOM)
    axes.plot([], [], color=GREY, marker="o", linestyle="", label="final score, fresh seeds")
    if any(len(compared.of(task, name)) > 1 for task in compared.tasks for name in compared.contenders):
        axes.fill_between([], [], color=GREY, alpha=0.2, linewidth=0, label="95% interval over runs")
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(len(labels), int(figure.get_figwidth() * 16 / (max(map(len, labels)) + 8))))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
