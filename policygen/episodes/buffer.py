"""A replay buffer of bounded size, its file, and counts of the cells that its episodes visited."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from policygen.episodes.evidence import Episode
from policygen.episodes.trajectory import Trajectory
from policygen.errors import LogbookError
from policygen.files import check_mark, damaged, mark, read, write_atomically
from policygen.policies.features import CellReader
from policygen.tasks.task import Task

_CAPACITY = 1_000_000
_LARGEST_FILE = 8 * 2**30  # bytes
_REMEDY = "delete it, and its episodes are played again"
EPISODE_OVERHEAD = 32  # in steps, added to the length of each episode: it takes 700 bytes besides those of its steps
KEPT_EXTREMES = 16  # number of best episodes, and of worst ones, that are never evicted
_MOST_CACHED = 32  # maximum number of values that `cached` keeps
MOST_ACTIONS = 1_000  # if there are more different numeric actions, their visits are not counted
COUNTED = 5  # number of counts that `_tally` makes for each cell and action
_T = TypeVar("_T")


class ReplayBuffer:
    """Episodes in the order played, at most `capacity` transitions; each episode counts as 32 extra transitions.

    A full buffer evicts its oldest episodes, but never the 16 best and the 16 worst ones. It frees a twentieth of the
    capacity at a time, so that not every attempt has to sort and count all episodes again. A CartPole transition takes
    22 bytes: four float32 observations, an int16 action and a float32 reward.
    """

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self.capacity = capacity
        self._episodes: list[Episode] = []
        self._size = 0  # in transitions; at most the capacity
        self._counts: dict[str, tuple[Hashable, int, npt.NDArray[np.float64] | None]] = {}
        self._cache: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._episodes)

    @property
    def transitions(self) -> int:
        """Number of steps held."""
        return self._size - EPISODE_OVERHEAD * len(self)

    @property
    def returns(self) -> npt.NDArray[np.float64]:
        """The return of every episode, in order: shape (episodes,)."""
        return np.array([episode.trajectory.episode_return for episode in self._episodes], np.float64)

    def add(self, episodes: Iterable[Episode]) -> None:
        """Append episodes of an attempt, see `make_episodes`."""
        added = list(episodes)
        self._episodes += added
        self._size += sum(map(_size_of, added))
        if self._size > self.capacity:
            self._evict()

    def _evict(self) -> None:
        self._counts = {}
        self._cache = {}
        order = np.argsort(self.returns, kind="stable")
        protected = {*order[:KEPT_EXTREMES].tolist(), *order[-KEPT_EXTREMES:].tolist()}
        evicted = set()
        for index, episode in enumerate(self._episodes[:-1]):
            if self._size <= self.capacity - self.capacity // 20:
                break
            if index not in protected:
                evicted.add(index)
                self._size -= _size_of(episode)
        self._episodes = [episode for index, episode in enumerate(self._episodes) if index not in evicted]

    def best(self, n: int) -> list[Episode]:
        """Return the n episodes with the highest returns, best first; of equal ones, the later first."""
        keys = np.lexsort((-np.arange(len(self)), -self.returns))
        return [self._episodes[i] for i in keys[:n].tolist()]

    def of_attempt(self, attempt: int, last: int | None = None) -> list[Episode]:
        """Return the episodes of one attempt.

        Args:
            last: return only this number of episodes, the last ones. The last `len(attempt.played)` gave the attempt
                its score; earlier ones were played while it was tuned in a plant, with other constants.
        """
        found = [episode for episode in self._episodes if episode.attempt == attempt]
        return found if last is None else found[max(0, len(found) - last) :]

    def accumulated(
        self,
        name: str,
        key: Hashable,
        count: Callable[[Sequence[Episode]], npt.NDArray[np.float64]],
        join: Callable[[npt.NDArray[np.float64], npt.NDArray[np.float64]], npt.NDArray[np.float64]],
    ) -> npt.NDArray[np.float64]:
        """Return `count` of all episodes; `join` combines the counts of earlier and later episodes.

        If the key equals that of the last call with this name, only episodes added since then are counted.
        """
        last, counted, total = self._counts.get(name, (key, 0, None))
        if last != key or total is None:
            total = count(self._episodes)
        elif counted < len(self):
            total = join(total, count(self._episodes[counted:]))
        self._counts[name] = (key, len(self), total)
        return total

    def cached(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return `make()`, cached under `key` until the next eviction; only the newest keys are kept.

        It is for values computed from completed attempts, whose episodes no longer change.
        """
        if key not in self._cache:
            made = make()
            while len(self._cache) >= _MOST_CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[key] = made
        found: _T = self._cache[key]
        return found

    def save(self, path: Path) -> None:
        """Write all episodes to an `.npz`, atomically.

        Raises:
            LogbookError: the file cannot be written.
        """
        data = io.BytesIO()
        t = [episode.trajectory for episode in self._episodes]
        terms = list(dict.fromkeys(name for x in t for name, _ in x.terms))
        unobserved = list(dict.fromkeys(name for e in self._episodes for name, _ in e.unobserved))

        def joined(name: str) -> npt.NDArray[Any]:
            return np.concatenate([getattr(x, name) for x in t]) if t else np.zeros(0)

        np.savez(
            data,
            format=np.array(mark("episodes")["format"]),
            observations=joined("observations"),
            actions=joined("actions"),
            rewards=joined("rewards"),
            lengths=np.array([x.length for x in t], np.int64),
            returns=self.returns,
            seeds=np.array([x.seed for x in t], np.int64),
            terminated=np.array([x.terminated for x in t], np.bool_),
            truncated=np.array([x.truncated for x in t], np.bool_),
            reached=np.array([e.reached for e in self._episodes], np.bool_),
            unobserved_names=np.array(unobserved, np.str_),
            unobserved=np.concatenate([_rows(e, unobserved) for e in self._episodes] or [np.zeros((0, 0), np.float32)]),
            attempts=np.array([episode.attempt for episode in self._episodes], np.int64),
            term_names=np.array(terms, np.str_),
            terms=np.array([[dict(x.terms).get(name, np.nan) for name in terms] for x in t], np.float64),
        )
        write_atomically(path, data.getvalue())

    @classmethod
    def load(cls, path: Path) -> ReplayBuffer:
        """Read a buffer that `save` wrote.

        Raises:
            LogbookError: there is no such file, or it is damaged or was written by another version.
        """
        try:
            content = read(path, bytes, most=_LARGEST_FILE)
            with zipfile.ZipFile(io.BytesIO(content)) as archive:  # `save` compresses nothing
                if sum(member.file_size for member in archive.infolist()) > len(content):
                    raise ValueError("it is compressed, but policygen does not compress it")
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            check_mark({"format": str(arrays["format"])}, path, "episodes", _REMEDY)
            episodes = _episodes_in(arrays)
        except FileNotFoundError:
            raise LogbookError(f"there is no replay buffer {path}") from None
        except LogbookError:
            raise
        except Exception as error:  # a damaged archive raises almost anything in zipfile and numpy
            raise damaged(path, str(error) or type(error).__name__, _REMEDY) from None
        buffer = cls()
        buffer._episodes, buffer._size = episodes, sum(map(_size_of, episodes))
        return buffer


