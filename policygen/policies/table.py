"""Table policies: an action for every cell of a grid, looked up with numpy and written in few rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.policies.cells import Comments, action_text, bins_line, bins_text, row_line
from policygen.policies.features import CellReader, cell_reader
from policygen.policies.policy import Actions, Policy, let_lines
from policygen.quantities.grid import Grid
from policygen.quantities.program import Lowering
from policygen.quantities.text import unknown_name
from policygen.quantities.tree import Lets
from policygen.tasks.records import checked, grid_from_record, grid_to_record
from policygen.tasks.task import Task

Box = tuple[tuple[int, ...], ...]  # the bins in each dimension
Leaf = tuple[Box, int]  # the bins of cells that share an action, and the index of the action


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of a table: the bins that it covers in each dimension, and its action, as a number per actuator."""

    bins: Box
    action: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _TableRecord:
    grid: dict[str, tuple[float, ...]]
    rules: tuple[tuple[tuple[int | float, ...], ...], ...]


@dataclass(frozen=True, repr=False)
class TablePolicy(Policy):
    """A table over a grid: the first row that covers a cell gives its action.

    Raises:
        PolicyError: a cell is not covered, a row does not fit the grid or the action space, or the grid bins an unknown
            quantity.
    """

    grid: Grid
    rules: tuple[Rule, ...]

    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        known = (*self.task.columns, *(name for name, _ in self.reader.features))
        for name in self.grid.names:
            if name not in known:
                raise PolicyError(unknown_name(name, known))
        for number, rule in enumerate(self.rules, start=1):
            self._check(number, rule)
        if without_row := uncovered(self.grid, self.dense):
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
        """Return the table with `actions[cell]` in each cell, in the few rows that a greedy decision tree finds.

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
    def dense(self) -> npt.NDArray[np.float64]:
        """The action of every cell as numbers, shape (cells, actuators)."""
        return dense_table(self.rules, self.grid.shape, len(self.task.actuators))

    @cached_property
    def actions(self) -> Actions:
        """The action of every cell: shape (cells,) for Discrete, else (cells, actuators)."""
        if self.task.has_numbers:
            actions: Actions = self.task.limits.to_actions(np.array(self.dense))
        else:
            whole = np.rint(self.dense).astype(np.int64)
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

    def decision_steps(self, lowering: Lowering) -> list[int]:
        """Add the steps of the decision; return the step that looks up the whole action."""
        # Observations are binned as they are, so that NaN is in the top bin.
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
        # The constructor refuses rows that are empty and bins that are not integers.
        rows = (row or ((),) for row in read.rules)
        rules = tuple(Rule(row[:-1], tuple(map(float, row[-1]))) for row in rows)  # type: ignore[arg-type]
        return cls(task, lets, grid_from_record(read.grid), rules)


# --- rows and cells --------------------------------------------------------------------------------------------------


def dense_table(rules: Sequence[Rule], shape: tuple[int, ...], actuators: int) -> npt.NDArray[np.float64]:
    """Return the action of each cell, shape (cells, actuators); NaN where no rule covers it."""
    actions = np.full((*shape, actuators), np.nan)
    for rule in reversed(rules):
        actions[_block(rule)] = rule.action
    return actions.reshape(-1, actuators)


def _block(rule: Rule) -> Any:
    """Return an index of the cells that a rule covers; for ranges of bins, slices, which are 20 times as fast."""
    ranges = [slice(bins[0], bins[-1] + 1) for bins in rule.bins]
    if all(bins == tuple(range(at.start, at.stop)) for bins, at in zip(rule.bins, ranges, strict=True)):
        return tuple(ranges)
    return np.ix_(*rule.bins)


def uncovered(grid: Grid, dense: npt.NDArray[np.float64]) -> str:
    """Describe the cells that no row covers, given the `dense_table`; empty if there are none."""
    (missing,) = np.isnan(dense[:, 0]).nonzero()
    if not len(missing):
        return ""
    first = ", ".join(f"{name} {bin_}" for name, bin_ in zip(grid.names, grid.bins_of(missing[0]), strict=True))
    return f"{len(missing):,} of {grid.size:,} cells have no row (the first is {first})"


def visible(rules: Sequence[Rule], shape: tuple[int, ...]) -> tuple[Rule, ...]:
    """Drop rules whose cells are all covered by earlier rules."""
    covered = np.zeros(shape, np.bool_)
    kept = []
    for rule in rules:
        block = _block(rule)
        if not covered[block].all():
            kept.append(rule)
            covered[block] = True
    return tuple(kept)


def compressed(dense: npt.NDArray[np.float64], shape: tuple[int, ...]) -> list[Rule]:
    """Return a small number of rows that give each cell its action in `dense`, shape (cells, actuators).

    They are the joined leaves of a greedy decision tree. The action with the most leaves becomes a last row of `*`.
    """
    kinds, codes = np.unique(dense, axis=0, return_inverse=True)
    leaves: list[Leaf] = []
    everything = tuple(tuple(range(size)) for size in shape)
    stack: list[Box] = [everything]
    table = codes.reshape(shape)
    while stack:
        box = stack.pop()
        block = table[np.ix_(*box)]
        if block.size == 1 or (block == block.flat[0]).all():
            leaves.append((box, int(block.flat[0])))
            continue
        axis, at = _best_split(block, len(kinds))
        halves = (box[axis][at:], box[axis][:at])
        stack.extend((*box[:axis], half, *box[axis + 1 :]) for half in halves)
    leaves = join_leaves(leaves)
    common = int(np.argmax(np.bincount([code for _, code in leaves])))
    rest = [(box, code) for box, code in leaves if code != common]
    return [Rule(box, tuple(kinds[code].tolist())) for box, code in [*rest, (everything, common)]]


def _best_split(block: npt.NDArray[np.intp], kinds: int) -> tuple[int, int]:
    """Return the axis and position of the split whose two parts have the least entropy."""
    best = (math.inf, 0, 1)
    for axis in range(block.ndim):
        lines = np.moveaxis(block, axis, 0).reshape(block.shape[axis], -1)
        counts = np.stack([np.bincount(line, minlength=kinds) for line in lines])
        left = np.cumsum(counts, axis=0)[:-1]
        for at, (a, b) in enumerate(zip(left, counts.sum(axis=0) - left, strict=True), start=1):
            best = min(best, (_entropy(a) + _entropy(b), axis, at))
    return best[1], best[2]


def _entropy(counts: npt.NDArray[Any]) -> float:
    present = counts[counts > 0]
    return float(-(present * np.log(present / present.sum())).sum())


def join_leaves(leaves: list[Leaf]) -> list[Leaf]:
    """Join leaves that share an action and differ in a single dimension, until no such pair is left."""
    count = math.inf
    while len(leaves) < count:
        count = len(leaves)
        for axis in range(len(leaves[0][0])):
            groups: dict[Any, list[int]] = {}
            for box, code in leaves:
                groups.setdefault((box[:axis], box[axis + 1 :], code), []).extend(box[axis])
            joined = ((*before, tuple(sorted(bins)), *after) for (before, after, _), bins in groups.items())
            leaves = list(zip(joined, (code for _, _, code in groups), strict=True))
    return leaves
