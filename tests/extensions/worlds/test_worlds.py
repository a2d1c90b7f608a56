"""Checks of each environment of our own: Gymnasium's own checks, documentation, pictures.

It tests `extensions.worlds.finite`, `extensions.worlds.navigation` and `extensions.worlds.pong`.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support import environment

from policygen.extensions import worlds

assert worlds
ROOMS = ["SimpleDoorKey", "KeyInBox", "RandomBoxKey", "ColoredDoorKey"]
NAMES = ["Nim", "Maze", "Navigation", "Pong", "Adventure", "PendulumTorque", "WhenToAsk", *ROOMS]


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_finds_nothing_to_criticise(name):
    mode = {"Adventure": "ansi", "PendulumTorque": None}.get(name, "rgb_array")
    env = gym.make(f"policygen/{name}-v0", render_mode=mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # As of Gymnasium's own pendulum: it would rather have actions between -1 and 1.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized.*")
        check_env(env.unwrapped, skip_render_check=mode is None)
    env.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_of_an_environment_are_documented(name):
    env = gym.make(f"policygen/{name}-v0").unwrapped
    parts = re.findall(r"^(\w+): ", inspect.getdoc(type(env)), re.MULTILINE)
    assert [part for part in parts if part not in ("Step", "Info")] == [
        "Actions",
        "Observation",
        "Reward",
        "Start",
        "End",
    ]


@pytest.mark.parametrize("name", ["Nim", "Maze", "Navigation", "Pong", "WhenToAsk", "SimpleDoorKey"])
def test_a_picture_shows_the_state(name):
    env = gym.make(f"policygen/{name}-v0", render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step(1)
    assert (before.dtype, before.ndim) == (np.uint8, 3)
    assert not np.array_equal(before, env.render())


MAZE = """\
+---+---+---+
| R         |
+   +---+   +
|   |       |
+   +---+---+
|         G |
+---+---+---+
"""


@pytest.mark.parametrize(("name", "text"), [("Nim", "||||||||||  10 left\n"), ("Maze", MAZE)])
def test_a_state_is_shown_as_text(name, text):
    env = gym.make(f"policygen/{name}-v0", render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == text


@pytest.mark.parametrize("name", ["Nim", "Maze", "Navigation", "Pong", "WhenToAsk", *ROOMS])
def test_misuse_is_refused(name):
    env = gym.make(f"policygen/{name}-v0", disable_env_checker=True).unwrapped
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(gym.error.InvalidAction, match="there is no action 9"):
        env.step(9)
    assert name in ROOMS or env.render() is None
    with pytest.raises(gym.error.UnsupportedMode, match="no render mode"):
        type(env)(**{**env.spec.kwargs, "render_mode": "film"})


def test_the_long_form_of_an_id_needs_no_import(tmp_path):
    code = "import gymnasium; print(gymnasium.make('policygen.extensions.worlds:policygen/Nim-v0').reset(seed=0))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=60
    )
    assert done.stdout == "(10, {})\n", done.stderr
