"""A policy at the wheel: the environment's own observations in, its actions out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.quantities.words import BYTES
from policygen.tasks.actions import shaped
from policygen.tasks.spaces import Layout, Words, flatten

if TYPE_CHECKING:
    from policygen.policies.policy import Policy


class Remembering:
    """A policy that remembers, at work on several episodes side by side, each with a memory of its own.

    It decides row by row, as a `Controller` does, so that an episode is the same to the last bit whichever engine plays
    it: a batch of numpy's sines may differ in the last bit from the sine of one number.
    """

    def __init__(self, policy: Policy, episodes: int) -> None:
        self._policy = policy
        self._memory: list[list[float]] = policy.start(episodes).tolist()

    def decide(self, observations: Iterable[npt.NDArray[Any]], rows: npt.NDArray[np.integer[Any]], /) -> list[Any]:
        """Actions for observations of the episodes `rows`; see `policygen.episodes.trajectory.Decider`."""
        actions, step, memory = [], self._policy.step, self._memory
        for observation, row in zip(observations, rows.tolist(), strict=True):
            action, memory[row] = step(observation.tolist(), memory[row])
            actions.append(action)
        return actions


class Controller:
    """Acts on one raw observation after another, such as `env.step` returns them.

        controller = policy.controller()
        observation, _ = env.reset()
        observation, *_ = env.step(controller(observation))

    Needs neither the environment nor Gymnasium: the policy's task knows how observations nest. A policy that remembers
    does so from call to call; `reset` it when an episode begins.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._step = policy.step
        self.reset()

    def reset(self) -> None:
        """Forget what was remembered: a new episode begins."""
        self.memory: list[float] = self.policy.start(1)[0].tolist()

    def __call__(self, observation: Any) -> Any:
        """The action for one observation.

        Args:
            observation: a number, an array, or a mapping or sequence of these, as the environment gives it.

        Returns:
            What the environment's `step` takes: an int for Discrete, an array of shape (m,) for MultiDiscrete (int64)
            and Box (float32), a tuple or dictionary of such for Tuple and Dict.

        Raises:
            PolicyError: the observation is not built like those of the policy's environment.
        """
        task = self.policy.task
        try:
            row = flatten(task.layout, observation)
        except (TypeError, LookupError, ValueError):
            raise PolicyError(f"an observation of {task.gym_id} is {_words(task.layout)}") from None
        if not self.memory:
            action = self.policy.act_one(row)
        else:
            action, self.memory = self._step(row.tolist(), self.memory)
        return action if task.action_layout is None else shaped(task.action_layout, action)


def _words(layout: Layout | Words | None) -> str:
    if layout is None:
        return "a number or an array of numbers"
    if isinstance(layout, Words):
        return f"a text of at most {BYTES * layout.columns} bytes"
    if layout.keys is None:
        return f"a sequence of {len(layout.parts)} parts ({'; '.join(map(_words, layout.parts))})"
    keys = ", ".join(f"{key!r}: {_words(part)}" for key, part in zip(layout.keys, layout.parts, strict=True))
    return f"a mapping with {keys}"
