"""What is controlled."""

from __future__ import annotations

from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

__all__ = ["Task", "load_task", "make_env"]
