"""A table of action values that learns from many episodes at once, and an adviser's table that it starts from.

Q-learning (Watkins 1989) or expected SARSA (van Seijen et al. 2009). Three things are done with advice:

- values start from what following it was seen to return, optimistically for the actions it names;
- a cell is explored less, the more often what it names has been the best action there by what was known;
- decisions maximise the value minus a KL penalty for leaving the adviser's policy, which gives a fixed bonus to the
  action that it names (the optimum of E[Q] - w KL(pi, rho) weighs actions by rho exp(Q / w)); the weight w decays with
  every visit to the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Cells = npt.NDArray[np.integer[Any]]

RATE = 0.7  # a value's n-th sample counts n^-RATE; Even-Dar and Mansour (JMLR 5, 2003): between 1/2 and 1
EXPLORING = 0.5  # share of random actions in a cell that is new ...
EXPLORED = 50.0  # ... and halved after so many visits
LEAST_EXPLORING = 0.02
PULL = 0.5  # what the KL penalty gives the adviser's action, in standard deviations of the return ...
OUTGROWN = 20.0  # ... and after n visits divided by sqrt(1 + n / OUTGROWN), about as the error of a value is
IMAGINED = 2.0  # samples that a start from advice counts as, where nothing was seen


class Step(NamedTuple):
    """A step of n episodes.

    Attributes:
        cells, actions, rewards: where they were, what they did there, what it paid; each of shape (n,).
        after: cells afterwards; they are worth nothing where the episode has `terminated`.
    """

    cells: Cells
    actions: Cells
    rewards: Vector
    after: Cells
    terminated: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What a learner starts from.

    Attributes:
        values: of every cell's actions, shape (cells, actions).
        advice: the action that the adviser names in every cell, shape (cells,); None without one.
        spread: standard deviation of what follows a step, in units of the reward.
        seen: how often the advised action was seen in every cell, shape (cells,).
    """

    values: Vector
    advice: Cells | None = None
    spread: float = 0.0
    seen: Vector | None = None


class Learner:
    """Values of the actions in every cell, learnt from steps that come many at a time.

    Args:
        expected: learn the value of what it does itself, exploring included (expected SARSA), not of its best actions.
    """

    def __init__(self, start: Start, discount: float, rng: np.random.Generator, *, expected: bool = False) -> None:
        self._cells, self._actions = start.values.shape
        jitter = 1e-9 * (1.0 + np.abs(start.values).max())
        # Actions of equal value must not all be the first one.
        self.values = start.values + jitter * rng.random(start.values.shape)
        self._slack = jitter
        self._flat = self.values.reshape(-1)
        self._advice, self._weight = start.advice, PULL * start.spread
        self._discount, self._rng, self._expected = discount, rng, expected
        self._tried = np.zeros(self._flat.size)
        if start.advice is not None and start.seen is not None:
            self._tried += IMAGINED
            self._tried[np.arange(0, self._flat.size, self._actions) + start.advice] += start.seen
        self._sums, self._counts = np.zeros(self._flat.size), np.zeros(self._flat.size)
        self._met, self._right = np.zeros(self._cells), np.zeros(self._cells)

    def choose(self, cells: Cells) -> npt.NDArray[np.int64]:
        """An action for each of n cells: mostly the best, sometimes any."""
        chosen: npt.NDArray[np.int64] = self._held(cells).argmax(axis=1)
        at_random = self._rng.random(len(cells)) < self._exploring(cells)
        places = np.flatnonzero(at_random)
        if len(places):
            chosen[places] = self._rng.integers(self._actions, size=len(places))
        return chosen

    def best(self) -> npt.NDArray[np.int64]:
        """The table that it would propose now, shape (cells,): of what was tried or advised, the best."""
        values = self._held(np.arange(self._cells))
        tried = self._tried.reshape(values.shape) > (0 if self._advice is None else IMAGINED)
        if self._advice is not None:
            tried[np.arange(self._cells), self._advice] = True
        best: npt.NDArray[np.int64] = np.where(tried | ~tried.any(axis=1, keepdims=True), values, -np.inf).argmax(
            axis=1
        )
        return best

    def learn(self, step: Step) -> None:
        """Move values towards what a step of n episodes showed; the same action in the same cell counts together."""
        cells, actions, rewards, after, terminated = step
        ahead = self.values[after]
        best = ahead.max(axis=1)
        if self._expected:
            held = ahead if self._advice is None else self._held(after)
            at_random = self._exploring(after)
            best = ahead[np.arange(len(after)), held.argmax(axis=1)]
            best = best + at_random * (ahead.mean(axis=1) - best)
        targets = rewards + self._discount * np.where(terminated, 0.0, best)
        pairs = cells * self._actions + actions
        if self._advice is not None:
            known = self.values[cells]
            named = known[np.arange(len(cells)), self._advice[cells]]
            np.add.at(self._right, cells, named >= known.max(axis=1) - self._slack)
        np.add.at(self._met, cells, 1.0)
        # Only the entries that are met are touched: a table may be large, and few of its cells are met at a time.
        self._sums[pairs] = self._counts[pairs] = 0.0
        np.add.at(self._sums, pairs, targets)
        np.add.at(self._counts, pairs, 1.0)
        count, before = self._counts[pairs], self._tried[pairs]
        self._tried[pairs] = before + count
        # As if they came one after the other, of which the very first replaces what was only assumed.
        share = np.where(before == 0, 1.0, 1.0 - (1.0 - (before + count) ** -RATE) ** count)
        old = self._flat[pairs]
        self._flat[pairs] = old + share * (self._sums[pairs] / count - old)

    def _held(self, cells: Cells) -> Vector:
        """The values in n cells, the adviser's action ahead by the KL penalty: shape (n, actions)."""
        values: Vector = self.values[cells]
        if self._advice is not None:
            places = np.arange(0, values.size, self._actions) + self._advice[cells]
            values.reshape(-1)[places] += self._weight / np.sqrt(1.0 + self._met[cells] / OUTGROWN)
        return values

    def _exploring(self, cells: Cells) -> Vector:
        """The share of random actions in n cells."""
        met = self._met[cells]
        share = EXPLORING / (1.0 + met / EXPLORED)
        if self._advice is not None:
            share *= 1.0 - self._right[cells] / np.maximum(met, 1.0)
        share[share < LEAST_EXPLORING] = LEAST_EXPLORING
        return share
