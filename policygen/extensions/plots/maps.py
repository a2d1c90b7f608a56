"""Policies drawn as text: maps of a table's actions, tables of a linear policy's weights."""

from __future__ import annotations

import math
import string
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import FiniteMDP, finite_mdp
from policygen.errors import PolicygenError
from policygen.extensions.plots.style import with_unit
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension
from policygen.quantities.text import to_text
from policygen.tasks.environments import make_env
from policygen.tasks.faults import close
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task

MOST_DIMENSIONS = 4
MOST_CELLS = 20_000  # larger tables have no map
LONGEST_LIST = 20  # bins of a single quantity of whole numbers, one per line; more bins are folded into rows
ARROWS = {"left": "←", "down": "↓", "right": "→", "up": "↑"}
_GAP = "  "


def policy_map(policy: Policy, width: int = 100) -> str:
    """Draw a policy as text in lines of at most about `width` characters.

    A table becomes a map with a character in each cell, or a number if a continuous action has no named levels. The
    last two dimensions form a map; each bin of the others has its own map, side by side. A linear policy becomes a
    table of weights, terms down and outputs across.

    Returns:
        The text; "" for a table of more than four dimensions or 20,000 cells.
    """
    if isinstance(policy, LinearPolicy):
        return _weights(policy, width)
    if not isinstance(policy, TablePolicy):
        return ""
    if not 1 <= len(policy.grid.dimensions) <= MOST_DIMENSIONS or policy.grid.size > MOST_CELLS:
        return ""
    several = len(policy.task.actuators) > 1
    marked = marks(policy)
    parts = []
    for actuator, actions in action_grids(policy):
        letters = alphabet(actuator, actions)
        lines = [f"{actuator.name}:"] if several else []
        lines += _map(policy, cell_texts(actions, letters, marked), width)
        lines += _key(letters, tuple(dict.fromkeys(marked.values())), width)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


# --- shared by maps and pictures --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Letter:
    """A symbol in the cells of a map, and its meaning."""

    symbol: str
    name: str
    # the action's value in the table; None if the symbol tells why no action is ever taken there
    value: float | None = None


GOAL, HOLE, CLIFF, END = Letter("G", "goal"), Letter("H", "hole"), Letter("C", "cliff"), Letter("X", "end")
NEVER = Letter("·", "never met")


def action_grids(policy: TablePolicy) -> list[tuple[Actuator, npt.NDArray[np.float64]]]:
    """Return every actuator with its values in all cells, an array of the grid's shape."""
    columns = policy.actions.reshape(policy.grid.size, -1).astype(np.float64)
    return [(actuator, columns[:, i].reshape(policy.grid.shape)) for i, actuator in enumerate(policy.task.actuators)]


def alphabet(actuator: Actuator, actions: npt.NDArray[np.float64]) -> tuple[Letter, ...] | None:
    """Return a symbol for each choice or named level; None if some `actions` are numbers without a name."""
    if actuator.is_choice:
        named_values = [(label, float(i)) for i, label in enumerate(actuator.labels)]
    else:
        # Actions are float32, levels are written with more digits.
        named_values = [(name, float(np.float32(level))) for name, level in actuator.levels]
        if not np.isin(actions, [value for _, value in named_values]).all():
            return None
    symbols = _symbols([name for name, _ in named_values])
    return tuple(Letter(symbol, name, value) for (name, value), symbol in zip(named_values, symbols, strict=True))


def cell_texts(
    actions: npt.NDArray[np.float64], letters: Sequence[Letter] | None, marked: Mapping[int, Letter]
) -> npt.NDArray[np.str_]:
    """Return the symbol of each cell, or its number with three digits; same shape as `actions`.

    Args:
        marked: the symbols of cells in which no action is ever taken, by cell number.
    """
    known = {letter.value: letter.symbol for letter in reversed(letters or ())}
    values, where = np.unique(actions, return_inverse=True)
    # Adding 0.0 turns -0.0 into 0.0.
    texts = np.array([known[v] if letters is not None else f"{v + 0.0:.3g}" for v in values.tolist()], object)
    flat = texts[where].ravel()
    flat[list(marked)] = [letter.symbol for letter in marked.values()]
    return flat.astype(np.str_).reshape(actions.shape)


def _symbols(names: Sequence[str]) -> list[str]:
    """Choose a symbol for each name: an arrow for a direction, a number as it is, else a free letter of the name."""
    lowered = [name.lower() for name in names]
    if all(name in ARROWS for name in lowered) and len(set(lowered)) == len(names):
        return [ARROWS[name] for name in lowered]
    if all(name.isdigit() for name in names):
        return list(names)
    initials = [name[:1] for name in lowered]
    chosen: dict[int, str] = {i: c for i, c in enumerate(initials) if c.isalnum() and initials.count(c) == 1}
    for i, name in enumerate(lowered):
        if i not in chosen:
            alike = [other for other in lowered if other[:1] == name[:1]]
            # The l of full_left, the r of full_right.
            distinct_part = name.removeprefix(commonprefix(alike)) + name  # noqa: RUF071 - these are names, not paths
            wanted = [
                c for c in distinct_part + distinct_part.upper() + string.ascii_letters + string.digits if c.isalnum()
            ]
            chosen[i] = next((c for c in wanted if c not in chosen.values()), str(i))
    return [chosen[i] for i in range(len(names))]


