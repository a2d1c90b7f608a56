"""Observations in an environment's own form: one by one to a controller, in batches to `predict`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from support import ARM

import policygen
from policygen.errors import PolicyError
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")

SPACES: dict[str, spaces.Space[Any]] = {
    "number": spaces.Discrete(3),
    "image": spaces.Box(-1, 1, (2, 2)),
    "counts": spaces.MultiDiscrete([3, 2]),
    "dict": spaces.Dict({"goal": spaces.Box(-1, 1, (2,)), "arm": spaces.Discrete(4)}),
    "tuple": spaces.Tuple((spaces.Discrete(5), spaces.Box(0, 1, (1,)))),
}
SPACES["nested"] = spaces.Dict(
    {"b": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Dict({"x": spaces.Discrete(2)}))), "a": spaces.MultiBinary(2)}
)


class Shown(gym.Env[Any, Any]):
    """An environment that shows observations of any space."""

    action_space = spaces.Discrete(2)

    def __init__(self, form: str) -> None:
        self.observation_space = SPACES[form]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 1.0, False, False, {}


def shown(form: str) -> Task:
    name = f"Shown{form.title()}-v0"
    if name not in gym.registry:
        gym.register(name, lambda: Shown(form), max_episode_steps=10)
    return load_task(name)


def numbers_of(observation: Any) -> list[Any]:
    """The numbers of each part, in the order of the space."""
    if not isinstance(observation, dict | tuple):
        return [np.ravel(observation)]
    parts = observation.values() if isinstance(observation, dict) else observation
    return [numbers for part in parts for numbers in numbers_of(part)]


@pytest.mark.parametrize("form", SPACES)
def test_a_saved_policy_takes_the_observations_of_its_environment(form, tmp_path):
    task = shown(form)
    weights = " + ".join(f"{i + 1}*{name}" for i, name in enumerate(task.observation_names))
    written = parse(f"action_0 = 0\naction_1 = {weights} - 1.5", task).policy
    assert written is not None
    written.save(tmp_path / "best.json")
    policy = Policy.load(tmp_path / "best.json")
    controller = policy.controller()
    env = make_env(task)
    observation, _ = env.reset(seed=1)
    for _ in range(10):
        action = controller(observation)
        assert action == policy.act_one(np.concatenate(numbers_of(observation)))
        observation, *_ = env.step(action)
    env.close()


@pytest.mark.parametrize(
    ("form", "wrong", "sentence"),
    [
        ("dict", {"goal": [0, 0]}, "is a mapping with 'arm': a number or an array of numbers, 'goal': a number"),
        ("dict", [0, 0, 0], "is a mapping with 'arm'"),
        ("tuple", 3, r"is a sequence of 2 parts \(a number"),
        ("tuple", (1, [0.5, 0.5]), "expected one observation of 2 numbers, got 3 numbers"),
        ("image", {"a": 1}, "expected one observation of 4 numbers"),
        ("number", "one", "expected one observation of 1 numbers"),
    ],
)
def test_an_observation_of_another_form_is_refused_in_one_sentence(form, wrong, sentence):
    task = shown(form)
    policy = TablePolicy.from_actions(task, np.zeros(task.grid.size))
    with pytest.raises(PolicyError, match=sentence):
        policy.controller()(wrong)


# --- predict, as Stable-Baselines3 asks -------------------------------------------------------------------------------

POLE = "left = 0\nright = angle + 0.2*spin"


def test_one_observation_and_a_batch_are_told_apart_for_every_form() -> None:
    policy = policygen.parse(POLE, "cartpole", "linear")
    batch = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    actions, state = policy.predict(batch)
    assert (actions.tolist(), state) == (policy.act(batch).tolist(), None)
    assert policy.predict(batch[2], deterministic=False)[0] == np.array(actions[2])
    assert policy.predict(batch[2:3])[0].shape == (1,)
    assert policy.predict(batch[2:3], episode_start=np.array([True]))[0].tolist() == [int(actions[2])]
    for wrong in (np.zeros(3), np.zeros((2, 5)), "no", {"a": 1}):
        with pytest.raises(PolicyError, match="of CartPole-v1 has 4 numbers; predict takes one, or a batch"):
            policy.predict(wrong)
    index = policygen.parse("| sticks | action |\n| 0-4 | take1 |\n| * | take3 |", "nim")
    for observation, expected in ((7, 2), ([7], [2]), ([7, 3, 10], [2, 0, 2])):
        assert index.predict(np.array(observation))[0].tolist() == expected
    numbers = policygen.parse("shoulder = x\nelbow = 0.5*y", ARM, "linear")
    actions, _ = numbers.predict(np.array([[0.5, 0.25], [9.0, 1.0]]))
    assert (actions.shape, actions.dtype) == ((2, 2), np.float32)
    assert actions[1].tolist() == [1.0, 0.5]  # inside the action space
    assert numbers.predict(np.array([0.5, 0.25]))[0].shape == (2,)


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
    with pytest.raises(PolicyError, match=r"`state` has shape \(3,\) and not \(2, 1\): pass the state"):
        policy.predict(batch, np.zeros(3))


def test_observations_that_nest_are_batched_part_by_part() -> None:
    task = shown("dict")
    policy = policygen.parse("action_0 = 1.5\naction_1 = arm", task, "linear")
    batch = {"goal": np.zeros((3, 2), np.float32), "arm": np.array([0, 2, 1])}
    assert policy.predict(batch)[0].tolist() == [0, 1, 0]
    assert int(policy.predict({"goal": np.zeros(2), "arm": 2})[0]) == 1
    one = {"goal": np.zeros((1, 2)), "arm": np.array([2])}
    assert policy.predict(one, episode_start=np.array([True]))[0].tolist() == [1]


def test_stable_baselines_evaluates_our_policies() -> None:
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    from stable_baselines3.common.env_util import make_vec_env

    ours = policygen.parse(POLE, "cartpole", "linear")
    mean, std = evaluation.evaluate_policy(ours, make_vec_env("CartPole-v1", n_envs=3, seed=1), n_eval_episodes=6)
    assert (mean, std) == (500.0, 0.0)
    remembering = policygen.parse(f"let before = prev(angle, 0)\n{POLE} + 0*before", "cartpole", "linear")
    assert evaluation.evaluate_policy(remembering, make_vec_env("CartPole-v1", n_envs=2, seed=1), 4)[0] == 500.0
