"""Learning curves of single runs, of groups of runs, and of their averages."""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from policygen.errors import UsageError
from policygen.extensions.plots.groups import Group, Member, grouped, read_member, unique_runs
from policygen.extensions.plots.statistics import Band, average, centre_name, with_interval
from policygen.extensions.plots.style import GREY, OKABE_ITO, Numbers, arms, check_suffix, look, new_figure, save, style
from policygen.files import remove_parts, write_atomically
from policygen.runs.attempt import best_of
from policygen.runs.listeners import Listener, RunView
from policygen.runs.logbook import Logbook
from policygen.runs.records import Summary

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
_DASHED = (0, (4, 3))  # the continuation of a run or a mean that ended early

# A thin dotted line that ends in a ring marks an unfinished run.
_UNFINISHED: dict[str, Any] = {"linestyle": (0, (1, 1)), "linewidth": 1.1, "zorder": 4}
_UNFINISHED |= {"marker": "o", "markerfacecolor": "white"}
CHARACTERS_PER_INCH = 11  # of a title
WIDE_LABEL = 50  # characters; a longer label gives the legend a single column
LONGEST_LABEL = 85  # characters; a longer label is wrapped


def plot_runs(folders: str | Path | Sequence[str | Path], path: str | Path, *, x: str = "attempt") -> Path:
    """Draw the learning curves of one or many runs into `path`; return the path.

    One run has the score of each attempt, the best so far, and the final score with its 95% interval. Many runs have a
    panel for each task. A panel shows the mean of the best so far of each group (runs that differ in the seed only),
    with a 95% bootstrap band; from four runs on, this is the interquartile mean. An unfinished run is a thin line.

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
    save(runs_figure([folder]), folder / "learning_curve.png", write_atomically)


def make_missing(folder: Path) -> list[str]:
    """Make the missing files of a finished run and return their names; do nothing for an unfinished run.

    Raises:
        LogbookError: it is not a run folder, it is damaged, or another process works in it.
    """
    logbook = Logbook(folder)
    logbook.config()
    if logbook.summary() is None:
        return []
    logbook.lock()
    try:
        remove_parts(folder)
        attempts = logbook.attempts()
        best = best_of(attempts)
        makers: dict[str, Callable[[], object]] = {"learning_curve.csv": lambda: logbook.write_curve(attempts)}
        if best is not None:
            makers["best.json"] = lambda: logbook.save_best(best)
        if attempts:
            makers["learning_curve.png"] = lambda: draw_within(folder)
        made = [name for name in sorted(makers) if not (folder / name).exists()]
        for name in made:
            makers[name]()
        return made
    finally:
        logbook.release()


def runs_figure(folders: Sequence[Path], *, x: str = "attempt") -> Figure:
    """Build the figure that `plot_runs` saves; see there for contents and errors."""
    x = "seconds" if x == "wall_seconds" else x  # its earlier name
    if x not in X_AXES:
        raise UsageError(f"cannot plot over `{x}`; choose one of {', '.join(X_AXES)}")
    if not folders:
        raise UsageError("no run folders are given, so there is nothing to plot")
    runs = [read_member(folder) for folder in unique_runs(folders)]
    if unknown := [run.folder for run in runs if np.isnan(run.curve[x]).any()]:
        raise UsageError(f"{unknown[0]} has costs of unknown price; plot over another --x")
    if all(not run.curve[x].any() for run in runs) and any(len(run.curve) > 1 for run in runs):
        usable = ", ".join(axis for axis in X_AXES if any(run.curve[axis].max() > 0 for run in runs))
        raise UsageError(f"these runs have spent no {x}; plot over one of {usable}")
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
        lines_of_legends = [
            sum(1 + _legend_text(group, panel).count("\n") + (group.final_score is not None) for group in panel)
            for panel in panels.values()
        ]
        height = 5.4 + 0.25 * max(lines_of_legends) if max(lines_of_legends) > 1 else 5.0
        figure = new_figure(8.0 if across == 1 else 12.5, height * down)
        for place, panel in enumerate(panels.values(), start=1):
            _draw_groups(figure.add_subplot(down, across, place), panel, x, looks)
        if any(run.final is not None and not run.final.exact for run in runs):
            note = "Curves are scores on each run's own search seeds; diamonds are final scores."
            figure.supxlabel(note, fontsize=9, color=GREY)
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
        interval = None if run.final.exact else run.final.ci95
        more = f"\n({'95% interval, ' * (interval is not None)}{run.final.episodes} fresh episodes)"
        words = f"{with_interval(run.final.mean, interval)}{' (exact)' if run.final.exact else more}"
        text = f"final score: {words}"
        diamond: dict[str, Any] = {"fmt": "D", "color": OKABE_ITO[5], "markersize": 6, "capsize": 4, "label": text}
        axes.errorbar([end], [run.final.mean], yerr=arms(run.final.mean, run.final.ci95), zorder=4, **diamond)
    axes.set_xlim(float(at[0]) - 0.02 * span, end + 0.02 * span)
    state = "" if run.finished else ", unfinished"
    (group,) = grouped([run])
    title = f"{run.task.name}: {group.label}, seed {run.config.seed}{state}"
    _label(axes, title, x, float(at[-1]), "mean return per episode")


def _draw_groups(axes: Axes, groups: Sequence[Group], x: str, looks: Looks) -> None:
    """Draw one task: for each group its runs, their mean curve, its band and its final score."""
    runs = [run for group in groups for run in (*group.averaged, *group.unfinished)]
    _draw_references(axes, runs)
    start, end = min(float(run.curve[x][0]) for run in runs), max(float(run.curve[x][-1]) for run in runs)
    span, scored = max(end - start, 1e-9), 0
    for group in groups:
        own, label = looks[group.label], _legend_text(group, groups)
        thin: dict[str, Any] = {"color": own["color"], "linewidth": 0.7}
        curves = [(run.curve[x], run.curve["level"]) for run in group.averaged]
        for at, level in curves if len(curves) > 1 else ():
            axes.step(at, level, where="post", alpha=0.5, **thin)
            if at[-1] < end:
                axes.plot([at[-1], end], [level[-1]] * 2, linestyle=_DASHED, **thin)
        if curves:
            draw_mean(axes, curves, end, label=label, **own)
        for i, run in enumerate(group.unfinished):
            open_end = {**_UNFINISHED, "color": own["color"], "label": "" if curves or i else label}
            axes.step(run.curve[x], run.curve["level"], where="post", markevery=[len(run.curve) - 1], **open_end)
        if group.final_score is not None:
            scored += 1
            _draw_final(axes, group, end + (0.02 + 0.025 * scored) * span, own["color"])
    if scored:
        axes.set_xlim(start - 0.02 * span, end + (0.05 + 0.025 * scored) * span)
    finished, unfinished = sum(len(group.averaged) for group in groups), sum(len(group.unfinished) for group in groups)
    if unfinished:
        axes.plot([], [], color=GREY, label="unfinished run", **_UNFINISHED)
    counts = (f"{finished} run{'s' * (finished > 1)}" * bool(finished), f"{unfinished} unfinished" * bool(unfinished))
    subject = groups[0].label if len(groups) == 1 else f"best so far of {' and '.join(filter(None, counts))}"
    _label(axes, f"{groups[0].task}: {subject}", x, end, "mean return per episode, best so far")


def _draw_final(axes: Axes, group: Group, at: float, color: str) -> None:
    """Draw the mean of a group's final scores, and behind it the score of each run."""
    finals = [run.final for run in group.averaged if run.final is not None]
    mean = group.final_score
    assert mean is not None
    exact = all(final.exact for final in finals)
    interval, more = mean.ci95, f", mean of {len(finals)} runs"
    if len(finals) == 1:
        interval, more = None if exact else finals[0].ci95, ""
    else:
        axes.plot([at] * len(finals), [final.mean for final in finals], "_", color=color, markersize=7, alpha=0.7)
    name = "exact final score" if exact else "final score on fresh seeds"
    text = f"{name}: {with_interval(mean.mean, interval)}{more}"
    diamond: dict[str, Any] = {"fmt": "D", "color": color, "markersize": 5, "label": text}
    axes.errorbar([at], [mean.mean], yerr=arms(mean.mean, interval), zorder=4, **diamond)


