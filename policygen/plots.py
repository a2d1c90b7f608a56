"""Pictures: learning curves of runs, and what a policy does.

Colours are those of Okabe and Ito, which colour-blind people can tell apart; nothing is told by colour alone. Heavy
libraries are imported where they are used, so that importing this module costs nothing.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from policygen.config import RunConfig
from policygen.errors import LogbookError, UsageError
from policygen.grid import Dimension
from policygen.logbook import Logbook, curve_csv
from policygen.maps import Letter, action_grids, alphabet, cell_texts, quantity_label, weight_rows
from policygen.policies import LinearPolicy, Policy, TablePolicy
from policygen.spaces import Actuator
from policygen.storage import write_atomically
from policygen.tasks import Task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure, SubFigure

Numbers = npt.NDArray[np.float64]

FORMATS = ("png", "svg", "pdf")
X_AXES = {
    "attempt": "attempt",
    "calls": "requests to the model",
    "episodes": "episodes played",
    "env_steps": "environment steps",
    "tokens": "tokens, in and out",
    "wall_seconds": "wall-clock time [s]",
}
Y_AXIS = "mean return per episode"

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
_GREY = "#666666"
_STYLES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_RC: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "svg.hashsalt": "policygen",  # the same picture is the same file
}

RESAMPLES = 2_000
WIDE_LABEL = 50  # characters from which a legend has one column
MOST_POINTS = 200  # of a mean curve; a bootstrap at every wall-clock time of every run would take minutes
FEWEST_FOR_IQM = 3


def plot_runs(folders: Sequence[Path], path: Path, *, x: str = "attempt") -> Path:
    """Draw the learning curves of one or many runs, finished or not, into `path`.

    One run: the score of each attempt, the best so far, and the final score with its 95% interval. Many runs: the mean
    of the best so far over the runs of one provider and policy kind (from three runs on the interquartile mean), with
    a 95% bootstrap band; a panel for each task.

    Args:
        folders: run folders.
        path: a .png, .svg or .pdf file; its folder exists.
        x: what the scores are drawn over: one of `X_AXES`.

    Raises:
        UsageError: no folder is given, the suffix or `x` is not known, or the runs spent nothing of `x`.
        LogbookError: a folder is not a run, is damaged or has no attempts yet, or `path` cannot be written.
    """
    _check_suffix(path)
    return _save(runs_figure(folders, x=x), path)


def plot_policy(policy: Policy, path: Path) -> Path:
    """Draw what a policy does into `path`: a map of a table's actions, or the weights of a linear policy.

    Raises:
        UsageError: the suffix is not known, or there is no picture of this kind of policy.
        LogbookError: `path` cannot be written.
    """
    _check_suffix(path)
    return _save(policy_figure(policy), path)


def _check_suffix(path: Path) -> None:
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        raise UsageError(f"cannot draw into {path.name}: end the name in {', '.join('.' + f for f in FORMATS)}")


def _save(figure: Figure, path: Path) -> Path:
    kind = path.suffix.lower().removeprefix(".")
    content = io.BytesIO()
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with _style():
        figure.savefig(content, format=kind, metadata=undated)
    write_atomically(path, content.getvalue())
    return path


@contextmanager
def _style() -> Iterator[None]:
    """Our look whatever the user's matplotlibrc says, and theirs again afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


# --- learning curves -------------------------------------------------------------------------------------------------


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

    @property
    def group(self) -> str:
        """Whose runs may be averaged, in words: provider, policy kind, and template and example if any were chosen."""
        template = f", template {self.config.template}" if self.config.template else ""
        example = f", example {self.config.example}" if self.config.example else ""
        return f"{provider_label(self.config.llm)}, {self.config.policy} policy{template}{example}"


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


