"""Linear policies: one equation per output, linear in named features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.policies.features import Columns, Lets
from policygen.policies.policy import Policy, let_lines
from policygen.quantities.program import Lowering
from policygen.quantities.spelling import column_function
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Name, Node, Number, linear_terms
from policygen.tasks.records import checked
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task, decision_names, output_names, output_slices


@dataclass(frozen=True, repr=False)
class LinearPolicy(Policy):
    """One equation per output, linear in named features: `torque = -10*angle - 2*spin + 0.5`.

    A choice takes the first label with the highest score; a number is clipped to the action space. Equations are
    computed as they are written, sums from left to right; `terms`, `weights` and `bias` describe them as a matrix.

    Raises:
        PolicyError: the equations are not exactly one per output, in order.
    """

    equations: tuple[tuple[str, Node], ...]

    kind: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        expected = output_names(self.task)
        if tuple(name for name, _ in self.equations) != expected:
            raise PolicyError(f"a linear policy needs one equation each for {', '.join(expected)}")

    @cached_property
    def terms(self) -> tuple[Node, ...]:
        """The expressions that the outputs are linear in, in order of first use."""
        every = (term for _, node in self.equations for term in linear_terms(node) if term is not None)
        return tuple(dict.fromkeys(every))

    @cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """Coefficients of the terms, shape (terms, outputs)."""
        outputs = [linear_terms(node) for _, node in self.equations]
        rows = [[terms.get(term, 0.0) for terms in outputs] for term in self.terms]
        return np.array(rows).reshape(len(self.terms), len(outputs))

    @cached_property
    def bias(self) -> npt.NDArray[np.float64]:
        """Constant of each output, shape (outputs,)."""
        return np.array([linear_terms(node).get(None, 0.0) for _, node in self.equations])

    def formulas(self) -> list[tuple[str, Node]]:
        """Return the equations, as (output, expression)."""
        return list(self.equations)

    def plain_weights(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the weights of the terms that are one of these quantities, shape (names, outputs); others are 0."""
        weights = np.zeros((len(names), len(self.equations)))
        for term, row in zip(self.terms, self.weights, strict=True):
            if isinstance(term, Name) and term.name in names:
                weights[names.index(term.name)] = row
        return weights

    def decided(self, lowering: Lowering) -> list[int]:
        """Add the steps of the decision; return one for each actuator."""
        return decide(self.task, self.equations, lowering)

    def outputs(self, columns: Columns) -> npt.NDArray[np.float64]:
        """Return scores and unclipped numbers for n observations given as d columns: finite, shape (n, outputs)."""
        lowering = self.reader.lowering()
        program = lowering.program([lowering.output(name, node) for name, node in self.equations])
        with np.errstate(all="ignore"):
            outputs = column_function(program)([np.ascontiguousarray(column, np.float64) for column in columns])
        return np.stack([np.broadcast_to(output, len(columns[0])) for output in outputs], axis=1)

    def _to_text(self, *, whole: bool) -> str:
        lets = let_lines(self.reader.needed if whole else self.lets)
        return "\n".join(lets + [f"{name} = {to_text(node)}" for name, node in self.equations])

    def _to_record(self) -> dict[str, Any]:
        return {"equations": {name: to_text(node) for name, node in self.equations}}

    @classmethod
    def _from_record(cls, record: Any, task: Task, lets: Lets, names: Sequence[str]) -> LinearPolicy:
        read = checked(_LinearRecord, record, "damaged policy")
        decided, texts = decision_names(task), task.text_names
        equations = ((name, parse_expression(text, names, decided, texts)) for name, text in read.equations.items())
        return cls(task, lets, tuple(equations))


def relative_to_range(task: Task, matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Convert weights and, in the last row, biases of outputs: those of a number become relative to its range.

    Relative to a range from `low` to `high`, an output of -1 is `low`, and one of 1 is `high`.
    """
    relative = matrix.copy()
    for actuator, part in zip(task.actuators, output_slices(task), strict=True):
        if not actuator.is_choice:
            middle, half = middle_and_half(actuator)
            relative[-1, part] -= middle
            relative[:, part] /= half
    return relative


def middle_and_half(actuator: Actuator) -> tuple[float, float]:
    """Return the middle of the range of an actuator that is a number, and half the length of the range."""
    half = (actuator.high - actuator.low) / 2
    return (actuator.low + actuator.high) / 2, half if half > 0 else 1.0


def constant_policy(task: Task, action: Sequence[float]) -> LinearPolicy:
    """Return the policy of one action: the index of a label or a number for each actuator."""
    numbers: list[float] = []
    for actuator, value in zip(task.actuators, action, strict=True):
        numbers += [float(i == value) for i in range(len(actuator.labels))] if actuator.is_choice else [value]
    return LinearPolicy(task, (), tuple(zip(output_names(task), map(Number, numbers), strict=True)))


@dataclass(frozen=True, slots=True)
class _LinearRecord:
    equations: dict[str, str]


def decide(task: Task, equations: Sequence[tuple[str, Node]], lowering: Lowering) -> list[int]:
    """Add the steps of equations and of the decision by them; return the decision of each actuator."""
    outputs = [lowering.output(name, node) for name, node in equations]
    decided = []
    for actuator, own, limits in zip(task.actuators, output_slices(task), task.limits.bounds, strict=True):
        if actuator.is_choice:
            decided.append(lowering.add("highest", *outputs[own]))
        else:
            decided.append(lowering.add("limited", outputs[own.start], data=limits))
    return decided
