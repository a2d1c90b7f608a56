"""A table of action values that learns from all steps seen so far, and an adviser's table that it starts from.

Q-learning (Watkins 1989) or expected SARSA (van Seijen et al. 2009) that replays every recorded step (Lin 1992) until
the values settle. With a table, and each target counting the same, that is value iteration on the observed frequencies
(Vanseijen and Sutton 2015, "A deeper look at planning as learning from replay"): no step size has to be chosen, and
what an end is worth reaches all steps that led there at once.

It explores by optimism: it acts on values that count one standard error more for every step (Strehl and Littman 2008,
"MBIE-EB"; with variances as in Audibert et al. 2009, "UCB-V"), and more than the best for what was never tried. Beside
that a share of its actions is random, which falls with the visits to a cell. What it proposes is cautious instead:
half a standard error less.

Three things are done with advice:

- what it names is tried first in every cell, and has the benefit of the doubt: a standard error more, or half of one
  in what is proposed;
- the random share is the less, the more often what it names has been the best action there by what was known;
- the proposed table is held near it by a KL penalty (the optimum of E[Q] - w KL(pi, rho) weighs actions by
  rho exp(Q / w), which gives a bonus to the action that is named). How much an action must be better to be worth
  leaving the advice falls with every trial of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Cells = npt.NDArray[np.integer[Any]]

EXPLORING = 0.5  # share of random actions in a cell that is new ...
EXPLORED = 50.0  # ... and halved after so many visits
LEAST_EXPLORING = 0.02
DOUBT = 0.5  # standard errors that values lose, and those of the advice gain, in what is proposed
HELD = 2.0  # what the KL penalty asks of an action that was tried once, in standard deviations of the cells' values
SWEEPS = 100  # over all that was seen, at most, whenever the values settle ...
SETTLED = 1e-4  # ... which they have when none changes by more than this share of the largest
LEAST_DEVIATION = 0.01  # of what follows a step, in units of the largest reward: where all is equal, the new attracts


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


class Seen:
    """How often each action was tried in each cell, what it paid, and where it led: pairs are action * cells + cell.

    Attributes:
        tried: how often, shape (pairs,).
        rewards, squares: sums of what it paid, and of its squares, shape (pairs,).
        pairs, after, counts: which cell came after which pair and how often, shape (links,); an end leads nowhere.
        largest: of the rewards, without its sign.
    """

    def __init__(self, cells: int, actions: int) -> None:
        self._cells = cells
        self.tried, self.rewards, self.squares = np.zeros((3, cells * actions))
        self._keys: Cells = np.zeros(0, np.int64)
        self.counts: Vector = np.zeros(0)
        self.pairs: Cells = self._keys
        self.after: Cells = self._keys
        self.largest = 0.0

    def add(self, steps: list[Step]) -> Vector:
        """Count these steps too; how often they were in each cell, shape (cells,)."""
        cells, actions, after = (np.concatenate([step[k] for step in steps]) for k in (0, 1, 3))
        rewards = np.concatenate([step.rewards for step in steps])
        terminated = np.concatenate([step.terminated for step in steps])
        pairs = actions * self._cells + cells
        size = len(self.tried)
        self.tried += np.bincount(pairs, minlength=size)
        self.rewards += np.bincount(pairs, rewards, minlength=size)
        self.squares += np.bincount(pairs, rewards * rewards, minlength=size)
        self.largest = max(self.largest, float(np.abs(rewards).max()))
        keys, counts = _counted((pairs * self._cells + after)[~terminated], size * self._cells)
        self._keys, places = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        counted = np.concatenate([self.counts, counts.astype(np.float64)])
        self.counts = np.asarray(np.bincount(places, weights=counted, minlength=len(self._keys)), np.float64)
        self.pairs, self.after = self._keys // self._cells, self._keys % self._cells
        return np.bincount(cells, minlength=self._cells).astype(np.float64)

    def mean(self, per_link: Vector) -> Vector:
        """The mean over all trials of a pair of what its links are worth, ends counting 0: shape (pairs,)."""
        sums = np.bincount(self.pairs, self.counts * per_link, minlength=len(self.tried))
        return np.asarray(sums / np.maximum(self.tried, 1.0))

    def errors(self, ahead: Vector) -> Vector:
        """The standard error of what each pair is worth, by what the cells `ahead` are worth: shape (pairs,).

        Rewards and what follows count as independent. As a variance of a few trials is unreliable, one more trial
        counts that has the mean variance of all steps.
        """
        n = np.maximum(self.tried, 1.0)
        following = ahead[self.after]
        variance = self.squares / n - (self.rewards / n) ** 2 + self.mean(following**2) - self.mean(following) ** 2
        variance = np.maximum(variance, 0.0)
        usual = max(float(np.average(variance, weights=self.tried)), (LEAST_DEVIATION * (self.largest or 1.0)) ** 2)
        return np.asarray(np.sqrt((n * variance + usual) / (n + 1.0) / n))


def _counted(keys: Cells, size: int) -> tuple[Cells, Cells]:
    """The different ones of these whole numbers below `size`, in their order, and how often each is there."""
    if size > 4 * len(keys):
        return np.unique(keys, return_counts=True)
    counts = np.bincount(keys, minlength=size)  # which needs no sorting
    found = np.flatnonzero(counts)
    return found, counts[found]


class Learner:
    """Values of the actions in every cell, and what it would do there.

    Attributes:
        values: of what was tried, shape (actions, cells); minus infinity where nothing was.

    Args:
        advice: the action that the adviser names in every cell, shape (cells,).
        expected: learn the value of what it does itself, random actions included (expected SARSA), not of its best
            actions.
    """

    def __init__(
        self,
        cells: int,
        actions: int,
        discount: float,
        rng: np.random.Generator,
        *,
        advice: Cells | None = None,
        expected: bool = False,
    ) -> None:
        self._cells, self._actions = cells, actions
        self._discount, self._rng, self._expected = discount, rng, expected
        # The pair that the adviser names in every cell.
        self._named = None if advice is None else advice * cells + np.arange(cells)
        self._steps: list[Step] = []
        self._seen = Seen(cells, actions)
        self.values = np.full((actions, cells), -np.inf)
        self._hopes, self._errors = np.zeros((2, actions, cells))
        self._guess, self._spread = 0.0, 0.0
        self._met, self._right = np.zeros((2, cells))
        self._plan()

    def choose(self, cells: Cells) -> npt.NDArray[np.int64]:
        """An action for each of n cells: mostly the most promising one, sometimes any."""
        chosen = self._chosen[cells]
        places = (self._rng.random(len(cells)) < self._exploring[cells]).nonzero()[0]
        if len(places):
            chosen[places] = self._rng.integers(self._actions, size=len(places))
        return chosen

    def learn(self, step: Step) -> None:
        """Record a step of n episodes, until it is replayed."""
        self._steps.append(step)

    def replay(self) -> None:
        """Let all steps seen so far, the recorded ones among them, settle the values; decide by them from now on."""
        if not self._steps:
            return
        met = self._seen.add(self._steps)
        self._steps = []
        self._met += met
        known = (self._seen.tried > 0).reshape(self.values.shape)
        if self._named is not None:
            named = self.values.reshape(-1)[self._named]  # as it was known before
            self._right += met * (np.isfinite(named) & (named >= self.values.max(axis=0)))
            open_ended = ~known.reshape(-1)[self._named]
        else:
            open_ended = ~known.any(axis=0)
        # Of what was not tried, only the advice and where an episode was cut are worth anything: a cautious guess.
        guesses = np.where(open_ended, self._guess, -np.inf)
        self.values[known & np.isinf(self.values)] = self._guess
        self._settle(self.values, guesses)
        self._errors = self._seen.errors(self._discount * self._ahead(self.values, guesses)).reshape(known.shape)
        best = self.values.max(axis=0)[known.any(axis=0)]
        self._guess, self._spread = float(best.min()), float(best.std())
        self._settle(self._hopes, np.full(self._cells, -np.inf), self._errors.reshape(-1))
        self._plan()

    def best(self) -> npt.NDArray[np.int64]:
        """The table that it would propose now, shape (cells,): of what was tried or advised, the surest."""
        cautious = self.values - DOUBT * self._errors
        if self._named is not None:
            cautious -= HELD * self._spread / np.maximum(self._seen.tried, 1.0).reshape(cautious.shape)
            cautious.reshape(-1)[self._named] = self._in_doubt(self.values, self._named, DOUBT)
        best: npt.NDArray[np.int64] = cautious.argmax(axis=0)
        return best

    def _in_doubt(self, values: Vector, named: Cells, errors: float) -> Vector:
        """What the advised actions count as, shape (cells,): so many standard errors more; untried, most of all."""
        hoped = values.reshape(-1)[named] + errors * self._errors.reshape(-1)[named]
        return np.where(self._seen.tried[named] == 0, np.inf, hoped)

    def _settle(self, values: Vector, least: Vector, bonus: Vector | None = None) -> None:
        """Sweep over all that was seen until the values, changed in place, are those of what follows.

        Args:
            least: what a cell is worth at least, shape (cells,).
            bonus: paid with every step, shape (pairs,); what was never tried then counts more than the best.
        """
        seen, flat = self._seen, values.reshape(-1)
        known, unknown = np.flatnonzero(seen.tried), np.flatnonzero(seen.tried == 0)
        paid = (seen.rewards / np.maximum(seen.tried, 1.0) + (0.0 if bonus is None else bonus))[known]
        weights = self._discount * seen.counts / seen.tried[seen.pairs]
        for _ in range(SWEEPS):
            ahead = self._ahead(values, least)
            fresh = paid + np.bincount(seen.pairs, weights * ahead[seen.after], minlength=len(flat))[known]
            change = np.abs(fresh - flat[known]).max()
            flat[known] = fresh
            flat[unknown] = -np.inf if bonus is None else fresh.max() + bonus[unknown]
            if change <= SETTLED * np.abs(fresh).max():
                break

    def _ahead(self, values: Vector, least: Vector) -> Vector:
        """What the cells are worth, shape (cells,), by the values of their actions."""
        best = np.maximum(values.max(axis=0), least)
        if not self._expected:
            return np.asarray(best)
        mean = np.where(np.isfinite(values), values, best).mean(axis=0)
        return np.asarray(best + self._exploring * (mean - best))

    def _share(self) -> Vector:
        """The share of random actions in every cell, shape (cells,)."""
        share = EXPLORING / (1.0 + self._met / EXPLORED)
        if self._named is not None:
            share *= 1.0 - self._right / np.maximum(self._met, 1.0)
        return np.maximum(share, LEAST_EXPLORING)

    def _plan(self) -> None:
        """What is chosen in every cell, and how often any action in its place, until the next replay."""
        hopes = self._hopes
        if self._named is not None:
            hopes = hopes.copy()
            hopes.reshape(-1)[self._named] = self._in_doubt(hopes, self._named, 1.0)
        self._chosen: npt.NDArray[np.int64] = hopes.argmax(axis=0)
        self._exploring = self._share()
