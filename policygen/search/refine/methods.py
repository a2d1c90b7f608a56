"""Numerical search around a proposal: structure comes from the model, numbers from here.

What is tuned are the constants a policy is written with: coefficients, constants inside `let`, bin edges, the levels of
a continuous table; and, for a table of choices, its entries, one after the other, by learning or exactly.
The result is the same policy with other numbers, so it goes back to the model as text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policygen.episodes.exact import FiniteMDP
from policygen.policies.policy import Policy
from policygen.policies.shaping import Measure
from policygen.policies.table import TablePolicy
from policygen.runs.config import RefineMethod
from policygen.runs.state import TuningState
from policygen.runs.tuning import method_for
from policygen.search.refine.ars import ars
from policygen.search.refine.cma import cma_es
from policygen.search.refine.coordinate import coordinate
from policygen.search.refine.iteration import policy_iteration
from policygen.search.refine.q import check_forgetful, q_learning
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
        trials: who plays candidates, on which seeds, and how many episodes.
        floor: least size of a constant's first changes. 0 changes constants in proportion to their size, which keeps
            physical units apart, and leaves zeros alone. Above 0, the features (`let`) stay as they are.
        state: where an earlier search of the policy stopped, for `cma` to go on from; its floor comes first.

    Raises:
        PolicyError: the method is not for this policy or task.

    Returns:
        The tuned policy, or None where there is nothing to tune or too little budget for one generation.
    """
    if method == "q" or method == "sarsa":
        return q_learning(policy, method, trials, rng_seed, mdp)
    tunable = Tunable(policy, state.floor if state is not None else floor)
    table = isinstance(policy, TablePolicy) and all(a.is_choice for a in policy.task.actuators)
    # The entries of a table over features and bins of its own are structure, unless they can be improved exactly.
    exact = mdp is not None and not policy.remembers
    chosen = method_for(method, choices=table and (exact or tunable.size == 0), exact=exact, constants=tunable.size)
    if chosen == "policy-iteration":
        return policy_iteration(policy, _paying(trials.measure, mdp) if mdp is not None else None)
    if chosen == "coordinate":
        return coordinate(policy, trials, rng_seed) if isinstance(policy, TablePolicy) else None
    if tunable.size == 0:
        return None
    if chosen == "cma":
        return cma_es(tunable, trials, rng_seed, state)
    return ars(tunable, trials, rng_seed)


def _paying(measure: Measure | None, mdp: FiniteMDP) -> FiniteMDP:
    """The MDP with the objective, where there is one, in the place of its rewards.

    Raises:
        PolicyError: the objective remembers.
    """
    if measure is None or measure.objective is None:
        return mdp
    check_forgetful(measure, "exact improvement")
    states, actions, _ = (index.ravel() for index in np.indices(mdp.rewards.shape))
    objectives = measure.objectives(states[:, None], actions, mdp.rewards.ravel())
    return replace(mdp, rewards=objectives.reshape(mdp.rewards.shape))
