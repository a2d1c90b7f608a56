"""Episodes in a fitted plant, whose copies step together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.batched import play_batch, play_together
from policygen.episodes.trajectory import Actor, Trajectory
from policygen.plants.fit import FittedPlant
from policygen.policies.plant import Column, drawn_starts

LANES = 4_096  # episodes that are played side by side


class PlantCopies:
    """Copies of a fitted plant, one per seed; the seed determines the ensemble's member and the start.

    A copy fails if it leaves the bounds of the data or its reward is not finite. Its episode then ends, and the reward
    of its last step is the plant's `reward_outside` for each step left until the limit.
    """

    def __init__(self, plant: FittedPlant, seeds: Sequence[int], starts: Column | None = None) -> None:
        equations = plant.equations
        self._plant, self._equations = plant, equations
        members = np.asarray(seeds) % len(plant.values)
        self._values = list(plant.values[members].T)
        width = len(plant.low)
        self._low, self._high = plant.low[:, None], plant.high[:, None]
        drawn = np.stack([_start(plant, seed) for seed in seeds])
        if starts is not None:
            drawn[:, : starts.shape[1]] = starts
        columns = list(drawn.T)
        with np.errstate(over="ignore"):
            self.first = drawn[:, :width].astype(np.float32)  # observations at the start, shape (n, d)
        self._state = columns[:width]
        self._memory: list[Any] = equations.memory(columns[width:], len(seeds))
        self._steps_left = equations.task.max_steps

    def step(self, actions: npt.NDArray[Any]) -> tuple[Any, ...]:
        """Step every copy; return the values of a vector environment's `step`."""
        equations, plant = self._equations, self._plant
        n = len(self._state[0])
        decided = equations.decided(actions)
        moved, memory = equations.step(self._state, self._memory, decided, self._values)
        after = np.empty((len(moved), n))
        for row, column in zip(after, moved, strict=True):
            row[:] = column
        outside = ~((after >= self._low) & (after <= self._high)).all(axis=0)
        if outside.any():
            after[:, outside] = np.clip(np.nan_to_num(after[:, outside]), self._low, self._high)
        paid, ends = equations.outcome(self._state, self._memory, decided, self._values, list(after))
        rewards, ended = np.empty(n), np.empty(n, np.bool_)
        rewards[:], ended[:] = paid, ends
        failed = outside | ~np.isfinite(rewards)
        ended |= failed
        rewards[failed] = plant.reward_outside * self._steps_left
        self._steps_left -= 1
        self._state, self._memory = list(after), [np.broadcast_to(column, n) for column in memory]
        with np.errstate(over="ignore"):
            seen = after.T.astype(np.float32)
        return seen, rewards, ended, False, {}

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Keep only these copies."""
        self._state = [column[which] for column in self._state]
        self._memory = [column[which] for column in self._memory]
        self._values = [column[which] for column in self._values]

    def close(self) -> None:
        """Do nothing: there is no environment to close."""


def _start(plant: FittedPlant, seed: int) -> Column:
    """Return the start of an episode, hidden states last: one that was seen, with the plant's `start` lines applied."""
    rng = np.random.default_rng(seed)
    start = plant.starts[rng.integers(len(plant.starts))].copy()
    for name, value in drawn_starts(plant.equations.plant, rng):
        start[[*plant.equations.task.observation_names, *plant.equations.plant.hidden].index(name)] = value
    return np.asarray(start, np.float64)


def play_in_plant(
    plant: FittedPlant, actors: Sequence[Actor], seeds: Sequence[int], starts: Column | None = None
) -> list[list[Trajectory]]:
    """Play each actor in the plant, one episode per seed; return the trajectories of each actor.

    Args:
        starts: first observations, shape (seeds, d), instead of those that the seeds draw; only with a single actor.
    """

    def play(actor: Actor, some: Sequence[int]) -> list[Trajectory]:
        return play_batch(plant.equations.task, actor, some, PlantCopies(plant, some, starts))

    return play_together(play, actors, seeds, LANES if starts is None else len(seeds))
