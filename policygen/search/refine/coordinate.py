"""`coordinate`: one table entry at a time, exactly where the MDP is known, else on paired seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from policygen.episodes.exact import FiniteMDP, exact_score
from policygen.policies.table import TablePolicy
from policygen.runs.tuning import SEEDS_PER_GENERATION
from policygen.search.refine.tunable import Refined, Trials, Vector

SWEEPS = 2  # over all entries of a table, where the episodes suffice ...
ENOUGH_SEEDS = 5 * SEEDS_PER_GENERATION  # ... for so many seeds a comparison


def coordinate(policy: TablePolicy, trials: Trials, rng_seed: int, mdp: FiniteMDP | None) -> Refined | None:
    """Change one entry at a time and keep what helps; exact scores cost no episodes."""
    dense = np.asarray(policy.actions, np.float64).reshape(policy.grid.size, -1)
    counts = [len(actuator.labels) for actuator in policy.task.actuators]
    if 0 in counts:
        return None
    rng = np.random.default_rng(rng_seed)
    current, played, number = policy, 0, 0
    exact = exact_score(policy, mdp) if mdp is not None else None
    if mdp is not None and exact is not None:
        best = exact.mean
        improved = True
        while improved:
            improved = False
            for cell in range(policy.grid.size):
                for changed in _changed_entries(dense, cell, counts):
                    candidate = TablePolicy.from_actions(policy.task, changed, policy.grid, policy.lets)
                    score = exact_score(candidate, mdp)
                    if score is not None and score.mean > best + 1e-12:
                        current, dense, best, improved = candidate, changed, score.mean, True
        return Refined(current, 0, "coordinate", policy.grid.size)
    entries = policy.grid.size * sum(count - 1 for count in counts)
    if (seeds := trials.episodes // (SWEEPS * (entries + 1))) >= ENOUGH_SEEDS:
        return _swept(policy, dense, counts, trials, seeds)
    tested = 8  # candidates side by side, each one entry away from the current table, on the same seeds as it
    while played + (tested + 1) * SEEDS_PER_GENERATION <= trials.episodes:
        cells = rng.integers(policy.grid.size, size=tested)
        tables = [rng.permutation(list(_changed_entries(dense, int(c), counts)))[0] for c in cells]
        candidates = [TablePolicy.from_actions(policy.task, table, policy.grid, policy.lets) for table in tables]
        shared = trials.seeds(number * SEEDS_PER_GENERATION, SEEDS_PER_GENERATION)
        scores = trials.climbed([current, *candidates], shared)
        played += (tested + 1) * SEEDS_PER_GENERATION
        number += 1
        winner = int(np.argmax(scores))
        if winner > 0 and scores[winner] > scores[0]:
            current, dense = candidates[winner - 1], tables[winner - 1]
    return Refined(current, played, "coordinate", policy.grid.size) if played else None


def _swept(policy: TablePolicy, dense: Vector, counts: Sequence[int], trials: Trials, seeds: int) -> Refined:
    """Try every change of every entry on many seeds and keep what does better on the same; each sweep takes others."""
    current, played = policy, 0
    for sweep in range(SWEEPS):
        shared = trials.seeds(sweep * seeds, seeds)
        best, played = float(trials.climbed([current], shared)[0]), played + seeds
        for cell in range(policy.grid.size):
            for changed in _changed_entries(dense.copy(), cell, counts):
                candidate = TablePolicy.from_actions(policy.task, changed, policy.grid, policy.lets)
                score, played = float(trials.climbed([candidate], shared)[0]), played + seeds
                if score > best:
                    current, dense, best = candidate, changed, score
    return Refined(current, played, "coordinate", policy.grid.size)


def _changed_entries(dense: Vector, cell: int, counts: Sequence[int]) -> Iterator[Vector]:
    """Every table that differs from `dense` in one entry of one cell."""
    for actuator, count in enumerate(counts):
        for action in range(count):
            if action != dense[cell, actuator]:
                changed = dense.copy()
                changed[cell, actuator] = action
                yield changed
