"""Learning curves of single runs, of groups of runs, and of their averages."""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from policygen.episodes.score import number
from policygen.errors import UsageError
from policygen.extensions.plots.groups import Group, Member, grouped, names_of, read_member, unique_runs
from policygen.extensions.plots.statistics import Band, average
from policygen.extensions.plots.style import GREY, OKABE_ITO, Numbers, arms, check_suffix, look, new_figure, save, style
from policygen.files import write_atomically
from policygen.runs.facts import BEST, RESULT, in_brackets, score_fact
from policygen.runs.listeners import Listener, RunView
from policygen.runs.logbook import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

X_AXES = {
    "attempt": "attempt",
    "calls": "requests to the model",
    "episodes": "episodes played",
    "env_steps": "environment steps",
    "tokens": "tokens, in and out",
    "seconds": "wall-clock time [s]",
    "usd": "cost [USD]",
}
Looks = dict[str, dict[str, Any]]  # by group or contender: colour, line style and marker, the same in all panels
CURVE = "learning_curve.png"  # in the folder of a run
CHARACTERS_PER_INCH = 11  # of a title
WIDE_LABEL = 50  # characters; a longer label gives the legend a single column
LONGEST_LABEL = 85  # characters; a longer label is wrapped


def plot_runs(folders: str | Path | Sequence[str | Path], path: str | Path, *, x: str = "attempt") -> Path:
    """Draw the learning curves of one or many runs into `path`; return the path.

    One run has the score of each attempt, the best so far, and the final score with its 95% interval. Many runs have a
    panel for each task. A panel shows the mean of the best so far of each group (runs that differ in the seed only),
    with a 95% bootstrap band. An unfinished run is a thin dotted line and enters no mean.

    Args:
        folders: run folders, or a single one.
        path: a .png, .svg or .pdf file; its folder exists.
        x: the x axis: attempt, calls, episodes, env_steps, tokens, seconds or usd.

    Raises:
        UsageError: no folder is given, the suffix or `x` is unknown, or the runs spent nothing of `x`.
        LogbookError: a folder is not a run, is damaged or has no attempts yet, or `path` cannot be written.
    """
    check_suffix(Path(path))
    several = [folders] if isinstance(folders, str | Path) else folders
    return save(runs_figure([Path(folder) for folder in several], x=x), Path(path))


class LearningCurve(Listener):
    """A listener that draws the learning curve into the run folder when the run finishes."""

    def started(self, run: RunView) -> None:
        """Remember the run."""
        self._run = run

    def finished(self, summary: Summary) -> None:
        """Draw the curve if there is an attempt."""
        if self._run.search.attempts:
            draw_within(self._run.folder)


def draw_within(folder: Path) -> None:
    """Draw the learning curve of a run into its folder.

    Raises:
        LogbookError: it is not a run, is damaged or has no attempts yet, or the picture cannot be written.
    """
    save(runs_figure([folder]), folder / CURVE, write_atomically)


def runs_figure(folders: Sequence[Path], *, x: str = "attempt") -> Figure:
    """Build the figure that `plot_runs` saves; see there for contents and errors."""
    if x not in X_AXES:
        raise UsageError(f"cannot plot over `{x}`; choose one of {', '.join(X_AXES)}")
    if not folders:
        raise UsageError("no run folders are given, so there is nothing to plot")
    runs = [read_member(folder) for folder in unique_runs(folders)]
    if unknown := [run.folder for run in runs if np.isnan(run.curve[x]).any()]:
        raise UsageError(f"{unknown[0]} has costs of unknown price; plot over another --x")
    if all(not run.curve[x].any() for run in runs) and any(len(run.curve) > 1 for run in runs):
        raise UsageError(f"these runs have spent no {x}; plot over another --x")
    with style():
        if len(runs) == 1:
            figure = new_figure(8.0, 5.0)
            _draw_run(figure.add_subplot(), runs[0], x)
            return figure
        groups = grouped(runs)
        panels: dict[str, list[Group]] = {}
        for group in groups:
            panels.setdefault(group.task, []).append(group)
        # A group has the same look in all panels.
        looks = {label: look(i) for i, label in enumerate(dict.fromkeys(group.label for group in groups))}
        across = min(2, len(panels))
        down = math.ceil(len(panels) / across)
        height = 5.2 + 0.3 * max(map(len, panels.values()))
        figure = new_figure(8.0 if across == 1 else 12.5, height * down)
        for place, panel in enumerate(panels.values(), start=1):
            _draw_groups(figure.add_subplot(down, across, place), panel, x, looks)
        return figure


