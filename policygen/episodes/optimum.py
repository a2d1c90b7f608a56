"""The most that a finite, known MDP has to give, and a table that comes closest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import FiniteMDP

REACHED = 1e-9  # difference of expected returns that is rounding
MOST_TRIED = 1_000  # changes of a table that are played through before it counts as one that none improves


@dataclass(frozen=True, eq=False)
class BestReturn:
    """What is the most that any policy can expect of a finite, known MDP within the step limit.

    Attributes:
        value: the optimum over all policies, also those that count the steps.
        by_table: the best expected return found for a table, which does not know how many steps are left; equal to
            `value` where a table reaches it, and otherwise a local optimum that no change of one entry improves.
        actions: that table, shape (states,).
    """

    value: float
    by_table: float
    actions: npt.NDArray[np.int64]

    @property
    def table_reaches_it(self) -> bool:
        """Whether a table gets as much as a policy that knows how many steps are left."""
        return self.by_table >= self.value - REACHED


def best_return(mdp: FiniteMDP, max_steps: int) -> BestReturn:
    """The best possible expected return of an episode of at most `max_steps` steps, and a table that comes closest.

    The value is found by backward induction over the steps that are left (Bellman 1957). The table starts from the
    actions that are best with most steps left, and then changes single entries as long as the return grows.
    """
    value = np.zeros(len(mdp.start))
    choices = np.zeros(len(mdp.start), np.int64)
    for _ in range(max_steps):
        gains = (mdp.probabilities * (mdp.rewards + mdp.going_on * value[mdp.next_states])).sum(axis=2)
        # Of equals the action stays that was best with fewer steps left: ties must not make a table wander.
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
    """A table that no change of one entry improves, and its expected return; done as soon as that is `enough`.

    The most promising changes are tried first, and at most `MOST_TRIED` of them in vain.
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
    """The expected return within the step limit of the table `actions`, shape (states,)."""
    states = np.arange(len(mdp.start))
    after, p = mdp.next_states[states, actions], mdp.probabilities[states, actions]
    reward, going = (p * mdp.rewards[states, actions]).sum(axis=1), p * mdp.going_on[states, actions]
    value = np.zeros(len(states))
    for _ in range(max_steps):
        value = reward + np.vecdot(going, value[after])
    return float(mdp.start @ value)


def promises(mdp: FiniteMDP, actions: npt.NDArray[np.int64], max_steps: int) -> tuple[float, npt.NDArray[np.float64]]:
    """A table's expected return, and what each other action promises, summed over the steps: shape (states, actions).

    The promise is the policy gradient of the return in the direction of the other action (Sutton et al. 2000): how
    often the state is met at a step times the advantage that the action has there.
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
