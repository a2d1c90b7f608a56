"""Engines agree: the same episodes for the same seeds where seeding allows it, else the same law of returns."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from played import assert_equal, hopping, needs_envpool

from policygen.episodes.envpool import POOLED, pool_for
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor, Trajectory
from policygen.tasks.load import load_task


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


def same_law(ones: list[Trajectory], others: list[Trajectory]) -> bool:
    """Whether returns and lengths pass a Kolmogorov-Smirnov test at one in ten thousand."""
    from scipy.stats import ks_2samp

    return all(
        ks_2samp([read(t) for t in ones], [read(t) for t in others]).pvalue > 1e-4
        for read in (lambda t: t.episode_return, lambda t: t.length)
    )
