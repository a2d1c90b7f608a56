"""Finite, known MDPs: their transitions, and a policy's expected return without sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from policygen.episodes.score import Score
from policygen.policies.policy import Policy
from policygen.tasks.environments import make_env
from policygen.tasks.faults import close
from policygen.tasks.task import Task
from policygen.tasks.user_env import BorrowedEnv

MAX_EXACT_STATES = 10_000


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """Transitions of an environment that publishes them in `env.unwrapped.P`, like Gymnasium's toy-text ones.

    Attributes:
        next_states, probabilities, rewards: shape (states, actions, branches), padded with probability 0.
        going_on: same shape, 1.0 where the episode continues after the branch.
        start: distribution of the first state, shape (states,).
    """

    next_states: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float64]
    rewards: npt.NDArray[np.float64]
    going_on: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]


def finite_mdp(task: Task) -> FiniteMDP | None:
    """Return the task's MDP if it is finite and known, else None."""
    env = make_env(task)
    try:
        mdp = _mdp_of(env)
    except Exception:  # the environment's `P` is something else
        return None
    finally:
        close(env)
    return mdp if mdp is not None and _sound(mdp) else None


def _sound(mdp: FiniteMDP) -> bool:
    """Whether its numbers form an MDP: otherwise a wrong score would be called exact."""
    finite = all(np.isfinite(part).all() for part in (mdp.probabilities, mdp.rewards, mdp.start))
    inside = (mdp.next_states >= 0).all() and (mdp.next_states < len(mdp.start)).all()
    sums = np.allclose(mdp.probabilities.sum(axis=2), 1, atol=1e-6) and np.isclose(mdp.start.sum(), 1, atol=1e-6)
    return bool(finite and inside and sums and (mdp.probabilities >= 0).all() and (mdp.start >= 0).all())


def _is_bare(env: gym.Env[Any, Any]) -> bool:
    """Whether no wrapper changes observations, actions or rewards from those in `P`."""
    inner: Any = env
    while isinstance(inner, gym.Wrapper):
        if not (type(inner) in (TimeLimit, OrderEnforcing, PassiveEnvChecker) or isinstance(inner, BorrowedEnv)):
            return False
        inner = inner.env
    return True


def _mdp_of(env: gym.Env[Any, Any]) -> FiniteMDP | None:
    inner = env.unwrapped
    table, start = getattr(inner, "P", None), getattr(inner, "initial_state_distrib", None)
    space, actions = env.observation_space, env.action_space
    if not isinstance(table, dict) or start is None:
        return None
    if getattr(inner, "fickle_passenger", False):  # Taxi then draws a new destination, which `P` omits
        return None
    if not _is_bare(env):
        return None
    if not isinstance(space, gym.spaces.Discrete) or not isinstance(actions, gym.spaces.Discrete):
        return None
    n, m = int(space.n), int(actions.n)
    if n > MAX_EXACT_STATES or int(space.start) or len(table) != n or len(start) != n:
        return None
    branches = max(len(table[s][a]) for s in range(n) for a in range(m))
    shape = (n, m, branches)
    next_states, probabilities = np.zeros(shape, np.int64), np.zeros(shape)
    rewards, going_on = np.zeros(shape), np.zeros(shape)
    for s in range(n):
        for a in range(m):
            for k, (probability, after, reward, ended) in enumerate(table[s][a]):
                next_states[s, a, k], probabilities[s, a, k] = after, probability
                rewards[s, a, k], going_on[s, a, k] = reward, not ended
    return FiniteMDP(next_states, probabilities, rewards, going_on, np.asarray(start, np.float64))


@dataclass(frozen=True, eq=False)
class _Chain:
    """The Markov chain with rewards under one policy.

    Attributes:
        after, probabilities, rewards, going_on: of each state's branches, shape (states, branches); see `FiniteMDP`.
        start: distribution of the first state, shape (states,).
    """

    after: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float64]
    rewards: npt.NDArray[np.float64]
    going_on: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]


