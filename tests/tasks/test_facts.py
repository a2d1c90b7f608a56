"""Facts about simulators, compared with their model files and sources; and the prompts that hold them."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest
from support import facts_of

from policygen.tasks import facts as reading
from policygen.tasks.facts import simulator_facts
from policygen.tasks.load import load_task, task_from_file

pytestmark = pytest.mark.usefixtures("workplace")


def constants_of(gym_id: str) -> dict[str, str]:
    (constants,) = (fact for fact in facts_of(gym_id) if fact.startswith("Constants"))
    return dict(re.findall(r"(\w+) = (\[.*?\]|[^,\s]+?)(?:, |\.$)", constants))


def test_constants_are_read_and_state_is_not():
    cartpole = constants_of("CartPole-v1")
    assert (cartpole["gravity"], cartpole["masspole"], cartpole["tau"]) == ("9.8", "0.1", "0.02")
    assert not any("screen" in name or "steps" in name or "render" in name for name in cartpole)
    acrobot = constants_of("Acrobot-v1")
    assert (acrobot["LINK_LENGTH_1"], acrobot["AVAIL_TORQUE"]) == ("1", "[-1, 0, 1]")
    assert "SCREEN_DIM" not in acrobot


LIMIT = 7
_HIDDEN = 3
SCREEN_WIDTH = 600


class Counting(gym.Env):
    """Constants of the class, the module and the instance among state of every kind."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)
    WIDTH = 1.5
    lively = 3  # of the class until an episode changes it

    def __init__(self) -> None:
        self.mass = np.float32(2)
        self.steps = 0
        self.episodes = 0
        self.flag = True
        self.endless = float("inf")
        self.names = ["a"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.episodes += 1
        self.start = float(self.np_random.random())
        self.level = 4
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.lively = self.steps
        return np.zeros(1, np.float32), 0.0, self.steps > 5, False, {}


class Broken(Counting):
    """Fails when stepped."""

    def step(self, action):
        raise RuntimeError("out of order")


def test_what_an_episode_changes_is_not_a_constant_and_a_simulator_that_fails_has_none():
    assert simulator_facts(Counting()) == ("Constants of the simulator: LIMIT = 7, WIDTH = 1.5, mass = 2, level = 4.",)
    assert simulator_facts(Broken()) == ()


def test_many_constants_are_shortened():
    env = Counting()
    vars(env).update((f"constant_{i}", i) for i in range(300))
    (line,) = simulator_facts(env)
    assert len(line) <= reading.MOST_CHARACTERS
    assert "(shortened: " in line


def test_sentences_of_the_task_file_come_first(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\ngym_id = "CartPole-v1"\nfacts = ["The rail is oiled."]\n')
    first, second = task_from_file(path).facts
    assert first == "The rail is oiled."
    assert second.startswith("Constants of the simulator: gravity = 9.8, ")
    assert load_task("cartpole").facts == ()  # a file with an `about` gets no constants
