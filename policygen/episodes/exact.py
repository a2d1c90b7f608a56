"""Finite, known MDPs: transitions, a policy's exact expected return, the optimum, and sampled episodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from policygen.episodes.play import Array, Copies, Flags, StepOutput, replaced, steps
from policygen.episodes.score import ROUNDING, Score
from policygen.episodes.trajectory import Actor
from policygen.policies.policy import Policy
from policygen.tasks.environments import BorrowedEnv, CountedEnv, opened
from policygen.tasks.faults import wrappers_of
from policygen.tasks.task import Task

MAX_EXACT_STATES = 10_000
MOST_SIMULTANEOUS = 2_048  # sampled episodes
MOST_TRIED = 1_000  # changes of one entry that are tried before a table counts as a local optimum


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """The transitions of an environment that publishes them in `env.unwrapped.P`, such as Gymnasium's toy-text ones.

    Attributes:
        next_states, probabilities, rewards: shape (states, actions, branches), padded with probability 0.
        continues: the same shape; 1.0 where the episode continues after the branch, else 0.0.
        start: the distribution of the initial state, shape (states,).
    """

    next_states: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float64]
    rewards: npt.NDArray[np.float64]
    continues: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]

    def chain_of(self, actions: npt.NDArray[np.integer[Any]], states: Any = None) -> FiniteMDP:
        """Return the Markov chain of the actions in `states`, by default in all; its arrays have no action axis."""
        pairs = np.arange(len(self.start)) if states is None else states, actions
        probabilities, rewards, continues = (x[pairs] for x in (self.probabilities, self.rewards, self.continues))
        return FiniteMDP(self.next_states[pairs], probabilities, rewards, continues, self.start)

    def action_values(self, value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Compute the expected return of each action in each state, given the `value` of each next state."""
        after = self.rewards + self.continues * value[self.next_states]
        return np.asarray((self.probabilities * after).sum(axis=2))


def finite_mdp(task: Task) -> FiniteMDP | None:
    """Return the task's MDP; None unless it is finite and known."""
    with opened(task) as env, suppress(Exception):  # the environment's `P` is not a table of transitions
        return _mdp_of(env)
    return None


def _mdp_of(env: gym.Env[Any, Any]) -> FiniteMDP | None:
    table, start = (getattr(env.unwrapped, name, None) for name in ("P", "initial_state_distrib"))
    space, actions = env.observation_space, env.action_space
    # Other wrappers may change observations, actions or rewards, which would make `P` wrong.
    plain = (TimeLimit, OrderEnforcing, PassiveEnvChecker, CountedEnv)
    is_plain = all(type(wrapper) in plain or isinstance(wrapper, BorrowedEnv) for wrapper in wrappers_of(env))
    if not is_plain or not isinstance(table, dict) or start is None:
        return None
    if not isinstance(space, gym.spaces.Discrete) or not isinstance(actions, gym.spaces.Discrete):
        return None
    if getattr(env.unwrapped, "fickle_passenger", False):  # `P` omits that Taxi's destination may change
        return None
    n, m = int(space.n), int(actions.n)
    if n > MAX_EXACT_STATES or int(space.start) or len(table) != n or len(start) != n:
        return None
    branches = max(len(table[s][a]) for s in range(n) for a in range(m))
    shape = (n, m, branches)
    next_states, probabilities = np.zeros(shape, np.int64), np.zeros(shape)
    rewards, continues = np.zeros(shape), np.zeros(shape)
    for s in range(n):
        for a in range(m):
            for k, (probability, after, reward, ended) in enumerate(table[s][a]):
                next_states[s, a, k], probabilities[s, a, k] = after, probability
                rewards[s, a, k], continues[s, a, k] = reward, not ended
    start = np.asarray(start, np.float64)
    # If the numbers are not an MDP, a score would be wrong and yet called exact.
    finite = all(np.isfinite(part).all() for part in (probabilities, rewards, start))
    inside = (next_states >= 0).all() and (next_states < n).all()
    sums = np.allclose(probabilities.sum(axis=2), 1, atol=1e-6) and np.isclose(start.sum(), 1, atol=1e-6)
    if not (finite and inside and sums and (probabilities >= 0).all() and (start >= 0).all()):
        return None
    return FiniteMDP(next_states, probabilities, rewards, continues, start)


def _chain_with_memory(policy: Policy, mdp: FiniteMDP, max_steps: int) -> FiniteMDP | None:
    """Return the Markov chain over reachable pairs of state and memory; None if there are too many."""
    first = np.flatnonzero(mdp.start)
    number = {(state, policy.start(1)[0].tobytes()): i for i, state in enumerate(first.tolist())}
    actions = list[int]()
    after = list[list[int]]()
    for _ in range(max_steps):
        new = list(number)[len(after) :]
        if not new:
            break
        if len(number) > MAX_EXACT_STATES:
            return None
        memory = np.array([np.frombuffer(row) for _, row in new])  # `act` updates it
        chosen = policy.act(np.array([[state] for state, _ in new]), memory).tolist()
        for (state, _), action, row in zip(new, chosen, memory, strict=True):
            possible = mdp.probabilities[state, action] * mdp.continues[state, action] > 0
            following = zip(mdp.next_states[state, action].tolist(), possible, strict=True)
            after.append([number.setdefault((s, row.tobytes()), len(number)) if on else 0 for s, on in following])
        actions += chosen
    # Pairs met only at the last step have no action and no successors: these no longer change the return.
    lacking = len(number) - len(after)
    start = np.zeros(len(number))
    start[: len(first)] = mdp.start[first]
    chain = mdp.chain_of(np.pad(actions, (0, lacking)), np.array([state for state, _ in number]))
    return replace(chain, next_states=np.pad(after, ((0, lacking), (0, 0))), start=start)


