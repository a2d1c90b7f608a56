"""Conversion between the observations and actions of an environment and the rows of numbers of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.quantities.operations import BYTES
from policygen.tasks.actions import shaped
from policygen.tasks.spaces import Layout, TextPart, flatten
from policygen.tasks.task import Task


def row_of(task: Task, observation: Any) -> npt.NDArray[Any]:
    """Flatten one observation to a row of shape (d,) in single precision.

    Raises:
        PolicyError: it does not have the structure of the task's observations.
    """
    try:
        return _single_precision(flatten(task.layout, observation))
    except (TypeError, LookupError, ValueError):
        raise PolicyError(f"an observation of {task.gym_id} is {_described(task.layout)}") from None


def _single_precision(row: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert numbers to float32, the precision of the observations from which a policy decided when it was scored."""
    with np.errstate(over="ignore"):
        return row.astype(np.float32, copy=False) if row.dtype.kind in "biuf" else row


def _described(layout: Layout | TextPart | None) -> str:
    if layout is None:
        return "a number or an array of numbers"
    if isinstance(layout, TextPart):
        return f"a text of at most {BYTES * layout.columns} bytes"
    if layout.keys is None:
        return f"a sequence of {len(layout.parts)} parts ({'; '.join(map(_described, layout.parts))})"
    keys = ", ".join(f"{key!r}: {_described(part)}" for key, part in zip(layout.keys, layout.parts, strict=True))
    return f"a mapping with {keys}"


def rows_of(task: Task, observation: Any, *, batched: bool) -> tuple[npt.NDArray[Any], bool]:
    """Flatten one observation, or a batch of n from a vectorised environment, to rows of shape (n, d); see `row_of`.

    Returns:
        The rows, and whether `observation` is a single one. Unless it is `batched`, its shape decides.

    Raises:
        PolicyError: it is neither one observation nor a batch.
    """
    layout, width = task.layout, task.width
    try:
        if layout is None:
            array = _single_precision(np.asarray(observation))
            alone = array.ndim == 0 if width == 1 else array.ndim == 1 or array.shape[:1] != (1,)
            alone = alone and array.size == width and not batched
            return array.reshape(1 if alone else -1, width), alone
        if isinstance(layout, TextPart):
            texts = [observation] if isinstance(observation, str) else list(observation)
            return np.stack([flatten(layout, text) for text in texts]), isinstance(observation, str) and not batched
        row = flatten(layout, observation)
        if row.size == width and not batched:
            return _single_precision(row.reshape(1, width)), True
        # In a batch, observation i consists of entry i of every part.
        named = isinstance(observation, Mapping)
        singles = zip(*(observation.values() if named else observation), strict=True)
        each = (flatten(layout, dict(zip(observation, one, strict=True)) if named else one) for one in singles)
        return _single_precision(np.stack(list(each)).reshape(-1, width)), False
    except (TypeError, LookupError, ValueError):
        raise PolicyError(
            f"an observation of {task.gym_id} has {width} numbers; predict takes one, or a batch (n, ...)"
        ) from None


def in_environment_form(task: Task, actions: Any, *, single: bool) -> Any:
    """Convert actions to the form that the environment takes.

    Returns:
        The first action if `single`; otherwise all of them, as an array, or as a list if they are a Dict or Tuple.
    """
    if task.action_layout is None:
        return np.asarray(actions[0]) if single else actions
    made = [shaped(task.action_layout, action) for action in actions]
    return made[0] if single else made if task.action_layout.kind == "parts" else np.array(made)