def _chain_of(policy: Policy, mdp: FiniteMDP) -> _Chain:
    states = np.arange(len(mdp.start))
    chosen = np.asarray(policy.act(states.reshape(-1, 1)))
    after, p, r, on = (
        values[states, chosen] for values in (mdp.next_states, mdp.probabilities, mdp.rewards, mdp.going_on)
    )
    return _Chain(after, p, r, on, mdp.start)


def _chain_with_memory(policy: Policy, mdp: FiniteMDP, max_steps: int) -> _Chain | None:
    """Return the chain over reachable pairs of state and memory; None if there are too many."""
    number: dict[tuple[int, bytes], int] = {}
    states: list[int] = []

    def numbered(state: int, memory: npt.NDArray[np.float64]) -> int:
        """Return the number of a pair of state and memory; new pairs are queued."""
        key = (state, memory.tobytes())
        if key not in number:
            number[key] = len(states)
            states.append(state)
            remembered.append(memory)
        return number[key]

    remembered: list[npt.NDArray[np.float64]] = []
    nothing = policy.start(1)[0]
    first = np.flatnonzero(mdp.start)
    for state in first.tolist():
        numbered(state, nothing)
    actions: list[npt.NDArray[Any]] = []
    after: list[list[int]] = []
    for _ in range(max_steps):
        seen = len(after)
        if seen == len(states):
            break
        if len(states) > MAX_EXACT_STATES:
            return None
        new = np.array(states[seen:])
        memory = np.array(remembered[seen:])
        actions.append(np.asarray(policy.act(new.reshape(-1, 1), memory)))
        for state, action, row in zip(new.tolist(), actions[-1].tolist(), memory, strict=True):
            possible = (mdp.probabilities[state, action] > 0) & (mdp.going_on[state, action] > 0)
            after.append(
                [
                    numbered(next_state, row) if goes_on else 0
                    for next_state, goes_on in zip(mdp.next_states[state, action].tolist(), possible, strict=True)
                ]
            )
    # States met only at the last step need no successors.
    start = np.zeros(len(states))
    start[: len(first)] = mdp.start[first]
    met = np.array(states)
    rows, last = np.arange(len(after)), len(states) - len(after)
    chosen = np.concatenate(actions)
    nowhere = np.zeros((last, mdp.next_states.shape[2]))
    p, r, on = (
        np.concatenate([values[met[rows], chosen], nowhere])
        for values in (mdp.probabilities, mdp.rewards, mdp.going_on)
    )
    return _Chain(np.concatenate([np.array(after), nowhere]).astype(np.int64), p, r, on, start)


def exact_score(policy: Policy, mdp: FiniteMDP, max_steps: int | None = None) -> Score | None:
    """Compute mean and standard deviation of the undiscounted return within the step limit, without sampling.

    The limit is that of the policy's own task unless `max_steps` is given. None for a policy with memory if pairs of
    state and memory exceed `MAX_EXACT_STATES`.

    Backward recursion over the remaining steps for the first and second moment of the return:
    V'(s) = E[r + V(s')] and M'(s) = E[r^2 + 2 r V(s') + M(s')], with V = M = 0 after the end of an episode
    (Sobel 1982, "The variance of discounted Markov decision processes").
    """
    steps = max_steps or policy.task.max_steps
    chain = _chain_with_memory(policy, mdp, steps) if policy.remembers else _chain_of(policy, mdp)
    if chain is None:
        return None
    n, after, p, r = len(chain.start), chain.after, chain.probabilities, chain.rewards
    # Both moments form one vector of 2 n numbers, and a step is one gather and one sum of products: with few states
    # the number of calls determines the time. V depends only on V, so its second half has weight 0.
    read = np.concatenate([np.hstack([after, after]), np.hstack([after, after + n])])
    going = p * chain.going_on
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
