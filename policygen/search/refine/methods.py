"""Tune a proposal: the model chooses its structure, a numerical search its numbers.

A search tunes the constants of a policy (coefficients, constants inside `let`, bin edges, the levels of a continuous
table) or the entries of a table of choices. The result is the same policy with other numbers, so the model can read it
as text.
"""

from __future__ import annotations

from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.runs.methods import METHODS
from policygen.runs.tuning import method_for
from policygen.search.refine.tunable import Refined, Trials


def refine(policy: Policy, method: str, trials: Trials, seed: int) -> Refined | None:
    """Tune a policy's numbers within a budget of episodes.

    Args:
        method: a name in `METHODS`, or `auto`.
        trials: plays the candidates on its seeds, within its budget.

    Raises:
        PolicyError: the method does not support this policy or task.

    Returns:
        The tuned policy and the course of its tuning; None if there is nothing to tune or the budget is too small.
    """
    table = isinstance(policy, TablePolicy) and all(a.is_choice for a in policy.task.actuators)
    # If a table has constants (in its own features or bins), these are tuned and not its entries, unless the entries
    # can be improved exactly.
    exact = trials.mdp is not None and not policy.remembers
    choices = table and (exact or trials.tunable(policy).size == 0)
    found: Refined | None = METHODS[method_for(method, choices=choices, exact=exact)](policy, trials, seed)
    return found
