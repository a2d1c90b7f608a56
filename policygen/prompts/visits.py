"""How often each cell was met and each action taken in it, over all episodes, as a template sees it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.buffer import Episode, ReplayBuffer
from policygen.policies.cells import action_text
from policygen.policies.features import CellReader
from policygen.tasks.task import Task

MOST_ACTIONS = 1_000  # different actions that visits are counted for


@dataclass(frozen=True, slots=True)
class VisitView:
    """A cell and one of its actions: how often it was taken in all episodes, and the mean return that followed."""

    bins: tuple[int, ...]
    action: str
    visits: int
    mean_return: float
    ends_soon: int


def visit_views(
    reader: CellReader, kinds: npt.NDArray[Any], counts: npt.NDArray[np.float64], most: int
) -> list[VisitView]:
    """At most `most` cells with an action, those before early ends first, then those most visited."""
    visits, ends, totals = counts.reshape(3, -1)
    seen = np.flatnonzero(visits)
    order = seen[np.lexsort((-visits[seen], -ends[seen]))][:most]
    views = []
    places = reader.grid.bins_of(order // max(1, len(kinds))).tolist()
    for key, bins in zip(order.tolist(), places, strict=True):
        kind = key % len(kinds)
        words = ", ".join(action_text(a, float(v)) for a, v in zip(reader.task.actuators, kinds[kind], strict=True))
        views.append(VisitView(tuple(bins), words, int(visits[key]), float(totals[key] / visits[key]), int(ends[key])))
    return views


def count_visits(buffer: ReplayBuffer, reader: CellReader) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
    """The different actions, shape (kinds, m), and for each cell and kind what `_tally` counts.

    The counts have shape (3, cells, kinds); there are no kinds where actions are random numbers, hardly ever repeated.
    """
    kinds = _kinds(buffer, reader.task)
    if reader.task.action_space == "box" and len(kinds) > MOST_ACTIONS:
        return kinds[:0], np.zeros((3, reader.grid.size, 0))

    def tally(episodes: Sequence[Episode]) -> npt.NDArray[np.float64]:
        if reader.task.action_space == "discrete":  # an action is its own code
            codes = np.concatenate([np.zeros(0, np.int16), *(episode.trajectory.actions for episode in episodes)])
        else:
            rows = np.concatenate([kinds, *(_action_rows(episode, kinds.shape[1]) for episode in episodes)])
            codes = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)[len(kinds) :]
        return _tally(episodes, reader, codes, len(kinds))

    return kinds, buffer.tallied((reader.lets, reader.grid, kinds.tobytes()), tally)


# Of each buffer: how often it had been cleared, how many episodes were looked at, and the different actions in them.
_SEEN: weakref.WeakKeyDictionary[ReplayBuffer, tuple[int, int, npt.NDArray[Any]]] = weakref.WeakKeyDictionary()


def _kinds(buffer: ReplayBuffer, task: Task) -> npt.NDArray[Any]:
    """The different actions, in order, shape (kinds, m); of numbers that are met, not many more than MOST_ACTIONS.

    Only the episodes added since the last call are looked at.
    """
    if task.action_space == "discrete":
        return np.arange(len(task.actuators[0].labels)).reshape(-1, 1)
    m = len(task.actuators)
    cleared, looked_at, kinds = _SEEN.get(buffer, (-1, 0, np.zeros((0, m))))
    if cleared != buffer.cleared:
        looked_at, kinds = 0, np.zeros((0, m))
    if len(kinds) <= MOST_ACTIONS or task.action_space != "box":
        new = [_action_rows(episode, m) for episode in itertools.islice(buffer, looked_at, None)]
        kinds = np.unique(np.concatenate([kinds, *new]), axis=0)
    _SEEN[buffer] = (buffer.cleared, len(buffer), kinds)
    return kinds


def _action_rows(episode: Episode, m: int) -> npt.NDArray[np.float64]:
    return episode.trajectory.actions.reshape(episode.trajectory.length, m).astype(np.float64)


def _tally(
    episodes: Sequence[Episode], reader: CellReader, codes: npt.NDArray[Any], kinds: int
) -> npt.NDArray[np.float64]:
    """Visits, visits in the last 10 steps before an early end, and summed returns to go: shape (3, cells, kinds)."""
    trajectories = [episode.trajectory for episode in episodes]
    lengths = np.array([t.length for t in trajectories], np.int64)
    size = reader.grid.size * kinds
    if not lengths.sum():
        return np.zeros((3, reader.grid.size, kinds))
    cells = reader.cells_along(*((t.observations[:-1], t.actions) for t in trajectories))
    keys = cells.astype(np.int64) * kinds + codes
    last = np.cumsum(lengths)
    rewards = np.concatenate([t.rewards for t in trajectories])
    summed = np.cumsum(rewards, dtype=np.float64)
    to_go = np.repeat(summed[last - 1], lengths) - summed + rewards
    steps_left = np.repeat(last, lengths) - np.arange(len(keys))
    fallen = np.repeat(np.array([t.terminated for t in trajectories]), lengths)
    counts = (
        np.bincount(keys, minlength=size),
        np.bincount(keys[fallen & (steps_left <= 10)], minlength=size),
        np.bincount(keys, to_go, minlength=size),
    )
    return np.stack(counts).astype(np.float64).reshape(3, reader.grid.size, kinds)