def exact_score(policy: Policy, mdp: FiniteMDP, max_steps: int | None = None) -> Score | None:
    """Compute mean and standard deviation of the undiscounted return within the step limit, without sampling.

    The limit is that of the policy's own task unless `max_steps` is given. Returns None for a policy with memory if it
    has more than `MAX_EXACT_STATES` pairs of state and memory.

    The method is backward recursion over the remaining steps, for the first and second moment of the return:
    V'(s) = E[r + V(s')] and M'(s) = E[r^2 + 2 r V(s') + M(s')], with V = M = 0 after the end of an episode
    (Sobel 1982, "The variance of discounted Markov decision processes").
    """
    steps = max_steps or policy.task.max_steps
    states = np.arange(len(mdp.start)).reshape(-1, 1)
    chain = _chain_with_memory(policy, mdp, steps) if policy.remembers else mdp.chain_of(policy.act(states))
    if chain is None:
        return None
    n, after, p, r = len(chain.start), chain.next_states, chain.probabilities, chain.rewards
    # Both moments form one vector of 2 n numbers, so that a step is one gather and one sum of products: with few
    # states, the number of calls determines the time. V depends on V alone, so its weights of M are 0.
    read = np.concatenate([np.hstack([after, after]), np.hstack([after, after + n])])
    going = p * chain.continues
    weights = np.concatenate([np.hstack([going, np.zeros_like(p)]), np.hstack([2 * r * going, going])])
    constant = np.concatenate([(p * r).sum(axis=1), (p * r * r).sum(axis=1)])
    moments = np.zeros(2 * n)
    for _ in range(steps):
        moments = np.vecdot(weights, moments[read])
        moments += constant
    value, square = moments[:n], moments[n:]
    mean = float(chain.start @ value)
    variance = float(chain.start @ square) - mean * mean
    return Score(mean, math.sqrt(max(variance, 0.0)), (mean, mean), True, "exact")


# --- the optimum ------------------------------------------------------------------------------------------------------


def best_return(mdp: FiniteMDP, max_steps: int) -> tuple[float, float, npt.NDArray[np.int64]]:
    """Compute the best expected return of an episode of at most `max_steps` steps, and a table close to it.

    Returns:
        The optimum over all policies, including those that count steps, by backward induction over the remaining steps
        (Bellman 1957); the best expected return found for a table, which cannot count steps; and that table's actions,
        shape (states,). The search for it starts from the actions that are best with most steps left, and uses
        `improved_table`.
    """
    value = np.zeros(len(mdp.start))
    choices = np.zeros(len(mdp.start), np.int64)
    for _ in range(max_steps):
        gains = mdp.action_values(value)
        # On a tie, keep the action that was best with fewer steps left; otherwise the table could alternate.
        states = np.arange(len(gains))
        is_better = gains.max(axis=1) > gains[states, choices] + 1e-12
        choices = np.where(is_better, gains.argmax(axis=1), choices)
        value = gains.max(axis=1)
    best = float(mdp.start @ value)
    table, reached = improved_table(mdp, choices, np.arange(len(choices)), max_steps, best)
    return best, reached, table


def improved_table(
    mdp: FiniteMDP,
    entries: npt.NDArray[np.int64],
    cells: npt.NDArray[np.integer[Any]],
    max_steps: int,
    enough: float = math.inf,
) -> tuple[npt.NDArray[np.int64], float]:
    """Improve a table until no change helps, or its expected return is `enough`; return it and its expected return.

    This is policy iteration (Howard 1960) for the undiscounted return within the step limit: every cell takes the
    action of highest advantage, weighted by the visits to the cell's states. Under a step limit, or if a cell has
    several states, that can make the table worse. Then one entry changes at a time, the highest advantage first, until
    `MOST_TRIED` changes, or all of them, have failed.

    Args:
        entries: the action of each cell, shape (cells,).
        cells: the cell of each state, shape (states,).
    """
    while True:
        reached, by_state = weighted_advantages(mdp, entries[cells], max_steps)
        if reached >= enough - ROUNDING:
            return entries, reached
        advantage = np.zeros((len(entries), by_state.shape[1]))
        np.add.at(advantage, cells, by_state)
        for changed in _changes(entries, advantage):
            if expected_return(mdp, changed[cells], max_steps) > reached + 1e-12:
                entries = changed
                break
        else:
            return entries, reached


