"""The vectorised engine plays the episodes of single environments, to the last bit.

It tests `episodes.play` and `episodes.vector`, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import AcrobotEnv
from played import CARTPOLE, CLUMSY, assert_equal, assert_same, by_hand, copies_of, policy_for

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import ParallelSimulator, Simulator
from policygen.episodes.vector import VECTOR_COPIES, VectorCopies, has_vector_form

EPISODES = [
    ("cartpole", CLUMSY),
    ("mountaincar", "left = -velocity\nnone = 0\nright = velocity"),
    ("acrobot", "minus = -rate1\nzero = 0\nplus = rate1"),
    ("mountaincar-continuous", "force = 30*velocity"),
    ("pendulum-torque", "torque = -8*sin - 2*rate"),
    ("navigation", "forward = front - 1.5\nturn_right = r45 - l45\nturn_left = l45 - r45"),
    ("pong", "up = paddle - ball_y\ndown = ball_y - paddle\nstay = 0"),
    ("pong", "up = 0\ndown = 0\nstay = 1"),  # its episodes end one by one, and the noise of the others goes on
]


@pytest.mark.parametrize(("name", "text"), EPISODES)
def test_vectorised_episodes_are_those_of_single_environments_bit_for_bit(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_for(name, text)
    policy = replace(policy, task=replace(policy.task, max_steps=min(300, policy.task.max_steps)))
    seeds = [*episode_seeds(0, "engines", 12), 3, 1, 3, 2_653_589_793]
    with Simulator(policy.task) as vector, copies_of(policy.task, monkeypatch) as copies:
        assert (vector.engine, copies.engine) == ("vector", "copies")
        played = vector.play(policy, seeds)
        assert_equal(played, copies.play(policy, seeds))
    assert [trajectory.seed for trajectory in played] == seeds
    assert_same(played[-1], by_hand(policy.task, policy, seeds[-1]))
    if name in ("navigation", "pong"):
        assert max(trajectory.length for trajectory in played) > 64  # longer than a block of noise


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_an_episode_that_ends_at_the_limit_is_told_apart_from_one_that_is_cut(offset):
    policy = policy_for("cartpole", CLUMSY)
    length = by_hand(CARTPOLE, policy, 7).length
    task = replace(CARTPOLE, max_steps=length + offset)
    with Simulator(task) as simulator:
        trajectory = simulator.play(policy, [7])[0]
    assert_same(trajectory, by_hand(task, policy, 7))
    assert trajectory.length == min(length, length + offset)
    assert trajectory.terminated == (offset >= 0)
    assert trajectory.truncated == (offset <= 0)


def test_many_policies_side_by_side_play_what_each_plays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = (CLUMSY, "left = 0\nright = 2*angle + spin", "left = 0\nright = 2.5*angle + 0.3*spin", CLUMSY)
    policies: list[Any] = [policy_for("cartpole", text) for text in texts]
    seeds = episode_seeds(0, "engines", 6)
    with ParallelSimulator(CARTPOLE) as players:
        alone = [players.play(policy, seeds) for policy in policies]
        for room in (VECTOR_COPIES, 13, 5):  # all at once, two at a time, each by itself
            monkeypatch.setattr(VectorCopies, "max_copies", room)
            for some in (slice(None), slice(1, 3)):
                for one, other in zip(players.play_many(policies[some], seeds), alone[some], strict=True):
                    assert_equal(one, other)


# --- classic control --------------------------------------------------------------------------------------------------

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
        ("CartPole-v1", {"sutton_barto_reward": True}),
        ("MountainCar-v0", {"goal_velocity": 0.02}),
        ("MountainCarContinuous-v0", {"goal_velocity": 0.02}),
        ("Pendulum-v1", {"g": 3.7}),
        ("policygen/PendulumTorque-v0", {"most_load": 0.5}),
    ],
)
def test_copies_step_as_single_environments_bit_for_bit(
    gym_id: str, kwargs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Strong enough that random actions turn the joints over, and up to their greatest speeds.
    monkeypatch.setattr(AcrobotEnv, "AVAIL_TORQUE", [-40.0, 0.0, 40.0])
    env = gym.make(gym_id, disable_env_checker=True, **kwargs)
    assert has_vector_form(env)
    copies = VectorCopies(env, STEPS)
    singles: list[Any] = [gym.make(gym_id, disable_env_checker=True, **kwargs).unwrapped for _ in range(COPIES)]
    assert np.array_equal(
        copies.begin(range(COPIES)), [single.reset(seed=seed)[0] for seed, single in enumerate(singles)]
    )
    rng = np.random.default_rng(0)
    for step in range(STEPS):
        if step % 4 == 0:  # held for a while, so that copies get far
            actions = pushes(env, len(singles), rng)
        observations, rewards, ended, _ = copies.step(actions)
        for single in singles:
            single.steps_beyond_terminated = None  # CartPole pays otherwise after the end of an episode
        stepped = [single.step(action) for single, action in zip(singles, actions, strict=True)]
        assert np.array_equal(observations.astype(np.float32), [observation for observation, *_ in stepped])
        assert rewards.tolist() == [reward for _, reward, *_ in stepped]
        assert ended.tolist() == [terminated for _, _, terminated, *_ in stepped]
        if step == STEPS // 2:
            which = np.arange(COPIES) % 2 == 0
            copies.replace(~which, ())
            singles, actions = singles[::2], actions[which]


class Colder(gym.ObservationWrapper):
    def observation(self, observation: Any) -> Any:
        return observation - 1


def test_wrapped_and_other_environments_have_no_such_form() -> None:
    assert not has_vector_form(Colder(gym.make("Acrobot-v1")))
    assert not has_vector_form(Colder(gym.make("CartPole-v1")))
    assert not has_vector_form(gym.make("FrozenLake-v1"))
