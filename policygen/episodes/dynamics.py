"""Dynamics in numpy for many copies at once, their noise, and a Gymnasium environment of such dynamics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ResetResult = tuple[npt.NDArray[np.float32], dict[str, Any]]  # observations and information
_AHEAD = 64  # steps of noise drawn at once: calling a generator costs as much as hundreds of numbers


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step of n copies.

    Attributes:
        state: shape (numbers, n).
        observations: shape (n, d).
        rewards, ended: shape (n,).
    """

    state: Array
    observations: npt.NDArray[Any]
    rewards: Array
    ended: npt.NDArray[np.bool_]


class Noise:
    """Standard normal noise of n copies, `width` numbers per step of each.

    Args:
        generators: one for each seed.
        copies: the number of each copy's generator, shape (n,).
    """

    def __init__(
        self, generators: Sequence[np.random.Generator], copies: npt.NDArray[np.integer[Any]], width: int
    ) -> None:
        self._generators, self._copies = generators, copies
        self._ahead, self._used = np.empty((len(generators), 0, width)), 0

    def __call__(self) -> Array:
        """Draw the noise of one step, shape (n, width)."""
        if self._used == self._ahead.shape[1]:
            size = (_AHEAD, self._ahead.shape[2])
            self._ahead, self._used = np.stack([one.standard_normal(size) for one in self._generators]), 0
        self._used += 1
        noise: Array = self._ahead[self._copies, self._used - 1]
        return noise

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Keep only these copies."""
        used, self._copies = np.unique(self._copies[which], return_inverse=True)
        self._generators, self._ahead = [self._generators[i] for i in used], self._ahead[used]


class Dynamics(ABC):
    """The start and step of an environment, for n copies at once.

    Attributes:
        observation_space: observation space of one copy.
        actions: number of actions; they are 0 to `actions` - 1.
        noise_width: standard normal numbers per step of one copy.
    """

    observation_space: ClassVar[gym.spaces.Box]
    actions: ClassVar[int]
    noise_width: ClassVar[int] = 0

    @abstractmethod
    def start(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Return the state of one new copy, shape (numbers,), and its first observation, shape (d,)."""

    @abstractmethod
    def advance(self, state: Array, actions: npt.NDArray[np.integer[Any]], noise: Array) -> StepResult:
        """Compute one step of n copies; `actions` has shape (n,), `noise` shape (n, `self.noise_width`)."""


class DynamicsEnv(gym.Env[Any, Any]):
    """A single environment that moves by `dynamics`."""

    dynamics: ClassVar[Dynamics]

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise gym.error.UnsupportedMode(f"there is no render mode {render_mode!r}; there is rgb_array")
        self.observation_space = self.dynamics.observation_space
        self.action_space = gym.spaces.Discrete(self.dynamics.actions)
        self.render_mode = render_mode
        self.state: Array | None = None  # shape (numbers,)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Begin an episode and return its first observation."""
        super().reset(seed=seed)
        self.state, observation = self.dynamics.start(self.np_random)
        return observation.astype(np.float32), {}

    def step(self, action: int) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take one step.

        Raises:
            gymnasium.error.ResetNeeded: there is no episode yet.
            gymnasium.error.InvalidAction: there is no such action.
        """
        if self.state is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        if not 0 <= action < self.dynamics.actions:
            raise gym.error.InvalidAction(f"there is no action {action}; there are 0 to {self.dynamics.actions - 1}")
        noise = self.np_random.standard_normal((1, self.dynamics.noise_width))
        after = self.dynamics.advance(self.state[:, None], np.array([action]), noise)
        self.state = after.state[:, 0]
        return after.observations[0].astype(np.float32), float(after.rewards[0]), bool(after.ended[0]), False, {}
