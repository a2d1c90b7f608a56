from __future__ import annotations

import gymnasium as gym
import pytest

from policygen.errors import TaskError
from policygen.tasks.actions import actuators_of
from policygen.tasks.spaces import flat_names
from policygen.tasks.task import Task


def test_a_broken_feature_of_a_task_made_in_code_is_named():
    space = gym.make("CartPole-v1")
    space.close()
    kind, actuators, _ = actuators_of(space.action_space)
    task = Task(
        "mine",
        "CartPole-v1",
        tuple(flat_names(space.observation_space)),
        actuators,
        kind,
        500,
        features=(("bad", "obs9"),),
    )
    with pytest.raises(TaskError, match="task mine: feature bad: unknown name `obs9`"):
        _ = task.parsed_features
