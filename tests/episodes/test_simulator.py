"""Episodes on several processes: the same episodes, in the same order, to the last digit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import faulty
import gymnasium as gym
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from played import assert_equal, policy_for
from support import discovered

from policygen.episodes import simulator as workers
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import ParallelSimulator, Simulator
from policygen.episodes.trajectory import RandomActor
from policygen.errors import TaskError
from policygen.policies.parse import parse
from policygen.policies.policy import Policy

SEEDS = episode_seeds(0, "test", 7)


def hopper_policy(scale: float = 1.0) -> Policy:
    text = f"""
    let wave = tanh({scale}*vx) + sin(3*hip)
    hip_torque = 0.5*wave - 0.3*hip_rate + 1.2*lean
    knee_torque = -0.4*knee - 0.1*knee_rate + wave
    ankle_torque = 0.7*ankle - 0.2*ankle_rate - 0.3*vz
    """
    return policy_for("hopper", text)


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the smallest piece of work is handed to other processes."""
    monkeypatch.setattr(workers, "SECONDS_WORTH_SHARING", -1.0)
    monkeypatch.setattr(workers, "SECONDS_WORTH_STARTING", -1.0)


@pytest.mark.usefixtures("sharing")
@pytest.mark.parametrize(
    "made", [hopper_policy, lambda scale: policy_for("cartpole", f"left = 0\nright = {scale}*angle - 0.02")]
)
def test_workers_and_copies_play_the_same_episodes_in_order(
    made: Callable[[float], Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = [made(scale) for scale in (0.1, 1.0, 5.0)]
    monkeypatch.setattr(workers, "has_vector_form", lambda env: False)
    shared: list[int] = []
    distribute = ParallelSimulator._play_in_workers
    monkeypatch.setattr(
        ParallelSimulator, "_play_in_workers", lambda self, work: shared.append(len(work)) or distribute(self, work)
    )
    task = replace(policies[0].task, max_steps=40)  # the task asked for, not the policies' own
    with Simulator(task) as copies, ParallelSimulator(task, jobs=2, use_pool=False) as players:
        expected = [copies.play(policy, SEEDS) for policy in policies]
        assert_equal(players.play(policies[0], SEEDS), expected[0])
        for played, alone in zip(players.play_many(policies, SEEDS), expected, strict=True):
            assert_equal(played, alone)
        # Random actions are drawn in this process, where their generator is.
        assert_equal(players.play(RandomActor(task, 3), SEEDS), copies.play(RandomActor(task, 3), SEEDS))
    assert shared == [2, 3]
    assert max(episode.length for played in expected for episode in played) == 40


class Backwards(PendulumEnv):
    """Turns the other way."""

    def step(self, u: Any) -> Any:
        return super().step(-u)


@pytest.mark.usefixtures("sharing")
@pytest.mark.parametrize("known", [True, False])
def test_an_id_that_other_processes_lack_or_know_as_another_environment_is_played_here(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gym_id = "Pendulum-v1" if known else "Backwards-v0"
    policy = policy_for("pendulum", "torque = 0.5")
    task = replace(policy.task, gym_id=gym_id, max_steps=20)
    monkeypatch.setitem(gym.registry, gym_id, replace(gym.spec("Pendulum-v1"), id=gym_id, entry_point=Backwards))
    monkeypatch.setattr(workers, "_local_ids", set())
    with ParallelSimulator(task, jobs=2) as players, Simulator(task) as simulator:
        players.play(policy, SEEDS[:1])
        assert_equal(players.play(policy, SEEDS), simulator.play(policy, SEEDS))
        assert workers._local_ids == {gym_id}
        assert [len(played) for played in players.play_many([policy, policy], SEEDS)] == [7, 7]


def test_a_process_that_dies_is_answered_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(faulty.__file__).parent), prepend=":")
    task = replace(discovered("faulty:Zoo-calm-v0"), gym_id="faulty:Zoo-is-killed-v0")
    policy = parse("action_0 = 0\naction_1 = 1", task, "linear").policy
    with ParallelSimulator(task, jobs=2) as players:
        players.isolated = True
        with pytest.raises(TaskError, match=r"a process playing .* was killed.* --jobs 1"):
            players.play(policy, SEEDS)