def _size_of(episode: Episode) -> int:
    return episode.trajectory.length + EPISODE_OVERHEAD


def _rows(episode: Episode, names: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return the unobserved quantities of an episode as an array of shape (T + 1, names), NaN where missing."""
    missing = np.full(episode.trajectory.length + 1, np.nan, np.float32)
    columns = [dict(episode.unobserved).get(name, missing) for name in names]
    return np.stack(columns, axis=1) if columns else np.zeros((len(missing), 0), np.float32)


# The arrays that `ReplayBuffer.save` writes: the kinds of their values, their possible numbers of dimensions, and the
# length of the first one. An episode has one row of observations more than it has steps.
_ARRAYS: dict[str, tuple[str, tuple[int, ...], str]] = {
    **dict.fromkeys(("lengths", "attempts", "seeds"), ("i", (1,), "episodes")),
    **dict.fromkeys(("terminated", "truncated", "reached"), ("b", (1,), "episodes")),
    "returns": ("f", (1,), "episodes"),
    "terms": ("f", (2,), "episodes"),
    "actions": ("biuf", (1, 2), "steps"),
    "rewards": ("biuf", (1,), "steps"),
    "observations": ("biuf", (2,), "rows"),
    "unobserved": ("f", (2,), "rows"),
}


def _episodes_in(arrays: Mapping[str, npt.NDArray[Any]]) -> list[Episode]:
    """Return the episodes whose values the arrays hold one after the other.

    Raises KeyError if an array is missing, ValueError if they do not fit together.
    """
    lengths = arrays["lengths"]
    count, steps = len(lengths), int(lengths.sum())
    if not count:
        return []
    if lengths.min() < 0:
        raise ValueError("`lengths`, the number of steps of each episode, has values below 0")
    sizes = {"episodes": count, "steps": steps, "rows": steps + count}
    for name, (kinds, dimensions, unit) in _ARRAYS.items():
        values = arrays[name]
        if values.dtype.kind not in kinds or values.ndim not in dimensions or len(values) != sizes[unit]:
            raise ValueError(
                f"`{name}` has the type {values.dtype} and the shape {values.shape}; {count} episodes of {steps} steps "
                f"need {sizes[unit]} values of the kind `{kinds}`"
            )
    ends = np.cumsum(lengths)[:-1]
    acted, paid = (np.split(arrays[name], ends) for name in ("actions", "rewards"))
    seen, unseen = (np.split(arrays[name], ends + np.arange(1, count)) for name in ("observations", "unobserved"))
    columns = ("attempts", "returns", "seeds", "terminated", "truncated", "reached", "terms")
    term_names, unobserved_names = (arrays[f"{name}_names"].tolist() for name in ("term", "unobserved"))
    found = []
    for row, action, reward, others, attempt, value, seed, terminated, truncated, reached, sums in zip(
        seen, acted, paid, unseen, *(arrays[name].tolist() for name in columns), strict=True
    ):
        terms = tuple(one for one in zip(term_names, sums, strict=True) if not math.isnan(one[1]))
        # A view instead of a copy would keep the whole array in memory.
        trajectory = Trajectory(row.copy(), action.copy(), reward.copy(), value, seed, terminated, truncated, terms)
        named = zip(unobserved_names, others.T.astype(np.float32), strict=True)
        unobserved = tuple((name, values.copy()) for name, values in named if not np.isnan(values).all())
        found.append(Episode(attempt, trajectory, reached, unobserved))
    return found


# --- visited cells ----------------------------------------------------------------------------------------------------


def count_visits(
    buffer: ReplayBuffer, reader: CellReader, attempt: int | None = None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return the different actions, shape (kinds, m), and the counts of `_tally`, shape (5, cells, kinds).

    There are no kinds if actions are numbers that hardly ever repeat. `attempt` restricts the counts to its episodes.
    """
    kinds = _different_actions(buffer, reader.task)
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


def _different_actions(buffer: ReplayBuffer, task: Task) -> npt.NDArray[Any]:
    """Return the different actions in order, shape (kinds, m); for numbers, not many more than MOST_ACTIONS."""
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

    Also sum the returns to go of first visits, and their squares: shape (5, cells, kinds).
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
    # Steps of an episode are not independent, so an episode counts once for each cell and action.
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
