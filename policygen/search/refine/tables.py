"""Improve the entries of a table: `policy-iteration` where the MDP is known, `coordinate` elsewhere.

`coordinate` changes one entry at a time, and keeps a change that improves the return on the same episodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import FiniteMDP, improved_table
from policygen.errors import PolicyError
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.runs.tuning import SEEDS_PER_GENERATION
from policygen.search.refine.learner_actor import cell_view, entries_of, with_entries
from policygen.search.refine.q import choosing_table
from policygen.search.refine.tunable import Refined, Trials

SWEEPS = 2  # over all entries, if the budget allows this number of seeds per comparison:
ENOUGH_SEEDS = 5 * SEEDS_PER_GENERATION
COMPARED = 8  # random changes compared at a time otherwise

Entries = npt.NDArray[np.int64]  # of a table, shape (cells, actuators): indices of labels
Change = tuple[int, int, int]  # cell, actuator and new label


def policy_iteration(policy: Policy, mdp: FiniteMDP | None) -> Refined:
    """Improve the table until no change of one entry improves it further; no episode is played.

    Two searches by `improved_table` are compared: one from the table, and one from the table that is best when half of
    the episodes start in any state (exploring starts), because cells without visits cannot improve.

    Raises:
        PolicyError: the policy is not a table of choices, it has memory, or the MDP is unknown.
    """
    table = choosing_table(policy, "policy-iteration")
    if mdp is None:
        raise PolicyError(f"policy-iteration needs an environment that publishes its MDP; tune {table.task.name} by q")
    states, steps = len(mdp.start), table.task.max_steps
    view = cell_view(table, states)
    cells = np.asarray(view.read(np.arange(states).reshape(-1, 1)))
    exploring = replace(mdp, start=(mdp.start + 1 / states) / 2)
    proposed = entries_of(table)
    explored, _ = improved_table(exploring, proposed, cells, steps)
    found = [improved_table(mdp, entries, cells, steps) for entries in (explored, proposed)]
    best = max(found, key=lambda one: one[1])[0]
    return Refined(with_entries(table, best), 0, "policy-iteration", view.cells)


@dataclass(frozen=True, slots=True)
class _Round:
    """Single changes, each compared with the current table on `count` seeds from number `first` on."""

    first: int
    count: int
    changes: Sequence[Change]


def coordinate(policy: TablePolicy, trials: Trials, rng_seed: int) -> Refined | None:
    """Change one entry at a time and keep improvements; None if nothing can change or the budget is too small.

    With enough episodes, all changes of all entries are tried in order, twice, the second time on other seeds.
    Otherwise random changes are compared, and the best is kept.
    """
    entries = np.array(policy.actions, np.int64).reshape(policy.grid.size, -1)
    counts = [len(actuator.labels) for actuator in policy.task.actuators]
    changes = policy.grid.size * sum(count - 1 for count in counts)
    if 0 in counts or not changes:
        return None
    seeds = trials.episodes // (SWEEPS * (changes + 1))
    if seeds >= ENOUGH_SEEDS:
        rounds = _sweeps(entries, counts, seeds)
    else:
        rounds = _draws(entries, counts, trials.episodes, np.random.default_rng(rng_seed))
    current, current_score, shared, played = policy, 0.0, -1, 0
    for one in rounds:
        tables = [_changed(entries, change) for change in one.changes]
        rest = (policy.grid, policy.lets, policy.written)
        candidates = [TablePolicy.from_actions(policy.task, table, *rest) for table in tables]
        same_seeds = one.first == shared
        contenders = candidates if same_seeds else [current, *candidates]
        scores = trials.maximised(contenders, trials.seeds(one.first, one.count)).tolist()
        played, shared = played + len(contenders) * one.count, one.first
        current_score, *scores = [current_score, *scores] if same_seeds else scores
        if (best := max(scores)) > current_score:
            at = scores.index(best)
            current, current_score = candidates[at], best
            entries[:] = tables[at]
    return Refined(current, played, "coordinate", policy.grid.size) if played else None


def _sweeps(entries: Entries, counts: Sequence[int], seeds: int) -> Iterator[_Round]:
    """Yield every change of every entry, one per round; `entries` may change in between."""
    for sweep in range(SWEEPS):
        for cell in range(len(entries)):
            for change in _changes(entries, counts, cell):
                yield _Round(sweep * seeds, seeds, [change])


def _draws(entries: Entries, counts: Sequence[int], episodes: int, rng: np.random.Generator) -> Iterator[_Round]:
    """Yield changes of random cells, on new seeds each round, until the episodes are used."""
    for number in range(episodes // ((COMPARED + 1) * SEEDS_PER_GENERATION)):
        found = [_changes(entries, counts, int(cell)) for cell in rng.integers(len(entries), size=COMPARED)]
        drawn = [changes[rng.permutation(len(changes))[0]] for changes in found]
        yield _Round(number * SEEDS_PER_GENERATION, SEEDS_PER_GENERATION, drawn)


def _changes(entries: Entries, counts: Sequence[int], cell: int) -> list[Change]:
    return [
        (cell, actuator, label)
        for actuator, count in enumerate(counts)
        for label in range(count)
        if label != entries[cell, actuator]
    ]


def _changed(entries: Entries, change: Change) -> Entries:
    cell, actuator, label = change
    table = entries.copy()
    table[cell, actuator] = label
    return table
