"""Play a batch of episodes in environment copies that step together, for one actor or several on the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Actor, Decider, Indices, LearningDecider, Rows, Trajectory, chunks
from policygen.policies.population import DifferentStructure, Population
from policygen.tasks.task import Task


class EnvCopies(Protocol):
    """Copies of an environment that step together; copies whose episode has ended step too, and are ignored.

    Attributes:
        first: the observations at the start of their episodes, shape (n, d).
    """

    first: npt.NDArray[Any]

    def step(self, actions: npt.NDArray[Any], /) -> Sequence[Any]:
        """Step all k copies; return observations, shape (k, d), then rewards and terminations, shape (k,), and more."""
        ...

    def keep(self, which: npt.NDArray[np.bool_], /) -> None:
        """Keep only these copies."""
        ...

    def close(self) -> object:
        """Close the environments."""
        ...


def play_batch(
    task: Task, actor: Actor, seeds: Sequence[int], copies: EnvCopies, *, most_idle: float = 0.5
) -> list[Trajectory]:
    """Play one episode per seed, in the order of the seeds, and close the copies.

    Args:
        copies: one per seed, at the start of its episode.
        most_idle: copies whose episodes have ended are closed once they are at least this share of all open copies.
    """
    n, limit = len(seeds), task.max_steps
    observations = np.empty((limit + 1, *copies.first.shape), np.float32)
    box = task.action_space == "box"
    actions = np.empty((limit, n, len(task.actuators)), np.float32) if box else np.empty((limit, n), np.int16)
    rewards = np.empty((limit, n))
    lengths = np.zeros(n, np.int64)
    terminated = np.zeros(n, np.bool_)
    observations[0] = copies.first
    current = observations[0]
    kept = np.arange(n)  # indices of the episodes whose copies are kept: all that play, and some that have ended
    # The same as an index into the arrays: a slice is several times faster than an array of indices.
    rows: slice | npt.NDArray[np.intp] = slice(None)
    ended = np.zeros(n, np.bool_)  # of the kept episodes
    playing = n  # number of episodes that have not ended
    step = 0
    decider = actor.begin(n)
    learning = decider if isinstance(decider, LearningDecider) else None
    while playing:
        if len(kept) - playing >= max(1, most_idle * len(kept)):
            copies.keep(~ended)
            rows = kept = kept[~ended]
            current, ended = current[~ended], np.zeros(playing, np.bool_)
        chosen = np.asarray(decider.decide(current, kept))
        current, rewards[step, rows], now_terminated, *_ = copies.step(chosen)
        observations[step + 1, rows], actions[step, rows] = current, chosen
        current = observations[step + 1, rows]  # in single precision: the actor sees what trajectories keep
        step += 1
        if learning is not None:
            active, ends = ~ended, np.asarray(now_terminated, np.bool_)
            learning.learn(kept[active], current[active], rewards[step - 1, kept[active]], ends[active])
        if step < limit and not now_terminated.any():
            continue
        now_ended = (now_terminated | (step >= limit)) & ~ended
        lengths[kept[now_ended]] = step
        terminated[kept[now_ended]] = now_terminated[now_ended]
        ended |= now_ended
        playing = int(np.count_nonzero(~ended))
    copies.close()
    return [
        Trajectory(
            observations=observations[: length + 1, i].copy(),
            actions=actions[:length, i].copy(),
            rewards=rewards[:length, i].astype(np.float32),
            episode_return=float(rewards[:length, i].sum()),
            seed=int(seed),
            terminated=bool(terminated[i]),
            truncated=length == limit,
        )
        for i, (seed, length) in enumerate(zip(seeds, lengths.tolist(), strict=True))
    ]


def play_together(
    play: Callable[[Actor, Sequence[int]], list[Trajectory]], actors: Sequence[Actor], seeds: Sequence[int], most: int
) -> list[list[Trajectory]]:
    """Play each actor on the same seeds; one call of `play` plays as many actors as fit into `most` episodes."""
    if len(seeds) * 2 > most:
        return [play(actor, seeds) for actor in actors]
    played: list[list[Trajectory]] = []
    for some in chunks(actors, most // len(seeds)):
        together = play(_BatchedActors(some, len(seeds)), list(seeds) * len(some))
        played += [together[i : i + len(seeds)] for i in range(0, len(together), len(seeds))]
    return played


@dataclass
class _BatchedActors:
    """Several actors as one: the first decides in the first `each` episodes, the second in the next `each`, ..."""

    actors: Sequence[Actor]
    each: int
    independent: bool = True

    def begin(self, episodes: int, /) -> Decider:
        try:
            return Population(self.actors, self.each)
        except DifferentStructure:
            self._deciders = [actor.begin(self.each) for actor in self.actors]
            return self

    def decide(self, observations: Rows, indices: Indices, /) -> npt.NDArray[Any]:  # indices in ascending order
        ends = np.searchsorted(indices, self.each * np.arange(1, len(self._deciders) + 1)).tolist()
        chosen, start = [], 0
        for i, (decider, end) in enumerate(zip(self._deciders, ends, strict=True)):
            if end > start:
                chosen.append(np.asarray(decider.decide(observations[start:end], indices[start:end] - i * self.each)))
            start = end
        return np.concatenate(chosen)
