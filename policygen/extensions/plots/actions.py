"""Action maps: the actions of a policy over two quantities, in panels for a few values of other quantities."""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.errors import UsageError
from policygen.extensions.plots.style import OKABE_ITO, Numbers, check_suffix, new_figure, save, style, with_unit
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension
from policygen.quantities.tree import names_in, previous_of
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

EPISODES = 3  # number played to find the ranges of quantities
POINTS = 201  # values of a continuous quantity
MOST_SLICES = 6  # values of a quantity that get a panel
MOST_ACTUATORS = 4
SAMPLES = 2_000  # states at which the influence of a quantity is measured
ARROWS = {"left": "←", "down": "↓", "right": "→", "up": "↑"}
_MARGIN = 0.1  # share of the visited range that a map adds on either side


@dataclass(frozen=True, slots=True)
class _Axis:
    """A quantity that decides actions; in a table, its values are bin numbers."""

    name: str
    label: str
    values: Numbers  # increasing
    samples: Numbers  # shape (states,); the same states for all quantities
    bins: Dimension | None = None

    @property
    def usual(self) -> float:
        """The median of the samples."""
        return float(np.nanquantile(self.samples, 0.5, method="nearest"))

    @property
    def slices(self) -> list[float]:
        """The values that get a panel: bins, or the lowest, the middle and the highest value."""
        if self.bins is None:
            return list(map(float, np.linspace(np.nanmin(self.samples), np.nanmax(self.samples), 3)))
        count = len(self.values)
        return list(map(float, np.linspace(0, count - 1, min(MOST_SLICES, count)).round()))

    def words(self, value: float) -> str:
        """Return the label with a value: `angle [rad]: 0.1`."""
        if self.bins is not None:
            return f"{self.label}: {self.bins.label(int(value))}"
        is_noise = abs(value) < 1e-3 * np.ptp(self.values)
        return f"{self.label}: {0 if is_noise else value:.3g}"


def plot_policy(policy: Policy, path: str | Path) -> Path:
    """Draw `action_figure` into a .png, .svg or .pdf file; return its path.

    Raises:
        UsageError: the suffix is unknown, or the policy has no map.
        LogbookError: `path` cannot be written.
    """
    check_suffix(Path(path))
    return save(action_figure(policy), Path(path))


def action_figure(policy: Policy, episodes: Sequence[Trajectory] = ()) -> Figure:
    """Draw the actions of a policy over the one or two quantities that affect them most.

    There is a panel for each of a few values of a third quantity: its bins or, for equations, its lowest, middle and
    highest value. Other quantities are held at their medians.

    Args:
        episodes: episodes of this policy, from which the ranges of the quantities are taken; by default, a few are
            played if the policy is equations.

    Raises:
        UsageError: the policy always takes the same action, or a quantity has no finite value in the episodes.
        TaskError, EnvironmentFault: no episode can be played.
    """
    axes = _quantities(policy, episodes)
    influence = _influence(policy, axes) if axes else np.array([])
    read = np.flatnonzero(influence).tolist()
    if not read:
        raise UsageError(f"the policy for {policy.task.name} always takes the same action, so there is no map of it")
    order = sorted(read, key=lambda i: -influence[i])
    *ups, across = (axes[i] for i in sorted(order[:2]))
    up = ups[0] if ups else None
    third = axes[order[2]] if len(order) > 2 else None
    slices = third.slices if third is not None else [0.0]
    actuators = policy.task.actuators[:MOST_ACTUATORS]
    held = ", ".join(axes[i].words(axes[i].usual) for i in sorted(order[3:]))
    notes = [f"{policy.task.name}: actions of the policy", *([f"held: {held}"] if held else [])]
    if rest := len(policy.task.actuators) - len(actuators):
        notes.append(f"{rest} more outputs are not shown")
    with style():
        width, height = _inches(across, len(slices), 10.0), _inches(up, 1, 7.5)
        height = 1.2 if up is None and across.bins is not None else height  # a single row of cells
        figure = new_figure(width * len(slices) + 2.2, (height + 0.35) * len(actuators) + 1.0)
        figure.suptitle(textwrap.fill("; ".join(notes), int(11 * figure.get_figwidth())), fontsize=11)
        grid = figure.subplots(len(actuators), len(slices), sharex=True, sharey="row", squeeze=False)
        for index, (actuator, places) in enumerate(zip(actuators, grid, strict=True)):
            for place, value in zip(places, slices, strict=True):
                fixed = {third.name: value} if third is not None else {}
                _draw(place, actuator, _mapped(policy, axes, fixed, up, across)[..., index], up, across)
                place.set_title(third.words(value) if third is not None else "", fontsize=8)
            if up is not None or across.bins is not None:
                _add_colours(figure, places, actuator)
        figure.supxlabel(across.label, fontsize=10)
        if up is not None:
            figure.supylabel(up.label, fontsize=10)
        return figure


# --- quantities ------------------------------------------------------------------------------------------------------


