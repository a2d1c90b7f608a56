"""Improve the entries of a table: `policy-iteration` where the MDP is known, `coordinate` elsewhere.

`coordinate` changes one entry at a time, and keeps a change that improves the return on the same episodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import improved_table
from policygen.errors import PolicyError
from policygen.policies.policy import Policy
from policygen.policies.shaping import Measure
from policygen.policies.table import TablePolicy
from policygen.runs.tuning import SEEDS_PER_GENERATION
from policygen.search.refine.tunable import Refined, Trials, is_choice_table
from policygen.tasks.task import Task

SWEEPS = 2  # over all entries
MIN_SEEDS = 5 * SEEDS_PER_GENERATION  # per comparison; if the budget allows fewer, changes are drawn at random
COMPARED = 8  # random changes compared at a time

Change = tuple[int, int, int]  # cell, actuator and new label
Round = tuple[int, list[Change]]  # index of a comparison's first seed, and single changes to the current table


def choosing_table(policy: Policy, method: str, measure: Measure | None) -> TablePolicy:
    """Return the policy; PolicyError unless it is a table of choices, and neither it nor the objective has memory."""
    if not is_choice_table(policy):
        raise PolicyError(f"{method} learns tables that choose among named actions; tune other policies by cma")
    if policy.remembers:
        raise PolicyError(f"{method} learns tables without memory; tune this one by cma or coordinate")
    if measure is not None and measure.remembers:
        raise PolicyError(
            f"{method} sees one step at a time, and the objective remembers {', '.join(measure.remembers)}: leave "
            "`prev(...)` out of it"
        )
    return policy


def choices_of(task: Task) -> tuple[int, ...]:
    """Return the number of labels of each actuator; 0 for a numeric one."""
    return tuple(len(actuator.labels) for actuator in task.actuators)


def entries_of(policy: TablePolicy) -> npt.NDArray[np.int64]:
    """Return each cell's action as an index into all combinations of the actuators' labels, shape (cells,)."""
    actions = np.asarray(policy.actions, np.int64).reshape(policy.grid.size, -1)
    return np.asarray(np.ravel_multi_index(tuple(actions.T), choices_of(policy.task)), np.int64)


def with_entries(policy: TablePolicy, entries: npt.NDArray[np.int64]) -> TablePolicy:
    """Return the table with other actions, given as indices like those of `entries_of`, shape (cells,)."""
    actions = np.stack(np.unravel_index(entries, choices_of(policy.task)), axis=1)
    return TablePolicy.from_actions(policy.task, actions, policy.grid, policy.lets, policy.comments)


def policy_iteration(policy: Policy, trials: Trials, rng_seed: int) -> Refined:
    """Improve the table until no change of a single entry improves it further; no episode is played.

    The better of two searches counts: one from the table, and one from the table that is best when half of the episodes
    start in any state (exploring starts), because cells without visits cannot improve.

    Raises PolicyError as `choosing_table` does, or if the MDP is unknown.
    """
    mdp, measure = trials.mdp, trials.measure
    table = choosing_table(policy, "policy-iteration", measure)
    if mdp is None:
        raise PolicyError(f"policy-iteration needs an environment that publishes its MDP; tune {table.task.name} by q")
    if measure is not None and measure.objective is not None:
        states, actions, _ = (index.ravel() for index in np.indices(mdp.rewards.shape))
        objectives = measure.objectives(states[:, None], actions, mdp.rewards.ravel())
        mdp = replace(mdp, rewards=objectives.reshape(mdp.rewards.shape))
    count, steps, proposed = len(mdp.start), table.task.max_steps, entries_of(table)
    cells = np.asarray(table.cells(np.arange(count).reshape(-1, 1)))
    exploring = replace(mdp, start=(mdp.start + 1 / count) / 2)
    explored, _ = improved_table(exploring, proposed, cells, steps)
    found = [improved_table(mdp, entries, cells, steps) for entries in (explored, proposed)]
    best = max(found, key=lambda one: one[1])[0]
    return Refined(with_entries(table, best), 0, "policy-iteration", table.grid.size)


def coordinate(policy: Policy, trials: Trials, rng_seed: int) -> Refined | None:
    """Change one entry at a time and keep improvements; None if nothing can change or the budget is too small.

    With enough episodes, all changes of all entries are tried in order, twice, the second time on other seeds.
    Otherwise random changes are compared, and the best one is kept.
    """
    if not isinstance(policy, TablePolicy):
        return None
    entries = np.array(policy.actions, np.int64).reshape(policy.grid.size, -1)
    counts = choices_of(policy.task)
    changes = policy.grid.size * sum(count - 1 for count in counts)
    if 0 in counts or not changes:
        return None

    def changes_of(cell: int) -> list[Change]:
        labels = [(actuator, label) for actuator, count in enumerate(counts) for label in range(count)]
        return [(cell, actuator, label) for actuator, label in labels if label != entries[cell, actuator]]

    def sweeps() -> Iterator[Round]:
        """Yield every change of every entry, one per round; `entries` may change between rounds."""
        for sweep in range(SWEEPS):
            for cell in range(len(entries)):
                for change in changes_of(cell):
                    yield sweep * seeds, [change]

    def draws() -> Iterator[Round]:
        """Yield changes of random cells, on new seeds each round, until the episodes are used."""
        rng = np.random.default_rng(rng_seed)
        for number in range(trials.episodes // ((COMPARED + 1) * SEEDS_PER_GENERATION)):
            found = [changes_of(int(cell)) for cell in rng.integers(len(entries), size=COMPARED)]
            drawn = [some[rng.permutation(len(some))[0]] for some in found]
            yield number * SEEDS_PER_GENERATION, drawn

    seeds = trials.episodes // (SWEEPS * (changes + 1))
    rounds, count = (sweeps(), seeds) if seeds >= MIN_SEEDS else (draws(), SEEDS_PER_GENERATION)
    current, current_score, played = policy, 0.0, 0
    scored_first = -1  # index of the first seed of `current_score`
    for first, tried in rounds:
        tables = [entries.copy() for _ in tried]
        for table, (cell, actuator, label) in zip(tables, tried, strict=True):
            table[cell, actuator] = label
        rest = (policy.grid, policy.lets, policy.comments)
        candidates = [TablePolicy.from_actions(policy.task, table, *rest) for table in tables]
        same_seeds = first == scored_first
        contenders = candidates if same_seeds else [current, *candidates]
        scores = trials.maximised(contenders, trials.seeds(first, count))[0].tolist()
        played, scored_first = played + len(contenders) * count, first
        current_score, *scores = [current_score, *scores] if same_seeds else scores
        if (best := max(scores)) > current_score:
            at = scores.index(best)
            current, current_score = candidates[at], best
            entries[:] = tables[at]
    return Refined(current, played, "coordinate", policy.grid.size) if played else None
