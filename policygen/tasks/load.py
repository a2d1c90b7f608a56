"""Load a task by its name, its file, or its Gymnasium id."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import gymnasium as gym

from policygen.errors import TaskError
from policygen.files import find_resource, list_resources
from policygen.tasks.discovery import task_from_gym
from policygen.tasks.faults import STEP_TIMEOUT, OwnDirectory
from policygen.tasks.task import Task
from policygen.tasks.taskfile import task_from_file


def load_task(name: str, *, trust: bool = False, step_timeout: float = STEP_TIMEOUT) -> Task:
    """Load a task.

    Args:
        name: the name of a shipped or local task, a path to a task file, or a Gymnasium id.
        trust: whether a task file that is not shipped may name modules to import and paths to read.
        step_timeout: limit in seconds on one step, if random actions are played to find what the task does not state.

    Raises:
        TaskError: there is no such task, its file is malformed, or its environment cannot be made.
        EnvironmentFault: the environment fails or does not answer while random actions are played.
    """
    path = find_resource("envs", name, ".toml")
    if path is not None:
        with OwnDirectory():
            return task_from_file(path, trust=trust, step_timeout=step_timeout)
    if name.endswith(".toml") or ("/" in name and Path(name).suffix):
        raise TaskError(f"there is no task file {name}")
    if name in gym.registry or ":" in name or re.fullmatch(r".+-v\d+", name):
        with OwnDirectory():
            return task_from_gym(name, step_timeout)
    known = sorted(list_resources("envs", ".toml"))
    near = difflib.get_close_matches(name, known + sorted(gym.registry), n=3)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise TaskError(
        f"there is no task `{name}`{meant} (`policygen tasks` lists them; a task file or a Gymnasium id works, too)"
    )
