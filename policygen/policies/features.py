"""Computation of quantities from observations: those features of a task and of a policy that are needed.

Remembered values (`prev(NAME)`) are treated as more observations: a row holds d observed and m remembered numbers.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy import ndarray

from policygen.errors import PolicyError
from policygen.quantities.codegen import Array, ColumnFunction, RowFunction, column_function, row_function
from policygen.quantities.grid import Grid
from policygen.quantities.program import Lowering, Program
from policygen.quantities.text import is_name, parse_expression
from policygen.quantities.tree import Lets, needed_by, previous_of, remembered_in
from policygen.tasks.task import Task

Columns = Sequence[Array] | Array


@dataclass(frozen=True)
class Reader:
    """A reader of observations, which computes quantities from them.

    Attributes:
        task: describes the observations, and may define features.
        lets: more features, after those of the task, each defined in terms of quantities before it.
        read: names of the requested quantities; None: all. Other features are computed only if these need them.
        previous: names of the quantities whose values at the previous step are requested.
    """

    task: Task
    lets: Lets = ()
    read: frozenset[str] | None = None
    previous: frozenset[str] = frozenset()

    @cached_property
    def features(self) -> Lets:
        """The features of the task and `lets`, in order of definition."""
        return self.task.parsed_features + self.lets

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the quantities: observations, remembered values (`prev(NAME)`), and needed features."""
        remembered = tuple(map(previous_of, self.remembered))
        return self.task.columns + remembered + tuple(name for name, _ in self.needed)

    @cached_property
    def needed(self) -> Lets:
        """The features that are computed: the requested ones and all that these need, now or at the next step."""
        if self.read is None:
            return self.features
        wanted = needed_by(self.read | self.previous, dict(self.features))
        return tuple((name, node) for name, node in self.features if name in wanted)

    @cached_property
    def remembered(self) -> tuple[str, ...]:
        """Names of the values remembered from one step to the next: quantities, and parts of the decision."""
        return tuple(sorted(self.previous.union(*(remembered_in(node) for _, node in self.needed))))

    def lowering(self) -> Lowering:
        """Return a lowering in which expressions can read observations, remembered values and features."""
        lowering = Lowering(self.task.columns, tuple(map(previous_of, self.remembered)))
        for name, node in self.features:
            lowering.define(name, node)
        return lowering

    @cached_property
    def _program(self) -> Program:
        lowering = self.lowering()
        return lowering.program([lowering.named[name] for name, _ in self.needed])

    @cached_property
    def _of_columns(self) -> ColumnFunction:
        return column_function(self._program)

    @cached_property
    def _of_row(self) -> RowFunction:
        return row_function(self._program, [self._width])

    @property
    def _width(self) -> int:
        return self.task.width + len(self.remembered)

    def columns(self, observed: Columns) -> list[Array]:
        """Return a column of shape (n,) for each of `names`: observations unchanged, features in float64.

        Args:
            observed: d columns of observations, then m columns of remembered values.
        """
        if not self.needed:
            return list(observed)
        with np.errstate(all="ignore"):
            computed = self._of_columns([np.asarray(column, np.float64) for column in observed])
        features = (np.ascontiguousarray(np.broadcast_to(one, (len(observed[0]),))) for one in computed)
        return [*observed, *features]

    def row(self, observation: Sequence[float] | Array) -> list[float]:
        """Return all quantities for d observed and m remembered numbers.

        Raises:
            PolicyError: there are not d + m numbers.
        """
        row = floats(observation)
        if len(row) != self._width:
            raise self.refusal(row)
        return [*row, *self._of_row(row)]

    def next_memory_steps(self, lowering: Lowering, decided: Sequence[int]) -> list[int]:
        """Return the steps of the next memory, given those of the decision (one per actuator, or one for all)."""
        named = lowering.named
        return [named[n] if n in named else self._part_step(lowering, decided, n) for n in self.remembered]

    def _part_step(self, lowering: Lowering, decided: Sequence[int], name: str) -> int:
        k, label = places_in_decision(self.task)[name]
        if lowering.table is None:
            part = decided[k]
            if label is None and not self.task.actuators[k].is_choice:
                part = lowering.add("single", part)
        else:
            part = decided[0] if self.task.action_space == "discrete" else lowering.add("part", decided[0], data=k)
        return part if label is None else lowering.add("equals", part, data=label)

    def along(self, *episodes: tuple[Array, Array]) -> list[Array]:
        """Return all quantities at every step of these episodes, as `columns` does, one episode after another.

        Remembered values come from the steps of the same episode.

        Args:
            episodes: for each episode its observations, shape (T, d), or (T + 1, d) including the one after the last
                action; and its actions, shape (T,), or one row per step.
        """
        if not self.remembered:
            return self.columns(np.concatenate([observations for observations, _ in episodes]).T)
        names, decided = [*self.names, *self.task.decision_names], decision_columns(self.task)
        where = [names.index(name) for name in self.remembered]
        rows: list[list[float]] = []
        for observations, actions in episodes:
            parts, memory = np.column_stack(decided(actions)).tolist(), [math.nan] * len(where)
            for step, observation in enumerate(observations.tolist()):
                if step:
                    known = rows[-1] + parts[step - 1]
                    memory = [known[i] for i in where]
                rows.append(self.row(observation + memory))
        return list(np.array(rows, np.float64).reshape(len(rows), len(self.names)).T)

    def refusal(self, observation: Any) -> PolicyError:
        """Return the error for an input that is not one observation of the policy's task, or that lacks the memory."""
        try:
            shape = np.shape(observation)
        except ValueError:  # rows of different lengths
            shape = (len(observation),)
        if self.remembered:
            return PolicyError(
                f"this policy remembers {', '.join(self.remembered)} from one step to the next: let "
                "`policy.controller()` act, or `policy.act(observations, memory)` with the memory that "
                "`policy.start(n)` gives for n episodes side by side"
            )
        found = f"{shape[0]} numbers" if len(shape) == 1 else type(observation).__name__
        if shape == (self._width,):
            found = f"{shape[0]} values that are not all numbers"
        return PolicyError(
            f"expected one observation of {self._width} numbers, got {found}; "
            "pass the environment's own observations, of any form, to `policy.controller()`"
        )


