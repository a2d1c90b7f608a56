"""Learning curves: of one run with its attempts, or of groups of runs with means and intervals."""

# Imports inside functions: Matplotlib and scipy.stats are slow to import, and only code that draws waits for them.

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.errors import UsageError
from policygen.extensions.plots.groups import Member, grouped, names_of, read_member, unique_runs
from policygen.extensions.plots.style import (
    GREY,
    OKABE_ITO,
    Numbers,
    check_suffix,
    curve_style,
    error_bar,
    new_figure,
    save,
    style,
)
from policygen.files import write_atomically
from policygen.runs.facts import BEST, RESULT, score_fact
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
CURVE = "learning_curve.png"  # in the folder of a run
RESAMPLES, CURVE_RESAMPLES = 5_000, 2_000  # for an interval over runs, and for a band
MOST_POINTS = 200  # on a mean curve; a bootstrap at every step of every run would take minutes
ACROSS = 3  # panels in a row
LONGEST_TITLE = 85  # characters of a line
CHARACTERS_PER_INCH = 15  # of a legend
LEVELS: dict[str, dict[str, Any]] = {
    "random actions": {"color": GREY, "linestyle": ":", "linewidth": 1.6},
    "solved": {"color": GREY, "linestyle": "--", "linewidth": 1.4},
    "known optimum": {"color": "black", "linestyle": "-.", "linewidth": 1.2},
    "best published score": {"color": "black", "linewidth": 0.8},
}

Interval = tuple[float, float]
Curve = tuple[Numbers, Numbers]  # increasing amounts spent, and the best score from each of them on; shapes (points,)


