"""Learning curves: the runs that a picture compares, their averages, and how both are drawn."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.errors import LogbookError, UsageError
from policygen.reports.style import OKABE_ITO, Numbers, style
from policygen.runs.config import RunConfig, provider_label, special_settings
from policygen.runs.logbook import Logbook
from policygen.runs.records import curve_csv
from policygen.tasks.task import Task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

X_AXES = {
    "attempt": "attempt",
    "calls": "requests to the model",
    "episodes": "episodes played",
    "env_steps": "environment steps",
    "tokens": "tokens, in and out",
    "wall_seconds": "wall-clock time [s]",
}
Y_AXIS = "mean return per episode"
_GREY = "#666666"
_STYLES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

RESAMPLES = 2_000
WIDE_LABEL = 50  # characters from which a legend has one column
MOST_POINTS = 200  # of a mean curve; a bootstrap at every wall-clock time of every run would take minutes
FEWEST_FOR_IQM = 3


@dataclass(frozen=True)
class Curve:
    """One run as far as a plot needs it.

    Attributes:
        frame: a row per attempt, in order: those columns of `learning_curve.csv`, `tokens`, and `level`, the best score
            so far or, before the first policy, that of random actions.
        final: the score record of a finished run's summary.
    """

    folder: Path
    config: RunConfig
    task: Task
    frame: pd.DataFrame
    final: dict[str, Any] | None
    finished: bool

    def group(self, among: Sequence[Curve] = ()) -> str:
        """Whose runs may be averaged, in words: provider, policy kind, and settings that tell it from the others."""
        others = [curve.config for curve in among if curve.task.name == self.task.name]
        return f"{provider_label(self.config.llm)}, {self.config.policy} policy{special_settings(self.config, others)}"


def read_curve(folder: Path) -> Curve:
    """Read a run, finished or not.

    Raises:
        LogbookError: it is not a run folder, is damaged, or has no attempts yet.
    """
    import pandas as pd

    logbook = Logbook(folder)
    config, task = logbook.config(), logbook.task()
    attempts = logbook.attempts()
    if not attempts:
        raise LogbookError(f"{folder} has no attempts yet: there is nothing to plot")
    frame = pd.read_csv(io.StringIO(curve_csv(attempts)))
    frame["tokens"] = frame["tokens_in"] + frame["tokens_out"]
    frame["level"] = frame["best"].astype(float).fillna(frame["score"].iloc[0])
    summary = logbook.summary()
    return Curve(folder, config, task, frame, (summary or {}).get("final"), summary is not None)


@dataclass(frozen=True)
class Band:
    """A centre and its 95% interval over some runs at each x; arrays of shape (points,)."""

    x: Numbers
    centre: Numbers
    low: Numbers
    high: Numbers


def centre_name(runs: int) -> str:
    """What `average` takes for so many runs."""
    return "interquartile mean" if runs >= FEWEST_FOR_IQM else "mean"


def average(xs: Sequence[Numbers], levels: Sequence[Numbers], seed: int = 0) -> Band:
    """The mean of step functions, from three on the interquartile mean, with a 95% percentile bootstrap over the runs.

    The interquartile mean leaves out the lowest and the highest quarter, fractions of a run included (used for runs by
    Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice"). A run that ended early
    keeps its last level. Of two runs the band is their range; of a handful it is too narrow rather than too wide.

    Args:
        xs: per run the positions of its steps, increasing; shapes (attempts of the run,).
        levels: per run the level from each step on; same shapes.
    """
    points = np.unique(np.concatenate(xs))
    if len(points) > MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)]
    rows = [
        level[np.maximum(np.searchsorted(at, points, side="right") - 1, 0)]
        for at, level in zip(xs, levels, strict=True)
    ]
    table = np.array(rows, dtype=np.float64)
    known = ~np.isnan(table).any(axis=0)  # a run without warm-up has no level before its first policy
    points, table = points[known], table[:, known]
    centre = _centre(table)
    if len(table) < 2 or not len(points):
        return Band(points, centre, centre, centre)
    from scipy.stats import bootstrap

    interval = bootstrap(
        (table,),
        _centre,
        axis=0,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=100,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return Band(points, centre, interval.low, interval.high)


def _centre(table: Numbers, axis: int = 0) -> Numbers:
    runs = table.shape[axis]
    # How much of each run, in order of level, lies between the quartiles; of one or two runs equal parts.
    share = np.diff(np.clip(np.arange(runs + 1), runs / 4, runs * 3 / 4)) / (runs / 2)
    centre: Numbers = np.moveaxis(np.sort(table, axis=axis), axis, -1) @ share
    return centre


def runs_figure(folders: Sequence[Path], *, x: str = "attempt") -> Figure:
    """The figure that `plots.plot_runs` saves; see there for what it shows and what it raises."""
    if x not in X_AXES:
        raise UsageError(f"cannot plot over `{x}`; x is one of {', '.join(X_AXES)}")
    if not folders:
        raise UsageError("no run folders are given: there is nothing to plot")
    curves = [read_curve(folder) for folder in {folder.resolve(): folder for folder in folders}.values()]
    if all(not curve.frame[x].any() for curve in curves) and any(len(curve.frame) > 1 for curve in curves):
        usable = ", ".join(axis for axis in X_AXES if any(curve.frame[axis].any() for curve in curves))
        raise UsageError(f"these runs have spent no {x}; plot over one of {usable}")
    with style():
        from matplotlib.figure import Figure

        if len(curves) == 1:
            figure = Figure(figsize=(8.0, 5.0), layout="constrained")
            _draw_run(figure.add_subplot(), curves[0], x)
            return figure
        tasks: dict[str, list[Curve]] = {}
        for curve in curves:
            tasks.setdefault(curve.task.name, []).append(curve)
        groups = list(dict.fromkeys(curve.group(curves) for curve in curves))
        across = min(2, len(tasks))
        down = math.ceil(len(tasks) / across)
        height = 5.0 + (0.25 * len(groups) + 0.4 if len(groups) > 1 else 0.0)
        figure = Figure(figsize=(8.0 if across == 1 else 12.5, height * down), layout="constrained")
        for place, members in enumerate(tasks.values(), start=1):
            _draw_group(figure.add_subplot(down, across, place), members, x, groups)
        return figure


def _draw_run(axes: Axes, curve: Curve, x: str) -> None:
    frame, at = curve.frame, curve.frame[x]
    tried = frame[frame["attempt"] > 0]
    _references(axes, curve.task, [frame["score"].iloc[0]])
    plain, accepted = tried[tried["accepted"] == 0], tried[tried["accepted"] == 1]
    tuned = tried[tried["proposed"].notna()]
    if len(tuned):
        axes.vlines(tuned[x], tuned["proposed"], tuned["score"], color=OKABE_ITO[0], linewidth=0.8, alpha=0.6)
        axes.plot(tuned[x], tuned["proposed"], "_", markersize=9, color=OKABE_ITO[0], label="before tuning")
    dots: dict[str, Any] = {"linestyle": "none", "markersize": 5.5, "color": OKABE_ITO[0], "zorder": 3}
    if plain["score"].notna().any():
        axes.plot(plain[x], plain["score"], marker="o", markerfacecolor="white", label="attempt", **dots)
    if len(accepted):
        axes.plot(accepted[x], accepted["score"], marker="o", label="attempt that became the best", **dots)
    if frame["best"].notna().any():
        axes.step(at, frame["level"], where="post", color=OKABE_ITO[0], linewidth=1.8, label="best so far")
    failed = tried[tried["failed"] == 1]
    if len(failed):
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.08 * (high - low), high)
        axes.plot(
            failed[x],
            np.full(len(failed), 0.03),
            transform=axes.get_xaxis_transform(),
            linestyle="none",
            marker="x",
            markersize=7,
            markeredgewidth=2,
            color=OKABE_ITO[5],
            label=f"failed attempt ({len(failed)})",
        )
    end = float(at.iloc[-1])
    span = max(end - float(at.iloc[0]), 1e-9)
    if curve.final is not None:
        end += 0.04 * span
        _draw_final(axes, end, curve.final)
    axes.set_xlim(float(at.iloc[0]) - 0.02 * span, end + 0.02 * span)
    state = "" if curve.finished else ", unfinished"
    axes.set_title(f"{curve.task.name}: {curve.group()}, seed {curve.config.seed}{state}")
    _label(axes, x, float(at.iloc[-1]))


def _draw_final(axes: Axes, at: float, final: dict[str, Any]) -> None:
    mean, interval = final["mean"], final["ci95"]
    if final["exact"]:
        text = f"final score: {mean:.4g} (exact)"
    else:
        text = f"final score: {mean:.4g}"
        text += f" [{interval[0]:.4g}, {interval[1]:.4g}]" if interval else ""
        text += f"\n(95% interval, {final['episodes']} fresh episodes)"
    arms = [[mean - interval[0]], [interval[1] - mean]] if interval else None
    axes.errorbar([at], [mean], yerr=arms, fmt="D", markersize=6, capsize=4, color=OKABE_ITO[5], label=text, zorder=4)


def _draw_group(axes: Axes, curves: Sequence[Curve], x: str, groups: Sequence[str]) -> None:
    """One task: a mean curve, its band and the single runs for each group; `groups` fixes the colours."""
    _references(axes, curves[0].task, [curve.frame["score"].iloc[0] for curve in curves])
    present = [group for group in groups if any(curve.group(curves) == group for curve in curves)]
    for group in present:
        members = [curve for curve in curves if curve.group(curves) == group]
        xs = [curve.frame[x].to_numpy(np.float64) for curve in members]
        levels = [curve.frame["level"].to_numpy(np.float64) for curve in members]
        # One look a group in all panels, as long as there are enough of them.
        place = (groups if len(groups) <= len(OKABE_ITO) else present).index(group)
        color = OKABE_ITO[place % len(OKABE_ITO)]
        band = average(xs, levels)
        n = len(members)
        if n > 1:
            for at, level in zip(xs, levels, strict=True):
                axes.step(at, level, where="post", color=color, linewidth=0.7, alpha=0.5)
            axes.fill_between(band.x, band.low, band.high, step="post", color=color, alpha=0.2, linewidth=0)
        what = f"{centre_name(n)} of n = {n} runs, 95% band" if n > 1 else "n = 1 run"
        axes.step(
            band.x,
            band.centre,
            where="post",
            color=color,
            linestyle=_STYLES[place % len(_STYLES)],
            linewidth=2.2,
            label=f"{group}: {what}" if len(present) > 1 else what,
            # The mark at the end also shows a group that spent nothing of x.
            marker=_MARKERS[place % len(_MARKERS)],
            markevery=[len(band.x) - 1] if len(band.x) else [],
            zorder=3,
        )
    subject = present[0] if len(present) == 1 else f"best so far of {len(curves)} runs"
    axes.set_title(f"{curves[0].task.name}: {subject}")
    _label(axes, x, max(float(curve.frame[x].iloc[-1]) for curve in curves))


def _references(axes: Axes, task: Task, random_scores: Sequence[float]) -> None:
    """Lines for random actions (their mean over the runs), the solved threshold and the known optimum."""
    known = [score for score in random_scores if not math.isnan(score)]
    if known:
        level = sum(known) / len(known)
        axes.axhline(level, color=_GREY, linestyle=":", linewidth=1.6, label=f"random actions: {level:.4g}")
    if task.solved is not None:
        axes.axhline(task.solved, color=_GREY, linestyle="--", linewidth=1.4, label=f"solved: {task.solved:.4g}")
    if task.optimum is not None:
        best = task.optimum.value
        axes.axhline(best, color="black", linestyle="-.", linewidth=1.2, label=f"known optimum: {best:.4g}")


def _label(axes: Axes, x: str, last: float) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator
    from matplotlib.transforms import ScaledTranslation

    axes.set_xlabel(X_AXES[x])
    axes.set_ylabel(Y_AXIS)
    if x != "wall_seconds":
        # No tick where no run has been: the final score stands to the right of the last attempt.
        ticks = MaxNLocator(integer=True).tick_values(0, last)
        axes.set_xticks([tick for tick in ticks if 0 <= tick <= last])
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    # Below the axes, at a distance in inches, a legend hides no data and meets no label, however long it is.
    below = axes.transAxes + ScaledTranslation(0, -0.55, axes.figure.dpi_scale_trans)
    labels = axes.get_legend_handles_labels()[1]
    if labels:
        columns = 2 if all(len(line) < WIDE_LABEL for label in labels for line in label.split("\n")) else 1
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=below, ncols=columns)
