"""Environments that cannot be made are answered with a sentence."""

from __future__ import annotations

import sys
from dataclasses import replace

import gymnasium as gym
import pytest

from policygen.errors import TaskError
from policygen.tasks.environments import became_unstable, make, make_env, origin
from policygen.tasks.load import load_task


def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)  # importing it fails, as where it is not installed
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(TaskError, match=r"LunarLander-v3 needs a package .*pip install \"policygen\[box2d\]\""):
        load_task("LunarLander-v3")


MODULE = """
import gymnasium as gym

class Made(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, fault=None, *, size=1):
        if fault:
            raise fault

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, 1.0, True, False, {}

class Spaceless(gym.Env):
    action_space = gym.spaces.Discrete(2)


gym.register("policygen-tests/Made-v0", "registering_here:Made")
gym.register("policygen-tests/Gone-v0", "registering_here:Gone")
gym.register("policygen-tests/Failing-v0", "registering_here:Made", kwargs={"fault": RuntimeError("no\\nlicence")})
gym.register("policygen-tests/Choosy-v0", "registering_here:Made", kwargs={"fault": TypeError("which size?")})
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    (tmp_path / "registering_here.py").write_text(MODULE)
    (tmp_path / "failing_here.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("registering_here", None)
    for name in [name for name in gym.registry if name.startswith("policygen-tests/")]:
        gym.registry.pop(name)


@pytest.mark.usefixtures("modules")
def test_a_module_before_the_colon_registers_its_environments():
    task = load_task("registering_here:policygen-tests/Made-v0")
    assert task.gym_id == "registering_here:policygen-tests/Made-v0"
    assert origin(make_env(task)) == origin(make_env(replace(task, gym_id="policygen-tests/Made-v0")))
    assert origin(make_env(task)) != origin(make_env(replace(task, kwargs=(("size", 2),))))


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "registering_here:Nothing-v0",
            "neither registers `Nothing-v0` nor has a class or function of that name; it has",
        ),
        ("registering_here:", "`registering_here:` is not a Gymnasium id: write `Id-v0`, or `module:Id-v0`"),
        (":Made-v0", "is not a Gymnasium id"),
        ("one:two:Made-v0", "is not a Gymnasium id"),
        (".relative:Made-v0", "is not a Gymnasium id"),
        ("Cart Pole-v1", "is not a Gymnasium id"),
        ("registering_here.py:Made", "`registering_here.py` is a file: name its module, registering_here:Made"),
        ("registering_here:Spaceless", "Spaceless has no observation_space: set `self.observation_space` to a space"),
        ("failing_here:Made-v0", "the module failing_here fails when it is imported: RuntimeError: no licence"),
        ("registering_here:policygen-tests/Gone-v0", "cannot be made, it fails with AttributeError: .*Gone"),
        ("registering_here:policygen-tests/Failing-v0", "cannot be made, it fails with RuntimeError: no licence"),
        (
            "registering_here:policygen-tests/Choosy-v0",
            r"without arguments \(TypeError: which size.*`kwargs` in a task",
        ),
    ],
)
def test_what_cannot_be_made_is_answered_in_one_sentence(name, sentence):
    with pytest.raises(TaskError, match=sentence) as refusal:
        load_task(name)
    assert "\n" not in str(refusal.value)


def test_a_simulation_that_diverges_is_told_and_writes_no_log(tmp_path, monkeypatch, capfd):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    env = make("InvertedPendulum-v5", {})
    env.reset(seed=0)
    assert not became_unstable(env)
    data = env.unwrapped.data
    env.unwrapped.set_state(data.qpos, data.qvel + 1e12)
    env.step(env.action_space.sample())
    assert became_unstable(env)
    env.reset(seed=0)
    assert not became_unstable(env)
    env.close()
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")


ROOM = """
import gymnasium as gym


class Room(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return action, 0.0, False, False, {}


def shifted():
    return gym.wrappers.TransformReward(gym.wrappers.TimeLimit(Room(), 20), lambda reward: reward + 5)
"""


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A working directory with a module that registers nothing."""
    (tmp_path / "room_here.py").write_text(ROOM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in ("", str(tmp_path))])
    yield tmp_path
    sys.modules.pop("room_here", None)
    for name in ("Room", "shifted"):
        gym.registry.pop(name, None)


def test_a_typed_module_is_found_in_the_working_directory_behind_whatever_is_installed(room):
    (room / "numpy.py").write_text("raise RuntimeError('never imported')")
    task = load_task("room_here:shifted")
    assert task.max_steps == 20
    assert sys.path[-1] == str(room)
    with pytest.raises(TaskError, match="nor has a class or function of that name; it has room_here:Room"):
        load_task("room_here:Rom")
    with pytest.raises(TaskError, match=r"there is no module `rom_here`: neither rom_here.py in the working directory"):
        load_task("rom_here:Room")
