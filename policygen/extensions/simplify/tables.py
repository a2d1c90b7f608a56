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
from policygen.policies.rows import Rule, joined, visible
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension, Grid

CORRECTIONS = 2  # rounds in which a tree learns the original's actions in the states that the tree visits
MOST_LEAVES = 60
MOST_PAIRS = 400  # pairs of rows tried as one row
Box = tuple[tuple[int, int], ...]  # first and last bin per dimension


def simplify_table(contest: Contest) -> None:
    """Find fewer rows for the contest's table; accepted candidates become its current policy."""
    start = contest.current
    assert isinstance(start, TablePolicy)
    reached = visible(start.rules, start.grid.shape)
    if len(reached) < len(start.rules):  # same decisions, so no episodes are needed
        start = replace(start, rules=reached)
        contest.adopt(start, list(contest.trajectories))
    _fewest_leaves(contest, start)
    _drop_rows(contest)
    _join_rows(contest)
    widen_rows(contest)
    _drop_bins(contest)


def _accept(contest: Contest, policy: TablePolicy, rules: Sequence[Rule]) -> bool:
    """Accept these simpler rows if they are not worse."""
    return contest.accepts(replace(policy, rules=tuple(rules)))


# --- trees -----------------------------------------------------------------------------------------------------------


def _fewest_leaves(contest: Contest, original: TablePolicy) -> None:
    """Find the tree of fewest leaves that is not worse, trained on the states that it visits itself (as in DAgger)."""
    weights = _visits(original, contest.trajectories)
    leaves = 1
    while leaves <= MOST_LEAVES and not contest.exhausted:
        for _ in range(1 + CORRECTIONS):
            rules = tree_rules(original, weights, leaves)
            if len(rules) >= len(_rules(contest)):
                return
            seen: list[Trajectory] = []
            candidate = replace(original, rules=tuple(rules))
            played = contest.trial(candidate, seen)
            contest.tried += 1
            if played is not None:
                contest.adopt(candidate, played)
                return
            if not seen:
                return
            weights = weights + _visits(candidate, seen)
        leaves += 1 if leaves < 16 else 4


def _visits(policy: TablePolicy, episodes: Sequence[Trajectory]) -> npt.NDArray[np.float64]:
    """Count the visits of each cell, shape (cells,)."""
    counts = np.zeros(policy.grid.size)
    steps = [(episode.observations[:-1], episode.actions) for episode in episodes if episode.length]
    if steps:
        np.add.at(counts, policy.reader.cells_along(*steps), 1.0)
    return counts


def tree_rules(policy: TablePolicy, weights: npt.NDArray[np.float64], leaves: int) -> list[Rule]:
    """Return rows that agree with the policy in important cells: the best-first tree of at most `leaves` leaves.

    Args:
        weights: importance of each cell, shape (cells,); cells of weight 0 may get any action.
    """
    kinds, codes = np.unique(policy.dense[0], axis=0, return_inverse=True)
    table, mass = codes.reshape(policy.grid.shape), weights.reshape(policy.grid.shape)
    whole: Box = tuple((0, size - 1) for size in policy.grid.shape)
    count = itertools.count()
    waiting = [(*_best_cut(table, mass, whole, len(kinds)), next(count), whole)]
    done: list[Box] = []
    while waiting and len(waiting) + len(done) < leaves:
        gain, cut, _, box = heapq.heappop(waiting)
        if cut is None or gain >= 0:
            done.append(box)
            continue
        axis, at = cut
        first, last = box[axis]
        for part in ((first, at - 1), (at, last)):
            half = (*box[:axis], part, *box[axis + 1 :])
            heapq.heappush(waiting, (*_best_cut(table, mass, half, len(kinds)), next(count), half))
    boxes = done + [box for *_, box in waiting]
    merged = joined([(_bins(box), _common(table, mass, box, len(kinds))) for box in boxes])
    return _as_rules(merged, kinds, policy.grid.shape)


def _as_rules(leaves: list[tuple[tuple[tuple[int, ...], ...], int]], kinds: Any, shape: tuple[int, ...]) -> list[Rule]:
    """Convert leaves to rows; the most frequent action becomes a last row of `*`."""
    counts = np.bincount([code for _, code in leaves], minlength=len(kinds))
    common = int(np.argmax(counts))
    rows = [Rule(box, tuple(kinds[code].tolist())) for box, code in leaves if code != common]
    return [*rows, Rule(tuple(tuple(range(size)) for size in shape), tuple(kinds[common].tolist()))]


def _bins(box: Box) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(first, last + 1)) for first, last in box)


def _block(array: npt.NDArray[Any], box: Box) -> npt.NDArray[Any]:
    return array[tuple(slice(first, last + 1) for first, last in box)]


def _common(table: npt.NDArray[np.intp], mass: npt.NDArray[np.float64], box: Box, kinds: int) -> int:
    """Return the action of most visits of a box, or of most of its cells if it was never visited."""
    codes, weights = _block(table, box).reshape(-1), _block(mass, box).reshape(-1)
    counts = np.bincount(codes, weights if weights.any() else None, minlength=kinds)
    return int(np.argmax(counts))


def _best_cut(
    table: npt.NDArray[np.intp], mass: npt.NDArray[np.float64], box: Box, kinds: int
) -> tuple[float, tuple[int, int] | None]:
    """Return minus the gain of the best cut (Gini), its axis, and the first bin of the upper half."""
    codes, weights = _block(table, box), _block(mass, box)
    best: tuple[float, tuple[int, int] | None] = (0.0, None)
    for axis in range(codes.ndim):
        size = codes.shape[axis]
        if size == 1:
            continue
        lines, heavy = (np.moveaxis(a, axis, 0).reshape(size, -1) for a in (codes, weights))
        counts = np.stack([np.bincount(c, w, minlength=kinds) for c, w in zip(lines, heavy, strict=True)])
        low = np.cumsum(counts, axis=0)[:-1]
        gains = _purity(low) + _purity(counts.sum(axis=0) - low) - _purity(counts.sum(axis=0))
        at = int(np.argmax(gains))
        if -gains[at] < best[0] - 1e-9:
            best = (-float(gains[at]), (axis, box[axis][0] + at + 1))
    return best


