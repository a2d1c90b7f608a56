"""The steps of a policy, computed with another kind of values: single precision, many points at once, intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from policygen.extensions.export.program import Program
from policygen.policies.features import part_of_decision
from policygen.policies.table import TablePolicy
from policygen.quantities.compiled import finite, slot_of
from policygen.quantities.operations import OPERATIONS
from policygen.quantities.tree import Call, Name, Node, Number, Previous

V = TypeVar("V")
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Arithmetic(Generic[V]):
    """Arithmetic with one kind of values."""

    number: Callable[[float], V]  # returns a constant
    # Returns the result of an operation, given its name and arguments: for `prev` the remembered value and the start.
    result: Callable[..., V]
    finite: Callable[[V], V]  # returns a value with NaN as 0 and infinities as +-1e6

    def value(self, node: Node, values: Mapping[str, V]) -> V:
        """Return the value of an expression over named values."""
        match node:
            case Number(number):
                return self.number(number)
            case Name(name):
                return values[name]
            case Previous(name, start):
                return self.result("prev", values[slot_of(name)], self.value(start, values))
            case Call(function, arguments):
                return self.result(function, *(self.value(argument, values) for argument in arguments))
        raise AssertionError(node)

    def assigned(self, program: Program, values: Mapping[str, V]) -> dict[str, V]:
        """Return `values`, observed and remembered, with those of all `Program.assignments` added."""
        known = dict(values)
        for name, node in program.assignments:
            known[name] = self.finite(self.value(node, known))
        return known


def numpy_arithmetic(dtype: type[np.floating[Any]] = np.float64) -> Arithmetic[Array]:
    """Return numpy's arithmetic on columns of numbers, in double or single precision."""

    def result(operation: str, *arguments: Array) -> Array:
        if operation == "prev":
            before, start = arguments
            return np.where(np.isnan(before), start, before)
        return np.asarray(OPERATIONS[operation].batch(*arguments), dtype)

    return Arithmetic(lambda value: np.asarray(value, dtype), result, finite)


def steps_of(
    program: Program, observations: Iterable[Array], dtype: type[np.floating[Any]] = np.float64
) -> Iterator[tuple[dict[str, Array], Array]]:
    """Yield for each step of n episodes, played side by side, all values by name, each of shape (n,), and n actions.

    Args:
        observations: those of each step, shape (n, d).
        dtype: the precision of all arithmetic.
    """
    policy, memory = program.policy, list[Array]()
    for rows in observations:
        count = len(rows)
        memory = memory or [np.full(count, np.nan, dtype)] * len(policy.remembers)
        values = {name: rows[:, i].astype(dtype) for i, name in program.observed}
        values |= dict(zip(map(slot_of, policy.remembers), memory, strict=True))
        with np.errstate(all="ignore"):
            values = numpy_arithmetic(dtype).assigned(program, values)
        if isinstance(policy, TablePolicy):
            binned = [np.broadcast_to(values[name], count) for name in policy.grid.names]
            actions = policy.grid.look_up(binned, policy.actions)
        else:
            outputs = [np.broadcast_to(values[name], count) for name, _ in program.outputs]
            actions = policy.chosen(np.stack(outputs, axis=1))
        yield values, actions
        kept = [
            values[one.name] if one.actuator is None else part_of_decision(policy.task, one.name)(None, actions)
            for one in program.remembered_values
        ]
        memory = [np.broadcast_to(column, count).astype(dtype) for column in kept]