def _legend_text(group: Group, among: Sequence[Group]) -> str:
    """Describe a group for the legend: its name if there are several, how many runs are averaged, and which are not."""
    n, unfinished = len(group.averaged), len(group.unfinished)
    parts = [f"{centre_name(n)} of n = {n} runs, 95% band" if n > 1 else "n = 1 run"] if n else []
    if group.without_policy and n > 1:
        parts.append(f"{group.without_policy} without a policy, at the level of random actions")
    if unfinished:
        parts.append(f"{unfinished} unfinished, not averaged")
    words = "; ".join(parts)
    return textwrap.fill(f"{group.label}: {words}" if len(among) > 1 else words, LONGEST_LABEL)


def draw_mean(
    axes: Axes,
    curves: Sequence[tuple[Numbers, Numbers]],
    end: float,
    *,
    mean: Callable[..., Numbers] | None = None,
    **drawn: Any,
) -> Band:
    """Draw the mean curve of some runs with its 95% band, and a dashed line from its end to `end`; return it.

    Args:
        curves: for each run the increasing amounts spent, and the best score from each of them on.
        end: the largest amount of the panel.
        mean: as for `average`.
        drawn: colour, line style, label, and a marker for the end of the curve.
    """
    import matplotlib

    band = average([x for x, _ in curves], [level for _, level in curves], mean)
    width, color = matplotlib.rcParams["lines.linewidth"], drawn["color"]
    if len(curves) > 1:
        axes.fill_between(band.x, band.low, band.high, step="post", color=color, alpha=0.2, linewidth=0)
    if len(band.x) and band.x[-1] < end:
        axes.plot([band.x[-1], end], [band.centre[-1]] * 2, color=color, linestyle=_DASHED, linewidth=width)
    # The marker shows a group even if it spent nothing of `x` and has no line.
    marked = [len(band.x) - 1] if len(band.x) else []
    axes.step(band.x, band.centre, where="post", linewidth=1.5 * width, zorder=3, markevery=marked, **drawn)
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
