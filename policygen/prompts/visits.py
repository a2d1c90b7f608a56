"""Counts of visited cells and of the actions taken there, with their returns to go, as a template sees them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evidence import Episode
from policygen.policies.cells import action_words
from policygen.policies.features import CellReader
from policygen.tasks.task import Task

MOST_ACTIONS = 1_000  # most different actions whose visits are counted
STANDARD_ERRORS = 2.0  # half width of the intervals of returns to go; overlapping ones count as equal
LEAST_EPISODES = 5  # least number of episodes for a mean return to go
COUNTED = 5  # number of quantities that `_tally` counts for a cell and an action


def visit_views(
    reader: CellReader,
    kinds: npt.NDArray[Any],
    counts: npt.NDArray[np.float64],
    most: int,
    anywhere: npt.NDArray[np.float64] | None = None,
) -> list[dict[str, Any]]:
    """Return a record for each of at most `most` pairs of a cell and an action, for templates.

    Pairs shortly before failures come first, then the most visited. A pair is left out if too few episodes have it, or
    if its return to go and that of another action in the cell are equal within two standard errors of each. If no other
    action was taken there in enough episodes, the pair is kept only if it occurs shortly before a failure and its
    return to go differs significantly from the mean over all cells.

    Args:
        counts: counts of the episodes to show, as from `count_visits`.
        anywhere: counts of all episodes, for the other actions; by default `counts`.
    """
    anywhere = counts if anywhere is None else anywhere
    visits, ends = counts[0].reshape(-1), counts[1].reshape(-1)
    seen = np.flatnonzero(visits)
    if not len(seen):
        return []
    cells, own = np.divmod(seen, len(kinds))
    rows = np.arange(len(seen))
    mean, error = _means(counts[2:, cells, own])
    others, errors = _means(anywhere[2:, cells])
    others[rows, own] = np.nan
    apart = np.abs(others - mean[:, None]) > STANDARD_ERRORS * (errors + error[:, None])
    alone: npt.NDArray[np.bool_] = np.asarray(np.isnan(others).all(axis=1))
    overall = counts[3].sum() / counts[2].sum()
    differs = np.where(alone, np.abs(mean - overall) > STANDARD_ERRORS * error, (apart | np.isnan(others)).all(axis=1))
    kept = np.flatnonzero(differs & ~np.isnan(mean) & (~alone | (ends[seen] > 0)))
    kept = kept[np.lexsort((-visits[seen[kept]], -ends[seen[kept]]))][:most]

    def words(kind: int) -> str:
        return action_words(reader.task.actuators, list(map(float, kinds[kind])))

    places = reader.grid.bins_of(cells[kept]).tolist()
    views = []
    for i, bins in zip(kept.tolist(), places, strict=True):
        other = -1 if alone[i] else int(np.nanargmax(others[i]))
        views.append(
            {
                "bins": tuple(bins),
                "action": words(int(own[i])),
                "visits": int(visits[seen[i]]),  # steps in which the action was taken there
                # return to go from the first visit in each of `episodes` episodes
                "mean_return": float(mean[i]),
                "error": float(error[i]),
                "episodes": int(counts[2, cells[i], own[i]]),
                "ends_soon": int(ends[seen[i]]),  # steps among the last 10 before a failure
                # the best other action there; without one, the row differs from the mean over all cells
                "other": words(other) if other >= 0 else "",
                "other_return": float(others[i, other]) if other >= 0 else 0.0,
            }
        )
    return views


def _means(first: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return means and standard errors from counts, sums and sums of squares, shape (3, ...); NaN for too few."""
    n, total, squares = first
    with np.errstate(all="ignore"):
        mean = np.where(n >= LEAST_EPISODES, total / n, np.nan)
        variance = np.maximum(0.0, squares - n * mean**2) / (n - 1)
        return mean, np.where(n >= LEAST_EPISODES, np.sqrt(variance / n), np.nan)


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
    return kinds, buffer.tallied(key, tally)


# For each buffer: its number of evictions, the number of episodes read, and the different actions in them.
_SEEN: weakref.WeakKeyDictionary[ReplayBuffer, tuple[int, int, npt.NDArray[Any]]] = weakref.WeakKeyDictionary()


def _kinds(buffer: ReplayBuffer, task: Task) -> npt.NDArray[Any]:
    """Return the different actions, in order, shape (kinds, m).

    Only the episodes added since the last call are read. Once there are more than MOST_ACTIONS actions and they are
    numbers, no more episodes are read.
    """
    if task.action_space == "discrete":
        return np.arange(len(task.actuators[0].labels)).reshape(-1, 1)
    m = len(task.actuators)
    cleared, looked_at, kinds = _SEEN.get(buffer, (-1, 0, np.zeros((0, m))))
    if cleared != buffer.evictions:
        looked_at, kinds = 0, np.zeros((0, m))
    if len(kinds) <= MOST_ACTIONS or not task.has_numbers:
        new = [_action_rows(episode, m) for episode in itertools.islice(buffer, looked_at, None)]
        kinds = np.unique(np.concatenate([kinds, *new]), axis=0)
    _SEEN[buffer] = (buffer.evictions, len(buffer), kinds)
    return kinds


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
