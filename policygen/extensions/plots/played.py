"""Pictures that need played episodes: maps of actions over one or two quantities, and traces of a policy's memory."""

# Imports inside functions: Matplotlib is slow to import, and only code that draws should wait for it.

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicygenError
from policygen.extensions.plots.gains import main_quantities, quantities_along, visited
from policygen.extensions.plots.maps import quantity_label
from policygen.extensions.plots.style import OKABE_ITO, Numbers, new_figure, shades, style, with_unit
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.compiled import slot_of
from policygen.quantities.tree import names_in
from policygen.tasks.trust import why_refused

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPISODES = 3  # played for a picture
MOST_PATHS = 3  # episodes that are drawn across a map
POINTS = 201  # per quantity of a map
MOST_PANELS = 4  # actuators with a map
MOST_TRACES, MOST_STEPS = 10, 300  # remembered values, and steps of each
_SIDE, _BESIDE = 3.6, 1.8  # inches: width of a map beside another picture, and of its legend
_NARROW = (4.4, 4.4)  # inches: size of a map on a telephone
_MARGIN = 0.1  # share of the visited range that a map adds on either side
_TRACES = 4.5  # inches: width of the traces of memory


def play_episodes(policy: Policy) -> tuple[list[Trajectory], str]:
    """Play episodes with fixed seeds; return them, or none and the reason why they cannot be played here."""
    try:
        with Simulator(policy.task) as simulator:
            return simulator.play(policy, range(EPISODES)), ""
    except PolicygenError as error:
        return [], str(error)


def missing_parts(policy: Policy, what: str, *, page: bool = False, film: bool = False) -> str:
    """Return a sentence about the parts that a picture or page lacks because the task is not trusted; empty if none.

    Args:
        what: the name of the picture or page.
        page: whether it is a page, whose map shows episodes that the run has kept.
        film: whether it would include a film.
    """
    reason, linear = why_refused(policy.task), policy.kind == "linear"
    with_map = not page and (linear or policy.reader.needed) and len(deciding_quantities(policy)) == 2
    lacking = ["the film of an episode"] * film + ["the usual sizes of the terms"] * linear
    lacking += ["episodes in the map"] * bool(with_map) + ["the traces of memory"] * bool(policy.remembers)
    return f"{what} lacks {', '.join(lacking)}: {reason}" if reason and lacking else ""


# --- maps of one or two quantities -----------------------------------------------------------------------------------


