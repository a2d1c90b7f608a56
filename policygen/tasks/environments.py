"""Gymnasium environments, made with sentences for whatever goes wrong."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from policygen.errors import TaskError
from policygen.tasks import worlds as worlds  # registers them
from policygen.tasks.task import Task


def make_env(task: Task) -> gym.Env[Any, Any]:
    """A fresh Gymnasium environment of the task, cut at `task.max_steps`.

    Raises:
        TaskError: Gymnasium does not know the id, or a package the environment needs is missing.
    """
    return make(task.gym_id, dict(task.kwargs), task.max_steps)


# Which extra of ours brings what an environment family needs.
_EXTRAS = {"mujoco": "mujoco", "box2d": "box2d", "pygame": "box2d", "swig": "box2d"}


def make(gym_id: str, kwargs: Mapping[str, Any], max_steps: int | None = None) -> gym.Env[Any, Any]:
    """`gymnasium.make` whose failures are sentences.

    Raises:
        TaskError: Gymnasium does not know the id or the kwargs, or a package the environment needs is missing.
    """
    arguments: dict[str, Any] = {**kwargs, "disable_env_checker": True}
    if max_steps is not None:
        arguments["max_episode_steps"] = max_steps
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "a newer version exists" is the task file's business
            return gym.make(gym_id, **arguments)
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        extra = next((extra for word, extra in _EXTRAS.items() if word in str(error).lower()), None)
        fix = f'run: pip install "policygen[{extra}]"' if extra else f"install what it names: {error}"
        raise TaskError(f"{gym_id} needs a package that is not installed; {fix}") from None
    except gym.error.Error as error:
        raise TaskError(f"Gymnasium cannot make {gym_id}: {error}") from None
    except (TypeError, ValueError, KeyError, AssertionError) as error:
        fault = f"{type(error).__name__}: {error}"
        raise TaskError(f"{gym_id} does not take these kwargs ({fault}); correct `kwargs` in the task file") from None