def _draw_run(axes: Axes, run: Member, x: str) -> None:
    frame, at = run.curve, run.curve[x]
    tried = frame[frame["attempt"] > 0]
    _draw_references(axes, [run])
    plain, accepted = tried[tried["accepted"] == 0], tried[tried["accepted"] == 1]
    tuned = tried[~np.isnan(tried["proposed"])]
    if len(tuned):
        axes.vlines(tuned[x], tuned["proposed"], tuned["score"], color=OKABE_ITO[0], linewidth=0.8, alpha=0.6)
        axes.plot(tuned[x], tuned["proposed"], "_", markersize=9, color=OKABE_ITO[0], label="before tuning")
    dots: dict[str, Any] = {"linestyle": "none", "markersize": 5.5, "color": OKABE_ITO[0], "zorder": 3}
    if not np.isnan(plain["score"]).all():
        axes.plot(plain[x], plain["score"], marker="o", markerfacecolor="white", label="attempt", **dots)
    if len(accepted):
        axes.plot(accepted[x], accepted["score"], marker="o", label="attempt that became the best", **dots)
    if not np.isnan(frame["best"]).all():
        axes.step(at, frame["level"], where="post", color=OKABE_ITO[0], linewidth=1.8, label="best so far")
    failed = tried[tried["failed"] == 1]
    if len(failed):
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.08 * (high - low), high)
        crosses: dict[str, Any] = {"linestyle": "none", "marker": "x", "markersize": 7, "markeredgewidth": 2}
        crosses |= {"color": OKABE_ITO[5], "label": f"failed attempt ({len(failed)})"}
        axes.plot(failed[x], np.full(len(failed), 0.03), transform=axes.get_xaxis_transform(), **crosses)
    end = float(at[-1])
    span = max(end - float(at[0]), 1e-9)
    if run.final is not None:
        end += 0.04 * span
        one = score_fact(RESULT, BEST[0], run.final, "fresh")
        text = f"{one.name}: {one.short}\n{one.basis}"
        diamond: dict[str, Any] = {"fmt": "D", "color": OKABE_ITO[5], "markersize": 6, "capsize": 4, "label": text}
        axes.errorbar([end], [run.final.mean], yerr=arms(run.final.mean, run.final.ci95), zorder=4, **diamond)
    axes.set_xlim(float(at[0]) - 0.02 * span, end + 0.02 * span)
    state = "" if run.finished else ", unfinished"
    (name,) = names_of([run])
    title = f"{run.task.name}: {name}, seed {run.config.seed}{state}"
    _label(axes, title, x, float(at[-1]), "mean return per episode")


def _draw_groups(axes: Axes, groups: Sequence[Group], x: str, looks: Looks) -> None:
    """Draw one task: for each group its runs, their mean curve, its band and its final score."""
    runs = [run for group in groups for run in (*group.averaged, *group.unfinished)]
    _draw_references(axes, runs)
    start, end = min(float(run.curve[x][0]) for run in runs), max(float(run.curve[x][-1]) for run in runs)
    step = 0.025 * max(end - start, 1e-9)
    for place, group in enumerate(groups, start=1):
        own = looks[group.label]
        for run in runs:
            if run in group.unfinished or (run in group.averaged and len(group.averaged) > 1):
                drawn = {"linewidth": 0.7, "alpha": 0.5} if run.finished else {"linewidth": 1.1, "linestyle": ":"}
                axes.step(run.curve[x], run.curve["level"], where="post", color=own["color"], **drawn)
        draw_mean(
            axes, [(run.curve[x], run.curve["level"]) for run in group.averaged], label=_legend_text(group), **own
        )
        if (final := group.final_score) is not None:
            diamond: dict[str, Any] = {"fmt": "D", "color": own["color"], "markersize": 5, "zorder": 4}
            axes.errorbar([end + place * step], [final[0]], yerr=arms(*final), **diamond)
    axes.set_xlim(start - step, end + (len(groups) + 1) * step)
    _label(axes, groups[0].task, x, end, "mean return per episode, best so far")


