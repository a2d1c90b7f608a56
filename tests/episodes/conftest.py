"""An environment that several tests of episodes play."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from policygen.tasks.load import load_task
from policygen.tasks.task import Task


class Mixer(gym.Env[Any, Any]):
    """Its action is a Dict of a choice, counted from 1, and two numbers; `info` holds a number and a text."""

    observation_space = gym.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gym.spaces.Dict(valve=gym.spaces.Discrete(3, start=1), flow=gym.spaces.Box(-1, 1, (2,), np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {"steps": 0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.steps += 1
        return action["flow"], float(action["valve"]), False, False, {"steps": np.float32(self.steps), "name": "mixer"}


@pytest.fixture
def mixer(quickly_discovered: None) -> Iterator[Task]:
    """The task of a `Mixer` whose episodes have five steps."""
    gym.register("Mixer-v0", Mixer, max_episode_steps=5)
    yield load_task("Mixer-v0")
    gym.registry.pop("Mixer-v0")
