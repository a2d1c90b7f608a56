"""A replay buffer of bounded size: episodes, the best and worst of them, and statistics of visited states."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from policygen.episodes.evidence import Episode
from policygen.episodes.trajectory import Trajectory
from policygen.errors import LogbookError
from policygen.files import check_mark, damaged, mark, read, write_atomically

_CAPACITY = 1_000_000
_LARGEST_FILE = 8 * 2**30  # bytes
_REMEDY = "delete it, and its episodes are played again"
EPISODE_OVERHEAD = 32  # in steps, added to the length of each episode: it needs 700 bytes besides its steps
KEPT_EXTREMES = 16  # number of best episodes, and of worst ones, that are never evicted
_MOST_CACHED = 32  # values that `cached` keeps
_T = TypeVar("_T")


class ReplayBuffer:
    """Episodes in the order played, at most `capacity` transitions; each episode counts as 32 extra transitions.

    A full buffer evicts its oldest episodes, except the 16 best and the 16 worst. It evicts a twentieth of the capacity
    at a time, so that sorting and tallies are not repeated at every attempt.
    A CartPole transition takes 22 bytes: four float32 observations, an int16 action, a float32 reward.
    """

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self.capacity = capacity
        self._episodes: list[Episode] = []
        self._size = 0  # in transitions; at most the capacity
        self._of_attempt: dict[int, list[Episode]] = {}
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
        """Append episodes, as `evidence.arrived` returns those of an attempt."""
        for episode in episodes:
            self._append(episode)
        if self._size > self.capacity:
            self._evict()

    def _append(self, episode: Episode) -> None:
        self._episodes.append(episode)
        self._size += episode.trajectory.length + EPISODE_OVERHEAD
        self._of_attempt.setdefault(episode.attempt, []).append(episode)

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
                self._size -= episode.trajectory.length + EPISODE_OVERHEAD
        self._episodes = [episode for index, episode in enumerate(self._episodes) if index not in evicted]
        self._of_attempt = {}
        for episode in self._episodes:
            self._of_attempt.setdefault(episode.attempt, []).append(episode)

    def best(self, n: int) -> list[Episode]:
        """Return the n episodes of highest return, best first; of equal ones, the later first."""
        keys = np.lexsort((-np.arange(len(self)), -self.returns))
        return [self._episodes[i] for i in keys[:n].tolist()]

    def of_attempt(self, attempt: int, last: int | None = None) -> list[Episode]:
        """Return the episodes of one attempt.

        Args:
            last: return only this number of episodes, the last ones. The last `len(attempt.played)` gave the attempt's
                score. Earlier ones were played while it was tuned in a plant, with other constants.
        """
        found = list(self._of_attempt.get(attempt, ()))
        return found if last is None else found[max(0, len(found) - last) :]

    def accumulated(
        self,
        name: str,
        key: Hashable,
        count: Callable[[Sequence[Episode]], npt.NDArray[np.float64]],
        join: Callable[[npt.NDArray[np.float64], npt.NDArray[np.float64]], npt.NDArray[np.float64]],
    ) -> npt.NDArray[np.float64]:
        """Return `count` of all episodes, where `join` combines the counts of some and of the following ones.

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
        """Return `make()`, cached by `key` until the next eviction; only the last few keys are kept.

        Prompts use it for values computed from completed attempts, whose episodes no longer change.
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
            arrays = _read_arrays(path)
            check_mark({"format": str(arrays["format"])}, path, "episodes", _REMEDY)
            buffer, trajectories = cls(), _trajectories_in(arrays)
            names = arrays["term_names"].tolist()
            if names:
                sums = ([*zip(names, row, strict=True)] for row in arrays["terms"].tolist())
                terms = (tuple(one for one in row if not math.isnan(one[1])) for row in sums)
                trajectories = [replace(one, terms=known) for one, known in zip(trajectories, terms, strict=True)]
            first, names, unobserved = 0, arrays["unobserved_names"].tolist(), arrays["unobserved"].astype(np.float32)
            if unobserved.shape != (len(arrays["observations"]), len(names)):
                raise ValueError(f"`unobserved` has the shape {unobserved.shape}, which does not fit the observations")
            for attempt, t, reached in zip(
                arrays["attempts"].tolist(), trajectories, arrays["reached"].tolist(), strict=True
            ):
                rows = unobserved[first : (first := first + t.length + 1)].T
                known = tuple(
                    (name, row.copy()) for name, row in zip(names, rows, strict=True) if not np.isnan(row).all()
                )
                buffer._append(Episode(attempt, t, reached, known))
        except FileNotFoundError:
            raise LogbookError(f"there is no replay buffer {path}") from None
        except LogbookError:
            raise
        except Exception as error:  # a damaged archive raises almost anything in zipfile and numpy
            raise damaged(path, str(error) or type(error).__name__, _REMEDY) from None
        return buffer


def _rows(episode: Episode, names: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return the unobserved quantities of an episode as an array of shape (T + 1, names), NaN where it has none."""
    missing = np.full(episode.trajectory.length + 1, np.nan, np.float32)
    columns = [dict(episode.unobserved).get(name, missing) for name in names]
    return np.stack(columns, axis=1) if columns else np.zeros((len(missing), 0), np.float32)


