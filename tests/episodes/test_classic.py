"""Classic control for many copies is Gymnasium's single environment, to the last bit, step after step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from played import assert_equal, assert_same, by_hand, copies_of, policy_for

from policygen.episodes.classic import ClassicCopies, has_classic_form
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator

COPIES, STEPS = 40, 200


def pushes(env: gym.Env[Any, Any], count: int, rng: np.random.Generator) -> np.ndarray:
    """Random actions, among them some that are clipped."""
    if isinstance(env.action_space, gym.spaces.Discrete):
        return rng.integers(env.action_space.n, size=count)
    high = 1.3 * float(env.action_space.high[0])
    return rng.uniform(-high, high, (count, 1)).astype(np.float32)


@pytest.mark.parametrize(
    ("gym_id", "kwargs"),
    [
        ("Acrobot-v1", {}),
        ("MountainCar-v0", {}),
        ("MountainCar-v0", {"goal_velocity": 0.02}),
        ("MountainCarContinuous-v0", {}),
        ("MountainCarContinuous-v0", {"goal_velocity": 0.02}),
        ("Pendulum-v1", {}),
        ("Pendulum-v1", {"g": 3.7}),
        ("policygen/PendulumTorque-v0", {}),
        ("policygen/PendulumTorque-v0", {"most_load": 0.5, "noise": 0.0}),
    ],
)
def test_copies_step_as_single_environments_bit_for_bit(gym_id: str, kwargs: dict[str, Any]) -> None:
    env = gym.make(gym_id, disable_env_checker=True, **kwargs)
    assert has_classic_form(env)
    copies = ClassicCopies(env, range(COPIES))
    singles: list[Any] = [gym.make(gym_id, disable_env_checker=True, **kwargs).unwrapped for _ in range(COPIES)]
    assert np.array_equal(copies.first, [single.reset(seed=seed)[0] for seed, single in enumerate(singles)])
    rng = np.random.default_rng(0)
    for step in range(STEPS):
        if step % 4 == 0:  # held for a while, so that copies get far
            actions = pushes(env, len(singles), rng)
        observations, rewards, ended, _, _ = copies.step(actions)
        stepped = [single.step(action) for single, action in zip(singles, actions, strict=True)]
        assert np.array_equal(observations.astype(np.float32), [observation for observation, *_ in stepped])
        assert rewards.tolist() == [reward for _, reward, *_ in stepped]
        assert ended.tolist() == [terminated for _, _, terminated, *_ in stepped]
        if step == STEPS // 2:
            which = np.arange(COPIES) % 2 == 0
            copies.keep(which)
            singles, actions = singles[::2], actions[which]


class Colder(gym.ObservationWrapper):
    def observation(self, observation: Any) -> Any:
        return observation - 1


def test_wrapped_and_other_environments_have_no_such_form() -> None:
    assert not has_classic_form(Colder(gym.make("Acrobot-v1")))
    assert not has_classic_form(gym.make("FrozenLake-v1"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mountaincar", "left = -velocity\nnone = 0\nright = velocity"),
        ("mountaincar-continuous", "force = 30*velocity"),
        ("acrobot", "minus = -rate1\nzero = 0\nplus = rate1"),
        ("pendulum", "torque = -8*sin - 2*rate"),
        ("pendulum-torque", "torque = -8*sin - 2*rate"),
    ],
)
def test_episodes_of_classic_control_are_those_of_single_environments(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_for(name, text)
    seeds = [*episode_seeds(0, "engines", 30), 3]
    with Simulator(policy.task) as vector, copies_of(policy.task, monkeypatch) as copies:
        assert (vector.engine, copies.engine) == ("vector", "copies")
        played = vector.play(policy, seeds)
        assert_equal(played, copies.play(policy, seeds))
    assert_same(played[-1], by_hand(policy.task, policy, seeds[-1]))
