"""Engines agree: the same episodes for the same seeds where seeding allows it, else the same law of returns."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import policygen.episodes.simulator
from policygen.episodes import players as workers
from policygen.episodes.envpool import POOLED, pool_for
from policygen.episodes.evaluate import evaluate
from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.players import Players
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

CLUMSY = "left = 0\nright = angle"
needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")


def policy_for(name: str, text: str) -> Policy:
    policy = parse(text, load_task(name), "linear").policy
    assert policy is not None
    return policy


def hopping() -> Policy:
    names = load_task("Hopper-v5").observation_names
    text = "\n".join(f"action{i} = -0.5*{names[2 + i]} - 0.1*{names[8 + i]}" for i in range(3))
    return replace(policy_for("Hopper-v5", text), task=replace(load_task("Hopper-v5"), max_steps=120))


def assert_equal(ones: list[Trajectory], others: list[Trajectory]) -> None:
    assert [t.seed for t in ones] == [t.seed for t in others]
    for one, other in zip(ones, others, strict=True):
        assert np.array_equal(one.observations, other.observations)
        assert np.array_equal(one.actions, other.actions)
        assert np.array_equal(one.rewards, other.rewards)
        assert (one.terminated, one.truncated) == (other.terminated, other.truncated)
        assert one.episode_return == other.episode_return


def copies_of(task: Task, monkeypatch: pytest.MonkeyPatch) -> Simulator:
    with monkeypatch.context() as patched:
        patched.setattr(policygen.episodes.simulator, "_has_vector_form", lambda env: False)
        return Simulator(task)


@pytest.mark.parametrize("text", [CLUMSY, "left = 0\nright = 0.3*position + 0.9*velocity + 5*angle + 3*spin"])
def test_the_vector_engine_and_copies_play_the_same_episodes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_for("cartpole", text)
    seeds = episode_seeds(0, "engines", 40)
    with Simulator(policy.task) as vector, copies_of(policy.task, monkeypatch) as copies:
        assert (vector.engine, copies.engine) == ("vector", "copies")
        assert_equal(vector.play(policy, seeds), copies.play(policy, seeds))


@pytest.mark.parametrize("policy", [policy_for("cartpole", CLUMSY), hopping()], ids=["cartpole", "hopper"])
def test_workers_and_copies_play_the_same_episodes(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SECONDS_WORTH_SHARING", -1.0)
    monkeypatch.setattr(workers, "SECONDS_WORTH_STARTING", -1.0)
    monkeypatch.setattr(policygen.episodes.simulator, "_has_vector_form", lambda env: False)
    shared = []
    original = Players._shared
    monkeypatch.setattr(Players, "_shared", lambda self, work: shared.append(len(work)) or original(self, work))
    seeds = episode_seeds(0, "engines", 9)
    with Simulator(policy.task) as copies, Players(policy.task, jobs=2, use_pool=False) as players:
        expected = copies.play(policy, seeds)
        assert_equal(players.play(policy, seeds), expected)
    assert shared == [2]


def test_a_score_names_its_engine() -> None:
    assert evaluate(policy_for("cartpole", CLUMSY), episode_seeds(0, "engines", 3)).engine == "vector"
    lake = load_task("frozenlake")
    assert lake.grid is not None
    assert evaluate(TablePolicy.from_actions(lake, [2] * lake.grid.size), ()).engine == "exact"


def agrees(mean: float, std: float, returns: np.ndarray[Any, Any]) -> bool:
    """Whether sampled returns fit a mean and a standard deviation, five standard errors wide."""
    error = max(std, 1e-9) / np.sqrt(len(returns))
    return abs(returns.mean() - mean) < 5 * error and abs(returns.std() - std) < 10 * error


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


def moments(score: Any) -> tuple[float, float]:
    return score.mean, score.std


class Counting(gym.Wrapper[Any, Any, Any, Any]):
    """Counts the steps of all environments."""

    steps = 0

    def step(self, action: Any) -> Any:
        Counting.steps += 1
        return self.env.step(action)


def test_copies_take_no_step_after_the_end_of_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    make = policygen.episodes.simulator.make_env
    monkeypatch.setattr(policygen.episodes.simulator, "make_env", lambda task: Counting(make(task)))
    task = load_task("FrozenLake-v1")
    Counting.steps = 0
    with Simulator(task) as simulator:
        played = simulator.play(RandomActor(task, 0), range(80))
    assert len({t.length for t in played}) > 5
    assert Counting.steps == sum(t.length for t in played)


def test_vectorised_copies_that_have_ended_cost_at_most_as_many_steps_as_those_that_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = []
    make = policygen.episodes.simulator._vector_env

    def counted(task: Task, state: Any) -> Any:
        envs = make(task, state)
        step = envs.step
        envs.step = lambda actions: taken.append(len(actions)) or step(actions)
        return envs

    monkeypatch.setattr(policygen.episodes.simulator, "_vector_env", counted)
    policy = policy_for("cartpole", CLUMSY)
    with Simulator(policy.task) as simulator:
        played = simulator.play(policy, episode_seeds(0, "engines", 300))
    lengths = [t.length for t in played]
    assert sum(lengths) <= sum(taken) <= 2 * sum(lengths)
    assert max(lengths) * len(lengths) > 1.2 * sum(lengths)  # without dropping them it would be this many


def test_episodes_of_all_lengths_count_once() -> None:
    policy = policy_for("cartpole", CLUMSY)
    seeds = episode_seeds(0, "engines", 200)
    with Simulator(policy.task) as simulator:
        together = [t.length for t in simulator.play(policy, seeds)]
        alone = [simulator.play(policy, [seed])[0].length for seed in seeds]
    assert together == alone


def test_without_envpool_or_its_environment_there_is_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool_for(load_task("cartpole"), 2) is None
    assert pool_for(replace(load_task("Hopper-v5"), kwargs=(("ctrl_cost_weight", 0.5),)), 2) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert pool_for(load_task("Hopper-v5"), 2) is None


@needs_envpool
@pytest.mark.parametrize("gym_id", POOLED)
def test_envpool_steps_as_gymnasium_does_from_equal_states(gym_id: str) -> None:
    task = replace(load_task(gym_id), max_steps=40)
    pool = pool_for(task, 2)
    assert pool is not None
    env: Any = gym.make(gym_id).unwrapped
    for trajectory in pool.play(RandomActor(task, 0), [1, 2, 3, 2**32 - 1]):
        env.reset(seed=0)
        start = trajectory.observations[0].astype(np.float64)
        # These environments observe everything but where they are along the track, which changes nothing.
        unseen = env.model.nq + env.model.nv - len(start)
        positions = np.concatenate([np.zeros(unseen), start[: env.model.nq - unseen]])
        env.set_state(positions, start[env.model.nq - unseen :])
        for i in range(min(10, trajectory.length)):
            observation, reward, terminated, _, _ = env.step(trajectory.actions[i])
            assert observation == pytest.approx(trajectory.observations[i + 1], abs=1e-3)
            assert reward == pytest.approx(trajectory.rewards[i], abs=1e-3)
            assert terminated == (trajectory.terminated and i + 1 == trajectory.length)
    env.close()


@needs_envpool
def test_envpool_repeats_itself_and_agrees_with_gymnasium_statistically() -> None:
    policy = hopping()
    pool = pool_for(policy.task, 2)
    assert pool is not None
    seeds = episode_seeds(0, "engines", 150)
    pooled = pool.play(policy, seeds)
    assert_equal(pooled[:20], pool.play(policy, seeds[:20]))
    with Simulator(policy.task) as simulator:
        played = simulator.play(policy, seeds)
    assert same_law(pooled, played)
    weaker = replace(policy, task=replace(policy.task, max_steps=119))
    with Simulator(weaker.task) as simulator:
        assert not same_law(pooled, simulator.play(weaker, seeds))


@needs_envpool
def test_many_policies_are_played_by_processes_and_not_one_after_the_other_in_envpool() -> None:
    policy = hopping()
    seeds = episode_seeds(0, "engines", 3)
    with Players(policy.task, jobs=2) as players, Simulator(policy.task) as simulator:
        assert players.engine == "envpool"
        alone = simulator.play(policy, seeds)
        for played in players.play_many([policy] * 3, seeds):
            assert_equal(played, alone)


def same_law(ones: list[Trajectory], others: list[Trajectory]) -> bool:
    """Whether returns and lengths pass a Kolmogorov-Smirnov test at one in ten thousand."""
    from scipy.stats import ks_2samp

    return all(
        ks_2samp([read(t) for t in ones], [read(t) for t in others]).pvalue > 1e-4
        for read in (lambda t: t.episode_return, lambda t: t.length)
    )
