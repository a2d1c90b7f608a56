"""Exact scores: known optima, sampled episodes, and what is not called exact."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from policygen.episodes.evaluate import evaluate
from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.score import episode_seeds, sampled_score
from policygen.episodes.simulator import Simulator
from policygen.policies.table import TablePolicy
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

LAKE = load_task("frozenlake")


BEST_LAKE = (0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0)


CLIFF = replace(load_task("CliffWalkingSlippery-v1"), max_steps=100)


BEST_CLIFF = ([0] + [1] * 11) * 2 + [0] * 11 + [1] + [3] + [0] * 11


def test_the_best_table_of_the_frozen_lake_has_its_known_value():
    score = evaluate(TablePolicy.from_actions(LAKE, BEST_LAKE), ())
    assert score.exact
    assert score.mean == pytest.approx(0.740165, abs=1e-6)
    assert score.ci95 == (score.mean, score.mean)
    assert (score.returns, score.seeds, score.episodes, score.engine) == ((), (), 0, "exact")
    assert score.std == pytest.approx(math.sqrt(score.mean * (1 - score.mean)))  # the goal pays 1: a coin
    assert str(score) == "0.7402 (exact)"


def test_the_best_table_of_the_slippery_cliff_has_its_known_value():
    score = evaluate(TablePolicy.from_actions(CLIFF, BEST_CLIFF), ())
    assert score.mean == pytest.approx(-63.022467, abs=1e-6)
    assert score.std == pytest.approx(20.3, abs=0.1)


def test_without_slipping_the_cliff_takes_thirteen_steps():
    task = replace(load_task("CliffWalking-v1"), max_steps=100)
    actions = np.full(48, 1)
    actions[36], actions[35] = 0, 2
    score = evaluate(TablePolicy.from_actions(task, actions), ())
    assert (score.mean, score.std) == (-13.0, 0.0)


def test_an_infinite_horizon_is_the_limit_of_long_ones():
    task = replace(LAKE, max_steps=20_000)
    best = (0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0)
    assert evaluate(TablePolicy.from_actions(task, best), ()).mean == pytest.approx(14 / 17, abs=1e-6)


@pytest.mark.parametrize("actions", [BEST_LAKE, (2,) * 16, tuple(np.random.default_rng(3).integers(4, size=16))])
def test_mean_and_deviation_of_the_exact_score_are_those_of_sampled_episodes(actions):
    policy = TablePolicy.from_actions(LAKE, actions)
    exact = exact_score(policy, finite_mdp(LAKE))
    returns = counted_episodes(LAKE, policy, 20_000)
    assert abs(returns.mean() - exact.mean) <= 4 * exact.std / math.sqrt(len(returns)) + 1e-12
    error_of_variance = math.sqrt(max(((returns - exact.mean) ** 2).var(), 1e-12) / len(returns))
    assert abs(returns.var() - exact.std**2) <= 4 * error_of_variance


def test_deviation_on_the_cliff_agrees_with_sampled_episodes():
    policy = TablePolicy.from_actions(CLIFF, BEST_CLIFF)
    exact = evaluate(policy, ())
    returns = counted_episodes(CLIFF, policy, 4_000)
    assert abs(returns.mean() - exact.mean) <= 4 * exact.std / math.sqrt(len(returns))
    assert abs(returns.var() - exact.std**2) <= 4 * math.sqrt(((returns - exact.mean) ** 2).var() / len(returns))


def counted_episodes(task: Task, policy: TablePolicy, count: int) -> np.ndarray:
    """Returns of episodes drawn from the environment's own table of transitions, all at once."""
    env = make_env(task)
    table = env.unwrapped.P
    start = np.asarray(env.unwrapped.initial_state_distrib)
    env.close()
    branches = max(len(table[s][a]) for s in table for a in table[s])
    rng = np.random.default_rng(42)
    chosen = policy.act(np.arange(len(table)).reshape(-1, 1))
    ends = np.ones((len(table), branches))
    after = np.zeros((len(table), branches), int)
    reward, over = np.zeros((len(table), branches)), np.zeros((len(table), branches), bool)
    for s in table:
        outcomes = table[s][int(chosen[s])]
        ends[s, : len(outcomes)] = np.cumsum([p for p, *_ in outcomes])
        for k, (_, n, r, done) in enumerate(outcomes):
            after[s, k], reward[s, k], over[s, k] = n, r, done
    ends[:, -1] = 1.0
    state = rng.choice(len(start), p=start, size=count)
    live, total = np.ones(count, bool), np.zeros(count)
    for _ in range(task.max_steps):
        k = (rng.random(count)[:, None] >= ends[state]).sum(axis=1)
        total += live * reward[state, k]
        live &= ~over[state, k]
        state = after[state, k]
    return total


def test_a_gymnasium_rollout_of_the_lake_agrees_with_the_exact_score():
    policy = TablePolicy.from_actions(LAKE, BEST_LAKE)
    with Simulator(LAKE) as simulator:
        sampled = sampled_score(simulator.play(policy, range(1_500)), simulator.engine)
    exact = evaluate(policy, ())
    assert abs(sampled.mean - exact.mean) <= 4 * exact.std / math.sqrt(1_500)


def test_what_the_published_transitions_do_not_say_is_not_called_exact():
    assert finite_mdp(load_task("cartpole")) is None
    assert finite_mdp(load_task("Blackjack-v1")) is None
    taxi = load_task("Taxi-v4")
    assert finite_mdp(taxi) is not None
    assert finite_mdp(replace(taxi, kwargs=(("is_rainy", True),))) is not None
    assert finite_mdp(replace(taxi, kwargs=(("fickle_passenger", True),))) is None


def test_transitions_are_those_that_the_environment_publishes():
    mdp = finite_mdp(LAKE)
    assert mdp.probabilities.sum(axis=2) == pytest.approx(np.ones((16, 4)))
    assert mdp.start.tolist() == [1.0] + [0.0] * 15
    env = gym.make("FrozenLake-v1", is_slippery=True)
    outcomes = env.unwrapped.P[14][2]
    env.close()
    found = zip(
        mdp.probabilities[14, 2], mdp.next_states[14, 2], mdp.rewards[14, 2], 1 - mdp.going_on[14, 2], strict=True
    )
    assert [tuple(map(float, outcome)) for outcome in outcomes] == [tuple(map(float, outcome)) for outcome in found]


def test_exact_and_sampled_scores_agree_and_the_test_can_fail() -> None:
    task = load_task("frozenlake")
    policy = TablePolicy.from_actions(task, [0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0])
    mdp = finite_mdp(task)
    assert mdp is not None
    with Simulator(task) as simulator:
        played = simulator.play(policy, episode_seeds(0, "engines", 1_500))
    returns = np.array([t.episode_return for t in played])
    score = exact_score(policy, mdp)
    assert agrees(score.mean, score.std, returns)
    # Half the time limit changes the score by more than the test lets pass, and so does one other action.
    assert not agrees(*moments(exact_score(policy, mdp, task.max_steps // 2)), returns)
    other = TablePolicy.from_actions(task, [0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 3, 1, 0])
    assert not agrees(*moments(exact_score(other, mdp)), returns)


def agrees(mean: float, std: float, returns: np.ndarray[Any, Any]) -> bool:
    """Whether sampled returns fit a mean and a standard deviation, five standard errors wide."""
    error = max(std, 1e-9) / np.sqrt(len(returns))
    return abs(returns.mean() - mean) < 5 * error and abs(returns.std() - std) < 10 * error


def moments(score: Any) -> tuple[float, float]:
    return score.mean, score.std
