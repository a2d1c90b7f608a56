"""`policygen new`: from a module in the working directory to a run."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from support import Line, sentences, summary_of, the_run

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")

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


FAULTY = (
    ROOM
    + """

class Drafty(Room):
    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.t = np.random.uniform(10, 30)
        return np.array([self.t], np.float32), info


class Outside(Room):
    observation_space = spaces.Box(-1, 1, (1,), np.float32)
"""
)


@pytest.fixture
def faulty_rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "faulty_rooms.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("faulty_rooms")
    sys.modules.pop("faulty_rooms")
    for name in {"Drafty", "Outside"} & gym.registry.keys():
        gym.registry.pop(name)


@pytest.mark.usefixtures("faulty_rooms")
def test_a_room_that_ignores_its_seed_is_played_with_a_warning_and_labelled_wherever_a_score_stands(line: Line) -> None:
    assert line("new", "faulty_rooms:Drafty", "--kwarg", "outside=4.0", "-o", "room.toml").code == 0
    run = ("run", "room.toml", "--trust", "--iterations", 1, "--episodes", 4, "--jobs", 1)
    run += ("--set", "final_episodes=5", "--set", "warmup_episodes=2")
    done = line(*run, "--out", "found")
    assert done.code == 0, done.err
    (warning,) = sentences(done.err)
    assert warning.startswith("Warning: two episodes of ")
    assert "draws from np.random instead of self.np_random" in warning
    assert re.search(r"final score: .* over 5 fresh unseeded episodes", done.out)
    folder = the_run(Path("found"))
    assert summary_of(folder)["final"]["engine"] == "copies, unseeded"
    assert json.loads((folder / "task.json").read_text())["unseeded"] is True
    again = line("eval", folder, "--episodes", 4, "--trust")
    assert "over 4 unseeded episodes" in again.out, again.err
    assert "unseeded" in line("compare", folder).out
    line("report", folder)
    assert "5 fresh unseeded episodes" in Path("report.html").read_text()
    Path("own.txt").write_text("heater = 1\nwindow_0 = 1\nwindow_1 = 0\n")
    own = line("eval", "own.txt", "--task", "room.toml", "--trust", "--episodes", 4)
    assert ("over 4 unseeded episodes" in own.out, "with one seed differ" in own.err) == (True, True)


@pytest.mark.usefixtures("faulty_rooms")
def test_values_beyond_the_stated_bounds_are_said_when_the_file_is_written(line: Line) -> None:
    made = line("new", "faulty_rooms:Outside", "--kwarg", "outside=4.0")
    said = r"Warning: obs went from -?[\d.]+ to [\d.]+ under random actions, outside the -1 to 1 that the env"
    assert re.search(said, made.err), made.err
    assert made.code == 0


def test_bins_of_equations_wait_in_comments_so_that_names_can_change(line: Line) -> None:
    assert line("new", "Pendulum-v1", "-o", "swing.toml").code == 0
    text = Path("swing.toml").read_text().replace('name = "x"', 'name = "x_tip"')
    head, marked, bins = text.partition("\n# Bins for --policy table; use the names of `observations`:\n")
    assert marked
    Path("swing.toml").write_text(text)
    assert line("tasks", "swing.toml").code == 0
    bins = bins.partition("\n\n")[0].replace("# ", "")
    Path("swing.toml").write_text(f"{head}\n{bins}\n")
    said = line("tasks", "swing.toml")
    assert said.code == 2
    assert "`grid.x`: there is no such observation or feature; name one of x_tip, y, " in said.err
    Path("swing.toml").write_text(Path("swing.toml").read_text().replace("\nx = [", "\nx_tip = ["))
    assert line("run", "swing.toml", "--policy", "table", "--iterations", 1, "--episodes", 2, "--jobs", 1).code == 0
