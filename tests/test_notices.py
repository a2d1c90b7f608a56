"""Notices of slow activities on the command line."""

from __future__ import annotations

import time

import pytest
from support import Line

from policygen.notices import announced_if_slow, notices

SLOW = """
import time
import gymnasium as gym
import numpy as np

class Slow(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action):
        time.sleep(0.001)
        self.steps += 1
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), 1.0, False, self.steps == 20, {}
"""


@pytest.mark.usefixtures("quickly_discovered")
def test_each_slow_activity_of_a_first_prompt_is_told(
    line: Line, workplace: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policygen.notices.AFTER", 0.05)
    with open("crawling.py", "w", encoding="utf-8") as file:
        file.write(SLOW)
    monkeypatch.syspath_prepend(".")
    done = line("prompt", "crawling:Slow", "--policy", "equations")
    assert done.code == 0, done.err
    told = [row for row in done.err.splitlines() if row.endswith(" ...")]
    assert "playing random actions of crawling:Slow to see ranges, lengths and the effect of seeds ..." in told
    assert "playing episodes of random actions ..." in told
    assert not any(row.endswith(" ...") for row in done.out.splitlines())


def test_what_is_over_soon_is_not_told_and_a_library_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("policygen.notices.AFTER", 0.05)
    with announced_if_slow("nobody listens"):
        time.sleep(0.1)
    monkeypatch.setattr(notices, "say", said.append)
    with announced_if_slow("soon over"):
        pass
    time.sleep(0.1)
    assert not said
    with announced_if_slow("slow"):
        time.sleep(0.1)
    assert said == ["slow ..."]
