"""Simplification of tables: a small decision tree over visited cells, then removal of superfluous rows."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.simplify.contest import Contest
from policygen.extensions.simplify.numbers import without_idle_lets
from policygen.policies.rows import Rule, join_leaves, visible
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension, Grid

CORRECTIONS = 2  # how often a tree of one size is trained again, also on the states that it visited itself
MOST_LEAVES = 60
MOST_PAIRS = 400  # pairs of rows that are considered for joining into one
Box = tuple[range, ...]  # bins per dimension


def simplify_table(contest: Contest[TablePolicy]) -> None:
    """Find fewer rows for the contest's table; accepted candidates become its current policy."""
    start = contest.current
    reached = visible(start.rules, start.grid.shape)
    if len(reached) < len(start.rules):  # same decisions, so no episodes are needed
        start = replace(start, rules=reached)
        contest.adopt(start, contest.trajectories)
    _fewest_leaves(contest, start)
    contest.accept_while_any(lambda policy: _without_a_row(policy, contest.trajectories))
    contest.accept_while_any(_with_two_rows_joined)
    widen_rows(contest)
    final = contest.current
    if final.grid != final.task.grid and (slim := without_idle_bins(final)).grid != final.grid:
        contest.accept_unless_worse(slim)


def _with_rules(policy: TablePolicy, rules: Sequence[Rule]) -> TablePolicy:
    """Return the table with these rows, without those that decide no cell."""
    return replace(policy, rules=visible(rules, policy.grid.shape))


# --- trees -----------------------------------------------------------------------------------------------------------


def _fewest_leaves(contest: Contest[TablePolicy], original: TablePolicy) -> None:
    """Find the tree of fewest leaves that is not worse, trained also on the states that it visits (as in DAgger)."""
    weights = _visits(original, contest.trajectories)
    leaves = 1
    while leaves <= MOST_LEAVES and not contest.exhausted:
        for _ in range(1 + CORRECTIONS):
            rules = tree_rules(original, weights, leaves)
            if len(rules) >= len(contest.current.rules):
                return
            candidate = replace(original, rules=tuple(rules))
            good, played = contest.trial(candidate, always=True)
            contest.tried += 1
            if good:
                contest.adopt(candidate, played)
            if good or not played:
                return
            weights = weights + _visits(candidate, played)
        leaves += 1 if leaves < 16 else 4


def _visits(policy: TablePolicy, episodes: Sequence[Trajectory]) -> npt.NDArray[np.float64]:
    """Count the visits of each cell, shape (cells,)."""
    steps = [(episode.observations[:-1], episode.actions) for episode in episodes if episode.length]
    if not steps:
        return np.zeros(policy.grid.size)
    return np.bincount(policy.reader.cells_along(*steps), minlength=policy.grid.size).astype(np.float64)


def tree_rules(policy: TablePolicy, weights: npt.NDArray[np.float64], leaves: int) -> list[Rule]:
    """Return rows that agree with the policy in important cells: a best-first decision tree of at most `leaves` leaves.

    `weights`, shape (cells,), is the importance of each cell; cells of weight 0 may get any action.
    """
    kinds, codes = np.unique(policy.dense[0], axis=0, return_inverse=True)
    table, mass = codes.reshape(policy.grid.shape), weights.reshape(policy.grid.shape)
    count = itertools.count()

    def leaf(box: Box) -> tuple[float, int, tuple[int, int] | None, Box]:
        gain, cut = _best_cut(_block(table, box), _block(mass, box), len(kinds))
        return -gain, next(count), cut, box

    waiting, done = [leaf(tuple(map(range, policy.grid.shape)))], list[Box]()
    while waiting and len(waiting) + len(done) < leaves:
        _, _, cut, box = heapq.heappop(waiting)
        if cut is None:
            done.append(box)
            continue
        axis, at = cut
        for half in (box[axis][:at], box[axis][at:]):
            heapq.heappush(waiting, leaf((*box[:axis], half, *box[axis + 1 :])))
    boxes = done + [box for *_, box in waiting]
    merged = join_leaves([(tuple(map(tuple, box)), _common(table, mass, box, len(kinds))) for box in boxes])
    # The most frequent action becomes a last row of `*`.
    common = int(np.argmax(np.bincount([code for _, code in merged], minlength=len(kinds))))
    rows = [(box, code) for box, code in merged if code != common] + [(_everything(policy), common)]
    return [Rule(box, tuple(kinds[code].tolist())) for box, code in rows]


def _everything(policy: TablePolicy) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(size)) for size in policy.grid.shape)


def _block(array: npt.NDArray[Any], box: Box) -> npt.NDArray[Any]:
    return array[tuple(slice(bins.start, bins.stop) for bins in box)]


def _common(table: npt.NDArray[np.intp], mass: npt.NDArray[np.float64], box: Box, kinds: int) -> int:
    """Return the action with most visits in a box or, if it was never visited, with most cells."""
    codes, weights = _block(table, box).reshape(-1), _block(mass, box).reshape(-1)
    return int(np.argmax(np.bincount(codes, weights if weights.any() else None, minlength=kinds)))


