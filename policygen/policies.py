"""Policies that need no model: a table over a grid, or a linear map over named features.

Both read the flattened observation, may derive features with `let`, act on one observation or a million, print
themselves in the policy language, and save themselves to a file that loads without the task file.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, ValidationError

from policygen.errors import ExpressionError, PolicyError, UsageError
from policygen.expressions import (
    BatchFunction,
    Call,
    Name,
    Node,
    ScalarFunction,
    compile_batch,
    compile_scalar,
    finite,
    finite_scalar,
    format_number,
    linear_terms,
    names_in,
    parse_expression,
    to_text,
    unknown_name,
)
from policygen.grid import Grid
from policygen.notation import action_text, bins_text
from policygen.rules import Rule, compressed, dense_table
from policygen.storage import write_atomically
from policygen.task_records import grid_from_record, grid_to_record, task_from_record, task_to_record
from policygen.tasks import Task, explain, is_name, output_names

Actions = npt.NDArray[Any]
Columns = Sequence[npt.NDArray[Any]] | npt.NDArray[Any]
Lets = tuple[tuple[str, Node], ...]

FORMAT = "policygen-policy/1"

# A matrix product rounds differently with the number of its rows. Batches below this size are added up term by term, so
# that an episode does not depend on which others are played beside it.
MATRIX_PRODUCT_FROM = 4_096
# Larger batches are worked on in parts whose numbers stay in the processor's cache from the product to the clipping.
ROWS_AT_A_TIME = 65_536


@dataclass(frozen=True)
class Policy(ABC):
    """What every policy kind can do.

    Attributes:
        task: the environment's interface; names in the policy are its names.
        lets: features the policy defines itself, after those of the task, each over quantities before it.
    """

    task: Task
    lets: Lets

    kind: ClassVar[str]

    @abstractmethod
    def act_columns(self, columns: Columns) -> Actions:
        """`act` for observations given as d separate columns of shape (n,): the fastest form."""

    @abstractmethod
    def act_one(self, observation: Sequence[float] | npt.NDArray[Any]) -> Any:
        """The action for one flattened observation of length d: an int for Discrete, else an array of shape (m,)."""

    @abstractmethod
    def to_text(self) -> str:
        """The policy in the policy language."""

    @abstractmethod
    def _to_record(self) -> dict[str, Any]:
        """What a saved file holds beside the task."""

    def act(self, observations: npt.ArrayLike) -> Actions:
        """Actions for a batch.

        Args:
            observations: flattened observations, shape (n, d), or (d,) for a single one.

        Returns:
            Discrete: int64 of shape (n,). MultiDiscrete: int64 (n, m). Box: float32 (n, m), inside the action space.
            Without the leading n for a single observation.

        Raises:
            PolicyError: the observations do not have d numbers each.
        """
        rows = np.asarray(observations)
        expected = len(self.task.observations)
        if rows.ndim == 1 and len(rows) == expected:
            return np.asarray(self.act_one(rows))
        if rows.ndim != 2 or rows.shape[1] != expected:
            raise PolicyError(f"expected observations of shape (n, {expected}), got {rows.shape}")
        return self.act_columns(rows.T)

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled functions are cached on the object and cannot be pickled; they are made again where they are needed.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def features(self) -> Lets:
        """The task's features and the policy's own, in order of definition."""
        return self.task.parsed_features + self.lets

    @cached_property
    def quantity_names(self) -> tuple[str, ...]:
        """Everything the policy may read, observations first."""
        return self.task.observation_names + tuple(name for name, _ in self.features)

    @cached_property
    def _needed(self) -> frozenset[str]:
        """Names of the quantities that are computed at all."""
        needed = set(self._read())
        for name, node in reversed(self.features):
            if name in needed:
                needed |= names_in(node)
        return frozenset(needed)

    @abstractmethod
    def _read(self) -> frozenset[str]:
        """Names of the quantities the decision reads directly."""

    @cached_property
    def _batch_features(self) -> tuple[tuple[int, BatchFunction | None], ...]:
        d = len(self.task.observations)
        return tuple(
            (d + i, compile_batch(node, self.quantity_names) if name in self._needed else None)
            for i, (name, node) in enumerate(self.features)
        )

    @cached_property
    def _scalar_features(self) -> tuple[ScalarFunction | None, ...]:
        return tuple(
            compile_scalar(node, self.quantity_names) if name in self._needed else None for name, node in self.features
        )

    def quantities(self, columns: Columns) -> list[npt.NDArray[Any]]:
        """Columns of all quantities that the policy needs; features it does not need are zeros of shape (1,)."""
        if not self.features:
            return list(columns)
        wide = [np.asarray(column, np.float64) for column in columns]
        n = len(columns[0])
        with np.errstate(all="ignore"):
            for _, function in self._batch_features:
                if function is None:
                    wide.append(np.zeros(1))
                else:
                    wide.append(np.ascontiguousarray(np.broadcast_to(finite(np.asarray(function(wide))), (n,))))
        # Observations keep their own dtype: a bin must not depend on whether another quantity is a feature.
        return [*columns, *wide[len(columns) :]]

    def quantities_one(self, observation: Sequence[float] | npt.NDArray[Any]) -> list[float]:
        """`quantities` for one observation, as plain floats."""
        row: list[float] = observation.tolist() if isinstance(observation, np.ndarray) else list(observation)
        for function in self._scalar_features:
            row.append(0.0 if function is None else finite_scalar(function(row)))
        return row

    def undefined(self, observations: npt.NDArray[Any]) -> tuple[tuple[str, float], ...]:
        """Features and outputs whose value was no finite number, and in which share of the observations (n, d).

        Such a value counts as 0 if it is not a number, and as -1,000,000 or 1,000,000 if it is infinite.
        """
        formulas = [(name, node) for name, node in self.features if name in self._needed] + self._equations()
        if not formulas or not len(observations):
            return ()
        columns = [np.asarray(column, np.float64) for column in self.quantities(observations.T)]
        found = []
        with np.errstate(all="ignore"):
            for name, node in formulas:
                share = float(np.mean(~np.isfinite(np.asarray(compile_batch(node, self.quantity_names)(columns)))))
                if share > 0:
                    found.append((name, share))
        return tuple(found)

    def _equations(self) -> list[tuple[str, Node]]:
        """What the decision computes beside the features."""
        return []

    def save(self, path: str | Path) -> None:
        """Write the policy, its task's interface and its text to a JSON file, atomically.

        Raises:
            LogbookError: the file cannot be written.
        """
        write_atomically(Path(path), json.dumps(self.to_record(), indent=1))

    def to_record(self) -> dict[str, Any]:
        """The saved form: plain JSON values."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "task": task_to_record(self.task),
            "lets": {name: to_text(node) for name, node in self.lets},
            **self._to_record(),
            "text": self.to_text().splitlines(),
        }

    @staticmethod
    def load(path: str | Path) -> Policy:
        """Read a policy saved with `save`.

        Raises:
            PolicyError: there is no such file, or it is not a policy.
        """
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise PolicyError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, RecursionError):
            raise PolicyError(f"{path} is not a saved policy (it is not JSON)") from None
        try:
            return from_record(record)
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}") from None


