"""Linear policies: one equation per output. `Population` computes the decisions of many that differ in constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.policies.policy import Policy, let_lines
from policygen.quantities.codegen import column_function
from policygen.quantities.program import Lowering
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Call, Lets, Name, Node, Number, negated
from policygen.tasks.records import checked
from policygen.tasks.task import Task


@dataclass(frozen=True, slots=True)
class _LinearRecord:
    equations: dict[str, str]


@dataclass(frozen=True, repr=False)
class LinearPolicy(Policy):
    """One equation per output, such as `torque = -10*angle - 2*spin + 0.5`; it need not be linear.

    A choice is the first label with the highest score; a number is clipped to the action space. Equations are evaluated
    as written, sums from left to right.

    Raises:
        PolicyError: the equations are not exactly one per output, in order.
    """

    equations: tuple[tuple[str, Node], ...]

    kind: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        expected = self.task.output_names
        if tuple(name for name, _ in self.equations) != expected:
            raise PolicyError(f"a linear policy needs one equation each for {', '.join(expected)}")

    def formulas(self) -> list[tuple[str, Node]]:
        """Return the equations, as (output, expression)."""
        return list(self.equations)

    def decision_steps(self, lowering: Lowering) -> list[int]:
        """Add the steps of the decision; return one for each actuator."""
        outputs = [lowering.output(name, node) for name, node in self.equations]
        decided = []
        own = zip(self.task.actuators, self.task.output_slices, self.task.limits.bounds, strict=True)
        for actuator, part, limits in own:
            if actuator.is_choice:
                decided.append(lowering.add("highest", *outputs[part]))
            else:
                decided.append(lowering.add("limited", outputs[part.start], data=limits))
        return decided

    def _to_text(self, *, whole: bool) -> str:
        lets = let_lines(self.reader.needed if whole else self.lets)
        return "\n".join(lets + [f"{name} = {to_text(node)}" for name, node in self.equations])

    def _to_record(self) -> dict[str, Any]:
        return {"equations": {name: to_text(node) for name, node in self.equations}}

    @classmethod
    def _from_record(cls, record: Any, task: Task, lets: Lets, names: Sequence[str]) -> LinearPolicy:
        read = checked(_LinearRecord, record, "damaged policy")
        decided, texts = task.decision_names, task.text_names
        equations = ((name, parse_expression(text, names, decided, texts)) for name, text in read.equations.items())
        return cls(task, lets, tuple(equations))


def constant_policy(task: Task, action: Sequence[float]) -> LinearPolicy:
    """Return the policy that always takes one action: for each actuator the index of a label, or a number."""
    numbers: list[float] = []
    for actuator, value in zip(task.actuators, action, strict=True):
        numbers += [float(i == value) for i in range(len(actuator.labels))] if actuator.is_choice else [value]
    return LinearPolicy(task, (), tuple(zip(task.output_names, map(Number, numbers), strict=True)))


class DifferentStructure(Exception):
    """The policies differ in more than constants."""


class Population:
    """A decider of episodes for many linear policies at once, as a numerical search needs.

    For few rows the fixed cost of numpy's calls dominates. Here one call serves all policies: the constants in which
    they differ are inputs of the program, like observations. Every row gets the action of its own policy, identical to
    the last bit.

    Args:
        policies: policies that differ only in constants.
        each: number of episodes per policy. The first `each` episodes are those of the first policy, and so on.

    Raises:
        DifferentStructure: the policies differ in more than constants, have memory, or are not all linear.
    """

    def __init__(self, policies: Sequence[Any], each: int) -> None:
        # A policy with memory decides row by row.
        if not all(type(policy) is LinearPolicy and policy.begin(1) is policy for policy in policies):
            raise DifferentStructure
        self._first: LinearPolicy = policies[0]
        self._each = each
        self._rows: npt.NDArray[np.integer[Any]] | None = None
        if len({tuple(name for name, _ in policy.reader.needed) for policy in policies}) > 1:
            raise DifferentStructure
        values: list[tuple[float, ...]] = []
        features = list(_shared([policy.reader.needed for policy in policies], values))
        shared = LinearPolicy(self._first.task, (), tuple(_shared([policy.equations for policy in policies], values)))
        lowering = Lowering(shared.task.columns, [f"#{i}" for i in range(len(values))])
        for name, node in features:
            lowering.define(name, node)
        self._function = column_function(lowering.program(shared.decision_steps(lowering)))
        self._constants = np.array(values).reshape(len(values), len(policies))

    def decide(
        self, observations: Sequence[npt.NDArray[Any]] | npt.NDArray[Any], rows: npt.NDArray[np.integer[Any]], /
    ) -> npt.NDArray[Any]:
        """Return the actions in the episodes `rows`, shape (k,), for their observations, shape (k, d)."""
        if rows is not self._rows:  # each row's constants are kept until the rows change
            self._rows, self._own = rows, self._constants[:, np.asarray(rows) // self._each]
        with np.errstate(all="ignore"):
            decided = self._function([*np.asarray(observations).T.astype(np.float64, order="C"), *self._own])
        return self._first.as_actions(decided, len(observations))


def _shared(same: Sequence[Sequence[tuple[str, Node]]], values: list[tuple[float, ...]]) -> Iterator[tuple[str, Node]]:
    """Yield each name with one expression for all policies; add the numbers that differ to `values`."""
    for named in zip(*same, strict=True):
        yield named[0][0], _shared_node([_with_sums(node) for _, node in named], values)


def _with_sums(node: Node) -> Node:
    """Rewrite `a - 2*b` as `a + -2*b`, which has the same value, because tuning may change a constant's sign."""
    if not isinstance(node, Call):
        return node
    arguments = tuple(map(_with_sums, node.arguments))
    if node.function == "-" and (flipped := negated(arguments[1])) is not None:
        return Call("+", (arguments[0], flipped))
    return Call(node.function, arguments)


def _shared_node(nodes: Sequence[Node], values: list[tuple[float, ...]]) -> Node:
    """Return one expression for all nodes, with names `#i` for the numbers that differ; add these to `values`."""
    first = nodes[0]
    if all(node == first for node in nodes):
        return first
    if all(isinstance(node, Number) for node in nodes):
        values.append(tuple(node.value for node in nodes if isinstance(node, Number)))
        return Name(f"#{len(values) - 1}")
    calls = [node for node in nodes if isinstance(node, Call)]
    if len(calls) < len(nodes) or len({(call.function, len(call.arguments)) for call in calls}) > 1:
        raise DifferentStructure
    arguments = zip(*(call.arguments for call in calls), strict=True)
    return Call(calls[0].function, tuple(_shared_node(argument, values) for argument in arguments))
