"""Episodes in a fitted plant, whose copies step together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.episodes.play import Array, Copies, Flags, Stepped, play, play_together
from policygen.episodes.trajectory import Actor, Trajectory
from policygen.extensions.plants.equations import Column, drawn_starts
from policygen.extensions.plants.fit import FittedPlant

LANES = 4_096  # episodes that are played side by side


class PlantCopies(Copies):
    """Copies of a fitted plant; the seed determines the ensemble's member and the start.

    A copy fails if it leaves the bounds of the data or its reward is not finite. Its episode then ends, and the reward
    of its last step is the plant's `reward_outside` for each step left until the limit.

    Args:
        starts: first observations, shape (k, d), instead of those that k seeds draw.
    """

    engine: ClassVar[str] = "plant"
    most_idle: ClassVar[float] = 0.5

    def __init__(self, plant: FittedPlant, starts: Column | None = None) -> None:
        self._plant, self._equations, self._starts = plant, plant.equations, starts
        self.most = LANES if starts is None else len(starts)
        self._low, self._high = plant.low[:, None], plant.high[:, None]

    def begin(self, seeds: Sequence[int], /) -> Array:
        """Begin an episode with each seed; see `Copies`."""
        plant, width = self._plant, len(self._low)
        members = np.asarray(seeds) % len(plant.values)
        self._values = list(plant.values[members].T)
        drawn = np.stack([_start(plant, seed) for seed in seeds])
        if self._starts is not None:
            drawn[:, : self._starts.shape[1]] = self._starts
        columns = list(drawn.T)
        self._state = columns[:width]
        self._memory: list[Any] = self._equations.memory(columns[width:], len(seeds))
        self._steps_left = self._equations.task.max_steps
        with np.errstate(over="ignore"):
            self._rows = drawn[:, :width].astype(np.float32)
        return self._rows

    def step(self, actions: npt.NDArray[Any], /) -> Stepped:
        """Step every copy; see `Copies`."""
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
            self._rows = after.T.astype(np.float32)
        return self._rows, rewards, ended, self._steps_left == 0

    def replace(self, ended: Flags, seeds: Sequence[int], /) -> Array:
        """Drop the ended copies; see `Copies`."""
        self._state, self._memory, self._values = (
            [column[~ended] for column in columns] for columns in (self._state, self._memory, self._values)
        )
        self._rows = self._rows[~ended]
        return self._rows


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

    copies = PlantCopies(plant, starts)
    return play_together(partial(play, plant.equations.task, copies), actors, seeds, copies.most)