def _purity(counts: npt.NDArray[Any]) -> Any:
    """Return the sum over actions of n_k^2/n: the visits less their Gini impurity."""
    total = counts.sum(axis=-1)
    return (counts**2).sum(axis=-1) / np.maximum(total, 1e-300)


# --- rows ------------------------------------------------------------------------------------------------------------


def _rules(contest: Contest) -> tuple[Rule, ...]:
    assert isinstance(contest.current, TablePolicy)
    return contest.current.rules


def _drop_rows(contest: Contest) -> None:
    """Remove rows, starting with those that decide the fewest visits."""
    changed = True
    while changed and not contest.exhausted:
        changed = False
        policy = contest.current
        assert isinstance(policy, TablePolicy)
        for i in _least_used(policy, contest.trajectories):
            rules = [rule for k, rule in enumerate(policy.rules) if k != i]
            if _covers(rules, policy.grid.shape) and _accept(contest, policy, visible(rules, policy.grid.shape)):
                changed = True
                break


def _covers(rules: Sequence[Rule], shape: tuple[int, ...]) -> bool:
    """Whether the last row covers everything; removal of rows requires it."""
    return bool(rules) and all(len(bins) == size for bins, size in zip(rules[-1].bins, shape, strict=True))


def _least_used(policy: TablePolicy, episodes: Sequence[Trajectory]) -> list[int]:
    visits, shape = _visits(policy, episodes).reshape(policy.grid.shape), policy.grid.shape
    left = np.ones(shape, np.bool_)
    uses = []
    for i, rule in enumerate(policy.rules):
        block = np.ix_(*rule.bins)
        uses.append((float(visits[block][left[block]].sum()), i))
        left[block] = False
    return [i for _, i in sorted(uses)]


def _join_rows(contest: Contest) -> None:
    """Join two rows with the same action into one."""
    changed = True
    while changed and not contest.exhausted:
        changed = False
        policy = contest.current
        assert isinstance(policy, TablePolicy)
        for i, k in itertools.islice(itertools.combinations(range(len(policy.rules)), 2), MOST_PAIRS):
            one, other = policy.rules[i], policy.rules[k]
            if one.action != other.action or k == len(policy.rules) - 1:
                continue
            both = Rule(tuple(tuple(sorted({*a, *b})) for a, b in zip(one.bins, other.bins, strict=True)), one.action)
            for at in (k, i):
                rules = [both if j == at else rule for j, rule in enumerate(policy.rules) if j == at or j not in (i, k)]
                if _accept(contest, policy, visible(rules, policy.grid.shape)):
                    changed = True
                    break
            if changed:
                break


def widen_rows(contest: Contest) -> None:
    """Widen rows to all bins of a quantity: shorter rows, and perhaps unused quantities or later rows."""
    for i, axis in itertools.product(range(len(_rules(contest))), range(len(_rules(contest)[0].bins))):
        policy = contest.current
        assert isinstance(policy, TablePolicy)
        if contest.exhausted or i >= len(policy.rules):
            return
        rule, size = policy.rules[i], policy.grid.shape[axis]
        for bins in _wider(rule.bins[axis], size):
            wider = Rule((*rule.bins[:axis], bins, *rule.bins[axis + 1 :]), rule.action)
            rules = [wider if k == i else other for k, other in enumerate(policy.rules)]
            if _accept(contest, policy, visible(rules, policy.grid.shape)):
                break


def _wider(bins: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """Yield all bins, or all bins up or down to the end: more bins in a shorter text."""
    if len(bins) < size:
        yield tuple(range(size))
        if bins[0] > 0 and bins[-1] < size - 1:
            yield tuple(range(bins[-1] + 1))
            yield tuple(range(bins[0], size))


def _drop_bins(contest: Contest) -> None:
    """Remove quantities and edges that no row needs, if the bins are the policy's own."""
    policy = contest.current
    assert isinstance(policy, TablePolicy)
    if policy.grid == policy.task.grid:
        return
    slim = without_idle_bins(policy)
    if slim.grid != policy.grid:
        contest.accepts(slim)


def without_idle_bins(policy: TablePolicy) -> TablePolicy:
    """Return a table with the same decisions, without quantities and edges that no row distinguishes."""
    dimensions: list[Dimension] = []
    columns: list[list[tuple[int, ...]]] = []
    for axis, dimension in enumerate(policy.grid.dimensions):
        asked = [set(rule.bins[axis]) for rule in policy.rules]
        kept = [i for i in range(len(dimension.edges)) if any((i in bins) != (i + 1 in bins) for bins in asked)]
        if not kept:
            continue
        dimensions.append(Dimension(dimension.name, tuple(dimension.edges[i] for i in kept)))
        first = [0, *(i + 1 for i in kept)]  # the first old bin of each new one
        columns.append([tuple(new for new, old in enumerate(first) if old in bins) for bins in asked])
    if not dimensions:  # a table needs at least one quantity
        return policy
    rules = tuple(Rule(bins, rule.action) for bins, rule in zip(zip(*columns, strict=True), policy.rules, strict=True))
    slim = TablePolicy(policy.task, policy.lets, Grid(tuple(dimensions)), rules, written=policy.written)
    needed = {name for name, _ in slim.reader.needed}
    return replace(slim, lets=tuple((name, node) for name, node in policy.lets if name in needed))
