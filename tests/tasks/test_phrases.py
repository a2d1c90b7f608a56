"""Tasks for environments of texts that nobody described."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import policygen
from policygen.errors import EnvironmentFault, PolicyError
from policygen.extensions.export.formats import exported
from policygen.policies.parse import parse
from policygen.policies.policy import from_record
from policygen.tasks.load import task_of
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.task import Task


class Doors(gym.Env[Any, Any]):
    """Says which of two doors is open, and how far it is; the right one pays 1."""

    def __init__(self, longest: int = 40) -> None:
        self.observation_space = spaces.Dict(
            said=spaces.Text(longest, charset="abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ."),
            distance=spaces.Box(0, 1, (1,), np.float32),
        )
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observed(), {}

    def _observed(self) -> Any:
        self.right = int(self.np_random.integers(2))
        said = f"The {'left' if self.right == 0 else 'right'} door is open."
        return {"said": said, "distance": self.np_random.random(1, np.float32)}

    def step(self, action: Any) -> Any:
        paid = float(action == self.right)
        return self._observed(), paid, False, False, {}


def make_doors() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Doors(), 10)


@pytest.fixture(scope="module")
def task() -> Task:
    return task_of(make_doors)


def test_words_that_tell_situations_apart_become_features_and_bins(task):
    assert task.text_names == ("said",)
    assert task.observation_names == ("distance",)
    assert task.width == 1 + 14
    assert task.features == (("said_left", 'contains(said, "left")'),)
    assert task.grid is not None
    assert task.grid.names == ("distance", "said_left")
    assert task_from_record(task_to_record(task)).layout == task.layout
    policy = parse("| distance | said_left | action |\n| * | 1 | 0 |\n| * | * | 1 |", task, kind="table").policy
    assert policy is not None
    score = policygen.score(policy, make_doors, episodes=20)
    assert score.mean == 10


def test_a_text_that_its_space_does_not_allow_for_is_the_environments_fault():
    with pytest.raises(EnvironmentFault, match="a text has 23 bytes; the observation space has room for 21"):
        task_of(lambda: Doors(20))


def test_equations_read_texts_too_and_what_does_is_not_exported(task):
    policy = parse('action_0 = contains(said, "left")\naction_1 = 0.5', task, kind="linear").policy
    assert policy is not None
    assert policygen.score(policy, make_doors, episodes=5).mean == 10
    assert from_record(policy.to_record()) == policy
    with pytest.raises(PolicyError, match="a policy that reads texts cannot be exported"):
        exported(policy, "c")


@pytest.mark.parametrize("columns", [0, -1, 10**9])
def test_a_saved_task_cannot_ask_for_texts_without_end(columns, task):
    record = json.loads(json.dumps(task_to_record(task)))
    record["texts"][0]["columns"] = columns
    record["layout"]["parts"][1] = {"columns": columns}
    with pytest.raises(PolicyError, match="its texts do not fit its layout"):
        task_from_record(record)
