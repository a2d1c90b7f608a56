"""`predict` answers as Stable-Baselines3's own models do: batches, single observations, states, starts."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from support import ARM

import policygen
from policygen.errors import PolicyError
from policygen.policies.policy import Policy

pytestmark = pytest.mark.usefixtures("workplace")

POLE = "left = 0\nright = angle + 0.2*spin"


def test_a_batch_and_one_observation_of_several_numbers() -> None:
    policy = policygen.parse(POLE, "cartpole", "linear")
    batch = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    actions, state = policy.predict(batch)
    assert (actions.tolist(), state) == (policy.act(batch).tolist(), None)
    one, _ = policy.predict(batch[2], deterministic=False)
    assert (one.shape, int(one)) == ((), int(actions[2]))
    assert policy.predict(batch[2:3])[0].shape == (1,)
    assert policy.predict(batch[2:3], episode_start=np.array([True]))[0].tolist() == [int(actions[2])]


def test_an_index_is_one_observation_and_an_array_of_them_a_batch() -> None:
    policy = policygen.parse("| sticks | action |\n| 0-4 | take1 |\n| * | take3 |", "nim")
    assert int(policy.predict(7)[0]) == 2
    assert policy.predict(np.array([7]))[0].tolist() == [2]
    assert policy.predict(np.array([7, 3, 10]))[0].tolist() == [2, 0, 2]


def test_actions_that_are_numbers_keep_their_shape() -> None:
    policy = policygen.parse("shoulder = x\nelbow = 0.5*y", ARM, "linear")
    actions, _ = policy.predict(np.array([[0.5, 0.25], [9.0, 1.0]]))
    assert (actions.shape, actions.dtype) == ((2, 2), np.float32)
    assert actions[1].tolist() == [1.0, 0.5]  # inside the action space
    assert policy.predict(np.array([0.5, 0.25]))[0].shape == (2,)


def test_a_policy_that_remembers_keeps_its_memory_in_the_state_and_forgets_at_a_start() -> None:
    text = "let phase = mod(prev(phase, 0) + 0.25, 1)\nleft = 0\nright = phase - 0.6"
    policy = policygen.parse(text, "cartpole", "linear")
    batch = np.zeros((2, 4))
    said, state = [], None
    for step in range(6):
        actions, state = policy.predict(batch, state, np.array([step == 0, step in (0, 2)]))
        said.append(actions.tolist())
    assert [one for one, _ in said] == [0, 0, 1, 0, 0, 0]
    assert [other for _, other in said] == [0, 0, 0, 0, 1, 0]  # began anew at step 2
    with pytest.raises(PolicyError, match=r"`state` has shape \(3,\) and not \(2, 1\): hand on the one"):
        policy.predict(batch, np.zeros(3))


class Rooms(gym.Env[Any, Any]):
    observation_space = gym.spaces.Dict({"room": gym.spaces.Discrete(3), "at": gym.spaces.Box(-1, 1, (2,), np.float32)})
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return {"room": 1, "at": np.zeros(2, np.float32)}, {}

    def step(self, action: Any) -> Any:
        return {"room": 2, "at": np.ones(2, np.float32)}, 1.0, True, False, {}


def test_observations_that_nest_are_batched_part_by_part() -> None:
    gym.register("PredictRooms-v0", Rooms)
    try:
        task = policygen.load_task("PredictRooms-v0")
        names = task.observation_names
        room = next(name for name in names if "room" in name)
        labels = task.actuators[0].labels
        outputs = [f"action_{label}" for label in labels]
        policy: Policy = policygen.parse(f"{outputs[0]} = 1.5\n{outputs[1]} = {room}", task, "linear")
        batch = {"room": np.array([0, 2, 1]), "at": np.zeros((3, 2), np.float32)}
        assert policy.predict(batch)[0].tolist() == [0, 1, 0]
        assert int(policy.predict({"room": 2, "at": np.zeros(2)})[0]) == 1
        one = {"room": np.array([2]), "at": np.zeros((1, 2))}
        assert policy.predict(one, episode_start=np.array([True]))[0].tolist() == [1]
    finally:
        del gym.registry["PredictRooms-v0"]


def test_observations_of_another_environment_are_one_sentence() -> None:
    policy = policygen.parse(POLE, "cartpole", "linear")
    for wrong in (np.zeros(3), np.zeros((2, 5)), "no", {"a": 1}):
        with pytest.raises(
            PolicyError, match="an observation of CartPole-v1 has 4 numbers; predict takes one, or a batch"
        ):
            policy.predict(wrong)


def test_stable_baselines_evaluates_our_policies_and_we_score_its_models() -> None:
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    ours = policygen.parse(POLE, "cartpole", "linear")
    mean, std = evaluation.evaluate_policy(ours, make_vec_env("CartPole-v1", n_envs=3, seed=1), n_eval_episodes=6)
    assert (mean, std) == (500.0, 0.0)
    remembering = policygen.parse(f"let before = prev(angle, 0)\n{POLE} + 0*before", "cartpole", "linear")
    assert evaluation.evaluate_policy(remembering, make_vec_env("CartPole-v1", n_envs=2, seed=1), 4)[0] == 500.0
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, device="cpu", seed=1)
    score = policygen.score(model, "cartpole", episodes=5)
    assert score.seeds == policygen.score(ours, episodes=5).seeds
    assert 5 < score.mean < 500
