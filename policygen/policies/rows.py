"""Conversion between the rows of a table and one action per cell of the grid, in both directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.quantities.grid import Grid

Box = tuple[tuple[int, ...], ...]  # the bins in each dimension
Leaf = tuple[Box, int]  # cells with the same action: their bins, and the index of the action


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a table: the bins that it covers in each dimension, and the action (a number per actuator)."""

    bins: Box
    action: tuple[float, ...]


def dense_table(
    rules: Sequence[Rule], shape: tuple[int, ...], actuators: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the action of each cell, shape (cells, actuators), and a mask of the cells with a rule, shape (cells,)."""
    actions = np.zeros((*shape, actuators))
    covered = np.zeros(shape, np.bool_)
    for rule in reversed(rules):
        block = _block(rule)
        actions[block] = rule.action
        covered[block] = True
    return actions.reshape(-1, actuators), covered.reshape(-1)


def _block(rule: Rule) -> Any:
    """Return the index of the cells that a rule covers: slices if its bins are ranges, which is 20 times as fast."""
    ranges = [slice(bins[0], bins[-1] + 1) for bins in rule.bins]
    if all(bins == tuple(range(at.start, at.stop)) for bins, at in zip(rule.bins, ranges, strict=True)):
        return tuple(ranges)
    return np.ix_(*rule.bins)


def uncovered(grid: Grid, covered: npt.NDArray[np.bool_]) -> str:
    """Describe the cells of a grid that have no row, given the mask of `dense_table`; empty if all have one."""
    if covered.all():
        return ""
    first = ", ".join(f"{n} {b}" for n, b in zip(grid.names, grid.bins_of(int(np.argmin(covered))), strict=True))
    return f"{int((~covered).sum()):,} of {grid.size:,} cells have no row (the first is {first})"


def nearest_seen(
    actions: npt.NDArray[np.float64], seen: npt.NDArray[np.bool_], shape: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """Return actions, shape (cells, actuators), in which each cell that is not `seen` has those of the nearest seen."""
    from scipy.ndimage import distance_transform_edt  # start-up time

    if seen.all() or not seen.any():
        return actions
    nearest = distance_transform_edt(~seen.reshape(shape), return_distances=False, return_indices=True)
    copied: npt.NDArray[np.float64] = actions[np.ravel_multi_index(tuple(nearest), shape).ravel()]
    return copied


def visible(rules: Sequence[Rule], shape: tuple[int, ...]) -> tuple[Rule, ...]:
    """Return the rules without those whose cells are all covered by earlier rules."""
    covered = np.zeros(shape, np.bool_)
    kept = []
    for rule in rules:
        block = _block(rule)
        if not covered[block].all():
            kept.append(rule)
            covered[block] = True
    return tuple(kept)


def compressed(dense: npt.NDArray[np.float64], shape: tuple[int, ...]) -> list[Rule]:
    """Return few rows that give each cell its action in `dense`, shape (cells, actuators).

    They are the joined leaves of a greedy decision tree. The action with most leaves becomes one last row of `*`.
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
    """Return the axis and position of the split whose halves have the least entropy."""
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
    """Join leaves with the same action that differ in a single dimension, until no two such leaves remain."""
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
