"""Draw episodes from the transitions of a finite, known MDP, many at once in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import FiniteMDP
from policygen.episodes.trajectory import Actor, LearningDecider

MOST_SIMULTANEOUS = 2_048  # episodes


@dataclass(frozen=True, slots=True, eq=False)
class SampledReturns:
    """Undiscounted returns and lengths (in steps) of sampled episodes, both of shape (n,)."""

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]


class Sampler:
    """Draws episodes of at most `max_steps` steps; an ended episode is replaced by the next one."""

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
        """Play one episode per seed; one generator, seeded by all seeds in order, draws them all.

        Observations are the states, shape (k, 1), as in the environment.
        """
        rng = np.random.default_rng(list(map(int, seeds)))
        n = len(seeds)
        returns, lengths = np.zeros(n), np.zeros(n, np.int64)
        started = min(n, MOST_SIMULTANEOUS)
        indices = np.arange(started)
        states = self._starts(rng.random(started))
        decider = actor.begin(n)
        learning = decider if isinstance(decider, LearningDecider) else None
        while len(indices):
            chosen = np.asarray(decider.decide(states[:, None], indices))
            pairs = states * self._actions + chosen
            branch = pairs * self._branches
            if self._thresholds:
                drawn = rng.random(len(indices))
                for threshold in self._thresholds:
                    branch += drawn >= threshold[pairs]
            states, rewards, terminated = self._next[branch], self._rewards[branch], self._ends[branch]
            returns[indices] += rewards
            lengths[indices] += 1
            if learning is not None:
                learning.learn(indices, states[:, None], rewards, terminated)
            ended = terminated | (lengths[indices] >= self._limit)
            if not ended.any():
                continue
            if started == n:
                going = ~ended
                indices, states = indices[going], states[going]
                continue
            places = ended.nonzero()[0]
            new = min(len(places), n - started)
            indices = indices.copy()  # the actor may keep a reference
            indices[places[:new]] = np.arange(started, started + new)
            states[places[:new]] = self._starts(rng.random(new))
            started += new
            if new < len(places):
                kept = np.delete(np.arange(len(indices)), places[new:])
                indices, states = indices[kept], states[kept]
        return SampledReturns(returns, lengths)

    def _starts(self, drawn: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        places: npt.NDArray[np.int64] = np.searchsorted(self._start, drawn * self._start[-1], side="right")
        places[places == len(self._start)] = len(self._start) - 1  # rounding
        return places
