"""Observations -> quantities: the features of a task and of a policy, computed for whoever reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy import ndarray

from policygen.errors import PolicyError
from policygen.quantities.compiled import (
    BatchFunction,
    ScalarFunction,
    compile_batch,
    compile_scalar,
    finite,
    finite_scalar,
)
from policygen.quantities.grid import Grid
from policygen.quantities.tree import Node, names_in
from policygen.tasks.task import Task

Columns = Sequence[npt.NDArray[Any]] | npt.NDArray[Any]
Lets = tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Reader:
    """Reads quantities off observations.

    Attributes:
        task: names the observations, and has features of its own.
        lets: further features, after those of the task, each over quantities before it.
        read: names of the quantities that are asked for; None asks for all. What they do not need is not computed.
    """

    task: Task
    lets: Lets = ()
    read: frozenset[str] | None = None

    @cached_property
    def features(self) -> Lets:
        """The task's features and the further ones, in order of definition."""
        return self.task.parsed_features + self.lets

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All quantities, observations first."""
        return self.task.observation_names + tuple(name for name, _ in self.features)

    @cached_property
    def needed(self) -> Lets:
        """The features that are computed: what is asked for, and what that needs in turn."""
        wanted = set(self.names if self.read is None else self.read)
        for name, node in reversed(self.features):
            if name in wanted:
                wanted |= names_in(node)
        return tuple((name, node) for name, node in self.features if name in wanted)

    @cached_property
    def _batch(self) -> tuple[BatchFunction | None, ...]:
        needed = dict(self.needed)
        return tuple(compile_batch(node, self.names) if name in needed else None for name, node in self.features)

    @cached_property
    def _scalar(self) -> tuple[ScalarFunction | None, ...]:
        needed = dict(self.needed)
        return tuple(compile_scalar(node, self.names) if name in needed else None for name, node in self.features)

    def columns(self, observed: Columns) -> list[npt.NDArray[Any]]:
        """All quantities of n observations, given as d columns of shape (n,).

        Returns:
            A column for each of `names`: observations as they are, features as float64; a feature that nothing needs is
            zeros of shape (1,).
        """
        if not self.features:
            return list(observed)
        wide = [np.asarray(column, np.float64) for column in observed]
        n = len(observed[0])
        with np.errstate(all="ignore"):
            for function in self._batch:
                if function is None:
                    wide.append(np.zeros(1))
                else:
                    wide.append(np.ascontiguousarray(np.broadcast_to(finite(np.asarray(function(wide))), (n,))))
        # Observations keep their own dtype: a bin must not depend on whether another quantity is a feature.
        return [*observed, *wide[len(observed) :]]

    def row(self, observation: Sequence[float] | npt.NDArray[Any]) -> list[float]:
        """`columns` for one observation, as plain floats.

        Raises:
            PolicyError: it does not have d entries.
        """
        row: list[float] = observation.tolist() if isinstance(observation, ndarray) else list(observation)
        if len(row) != self._width:
            raise self.refusal(observation)
        for function in self._scalar:
            row.append(0.0 if function is None else finite_scalar(function(row)))
        return row

    @cached_property
    def _width(self) -> int:
        return len(self.task.observations)

    def refusal(self, observation: Any) -> PolicyError:
        """What to say of something that is not one observation of d numbers."""
        try:
            shape = np.shape(observation)
        except ValueError:  # rows of different lengths
            shape = (len(observation),)
        found = f"{shape[0]} numbers" if len(shape) == 1 else type(observation).__name__
        if len(shape) == 1 and shape[0] == self._width:
            found = "something else in their place"
        return PolicyError(
            f"expected one observation of {self._width} numbers, got {found}; "
            "the environment's own observations, of whatever form, are for `policy.controller()`"
        )


@dataclass(frozen=True)
class CellReader(Reader):
    """Reads what a grid bins, and the cells that observations fall into; made with `cell_reader`."""

    grid: Grid = None  # type: ignore[assignment]

    @cached_property
    def _positions(self) -> tuple[int, ...]:
        return tuple(self.names.index(name) for name in self.grid.names)

    def binned(self, observed: Columns) -> list[npt.NDArray[Any]]:
        """The columns of the binned quantities, in the grid's order, for observations given as d columns."""
        quantities = self.columns(observed)
        return [quantities[i] for i in self._positions]

    def cells(self, observations: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Cell indices of flattened observations of shape (n, d)."""
        return self.grid.cells(self.binned(observations.T))

    @cached_property
    def cell(self) -> Callable[[Sequence[float]], int]:
        """A function from one observation, as plain floats, to its cell; it refuses others by whatever they raise."""
        where = self.grid.cell_function(self._positions, len(self.names))
        return (lambda observation: where(self.row(observation))) if self.features else where


def cell_reader(task: Task, grid: Grid, lets: Lets = ()) -> CellReader:
    """What reads the quantities that `grid` bins, and the cells of observations."""
    return CellReader(task, lets, frozenset(grid.names), grid)


def rests_on(wanted: Iterable[str], changed: Mapping[str, Node], others: Mapping[str, Node]) -> bool:
    """Whether one of the wanted quantities is, or is made from, a changed feature; `others` are those that stay."""
    lets, seen, waiting = {**others, **changed}, set[str](), list(wanted)
    while waiting:
        if (name := waiting.pop()) in changed:
            return True
        if name in lets and name not in seen:
            seen.add(name)
            waiting += names_in(lets[name])
    return False
