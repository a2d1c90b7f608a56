"""The steps of episodes as arrays, for fitting a plant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plants.equations import Column, Equations
from policygen.tasks.task import Task

BLOCK = 10  # consecutive steps that a bootstrap sample draws together, because neighbouring steps are nearly equal
MOST_FITTED = 4_000  # steps of a fit; if there are more, evenly spaced blocks are used


@dataclass(frozen=True, eq=False)
class Transitions:
    """The steps of episodes as arrays, in order."""

    task: Task
    before: Column  # the observations before each step, shape (n, d)
    after: Column  # those after it
    actions: npt.NDArray[Any]  # shape (n,) or (n, m)
    rewards: Column  # shape (n,)
    ended: npt.NDArray[np.bool_]  # whether the environment ended the episode after the step, shape (n,)
    starts: npt.NDArray[np.intp]  # the indices of the first steps of the episodes, shape (episodes,)

    @staticmethod
    def of(task: Task, trajectories: Sequence[Trajectory]) -> Transitions:
        """Return the steps of these episodes; there must be at least one step."""
        played = [trajectory for trajectory in trajectories if trajectory.length]
        bounds = np.cumsum([0, *(episode.length for episode in played)])
        ended = np.zeros(bounds[-1], np.bool_)
        ended[bounds[1:] - 1] = [episode.terminated for episode in played]
        return Transitions(
            task,
            np.concatenate([episode.observations[:-1] for episode in played]).astype(np.float64),
            np.concatenate([episode.observations[1:] for episode in played]).astype(np.float64),
            np.concatenate([episode.actions for episode in played]),
            np.concatenate([episode.rewards for episode in played]).astype(np.float64),
            ended,
            bounds[:-1],
        )

    def of_some(self, most: int) -> Transitions:
        """Return the steps of at most `most` episodes, evenly spaced among all."""
        count = len(self.starts)
        if count <= most:
            return self
        chosen = np.linspace(0, count - 1, most).round().astype(np.intp)
        kept = np.isin(self.episode_index, chosen)
        return Transitions(
            self.task,
            self.before[kept],
            self.after[kept],
            self.actions[kept],
            self.rewards[kept],
            self.ended[kept],
            np.cumsum([0, *self.lengths[chosen]])[:-1],
        )

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def lengths(self) -> npt.NDArray[np.intp]:
        """The number of steps of each episode, shape (episodes,)."""
        return np.diff([*self.starts, len(self)])

    @cached_property
    def blocks(self) -> npt.NDArray[np.intp]:
        """The index of the block that each step belongs to, shape (n,); the last block of an episode may be shorter."""
        within = np.arange(len(self)) - self.starts[self.episode_index]
        return np.asarray(np.cumsum(within % BLOCK == 0) - 1, np.intp)

    @cached_property
    def rms_changes(self) -> Column:
        """The root mean square change of each observation in a step, shape (d,); at least 1e-6 standard deviations."""
        changes = np.sqrt(((self.after - self.before) ** 2).mean(axis=0))
        least = 1e-6 * self.before.std(axis=0)
        return np.asarray(np.where(changes > least, changes, np.maximum(least, 1e-9)))

    @cached_property
    def episode_index(self) -> npt.NDArray[np.intp]:
        """The index of the episode that each step belongs to, shape (n,)."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)

    def memory(self, equations: Equations, values: Sequence[Any], hidden: Sequence[Any] = ()) -> list[Column]:
        """Return the plant's memory and hidden states at each step, computed from the real observations.

        Args:
            values: for each of `equations.values` a number, or its values in several variants: shape (variants, 1).
            hidden: each hidden state at the start of the episodes, shape (episodes,) or (variants, episodes).

        Returns:
            A column for each remembered value and hidden state, shape (n,) or (variants, n).
        """
        starts, lengths = self.starts, self.lengths
        memory: list[Any] = equations.memory(hidden, len(starts))
        if not memory:
            return []
        variants = next((np.shape(one)[:1] for one in (*values, *hidden) if np.ndim(one) == 2), ())
        rows = np.empty((len(memory), *variants, len(self)))
        decided = equations.decided(self.actions)
        for step in range(int(lengths.max())):
            running = lengths > step
            at, lengths = starts[running] + step, lengths[running]
            starts = starts[running]
            if not running.all():
                memory = [np.broadcast_to(column, (*variants, len(running)))[..., running] for column in memory]
            for row, column in zip(rows, memory, strict=True):
                row[..., at] = column
            observed, parts = list(self.before[at].T), [column[at] for column in decided]
            _, memory = equations.step(observed, memory, parts, values)
        return list(rows)

    def thinned_steps(self) -> npt.NDArray[np.intp]:
        """Return the indices of about `MOST_FITTED` steps at most: evenly spaced blocks, including the last."""
        every = -(-len(self) // MOST_FITTED)
        last = self.blocks[-1]
        return np.flatnonzero((last - self.blocks) % every == 0)
