"""Counts of visited cells and of the actions taken there, with their returns to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evidence import Episode
from policygen.policies.features import CellReader
from policygen.tasks.task import Task

MOST_ACTIONS = 1_000  # most different actions whose visits are counted
COUNTED = 5  # number of quantities that `_tally` counts for a cell and an action


def count_visits(
    buffer: ReplayBuffer, reader: CellReader, attempt: int | None = None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return the different actions, shape (kinds, m), and the counts of `_tally` for each cell and kind.

    `attempt` restricts them to its episodes. The counts have shape (5, cells, kinds). There are no kinds if actions are
    continuous and so hardly ever repeated.
    """
    kinds = _kinds(buffer, reader.task)
    if reader.task.has_numbers and len(kinds) > MOST_ACTIONS:
        return kinds[:0], np.zeros((COUNTED, reader.grid.size, 0))

    def tally(episodes: Sequence[Episode]) -> npt.NDArray[np.float64]:
        if reader.task.action_space == "discrete":  # an action is its own code
            codes = np.concatenate([np.zeros(0, np.int16), *(episode.trajectory.actions for episode in episodes)])
        else:
            rows = np.concatenate([kinds, *(_action_rows(episode, kinds.shape[1]) for episode in episodes)])
            codes = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)[len(kinds) :]
        return _tally(episodes, reader, codes, len(kinds))

    key = (reader.lets, reader.grid, kinds.tobytes())
    if attempt is not None:
        own = buffer.of_attempt(attempt)
        return kinds, buffer.cached(("visits", attempt, len(own), key), lambda: tally(own))
    return kinds, buffer.accumulated("visits", key, tally, np.add)


def _kinds(buffer: ReplayBuffer, task: Task) -> npt.NDArray[Any]:
    """Return the different actions, in order, shape (kinds, m); of numbers, at most some more than MOST_ACTIONS."""
    if task.action_space == "discrete":
        return np.arange(len(task.actuators[0].labels)).reshape(-1, 1)
    m = len(task.actuators)

    def different(episodes: Sequence[Episode]) -> npt.NDArray[np.float64]:
        found = np.zeros((0, m))
        for episode in episodes:
            if len(found) > MOST_ACTIONS and task.has_numbers:
                break
            found = np.unique(np.concatenate([found, _action_rows(episode, m)]), axis=0)
        return found

    return buffer.accumulated("actions", None, different, lambda *some: np.unique(np.concatenate(some), axis=0))


def _action_rows(episode: Episode, m: int) -> npt.NDArray[np.float64]:
    return episode.trajectory.actions.reshape(episode.trajectory.length, m).astype(np.float64)


def _tally(
    episodes: Sequence[Episode], reader: CellReader, codes: npt.NDArray[Any], kinds: int
) -> npt.NDArray[np.float64]:
    """Count visits, visits in the last 10 steps before a failure, and first visits in an episode.

    For first visits also the sum of returns to go, and the sum of their squares: shape (5, cells, kinds).
    """
    trajectories = [episode.trajectory for episode in episodes]
    lengths = np.array([t.length for t in trajectories], np.int64)
    size = reader.grid.size * kinds
    if not lengths.sum():
        return np.zeros((COUNTED, reader.grid.size, kinds))
    cells = reader.cells_along(*((t.observations[:-1], t.actions) for t in trajectories))
    keys = cells.astype(np.int64) * kinds + codes
    last = np.cumsum(lengths)
    rewards = np.concatenate([t.rewards for t in trajectories])
    summed = np.cumsum(rewards, dtype=np.float64)
    to_go = np.repeat(summed[last - 1], lengths) - summed + rewards
    steps_left = np.repeat(last, lengths) - np.arange(len(keys))
    fallen = np.repeat(np.array([e.failed for e in episodes]), lengths)
    # Steps of one episode are not independent: an episode counts once for each cell and action.
    episode = np.repeat(np.arange(len(lengths)), lengths)
    first = np.unique(episode * size + keys, return_index=True)[1]
    counts = (
        np.bincount(keys, minlength=size),
        np.bincount(keys[fallen & (steps_left <= 10)], minlength=size),
        np.bincount(keys[first], minlength=size),
        np.bincount(keys[first], to_go[first], minlength=size),
        np.bincount(keys[first], to_go[first] ** 2, minlength=size),
    )
    return np.stack(counts).astype(np.float64).reshape(COUNTED, reader.grid.size, kinds)