def _read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an uncompressed `.npz`, by name; runs no code from the file.

    Raises:
        FileNotFoundError: the file does not exist.
        LogbookError: it cannot be read, or is too large.
        Exception: the archive is damaged (almost any exception of zipfile and numpy).
    """
    content = read(path, bytes, most=_LARGEST_FILE)
    _refuse_inflated(content)
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


# The types of the arrays that `ReplayBuffer.save` writes, one value per episode.
_KINDS = {"lengths": "i", "attempts": "i", "returns": "f", "seeds": "i"}
_KINDS |= {"terminated": "b", "truncated": "b", "reached": "b"}


def _trajectories_in(arrays: Mapping[str, npt.NDArray[Any]]) -> list[Trajectory]:
    """Return the episodes in arrays that hold them one after the other.

    Raises ValueError if an array is missing, or they do not fit together.
    """
    if missing := [f"`{name}`" for name in ("observations", "actions", "rewards", *_KINDS) if name not in arrays]:
        raise ValueError(f"it has no {', '.join(missing)}")
    count = arrays["lengths"].size
    for name, kind in _KINDS.items():
        values = arrays[name]
        if values.shape != (count,) or (count and values.dtype.kind != kind):
            raise ValueError(
                f"`{name}` has the type {values.dtype} and the shape {values.shape}; {count} episodes need one value "
                f"of the kind `{kind}` each"
            )
    lengths = arrays["lengths"].astype(np.int64)
    if (lengths < 0).any():
        raise ValueError("`lengths` must be at least 0, the steps of each episode")
    steps = sum(lengths.tolist())
    for name, rows, dimensions in (
        ("observations", steps + count, {2}),
        ("actions", steps, {1, 2}),
        ("rewards", steps, {1}),
    ):
        values = arrays[name]
        if count and (values.dtype.kind not in "biuf" or values.ndim not in dimensions or len(values) != rows):
            raise ValueError(
                f"`{name}` has the type {values.dtype} and the shape {values.shape}; {count} episodes of "
                f"{steps} steps together need {rows} rows of numbers"
            )
    columns = (arrays[name].tolist() for name in ("returns", "seeds", "terminated", "truncated"))
    found, step, row = list[Trajectory](), 0, 0
    for length, *rest in zip(lengths.tolist(), *columns, strict=True):
        # Copies: a view would keep the whole array in memory.
        seen = arrays["observations"][row : row + length + 1].copy()
        acted, paid = (arrays[name][step : step + length].copy() for name in ("actions", "rewards"))
        found.append(Trajectory(seen, acted, paid, *rest))
        step, row = step + length, row + length + 1
    return found


def _refuse_inflated(content: bytes) -> None:
    """Refuse an archive whose content is larger than its file: `save` compresses nothing."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > len(content):
            raise ValueError("it is compressed; numpy.savez writes it uncompressed")
        for member in archive.infolist():
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, kind = read(file)
                if kind.hasobject:
                    raise ValueError(f"{member.filename} holds Python objects; it must hold plain numbers or text")
                if math.prod(shape) * max(1, kind.itemsize) > max(1, member.file_size):
                    raise ValueError(f"the size of {member.filename} differs from its header")