def _let_lines(lets: Lets) -> list[str]:
    return [f"let {name} = {to_text(node)}" for name, node in lets]


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TablePolicy(Policy):
    """A table over a grid; of the rows that cover a cell the first one counts.

    Raises:
        PolicyError: a cell has no row, a row does not fit the grid or the action space, or the grid bins a quantity
            that there is not.
    """

    grid: Grid
    rules: tuple[Rule, ...]

    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        unknown = [name for name in self.grid.names if name not in self.quantity_names]
        if unknown:
            raise PolicyError(unknown_name(unknown[0], self.quantity_names))
        for number, rule in enumerate(self.rules, start=1):
            self._check(number, rule)
        if not self.covered.all():
            missing = self.grid.bins_of(int(np.argmin(self.covered)))
            raise PolicyError(
                f"{int((~self.covered).sum()):,} of {self.grid.size:,} cells have no row, "
                f"the first is {', '.join(f'{n} {b}' for n, b in zip(self.grid.names, missing, strict=True))}"
            )

    def _check(self, number: int, rule: Rule) -> None:
        if len(rule.bins) != len(self.grid.shape) or len(rule.action) != len(self.task.actuators):
            raise PolicyError(f"row {number} does not have one entry per quantity and actuator")
        for name, bins, size in zip(self.grid.names, rule.bins, self.grid.shape, strict=True):
            whole = all(type(index) is int for index in bins)
            if not (whole and bins and bins[0] >= 0 and bins[-1] < size and list(bins) == sorted(set(bins))):
                raise PolicyError(f"row {number}: the bins of {name} are 0 to {size - 1} in increasing order")
        for actuator, value in zip(self.task.actuators, rule.action, strict=True):
            if actuator.is_choice and value not in range(len(actuator.labels)):
                raise PolicyError(f"row {number}: {actuator.name} is 0 to {len(actuator.labels) - 1}, here {value:g}")
            if not actuator.is_choice and not actuator.low <= value <= actuator.high:
                raise PolicyError(
                    f"row {number}: {actuator.name} lies in {actuator.low:g} to {actuator.high:g}, here {value:g}"
                )

    @classmethod
    def from_actions(cls, task: Task, actions: npt.ArrayLike, grid: Grid | None = None, lets: Lets = ()) -> TablePolicy:
        """The table with `actions[cell]` in each cell, in as few rows as a greedy decision tree finds.

        Args:
            actions: shape (cells,) or (cells, actuators).
            grid: the task's own unless given.
        """
        grid = grid or task.grid
        if grid is None:
            raise PolicyError(f"task {task.name} has no grid; give one")
        dense = np.asarray(actions, dtype=np.float64).reshape(grid.size, -1)
        return cls(task, lets, grid, tuple(compressed(dense, grid.shape)))

    @cached_property
    def _dense(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        return dense_table(self.rules, self.grid.shape, len(self.task.actuators))

    @property
    def covered(self) -> npt.NDArray[np.bool_]:
        """Which cells have a row, shape (cells,)."""
        return self._dense[1]

    @cached_property
    def actions(self) -> Actions:
        """The action of every cell: shape (cells,) for Discrete, else (cells, actuators)."""
        actions = _as_actions(self.task, self._dense[0])
        actions.setflags(write=False)  # `act_one` hands out its rows
        return actions

    @cached_property
    def _action_list(self) -> list[Any]:
        return self.actions.tolist() if self.task.action_space == "discrete" else list(self.actions)

    @cached_property
    def _positions(self) -> tuple[int, ...]:
        return tuple(self.quantity_names.index(name) for name in self.grid.names)

    def _read(self) -> frozenset[str]:
        return frozenset(self.grid.names)

    def cells(self, observations: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Cell indices of flattened observations of shape (n, d)."""
        quantities = self.quantities(observations.T)
        return self.grid.cells([quantities[i] for i in self._positions])

    def act_columns(self, columns: Columns) -> Actions:
        """`act` for observations given as d separate columns of shape (n,): the fastest form."""
        quantities = self.quantities(columns)
        return self.grid.look_up([quantities[i] for i in self._positions], self.actions)

    def act_one(self, observation: Sequence[float] | npt.NDArray[Any]) -> Any:
        """The action for one flattened observation of length d: an int for Discrete, else an array of shape (m,)."""
        return self._decide(observation.tolist() if isinstance(observation, np.ndarray) else observation)

    @cached_property
    def _decide(self) -> Callable[[Sequence[float]], Any]:
        """The action for one row of plain floats."""
        actions, where = self._action_list, self.grid.cell_function(self._positions)
        if not self.features:
            return lambda row: actions[where(row)]
        return lambda row: actions[where(self.quantities_one(row))]

    def to_text(self) -> str:
        """The policy in the policy language."""
        lines = _let_lines(self.lets)
        if self.grid != self.task.grid:
            for dimension in self.grid.dimensions:
                lines.append(f"bins {dimension.name}: {', '.join(map(format_number, dimension.edges))}")
        rows = [[*self.grid.names, *(actuator.name for actuator in self.task.actuators)]]
        for rule in self.rules:
            cells = [bins_text(bins, size) for bins, size in zip(rule.bins, self.grid.shape, strict=True)]
            cells += [action_text(a, v) for a, v in zip(self.task.actuators, rule.action, strict=True)]
            rows.append(cells)
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        rows.insert(1, ["-" * width for width in widths])
        lines += ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows]
        return "\n".join(lines)

    def _to_record(self) -> dict[str, Any]:
        return {
            "grid": grid_to_record(self.grid),
            "rules": [[*map(list, rule.bins), list(rule.action)] for rule in self.rules],
        }


def _as_actions(task: Task, numbers: npt.NDArray[np.float64]) -> Actions:
    """Numbers of shape (n, actuators) as actions of the environment's own shape and dtype."""
    if task.action_space == "box":
        low, high = (np.array([getattr(a, side) for a in task.actuators]) for side in ("low", "high"))
        return np.clip(numbers, low, high).astype(np.float32)
    whole = np.rint(numbers).astype(np.int64)
    return whole[:, 0] if task.action_space == "discrete" else whole


# --- linear policies -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearPolicy(Policy):
    """One equation per output, linear in named features: `torque = -10*angle - 2*spin + 0.5`.

    A choice takes the label with the highest score, the first of equals; a number is clipped to the action space.
    Non-linear terms of an equation are features of their own (`terms`), so the map from terms to outputs is a matrix.

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
        """The features that the outputs are linear in, in order of first use."""
        seen: dict[Node, None] = {}
        for _, node in self.equations:
            seen.update(dict.fromkeys(term for term in linear_terms(node) if term is not None))
        return tuple(seen)

    @cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """Coefficients, shape (terms, outputs)."""
        per_output = [linear_terms(node) for _, node in self.equations]
        return np.array([[terms.get(term, 0.0) for terms in per_output] for term in self.terms]).reshape(
            len(self.terms), len(self.equations)
        )

    @cached_property
    def bias(self) -> npt.NDArray[np.float64]:
        """Constants, shape (outputs,)."""
        return np.array([linear_terms(node).get(None, 0.0) for _, node in self.equations])

    def _read(self) -> frozenset[str]:
        return frozenset().union(*(names_in(node) for _, node in self.equations))

    def _equations(self) -> list[tuple[str, Node]]:
        return list(self.equations)

    @cached_property
    def _raw_weights(self) -> npt.NDArray[np.float64] | None:
        """Weights of shape (d, outputs) on the raw observations, or None where a term is a feature."""
        names = self.task.observation_names
        weights = np.zeros((len(names), len(self.equations)))
        for term, row in zip(self.terms, self.weights, strict=True):
            if not (isinstance(term, Name) and term.name in names):
                return None
            weights[names.index(term.name)] = row
        return weights

    @cached_property
    def _batch_terms(self) -> tuple[BatchFunction, ...]:
        return tuple(compile_batch(term, self.quantity_names) for term in self.terms)

    @cached_property
    def _scalar_terms(self) -> tuple[ScalarFunction, ...]:
        return tuple(compile_scalar(term, self.quantity_names) for term in self.terms)

    @cached_property
    def _scalar_weights(self) -> tuple[tuple[float, tuple[tuple[int, float], ...]], ...]:
        """Per output the constant, and index and coefficient of the terms it has."""
        columns = zip(self.bias.tolist(), self.weights.T.tolist(), strict=True)
        return tuple((bias, tuple((i, w) for i, w in enumerate(column) if w != 0.0)) for bias, column in columns)

    def outputs(self, columns: Columns) -> npt.NDArray[Any]:
        """Scores and unclipped numbers for n observations given as d columns: finite, shape (n, outputs)."""
        if self._raw_weights is not None and len(columns[0]) >= MATRIX_PRODUCT_FROM:
            rows = columns.T if isinstance(columns, np.ndarray) else np.stack(columns, axis=1)
            dtype = rows.dtype if np.issubdtype(rows.dtype, np.floating) else np.float64
            with np.errstate(all="ignore"):
                raw: npt.NDArray[Any] = rows @ self._raw_weights.astype(dtype)
                if self.bias.any():
                    raw += self._each_row(self.bias, raw)
                # A NaN or infinity spoils all outputs of its row, also those that do not read it.
                if not np.isfinite(raw).all():
                    strange = ~np.isfinite(raw).all(axis=1)
                    raw[strange] = finite(self._outputs_of_terms(list(rows[strange].T)))
            return raw
        return finite(self._outputs_of_terms(list(columns)))

    def _outputs_of_terms(self, columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        n = len(columns[0])
        quantities = [np.asarray(column, np.float64) for column in self.quantities(columns)]
        features = np.empty((len(self.terms), n))
        with np.errstate(all="ignore"):
            for row, function in zip(features, self._batch_terms, strict=True):
                row[:] = finite(np.asarray(function(quantities)))
            if n >= MATRIX_PRODUCT_FROM:
                large: npt.NDArray[np.float64] = features.T @ self.weights + self.bias
                return large
            result = np.tile(self.bias, (n, 1))
            for column, weights in zip(features, self.weights, strict=True):
                result += column[:, None] * weights
        return result

    def act_columns(self, columns: Columns) -> Actions:
        """`act` for observations given as d separate columns of shape (n,): the fastest form."""
        n = len(columns[0])
        if n <= ROWS_AT_A_TIME:
            return self._act_block(columns)
        whole = isinstance(columns, np.ndarray)
        actions = None
        for start in range(0, n, ROWS_AT_A_TIME):
            s = slice(start, start + ROWS_AT_A_TIME)
            block = self._act_block(columns[:, s] if whole else [c[s] for c in columns])  # type: ignore[call-overload]
            if actions is None:
                actions = np.empty((n, *block.shape[1:]), block.dtype)
            actions[s] = block
        assert actions is not None
        return actions

    def _act_block(self, columns: Columns) -> Actions:
        outputs = self.outputs(columns)
        if self.task.action_space == "box":
            low, high = (self._each_row(bound, outputs) for bound in self._bounds)
            np.clip(outputs, low, high, out=outputs)
            return outputs.astype(np.float32, copy=False)
        choices = []
        start = 0
        for actuator in self.task.actuators:
            choices.append(np.argmax(outputs[:, start : start + len(actuator.labels)], axis=1))
            start += len(actuator.labels)
        return choices[0] if self.task.action_space == "discrete" else np.stack(choices, axis=1)

    def _each_row(self, values: npt.NDArray[np.float64], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """One number per output, to be combined with an array of shape (n, outputs)."""
        one = values.astype(like.dtype)
        if (one == one[0]).all():
            return one[0]  # type: ignore[no-any-return]
        # Combining n rows of three numbers with one such row is ten times slower than with as many rows.
        return np.tile(one, (len(like), 1)) if len(like) >= MATRIX_PRODUCT_FROM else one

    @cached_property
    def _limits(self) -> tuple[tuple[float, float], ...]:
        return tuple((actuator.low, actuator.high) for actuator in self.task.actuators)

    @cached_property
    def _bounds(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return (
            np.array([actuator.low for actuator in self.task.actuators]),
            np.array([actuator.high for actuator in self.task.actuators]),
        )

    def act_one(self, observation: Sequence[float] | npt.NDArray[Any]) -> Any:
        """The action for one flattened observation of length d: an int for Discrete, else an array of shape (m,)."""
        row = self.quantities_one(observation)
        terms = [finite_scalar(function(row)) for function in self._scalar_terms]
        values = [
            finite_scalar(sum([weight * terms[i] for i, weight in weights]) + bias)
            for bias, weights in self._scalar_weights
        ]
        if self.task.action_space == "box":
            inside = [min(max(v, low), high) for v, (low, high) in zip(values, self._limits, strict=True)]
            return np.array(inside, np.float32)
        choices = []
        start = 0
        for actuator in self.task.actuators:
            scores = values[start : start + len(actuator.labels)]
            choices.append(scores.index(max(scores)))
            start += len(actuator.labels)
        return choices[0] if self.task.action_space == "discrete" else np.array(choices)

    def to_text(self) -> str:
        """The policy in the policy language."""
        return "\n".join(_let_lines(self.lets) + [f"{name} = {to_text(node)}" for name, node in self.equations])

    def _to_record(self) -> dict[str, Any]:
        return {"equations": {name: to_text(node) for name, node in self.equations}}


def reader_of_all(task: Task, lets: Lets = ()) -> LinearPolicy:
    """A linear policy that reads every quantity, so that it computes all of them; its equations are never used."""
    names = [*task.quantity_names, *(name for name, _ in lets)]
    everything = Call("+", tuple(map(Name, names)))
    return LinearPolicy(task, lets, tuple((name, everything) for name in output_names(task)))


# --- saved form ------------------------------------------------------------------------------------------------------


class _PolicyRecord(BaseModel):
    kind: Literal["table", "linear"]
    task: dict[str, Any] = {}  # not needed where the task is known
    lets: dict[str, str]
    grid: dict[str, list[float]] = {}
    rules: list[Annotated[list[list[int | float]], Field(min_length=1)]] = []
    equations: dict[str, str] = {}


def from_record(record: Any, task: Task | None = None) -> Policy:
    """The policy of a saved form, bound to the task in it unless one is given.

    Raises:
        PolicyError: it is not one, or an inconsistent one.
    """
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else None
        raise PolicyError(f"not a saved policy of format {FORMAT}" + (f" (it says {found})" if found else ""))
    try:
        read = _PolicyRecord.model_validate(record)
    except ValidationError as error:
        raise PolicyError(f"damaged policy: {explain(error)}") from None
    task = task or task_from_record(read.task)
    try:
        known = list(task.quantity_names)
        _ = task.parsed_features
        lets: list[tuple[str, Node]] = []
        for name, text in read.lets.items():
            if not is_name(name) or name in known:
                raise PolicyError(f"damaged policy: `{name}` cannot name a feature")
            lets.append((name, parse_expression(text, known)))
            known.append(name)
        if read.kind == "table":
            # The table itself refuses bins that are not whole.
            rules = tuple(
                Rule(tuple(tuple(bins) for bins in row[:-1]), tuple(row[-1]))  # type: ignore[arg-type]
                for row in read.rules
            )
            return TablePolicy(task, tuple(lets), grid_from_record(read.grid), rules)
        equations = tuple((name, parse_expression(text, known)) for name, text in read.equations.items())
        return LinearPolicy(task, tuple(lets), equations)
    except (ExpressionError, UsageError) as error:
        raise PolicyError(f"damaged policy: {error}") from None
