"""`policygen new`: from a module in the working directory to a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import in_a_process

pytestmark = pytest.mark.usefixtures("workplace")

ROOM = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Room(gym.Env):
    observation_space = spaces.Box(-30, 60, (1,), np.float32)
    action_space = spaces.Dict(heater=spaces.Box(0, 5, (1,), np.float32), window=spaces.Discrete(2))

    def __init__(self, outside):
        self.outside = outside

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.steps = self.np_random.uniform(10, 30), 0
        return np.array([self.t], np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += action["heater"][0] - (0.1 + 0.2 * action["window"]) * (self.t - self.outside)
        self.steps += 1
        return np.array([self.t], np.float32), -abs(self.t - 21), False, self.steps >= 20, {}
"""


def test_a_file_is_written_edited_and_run(tmp_path: Path) -> None:
    (tmp_path / "rooms.py").write_text(ROOM)
    made = in_a_process("new", "rooms:Room", "--kwarg", "outside=4.0", "-o", "room.toml", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "decided: heater, window" in made.stdout
    assert "assumed: an action is a Dict; a policy decides its parts as heater, window" in made.stdout
    assert "assumed: episodes have 20 steps: the environment truncated 250 random ones there" in made.stdout
    assert "max_steps = 20\n" in (tmp_path / "room.toml").read_text()
    again = in_a_process("new", "rooms:Room", "--kwarg", "outside=4.0", "-o", "room.toml", cwd=tmp_path)
    assert (again.returncode, again.stderr.strip()) == (
        2,
        "Error: room.toml is there already; move it, or name another file with -o",
    )
    text = (tmp_path / "room.toml").read_text()
    assert "outside = 4.0" in text
    (tmp_path / "room.toml").write_text(re.sub(r'"0",\s+"1"', '"shut", "open"', text))
    run = in_a_process("run", "room.toml", "--trust", "--iterations", 1, "--episodes", 4, "--jobs", 1, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    shown = in_a_process("show", "latest", cwd=tmp_path)
    assert "window_open =" in shown.stdout
    page = in_a_process("report", "latest", cwd=tmp_path)
    assert page.returncode == 0
    assert page.stderr.startswith(
        "Warning: report.html lacks the episode that plays, the usual sizes of the terms: the saved task names the "
        "module `rooms`, which would run its code; if you know the file, add --trust"
    )
    refused = in_a_process("run", "room.toml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "names the module `rooms`, which would run its code; if you know the file, add --trust" in refused.stderr


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    (tmp_path / "rooms.py").write_text(ROOM)
    said = in_a_process("new", "rooms:Room", cwd=tmp_path)
    assert "missing 1 required positional argument: 'outside'" in said.stderr
    assert "--kwarg NAME=VALUE" in said.stderr
