"""The steps of a policy, in order, for export to other languages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.policies.features import Lets
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.tree import Call, Name, Node, Number, names_in
from policygen.tasks.task import Task, outputs_by_actuator


@dataclass(frozen=True, slots=True)
class RememberedValue:
    """A value remembered after a step: the quantity `name`, or a part of the action."""

    name: str
    actuator: int | None = None  # the index of this part
    label: int | None = None  # if given, the value is 1 for an action equal to it, and 0 for any other


@dataclass(frozen=True)
class Program:
    """A policy as steps: read observations, compute definitions, decide, remember."""

    policy: LinearPolicy | TablePolicy

    @property
    def definitions(self) -> Lets:
        """The features in use, including the task's, each after those that it reads."""
        return self.policy.reader.needed

    @cached_property
    def terms(self) -> Lets:
        """The terms of equations, named `term 0`, `term 1`, ...; a table has none."""
        terms = () if isinstance(self.policy, TablePolicy) else self.policy.terms
        return tuple((f"term {i}", node) for i, node in enumerate(terms))

    @cached_property
    def outputs(self) -> Lets:
        """The outputs of equations, named `output NAME`, each a weighted sum of terms; a table has none."""
        if isinstance(self.policy, TablePolicy):
            return ()
        terms, columns = [Name(name) for name, _ in self.terms], self.policy.weights.T.tolist()
        return tuple(
            (f"output {name}", weighted_sum(zip(terms, weights, strict=True), bias))
            for (name, _), weights, bias in zip(self.policy.equations, columns, self.policy.bias.tolist(), strict=True)
        )

    @cached_property
    def observed(self) -> tuple[tuple[int, str], ...]:
        """Index and name of each observation that the policy reads."""
        read = self.policy.names_read().union(*(names_in(node) for _, node in self.definitions), self.policy.remembers)
        names = self.policy.task.observation_names
        return tuple((i, name) for i, name in enumerate(names) if name in read and names.index(name) == i)

    @cached_property
    def remembered_values(self) -> tuple[RememberedValue, ...]:
        """The remembered values, in the order of the memory."""
        task, names = self.policy.task, self.policy.reader.names
        return tuple(RememberedValue(n) if n in names else _part_of_action(task, n) for n in self.policy.remembers)


def _part_of_action(task: Task, name: str) -> RememberedValue:
    """Return the part of an action that `name`, one of `decision_names`, stands for."""
    for i, (actuator, outputs) in enumerate(zip(task.actuators, outputs_by_actuator(task), strict=True)):
        if actuator.name == name:
            return RememberedValue(name, i)
        if name in outputs:
            return RememberedValue(name, i, outputs.index(name))
    raise AssertionError(name)


def program_of(policy: Policy) -> Program:
    """Return the steps of a policy.

    Raises:
        PolicyError: this kind of policy cannot be exported.
    """
    if not isinstance(policy, LinearPolicy | TablePolicy):
        raise PolicyError(f"a policy of kind `{policy.kind}` cannot be exported; tables and equations can")
    if policy.task.texts:
        raise PolicyError("a policy that reads texts cannot be exported; use `policy.controller()` in Python")
    return Program(policy)


def weighted_sum(terms: Iterable[tuple[Node, float]], constant: float) -> Node:
    """Return the sum of terms times their weights and a constant as an expression, without zeros."""
    total: Node | None = None
    for term, weight in terms:
        size = term if abs(weight) == 1 else Call("*", (Number(abs(weight)), term))
        if total is not None and weight:
            total = Call("+" if weight > 0 else "-", (total, size))
        elif weight:
            total = size if weight > 0 else Call("neg", (term,)) if size is term else Call("*", (Number(weight), term))
    if total is None:
        return Number(constant)
    return total if constant == 0 else Call("+" if constant > 0 else "-", (total, Number(abs(constant))))


@dataclass(frozen=True)
class TableData:
    """The compact data of a table: an action code for each cell, and the actions."""

    codes: npt.NDArray[np.int64]  # of each cell's action, shape (cells,); for one choice the index of its label
    actions: npt.NDArray[Any] | None  # shape (kinds, actuators), int64 or float32; None for one choice
    bits: int  # size of a code: 1, 2, 4, 8, 16 or 32

    @property
    def packed(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The codes of all cells, several to a byte if they fit, the first in the lowest bits."""
        if self.bits >= 8:
            return self.codes.astype(f"<u{self.bits // 8}")
        return np.packbits(self.codes[:, None] >> np.arange(self.bits) & 1, bitorder="little")


def table_data(policy: TablePolicy) -> TableData:
    """Return the data of a table."""
    actions = None
    if policy.task.action_space == "discrete":
        codes, kinds = policy.actions.astype(np.int64), len(policy.task.actuators[0].labels)
    else:
        actions, codes = np.unique(policy.actions, axis=0, return_inverse=True)
        codes, kinds = codes.reshape(-1), len(actions)
    return TableData(codes, actions, next(bits for bits in (1, 2, 4, 8, 16, 32) if kinds <= 2**bits))