def plot_runs(folders: str | Path | Sequence[str | Path], path: str | Path, *, x: str = "attempt") -> Path:
    """Draw the learning curves of one or many runs into `path`; return the path.

    For one run, the plot shows the score of each attempt, the best so far, and the final score with its 95% interval.
    Many runs get a panel for each task. It shows the mean of the best so far for each group (runs that differ only in
    the seed), with a 95% bootstrap band. Unfinished runs are dotted lines, and enter no mean.

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
            # Not by `plot_runs`, which also writes to pipes and devices.
            save(runs_figure([self._run.folder]), self._run.folder / CURVE, write_atomically)


def runs_figure(folders: Sequence[Path], *, x: str = "attempt") -> Figure:
    """Build the figure that `plot_runs` saves; see there for contents and errors."""
    if x not in X_AXES:
        raise UsageError(f"cannot plot over `{x}`; choose one of {', '.join(X_AXES)}")
    if not folders:
        raise UsageError("no run folders are given, so there is nothing to plot")
    runs = [read_member(folder) for folder in unique_runs(folders)]
    if unknown := [run.folder for run in runs if np.isnan(run.curve[x]).any()]:
        raise UsageError(f"{unknown[0]} has requests of unknown price; plot over another --x")
    if all(not run.curve[x].any() for run in runs) and any(len(run.curve) > 1 for run in runs):
        raise UsageError(f"these runs have spent no {x}; plot over another --x")
    if len(runs) == 1:
        return _run_figure(runs[0], x)
    panels: dict[str, dict[str, GroupCurves]] = {}
    for (task, name), group in grouped(runs).items():
        shown = panels.setdefault(task, {}).setdefault(name, GroupCurves())
        for run in group:
            (shown.unfinished if run.summary is None else shown.curves).append((run.curve[x], run.curve["level"]))
            if run.final is not None:
                shown.scores.append(run.final.mean)
    levels = {task: _levels([run for run in runs if run.task.name == task]) for task in panels}
    return panels_figure(panels, levels, x)


def _levels(runs: Sequence[Member]) -> dict[str, float]:
    """Return the mean score of random actions over the runs of a task, and the scores that the task states."""
    task, known = runs[0].task, [score for run in runs if not math.isnan(score := float(run.curve["score"][0]))]
    levels = {"random actions": fmean(known)} if known else {}
    levels |= {"solved": task.solved} if task.solved is not None else {}
    return levels | ({"known optimum": task.optimum.value} if task.optimum is not None else {})


# --- one run ---------------------------------------------------------------------------------------------------------


def _run_figure(run: Member, x: str) -> Figure:
    frame, at = run.curve, run.curve[x]
    tried = frame[frame["attempt"] > 0]
    dots: dict[str, Any] = {"linestyle": "none", "markersize": 5.5, "color": OKABE_ITO[0], "zorder": 3}
    with style():
        figure = new_figure(8.0, 5.0)
        axes = figure.add_subplot()
        for name, level in _levels([run]).items():
            axes.axhline(level, label=f"{name}: {level:.4g}", **LEVELS[name])
        if len(tuned := tried[~np.isnan(tried["proposed"])]):
            axes.vlines(tuned[x], tuned["proposed"], tuned["score"], color=OKABE_ITO[0], linewidth=0.8, alpha=0.6)
            axes.plot(tuned[x], tuned["proposed"], "_", markersize=9, color=OKABE_ITO[0], label="before tuning")
        plain, accepted = tried[tried["accepted"] == 0], tried[tried["accepted"] == 1]
        if not np.isnan(plain["score"]).all():
            axes.plot(plain[x], plain["score"], marker="o", markerfacecolor="white", label="attempt", **dots)
        if len(accepted):
            axes.plot(accepted[x], accepted["score"], marker="o", label="attempt that became the best", **dots)
        if not np.isnan(frame["best"]).all():
            axes.step(at, frame["level"], where="post", color=OKABE_ITO[0], linewidth=1.8, label="best so far")
        if len(failed := tried[tried["failed"] == 1]):
            crosses = dots | {"marker": "x", "markeredgewidth": 2, "color": OKABE_ITO[5]}
            label, low = f"failed attempt ({len(failed)})", np.full(len(failed), 0.03)
            axes.plot(failed[x], low, transform=axes.get_xaxis_transform(), label=label, **crosses)
        end, span = float(at[-1]), max(float(at[-1] - at[0]), 1e-9)
        if run.final is not None:
            one = score_fact(RESULT, BEST[0], run.final, "fresh")
            own: dict[str, Any] = {"fmt": "D", "color": OKABE_ITO[5], "label": f"{one.name}: {one.short}\n{one.basis}"}
            mean = run.final.mean
            axes.errorbar([end + 0.04 * span], [mean], yerr=error_bar(mean, run.final.ci95), zorder=4, **own)
        axes.set_xlim(float(at[0]) - 0.02 * span, end + (0.06 if run.final is not None else 0.02) * span)
        (name,) = names_of([run])
        title = f"{run.task.name}: {name}, seed {run.config.seed}{', unfinished' * (run.summary is None)}"
        # Matplotlib's own wrapping reads `$` as the start of a formula even where that is turned off.
        axes.set(title=textwrap.fill(title, LONGEST_TITLE), xlabel=X_AXES[x], ylabel="mean return per episode")
        _ticks(axes, x, end, 10)
        _add_legend(figure, axes)
        return figure


# --- groups of runs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupCurves:
    """The runs of a group on a task: curves of finished and of unfinished runs, and final scores."""

    curves: list[Curve] = field(default_factory=list)
    unfinished: list[Curve] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)


def panels_figure(
    panels: Mapping[str, Mapping[str, GroupCurves]], levels: Mapping[str, Mapping[str, float]], x: str
) -> Figure:
    """Draw a panel for each task, with the mean curve and the mean final score of each group of runs.

    Curves are means of the best score so far with a 95% bootstrap band. Marks at the right are means of the final
    scores with a 95% interval.

    Args:
        panels: the runs of each group by its name, by task.
        levels: the scores of `LEVELS` to draw as lines, by task.
        x: a key of `X_AXES`.
    """
    names = dict.fromkeys(name for shown in panels.values() for name in shown)
    styles = {name: curve_style(index) for index, name in enumerate(names)}
    across = min(ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    height = 4.0 if across == 1 else 2.2
    with style():
        figure = new_figure(8.0 if across == 1 else 11.0, height * down + 0.25 * (3 + len(styles)))
        for place, (task, shown) in enumerate(panels.items()):
            axes = figure.add_subplot(down, across, place + 1)
            _draw_panel(axes, shown, levels[task], styles, x)
            axes.set_title(textwrap.fill(task, LONGEST_TITLE // across))
            if place % across == 0:
                axes.set_ylabel("best mean return\nso far")
            if place + across >= len(panels):
                axes.set_xlabel(X_AXES[x])
        axes = figure.axes[0]  # it has an invisible line for each entry, because not every group has a curve
        for name, own in styles.items():
            axes.plot([], [], label=f"{name} ({_counts([own[name] for own in panels.values() if name in own])})", **own)
        if any(one.scores for own in panels.values() for one in own.values()):
            axes.plot([], [], "o", color="0.5", label="marks at the right: final scores")
        for name in [name for name in LEVELS if any(name in own for own in levels.values())]:
            axes.plot([], [], label=name, **LEVELS[name])
        _add_legend(figure, axes)
        return figure


def _counts(shown: Iterable[GroupCurves]) -> str:
    """Return the number of runs of a group on its tasks: `2 to 3 runs, 1 unfinished (dotted)`."""
    counts = sorted({len(one.curves) for one in shown})
    unfinished = sum(len(one.unfinished) for one in shown)
    words = f"{counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "") + f" run{'s' * (counts != [1])}"
    return words + (f", {unfinished} unfinished (dotted)" if unfinished else "")


def _draw_panel(
    axes: Axes, shown: Mapping[str, GroupCurves], levels: Mapping[str, float], styles: Mapping[str, Any], x: str
) -> None:
    every = [at for one in shown.values() for at, _ in (*one.curves, *one.unfinished)]
    start = min((float(at[0]) for at in every if len(at)), default=0.0)
    end = max((float(at[-1]) for at in every if len(at)), default=0.0) or 1.0
    seen, whole = list(levels.values()), list[float]()
    for name, level in levels.items():
        axes.axhline(level, zorder=1, **LEVELS[name])
    for i, (name, one) in enumerate(shown.items(), start=1):
        own = styles[name]
        for at, best in one.unfinished:
            axes.step(at, best, where="post", color=own["color"], linewidth=1.1, linestyle=":")
            seen += best[~np.isnan(best)].tolist()
        if curves := [curve for curve in one.curves if len(curve[0])]:
            spent, centre, low, high = average(curves)
            if len(curves) > 1:
                axes.fill_between(spent, low, high, step="post", color=own["color"], alpha=0.2, linewidth=0)
            axes.step(spent, centre, where="post", zorder=3, **own | {"marker": ""})
            seen += [*centre[spent >= 0.1 * end].tolist(), low[-1], high[-1]]  # the beginning may lie far below
            whole += centre.tolist()
        if one.scores:
            mean, interval = fmean(one.scores), interval_over_seeds(np.array(one.scores))
            place = [end + 0.05 * i * (end - start)]
            axes.errorbar(
                place, [mean], yerr=error_bar(mean, interval), fmt=own["marker"], color=own["color"], zorder=4
            )
            seen += [mean, *(interval or ())]
    if max(seen, default=0.0) == min(seen, default=0.0):
        seen += whole
    margin = 0.07 * (max(seen, default=0.0) - min(seen, default=0.0)) or 0.5
    axes.set_xlim(start, end + 0.05 * (len(shown) + 1) * (end - start) or 1.0)
    axes.set_ylim(min(seen, default=0.0) - margin, max(seen, default=0.0) + margin)
    _ticks(axes, x, end, 4)


def _ticks(axes: Axes, x: str, last: float, most: int) -> None:
    """Put about `most` ticks on an axis of `X_AXES`, from 0 to `last`; at whole numbers only if it is a count.

    Final scores are drawn beyond `last`, where ticks would mean nothing.
    """
    from matplotlib.ticker import EngFormatter, MaxNLocator

    whole = x not in ("seconds", "usd")
    ticks = MaxNLocator(most, integer=whole).tick_values(0, last)
    axes.set_xticks([tick for tick in ticks if 0 <= tick <= last])
    if whole:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="y")


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Put the legend of one panel below all panels."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    columns = int(CHARACTERS_PER_INCH * figure.get_figwidth()) // (longest + 8)  # with the space of a line
    figure.legend(handles, labels, loc="outside lower center", ncols=min(max(columns, 1), 3))


# --- statistics ------------------------------------------------------------------------------------------------------


def interval_over_seeds(values: Numbers) -> Interval | None:
    """Return the 95% percentile bootstrap interval (`scipy.stats.bootstrap`) of the mean over the runs of one task.

    Returns None for a single run. For few runs the interval is too narrow.
    """
    if len(values) < 2:
        return None
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    low, high = _bootstrap(values, RESAMPLES)
    return float(low), float(high)


def _bootstrap(table: Numbers, resamples: int, batch: int | None = None) -> Any:
    from scipy.stats import bootstrap

    options: dict[str, Any] = {"n_resamples": resamples, "batch": batch, "method": "percentile"}
    return bootstrap((table,), np.mean, axis=0, random_state=np.random.default_rng(0), **options).confidence_interval


def average(curves: Sequence[Curve]) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return the mean of step functions over runs, and the ends of its 95% percentile bootstrap interval.

    A run that ends early keeps its last level. For two runs the band is their range; for few runs it is too narrow.

    Returns the amounts spent, the means, and the lower and the upper ends; each of shape (points,).
    """
    points = np.unique(np.concatenate([at for at, _ in curves]))
    if len(points) > MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)]
    rows = [level[np.maximum(np.searchsorted(at, points, side="right") - 1, 0)] for at, level in curves]
    table = np.array(rows, dtype=np.float64)
    known = ~np.isnan(table).any(axis=0)  # without warm-up a run has no level before its first policy
    points, table = points[known], table[:, known]
    centre = table.mean(axis=0)
    if len(table) < 2 or not len(points):
        return points, centre, centre, centre
    return points, centre, *_bootstrap(table, CURVE_RESAMPLES, batch=100)