def _changes(entries: npt.NDArray[np.int64], advantage: npt.NDArray[np.float64]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield a table with all promising changes, then tables with one changed entry each."""
    improvable = advantage.max(axis=1) > 1e-12
    if improvable.any():
        yield np.where(improvable, advantage.argmax(axis=1), entries)
    for pair in np.argsort(-advantage, axis=None, kind="stable")[:MOST_TRIED].tolist():
        cell, action = divmod(pair, advantage.shape[1])
        if action != entries[cell]:
            changed = entries.copy()
            changed[cell] = action
            yield changed


def expected_return(mdp: FiniteMDP, actions: npt.NDArray[np.int64], max_steps: int) -> float:
    """Compute the expected return, within the step limit, of a table of actions, shape (states,)."""
    chain = mdp.chain_of(actions)
    reward, going = (chain.probabilities * chain.rewards).sum(axis=1), chain.probabilities * chain.continues
    value = np.zeros(len(chain.start))
    for _ in range(max_steps):
        value = reward + np.vecdot(going, value[chain.next_states])
    return float(chain.start @ value)


def weighted_advantages(
    mdp: FiniteMDP, actions: npt.NDArray[np.int64], max_steps: int
) -> tuple[float, npt.NDArray[np.float64]]:
    """Compute a table's expected return, and the weighted advantage of each action: shape (states, actions).

    It is the policy gradient towards the action (Sutton et al. 2000): the probability of the state times the action's
    advantage there, summed over the steps.
    """
    states = np.arange(len(mdp.start))
    values = [np.zeros(len(states))]
    gains = []
    for _ in range(max_steps):
        gains.append(mdp.action_values(values[-1]))
        values.append(gains[-1][states, actions])
    chain = mdp.chain_of(actions)
    going = chain.probabilities * chain.continues
    occupancy: npt.NDArray[Any] = mdp.start.copy()
    advantage = np.zeros(gains[0].shape)
    for gain, value in zip(reversed(gains), reversed(values[1:]), strict=True):
        advantage += occupancy[:, None] * (gain - value[:, None])
        occupancy = np.bincount(chain.next_states.ravel(), (occupancy[:, None] * going).ravel(), minlength=len(states))
    return float(mdp.start @ values[-1]), advantage


# --- sampled episodes -------------------------------------------------------------------------------------------------


class Sampler(Copies):
    """Samples episodes of at most `max_steps` steps from an MDP; a copy is a state, and its observation too."""

    engine: ClassVar[str] = "sampled"
    max_copies = MOST_SIMULTANEOUS
    renews: ClassVar[bool] = True

    def __init__(self, mdp: FiniteMDP, max_steps: int) -> None:
        self._limit = max_steps
        self._actions, branches = mdp.probabilities.shape[1:]
        # The last possible branch gets the rest, because probabilities may add up to 0.999999.
        cumulative = np.cumsum(mdp.probabilities, axis=2).reshape(-1, branches)
        left = np.cumsum(mdp.probabilities[:, :, ::-1], axis=2)[:, :, ::-1].reshape(-1, branches)
        self._thresholds = [np.where(left[:, k + 1] > 0, cumulative[:, k], np.inf) for k in range(branches - 1)]
        self._branches = branches
        self._next, self._rewards = mdp.next_states.ravel(), mdp.rewards.ravel()
        self._ends = mdp.continues.ravel() == 0
        self._start = np.cumsum(mdp.start)

    def play(self, actor: Actor, seeds: Sequence[int]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Play one episode per seed; return their undiscounted returns and their lengths, each of shape (seeds,).

        One generator, seeded with all the seeds in order, draws all episodes.
        """
        self._rng = np.random.default_rng(list(map(int, seeds)))
        returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
        for step in steps(self, actor.begin(len(seeds)), seeds):
            returns[step.indices] += step.rewards
            lengths[step.indices] += 1
        return returns, lengths

    def begin(self, seeds: Sequence[int], /) -> Array:
        """Draw the initial states; see `Copies`."""
        self._states = self._starts(self._rng.random(len(seeds)))
        self._left = np.full(len(seeds), self._limit)
        return self._states[:, None]

    def step(self, actions: Array, /) -> StepOutput:
        """Draw a transition for every copy; see `Copies`."""
        pairs = self._states * self._actions + actions
        branch = pairs * self._branches
        if self._thresholds:
            drawn = self._rng.random(len(pairs))
            for threshold in self._thresholds:
                branch += drawn >= threshold[pairs]
        self._states, self._left = self._next[branch], self._left - 1
        return self._states[:, None], self._rewards[branch], self._ends[branch], self._left == 0

    def replace(self, ended: Flags, seeds: Sequence[int], /) -> Array:
        """Draw the initial states of the next episodes; see `Copies`."""
        self._states = replaced(self._states, ended, self._starts(self._rng.random(len(seeds))))
        self._left = replaced(self._left, ended, np.full(len(seeds), self._limit))
        return self._states[:, None]

    def _starts(self, drawn: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        places: npt.NDArray[np.int64] = np.searchsorted(self._start, drawn * self._start[-1], side="right")
        places[places == len(self._start)] = len(self._start) - 1  # rounding
        return places
