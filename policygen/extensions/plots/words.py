"""Tables on the terminal: their rows in words, and maps of their actions in characters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from policygen.extensions.plots.style import with_unit
from policygen.policies.cells import action_text, action_words
from policygen.policies.policy import Policy
from policygen.policies.table import Rule, TablePolicy
from policygen.quantities.grid import Dimension
from policygen.quantities.text import format_number
from policygen.tasks.spaces import Actuator

MOST_ROWS = 10  # in words
WIDEST, HIGHEST = 100, 40  # characters and lines of a map
SIGNS = {"left": "<", "right": ">", "up": "^", "down": "v"}  # not every terminal has arrows


def in_words(policy: Policy) -> list[str]:
    """Return the rows of a table in words, with what its names mean; empty for equations and for over ten rows."""
    if not isinstance(policy, TablePolicy) or len(policy.rules) > MOST_ROWS:
        return []
    actuators, units = policy.task.actuators, _units(policy)
    lines = ['In words (the first matching line applies; "from a to b" includes a, not b):']
    lines += [f"  {_condition(policy, rule, units)} -> {action_words(actuators, rule.action)}" for rule in policy.rules]
    deciding = {one.name for one in _deciding(policy)}
    meanings = [(one.name, one.about) for one in policy.task.observations if one.name in deciding]
    meanings += [(one.name, one.about) for one in actuators]
    return lines + [f"  ({name}: {about})" for name, about in meanings if about]


def text_map(policy: Policy) -> list[str]:
    """Return the lines of a map of a table's actions over the one or two quantities that decide its single output.

    The result is empty for other policies, and for maps wider than 100 characters or higher than 40 lines.
    """
    if not isinstance(policy, TablePolicy) or len(policy.task.actuators) > 1:
        return []
    deciding = _deciding(policy)
    if len(deciding) not in (1, 2):
        return []
    *outer, across = deciding
    up = outer[0] if outer else Dimension("", ())
    place = tuple(slice(None) if one in deciding else 0 for one in policy.grid.dimensions)  # any bin of the others
    actions = policy.dense.reshape(policy.grid.shape)[place].reshape(up.bins, across.bins).tolist()
    (actuator,) = policy.task.actuators
    meanings = {value: action_text(actuator, value) for value in sorted({*itertools.chain(*actions)})}
    signs = _signs(actuator, meanings)
    edges = [f"{edge:.3g}" for edge in across.edges]
    ticks = [str(i) for i in range(across.bins)] if across.has_integer_bins else edges
    width = 2 + max(map(len, (*ticks, *signs.values())))
    names = [up.label(index) if outer else "" for index in range(up.bins)]
    margin = max(map(len, names))
    if 2 + margin + width * (across.bins + 1) > WIDEST or up.bins > HIGHEST:
        return []
    units, goes_down = _units(policy), up.has_integer_bins  # as the rows of a board
    axes = [f"rows: {with_unit(one.name, units.get(one.name, ''))}" for one in outer]
    axes += [f"columns: {with_unit(across.name, units.get(across.name, ''))}"]
    legend = [f"{sign} = {meanings[value]}" for value, sign in signs.items() if len(sign) == 1 < len(meanings[value])]
    rows = [
        f"  {name:>{margin}} {''.join(f'{signs[value]:^{width}}' for value in row)}".rstrip()
        for name, row in zip(names, actions, strict=True)
    ]
    # A number goes below its bin, an edge between two bins.
    shift = 0 if across.has_integer_bins else (width + 1) // 2
    below = " " * (3 + margin + shift) + "".join(f"{tick:^{width}}" for tick in ticks)
    head = f"Map of the actions ({'; '.join(axes)}){': ' * bool(legend)}{', '.join(legend)}"
    return [head, *(rows if goes_down else reversed(rows)), below.rstrip()]


def _units(policy: Policy) -> dict[str, str]:
    return {one.name: one.unit for one in policy.task.observations}


def _deciding(policy: TablePolicy) -> list[Dimension]:
    """Return the quantities on which some row depends."""
    every = zip(*(rule.bins for rule in policy.rules), strict=True)
    return [
        one
        for one, cells in zip(policy.grid.dimensions, every, strict=True)
        if any(len(bins) < one.bins for bins in cells)
    ]


def _condition(policy: TablePolicy, rule: Rule, units: Mapping[str, str]) -> str:
    """Return when a row matches: `angle at least 0 rad and spin below 0.2 rad/s`."""
    conditions = []
    for one, bins in zip(policy.grid.dimensions, rule.bins, strict=True):
        if len(bins) < one.bins:
            values = f"{_values(one, bins)} {units.get(one.name, '')}".rstrip()
            conditions.append(f"{one.name} {f'({values})' if ' or ' in values else values}")
    return " and ".join(conditions) or ("otherwise" if len(policy.rules) > 1 else "always")


def _values(one: Dimension, bins: Sequence[int]) -> str:
    """Return the values in some bins: `below -0.8 or from 0 to 0.8`."""
    starts = [index for index in bins if index - 1 not in bins]
    ends = [index for index in bins if index + 1 not in bins]
    return " or ".join(_between(one, first, last) for first, last in zip(starts, ends, strict=True))


def _between(one: Dimension, first: int, last: int) -> str:
    if one.has_integer_bins:
        return str(first) if first == last else f"{first} {'or' if last == first + 1 else 'to'} {last}"
    if first == 0:
        return f"below {format_number(one.edges[last])}"
    above = format_number(one.edges[first - 1])
    return f"at least {above}" if last == len(one.edges) else f"from {above} to {format_number(one.edges[last])}"


def _signs(actuator: Actuator, meanings: Mapping[float, str]) -> dict[float, str]:
    """Return the sign of each action: an arrow, its first letter, or the whole word if letters are not unique."""
    if all(text in SIGNS for text in meanings.values()):
        return {value: SIGNS[text] for value, text in meanings.items()}
    letters = [text[0] for text in meanings.values()]
    if actuator.is_choice and len({*letters}) == len(letters):
        return dict(zip(meanings, letters, strict=True))
    return {value: text if actuator.is_choice else f"{value:.3g}" for value, text in meanings.items()}
