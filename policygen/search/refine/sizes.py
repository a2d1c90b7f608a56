"""The sizes of a policy's constants: the units in which a numerical search moves them.

What is added to an action, or compared with a quantity, has an offset: its value says nothing about how far it may
move. Its size is a share of the actuator's range, or the spread of the quantity in episodes of the policy. So a search
is the same in any units. A factor has no offset; its size is its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.policies.features import Reader
from policygen.policies.linear import LinearPolicy, middle_and_half
from policygen.policies.policy import Policy
from policygen.quantities.spelling import compiled
from policygen.quantities.tree import Call, Node, Number, Previous, is_free, is_tunable, remembered_in

OF_HALF_RANGE = 0.5  # size of a constant that is added to an action, as a share of half the actuator's range
EPISODES, STEPS = 5, 1_000  # by which spreads are measured, at most
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")

# The unit of a number: a size, or the expressions whose largest spread is the size; None for a factor.
_Unit = float | tuple[Node, ...] | None


def sizes_of(policy: Policy, named: Sequence[tuple[str, Node]], played: Sequence[Trajectory]) -> list[float | None]:
    """Return the size of each constant of some expressions, in order; None: its own value is its size.

    Args:
        named: features and equations of the policy, by name.
        played: episodes that show the spread of quantities; without any, only constants of actions have sizes.
    """
    task, equations = policy.task, dict(policy.equations) if isinstance(policy, LinearPolicy) else {}
    halves = {a.name: OF_HALF_RANGE * middle_and_half(a)[1] for a in task.actuators if not a.is_choice}
    units: list[_Unit] = []
    for name, node in named:
        _collect(node, halves.get(name) if name in equations else None, halves, units)
    wanted = list(dict.fromkeys(node for unit in units if isinstance(unit, tuple) for node in unit))
    spreads = dict(zip(wanted, _spreads(policy, wanted, played), strict=True)) if played and wanted else {}
    return [
        (max(spreads.get(node, 0.0) for node in unit) if isinstance(unit, tuple) else unit) or None for unit in units
    ]


def _collect(node: Node, unit: _Unit, halves: Mapping[str, float], units: list[_Unit], free: bool = True) -> None:
    """Append the unit of each number that tuning may change, from left to right."""
    match node:
        case Number() if is_tunable(node, free):
            units.append(unit)
        case Previous(name, start):
            _collect(start, halves.get(name), halves, units, free and start != Number(0.0))
        case Call(function, arguments):
            inner: list[_Unit] = [None] * len(arguments)
            if function in ("+", "-", "min", "max", "clip", "neg", "abs"):
                inner = [unit or arguments] * len(arguments)
            elif function in _COMPARISONS:
                inner = [arguments] * len(arguments)
            elif function == "where":
                inner = [None, *[unit or arguments[1:]] * 2]
            for i, (argument, own) in enumerate(zip(arguments, inner, strict=True)):
                _collect(argument, own, halves, units, free and is_free(function, i))


def _spreads(policy: Policy, nodes: Sequence[Node], played: Sequence[Trajectory]) -> npt.NDArray[np.float64]:
    """Return the standard deviation of each expression over the steps of some episodes, 0 if it is not finite."""
    remembered = frozenset().union(*(remembered_in(node) for node in nodes))
    reader = Reader(policy.task, policy.lets, None, remembered)
    episodes = [(one.observations[:STEPS].astype(np.float64), one.actions[: STEPS - 1]) for one in played[:EPISODES]]
    columns = reader.along_all(episodes)
    with np.errstate(all="ignore"):
        values = [np.asarray(value, np.float64) for value in compiled(nodes, reader.names)(columns)]
        return np.array([np.nan_to_num(np.std(value), nan=0.0, posinf=0.0) for value in values])
