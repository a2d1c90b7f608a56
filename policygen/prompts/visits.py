"""How often each cell was met and each action taken in it, over all episodes, as a template sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.buffer import Episode, ReplayBuffer
from policygen.policies.cells import action_text
from policygen.policies.features import CellReader

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
    task, size = reader.task, reader.grid.size
    if task.action_space == "discrete":
        kinds = np.arange(len(task.actuators[0].labels)).reshape(-1, 1)

        def tally(episodes: Sequence[Episode]) -> npt.NDArray[np.float64]:
            codes = [episode.trajectory.actions for episode in episodes]
            return _tally(episodes, reader, np.concatenate(codes) if codes else np.zeros(0, np.int16), len(kinds))

        return kinds, buffer.tallied((reader.lets, reader.grid), tally)
    episodes = list(buffer)
    rows = [e.trajectory.actions.reshape(e.trajectory.length, len(task.actuators)) for e in episodes]
    kinds, codes = np.unique(np.concatenate(rows or [np.zeros((0, 1))]), axis=0, return_inverse=True)
    if task.action_space == "box" and len(kinds) > MOST_ACTIONS:
        return kinds[:0], np.zeros((3, size, 0))
    return kinds, _tally(episodes, reader, codes.reshape(-1), len(kinds))


def _tally(
    episodes: Sequence[Episode], reader: CellReader, codes: npt.NDArray[Any], kinds: int
) -> npt.NDArray[np.float64]:
    """Visits, visits in the last 10 steps before an early end, and summed returns to go: shape (3, cells, kinds)."""
    trajectories = [episode.trajectory for episode in episodes]
    lengths = np.array([t.length for t in trajectories], np.int64)
    size = reader.grid.size * kinds
    if not lengths.sum():
        return np.zeros((3, reader.grid.size, kinds))
    cells = reader.cells(np.concatenate([t.observations[:-1] for t in trajectories]))
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
