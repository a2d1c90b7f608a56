"""`policy-iteration`: improve a table exactly, if the MDP is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policygen.episodes.exact import FiniteMDP, improved_table
from policygen.errors import PolicyError
from policygen.policies.policy import Policy
from policygen.search.refine.learner_actor import cell_view, entries_of, with_entries
from policygen.search.refine.q import choosing_table
from policygen.search.refine.tunable import Refined


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
