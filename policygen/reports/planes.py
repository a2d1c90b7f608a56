"""Decision maps: what a policy does over the plane of the two quantities that suffice to decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.tree import names_in
from policygen.reports.maps import quantity_label
from policygen.reports.portraits import two_hues
from policygen.reports.style import OKABE_ITO, Numbers, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 201  # of each quantity
MOST_PANELS = 4  # actuators
MOST_PATHS = 3  # episodes that are drawn across the map
_MARGIN = 0.05  # of the range of what was visited, on either side


def deciding_quantities(policy: Policy) -> tuple[str, ...]:
    """The one or two quantities that suffice to decide: observations where they do, else features that are read.

    Returns:
        Their names, in the order of the task; empty where it takes more, or memory.
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


def decision_figure(policy: Policy, episodes: Sequence[Trajectory] = ()) -> Figure | None:
    """A map of the actions over the two quantities that decide, with the paths of a few episodes across it.

    Args:
        episodes: played by the policy; they say how far the map reaches where a quantity has no bounds, and the first
            MOST_PATHS of them are drawn.

    Returns:
        None where two quantities do not suffice, where they are unbounded and there are no episodes, and where the
        portrait of a table is this map already.
    """
    names = deciding_quantities(policy)
    if len(names) != 2 or (isinstance(policy, TablePolicy) and set(policy.grid.names) == set(names)):
        return None
    paths = [_path(policy, names, episode) for episode in episodes]
    ranges = [_range(policy, name, [path[i] for path in paths]) for i, name in enumerate(names)]
    if any(low is None or high is None for low, high in ranges):
        return None
    (left, right), (bottom, top) = ranges
    x, y = np.linspace(left or 0.0, right or 0.0, POINTS), np.linspace(bottom or 0.0, top or 0.0, POINTS)
    actions = _actions(policy, names, x, y)
    shown = policy.task.actuators[:MOST_PANELS]
    with style():
        from matplotlib.figure import Figure

        across = min(2, len(shown))
        down = math.ceil(len(shown) / across)
        figure = Figure(figsize=(6.4 if across == 1 else 10.0, 4.4 * down), layout="constrained")
        for i in range(len(shown)):
            axes = figure.add_subplot(down, across, i + 1)
            _draw(axes, policy, i, (x, y), actions[:, :, i])
            for path in paths[:MOST_PATHS]:
                axes.plot(*path, color="white", linewidth=2.4, alpha=0.7)
                axes.plot(*path, color="black", linewidth=1.0)
                axes.plot(path[0][:1], path[1][:1], "o", color="black", markeredgecolor="white", markersize=6)
            axes.set_xlim(x[0], x[-1])
            axes.set_ylim(y[0], y[-1])
            axes.set_xlabel(quantity_label(policy, names[0]))
            axes.set_ylabel(quantity_label(policy, names[1]))
        rest = len(policy.task.actuators) - len(shown)
        more = f" ({rest} more outputs are not shown)" if rest else ""
        figure.suptitle(f"{policy.task.name}: what the policy does{more}", fontsize=11)
        return figure


def _path(policy: Policy, names: Sequence[str], episode: Trajectory) -> tuple[Numbers, Numbers]:
    columns = policy.reader.along(episode.observations[:-1], episode.actions)
    found = dict(zip(policy.reader.names, columns, strict=True))
    first, second = (np.asarray(found[name], np.float64) for name in names)
    return first, second


def _range(policy: Policy, name: str, visited: Sequence[Numbers]) -> tuple[float | None, float | None]:
    """From where to where a quantity is drawn: its bounds, or what was visited where it has none."""
    stated = next((o for o in policy.task.observations if o.name == name), None)
    # What is called unbounded is often stated as the largest float.
    if stated is not None and abs(stated.low) < 1e6 and abs(stated.high) < 1e6 and stated.low < stated.high:
        return stated.low, stated.high
    values = np.concatenate(visited) if visited else np.array([])
    values = values[np.isfinite(values)]
    if not len(values) or np.ptp(values) == 0:
        return None, None
    low, high = float(values.min()), float(values.max())
    return low - _MARGIN * (high - low), high + _MARGIN * (high - low)


def _actions(policy: Policy, names: Sequence[str], x: Numbers, y: Numbers) -> npt.NDArray[np.float64]:
    """Actions over the plane, shape (len(y), len(x), actuators)."""
    across, down = (plane.ravel() for plane in np.meshgrid(x, y))
    known = dict(zip(names, (across, down), strict=True))
    observed = [known.get(name, np.zeros(across.size)) for name in policy.task.observation_names]
    columns = policy.reader.columns(observed)
    # A feature that decides is given, not computed of observations that are not known.
    columns = [known.get(name, column) for name, column in zip(policy.reader.names, columns, strict=True)]
    with np.errstate(all="ignore"):
        actions = np.asarray(policy.act_on_quantities(columns), np.float64)
    return actions.reshape(len(y), len(x), -1)


def _draw(axes: Axes, policy: Policy, index: int, places: tuple[Numbers, Numbers], actions: Numbers) -> None:
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patches import Patch

    actuator = policy.task.actuators[index]
    if not actuator.is_choice:
        mesh = axes.pcolormesh(
            *places, actions, cmap=two_hues(), vmin=actuator.low, vmax=actuator.high, rasterized=True
        )
        axes.figure.colorbar(mesh, ax=axes, label=actuator.name)
        return
    count = len(actuator.labels)
    colors = [OKABE_ITO[i % len(OKABE_ITO)] for i in range(count)]
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
    axes.pcolormesh(*places, actions, cmap=ListedColormap(colors), norm=norm, rasterized=True)
    taken = [i for i in range(count) if (actions == i).any()]
    handles = [Patch(color=colors[i], label=actuator.labels[i]) for i in taken]
    axes.legend(handles=handles, title=actuator.name, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