def deciding_quantities(policy: Policy) -> tuple[str, ...]:
    """Return the one or two quantities that determine the action: observations, or else the features in use.

    The result is empty if more are needed, or memory.
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
class _ActionMap:
    """The actions over one or two quantities."""

    names: tuple[str, ...]  # the quantities: across, and up if there are two
    values: list[Numbers]  # those of each quantity, of shape (POINTS,)
    actions: Numbers  # shape (POINTS, actuators), or (POINTS up, POINTS across, actuators)
    paths: list[list[Numbers]]  # for some episodes the values of each quantity at all steps
    held: bool  # whether other quantities matter as well; they are held at their median


def _action_map(policy: Policy, episodes: Sequence[Trajectory]) -> _ActionMap | None:
    names, held = deciding_quantities(policy), {}
    if len(names) < 2 and isinstance(policy, LinearPolicy) and episodes and policy.independent:
        main = main_quantities(policy, episodes)
        if len(main) > len(names):
            names = main
            held = {name: float(np.nanmedian(values)) for name, values in visited(policy, episodes).items()}
    drawn = isinstance(policy, TablePolicy) and (len(names) == 1 or set(policy.grid.names) == set(names))
    if not names or drawn:
        return None
    met = [quantities_along(policy, episode) for episode in episodes]
    ranges = [_range(policy, name, [quantities[name] for quantities in met]) for name in names]
    values = [np.linspace(*ends, POINTS) for ends in ranges if ends is not None]
    if len(values) < len(names):
        return None
    paths = [[quantities[name] for name in names] for quantities in met[:MOST_PATHS]]
    return _ActionMap(names, values, _actions(policy, names, values, held), paths, bool(held))


def _range(policy: Policy, name: str, visited: Sequence[Numbers]) -> tuple[float, float] | None:
    """Return the axis range of a quantity: the visited values with a margin, else its bounds; None without either."""
    stated = next((o for o in policy.task.observations if o.name == name), None)
    values = np.concatenate(visited) if visited else np.array([])
    values = values[np.isfinite(values)]
    if len(values) and np.ptp(values) > 0:
        low, high = float(values.min()), float(values.max())
        margin = _MARGIN * (high - low)
        bounds = (stated.low, stated.high) if stated is not None else (-math.inf, math.inf)
        return max(low - margin, min(bounds[0], low)), min(high + margin, max(bounds[1], high))
    # Many environments state the largest float where a value is unbounded.
    if stated is not None and abs(stated.low) < 1e6 and abs(stated.high) < 1e6 and stated.low < stated.high:
        return stated.low, stated.high
    return None


def _actions(policy: Policy, names: Sequence[str], values: Sequence[Numbers], held: Mapping[str, float]) -> Numbers:
    """Return `_ActionMap.actions`, with the other quantities at their values in `held`."""
    mesh = np.meshgrid(*values)
    known = dict(zip(names, (one.ravel() for one in mesh), strict=True))
    raw = policy.reader.names[: policy.task.width + len(policy.reader.remembered)]
    columns = policy.reader.columns([known.get(name, np.full(mesh[0].size, held.get(name, 0.0))) for name in raw])
    # A deciding feature is set directly; the observations behind it are unknown.
    columns = [known.get(name, column) for name, column in zip(policy.reader.names, columns, strict=True)]
    with np.errstate(all="ignore"):
        actions = np.asarray(policy.act_on_quantities(columns), np.float64)
    return actions.reshape(*mesh[0].shape, -1)


def decision_figure(policy: Policy, episodes: Sequence[Trajectory] = (), *, narrow: bool = False) -> Figure | None:
    """Draw the actions over the one or two quantities that decide them, with the paths of a few episodes.

    If more quantities decide the actions of equations, the map is over the two that matter most in the episodes; the
    others are held at their median.

    Args:
        episodes: episodes of this policy. They set the range of the map, and the first MOST_PATHS are drawn. Without
            them the range is that of the bounds.
        narrow: for a narrow screen: maps of several actuators in a column, each legend below its map, no title.

    Returns:
        None if there are no such quantities, if one is unbounded and there are no episodes, or if the picture of the
        table shows this map already.
    """
    action_map = _action_map(policy, episodes)
    if action_map is None:
        return None
    count = min(len(policy.task.actuators), MOST_PANELS)
    with style():
        across = 1 if narrow else min(2, count)
        down = math.ceil(count / across)
        size = _NARROW if narrow else (6.4 if across == 1 else 10.0, 4.4)
        figure = new_figure(size[0], size[1] * down)
        for i in range(count):
            _draw_map(figure.add_subplot(down, across, i + 1), policy, i, action_map, below=narrow)
        if not narrow:
            rest = len(policy.task.actuators) - count
            more = f" ({rest} more outputs are not shown)" if rest else ""
            held = ", all else at its median" * action_map.held
            figure.suptitle(f"{policy.task.name}: actions of the policy{held}{more}", fontsize=11)
        return figure


def add_beside(
    figure: Figure, policy: Policy, episodes: Sequence[Trajectory], why: str, *, with_map: bool = True
) -> None:
    """Add the map of the actions and traces of memory to the right of a finished picture, which keeps its width.

    Without episodes, the reason `why` is written in place of the traces.
    """
    action_map = _action_map(policy, episodes) if with_map else None
    count = min(len(policy.task.actuators), MOST_PANELS) if action_map is not None else 0
    width, height = figure.get_figwidth(), max(figure.get_figheight(), _SIDE * bool(count))
    maps = (_SIDE + _BESIDE) * count + 0.3 * bool(count)
    whole = width + maps + _TRACES * bool(policy.remembers)
    figure.set_size_inches(whole, height)
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.set(rect=(0, 0, width / whole, 1))  # type: ignore[call-arg]
    if action_map is not None:
        if title := figure.get_suptitle():
            figure.suptitle(title, x=0.5 * width / whole, fontsize=11)
        for i in range(count):
            left, low = (width + 0.9 + i * (_SIDE + _BESIDE)) / whole, 0.65 / height
            axes = figure.add_axes((left, low, (_SIDE - 0.4) / whole, 1 - low - 0.55 / height))
            _draw_map(axes, policy, i, action_map)
            title = "actions, and paths of episodes" if action_map.paths else "actions"
            axes.set_title(title + ", all else at its median" * action_map.held, fontsize=9)
    if policy.remembers:
        _add_traces(figure, policy, episodes, why, width + maps)


def _draw_map(axes: Axes, policy: Policy, index: int, action_map: _ActionMap, *, below: bool = False) -> None:
    from matplotlib.patches import Patch

    actuator, actions = policy.task.actuators[index], action_map.actions[..., index]
    x, *more = action_map.values
    colors, norm = shades(actuator)
    if more:
        mesh = axes.pcolormesh(x, *more, actions, cmap=colors, norm=norm, rasterized=True)
    else:
        axes.plot(x, actions, color=OKABE_ITO[0], linewidth=4, alpha=0.5)
    for across, *up in action_map.paths:
        up = up or [actions[np.searchsorted(x, across).clip(0, POINTS - 1)]]
        axes.plot(across, *up, color="white", linewidth=2.4, alpha=0.7)
        axes.plot(across, *up, color="black", linewidth=1.0)
        axes.plot(across[:1], up[0][:1], "o", color="black", markeredgecolor="white", markersize=6)
    axes.set_xlim(x[0], x[-1])
    axes.set_xlabel(quantity_label(policy, action_map.names[0]))
    if not more:
        axes.set_ylabel(with_unit(actuator.name, actuator.unit))
        if actuator.is_choice:
            axes.set_yticks(range(len(actuator.labels)), actuator.labels)
        return
    axes.set_ylim(more[0][0], more[0][-1])
    axes.set_ylabel(quantity_label(policy, action_map.names[1]))
    if not actuator.is_choice:
        axes.figure.colorbar(mesh, ax=axes, label=with_unit(actuator.name, actuator.unit))
        return
    taken = [i for i in range(len(actuator.labels)) if (actions == i).any()]
    handles = [Patch(color=colors(norm(i)), label=actuator.labels[i]) for i in taken]
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    if below:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3}
    axes.legend(handles=handles, title=actuator.name, **place)


# --- traces of memory ------------------------------------------------------------------------------------------------


def _add_traces(figure: Figure, policy: Policy, episodes: Sequence[Trajectory], why: str, left: float) -> None:
    """Draw traces of memory in the first episode, `left` inches from the edge; without episodes write the reason."""
    whole, height = figure.get_size_inches()
    x, across = (left + 1.3) / whole, (_TRACES - 1.5) / whole
    if not episodes:
        figure.text(x, 0.5, f"no traces of memory:\n{textwrap.fill(why, 40)}", fontsize=8)
        return
    quantities = quantities_along(policy, episodes[0])
    shown = [(name, quantities[slot_of(name)]) for name in policy.remembers]  # NaN before a value exists
    rows, low, high = min(len(shown), MOST_TRACES), 0.5 / height, 1 - 0.65 / height
    each = (high - low) / rows
    first = None
    for i, (name, values) in enumerate(shown[:rows]):
        axes = figure.add_axes((x, high - (i + 1) * each + 0.12 * each, across, 0.76 * each), sharex=first)
        first = first or axes
        axes.plot(values[:MOST_STEPS], color=OKABE_ITO[0], linewidth=1)
        axes.set_ylabel(quantity_label(policy, name), rotation=0, ha="right", va="center", fontsize=8)
        axes.tick_params(labelsize=7, length=2, labelbottom=i == rows - 1)
        axes.locator_params(axis="y", nbins=3)
    steps = episodes[0].length
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel(f"step, the first {MOST_STEPS} of {steps}" if steps > MOST_STEPS else "step", fontsize=8)
    rest = f" ({len(shown) - rows} more)" if len(shown) > rows else ""
    figure.text(x, 1 - 0.45 / height, f"remembered, in one episode{rest}", fontsize=9)
