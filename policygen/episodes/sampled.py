"""Draw episodes from the transitions of a finite, known MDP, many at once in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import FiniteMDP
from policygen.episodes.play import Array, Copies, Flags, Record, Stepped, replaced, step_through
from policygen.episodes.trajectory import Actor, Indices

MOST_SIMULTANEOUS = 2_048  # episodes


@dataclass(frozen=True, slots=True, eq=False)
class SampledReturns:
    """Undiscounted returns and lengths (in steps) of sampled episodes, both of shape (n,)."""

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]


class Sampler(Copies):
    """Draws episodes of at most `max_steps` steps; its copies are states.

    Observations are the states, shape (k, 1), as in the environment.
    """

    engine: ClassVar[str] = "sampled"
    most = MOST_SIMULTANEOUS
    renews: ClassVar[bool] = True

    def __init__(self, mdp: FiniteMDP, max_steps: int) -> None:
        self._limit = max_steps
        self._actions, branches = mdp.probabilities.shape[1:]
        # The last possible branch gets the remainder: probabilities may sum to 0.999999.
        cumulative = np.cumsum(mdp.probabilities, axis=2).reshape(-1, branches)
        left = np.cumsum(mdp.probabilities[:, :, ::-1], axis=2)[:, :, ::-1].reshape(-1, branches)
        self._thresholds = [np.where(left[:, k + 1] > 0, cumulative[:, k], np.inf) for k in range(branches - 1)]
        self._branches = branches
        self._next, self._rewards = mdp.next_states.ravel(), mdp.rewards.ravel()
        self._ends = mdp.continues.ravel() == 0
        self._start = np.cumsum(mdp.start)

    def play(self, actor: Actor, seeds: Sequence[int]) -> SampledReturns:
        """Play one episode per seed; one generator, seeded by all seeds in order, draws them all."""
        self._rng = np.random.default_rng(list(map(int, seeds)))
        record = _Totals(np.zeros(len(seeds)), np.zeros(len(seeds), np.int64))
        step_through(self, actor, seeds, record)
        return SampledReturns(record.returns, record.lengths)

    def begin(self, seeds: Sequence[int], /) -> Array:
        """Draw the first states; see `Copies`."""
        self._states = self._starts(self._rng.random(len(seeds)))
        self._left = np.full(len(seeds), self._limit)
        return self._states[:, None]

    def step(self, actions: Array, /) -> Stepped:
        """Draw a transition of every copy; see `Copies`."""
        pairs = self._states * self._actions + actions
        branch = pairs * self._branches
        if self._thresholds:
            drawn = self._rng.random(len(pairs))
            for threshold in self._thresholds:
                branch += drawn >= threshold[pairs]
        self._states, self._left = self._next[branch], self._left - 1
        return self._states[:, None], self._rewards[branch], self._ends[branch], self._left == 0

    def replace(self, ended: Flags, seeds: Sequence[int], /) -> Array:
        """Draw the first states of the next episodes; see `Copies`."""
        self._states = replaced(self._states, ended, self._starts(self._rng.random(len(seeds))))
        self._left = replaced(self._left, ended, np.full(len(seeds), self._limit))
        return self._states[:, None]

    def _starts(self, drawn: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        places: npt.NDArray[np.int64] = np.searchsorted(self._start, drawn * self._start[-1], side="right")
        places[places == len(self._start)] = len(self._start) - 1  # rounding
        return places


@dataclass
class _Totals(Record):
    """The returns and lengths of episodes so far."""

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    indices: Any = None

    def go_on(self, indices: Indices, rows: Array, /) -> None:
        self.indices = indices

    def add(self, rows: Array, actions: Any, rewards: Array, /) -> None:
        self.returns[self.indices] += rewards
        self.lengths[self.indices] += 1
