"""The optimal return of a finite, known MDP, and the best table found for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import FiniteMDP

REACHED = 1e-9  # a smaller difference of expected returns is rounding
MOST_TRIED = 1_000  # failed changes of a table after which it counts as a local optimum


@dataclass(frozen=True, eq=False)
class BestReturn:
    """The best expected return of a finite, known MDP within the step limit.

    Attributes:
        value: the optimum over all policies, including those that count steps.
        by_table: the best expected return found for a table, which cannot count steps; equal to `value` if a table
            reaches it, else a local optimum that no change of one entry improves.
        actions: that table, shape (states,).
    """

    value: float
    by_table: float
    actions: npt.NDArray[np.int64]

    @property
    def table_reaches_it(self) -> bool:
        """Whether a table reaches the optimum of policies that count steps."""
        return self.by_table >= self.value - REACHED


def best_return(mdp: FiniteMDP, max_steps: int) -> BestReturn:
    """Compute the best expected return of an episode of at most `max_steps` steps, and a table close to it.

    The value comes from backward induction over the remaining steps (Bellman 1957). The table starts from the actions
    that are best with most steps left; then single entries change as long as the return grows.
    """
    value = np.zeros(len(mdp.start))
    choices = np.zeros(len(mdp.start), np.int64)
    for _ in range(max_steps):
        gains = (mdp.probabilities * (mdp.rewards + mdp.going_on * value[mdp.next_states])).sum(axis=2)
        # Ties keep the action that was best with fewer steps left, so that the table does not wander.
        states = np.arange(len(gains))
        ahead = gains.max(axis=1) > gains[states, choices] + 1e-12
        choices = np.where(ahead, gains.argmax(axis=1), choices)
        value = gains.max(axis=1)
    best = float(mdp.start @ value)
    choices, reached = _improved_table(mdp, choices, max_steps, best)
    return BestReturn(best, reached, choices)


def _improved_table(
    mdp: FiniteMDP, actions: npt.NDArray[np.int64], max_steps: int, enough: float
) -> tuple[npt.NDArray[np.int64], float]:
    """Improve a table until no change of one entry helps, or its expected return is `enough`; return both.

    The most promising changes are tried first; the search ends after `MOST_TRIED` failures.
    """
    reached, promise = promises(mdp, actions, max_steps)
    improved = True
    while improved and reached < enough - REACHED:
        improved = False
        for pair in np.argsort(-promise, axis=None, kind="stable")[:MOST_TRIED].tolist():
            state, action = divmod(pair, promise.shape[1])
            changed = actions.copy()
            changed[state] = action
            if expected_return(mdp, changed, max_steps) > reached + 1e-12:
                actions, improved = changed, True
                reached, promise = promises(mdp, actions, max_steps)
                break
    return actions, reached


def expected_return(mdp: FiniteMDP, actions: npt.NDArray[np.int64], max_steps: int) -> float:
    """Compute the expected return within the step limit of the table `actions`, shape (states,)."""
    states = np.arange(len(mdp.start))
    after, p = mdp.next_states[states, actions], mdp.probabilities[states, actions]
    reward, going = (p * mdp.rewards[states, actions]).sum(axis=1), p * mdp.going_on[states, actions]
    value = np.zeros(len(states))
    for _ in range(max_steps):
        value = reward + np.vecdot(going, value[after])
    return float(mdp.start @ value)


def promises(mdp: FiniteMDP, actions: npt.NDArray[np.int64], max_steps: int) -> tuple[float, npt.NDArray[np.float64]]:
    """Compute a table's expected return, and the promise of each other action: shape (states, actions).

    The promise is the policy gradient towards the other action (Sutton et al. 2000): the probability of the state
    times the action's advantage there, summed over the steps.
    """
    states = np.arange(len(mdp.start))
    values = [np.zeros(len(states))]
    gains = []
    for _ in range(max_steps):
        gains.append((mdp.probabilities * (mdp.rewards + mdp.going_on * values[-1][mdp.next_states])).sum(axis=2))
        values.append(gains[-1][states, actions])
    after, going = mdp.next_states[states, actions], (mdp.probabilities * mdp.going_on)[states, actions]
    met: npt.NDArray[Any] = mdp.start.copy()
    promise = np.zeros(gains[0].shape)
    for gain, value in zip(reversed(gains), reversed(values[1:]), strict=True):
        promise += met[:, None] * (gain - value[:, None])
        met = np.bincount(after.ravel(), (met[:, None] * going).ravel(), minlength=len(states))
    return float(mdp.start @ values[-1]), promise