def quantities_behind(policy: Policy) -> frozenset[str]:
    """Return the observations and remembered values that decide the actions, directly or through features."""
    features = dict(policy.reader.needed)
    behind = policy.names_read() | {previous_of(name) for name in policy.reader.remembered}
    while defined := behind & features.keys():
        behind = (behind - defined).union(*(names_in(features[name]) for name in defined))
    return behind


def _quantities(policy: Policy, episodes: Sequence[Trajectory]) -> list[_Axis]:
    """Return the quantities that decide the actions; samples for a table are random bins.

    For equations, they are observations and remembered values; if these are more than two, but the features in use at
    most two, they are these features.
    """
    rng = np.random.default_rng(0)
    if isinstance(policy, TablePolicy):
        samples = [rng.integers(one.bins, size=SAMPLES).astype(np.float64) for one in policy.grid.dimensions]
        return [
            _Axis(one.name, _label(policy.task, one.name), np.arange(float(one.bins)), own, one)
            for one, own in zip(policy.grid.dimensions, samples, strict=True)
        ]
    reader, behind = policy.reader, quantities_behind(policy)
    direct = policy.names_read() | {previous_of(name) for name in reader.previous}
    names = [name for name in reader.names if name in (direct if len(direct) <= 2 < len(behind) else behind)]
    if not episodes:
        with Simulator(policy.task) as simulator:
            episodes = simulator.play(policy, range(EPISODES))
    along = [reader.along((one.observations[:-1], one.actions)) for one in episodes]
    paths = [dict(zip(reader.names, (np.asarray(c, np.float64) for c in columns), strict=True)) for columns in along]
    axes = []
    for name in names:
        visited = np.concatenate([path[name] for path in paths])
        if not np.isfinite(visited).any():
            raise UsageError(f"there is no map of the actions: `{name}` has no finite value in the episodes")
        values = np.linspace(*_range(policy.task, name, visited[np.isfinite(visited)]), POINTS)
        some = visited[:: max(1, len(visited) // SAMPLES)]
        axes.append(_Axis(name, _label(policy.task, name), values, some))
    return axes


def _range(task: Task, name: str, visited: Numbers) -> tuple[float, float]:
    """Return the visited range of a quantity, with a margin within its bounds."""
    low, high = next(((one.low, one.high) for one in task.observations if one.name == name), (-math.inf, math.inf))
    first, last = float(visited.min()), float(visited.max())
    margin = _MARGIN * ((last - first) or 1.0)
    return max(first - margin, min(low, first)), min(last + margin, max(high, last))


def _label(task: Task, name: str) -> str:
    """Return a quantity with its unit, if the task states one; a remembered value has the unit of its quantity."""
    units = {one.name: one.unit for one in task.actuators} | {one.name: one.unit for one in task.observations}
    return with_unit(name, units.get(name.removeprefix("prev(").removesuffix(")"), ""))


def _decided(policy: Policy, known: Mapping[str, Numbers]) -> Numbers:
    """Return the actions, shape (n, actuators), for n values of each quantity, shape (n,)."""
    count = len(next(iter(known.values())))
    if isinstance(policy, TablePolicy):
        cells = np.ravel_multi_index([known[name].astype(int) for name in policy.grid.names], policy.grid.shape)
        return np.asarray(policy.actions[cells], np.float64).reshape(count, -1)
    reader = policy.reader
    raw = reader.names[: policy.task.width + len(reader.remembered)]
    quantities = reader.columns([known.get(name, np.zeros(count)) for name in raw])
    # A feature among the quantities is set directly; the observations behind it are unknown.
    quantities = [known.get(name, column) for name, column in zip(reader.names, quantities, strict=True)]
    with np.errstate(all="ignore"):
        return np.asarray(policy.act_on_quantities(quantities), np.float64).reshape(count, -1)


def _influence(policy: Policy, axes: Sequence[_Axis]) -> Numbers:
    """Return the mean change of the actions if one quantity takes its value from another state, for each quantity."""
    rng, choice = np.random.default_rng(0), np.array([one.is_choice for one in policy.task.actuators])
    samples = {axis.name: axis.samples for axis in axes}
    usual = _decided(policy, samples)
    found = []
    for name, own in samples.items():
        change = np.abs(_decided(policy, samples | {name: rng.permutation(own)}) - usual)
        found.append(float(np.where(choice, change > 0, change / (np.ptp(usual, axis=0) + 1e-12)).mean()))
    return np.array(found)


def _mapped(
    policy: Policy, axes: Sequence[_Axis], fixed: Mapping[str, float], up: _Axis | None, across: _Axis
) -> Numbers:
    """Return the actions of a panel, shape (up, across, actuators); other quantities are `fixed` or at their median."""
    mesh = np.meshgrid(across.values, up.values if up is not None else [0.0])
    known = {axis.name: np.full(mesh[0].size, fixed.get(axis.name, axis.usual)) for axis in axes}
    known |= {axis.name: place.ravel() for axis, place in zip((across, up), mesh, strict=True) if axis is not None}
    return _decided(policy, known).reshape(*mesh[0].shape, -1)


# --- panels ----------------------------------------------------------------------------------------------------------


def _inches(axis: _Axis | None, count: int, room: float) -> float:
    """Return the size of each of `count` panels along a quantity, with `room` for all, in inches."""
    wanted = 0.4 * axis.bins.bins if axis is not None and axis.bins is not None else 3.8
    return min(max(1.9, wanted), max(1.9, room / count))


def _shades(actuator: Actuator) -> tuple[Colormap, Normalize]:
    """Return the colours of an actuator: one per choice or, for numbers, a scale with two hues around zero."""
    import matplotlib
    from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize, TwoSlopeNorm

    count, viridis = len(actuator.labels), matplotlib.colormaps["viridis"]
    if actuator.is_choice:
        colors = OKABE_ITO[:count] if count <= len(OKABE_ITO) else viridis(np.linspace(0, 1, count))
        return ListedColormap(colors), BoundaryNorm(np.arange(count + 1) - 0.5, count)
    if actuator.low < 0 < actuator.high:
        # Without the nearly black ends of this map.
        hues = ListedColormap(matplotlib.colormaps["PuOr"](np.linspace(0.1, 0.9, 256)))
        return hues, TwoSlopeNorm(0.0, actuator.low, actuator.high)
    return viridis, Normalize(actuator.low, actuator.high)


def _draw(axes: Axes, actuator: Actuator, actions: Numbers, up: _Axis | None, across: _Axis) -> None:
    """Draw the actions of an actuator, shape (up, across), as a map, table cells, or a curve over one quantity."""
    colors, norm = _shades(actuator)
    if across.bins is not None:
        axes.pcolormesh(actions, cmap=colors, norm=norm, edgecolors="white", linewidth=0.5)
        axes.spines[:].set_visible(False)
        _write_actions(axes, actuator, actions)
        axes.set_yticks([])
        for axis, quantity in ((axes.xaxis, across), (axes.yaxis, up)):
            if quantity is not None and quantity.bins is not None:
                _add_ticks(axis, quantity.bins)
        # Whole numbers increase downwards, as the rows of a board do; panels of a row share the axis.
        if up is not None and up.bins is not None and up.bins.has_integer_bins:
            axes.set_ylim(up.bins.bins, 0)
        axes.tick_params(length=2.5, labelsize=8)
    elif up is not None:
        axes.pcolormesh(across.values, up.values, actions, cmap=colors, norm=norm, rasterized=True)
    else:
        axes.plot(across.values, actions[0], color=OKABE_ITO[0], linewidth=4, alpha=0.5)
        axes.set_ylabel(with_unit(actuator.name, actuator.unit))
        if actuator.is_choice:
            axes.set_yticks(range(len(actuator.labels)), actuator.labels)


def _write_actions(axes: Axes, actuator: Actuator, actions: Numbers) -> None:
    """Write numbers or arrows into the cells of a table, unless there are too many."""
    symbols = [ARROWS.get(label.lower(), "") for label in actuator.labels]
    if actions.size > 400 or not (all(symbols) or not actuator.is_choice):
        return
    colors, norm = _shades(actuator)
    # Texts stay within their cells, so the layout need not measure them.
    centred: dict[str, Any] = {"ha": "center", "va": "center", "in_layout": False, "fontsize": 12 if symbols else 7}
    for (row, column), action in np.ndenumerate(actions):
        text = symbols[int(action)] if symbols else f"{action + 0.0:.3g}"
        is_dark = np.dot(colors(norm(action))[:3], [0.299, 0.587, 0.114]) < 0.5
        axes.text(column + 0.5, row + 0.5, text, color="white" if is_dark else "black", **centred)


def _add_ticks(axis: Any, bins: Dimension) -> None:
    """Label the edges between bins or, for whole numbers, the bins."""
    whole = bins.has_integer_bins
    positions = np.arange(bins.bins) + 0.5 if whole else np.arange(1.0, bins.bins)
    every = max(1, math.ceil(len(positions) / 12))
    labels = [str(i) for i in range(bins.bins)] if whole else [f"{edge:.3g}" for edge in bins.edges]
    axis.set_ticks(positions[::every], labels[::every])


def _add_colours(figure: Figure, places: Any, actuator: Actuator) -> None:
    """Add a colour bar with the names of choices or levels."""
    from matplotlib.cm import ScalarMappable

    colors, norm = _shades(actuator)
    label = with_unit(actuator.name, actuator.unit)
    bar = figure.colorbar(ScalarMappable(norm, colors), ax=places, label=label, fraction=0.05, pad=0.02)
    if actuator.is_choice:
        bar.set_ticks(range(len(actuator.labels)), labels=actuator.labels)
    elif actuator.levels:
        bar.set_ticks([level for _, level in actuator.levels], labels=[f"{n} ({v:g})" for n, v in actuator.levels])
