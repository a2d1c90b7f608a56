"""Episodes on several processes: the same episodes, in the same order, to the last digit."""

from __future__ import annotations

import numpy as np
import pytest
from played import CLUMSY, assert_equal, hopping, needs_envpool, policy_for

import policygen.episodes.players
import policygen.episodes.simulator
from policygen.episodes import players as workers
from policygen.episodes.players import Players
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.tasks.load import load_task

SEEDS = episode_seeds(0, "test", 7)


def hopper_policy(scale: float = 1.0) -> Policy:
    task = load_task("hopper")
    text = f"""
    let wave = tanh({scale}*vx) + sin(3*hip)
    hip_torque = 0.5*wave - 0.3*hip_rate + 1.2*lean
    knee_torque = -0.4*knee - 0.1*knee_rate + wave
    ankle_torque = 0.7*ankle - 0.2*ankle_rate - 0.3*vz
    """
    parsed = parse(text, task)
    assert parsed.policy is not None, [str(p) for p in parsed.problems]
    return parsed.policy


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the smallest piece of work is handed to other processes."""
    monkeypatch.setattr(policygen.episodes.players, "SECONDS_WORTH_SHARING", -1.0)


@pytest.mark.usefixtures("sharing")
def test_two_processes_play_the_episodes_that_one_plays() -> None:
    policy = hopper_policy()
    with Simulator(policy.task) as simulator:
        alone = simulator.play(policy, SEEDS)
    with Players(policy.task, jobs=2, use_pool=False) as players:
        players.play(policy, SEEDS[:1])  # one episode stays here, and says how long an episode takes
        shared = players.play(policy, SEEDS)
    assert [t.seed for t in shared] == list(SEEDS)
    for one, other in zip(alone, shared, strict=True):
        assert np.array_equal(one.observations, other.observations)
        assert np.array_equal(one.actions, other.actions)
        assert one.episode_return == other.episode_return


def test_an_episode_does_not_depend_on_what_is_played_beside_it() -> None:
    policy = hopper_policy()
    with Simulator(policy.task) as simulator:
        together = simulator.play(policy, SEEDS)
        one_by_one = [simulator.play(policy, [seed])[0] for seed in SEEDS]
    for one, other in zip(together, one_by_one, strict=True):
        assert np.array_equal(one.observations, other.observations)


@pytest.mark.usefixtures("sharing")
def test_many_policies_keep_their_order_and_their_seeds() -> None:
    policies = [hopper_policy(scale) for scale in (0.1, 1.0, 5.0)]
    with Players(policies[0].task, jobs=2, use_pool=False) as players:
        players.play(policies[0], SEEDS[:1])
        shared = players.play_many(policies, SEEDS[:3])
    with Simulator(policies[0].task) as simulator:
        alone = [simulator.play(policy, SEEDS[:3]) for policy in policies]
    assert [[t.episode_return for t in p] for p in shared] == [[t.episode_return for t in p] for p in alone]


@pytest.mark.usefixtures("sharing")
def test_random_actions_stay_in_this_process_where_their_generator_is() -> None:
    task = load_task("hopper")
    with Players(task, jobs=2, use_pool=False) as players, Simulator(task) as simulator:
        players.play(hopper_policy(), SEEDS[:1])
        shared = players.play(RandomActor(task, 3), SEEDS[:3])
        alone = simulator.play(RandomActor(task, 3), SEEDS[:3])
    assert [t.episode_return for t in shared] == [t.episode_return for t in alone]


@pytest.mark.parametrize("policy", [policy_for("cartpole", CLUMSY), hopping()], ids=["cartpole", "hopper"])
def test_workers_and_copies_play_the_same_episodes(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SECONDS_WORTH_SHARING", -1.0)
    monkeypatch.setattr(workers, "SECONDS_WORTH_STARTING", -1.0)
    monkeypatch.setattr(policygen.episodes.simulator, "has_vector_form", lambda env: False)
    shared = []
    original = Players._shared
    monkeypatch.setattr(Players, "_shared", lambda self, work: shared.append(len(work)) or original(self, work))
    seeds = episode_seeds(0, "engines", 9)
    with Simulator(policy.task) as copies, Players(policy.task, jobs=2, use_pool=False) as players:
        expected = copies.play(policy, seeds)
        assert_equal(players.play(policy, seeds), expected)
    assert shared == [2]


@needs_envpool
def test_many_policies_are_played_by_processes_and_not_one_after_the_other_in_envpool() -> None:
    policy = hopping()
    seeds = episode_seeds(0, "engines", 3)
    with Players(policy.task, jobs=2) as players, Simulator(policy.task) as simulator:
        assert players.engine == "envpool"
        alone = simulator.play(policy, seeds)
        for played in players.play_many([policy] * 3, seeds):
            assert_equal(played, alone)
