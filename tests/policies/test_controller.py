from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from policygen.errors import PolicyError
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task

SPACES: dict[str, spaces.Space[Any]] = {
    "number": spaces.Discrete(3),
    "image": spaces.Box(-1, 1, (2, 2)),
    "counts": spaces.MultiDiscrete([3, 2]),
    "dict": spaces.Dict({"goal": spaces.Box(-1, 1, (2,)), "arm": spaces.Discrete(4)}),
    "tuple": spaces.Tuple((spaces.Discrete(5), spaces.Box(0, 1, (1,)))),
    "nested": spaces.Dict(
        {
            "b": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Dict({"x": spaces.Discrete(2)}))),
            "a": spaces.MultiBinary(2),
        }
    ),
}


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


@pytest.fixture(params=SPACES)
def form(request):
    name = f"Shown{request.param.title()}-v0"
    gym.register(name, lambda: Shown(request.param), max_episode_steps=10)
    yield name
    del gym.registry[name]


def test_a_saved_policy_takes_the_observations_of_its_environment(form, tmp_path):
    task = load_task(form)
    weights = " + ".join(f"{i + 1}*{name}" for i, name in enumerate(task.observation_names))
    written = parse(f"action_0 = 0\naction_1 = {weights} - 1.5", task).policy
    assert written is not None
    written.save(tmp_path / "best.json")
    policy = Policy.load(tmp_path / "best.json")
    controller = policy.controller()
    env = make_env(task)
    observation, _ = env.reset(seed=1)
    for _ in range(10):
        row = spaces.flatten(plain(env.observation_space), observation)
        action = controller(observation)
        assert action == policy.act_one(row)
        observation, *_ = env.step(action)
    env.close()


def plain(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """The space with whole numbers as they are: Gymnasium's own way to flatten counts them out as ones and zeros."""
    match space:
        case spaces.Dict():
            return spaces.Dict({key: plain(part) for key, part in space.items()})
        case spaces.Tuple():
            return spaces.Tuple([plain(part) for part in space])
        case spaces.Discrete() | spaces.MultiDiscrete():
            return spaces.Box(0, 9, space.shape or (1,), np.int64)
    return space


@pytest.mark.parametrize(
    ("form", "wrong", "sentence"),
    [
        ("dict", {"goal": [0, 0]}, "is a mapping with 'arm': a number or an array of numbers, 'goal': a number"),
        ("dict", [0, 0, 0], "is a mapping with 'arm'"),
        ("tuple", (1,), r"is a sequence of 2 parts \(a number"),
        ("tuple", 3, "is a sequence of 2 parts"),
        ("tuple", (1, [0.5, 0.5]), "expected one observation of 2 numbers, got 3 numbers"),
        ("image", np.zeros(3), "expected one observation of 4 numbers, got 3 numbers"),
        ("image", {"a": 1}, "expected one observation of 4 numbers"),
        ("number", "one", "expected one observation of 1 numbers"),
    ],
)
def test_an_observation_of_another_form_is_refused_in_one_sentence(form, wrong, sentence):
    name = f"Shown{form.title()}-v0"
    gym.register(name, lambda: Shown(form), max_episode_steps=10)
    try:
        task = load_task(name)
    finally:
        del gym.registry[name]
    policy = TablePolicy.from_actions(task, np.zeros(task.grid.size))
    with pytest.raises(PolicyError, match=sentence):
        policy.controller()(wrong)
