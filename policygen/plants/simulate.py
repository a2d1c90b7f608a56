"""Episodes inside a fitted plant: copies of it that step together, as those of an environment do."""

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
    """Copies of a fitted plant, one per seed; a seed decides on the member of the ensemble, the start and the noise.

    A copy that leaves the region that the data cover has failed: its episode ends, and each remaining step pays the
    lowest reward seen, if that is negative.

    Attributes:
        first: observations at the start, float32 of shape (n, d).
    """

    def __init__(self, plant: FittedPlant, seeds: Sequence[int], starts: Column | None = None) -> None:
        equations = plant.equations
        self._plant, self._equations = plant, equations
        members = np.asarray(seeds) % len(plant.values)
        self._values = list(plant.values[members].T)
        if starts is None:
            starts = np.stack([_start(plant, seed) for seed in seeds])
        elif equations.plant.hidden:
            starts = np.stack(
                [[*own, *_start(plant, seed)[len(own) :]] for own, seed in zip(starts, seeds, strict=True)]
            )
        width = len(plant.low)
        self._low, self._high = plant.low[:, None], plant.high[:, None]
        columns = list(np.array(starts, np.float64).T)
        with np.errstate(over="ignore"):
            self.first = np.array(starts[:, :width], np.float32)
        self._state = columns[:width]
        self._memory: list[Any] = equations.memory(columns[width:], len(seeds))
        self._left = equations.task.max_steps
        noise = dict(equations.plant.noise)
        self._noise = np.array([noise.get(name, 0.0) for name in equations.task.observation_names])
        # Candidates that are played on the same seed get the same noise, whatever is played beside them.
        different, self._noise_of = np.unique(np.asarray(seeds, np.int64), return_inverse=True)
        self._rngs = [np.random.default_rng([seed, 1]) for seed in different.tolist()] if noise else []

    def step(self, actions: npt.NDArray[Any]) -> tuple[Any, ...]:
        """Step every copy; return the values of a vector environment's `step`."""
        equations, plant = self._equations, self._plant
        n = len(self._state[0])
        decided = equations.decided(actions)
        moved, memory = equations.step(self._state, self._memory, decided, self._values, n=n)
        after = np.empty((len(moved), n))
        for row, column in zip(after, moved, strict=True):
            row[:] = column
        outside = ~((after >= self._low) & (after <= self._high)).all(axis=0)
        if outside.any():
            after[:, outside] = np.clip(np.nan_to_num(after[:, outside]), self._low, self._high)
        paid, ends = equations.outcome(self._state, self._memory, decided, self._values, list(after), n=n)
        rewards, ended = np.empty(n), np.empty(n, np.bool_)
        rewards[:], ended[:] = paid, ends
        failed = outside | ~np.isfinite(rewards)
        ended |= failed
        rewards[failed] = plant.worst * self._left
        self._left -= 1
        self._state, self._memory = list(after), [np.broadcast_to(column, n) for column in memory]
        seen = after.T
        if self._rngs:
            drawn = np.stack([rng.standard_normal(len(self._noise)) for rng in self._rngs])
            seen = seen + self._noise * drawn[self._noise_of]
        with np.errstate(over="ignore"):
            seen = seen.astype(np.float32)
        return seen, rewards, ended, False, {}

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Keep only these copies."""
        self._state = [column[which] for column in self._state]
        self._memory = [column[which] for column in self._memory]
        self._values = [column[which] for column in self._values]
        self._noise_of = self._noise_of[which]

    def close(self) -> None:
        """Do nothing: there is no environment behind it."""


def _start(plant: FittedPlant, seed: int) -> Column:
    """Return the start of an episode, hidden states last: one that was seen, changed by the plant's `start` lines."""
    rng = np.random.default_rng(seed)
    start = plant.starts[rng.integers(len(plant.starts))].copy()
    for name, value in drawn_starts(plant.equations.plant, rng):
        start[[*plant.equations.task.observation_names, *plant.equations.plant.hidden].index(name)] = value
    return np.asarray(start, np.float64)


def play_in_plant(
    plant: FittedPlant, actors: Sequence[Actor], seeds: Sequence[int], starts: Column | None = None
) -> list[list[Trajectory]]:
    """Play each actor in the plant, an episode for each seed.

    Args:
        starts: first observations, shape (seeds, d), instead of those that the seeds draw; for one actor.
    """

    def play(actor: Actor, some: Sequence[int]) -> list[Trajectory]:
        copies = PlantCopies(plant, some, starts)
        return play_batch(plant.equations.task, actor, some, copies, copies.first)

    return play_together(play, actors, seeds, LANES if starts is None else len(seeds))
