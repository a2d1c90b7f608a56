"""Numpy dynamics as a Gymnasium environment, and as a vector environment of many copies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

Array = npt.NDArray[np.float64]
_AHEAD = 64  # steps of noise drawn per call: a call costs as much as hundreds of numbers


@dataclass(frozen=True, slots=True)
class Stepped:
    """The result of a step of n copies.

    Attributes:
        state: shape (numbers, n).
        observations: shape (n, d).
        rewards, ended: shape (n,).
    """

    state: Array
    observations: Array
    rewards: Array
    ended: npt.NDArray[np.bool_]


class Noise:
    """Standard normal noise from several generators, `width` numbers per step and generator."""

    def __init__(self, generators: Sequence[np.random.Generator], width: int) -> None:
        self._generators = generators
        self._ahead, self._drawn = np.empty((len(generators), 0, width)), 0

    def __call__(self) -> Array:
        """Draw the noise of one step, shape (n, width)."""
        if self._drawn == self._ahead.shape[1]:
            size = (_AHEAD, self._ahead.shape[2])
            self._ahead, self._drawn = np.stack([one.standard_normal(size) for one in self._generators]), 0
        self._drawn += 1
        noise: Array = self._ahead[:, self._drawn - 1]
        return noise

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Keep only these generators."""
        self._generators = [one for one, kept in zip(self._generators, which, strict=True) if kept]
        self._ahead = self._ahead[which]


class Dynamics(ABC):
    """The start and step of an environment, for n copies at once.

    Attributes:
        observation_space: of one copy.
        actions: number of actions; they are 0 to `actions` - 1.
        noise: standard normal numbers per step of one copy.
    """

    observation_space: ClassVar[gym.spaces.Box]
    actions: ClassVar[int]
    noise: ClassVar[int] = 0

    @abstractmethod
    def start(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Return the state of one new copy, shape (numbers,), and its first observation, shape (d,)."""

    @abstractmethod
    def advance(self, state: Array, actions: npt.NDArray[np.integer[Any]], noise: Array) -> Stepped:
        """Compute one step of n copies; `actions` has shape (n,), `noise` shape (n, `self.noise`)."""


class DynamicsEnv(gym.Env[Any, Any]):
    """One copy."""

    dynamics: ClassVar[Dynamics]

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise gym.error.UnsupportedMode(f"there is no render mode {render_mode!r}; there is rgb_array")
        self.observation_space = self.dynamics.observation_space
        self.action_space = gym.spaces.Discrete(self.dynamics.actions)
        self.render_mode = render_mode
        self.state: Array | None = None  # shape (numbers,)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
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
        noise = self.np_random.standard_normal((1, self.dynamics.noise))
        after = self.dynamics.advance(self.state[:, None], np.array([action]), noise)
        self.state = after.state[:, 0]
        return after.observations[0].astype(np.float32), float(after.rewards[0]), bool(after.ended[0]), False, {}


class DynamicsVectorEnv(VectorEnv[npt.NDArray[np.float32], npt.NDArray[np.integer[Any]], npt.NDArray[Any]]):
    """Many copies side by side; a copy reset with a seed plays the same episode as a single environment.

    A copy whose episode has ended begins a new one with the next step, which ignores its action and has reward 0
    (Gymnasium's next-step mode). Later episodes continue the copy's random stream.
    """

    dynamics: ClassVar[Dynamics]

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int = 1, max_episode_steps: int = 1_000) -> None:
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.single_observation_space = self.dynamics.observation_space
        self.single_action_space = gym.spaces.Discrete(self.dynamics.actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._random: list[np.random.Generator] = []

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begin episodes and return first observations; a single seed s gives the copies s, s + 1, ..."""
        seeds = [None] * self.num_envs if seed is None else seed
        if isinstance(seeds, int):
            seeds = [seeds + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(f"there are {len(seeds)} seeds for {self.num_envs} copies")
        kept: Sequence[np.random.Generator | None] = self._random or [None] * self.num_envs
        self._random = [
            old if number is None and old is not None else seeding.np_random(number)[0]
            for old, number in zip(kept, seeds, strict=True)
        ]
        begun = [self.dynamics.start(random) for random in self._random]
        self.state = np.stack([state for state, _ in begun], axis=1)
        self._noise = Noise(self._random, self.dynamics.noise)
        self._steps = np.zeros(self.num_envs, np.int64)
        self._done = np.zeros(self.num_envs, np.bool_)
        return np.stack([observation for _, observation in begun]).astype(np.float32), {}

    def step(
        self, actions: npt.NDArray[np.integer[Any]]
    ) -> tuple[
        npt.NDArray[np.float32], npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]
    ]:
        """Step every copy.

        Raises:
            gymnasium.error.ResetNeeded: there are no episodes yet.
        """
        if not self._random:
            raise gym.error.ResetNeeded("call reset() before step()")
        after = self.dynamics.advance(self.state, np.asarray(actions), self._noise())
        observations, rewards, terminated = after.observations.astype(np.float32), after.rewards, after.ended
        self.state = after.state
        self._steps += 1
        truncated = self._steps >= self.max_episode_steps
        for i in np.flatnonzero(self._done):
            self.state[:, i], observations[i] = self.dynamics.start(self._random[i])
            rewards[i], terminated[i], truncated[i], self._steps[i] = 0.0, False, False, 0
        self._done = terminated | truncated
        return observations, rewards, terminated, truncated, {}
