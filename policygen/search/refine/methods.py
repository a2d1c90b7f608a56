"""Tune a proposal: the model chooses its structure, a numerical search its numbers.

A search tunes the constants of a policy (coefficients, constants inside `let`, bin edges, the levels of a continuous
table) or the entries of a table of choices. The result is the same policy with other numbers, so the model can read it
as text.
"""

from __future__ import annotations

import importlib
from typing import Any

from policygen.episodes.exact import FiniteMDP
from policygen.errors import PolicyError
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.runs.attempt import TuningState
from policygen.runs.config import RefineMethod
from policygen.runs.tuning import method_for
from policygen.search.refine.cma import cma_es
from policygen.search.refine.model import tune_in_plant
from policygen.search.refine.tables import coordinate, policy_iteration
from policygen.search.refine.tunable import Refined, Trials, Tunable


def refine(
    policy: Policy,
    method: RefineMethod,
    trials: Trials,
    rng_seed: int,
    *,
    mdp: FiniteMDP | None = None,
    floor: float = 0.0,
    state: TuningState | None = None,
) -> Refined | None:
    """Tune a policy's numbers within a budget of episodes.

    Args:
        trials: plays the candidates on its seeds, within its budget.
        floor: least size of a constant outside features (`let`). The first change of a constant is proportional to its
            size. With a floor of 0, changes follow the units of the policy, and a weight of 0 stays 0.
        state: final state of an earlier search of the policy, from which `cma` continues; its floor replaces `floor`.

    Raises:
        PolicyError: the method does not support this policy or task.

    Returns:
        The tuned policy and the course of its tuning; None if there is nothing to tune or the budget is too small.
    """
    if method == "q":
        return _learn(policy, trials, rng_seed, mdp)
    tunable = Tunable(policy, state.floor if state is not None else floor)
    table = isinstance(policy, TablePolicy) and all(a.is_choice for a in policy.task.actuators)
    # If a table has constants (in its own features or bins), these are tuned and not its entries, unless the entries
    # can be improved exactly.
    exact = mdp is not None and not policy.remembers
    chosen = method_for(method, choices=table and (exact or tunable.size == 0), exact=exact)
    if chosen == "policy-iteration":
        return policy_iteration(policy, mdp, trials.measure)
    if chosen == "coordinate":
        return coordinate(policy, trials, rng_seed) if isinstance(policy, TablePolicy) else None
    if tunable.size == 0:
        return None
    if chosen == "model" and trials.seen and not policy.task.text_names:
        return tune_in_plant(policy, trials, rng_seed, floor=tunable.floor, state=state)
    return cma_es(tunable, trials, rng_seed, state)


def _learn(*arguments: Any) -> Refined | None:
    """Tune by Q-learning, an extension; raise PolicyError if it is missing."""
    try:
        learners = importlib.import_module("policygen.extensions.learners.q")
    except ModuleNotFoundError as error:
        raise PolicyError(f"q needs {error.name}, which this copy of policygen lacks; use coordinate") from None
    found: Refined | None = learners.q_learning(*arguments)
    return found
