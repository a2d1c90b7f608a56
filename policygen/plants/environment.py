"""A fitted plant as a Gymnasium environment, so that any program can train in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicyError, UsageError
from policygen.plants.fit import FittedPlant, fitted
from policygen.plants.simulate import PlantCopies
from policygen.plants.transitions import Transitions
from policygen.policies.plant import Equations
from policygen.tasks.task import Task


class PlantEnv(gym.Env[npt.NDArray[np.float32], Any]):
    """Episodes inside a plant, as tuning plays them.

    An observation is the row of the task's numbers, float32 of shape (d,), within the bounds that the task states. An
    action is what a policy returns: a choice, or the row of all actuators (a Box if any is a number; a choice in it
    is the index of its label). Numbers beyond their bounds are clipped.

    An episode is truncated at the task's step limit. It ends when the plant says so, and when a state leaves the region
    that the data cover, because the equations are a guess there. After such an end each remaining step counts the
    lowest reward seen, if that is negative.

    Args:
        equations: the plant, with its numbers.
        episodes: real episodes; the region and the starts that the plant does not state come from them.

    Attributes:
        plant: the plant with its region and its starts.

    Raises:
        PolicyError: there are no episodes.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, equations: Equations, episodes: Sequence[Trajectory]) -> None:
        if not any(episode.length for episode in episodes):
            raise PolicyError("a plant without any real episode has no starts to draw from")
        self.plant: FittedPlant = fitted(equations, equations.values[None], Transitions.of(equations.task, episodes))
        task = self._task = equations.task
        low, high = ([getattr(o, end) for o in task.observations] for end in ("low", "high"))
        self.observation_space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
        self.action_space = action_space(task)
        self._copies: PlantCopies | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Draw a start: from the plant's `start` lines, else one that was seen."""
        super().reset(seed=seed)
        self._copies, self._steps = PlantCopies(self.plant, [int(self.np_random.integers(2**31))]), 0
        return self._seen(self._copies.first), {}

    def step(self, action: Any) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Step the plant.

        Raises:
            UsageError: the action is not of the action space, or no episode has begun.
        """
        if self._copies is None:
            raise UsageError("call reset() before step()")
        if isinstance(self.action_space, spaces.Box):
            action = np.clip(np.asarray(action, np.float32), self.action_space.low, self.action_space.high)
        if not self.action_space.contains(action):
            raise UsageError(f"{str(action)[:80]} is no action of {self.action_space}")
        seen, rewards, ended, _, _ = self._copies.step(np.asarray(action)[None])
        self._steps += 1
        return self._seen(seen), float(rewards[0]), bool(ended[0]), self._steps >= self._task.max_steps, {}

    def _seen(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        space = self.observation_space
        assert isinstance(space, spaces.Box)
        return np.asarray(np.clip(rows[0], space.low, space.high), np.float32)


def action_space(task: Task) -> spaces.Space[Any]:
    """Return the space of the actions that a policy of the task returns."""
    counts = [len(actuator.labels) for actuator in task.actuators]
    if task.action_space == "discrete":
        return spaces.Discrete(counts[0])
    if task.action_space == "multidiscrete":
        return spaces.MultiDiscrete(counts)
    low, high, _ = zip(*task.limits.bounds, strict=True)
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
