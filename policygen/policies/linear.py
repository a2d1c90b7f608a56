"""Linear policies: one equation per output, linear in named features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.policies.features import Columns, Lets
from policygen.policies.policy import Actions, Policy, let_lines
from policygen.quantities.compiled import (
    BatchFunction,
    ScalarFunction,
    compile_batch,
    compile_scalar,
    finite,
    finite_scalar,
)
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Name, Node, linear_terms
from policygen.tasks.actions import each_row
from policygen.tasks.checked import checked
from policygen.tasks.task import Task, decision_names, output_names, output_slices

# The rounding of a matrix product depends on its number of rows. Batches of fewer rows are therefore summed term by
# term, so that an episode does not depend on the others in its batch.
MATRIX_PRODUCT_FROM = 4_096
# Batches of more rows are split into blocks that stay in the processor's cache from the product to the clipping.
ROWS_AT_A_TIME = 65_536


@dataclass(frozen=True, repr=False)
class LinearPolicy(Policy):
    """One equation per output, linear in named features: `torque = -10*angle - 2*spin + 0.5`.

    A choice takes the first label with the highest score; a number is clipped to the action space. The map from `terms`
    to outputs is a matrix: each non-linear part of an equation is a term of its own.

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

    @cached_property
    def _raw_weights(self) -> npt.NDArray[np.float64] | None:
        """Weights of the observations, shape (d, outputs); None if a term is not an observation."""
        names = self.task.observation_names
        is_plain = all(isinstance(term, Name) and term.name in names for term in self.terms)
        return self.plain_weights(names) if is_plain else None

    def plain_weights(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the weights of the terms that are one of these quantities, shape (names, outputs); others are 0."""
        weights = np.zeros((len(names), len(self.equations)))
        for term, row in zip(self.terms, self.weights, strict=True):
            if isinstance(term, Name) and term.name in names:
                weights[names.index(term.name)] = row
        return weights

    @cached_property
    def _batch_terms(self) -> tuple[BatchFunction, ...]:
        return tuple(compile_batch(term, self.reader.names) for term in self.terms)

    @cached_property
    def _scalar_terms(self) -> tuple[ScalarFunction, ...]:
        return tuple(compile_scalar(term, self.reader.names) for term in self.terms)

    @cached_property
    def _scalar_weights(self) -> tuple[tuple[float, tuple[tuple[int, float], ...]], ...]:
        """For each output its constant, and the index and coefficient of each of its terms."""
        columns = zip(self.bias.tolist(), self.weights.T.tolist(), strict=True)
        return tuple((bias, tuple((i, w) for i, w in enumerate(column) if w != 0.0)) for bias, column in columns)

    @cached_property
    def _spans(self) -> tuple[tuple[slice, bool], ...]:
        """For each actuator the slice of its outputs, and whether it is a choice."""
        is_choice = (actuator.is_choice for actuator in self.task.actuators)
        return tuple(zip(output_slices(self.task), is_choice, strict=True))

    def outputs(self, columns: Columns) -> npt.NDArray[Any]:
        """Return scores and unclipped numbers for n observations given as d columns: finite, shape (n, outputs)."""
        if self._raw_weights is not None and len(columns[0]) >= MATRIX_PRODUCT_FROM:
            rows = columns.T if isinstance(columns, np.ndarray) else np.stack(columns, axis=1)
            dtype = rows.dtype if np.issubdtype(rows.dtype, np.floating) else np.float64
            with np.errstate(all="ignore"):
                raw: npt.NDArray[Any] = rows @ self._raw_weights.astype(dtype)
                if self.bias.any():
                    raw += each_row(self.bias, raw)
                # In a matrix product NaN or infinity affects all outputs of its row, also those that do not read it.
                if not np.isfinite(raw).all():
                    affected = ~np.isfinite(raw).all(axis=1)
                    raw[affected] = finite(self._outputs_of_terms(self.reader.columns(list(rows[affected].T))))
            return raw
        return finite(self._outputs_of_terms(self.reader.columns(columns)))

    def term_columns(self, columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """Return the `terms` for n rows of quantities, given as the columns of `reader`: shape (terms, n)."""
        quantities = [np.asarray(column, np.float64) for column in columns]
        features = np.empty((len(self.terms), len(columns[0])))
        with np.errstate(all="ignore"):
            for row, function in zip(features, self._batch_terms, strict=True):
                row[:] = finite(np.asarray(function(quantities)))
        return features

    def _outputs_of_terms(self, columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        n, terms = len(columns[0]), self.term_columns(columns)
        with np.errstate(all="ignore"):
            if n >= MATRIX_PRODUCT_FROM:
                return np.asarray(terms.T @ self.weights + self.bias)
            return weighted_sum(terms, self.weights, np.tile(self.bias, (n, 1)))

    def act_columns(self, columns: Columns) -> Actions:
        """Return the actions for n observations given as d columns of shape (n,); this is the fastest form of `act`."""
        n = len(columns[0])
        if n <= ROWS_AT_A_TIME:
            return self.chosen(self.outputs(columns))
        blocks = []
        for rows in (slice(start, start + ROWS_AT_A_TIME) for start in range(0, n, ROWS_AT_A_TIME)):
            block = columns[:, rows] if isinstance(columns, np.ndarray) else [column[rows] for column in columns]
            blocks.append(self.act_columns(block))
        return np.concatenate(blocks)

    def act_on_quantities(self, quantities: Sequence[npt.NDArray[Any]]) -> Actions:
        """Return the actions for the result of `reader.columns`."""
        return self.chosen(finite(self._outputs_of_terms(quantities)))

    def chosen(self, outputs: npt.NDArray[Any]) -> Actions:
        """Convert finite scores and unclipped numbers, shape (n, outputs), to actions; may overwrite `outputs`."""
        if self.task.action_space == "box":
            return self.task.limits.to_actions(outputs)
        decided = [
            np.argmax(outputs[:, own], axis=1) if is_choice else outputs[:, own.start] for own, is_choice in self._spans
        ]
        if self.task.action_space == "discrete":
            return decided[0]
        rows = np.stack(decided, axis=1)
        return self.task.limits.to_actions(rows) if self.task.has_numbers else rows

    def act_one(self, observation: Sequence[float] | npt.NDArray[Any]) -> Any:
        """Return the action for a flattened observation of length d: an int for Discrete, else an array (m,)."""
        try:
            return self._act_on(self.reader.row(observation))
        except (TypeError, ValueError):  # not numbers
            raise self.reader.refusal(observation) from None

    def _act_on(self, quantities: Sequence[float]) -> Any:
        terms = [finite_scalar(function(quantities)) for function in self._scalar_terms]
        values = [
            finite_scalar(sum([weight * terms[i] for i, weight in weights]) + bias)
            for bias, weights in self._scalar_weights
        ]
        if self.task.action_space == "box":
            return self.task.limits.to_action(values)
        decided: list[float] = []
        for span, is_choice in self._spans:
            own = values[span]
            decided.append(own.index(max(own)) if is_choice else own[0])
        if self.task.action_space == "discrete":
            return decided[0]
        return self.task.limits.to_action(decided) if self.task.has_numbers else np.array(decided, np.int64)

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


@dataclass(frozen=True, slots=True)
class _LinearRecord:
    equations: dict[str, str]


def weighted_sum(
    terms: Iterable[npt.NDArray[np.float64]], weights: npt.NDArray[np.float64], bias: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return `bias`, shape (n, outputs), plus each term, shape (n,), times its weights, added in this order."""
    result = bias.copy()
    for term, weight in zip(terms, weights, strict=True):
        result += term[:, None] * weight
    return result