def unit_of(task: Task, name: str) -> str:
    """Return the unit of an observation or actuator, or of its remembered value `prev(NAME)`; features have none."""
    own = name.removeprefix("prev(").removesuffix(")")
    units = {one.name: one.unit for one in task.actuators} | {one.name: one.unit for one in task.observations}
    return units.get(own, "")


def quantity_label(policy: Policy, name: str) -> str:
    """Return the label of a quantity, with the unit if the task states one."""
    return with_unit(name, unit_of(policy.task, name))


# --- tables ----------------------------------------------------------------------------------------------------------


def _map(policy: TablePolicy, texts: npt.NDArray[np.str_], width: int) -> list[str]:
    dimensions = policy.grid.dimensions
    if len(dimensions) == 1:
        return _one_dimension(policy, texts, width)
    *outer, down, across = dimensions
    labels = [_bin_label(down, i) for i in range(down.bins)]
    way = "down" if down.has_integer_bins else "up"
    lines = [f"{quantity_label(policy, down.name)} {way}, {quantity_label(policy, across.name)} across"]
    if outer:
        lines[0] += f", one map for each {' and '.join(quantity_label(policy, d.name) for d in outer)}"
    if not across.has_integer_bins:
        lines += _wrapped(f"{across.name} ", [_bin_label(across, i) for i in range(across.bins)], width)
    lines.append("")
    margin = max(map(len, labels))
    if way == "up":  # rows are printed from the top; quantities grow upwards, as in pictures
        labels.reverse()
        texts = np.flip(texts, axis=-2)
    # With four dimensions each bin of the first one starts a new row of maps.
    groups = list(np.ndindex(*[d.bins for d in outer[:-1]]))
    for group in groups[::-1] if outer and not outer[0].has_integer_bins and len(outer) > 1 else groups:
        facets = []
        for bins in [(*group, i) for i in range(outer[-1].bins)] if outer else [()]:
            heading = [f"{d.name}: {d.label(i)}" for d, i in zip(outer, bins, strict=True)]
            facets += [[*heading, *body] for body in _bodies(texts[bins], width - margin - len(_GAP))]
        left = [""] * (len(facets[0]) - len(labels)) + labels
        lines += _side_by_side(left, facets, width)
    return lines[:-1]


def _bin_label(dimension: Dimension, index: int) -> str:
    """Return the number of a bin, as rows write it, and its values; for whole numbers only the value."""
    label = dimension.label(index)
    return label if dimension.has_integer_bins else f"{index}: {label}"


def _one_dimension(policy: TablePolicy, texts: npt.NDArray[np.str_], width: int) -> list[str]:
    (dimension,) = policy.grid.dimensions
    name = quantity_label(policy, dimension.name)
    if dimension.bins <= LONGEST_LIST or not dimension.has_integer_bins:
        labels = [_bin_label(dimension, i) for i in range(dimension.bins)]
        return [f"{name} down", "", *_side_by_side(labels, [[str(text) for text in texts]], width)[:-1]]
    cell = max(map(len, texts.tolist()))
    margin = len(str(dimension.bins)) + len(_GAP)
    fitting = (width - margin) // (cell if cell == 1 else cell + 1)
    per_row = next((n for n in (100, 50, 20) if n <= fitting and n < dimension.bins + 10), 10)
    rows = math.ceil(dimension.bins / per_row)
    padded = np.full(rows * per_row, " " * cell, dtype=texts.dtype)
    padded[: len(texts)] = texts
    (body,) = _bodies(padded.reshape(rows, per_row), per_row * (cell + 1))
    labels = [str(row * per_row) for row in range(rows)]
    return [f"{name}: the number at the left plus the one above", "", *_side_by_side(["", *labels], [body], width)[:-1]]


