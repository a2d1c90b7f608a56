"""The account of rewards: the parts of an episode that earn or lose them, and the cost of early ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from policygen.episodes.copies import RunningEpisode
from policygen.episodes.evidence import (
    Episode,
    Shortfall,
    account,
    mean_rewards,
    reached_its_goal,
    relevance_of,
    shortfall,
    step_losses,
)
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Observation
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")


def episode(rewards: list[float], terminated: bool, terms: tuple[tuple[str, float], ...] = ()) -> Trajectory:
    seen, acted = np.zeros((len(rewards) + 1, 1), np.float32), np.zeros(len(rewards), np.int16)
    paid = np.array(rewards, np.float32)
    return Trajectory(seen, acted, paid, sum(rewards), 0, terminated, not terminated, terms)


def kept(*trajectories: Trajectory) -> list[Episode]:
    return [Episode(1, t, reached_its_goal(t, None)) for t in trajectories]


def test_a_shortfall_is_the_steps_that_lost_most_against_the_mean_of_the_episodes():
    usual, short = episode([1.0] * 6, False), episode([4.0], True)
    slow = episode([1.0, 0.5, 1.0, -2.0, 1.0, 1.0], False)
    mean = mean_rewards(kept(usual, slow, short))
    assert mean.tolist() == [2.0, 0.75, 1.0, -0.5, 1.0, 1.0]
    assert shortfall(mean - slow.rewards) == Shortfall(0, 3, 2.75)
    assert shortfall(np.ones(5)) == Shortfall(0, 4, 5.0, throughout=True)
    equal = [episode([0.1] * 50, False)] * 3
    assert shortfall(step_losses(equal[0], mean_rewards(kept(*equal)))) is None  # rounding is no loss
    assert shortfall(mean[1:] - usual.rewards[1:]) is None


def test_the_account_says_what_early_ends_cost_and_when_points_come():
    whole = episode([2.0] * 50 + [1.0] * 50, False, (("forward", 100.0), ("ctrl", -10.0)))
    half = episode([1.5] * 50, True, (("forward", 60.0), ("ctrl", -20.0)))
    found = account(kept(whole, half), 100)
    assert dict(found["terms"]) == {"forward": 80, "ctrl": -15}
    assert (found["failed"], found["failed_steps"], found["reached"]) == (1, (50, 50), 0)
    assert found["weakest"] == int(np.argmin(found["parts"]))
    steady = account(kept(episode([1.0] * 100, False)), 100)
    assert steady["weakest"] is None
    assert found["lost"] == pytest.approx(50 * 1.5 / 2)
    assert found["parts"][0] == pytest.approx(1.75)
    assert found["parts"][4] == pytest.approx(1.25)
    assert account([], 100) is None
    falling = account(kept(episode([-1.0] * 10, True)), 100)
    assert falling["lost"] == 0  # ending early spares costs
    found = account(kept(episode([-1.0] * 80 + [0.0], True), episode([-1.0] * 100, False)), 100)
    assert (found["reached"], found["reached_steps"], found["failed"]) == (1, (81, 81), 0)


@pytest.mark.parametrize(
    ("rewards", "solved", "reached"),
    [
        ([-1.0] * 80 + [0.0], -100, True),  # Acrobot
        ([-1.0] * 120, -110, True),  # MountainCar
        ([-0.01] * 80 + [100.0], 90, True),  # MountainCarContinuous
        ([0.6, -0.1] * 625, 300, True),  # a walker at the far end
        ([1.0] * 488, 475, False),  # every step pays: the pole has fallen
        ([0.0] * 20 + [1.0], None, True),  # FrozenLake
        ([1.0], None, True),  # a hand of cards, won
        ([-1.0], None, False),
        ([0.0] * 20, None, False),  # a hole
        ([1.0, 1.1, 1.2, 1.3], 3800, False),  # a hopper that falls forward
        ([0.1, -0.1, 0.2, -100.0], 300, False),  # a walker that falls
    ],
)
def test_an_episode_may_end_early_for_its_success(rewards, solved, reached):
    assert reached_its_goal(episode(rewards, True), solved) == reached
    assert not reached_its_goal(episode(rewards, False), solved)


@pytest.mark.parametrize("task_name", ["reacher", "hopper", "inverted-double-pendulum"])
def test_the_terms_of_a_real_reward_add_up_to_the_return(task_name):
    pytest.importorskip("mujoco")
    task = load_task(task_name)
    with Simulator(task) as simulator:
        for t in simulator.play(RandomActor(task, 0), [1, 2]):
            assert len(t.terms) >= 2
            assert sum(value for _, value in t.terms) == pytest.approx(t.episode_return, rel=1e-6)


def test_terms_of_a_reward_are_those_that_add_up_to_it():
    def played(*steps: tuple[float, dict[str, Any]]) -> dict[str, float]:
        running = RunningEpisode(gym.Env(), {})
        for reward, info in steps:
            running.add_terms(reward, info)
        return running.reward_terms()

    gains = {"reward_a": 1.0, "reward_b": 2, "reward_c": "no number", "x": 1.0}
    assert played((3.0, gains), (3.0, gains)) == {"reward_a": 2.0, "reward_b": 4.0}
    assert played((3.0, gains), (2.0, {"reward_a": None, "reward_b": 2})) == {"reward_a": 1.0, "reward_b": 4.0}
    costs = {"revenue": 5.0, "energy_cost": 2.0, "penalty_heat": 1.0}
    assert played((2.0, costs)) == {"revenue": 5.0, "energy_cost": -2.0, "penalty_heat": -1.0}
    assert played((2.0, costs | {"profit": 2.0})) == {"revenue": 5.0, "energy_cost": -2.0, "penalty_heat": -1.0}
    assert played((2.0, costs | {"penalty": 1.0})) == {"revenue": 5.0, "energy_cost": -2.0, "penalty_heat": -1.0}
    assert played((2.0, {"energy_cost": 2.0, "co2_cost": 0.4})) == {}  # the revenue is missing
    still = {"reward_forward": -1.5, "reward_ctrl": 0.0}
    assert played((-1.5, still)) == still
    assert played((2.0, {})) == {}


# --- relevance --------------------------------------------------------------------------------------------------------


RNG = np.random.default_rng(0)


def unnamed(count: int) -> Task:
    observations = tuple(Observation(f"q{i}", low=-np.inf, high=np.inf) for i in range(count))
    task = load_task("pendulum")
    return replace(task, observations=observations, features=(), about="", inputs=(), reward="", solved=None)


def played(rewards: np.ndarray, rows: np.ndarray, actions: np.ndarray, *, ended: bool) -> Episode:
    seen, acted, paid = (one.astype(np.float32) for one in (rows, actions, rewards))
    return Episode(1, Trajectory(seen, acted, paid, 0.0, 0, ended, not ended))


def test_reward_depends_on_what_explains_it_beside_the_cost_of_actions() -> None:
    episodes = []
    for _ in range(5):
        rows, actions = RNG.normal(size=(201, 4)), RNG.uniform(-2, 2, size=(200, 1))
        # As of a step: by the state that it leads to. The cost of random actions is a hundred times as large.
        rewards = 0.1 * np.abs(rows[1:, 2]) + 0.03 * rows[:-1, 0] - 10 * actions[:, 0] ** 2
        episodes.append(played(rewards, rows, actions, ended=False))
    found = relevance_of(episodes, unnamed(4))
    assert found.relevant == ["q2"]
    assert found.relevance["q2"] == 1
    assert found.variance["q1"] == pytest.approx(1, abs=0.1)
    # Forces, which follow from the state, count for nothing.
    task = unnamed(4)
    forced = replace(
        task,
        observations=(*task.observations[:2], replace(task.observations[2], derived="torso"), *task.observations[3:]),
    )
    found = relevance_of(episodes, forced)
    assert (found.derived, found.relevance["q2"]) == ({"q2"}, 0)


def test_early_ends_depend_on_what_is_unusual_there_and_their_reward_does_not_count_twice() -> None:
    episodes = []
    for _ in range(20):
        rows, actions = 0.1 * RNG.normal(size=(51, 3)), np.zeros((50, 1))
        rows[-1, 1] = 3 * RNG.choice([-1, 1])  # on either side
        rewards = rows[1:, 0].copy()
        rewards[-1] = -100
        episodes.append(played(rewards, rows, actions, ended=True))
    found = relevance_of(episodes, unnamed(3))
    assert set(found.relevant) == {"q0", "q1"}
    assert found.relevance["q2"] < 0.1
    # Without ends and rewards nothing is relevant; nor are constants.
    still = [played(np.zeros(50), np.zeros((51, 3)), np.zeros((50, 1)), ended=False)]
    assert relevance_of(still, unnamed(3)).relevant == []
    assert relevance_of([], unnamed(3)).relevant == []
