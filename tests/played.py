"""What the tests of engines share: policies, an episode played by hand, and whether two are the same."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import policygen.episodes.simulator
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.spaces import flatten
from policygen.tasks.task import Task

CARTPOLE = load_task("cartpole")
CLUMSY = "left = 0\nright = angle"

needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")


def policy_for(name: str, text: str) -> Policy:
    policy = parse(text, load_task(name), "linear").policy
    assert policy is not None
    return policy


def copies_of(task: Task, monkeypatch: pytest.MonkeyPatch) -> Simulator:
    with monkeypatch.context() as patched:
        patched.setattr(policygen.episodes.simulator, "has_vector_form", lambda env: False)
        return Simulator(task)


def by_hand(task: Task, actor, seed: int) -> Trajectory:
    """One episode in one Gymnasium environment, in the plainest way."""
    env = make_env(task)
    observation, _ = env.reset(seed=seed)
    rows, actions, rewards = [flatten(task.layout, observation).astype(np.float32)], [], []
    terminated = truncated = False
    decider = actor.begin(1)
    while not (terminated or truncated):
        action = decider.decide(rows[-1].reshape(1, -1), np.arange(1))[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        rows.append(flatten(task.layout, observation).astype(np.float32))
        actions.append(action)
        rewards.append(float(reward))
    env.close()
    return Trajectory(
        np.asarray(rows),
        np.asarray(actions),
        np.asarray(rewards, np.float32),
        sum(rewards),
        seed,
        terminated,
        truncated,
    )


def assert_same(mine: Trajectory, theirs: Trajectory) -> None:
    assert mine.seed == theirs.seed
    assert np.array_equal(mine.observations, theirs.observations)
    assert np.array_equal(mine.actions, theirs.actions)
    assert np.array_equal(mine.rewards, theirs.rewards)
    assert mine.episode_return == pytest.approx(theirs.episode_return, rel=1e-6)
    assert (mine.terminated, mine.truncated) == (theirs.terminated, theirs.truncated)
    assert mine.length == len(mine.rewards) == len(mine.actions) == len(mine.observations) - 1
    assert (mine.observations.dtype, mine.rewards.dtype) == (np.float32, np.float32)


def assert_equal(ones: list[Trajectory], others: list[Trajectory], *, rel: float = 0.0) -> None:
    """Check that episodes are the same; `rel`: how much their returns may differ, which may be sums of other types."""
    for one, other in zip(ones, others, strict=True):
        assert_same(one, other)
        assert one.episode_return == pytest.approx(other.episode_return, rel=rel, abs=0.0)