def _bodies(texts: npt.NDArray[np.str_], room: int) -> list[list[str]]:
    """Format a map of shape (rows, columns) with bin numbers above, split into parts of at most `room` characters."""
    columns = texts.shape[1]
    longest = max(map(len, texts.ravel().tolist()))
    dense = longest == 1 and columns > 10
    cell = 1 if dense else max(longest, len(str(columns - 1))) + 1
    step = max(1, room // cell)
    if dense and step < columns:
        step = max(10, step // 10 * 10)
    bodies = []
    for start in range(0, columns, step):
        stop = min(start + step, columns)
        if dense:
            header = "".join(str(i).ljust(10) for i in range(start, stop, 10)).rstrip()
            rows = ["".join(row) for row in texts[:, start:stop].tolist()]
        else:
            header = " ".join(str(i).rjust(cell - 1) for i in range(start, stop))
            rows = [" ".join(text.rjust(cell - 1) for text in row) for row in texts[:, start:stop].tolist()]
        bodies.append([header, *rows])
    return bodies


def _side_by_side(left: Sequence[str], facets: Sequence[Sequence[str]], width: int) -> list[str]:
    """Arrange maps or columns of equal height side by side, as many per line as fit, with labels at the left."""
    margin = max(map(len, left))
    room = max(len(line) for facet in facets for line in facet)
    per_line = max(1, (width - margin) // (room + len(_GAP)))
    lines = []
    for start in range(0, len(facets), per_line):
        for label, *parts in zip(left, *facets[start : start + per_line], strict=True):
            lines.append(_GAP.join([label.ljust(margin), *(part.ljust(room) for part in parts)]).rstrip())
        lines.append("")
    return lines


def _key(letters: Sequence[Letter] | None, marked: Sequence[Letter], width: int) -> list[str]:
    """Return lines that explain the letters; arrows and numbers need no explanation."""
    obvious = all(letter.symbol in (letter.name, ARROWS.get(letter.name.lower())) for letter in letters or ())
    shown = [*(() if obvious else letters or ()), *marked]
    return ["", *_wrapped("", [f"{letter.symbol} = {letter.name}" for letter in shown], width)] if shown else []


def _wrapped(start: str, items: Sequence[str], width: int) -> list[str]:
    """Join items by commas into lines that break only between items."""
    text = start + ", ".join(item.replace(" ", "\N{NO-BREAK SPACE}") for item in items)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


# --- linear policies -------------------------------------------------------------------------------------------------


def weight_rows(policy: LinearPolicy) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return the texts of the terms and their weights, shape (terms + 1, outputs); the last row is the constant."""
    names = [to_text(term) for term in policy.terms]
    return [*names, "constant"], np.vstack([policy.weights, policy.bias])


def _weights(policy: LinearPolicy, width: int) -> str:
    names, weights = weight_rows(policy)
    outputs = [name for name, _ in policy.equations]
    texts = [[f"{weight + 0.0:.4g}" for weight in row] for row in weights.tolist()]
    cell = max(len(text) for row in [outputs, *texts] for text in row)
    columns = [[text.rjust(cell) for text in column] for column in zip(outputs, *texts, strict=True)]
    return "\n".join(_side_by_side(["term", *names], columns, width)[:-1])


# --- cells in which no action is taken -------------------------------------------------------------------------------


def marks(policy: TablePolicy) -> dict[int, Letter]:
    """Return the marks of cells in which the policy never acts, by cell number; empty if the MDP is not finite."""
    task = policy.task
    if len(task.observations) != 1 or not task.observations[0].integer or policy.remembers:
        return {}
    try:
        mdp = finite_mdp(task)
        if mdp is None:
            return {}
        found = _state_marks(mdp, _letters(task, len(mdp.start)))
    except PolicygenError:
        return {}
    states = list(zip(policy.cells(np.arange(len(found)).reshape(-1, 1)).tolist(), found, strict=True))
    acting = {cell for cell, mark in states if mark is None}
    marked = {cell: NEVER for cell, _ in states if cell not in acting}
    return marked | {cell: mark for cell, mark in states if cell in marked and mark is not None and mark != NEVER}


def _state_marks(mdp: FiniteMDP, letters: Sequence[str]) -> list[Letter | None]:
    """Return the mark of each state; None if an action is taken there."""
    possible, decided, count = mdp.probabilities > 0, mdp.start > 0, 0
    while decided.sum() > count:  # add the states that are reached from these
        count = int(decided.sum())
        continues = possible[decided] & (mdp.continues[decided] > 0)
        decided[mdp.next_states[decided][continues]] = True
    ending = possible & (mdp.continues == 0) & decided[:, None, None]
    ends = mdp.next_states[ending]
    worth = {int(s): mdp.rewards[ending][ends == s] for s in np.unique(ends)}
    best = max((float(rewards.max()) for rewards in worth.values()), default=0.0)
    named: list[Letter | None] = []
    for state, acts in enumerate(decided.tolist()):
        if acts:
            named.append(None)
        elif state in worth:
            goal = bool((worth[state] == best).all())  # the reward of an end may depend on the way into it
            named.append(GOAL if goal else HOLE if letters[state] == "H" else END)
        else:
            named.append({"H": HOLE, "C": CLIFF}.get(letters[state], NEVER))
    return named


def _letters(task: Task, states: int) -> list[str]:
    """Return the letter of each state on the maps of FrozenLake and CliffWalking; `?` for other environments."""
    env = make_env(task)
    board: npt.NDArray[Any] = np.asarray(getattr(env.unwrapped, "desc", ()))
    cliff = np.asarray(getattr(env.unwrapped, "_cliff", ()))
    close(env)
    if board.size == states and board.dtype.kind == "S":
        return [letter.decode("ascii", "replace") for letter in board.ravel().tolist()]
    if cliff.size == states and cliff.dtype == np.bool_:
        return ["C" if falls else "?" for falls in cliff.ravel().tolist()]
    return ["?"] * states
