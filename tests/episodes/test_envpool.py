"""Engines agree: the same episodes for the same seeds where seeding allows it, else the same law of returns."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from played import assert_equal, needs_envpool, policy_for

from policygen.episodes import copies as module
from policygen.episodes.copies import STEP_BY_STEP, pool_for
from policygen.episodes.players import Players, Simulator
from policygen.episodes.score import episode_seeds
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.tasks.load import load_task
from policygen.tasks.task import Task


def test_without_envpool_or_its_environment_there_is_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool_for(load_task("cartpole"), 2) is None
    assert all(pool_for(load_task(name), 2) is None for name in ("pendulum", "acrobot", "mountaincar"))
    assert pool_for(replace(load_task("hopper"), kwargs=(("ctrl_cost_weight", 0.5),)), 2) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert pool_for(load_task("hopper"), 2) is None


def pool_of(task: Task) -> Simulator:
    pool = pool_for(task, 2)
    assert pool is not None
    return Simulator(task, pool=pool)


@needs_envpool
@pytest.mark.parametrize("gym_id", STEP_BY_STEP)
def test_envpool_steps_as_gymnasium_does_from_equal_states(gym_id: str) -> None:
    task = replace(load_task(gym_id), max_steps=40)
    env: Any = gym.make(gym_id).unwrapped
    for trajectory in pool_of(task).play(RandomActor(task, 0), [1, 2, 3, 2**32 - 1]):
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


HOPPING = "\n".join(f"{joint}_torque = -0.5*{joint} - 0.1*{joint}_rate" for joint in ("hip", "knee", "ankle"))
LANDING = "none = 0.1\nleft = 0.5*x + vx - angle - spin\nright = angle + spin - 0.5*x - vx\nmain = -y - 2*vy"
STRIDING = (
    "hip1_drive = 0.9*sin(6*hip2)\nknee1_drive = 0.4 - knee1\nhip2_drive = 0.9*sin(6*hip1)\nknee2_drive = 0.4 - knee2"
)
# The same episodes with the rhythm of a clock.
CLOCKED = "let phase = mod(prev(phase) + 0.4, 2*pi)\nlet beat = sin(phase)\n"
REMEMBERING = {
    "hopper": CLOCKED
    + "hip_torque = beat + prev(hip_torque)\nknee_torque = -knee\nankle_torque = 0.5*prev(lean, lean)",
    "lunarlander": CLOCKED + LANDING + " + 0.1*beat + 0.1*prev(main)",
    "bipedalwalker": CLOCKED + STRIDING + " + beat + 0.1*prev(hip1_drive)",
}
needs_box2d = pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="Box2D is not installed")


@needs_envpool
@needs_box2d
@pytest.mark.parametrize("name", REMEMBERING)
def test_an_episode_in_envpool_depends_on_its_policy_and_seed_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_for(name, REMEMBERING[name])
    policy = replace(policy, task=replace(policy.task, max_steps=200))
    pool = pool_of(policy.task)
    seeds = list(range(7))
    together = pool.play(policy, seeds)
    assert len({t.length for t in together}) > 1  # rows are compacted as episodes end
    assert_equal([pool.play(policy, [seed])[0] for seed in seeds[:3]], together[:3])
    monkeypatch.setattr(module.PooledCopies, "most", 3)
    assert_equal(pool.play(policy, seeds), together)
    assert not np.array_equal(together[0].observations[0], together[1].observations[0])
    # Starts differ from Gymnasium's, so the controller, with which all engines agree, stands for the other engines.
    controller = policy.controller()
    for trajectory in together:
        controller.reset()
        acted = [controller(observation) for observation in trajectory.observations[:-1]]
        assert np.array_equal(np.array(acted), trajectory.actions)


@needs_envpool
def test_many_policies_play_in_envpool_what_each_plays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    joints = "hip_torque = {0}*beat\nknee_torque = -{0}*knee\nankle_torque = 0"
    policies = [policy_for("hopper", CLOCKED + joints.format(factor)) for factor in (0.1, 0.5, 1.0)]
    seeds = episode_seeds(0, "engines", 3)
    with Players(policies[0].task, jobs=2) as players:
        assert players.engine == "envpool"
        alone = [players.play(policy, seeds) for policy in policies]
        for room in (128, 6, 4):  # all at once, two at a time, each by itself
            monkeypatch.setattr(module.PooledCopies, "most", room)
            for one, other in zip(players.play_many(policies, seeds), alone, strict=True):
                assert_equal(one, other)


@needs_envpool
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hopper", HOPPING),
        pytest.param("lunarlander", LANDING, marks=needs_box2d),
        pytest.param("bipedalwalker", STRIDING, marks=needs_box2d),
    ],
)
def test_envpool_repeats_itself_and_agrees_with_gymnasium_statistically(name: str, text: str) -> None:
    policy = policy_for(name, text)
    policy = replace(policy, task=replace(policy.task, max_steps=150))
    pool, seeds = pool_of(policy.task), episode_seeds(0, "engines", 60)
    pooled = pool.play(policy, seeds)
    assert_equal(pooled[:20], pool.play(policy, seeds[:20]))
    with Simulator(policy.task) as simulator:
        assert same_law(pooled, simulator.play(policy, seeds))
    if name == "hopper":  # the comparison notices one step of 150
        with Simulator(replace(policy.task, max_steps=149)) as simulator:
            assert not same_law(pooled, simulator.play(policy, seeds))


def same_law(ones: list[Trajectory], others: list[Trajectory]) -> bool:
    """Whether returns and lengths pass a Kolmogorov-Smirnov test at one in ten thousand."""
    from scipy.stats import ks_2samp

    return all(
        ks_2samp([read(t) for t in ones], [read(t) for t in others]).pvalue > 1e-4
        for read in (lambda t: t.episode_return, lambda t: t.length)
    )
