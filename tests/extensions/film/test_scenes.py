"""Episodes replayed with pictures: the same steps, and error messages where nothing can be drawn."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from support import environment

import policygen
from policygen.episodes.simulator import Simulator
from policygen.errors import EnvironmentFault, TaskError
from policygen.extensions.film.scenes import Stage
from policygen.policies.policy import Policy
from policygen.tasks.load import load_task
from policygen.tasks.task import Task, output_names


def lively(name: str) -> Policy:
    """A linear policy that does different things at different times."""
    task = load_task(name)
    rng = np.random.default_rng(4)
    lines = [
        f"{output} = " + " + ".join(f"{rng.normal():.2f}*{x}" for x in task.observation_names)
        for output in output_names(task)
    ]
    return policygen.parse("\n".join(lines), task, "linear")


@pytest.mark.parametrize("name", ["cartpole", "frozenlake", "lunarlander", "hopper", "pong"])
def test_an_episode_is_the_same_when_it_is_drawn(name):
    policy = lively(name)
    with Simulator(policy.task) as simulator:
        [_, episode] = simulator.play(policy, [1, 2])
    with Stage(policy.task) as stage:
        scenes = list(stage.play(episode, {0, 3}))
    assert [(scene.step, scene.is_last) for scene in scenes] == [(0, False), (3, False), (episode.length, True)]
    earned = [float(np.sum(episode.rewards[: scene.step], dtype=np.float64)) for scene in scenes]
    assert [scene.earned for scene in scenes] == pytest.approx(earned, rel=1e-6, abs=1e-6)
    assert scenes[-1].earned == pytest.approx(episode.episode_return, rel=1e-9, abs=1e-9)
    assert scenes[0].picture.shape == scenes[-1].picture.shape
    assert (scenes[0].picture != scenes[-1].picture).any()


class Mute(gym.Env):
    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gym.spaces.Box(-1, 1, (4,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 1.0, False, False, {}


class Crooked(Mute):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def render(self):
        return np.zeros((3, 4))


def the_task(kind: type[gym.Env]) -> Task:
    name = f"{kind.__name__}-v0"
    if name not in gym.registry:
        gym.register(name, entry_point=kind)
    return replace(load_task("cartpole"), gym_id=name, max_steps=3)


def test_an_environment_without_pictures_is_refused_in_a_sentence():
    with pytest.raises(
        TaskError, match=r"^Mute-v0 draws no pictures \(it has no render mode `rgb_array`\).*show RUN -o"
    ):
        Stage(the_task(Mute))


def test_a_picture_that_is_none_is_a_fault_of_the_environment():
    policy = policygen.parse("left = 1\nright = 0", "cartpole", "linear")
    with Simulator(load_task("cartpole")) as simulator:
        [episode] = simulator.play(policy, [1])
    with Stage(the_task(Crooked)) as stage, pytest.raises(EnvironmentFault, match=r"float64 of shape \(3, 4\)"):
        list(stage.play(episode, ()))


@pytest.mark.parametrize(
    ("missing", "name", "said"),
    [
        ("pygame", "frozenlake", 'pip install "policygen[render]"'),
        ("mujoco.egl mujoco.osmesa", "inverted-pendulum", "neither EGL nor OSMesa works"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(tmp_path, missing, name, said):
    path = tmp_path / "policy.json"
    lively(name).save(path)
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({missing.split()!r}))\nfrom policygen.cli import main\n"
        f"sys.argv = ['policygen', 'film', {str(path)!r}]\nmain()"
    )
    screenless = {k: v for k, v in environment().items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=screenless, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*.gif"))
