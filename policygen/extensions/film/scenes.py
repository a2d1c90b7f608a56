"""Episodes replayed in an environment that renders pictures."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.episodes.simulator import RunningEpisode
from policygen.episodes.trajectory import Trajectory
from policygen.errors import EnvironmentFault, TaskError
from policygen.tasks.actions import builder
from policygen.tasks.environments import make_env
from policygen.tasks.faults import OwnDirectory, close, fault
from policygen.tasks.task import Task

RGB_ARRAY = "rgb_array"  # Gymnasium's render mode for arrays
PACE = 10.0  # steps per second, if the environment states none


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """An episode after some of its steps."""

    step: int  # number of steps taken
    is_last: bool  # whether the episode is over
    earned: float  # undiscounted sum of the rewards so far
    picture: npt.NDArray[np.uint8]  # shape (height, width, 3)


class Stage:
    """An environment of the task that renders pictures; use it in a `with`, which closes it.

    Attributes:
        pace: steps per second at which the environment is meant to be shown.

    Raises:
        TaskError: it cannot render, or a package that it needs is missing.
    """

    def __init__(self, task: Task) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        if is_headless():
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws in memory
        self._directory = OwnDirectory()
        with self._directory:
            self.task = task
            self._env = _rendering_env(task) if task.given is None else task.given.rendering(task.max_steps, RGB_ARRAY)
        self.pace = float(self._env.metadata.get("render_fps") or PACE)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exception: object) -> None:
        close(self._env)

    def play(self, episode: Trajectory, wanted: Container[int]) -> Iterator[Scene]:
        """Replay the actions of an episode; yield a scene before each of the `wanted` steps, and one at the end.

        If the environment does not repeat itself with the same seed, the replay may end earlier or have another return,
        as the last scene states.

        Raises:
            EnvironmentFault: the environment fails.
            TaskError: a package that rendering needs is missing.
        """
        build = builder(self.task.action_layout)
        if build is None and isinstance(self._env.action_space, gym.spaces.Discrete):
            build = int
        with self._directory:
            replayed = RunningEpisode.start(self._env, self.task, 0, episode.seed)
        ended = False
        for step in range(episode.length + 1):
            ended = ended or step == episode.length
            if ended or step in wanted:
                yield Scene(step, ended, float(np.sum(replayed.rewards)), self._picture())
            if ended:
                return
            action = episode.actions[step]
            with self._directory:
                ended = replayed.step(action, action if build is None else build(action)) is not None

    def _picture(self) -> npt.NDArray[np.uint8]:
        env, name = self._env, self.task.gym_id
        try:
            if hasattr(env.unwrapped, "mujoco_renderer"):
                _choose_renderer()
            picture: Any = env.render()
        except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
            text = " ".join(str(error).split())
            why = f"a package that is not installed: {text}"
            if "pygame" in text:
                why = 'pygame; run: pip install "policygen[render]"'
            raise TaskError(f"pictures of {name} need {why}") from None
        except TaskError:
            raise
        except BaseException as error:
            raise fault(error, env, name, "render") from error
        drawn = np.asarray(picture)
        if drawn.ndim != 3 or drawn.shape[2] != 3 or drawn.dtype != np.uint8:
            raise EnvironmentFault(
                f"{name}: `render` returned {drawn.dtype} of shape {drawn.shape}, which is no picture; it must return"
                " uint8 of shape (height, width, 3)"
            )
        return drawn


def _rendering_env(task: Task) -> gym.Env[Any, Any]:
    plain = make_env(task)
    modes = plain.metadata.get("render_modes") or ()
    close(plain)
    if RGB_ARRAY not in modes:
        raise TaskError(
            f"{task.gym_id} draws no pictures (it has no render mode `{RGB_ARRAY}`), so there is no film of it; "
            "`policygen show RUN -o picture.png` and `policygen report RUN` draw the policy without them"
        )
    kwargs = {**dict(task.kwargs), "render_mode": RGB_ARRAY}
    return make_env(replace(task, kwargs=tuple(kwargs.items())))


def is_headless() -> bool:
    """Whether there is no screen to open a window on."""
    return sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@functools.cache
def _choose_renderer() -> None:
    """Let MuJoCo render without a screen, by EGL or OSMesa, unless the user has chosen a renderer."""
    if not is_headless() or "MUJOCO_GL" in os.environ:
        return
    before = os.environ.pop("PYOPENGL_PLATFORM", None)
    for name in ("egl", "osmesa"):
        try:
            importlib.import_module(f"mujoco.{name}").GLContext(8, 8).free()
        except Exception:  # a library, a driver or a device is missing
            os.environ.pop("PYOPENGL_PLATFORM", None)  # MuJoCo has set it
            continue
        os.environ["MUJOCO_GL"] = name
        return
    if before is not None:
        os.environ["PYOPENGL_PLATFORM"] = before
    raise TaskError(
        "MuJoCo cannot draw here: there is no screen, and neither EGL nor OSMesa works; install one of them (on"
        " Debian: apt install libegl1 libosmesa6), or make the film on a machine with a screen"
    )