def _legend_text(group: Group) -> str:
    """Describe a group for the legend: its name, its numbers of runs, and its mean final score."""
    n = len(group.averaged)
    parts = [f"mean of {n} runs, 95% band" if n > 1 else "1 run"] if n else []
    if (final := group.final_score) is not None:
        parts.append(f"{BEST[0]} {number(final[0])}{in_brackets(final[1])}")
    if group.without_policy:
        parts.append(f"{group.without_policy} without a policy")
    if group.unfinished:
        parts.append(f"{len(group.unfinished)} unfinished (dotted)")
    return textwrap.fill(f"{group.label}: {'; '.join(parts)}", LONGEST_LABEL)


def draw_mean(axes: Axes, curves: Sequence[tuple[Numbers, Numbers]], **drawn: Any) -> Band | None:
    """Draw the mean curve of some runs with its 95% band, and return it; without runs only its entry in the legend.

    Args:
        curves: for each run the increasing amounts spent, and the best score from each of them on.
        drawn: colour, line style, label, and a marker for the end of the curve.
    """
    import matplotlib

    if not curves:
        axes.plot([], [], **drawn)
        return None
    band = average([x for x, _ in curves], [level for _, level in curves])
    if len(curves) > 1:
        axes.fill_between(band.x, band.low, band.high, step="post", color=drawn["color"], alpha=0.2, linewidth=0)
    # The marker shows a group even if it spent nothing of `x` and has no line.
    marked = [len(band.x) - 1] if len(band.x) else []
    width = 1.5 * matplotlib.rcParams["lines.linewidth"]
    axes.step(band.x, band.centre, where="post", linewidth=width, zorder=3, markevery=marked, **drawn)
    return band


def count_axis(axes: Axes, x: str, last: float, most: int = 10) -> None:
    """Put about `most` ticks on an axis of `X_AXES`, from 0 to `last`; at whole numbers only if it is a count.

    Final scores are drawn beyond `last`, where a tick would mean nothing.
    """
    from matplotlib.ticker import EngFormatter, MaxNLocator

    whole = x not in ("seconds", "usd")
    ticks = MaxNLocator(most, integer=whole).tick_values(0, last)
    axes.set_xticks([tick for tick in ticks if 0 <= tick <= last])
    if whole:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _draw_references(axes: Axes, runs: Sequence[Member]) -> None:
    """Draw lines for the mean of random actions over the runs, and for the scores that the task states."""
    known = [score for run in runs if not math.isnan(score := run.curve["score"][0])]
    task = runs[0].task
    lines = [("random actions", fmean(known), GREY, ":", 1.6)] if known else []
    lines += [("solved", task.solved, GREY, "--", 1.4)] if task.solved is not None else []
    lines += [("known optimum", task.optimum.value, "black", "-.", 1.2)] if task.optimum is not None else []
    for name, level, color, linestyle, width in lines:
        axes.axhline(level, color=color, linestyle=linestyle, linewidth=width, label=f"{name}: {level:.4g}")


def _label(axes: Axes, title: str, x: str, last: float, y_axis: str) -> None:
    """Add the title, the labels of the axes and the legend; `last` is the end of the curves."""
    from matplotlib.transforms import ScaledTranslation

    # Matplotlib's own wrapping reads `$` as the start of a formula even where that is turned off.
    place, figure = axes.get_subplotspec(), cast("Figure", axes.figure)
    panels = place.get_gridspec().ncols if place is not None else 1
    title = textwrap.fill(title, int(CHARACTERS_PER_INCH * figure.get_figwidth() / panels))
    axes.set(title=title, xlabel=X_AXES[x], ylabel=y_axis)
    count_axis(axes, x, last)
    axes.grid(axis="y")
    # At a fixed distance below the axes, a legend of any length covers no data and no label.
    below = axes.transAxes + ScaledTranslation(0, -0.55, axes.figure.dpi_scale_trans)
    labels = axes.get_legend_handles_labels()[1]
    if labels:
        columns = 2 if all(len(line) < WIDE_LABEL for label in labels for line in label.split("\n")) else 1
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=below, ncols=columns)
