"""Episodes as arrays, and whoever chooses the actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from policygen.tasks.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """One episode as arrays.

    Attributes:
        observations: float32, shape (T + 1, d): the last row is the observation after the last action.
        actions: int16 of shape (T,) for Discrete, (T, m) for MultiDiscrete, float32 (T, m) for Box.
        rewards: float32, shape (T,).
        episode_return: undiscounted sum of rewards, added in double precision.
        seed: what the environment was reset with.
        terminated: the environment ended the episode; `truncated`: the time limit did.
        terms: the sum of each of the reward's terms, where the environment tells them apart (`reward_...`,
            `..._penalty` and `..._cost` in `info`, as MuJoCo's do).
    """

    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    episode_return: float
    seed: int
    terminated: bool
    truncated: bool
    terms: tuple[tuple[str, float], ...] = ()

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.rewards)


class Actor(Protocol):
    """Whatever chooses actions for a batch of observations of shape (n, d)."""

    def act(self, observations: npt.NDArray[Any], /) -> npt.NDArray[Any]:
        """Actions in the environment's own form, one per row."""
        ...


class RandomActor:
    """Uniformly random actions, for the episodes before the first policy."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._rng = np.random.default_rng(seed)

    def act(self, observations: npt.NDArray[Any], /) -> npt.NDArray[Any]:
        """One random action per row of `observations`."""
        n = len(observations)
        columns = [
            self._rng.integers(len(a.labels), size=n) if a.is_choice else self._rng.uniform(a.low, a.high, size=n)
            for a in self._task.actuators
        ]
        if self._task.action_space == "discrete":
            return columns[0]
        stacked = np.stack(columns, axis=1)
        return stacked.astype(np.float32) if self._task.action_space == "box" else stacked
