"""A policy as Stable-Baselines3 asks one: `predict` for a batch of an environment's observations, or for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.tasks.actions import shaped
from policygen.tasks.spaces import Words, flatten

if TYPE_CHECKING:
    from policygen.policies.policy import Policy

Memory = npt.NDArray[np.float64]


def predict(policy: Policy, observation: Any, state: Memory | None, episode_start: Any) -> tuple[Any, Memory | None]:
    """Actions for observations as a vectorised environment gives them, and what the policy remembers; see `Policy`."""
    rows, single = _rows(policy, observation, batched=episode_start is not None and np.ndim(episode_start) > 0)
    if not policy.remembers:
        if single:
            return _own_form(policy, [np.asarray(policy.act_one(rows[0]))], single=True), None
        return _own_form(policy, policy.act(rows), single=False), None
    memory = policy.start(len(rows)) if state is None else np.array(state, dtype=np.float64)
    if memory.shape != (len(rows), len(policy.remembers)):
        raise PolicyError(
            f"`state` has shape {memory.shape} and not ({len(rows)}, {len(policy.remembers)}): hand on the one that "
            "predict returned, and None at first"
        )
    if episode_start is not None:
        memory[np.broadcast_to(np.asarray(episode_start, dtype=bool), len(rows))] = policy.start(1)[0]
    actions = policy.act(rows, memory)
    return _own_form(policy, actions, single=single), memory


def _own_form(policy: Policy, actions: Any, *, single: bool) -> Any:
    """Actions as the environment takes them; a batch of Dicts or Tuples is a list of them."""
    layout = policy.task.action_layout
    if layout is not None:
        made = [shaped(layout, action) for action in actions]
        return made[0] if single else made
    return np.asarray(actions[0]) if single else actions


def _rows(policy: Policy, observation: Any, *, batched: bool) -> tuple[npt.NDArray[Any], bool]:
    """The observations flattened, shape (n, d), and whether there is only one, not in a batch."""
    task = policy.task
    width = task.width
    try:
        if isinstance(task.layout, Words):
            alone = isinstance(observation, str)
            texts = [observation] if alone else list(observation)
            return np.stack([flatten(task.layout, text) for text in texts]), alone and not batched
        if task.layout is not None:
            return _nested(policy, observation, width, batched=batched)
        array = np.asarray(observation)
        alone = array.ndim == 0 if width == 1 else array.ndim == 1 or array.shape[:1] != (1,)
        if array.size == width and alone and not batched:
            return array.reshape(1, width), True
        return array.reshape(-1, width), False
    except (TypeError, LookupError, ValueError):
        raise PolicyError(
            f"an observation of {task.gym_id} has {width} numbers; predict takes one, or a batch (n, ...)"
        ) from None


def _nested(policy: Policy, observation: Any, width: int, *, batched: bool) -> tuple[npt.NDArray[Any], bool]:
    """Parts that are batched each: the n-th observation is made of the n-th of every part."""
    row = flatten(policy.task.layout, observation)
    if row.size == width and not batched:
        return row.reshape(1, width), True
    parts = list(observation.values()) if isinstance(observation, Mapping) else list(observation)
    names = list(observation) if isinstance(observation, Mapping) else None
    singles = [dict(zip(names, one, strict=True)) if names is not None else one for one in zip(*parts, strict=True)]
    return np.stack([flatten(policy.task.layout, one) for one in singles]).reshape(-1, width), False
