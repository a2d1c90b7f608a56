"""How good a policy is: exactly where the MDP is known and finite, else over seeded episodes, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.policies import Policy
from policygen.rollout import Trajectory
from policygen.tasks import Task, make_env
from policygen.workers import Players

MAX_EXACT_STATES = 10_000


@dataclass(frozen=True, slots=True)
class Score:
    """The return of one policy: how much, how sure, and how it was obtained.

    `std` is the standard deviation of the return of an episode (not of the mean). `ci95` is the 95% interval of the
    mean: Student's t over the episodes, the point itself when exact, None for a single episode. An exact score has no
    returns and no seeds.
    """

    mean: float
    std: float
    ci95: tuple[float, float] | None
    exact: bool
    engine: str
    returns: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()

    @property
    def episodes(self) -> int:
        """Number of episodes behind the score, 0 when exact."""
        return len(self.returns)

    def __str__(self) -> str:
        if self.exact:
            return f"{self.mean:.4f} (exact)"
        interval = f" [{self.ci95[0]:.4g}, {self.ci95[1]:.4g}]" if self.ci95 else ""
        return f"{self.mean:.4g}{interval} over {self.episodes} episodes"


def episode_seeds(run_seed: int, purpose: str, count: int, first: int = 0) -> tuple[int, ...]:
    """Seeds number `first` to `first + count - 1` of a run's stream for `purpose`; streams do not overlap by design.

    The same arguments always give the same seeds, and a longer request starts with a shorter one's.
    """
    # The purpose is part of the entropy, so that tuning and final scores never share a stream.
    entropy = [run_seed, *purpose.encode()]
    return tuple(int(s) for s in np.random.SeedSequence(entropy).generate_state(first + count)[first:])


def sampled_score(trajectories: Sequence[Trajectory], engine: str) -> Score:
    """The score that some episodes show."""
    returns = np.array([trajectory.episode_return for trajectory in trajectories])
    return score_of_returns(returns, tuple(trajectory.seed for trajectory in trajectories), engine)


def score_of_returns(returns: npt.NDArray[np.float64], seeds: tuple[int, ...], engine: str) -> Score:
    """Mean, standard deviation and Student's t interval of the returns of independent episodes."""
    n = len(returns)
    mean = float(returns.mean())
    std = float(returns.std(ddof=1)) if n > 1 else 0.0
    interval = None
    if n > 1:
        half = _t_quantile(0.975, n - 1) * std / math.sqrt(n)
        interval = (mean - half, mean + half)
    return Score(mean, std, interval, False, engine, tuple(returns.tolist()), seeds)


def _t_quantile(probability: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def paired_gain(challenger: Score, incumbent: Score) -> tuple[float, float]:
    """Mean gain of the challenger on the same seeds, and the one-sided p-value of Student's paired t-test.

    For exact scores the p-value is 0 or 1.
    """
    if challenger.exact or incumbent.exact:
        gain = challenger.mean - incumbent.mean
        return gain, 0.0 if gain > 1e-12 else 1.0
    if challenger.seeds != incumbent.seeds:
        raise ValueError("a paired comparison needs the same seeds")
    from scipy.special import stdtr

    differences = np.subtract(challenger.returns, incumbent.returns)
    gain = float(differences.mean())
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    if spread == 0.0:
        return gain, 0.0 if gain > 0 else 1.0
    statistic = gain / (spread / math.sqrt(len(differences)))
    return gain, float(stdtr(len(differences) - 1, -statistic))


# --- finite, known MDPs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """Transitions of an environment that publishes them as Gymnasium's toy-text ones do (`env.unwrapped.P`).

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
    """The task's MDP if it is finite and known, else None."""
    env = make_env(task)
    try:
        return _mdp_of(env)
    finally:
        env.close()


def _mdp_of(env: gym.Env[Any, Any]) -> FiniteMDP | None:
    inner = env.unwrapped
    table, start = getattr(inner, "P", None), getattr(inner, "initial_state_distrib", None)
    space, actions = env.observation_space, env.action_space
    if not isinstance(table, dict) or start is None:
        return None
    if getattr(inner, "fickle_passenger", False):  # Taxi then draws a new destination, which `P` does not say
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


def exact_score(policy: Policy, mdp: FiniteMDP, max_steps: int | None = None) -> Score:
    """Mean and standard deviation of the undiscounted return within the step limit, without sampling.

    The limit is that of the policy's own task unless `max_steps` is given.

    Backward recursion over the remaining steps for the first and second moment of the return:
    V'(s) = E[r + V(s')] and M'(s) = E[r^2 + 2 r V(s') + M(s')], with V = M = 0 after the end of an episode
    (Sobel 1982, "The variance of discounted Markov decision processes").
    """
    n = len(mdp.start)
    states = np.arange(n)
    chosen = np.asarray(policy.act(states.reshape(-1, 1)))
    after, p = mdp.next_states[states, chosen], mdp.probabilities[states, chosen]
    r, on = mdp.rewards[states, chosen], mdp.going_on[states, chosen]
    # Both moments are one vector of 2 n numbers and a step is one gather and one sum of products per number: with few
    # states the time is that of the calls, so few calls are fast. V reads only V; its second half weighs nothing.
    read = np.concatenate([np.hstack([after, after]), np.hstack([after, after + n])])
    going = p * on
    weights = np.concatenate([np.hstack([going, np.zeros_like(p)]), np.hstack([2 * r * going, going])])
    constant = np.concatenate([(p * r).sum(axis=1), (p * r * r).sum(axis=1)])
    moments = np.zeros(2 * n)
    for _ in range(max_steps or policy.task.max_steps):
        moments = np.vecdot(weights, moments[read])
        moments += constant
    value, square = moments[:n], moments[n:]
    mean = float(mdp.start @ value)
    variance = float(mdp.start @ square) - mean * mean
    return Score(mean, math.sqrt(max(variance, 0.0)), (mean, mean), True, "exact")


def evaluate(policy: Policy, seeds: Sequence[int], *, task: Task | None = None) -> Score:
    """Score a policy: exactly where that is possible, else over one episode per seed.

    Args:
        policy: any policy; its own task unless `task` is given.
        seeds: environment seeds; not used when the score is exact.
    """
    task = task or policy.task
    mdp = finite_mdp(task)
    if mdp is not None:
        return exact_score(policy, mdp, task.max_steps)
    with Players(task) as players:
        return sampled_score(players.play(policy, seeds), players.engine)