def provider_label(llm: str) -> str:
    """The provider and model of a run as they are shown."""
    return "builtin (no language model)" if llm == "builtin" else llm


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
    """The figure that `plot_runs` saves; see there for what it shows and what it raises."""
    if x not in X_AXES:
        raise UsageError(f"cannot plot over `{x}`; x is one of {', '.join(X_AXES)}")
    if not folders:
        raise UsageError("no run folders are given: there is nothing to plot")
    curves = [read_curve(folder) for folder in {folder.resolve(): folder for folder in folders}.values()]
    if all(not curve.frame[x].any() for curve in curves) and any(len(curve.frame) > 1 for curve in curves):
        usable = ", ".join(axis for axis in X_AXES if any(curve.frame[axis].any() for curve in curves))
        raise UsageError(f"these runs have spent no {x}; plot over one of {usable}")
    with _style():
        from matplotlib.figure import Figure

        if len(curves) == 1:
            figure = Figure(figsize=(8.0, 5.0), layout="constrained")
            _draw_run(figure.add_subplot(), curves[0], x)
            return figure
        tasks: dict[str, list[Curve]] = {}
        for curve in curves:
            tasks.setdefault(curve.task.name, []).append(curve)
        groups = list(dict.fromkeys(curve.group for curve in curves))
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
    axes.set_title(f"{curve.task.name}: {curve.group}, seed {curve.config.seed}{state}")
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
    present = [group for group in groups if any(curve.group == group for curve in curves)]
    for group in present:
        members = [curve for curve in curves if curve.group == group]
        xs = [curve.frame[x].to_numpy(np.float64) for curve in members]
        levels = [curve.frame["level"].to_numpy(np.float64) for curve in members]
        place = groups.index(group)
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
    longest = max(len(line) for label in axes.get_legend_handles_labels()[1] for line in label.split("\n"))
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=below, ncols=2 if longest < WIDE_LABEL else 1
    )


# --- policies --------------------------------------------------------------------------------------------------------

ROOM = (10.0, 7.5)  # inches that the cells of one actuator may take
MOST_PER_LINE, MOST_LINES = 6, 6  # facets
MOST_TEXTS = 2_500  # cells that are written into, as well as coloured
MOST_IN_STRIP = 25  # cells of a single dimension before it is folded
MOST_TERMS = 40  # of a linear policy
LONGEST_TERM = 48  # characters


def policy_figure(policy: Policy) -> Figure:
    """The figure that `plot_policy` saves; see there for what it shows and what it raises."""
    with _style():
        if isinstance(policy, TablePolicy):
            return _table_figure(policy)
        if isinstance(policy, LinearPolicy):
            return _linear_figure(policy)
    raise UsageError(f"there is no picture of a {policy.kind} policy")


@dataclass(frozen=True)
class _Facet:
    """One map within a picture: where its cells are in an array of the grid's shape, and what stands around it."""

    index: tuple[Any, ...]
    above: str = ""
    beside: str = ""


@dataclass(frozen=True)
class _View:
    """The part of a table that is drawn, and how it is laid out; the same for each actuator.

    Attributes:
        facets: in reading order, `per_line` in each line.
        down, across: the dimensions inside a facet; `down` is None for a table of one dimension.
        shape: rows and columns of cells inside a facet; a long single dimension is folded into rows.
        cell: width and height of a cell, in inches.
        notes: what is left out, one line each.
    """

    facets: tuple[_Facet, ...]
    per_line: int
    down: Dimension | None
    across: Dimension
    shape: tuple[int, int]
    cell: tuple[float, float]
    notes: tuple[str, ...]

    @property
    def lines(self) -> int:
        """Lines of facets."""
        return math.ceil(len(self.facets) / self.per_line)

    @property
    def panel(self) -> tuple[float, float]:
        """Width and height of a facet, in inches."""
        return self.cell[0] * self.shape[1], self.cell[1] * self.shape[0]


