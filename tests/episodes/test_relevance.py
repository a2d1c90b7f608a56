"""The relevance of observations: what reward and ends depend on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import policygen
from policygen.episodes.evidence import Episode, relevance_of
from policygen.episodes.trajectory import Trajectory
from policygen.tasks.spaces import Observation
from policygen.tasks.task import Task

RNG = np.random.default_rng(0)


def unnamed(count: int, about: str = "") -> Task:
    """Return a task with `count` observations; by default its text does not describe reward and ends."""
    observations = tuple(Observation(f"q{i}", low=-np.inf, high=np.inf) for i in range(count))
    task = policygen.load_task("pendulum")
    return replace(task, observations=observations, features=(), about=about, inputs=(), reward="", solved=None)


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


def test_what_a_text_says_of_the_reward_makes_nothing_relevant() -> None:
    still = [played(np.zeros(9), np.zeros((10, 4)), np.zeros((9, 1)), ended=False)]
    assert relevance_of(still, unnamed(4, "The reward of a step is 1 minus q1.")).relevant == []


@pytest.mark.usefixtures("quickly_discovered")
def test_forces_follow_from_the_state_and_rates_that_share_a_description_do_not() -> None:
    pytest.importorskip("mujoco")
    humanoid = policygen.load_task("Humanoid-v5")
    found = relevance_of([played(np.zeros(9), RNG.normal(size=(10, 348)), np.zeros((9, 17)), ended=False)], humanoid)
    assert {"abdomen_y_effort", "torso_inertia_0", "pelvis_speed_vx"} <= found.further
    assert len(found.further) == 348 - 45
    walker = policygen.load_task("bipedalwalker")
    steps = played(np.zeros(9), RNG.normal(size=(10, 24)), np.zeros((9, 4)), ended=False)
    assert relevance_of([steps], walker).further == frozenset()