@dataclass(frozen=True)
class CellReader(Reader):
    """A reader that also finds the cells of a grid in which observations lie; made by `cell_reader`."""

    grid: Grid = None  # type: ignore[assignment]

    def cells(self, observations: Array) -> npt.NDArray[np.int32]:
        """Return the cell indices of flattened observations of shape (n, d)."""
        return self._cells(self.columns(observations.T))

    def cells_along(self, *episodes: tuple[Array, Array]) -> npt.NDArray[np.int32]:
        """Return the cell indices at every step of these episodes, one after another; see `along` for the arguments."""
        return self._cells(self.along(*episodes))

    def _cells(self, quantities: Sequence[Array]) -> npt.NDArray[np.int32]:
        columns = dict(zip(self.names, quantities, strict=True))
        return self.grid.cells([columns[name] for name in self.grid.names])


def floats(row: Sequence[float] | Array) -> list[float]:
    """Convert a row to plain floats; raise TypeError if it is not one row of numbers."""
    if isinstance(row, ndarray) and row.dtype.char in "fd":
        found: list[float] = row.tolist()
        return found
    return array("d", row).tolist()


def places_in_decision(task: Task) -> dict[str, tuple[int, int | None]]:
    """Return, for each of the task's `decision_names`, the index of its actuator, and of its label if it is one."""
    places: dict[str, tuple[int, int | None]] = {actuator.name: (k, None) for k, actuator in enumerate(task.actuators)}
    for k, outputs in enumerate(task.outputs_by_actuator):
        for label, output in enumerate(outputs):
            places.setdefault(output, (k, label))
    return places


def decision_columns(task: Task) -> Callable[[Array], list[npt.NDArray[np.float64]]]:
    """Return a function from n actions, shape (n,) or (n, m), to a column of shape (n,) for each of `decision_names`.

    For an actuator, the column holds numbers or the indices of labels; for a label, 1 where it was chosen, else 0.
    """
    places = places_in_decision(task)

    def columns(actions: Array) -> list[npt.NDArray[np.float64]]:
        parts = actions[:, None] if task.action_space == "discrete" else actions
        own = ((parts[:, k], label) for k, label in map(places.__getitem__, task.decision_names))
        return [np.asarray(part if label is None else part == label, np.float64) for part, label in own]

    return columns


def cell_reader(task: Task, grid: Grid, lets: Lets = ()) -> CellReader:
    """Return a reader that computes only the quantities that `grid` bins, and finds cells."""
    return CellReader(task, lets, frozenset(grid.names), grid=grid)


def parse_lets(
    texts: Collection[tuple[str, str]], task: Task, what: str, also: Collection[str] = ()
) -> tuple[Lets, list[str]]:
    """Parse saved definitions of features; return them and the names of all quantities.

    Args:
        texts: the name and expression of each feature, which may read those before it.
        what: the kind of record, for messages.
        also: more names that the expressions may read.

    Raises:
        PolicyError, ExpressionError: a name is invalid or taken; a definition cannot be parsed.
    """
    known, lets = [*task.quantity_names, *also], []
    later = [*(name for name, _ in texts), *task.decision_names]
    for name, text in texts:
        if not is_name(name) or name in known:
            taken = ", as it names something else; choose another name" if name in known else ""
            raise PolicyError(f"damaged {what}: `{name:.40}` cannot name a feature{taken}")
        lets.append((name, parse_expression(text, known, later, task.text_names)))
        known.append(name)
    return tuple(lets), known
