"""`policy-iteration`: improve a table exactly, if the MDP is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import MOST_TRIED, FiniteMDP, expected_return, weighted_advantages
from policygen.errors import PolicyError
from policygen.policies.policy import Policy
from policygen.search.refine.lessons import cell_view, entries_of, with_entries
from policygen.search.refine.q import choosing_table
from policygen.search.refine.tunable import Refined


def policy_iteration(policy: Policy, mdp: FiniteMDP | None) -> Refined:
    """Improve the table until no change of one entry improves it further; no episode is played.

    Policy iteration (Howard 1960) for the undiscounted return within the step limit: every cell takes the action of
    highest advantage, weighted by the visits to the cell's states. A step limit, or a cell with several states, can
    make the table worse; then one entry changes at a time, the highest advantage first. Two searches are compared: one
    from the table, and one from the table that is best when half of the episodes start in any state (exploring
    starts), because cells without visits cannot improve.

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
    explored, _ = _improved(exploring, proposed, cells, steps)
    found = [_improved(mdp, entries, cells, steps) for entries in (explored, proposed)]
    best = max(found, key=lambda one: one[1])[0]
    return Refined(with_entries(table, best), 0, "policy-iteration", view.cells)


def _improved(
    mdp: FiniteMDP, entries: npt.NDArray[np.int64], cells: npt.NDArray[np.integer[Any]], steps: int
) -> tuple[npt.NDArray[np.int64], float]:
    """Improve entries until no single change helps; return them and their expected return."""
    while True:
        reached, by_state = weighted_advantages(mdp, entries[cells], steps)
        advantage = np.zeros((len(entries), by_state.shape[1]))
        np.add.at(advantage, cells, by_state)
        improvable = advantage.max(axis=1) > 1e-12
        for changed in _changes(entries, advantage, improvable):
            if expected_return(mdp, changed[cells], steps) > reached + 1e-12:
                entries = changed
                break
        else:
            return entries, reached


def _changes(
    entries: npt.NDArray[np.int64], advantage: npt.NDArray[np.float64], improvable: npt.NDArray[np.bool_]
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield all promising changes at once, then one entry at a time."""
    if improvable.any():
        yield np.where(improvable, advantage.argmax(axis=1), entries)
    for pair in np.argsort(-advantage, axis=None, kind="stable")[:MOST_TRIED].tolist():
        cell, action = divmod(pair, advantage.shape[1])
        if action != entries[cell]:
            changed = entries.copy()
            changed[cell] = action
            yield changed