def _best_cut(
    codes: npt.NDArray[np.intp], weights: npt.NDArray[np.float64], kinds: int
) -> tuple[float, tuple[int, int] | None]:
    """Return the gain in purity of the best cut, its axis, and the number of bins below it; None without a gain."""
    best: tuple[float, tuple[int, int] | None] = (0.0, None)
    for axis, size in enumerate(codes.shape):
        if size == 1:
            continue
        lines, heavy = (np.moveaxis(a, axis, 0).reshape(size, -1) for a in (codes, weights))
        counts = np.stack([np.bincount(c, w, minlength=kinds) for c, w in zip(lines, heavy, strict=True)])
        low = np.cumsum(counts, axis=0)[:-1]
        gains = _purity(low) + _purity(counts.sum(axis=0) - low) - _purity(counts.sum(axis=0))
        at = int(np.argmax(gains))
        if gains[at] > best[0] + 1e-9:
            best = (float(gains[at]), (axis, at + 1))
    return best


def _purity(counts: npt.NDArray[Any]) -> Any:
    """Return the sum over actions k of n_k^2/n, for n visits: n times one minus the Gini impurity."""
    total = counts.sum(axis=-1)
    return (counts**2).sum(axis=-1) / np.maximum(total, 1e-300)


# --- rows ------------------------------------------------------------------------------------------------------------


def _without_a_row(policy: TablePolicy, episodes: Sequence[Trajectory]) -> Iterator[TablePolicy]:
    """Yield the table without one of its rows, those with fewest visits first; its last row then covers everything."""
    visits = _visits(policy, episodes).reshape(policy.grid.shape)
    left = np.ones(policy.grid.shape, np.bool_)
    uses = []
    for i, rule in enumerate(policy.rules):
        block = np.ix_(*rule.bins)
        uses.append((float(visits[block][left[block]].sum()), i))
        left[block] = False
    for _, i in sorted(uses):
        rules = policy.rules[:i] + policy.rules[i + 1 :]
        if rules and rules[-1].bins == _everything(policy):
            yield _with_rules(policy, rules)


def _with_two_rows_joined(policy: TablePolicy) -> Iterator[TablePolicy]:
    """Yield the table with two rows of the same action joined into one, in the place of either; the last row stays."""
    pairs = itertools.combinations(range(len(policy.rules)), 2)
    for i, k in itertools.islice(pairs, MOST_PAIRS):
        one, other = policy.rules[i], policy.rules[k]
        if one.action != other.action or k == len(policy.rules) - 1:
            continue
        both = Rule(tuple(tuple(sorted({*a, *b})) for a, b in zip(one.bins, other.bins, strict=True)), one.action)
        for at in (k, i):
            places = [j for j in range(len(policy.rules)) if j == at or j not in (i, k)]
            yield _with_rules(policy, [both if j == at else policy.rules[j] for j in places])


def widen_rows(contest: Contest[TablePolicy]) -> None:
    """Widen rows to more bins of a quantity: their text gets shorter, and quantities or later rows may be left out."""
    start = contest.current
    shape = start.grid.shape
    for i, axis in itertools.product(range(len(start.rules)), range(len(shape))):
        policy = contest.current
        if contest.exhausted or i >= len(policy.rules):
            return
        rule = policy.rules[i]
        for bins in _wider(rule.bins[axis], shape[axis]):
            wider = Rule((*rule.bins[:axis], bins, *rule.bins[axis + 1 :]), rule.action)
            if contest.accept_unless_worse(_with_rules(policy, [*policy.rules[:i], wider, *policy.rules[i + 1 :]])):
                break


def _wider(bins: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """Yield wider sets of bins with a shorter text: all bins, all up to the last, all from the first on."""
    if len(bins) < size:
        yield tuple(range(size))
        if bins[0] > 0 and bins[-1] < size - 1:
            yield tuple(range(bins[-1] + 1))
            yield tuple(range(bins[0], size))


def without_idle_bins(policy: TablePolicy) -> TablePolicy:
    """Return a table with the same decisions, without the edges and quantities at which no row changes."""
    dimensions: list[Dimension] = []
    columns: list[list[tuple[int, ...]]] = []
    for axis, dimension in enumerate(policy.grid.dimensions):
        row_bins = [set(rule.bins[axis]) for rule in policy.rules]
        kept = [i for i in range(len(dimension.edges)) if any((i in bins) != (i + 1 in bins) for bins in row_bins)]
        if not kept:
            continue
        dimensions.append(Dimension(dimension.name, tuple(dimension.edges[i] for i in kept)))
        first = [0, *(i + 1 for i in kept)]  # the first old bin of each new one
        columns.append([tuple(new for new, old in enumerate(first) if old in bins) for bins in row_bins])
    if not dimensions:  # a table needs at least one quantity
        return policy
    rules = tuple(Rule(bins, rule.action) for bins, rule in zip(zip(*columns, strict=True), policy.rules, strict=True))
    return without_idle_lets(replace(policy, grid=Grid(tuple(dimensions)), rules=rules))