def _view(policy: TablePolicy) -> _View:
    """All of a table with up to four dimensions; of a larger one the four that split the actions most."""
    dimensions = policy.grid.dimensions
    shown = sorted(sorted(range(len(dimensions)), key=lambda i: -_splits(policy, i))[:4])
    held = {i: d.bins // 2 for i, d in enumerate(dimensions) if i not in shown}
    notes = [f"{_in_words(policy, i, at).replace(': ', ' held at ', 1)}" for i, at in held.items()]
    outer, inner = shown[:-2], shown[-2:]
    limits = (MOST_LINES, MOST_PER_LINE) if len(outer) == 2 else (MOST_LINES * MOST_PER_LINE,)
    chosen = []
    for i, most in zip(outer, limits, strict=False):
        count = dimensions[i].bins
        chosen.append(np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist())
        if count > most:
            notes.append(f"{most} of {count} bins of {dimensions[i].name} are shown")
    if len(outer) == 2 and not dimensions[outer[0]].counts_integers:
        chosen[0].reverse()  # like the rows inside a facet: quantities grow upwards
    facets = []
    for bins in itertools.product(*chosen):
        at = {**held, **dict(zip(outer, bins, strict=True))}
        index = tuple(at.get(i, slice(None)) for i in range(len(dimensions)))
        above = _in_words(policy, outer[-1], bins[-1]) if bins and (len(bins) == 1 or bins[0] == chosen[0][0]) else ""
        beside = _in_words(policy, outer[0], bins[0]) if len(bins) == 2 and bins[1] == chosen[1][-1] else ""
        facets.append(_Facet(index, above, beside))
    per_line = len(chosen[-1]) if chosen else 1
    if len(outer) == 1:
        per_line = math.ceil(per_line / math.ceil(per_line / 4))
    down, across = ([None] * (2 - len(inner)) + [dimensions[i] for i in inner])[-2:]
    assert across is not None
    shape = (down.bins, across.bins) if down else (1, across.bins)
    if down is None and across.bins > MOST_IN_STRIP:
        columns = MOST_IN_STRIP * math.ceil(math.sqrt(across.bins) / MOST_IN_STRIP)
        shape = (math.ceil(across.bins / columns), columns)
    lines = math.ceil(len(facets) / per_line)
    side = min(0.6, ROOM[0] / (shape[1] * per_line), ROOM[1] / (shape[0] * lines))
    # Small tables get room for their labels.
    cell = max(side, 3.0 / (shape[1] * per_line)), max(side, (2.5 if down else 0.5) / (shape[0] * lines))
    return _View(tuple(facets), per_line, down, across, shape, cell, tuple(notes))


def _splits(policy: TablePolicy, axis: int) -> float:
    """Share of the lines along an axis of the grid that hold more than one action."""
    lines = [np.moveaxis(actions, axis, 0) for _, actions in action_grids(policy)]
    return float(np.any([(line != line[:1]).any(axis=0) for line in lines], axis=0).mean())


def _in_words(policy: TablePolicy, axis: int, index: int) -> str:
    dimension = policy.grid.dimensions[axis]
    return f"{quantity_label(policy, dimension.name)}: {dimension.label(index)}"


def _table_figure(policy: TablePolicy) -> Figure:
    from matplotlib.figure import Figure

    view = _view(policy)
    grids = action_grids(policy)
    width, height = view.panel[0] * view.per_line + 2.0, (view.panel[1] + 0.2) * view.lines + 1.5
    figure = Figure(figsize=(max(width, 5.5), height * len(grids) + 0.3), layout="constrained")
    title = f"{policy.task.name}: table policy over {', '.join(policy.grid.names)}"
    lines = [line for text in (title, *view.notes) for line in textwrap.wrap(text, int(11 * figure.get_figwidth()))]
    figure.suptitle("\n".join(lines), fontsize=11)
    parts = figure.subfigures(len(grids), 1, squeeze=False).ravel()
    for part, (actuator, actions) in zip(parts, grids, strict=True):
        _draw_table(part, policy, view, actuator, actions)
    return figure


def _draw_table(part: SubFigure, policy: TablePolicy, view: _View, actuator: Actuator, actions: Numbers) -> None:
    letters = alphabet(actuator, actions)
    texts = cell_texts(actions, letters)
    colors, norm = _shades(actuator)
    longest = max(map(len, texts.ravel().tolist()))
    fits = view.cell[0] >= 0.1 + 0.08 * longest and view.cell[1] >= 0.17
    written = fits and len(view.facets) * math.prod(view.shape) <= MOST_TEXTS
    places = part.subplots(view.lines, view.per_line, sharex=True, sharey=True, squeeze=False)
    for axes in places.ravel()[len(view.facets) :]:
        axes.set_visible(False)
    for axes, facet in zip(places.ravel(), view.facets, strict=False):
        block = _folded(actions[facet.index], view.shape, np.nan)
        axes.pcolormesh(block, cmap=colors, norm=norm, edgecolors="white", linewidth=0.5 if min(view.cell) > 0.1 else 0)
        if written:
            size = min(16.0, max(8.0, 25 * min(view.cell[1], view.cell[0] / longest)))
            _write(axes, block, _folded(texts[facet.index], view.shape, ""), colors, norm, size)
        axes.set_title(_broken(facet.above, view.panel[0]), fontsize=9)
        beside = _broken(facet.beside, view.panel[1])
        axes.annotate(beside, (1.04, 0.5), xycoords="axes fraction", rotation=270, va="center", fontsize=9)
        axes.tick_params(length=2.5, labelsize=8)
        axes.spines[:].set_visible(False)
    first = places[0, 0]
    folded = view.down is None and view.shape[0] > 1
    _bin_ticks(places, "x", None if folded else view.across, view.shape[1], view.panel[0])
    if folded:
        first.set_yticks(np.arange(view.shape[0]) + 0.5, [str(row * view.shape[1]) for row in range(view.shape[0])])
    elif view.down is None:
        first.set_yticks([])
    else:
        _bin_ticks(places, "y", view.down, view.shape[0], view.panel[1])
        part.supylabel(quantity_label(policy, view.down.name), fontsize=10)
    if view.down is None or view.down.counts_integers:
        first.invert_yaxis()  # rows are counted from the top; quantities grow upwards
    part.supxlabel(
        quantity_label(policy, view.across.name) + (" (number at the left plus number below)" if folded else ""),
        fontsize=10,
    )
    _explain(part, places, actuator, letters)


def _broken(text: str, inches: float) -> str:
    """A facet's heading, name and values on a line each where they would be longer than the facet."""
    return text.replace(": ", ":\n", 1) if len(text) > 13 * inches else text


def _folded(block: npt.NDArray[Any], shape: tuple[int, int], fill: Any) -> npt.NDArray[Any]:
    """A block as rows and columns of cells, padded at the end."""
    padded = np.full(math.prod(shape), fill, dtype=block.dtype)
    padded[: block.size] = block.ravel()
    return padded.reshape(shape)


def _shades(actuator: Actuator) -> tuple[Colormap, Normalize]:
    """One colour for each choice; for numbers two hues around zero where both signs occur, else one scale."""
    import matplotlib
    from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize, TwoSlopeNorm

    count = len(actuator.labels)
    if actuator.is_choice:
        few = count <= len(OKABE_ITO)
        colors = OKABE_ITO[:count] if few else matplotlib.colormaps["viridis"](np.linspace(0, 1, count))
        return ListedColormap(colors), BoundaryNorm(np.arange(count + 1) - 0.5, count)
    if actuator.low < 0 < actuator.high:
        return _two_hues(), TwoSlopeNorm(0.0, actuator.low, actuator.high)
    return matplotlib.colormaps["viridis"], Normalize(actuator.low, actuator.high)


def _two_hues() -> Colormap:
    """Orange over white to purple, without the ends, which are both nearly black."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    return ListedColormap(matplotlib.colormaps["PuOr"](np.linspace(0.1, 0.9, 256)))


def _write(
    axes: Axes, block: Numbers, texts: npt.NDArray[Any], colors: Colormap, norm: Normalize, size: float = 9.0
) -> None:
    """A text in the middle of each cell, black or white, whichever can be read on its colour."""
    for (row, column), text in np.ndenumerate(texts):
        if not text:
            continue
        red, green, blue, _ = colors(norm(block[row, column]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        color = "white" if dark else "black"
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=size, color=color)


def _bin_ticks(
    places: npt.NDArray[Any], which: Literal["x", "y"], dimension: Dimension | None, count: int, inches: float
) -> None:
    """Edges between the cells, or numbers in their middle where a dimension counts; as many as there is room for."""
    if dimension is None or dimension.counts_integers:
        positions, labels = np.arange(count) + 0.5, [str(i) for i in range(count)]
    else:
        positions, labels = np.arange(1.0, count), [f"{edge:.3g}" for edge in dimension.edges]
    high, wide = 0.17, 0.1 + 0.07 * max(map(len, labels), default=0)
    upright = which == "x" and len(labels) * wide > inches
    step = max(1, math.ceil(len(labels) * (wide if which == "x" and not upright else high) / inches))
    first = places[0, 0]
    (first.xaxis if which == "x" else first.yaxis).set_ticks(positions[::step], labels[::step])
    for axes in places.ravel():
        axes.tick_params(axis=which, labelrotation=90 if upright else 0)


def _explain(part: SubFigure, places: npt.NDArray[Any], actuator: Actuator, letters: Sequence[Letter] | None) -> None:
    """A legend of the choices, or a colour bar with the named levels."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.patches import Patch

    colors, norm = _shades(actuator)
    if not actuator.is_choice:
        bar = part.colorbar(ScalarMappable(norm, colors), ax=places, label=actuator.name, fraction=0.05, pad=0.02)
        if actuator.levels:
            bar.set_ticks([level for _, level in actuator.levels], labels=[f"{n} ({v:g})" for n, v in actuator.levels])
        return
    handles = [
        Patch(color=colors(norm(letter.value)), label=" ".join(dict.fromkeys((letter.symbol, letter.name))))
        for letter in letters or ()
    ]
    columns = math.ceil(len(handles) / 20)
    part.legend(handles=handles, loc="outside right upper", title=actuator.name, ncols=columns, alignment="left")


def _linear_figure(policy: LinearPolicy) -> Figure:
    from matplotlib.figure import Figure

    names, weights = weight_rows(policy)
    outputs = [name for name, _ in policy.equations]
    title = f"{policy.task.name}: linear policy"
    if len(names) > MOST_TERMS:
        kept = np.sort(np.argsort(-np.abs(weights).max(axis=1), kind="stable")[:MOST_TERMS])
        title += f"\nthe {MOST_TERMS} largest of {len(names)} weights"
        names, weights = [names[i] for i in kept], weights[kept]
    labels = [quantity_label(policy, name) for name in names]
    labels = [label if len(label) <= LONGEST_TERM else f"{label[: LONGEST_TERM - 3]}..." for label in labels]
    height = 1.3 + 0.3 * len(names)
    width = 7.5 if len(outputs) == 1 else min(4.0 + 0.9 * len(outputs), 16.0)
    figure = Figure(figsize=(width, max(height, 2.5)), layout="constrained")
    axes = figure.add_subplot()
    figure.suptitle(title, fontsize=11)
    rows = np.arange(len(names))
    if len(outputs) == 1:
        bars = axes.barh(rows, weights[:, 0], color=np.where(weights[:, 0] < 0, OKABE_ITO[1], OKABE_ITO[0]), height=0.7)
        axes.bar_label(bars, [f"{weight + 0.0:.4g}" for weight in weights[:, 0]], padding=3, fontsize=9)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.margins(x=0.15)
        axes.set_yticks(rows, labels)
        axes.set_xlabel(f"weight in {outputs[0]}")
    else:
        _draw_weights(figure, axes, weights, outputs)
        axes.set_yticks(rows + 0.5, labels)
    axes.invert_yaxis()
    return figure


def _draw_weights(figure: Figure, axes: Axes, weights: Numbers, outputs: Sequence[str]) -> None:
    from matplotlib.colors import Normalize

    most = float(np.abs(weights).max()) or 1.0
    colors, norm = _two_hues(), Normalize(-most, most)
    mesh = axes.pcolormesh(weights, cmap=colors, norm=norm, edgecolors="white", linewidth=0.5)
    if weights.size <= MOST_TEXTS:
        texts = np.array([f"{weight + 0.0:.3g}" for weight in weights.ravel()]).reshape(weights.shape)
        _write(axes, weights, texts, colors, norm)
    figure.colorbar(mesh, ax=axes, label="weight")
    axes.set_xticks(np.arange(len(outputs)) + 0.5, outputs, rotation=0 if len(outputs) <= 6 else 90)
    axes.set_xlabel("output")
    axes.spines[:].set_visible(False)
