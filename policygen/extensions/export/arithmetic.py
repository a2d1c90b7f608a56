"""The steps of a policy, computed with another kind of values: single precision, many points at once, intervals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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


class Arithmetic(ABC, Generic[V]):
    """Arithmetic with one kind of values: its constants and operations."""

    @abstractmethod
    def number(self, value: float) -> V:
        """Return a constant."""

    @abstractmethod
    def applied(self, node: Call | Previous, arguments: Sequence[V]) -> V:
        """Return the result of an operation; the arguments of `prev` are the remembered value and the start."""

    @abstractmethod
    def finite(self, value: V) -> V:
        """Return the value with NaN as 0 and infinities as +-1e6, see `policygen.quantities.compiled.finite`."""

    def value(self, node: Node, values: Mapping[str, V]) -> V:
        """Return the value of an expression over named values."""
        match node:
            case Number(number):
                return self.number(number)
            case Name(name):
                return values[name]
            case Previous(name, start):
                return self.applied(node, (values[slot_of(name)], self.value(start, values)))
            case Call(_, arguments):
                return self.applied(node, [self.value(argument, values) for argument in arguments])
        raise AssertionError(node)

    def assigned(self, program: Program, values: Mapping[str, V]) -> dict[str, V]:
        """Return `values`, observed and remembered, with those of all `Program.assignments` added."""
        known = dict(values)
        for name, node in program.assignments:
            known[name] = self.finite(self.value(node, known))
        return known


class Points(Arithmetic[Array]):
    """Numpy's arithmetic on columns of numbers, in double or single precision."""

    def __init__(self, dtype: type[np.floating[Any]] = np.float64) -> None:
        self.dtype = dtype

    def number(self, value: float) -> Array:
        """Return the constant as an array of shape ()."""
        return np.asarray(value, self.dtype)

    def applied(self, node: Call | Previous, arguments: Sequence[Array]) -> Array:
        """Return the result for each row, shape (n,)."""
        if isinstance(node, Previous):
            before, start = arguments
            return np.where(np.isnan(before), start, before)
        return np.asarray(OPERATIONS[node.function].batch(*arguments), self.dtype)

    def finite(self, value: Array) -> Array:
        """Return finite values, of the same shape."""
        return finite(value)

    def read(self, program: Program, rows: Array, memory: Sequence[Array] = ()) -> dict[str, Array]:
        """Return all values of one step by name, for observations of shape (n, d).

        Args:
            memory: columns of shape (n,), as `remembered` returns them; none at the first step.
        """
        values = {name: rows[:, i].astype(self.dtype) for i, name in program.observed}
        unknown = np.full(len(rows), np.nan, self.dtype)
        slots = map(slot_of, program.policy.remembers)
        values |= {slot: memory[k] if memory else unknown for k, slot in enumerate(slots)}
        with np.errstate(all="ignore"):
            return self.assigned(program, values)

    def decided(self, program: Program, values: Mapping[str, Array], count: int) -> Array:
        """Return the actions for `count` rows of values, one for each."""
        policy = program.policy
        if isinstance(policy, TablePolicy):
            return policy.grid.look_up(
                [np.broadcast_to(values[name], count) for name in policy.grid.names], policy.actions
            )
        outputs = [np.broadcast_to(values[f"output {name}"], count) for name, _ in policy.equations]
        return policy.chosen(np.stack(outputs, axis=1))

    def remembered(self, program: Program, values: Mapping[str, Array], actions: Array) -> list[Array]:
        """Return the memory after a step with these values and actions: columns of shape (n,)."""
        kept = [
            values[one.name] if one.actuator is None else part_of_decision(program.policy.task, one.name)(None, actions)
            for one in program.remembered_values
        ]
        return [np.broadcast_to(column, len(actions)).astype(self.dtype) for column in kept]
