"""Tasks. The names below load when first used, because a saved policy acts where Gymnasium is not installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policygen.tasks.environments import make_env
    from policygen.tasks.load import load_task
    from policygen.tasks.perturb import Perturbation
    from policygen.tasks.task import Task

__all__ = ["Perturbation", "Task", "load_task", "make_env"]

_HOMES = {"Perturbation": "perturb", "Task": "task", "load_task": "load", "make_env": "environments"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'policygen.tasks' has no attribute {name!r}; public are {', '.join(__all__)}")
    return getattr(importlib.import_module(f"policygen.tasks.{_HOMES[name]}"), name)
