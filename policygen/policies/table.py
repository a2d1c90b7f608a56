"""Table policies: an action for every cell of a grid, looked up by numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.policies.cells import action_text, bins_line, bins_text, row_line
from policygen.policies.comments import Comments
from policygen.policies.features import CellReader, Lets, cell_reader
from policygen.policies.policy import Actions, Policy, let_lines
from policygen.policies.rows import Rule, compressed, dense_table, uncovered
from policygen.quantities.grid import Grid
from policygen.quantities.program import Lowering
from policygen.quantities.text import unknown_name
from policygen.tasks.records import checked, grid_from_record, grid_to_record
from policygen.tasks.task import Task


@dataclass(frozen=True, repr=False)
class TablePolicy(Policy):
    """A table over a grid; the first row that covers a cell gives its action.

    Raises:
        PolicyError: a cell has no row, a row does not fit the grid or the action space, or the grid bins an unknown
            quantity.
    """

    grid: Grid
    rules: tuple[Rule, ...]

    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        unknown = [name for name in self.grid.names if name not in self.reader.names]
        if unknown:
            raise PolicyError(unknown_name(unknown[0], self.reader.names))
        for number, rule in enumerate(self.rules, start=1):
            self._check(number, rule)
        if without_row := uncovered(self.grid, self.dense[1]):
            raise PolicyError(without_row)

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
                bounds = f"{actuator.low:g} to {actuator.high:g}"
                raise PolicyError(f"row {number}: {actuator.name} lies in {bounds}, here {value:g}")

    @classmethod
    def from_actions(
        cls,
        task: Task,
        actions: npt.ArrayLike,
        grid: Grid | None = None,
        lets: Lets = (),
        comments: Comments | None = None,
    ) -> TablePolicy:
        """Return the table with `actions[cell]` in each cell, in as few rows as a greedy decision tree finds.

        Args:
            actions: shape (cells,) or (cells, actuators).
            grid: the grid; None: the task's own.
            lets, comments: see `Policy`.

        Raises:
            PolicyError: neither `grid` nor the task has a grid, or the actions do not fit the task.
        """
        grid = grid or task.grid
        if grid is None:
            raise PolicyError(f"task {task.name} has no grid; give one")
        dense = np.asarray(actions, dtype=np.float64).reshape(grid.size, -1)
        return cls(task, lets, grid, tuple(compressed(dense, grid.shape)), comments=comments or {})

    @cached_property
    def dense(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """The action of every cell as numbers, shape (cells, actuators), and whether it has a row, shape (cells,)."""
        return dense_table(self.rules, self.grid.shape, len(self.task.actuators))

    @cached_property
    def actions(self) -> Actions:
        """The action of every cell: shape (cells,) for Discrete, else (cells, actuators)."""
        if self.task.has_numbers:
            actions: Actions = self.task.limits.to_actions(np.array(self.dense[0]))
        else:
            whole = np.rint(self.dense[0]).astype(np.int64)
            actions = whole[:, 0] if self.task.action_space == "discrete" else whole
        actions.setflags(write=False)  # `act_one` returns its rows
        return actions

    @cached_property
    def reader(self) -> CellReader:
        """The reader that computes the binned quantities and the cells."""
        return cell_reader(self.task, self.grid, self.lets)

    def names_read(self) -> frozenset[str]:
        """Return the quantities that the grid bins."""
        return frozenset(self.grid.names)

    def cells(self, observations: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Return the cell indices of flattened observations of shape (n, d)."""
        return self.reader.cells(observations)

    def decided(self, lowering: Lowering) -> list[int]:
        """Add the steps of the decision; return the one that looks up the whole action."""
        # Bins are those of the observations themselves: NaN belongs to the top bin.
        binned = [lowering.inputs.get(name, lowering.named[name]) for name in self.grid.names]
        return [lowering.look_up(binned, self.grid, self.actions)]

    def _to_text(self, *, whole: bool) -> str:
        lines = let_lines(self.reader.needed if whole else self.lets)
        if whole or self.grid != self.task.grid:
            lines += map(bins_line, self.grid.dimensions)
        rows = [[*self.grid.names, *(actuator.name for actuator in self.task.actuators)]]
        for rule in self.rules:
            cells = [bins_text(bins, size) for bins, size in zip(rule.bins, self.grid.shape, strict=True)]
            cells += [action_text(a, v) for a, v in zip(self.task.actuators, rule.action, strict=True)]
            rows.append(cells)
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        rows.insert(1, ["-" * width for width in widths])
        lines += [row_line([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]) for row in rows]
        return "\n".join(lines)

    def _to_record(self) -> dict[str, Any]:
        return {
            "grid": grid_to_record(self.grid),
            "rules": [[*map(list, rule.bins), list(rule.action)] for rule in self.rules],
        }

    @classmethod
    def _from_record(cls, record: Any, task: Task, lets: Lets, names: Sequence[str]) -> TablePolicy:
        read = checked(_TableRecord, record, "damaged policy")
        # The constructor refuses empty rows and bins that are not integers.
        rows = (row or ((),) for row in read.rules)
        rules = tuple(Rule(row[:-1], tuple(map(float, row[-1]))) for row in rows)  # type: ignore[arg-type]
        return cls(task, lets, grid_from_record(read.grid), rules)


@dataclass(frozen=True, slots=True)
class _TableRecord:
    grid: dict[str, tuple[float, ...]]
    rules: tuple[tuple[tuple[int | float, ...], ...], ...]
