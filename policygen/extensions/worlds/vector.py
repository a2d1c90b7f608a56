"""Numpy dynamics as a Gymnasium vector environment of many copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from policygen.episodes.dynamics import Array, Begun, Dynamics, Noise

_Flags = npt.NDArray[np.bool_]


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

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> Begun:
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
    ) -> tuple[npt.NDArray[np.float32], Array, _Flags, _Flags, dict[str, Any]]:
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
