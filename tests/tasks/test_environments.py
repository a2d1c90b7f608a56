"""Environments that cannot be made are answered with a sentence."""

from __future__ import annotations

import sys
from dataclasses import replace

import gymnasium as gym
import pytest

from policygen.errors import PolicygenError, TaskError
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
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return action, 0.0, False, False, {}

class Spaceless(gym.Env):
    action_space = gym.spaces.Discrete(2)

def shifted():
    return gym.wrappers.TransformReward(gym.wrappers.TimeLimit(Made(), 20), lambda reward: reward + 5)

class Asserting(Made):
    def __init__(self):
        assert 1 == 2, "unknown body"

class Weighing(Made):
    def step(self, action):
        import numpy
        return action, numpy.ones(2), False, False, {}

class Picture(Made):
    observation_space = gym.spaces.Box(0, 255, (16, 16, 3))

class Sequence(Made):
    observation_space = gym.spaces.Sequence(gym.spaces.Discrete(2))

class Many(Made):
    action_space = gym.spaces.Discrete(100_000)

class Graph(Made):
    action_space = gym.spaces.Graph(gym.spaces.Discrete(2), None)

class Plant(Made):
    def __init__(self, plant, *, gain, size=3):
        pass

class Drawn(Made):
    def __init__(self, render_mode):
        pass

class Old(Made):
    def step(self, action):
        return super().step(action)[:4]

class Older(Made):
    def reset(self):
        return 0

class Infinite(Made):
    def step(self, action):
        return action, float("inf"), True, False, {}

def several():
    return gym.vector.SyncVectorEnv([Made, Made])

class Team:
    possible_agents = ["one", "two"]

def register_envs():
    gym.register("policygen-tests/Late-v0", "made_here:Made")

for name, entry, fault in (
    ("Made", "Made", None),
    ("Gone", "Gone", None),
    ("Failing", "Made", RuntimeError("no\\nlicence")),
    ("Choosy", "Made", TypeError("which size?")),
):
    gym.register(f"policygen-tests/{name}-v0", f"made_here:{entry}", kwargs={"fault": fault} if fault else {})
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory, from which Python imports nothing by itself, with the modules of these tests."""
    known = set(gym.registry)
    (tmp_path / "made_here.py").write_text(MODULE)
    (tmp_path / "failing_here.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    yield tmp_path
    sys.modules.pop("made_here", None)
    for name in set(gym.registry) - known:
        gym.registry.pop(name)


def test_a_module_of_the_working_directory_registers_its_environments_and_hides_no_other(folder):
    (folder / "numpy.py").write_text("raise RuntimeError('never imported')")
    task = load_task("made_here:policygen-tests/Made-v0")
    assert task.gym_id == "made_here:policygen-tests/Made-v0"
    assert origin(make_env(task)) == origin(make_env(replace(task, gym_id="policygen-tests/Made-v0")))
    assert origin(make_env(task)) != origin(make_env(replace(task, kwargs=(("size", 2),))))
    assert load_task("made_here:shifted").max_steps == 20
    assert load_task("made_here:policygen-tests/Late-v0").observation_names == ("state",)
    assert sys.path[-1] == str(folder)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "made_here:No-v0",
            "neither registers `No-v0` nor has a class .* that name; it has .*Made-v0, .*: made_here.envs:No-v0",
        ),
        ("made_there:Made", "there is no module `made_there`: neither made_there.py in the working directory"),
        ("made_here:", "`made_here:` is not a Gymnasium id: write `Id-v0`, or `module:Id-v0`"),
        *((name, "is not a Gymnasium id") for name in (":Made-v0", "one:two:Made-v0", ".made:Made-v0", "Cart Pole-v1")),
        ("made_here.py:Made", "`made_here.py` is a file; name its module: made_here:Made"),
        ("made_here:Spaceless", "Spaceless has no observation_space: set `self.observation_space` to a gymnasium"),
        (
            "failing_here:Made-v0",
            r"failing_here fails when it is imported \(RuntimeError: no licence, failing_here.py, line \d+\): repair",
        ),
        ("made_here:policygen-tests/Gone-v0", r"cannot be made \(AttributeError: .*Gone"),
        ("made_here:policygen-tests/Failing-v0", r"cannot be made \(RuntimeError: no licence"),
        (
            "made_here:Asserting",
            r"AssertionError: unknown body, made_here.py, line \d+\): .* dependencies may have the wrong versions",
        ),
        ("made_here:Team", "Team is not an environment: .*; if it has several agents, wrap it in a gymnasium.Env"),
        ("unknown/Made-v0", "; if a package registers it, name the package: PACKAGE:unknown/Made-v0"),
        (
            "made_here:policygen-tests/Choosy-v0",
            r"without arguments \(TypeError: which size.*--kwarg NAME=VALUE` writes a task file",
        ),
        ("made_here:Picture", "ObservationWrapper that computes .* policygen run MODULE:FUNCTION"),
        ("made_here:Sequence", "ObservationWrapper that returns a Box, and .* policygen run MODULE:FUNCTION"),
        ("made_here:Many", "chosen among 100,000 values; the maximum is 2,000: .*ActionWrapper"),
        ("made_here:Graph", "ActionWrapper whose action_space is one of these"),
        ("made_here:Plant", "'plant' .*: `policygen new made_here:Plant --kwarg NAME=VALUE` writes"),
        ("made_here:Drawn", "`policygen new made_here:Drawn --kwarg render_mode=rgb_array` writes"),
        ("made_here:Old", r"`step` has to return \(observation, reward, terminated, truncated, info\)"),
        ("made_here:Older", r"write `def reset\(self, \*, seed=None, options=None\)`"),
        ("made_here:Infinite", "the reward of step 1 is inf; return a finite number"),
        ("made_here:several", "makes a vectorised environment: name a class or function that makes a single one"),
        ("made_here:Weighing", "not a number: make one number .*TransformReward or .*LinearReward.* several agents"),
    ],
)
def test_what_cannot_be_played_is_answered_in_one_sentence_that_says_what_helps(name, sentence):
    with pytest.raises(PolicygenError, match=sentence) as refusal:
        load_task(name)
    assert "\n" not in str(refusal.value)


def test_a_simulation_that_diverges_is_told_and_writes_no_log(folder, capfd):
    pytest.importorskip("mujoco")
    before = list(folder.iterdir())
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
    assert list(folder.iterdir()) == before
    assert capfd.readouterr() == ("", "")
