from __future__ import annotations

import math
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

from policygen.episodes.evaluate import evaluate
from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.score import Score, episode_seeds, paired_gain, sampled_score, score_of_returns
from policygen.episodes.simulator import Simulator
from policygen.policies.parse import parse
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


def test_the_horizon_is_that_of_the_task_that_is_asked_about():
    policy = TablePolicy.from_actions(LAKE, BEST_LAKE)
    short = replace(LAKE, max_steps=6)
    assert evaluate(policy, (), task=short).mean == evaluate(TablePolicy.from_actions(short, BEST_LAKE), ()).mean
    assert evaluate(policy, (), task=short).mean < 0.1


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


# --- intervals and comparisons ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 20, 500])
def test_the_interval_is_students(n):
    returns = np.random.default_rng(n).normal(100, 30, size=n)
    score = score_of_returns(returns, tuple(range(n)), "vector")
    expected = stats.t.interval(0.95, n - 1, loc=returns.mean(), scale=stats.sem(returns))
    assert score.ci95 == pytest.approx(expected, rel=1e-9)
    assert score.std == pytest.approx(returns.std(ddof=1))
    assert (score.mean, score.episodes, score.returns) == (returns.mean(), n, tuple(returns))


def test_a_single_episode_has_no_interval_and_equal_returns_a_point():
    single = score_of_returns(np.array([3.0]), (1,), "copies")
    assert (single.ci95, single.std, str(single)) == (None, 0.0, "3 over 1 episodes")
    assert score_of_returns(np.full(5, 500.0), tuple(range(5)), "vector").ci95 == (500.0, 500.0)


@pytest.mark.parametrize("shift", [-3.0, 0.0, 0.5, 3.0, 200.0])
def test_the_paired_comparison_is_students_paired_test(shift):
    rng = np.random.default_rng(8)
    old = rng.normal(50, 20, size=30)
    new = old + rng.normal(shift, 5, size=30)
    seeds = tuple(range(30))
    gain, p = paired_gain(score_of_returns(new, seeds, "vector"), score_of_returns(old, seeds, "vector"))
    expected = stats.ttest_rel(new, old, alternative="greater")
    assert gain == pytest.approx((new - old).mean())
    assert p == pytest.approx(expected.pvalue, rel=1e-6)


def test_a_paired_comparison_needs_the_same_seeds():
    scores = [score_of_returns(np.array([1.0, 2.0]), seeds, "vector") for seeds in ((1, 2), (1, 3))]
    with pytest.raises(ValueError, match="same seeds"):
        paired_gain(*scores)


@pytest.mark.parametrize(
    ("new", "old", "outcome"), [(0.5, 0.4, (0.1, 0.0)), (0.4, 0.5, (-0.1, 1.0)), (0.5, 0.5, (0.0, 1.0))]
)
def test_exact_scores_are_compared_without_doubt(new, old, outcome):
    scores = [Score(mean, 0.1, (mean, mean), True, "exact") for mean in (new, old)]
    assert paired_gain(*scores) == pytest.approx(outcome)


def test_equal_differences_leave_no_doubt():
    old = score_of_returns(np.array([1.0, 5.0, 9.0]), (1, 2, 3), "vector")
    assert paired_gain(score_of_returns(np.array([2.0, 6.0, 10.0]), (1, 2, 3), "vector"), old) == (1.0, 0.0)
    assert paired_gain(old, old) == (0.0, 1.0)


# --- seeds -----------------------------------------------------------------------------------------------------------


def test_a_longer_list_of_seeds_starts_with_the_shorter():
    long = episode_seeds(3, "search", 200)
    for count in (0, 1, 2, 50):
        assert episode_seeds(3, "search", count) == long[:count]
        assert episode_seeds(3, "search", count, first=20) == long[20 : 20 + count]
    assert all(0 <= seed < 2**32 for seed in long)


def test_purposes_and_runs_have_streams_of_their_own():
    streams = [
        set(episode_seeds(run, purpose, 500))
        for run in (0, 1, 2, 100)
        for purpose in ("search", "final", "warm-up", "s")
    ]
    assert all(len(stream) == 500 for stream in streams)
    for i, one in enumerate(streams):
        for other in streams[:i]:
            assert not one & other


def test_a_sampled_score_keeps_the_seeds_it_was_played_on():
    task = load_task("cartpole")
    policy = parse("left = 0\nright = angle", task).policy
    seeds = episode_seeds(0, "final", 12)
    score = evaluate(policy, seeds)
    assert (score.seeds, score.engine, score.exact, score.episodes) == (seeds, "vector", False, 12)
    assert evaluate(policy, seeds) == score
    assert evaluate(policy, seeds[:6]).returns == score.returns[:6]
