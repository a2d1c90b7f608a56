"""Decision maps: the actions of a policy over the two quantities that determine them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.maps import quantity_label
from policygen.extensions.plots.shades import shades
from policygen.extensions.plots.style import Numbers, style
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.tree import names_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 201  # per quantity
MOST_PANELS = 4  # actuators
MOST_PATHS = 3  # episodes that are drawn across the map
_SIDE, _BESIDE = 3.6, 1.8  # inches of a map beside another picture, and of its legend
_NARROW = (4.4, 4.4)  # inches of a map on a telephone
_MARGIN = 0.1  # of the visited range, on either side


def deciding_quantities(policy: Policy) -> tuple[str, ...]:
    """Return the one or two quantities that determine the action: observations, or else the features in use.

    Returns:
        Their names, in the order of the task; empty if more are needed, or memory.
    """
    reader = policy.reader
    if policy.remembers or reader.read is None:
        return ()
    features = dict(reader.needed)
    behind = set(reader.read)
    while defined := behind & features.keys():
        behind = (behind - defined).union(*(names_in(features[name]) for name in defined))
    found = behind if len(behind) <= 2 else set(reader.read)
    return tuple(name for name in reader.names if name in found) if 1 <= len(found) <= 2 else ()


@dataclass(frozen=True, slots=True)
class _Plane:
    """The data of a map.

    Attributes:
        names: the two quantities: across, and up.
        x, y: their values, of shape (POINTS,).
        actions: shape (POINTS, POINTS, actuators).
        paths: the two quantities at each step of some episodes.
    """

    names: tuple[str, ...]
    x: Numbers
    y: Numbers
    actions: Numbers
    paths: list[tuple[Numbers, Numbers]]


def _plane(policy: Policy, episodes: Sequence[Trajectory]) -> _Plane | None:
    names = deciding_quantities(policy)
    if len(names) != 2 or (isinstance(policy, TablePolicy) and set(policy.grid.names) == set(names)):
        return None
    paths = [_path(policy, names, episode) for episode in episodes]
    ranges = [_range(policy, name, [path[i] for path in paths]) for i, name in enumerate(names)]
    if any(low is None or high is None for low, high in ranges):
        return None
    (left, right), (bottom, top) = ranges
    x, y = np.linspace(left or 0.0, right or 0.0, POINTS), np.linspace(bottom or 0.0, top or 0.0, POINTS)
    return _Plane(names, x, y, _actions(policy, names, x, y), paths[:MOST_PATHS])


def decision_figure(policy: Policy, episodes: Sequence[Trajectory] = (), *, narrow: bool = False) -> Figure | None:
    """Draw the actions over the two deciding quantities, with the paths of a few episodes.

    Args:
        episodes: episodes of this policy. They set the range of the map, and the first MOST_PATHS are drawn. Without
            them the range is that of the bounds.
        narrow: for a narrow screen: maps of several actuators in a column, each legend below its map, no title.

    Returns:
        None if two quantities do not suffice, if they are unbounded and there are no episodes, or if the picture of a
        table is this map already.
    """
    plane = _plane(policy, episodes)
    if plane is None:
        return None
    shown = policy.task.actuators[:MOST_PANELS]
    with style():
        from matplotlib.figure import Figure

        across = 1 if narrow else min(2, len(shown))
        down = math.ceil(len(shown) / across)
        size = _NARROW if narrow else (6.4 if across == 1 else 10.0, 4.4)
        figure = Figure(figsize=(size[0], size[1] * down), layout="constrained")
        for i in range(len(shown)):
            axes = figure.add_subplot(down, across, i + 1)
            _draw(axes, policy, i, plane, below=narrow)
        if narrow:
            return figure
        rest = len(policy.task.actuators) - len(shown)
        more = f" ({rest} more outputs are not shown)" if rest else ""
        figure.suptitle(f"{policy.task.name}: what the policy does{more}", fontsize=11)
        return figure


def add_plane(figure: Figure, policy: Policy, episodes: Sequence[Trajectory]) -> None:
    """Widen a finished picture by the map, if there is one: the first actuators, from the left."""
    plane = _plane(policy, episodes)
    if plane is None:
        return
    width, height = figure.get_size_inches()
    count = min(len(policy.task.actuators), MOST_PANELS)
    more, tall = (_SIDE + _BESIDE) * count + 0.3, max(height, _SIDE)
    figure.set_size_inches(width + more, tall)
    if title := figure.get_suptitle():
        figure.suptitle(title, x=0.5 * width / (width + more), fontsize=11)
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.set(rect=(0, 0, width / (width + more), 1))  # type: ignore[call-arg]
    for i in range(count):
        left, low = (width + 0.9 + i * (_SIDE + _BESIDE)) / (width + more), 0.65 / tall
        axes = figure.add_axes((left, low, (_SIDE - 0.4) / (width + more), 1 - low - 0.55 / tall))
        _draw(axes, policy, i, plane)
        axes.set_title("what it does where, and episodes" if plane.paths else "what it does where", fontsize=9)


def _path(policy: Policy, names: Sequence[str], episode: Trajectory) -> tuple[Numbers, Numbers]:
    columns = policy.reader.along(episode.observations[:-1], episode.actions)
    found = dict(zip(policy.reader.names, columns, strict=True))
    first, second = (np.asarray(found[name], np.float64) for name in names)
    return first, second


def _range(policy: Policy, name: str, visited: Sequence[Numbers]) -> tuple[float | None, float | None]:
    """Return the drawn range of a quantity: the visited values within its bounds, or without episodes its bounds."""
    stated = next((o for o in policy.task.observations if o.name == name), None)
    values = np.concatenate(visited) if visited else np.array([])
    values = values[np.isfinite(values)]
    if len(values) and np.ptp(values) > 0:
        low, high = float(values.min()), float(values.max())
        margin = _MARGIN * (high - low)
        bounds = (stated.low, stated.high) if stated is not None else (-math.inf, math.inf)
        return max(low - margin, min(bounds[0], low)), min(high + margin, max(bounds[1], high))
    # Environments often state an unbounded end as the largest float.
    if stated is not None and abs(stated.low) < 1e6 and abs(stated.high) < 1e6 and stated.low < stated.high:
        return stated.low, stated.high
    return None, None


def _actions(policy: Policy, names: Sequence[str], x: Numbers, y: Numbers) -> npt.NDArray[np.float64]:
    """Compute the actions over the plane, shape (len(y), len(x), actuators)."""
    across, down = (plane.ravel() for plane in np.meshgrid(x, y))
    known = dict(zip(names, (across, down), strict=True))
    observed = [known.get(name, np.zeros(across.size)) for name in policy.task.columns]
    columns = policy.reader.columns(observed)
    # A deciding feature is set directly; the observations behind it are unknown.
    columns = [known.get(name, column) for name, column in zip(policy.reader.names, columns, strict=True)]
    with np.errstate(all="ignore"):
        actions = np.asarray(policy.act_on_quantities(columns), np.float64)
    return actions.reshape(len(y), len(x), -1)


def _draw(axes: Axes, policy: Policy, index: int, plane: _Plane, *, below: bool = False) -> None:
    from matplotlib.patches import Patch

    actuator, actions = policy.task.actuators[index], plane.actions[:, :, index]
    colors, norm = shades(actuator)
    mesh = axes.pcolormesh(plane.x, plane.y, actions, cmap=colors, norm=norm, rasterized=True)
    for path in plane.paths:
        axes.plot(*path, color="white", linewidth=2.4, alpha=0.7)
        axes.plot(*path, color="black", linewidth=1.0)
        axes.plot(path[0][:1], path[1][:1], "o", color="black", markeredgecolor="white", markersize=6)
    axes.set_xlim(plane.x[0], plane.x[-1])
    axes.set_ylim(plane.y[0], plane.y[-1])
    axes.set_xlabel(quantity_label(policy, plane.names[0]))
    axes.set_ylabel(quantity_label(policy, plane.names[1]))
    if not actuator.is_choice:
        axes.figure.colorbar(mesh, ax=axes, label=actuator.name)
        return
    taken = [i for i in range(len(actuator.labels)) if (actions == i).any()]
    handles = [Patch(color=colors(norm(i)), label=actuator.labels[i]) for i in taken]
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    if below:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3}
    axes.legend(handles=handles, title=actuator.name, **place)
