"""`q`: tabular Q-learning that replays all steps so far, with the proposed table as advice.

Q-learning (Watkins 1989) replays every recorded step (Lin 1992) until the values settle. With a table and equally
weighted targets, that is value iteration on the observed frequencies (Vanseijen and Sutton 2015, "A deeper look at
planning as learning from replay"): there is no step size, and the value of an end reaches all earlier steps at once.

It explores by optimism: values get a bonus of one standard error per step (Strehl and Littman 2008, "MBIE-EB"; with
variances as in Audibert et al. 2009, "UCB-V"), and untried actions rank above the best. In addition, a share of its
actions is random; it falls with the number of visits to a cell. The table that it proposes is cautious: it subtracts
half a standard error from each value.

It uses advice in three ways:

- each cell tries the advised action first and gives it a bonus: one standard error, or half of one in the proposed
  table;
- the more often the advised action had the highest value, the smaller the random share;
- a KL penalty keeps the proposed table near the advice (with advice rho and a weight w, the policy pi that maximises
  E[Q] - w KL(pi, rho) weighs actions by rho exp(Q / w), a bonus for the advised action). The advantage that another
  action needs over the advised one falls with each trial of that action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import exact_score
from policygen.episodes.score import standard_error
from policygen.episodes.trajectory import Indices, Rows
from policygen.policies.policy import Policy
from policygen.policies.shaping import Measure
from policygen.policies.table import TablePolicy
from policygen.runs.tuning import VALIDATION_SHARE
from policygen.search.refine.cma import best_by_halving
from policygen.search.refine.tables import choices_of, choosing_table, entries_of, with_entries
from policygen.search.refine.tunable import Practice, Refined, Trials

Vector = npt.NDArray[np.float64]
Cells = npt.NDArray[np.integer[Any]]

FIRST_RANDOM_SHARE = 0.5  # share of random actions in a new cell ...
VISITS_TO_HALVE = 50.0  # ... halved after this number of visits ...
LEAST_RANDOM_SHARE = 0.02  # ... and never below this
CAUTION = 0.5  # in the proposed table: standard errors subtracted from values, and added for the advice
# Advantage that the KL penalty requires of an action tried once, in standard deviations of the cells' values.
ADVICE_ADVANTAGE = 2.0
SWEEPS = 100  # maximum number of sweeps over all steps until the values settle ...
SETTLED = 1e-4  # ... which means that none changes by more than this share of the largest
# Minimum standard deviation of a step's outcome, in units of the largest reward: constant outcomes get a bonus, too.
LEAST_DEVIATION = 0.01

TRIAL_SHARE = 0.05  # share of the episodes for evaluating the advice, and again for random actions
TRIAL_EPISODES = (4, 32)  # minimum and maximum number of episodes for each of the two
BATCHES = 100  # a batch has at least this fraction of all episodes, 1/100, within the limits BATCH_EPISODES
BATCH_EPISODES = (8, 128)  # small batches learn sooner
GROWTH = 16  # a batch has at least 1/16 of the episodes so far
LEAST_EPISODES = 40  # with fewer, nothing is learned
COMPARED = 8  # tables from the second half of learning that are compared with the proposed one, on new episodes


class ParallelStep(NamedTuple):
    """A step of n parallel episodes; every array has shape (n,)."""

    cells: Cells
    actions: Cells
    rewards: Vector
    after: Cells  # the next cells; they count 0 if the episode has `terminated`
    terminated: npt.NDArray[np.bool_]


class TransitionCounts:
    """Counts, rewards and successors of each pair of cell and action, whose index is action * cells + cell.

    Attributes:
        tried: number of trials, shape (pairs,).
        rewards, squares: sums of rewards and of their squares, shape (pairs,).
        pairs, after, counts: the pair, the next cell and the count of each link, shape (links,). A link is an observed
            transition from a pair to a next cell; the end of an episode is not a link.
        largest: largest absolute reward.
    """

    def __init__(self, cells: int, actions: int) -> None:
        self._cells = cells
        self.tried, self.rewards, self.squares = np.zeros((3, cells * actions))
        self._keys: Cells = np.zeros(0, np.int64)
        self.counts: Vector = np.zeros(0)
        self.pairs: Cells = self._keys
        self.after: Cells = self._keys
        self.largest = 0.0

    def add(self, steps: list[ParallelStep]) -> Vector:
        """Add steps; return their number in each cell, shape (cells,)."""
        cells, actions, rewards, after, terminated = map(np.concatenate, zip(*steps, strict=True))
        pairs = actions * self._cells + cells
        size = len(self.tried)
        self.tried += np.bincount(pairs, minlength=size)
        self.rewards += np.bincount(pairs, rewards, minlength=size)
        self.squares += np.bincount(pairs, rewards * rewards, minlength=size)
        self.largest = max(self.largest, float(np.abs(rewards).max()))
        keys, counts = np.unique((pairs * self._cells + after)[~terminated], return_counts=True)
        self._keys, places = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        counted = np.concatenate([self.counts, counts.astype(np.float64)])
        self.counts = np.asarray(np.bincount(places, weights=counted, minlength=len(self._keys)), np.float64)
        self.pairs, self.after = self._keys // self._cells, self._keys % self._cells
        return np.bincount(cells, minlength=self._cells).astype(np.float64)

    def mean(self, per_link: Vector) -> Vector:
        """Return the mean over each pair's trials, shape (pairs,), of a value of links; ends of episodes count 0."""
        sums = np.bincount(self.pairs, self.counts * per_link, minlength=len(self.tried))
        return np.asarray(sums / np.maximum(self.tried, 1.0))

    def errors(self, ahead: Vector) -> Vector:
        """Return the standard error of each pair's value, shape (pairs,), given the values `ahead` of the next cells.

        Rewards and next values are treated as independent. Because the variance of a few trials is unreliable, one
        trial with the mean variance of all steps is added.
        """
        n = np.maximum(self.tried, 1.0)
        following = ahead[self.after]
        variance = self.squares / n - (self.rewards / n) ** 2 + self.mean(following**2) - self.mean(following) ** 2
        variance = np.maximum(variance, 0.0)
        usual = max(float(np.average(variance, weights=self.tried)), (LEAST_DEVIATION * (self.largest or 1.0)) ** 2)
        return np.asarray(np.sqrt((n * variance + usual) / (n + 1.0) / n))


class Learner:
    """A learner of action values; `advice`, shape (cells,), is the advised action of each cell."""

    def __init__(
        self, cells: int, actions: int, discount: float, rng: np.random.Generator, *, advice: Cells | None = None
    ) -> None:
        self._discount, self._rng = discount, rng
        # For each cell, the index of its pair with the advised action.
        self._advised = None if advice is None else advice * cells + np.arange(cells)
        self._transitions = TransitionCounts(cells, actions)
        self.values = np.full((actions, cells), -np.inf)  # minus infinity for untried actions
        self._optimistic, self._errors = np.zeros((2, actions, cells))
        self._default_value, self._value_spread = 0.0, 0.0
        self._visits, self._agreements = np.zeros((2, cells))
        self._plan()

    def choose(self, cells: Cells) -> npt.NDArray[np.int64]:
        """Choose an action for each of n cells: usually the best one, sometimes a random one."""
        chosen = self._chosen[cells]
        places = (self._rng.random(len(cells)) < self._random_share[cells]).nonzero()[0]
        if len(places):
            chosen[places] = self._rng.integers(len(self.values), size=len(places))
        return chosen

    def replay(self, steps: list[ParallelStep]) -> None:
        """Update the values from these steps and all earlier ones; later choices follow the new values."""
        visits = self._transitions.add(steps)
        self._visits += visits
        shape = self.values.shape
        known = (self._transitions.tried > 0).reshape(shape)
        if self._advised is not None:
            advised = self.values.reshape(-1)[self._advised]  # before the update
            self._agreements += visits * (np.isfinite(advised) & (advised >= self.values.max(axis=0)))
            guessed = ~known.reshape(-1)[self._advised]
        else:
            guessed = ~known.any(axis=0)
        # A cell is worth at least a cautious guess if its advised action is untried or, without advice, if no action
        # was tried there (an episode was truncated). Other untried actions get no value.
        defaults = np.where(guessed, self._default_value, -np.inf)
        self.values[known & np.isinf(self.values)] = self._default_value
        self._settle(self.values, defaults)
        ahead = self._discount * np.maximum(self.values.max(axis=0), defaults)
        self._errors = self._transitions.errors(ahead).reshape(shape)
        best = self.values.max(axis=0)[known.any(axis=0)]
        self._default_value, self._value_spread = float(best.min()), float(best.std())
        self._settle(self._optimistic, np.full_like(defaults, -np.inf), self._errors.reshape(-1))
        self._plan()

    def best(self) -> npt.NDArray[np.int64]:
        """Return the table to propose, shape (cells,): in each cell the safest tried or advised action."""
        cautious = self.values - CAUTION * self._errors
        if self._advised is not None:
            tried = np.maximum(self._transitions.tried, 1.0).reshape(cautious.shape)
            cautious -= ADVICE_ADVANTAGE * self._value_spread / tried
            cautious.reshape(-1)[self._advised] = self._advised_values(self.values, self._advised, CAUTION)
        best: npt.NDArray[np.int64] = cautious.argmax(axis=0)
        return best

    def _advised_values(self, values: Vector, advised: Cells, errors: float) -> Vector:
        """Return the advised actions' values plus `errors` standard errors, shape (cells,); infinite if untried."""
        values_with_bonus = values.reshape(-1)[advised] + errors * self._errors.reshape(-1)[advised]
        return np.where(self._transitions.tried[advised] == 0, np.inf, values_with_bonus)

    def _settle(self, values: Vector, least: Vector, bonus: Vector | None = None) -> None:
        """Sweep over all steps until the values settle; they are changed in place.

        Args:
            least: lower bound of each cell's value, shape (cells,).
            bonus: added to the reward of each pair, shape (pairs,); untried actions then rank above the best.
        """
        transitions, flat = self._transitions, values.reshape(-1)
        known, unknown = np.flatnonzero(transitions.tried), np.flatnonzero(transitions.tried == 0)
        paid = (transitions.rewards / np.maximum(transitions.tried, 1.0) + (0.0 if bonus is None else bonus))[known]
        weights = self._discount * transitions.counts / transitions.tried[transitions.pairs]
        for _ in range(SWEEPS):
            ahead = np.maximum(values.max(axis=0), least)
            later = np.bincount(transitions.pairs, weights * ahead[transitions.after], minlength=len(flat))
            fresh = paid + later[known]
            change = np.abs(fresh - flat[known]).max()
            flat[known] = fresh
            flat[unknown] = -np.inf if bonus is None else fresh.max() + bonus[unknown]
            if change <= SETTLED * np.abs(fresh).max():
                break

    def _plan(self) -> None:
        """Set each cell's action and its share of random actions until the next replay."""
        optimistic = self._optimistic
        if self._advised is not None:
            optimistic = optimistic.copy()
            optimistic.reshape(-1)[self._advised] = self._advised_values(optimistic, self._advised, 1.0)
        self._chosen: npt.NDArray[np.int64] = optimistic.argmax(axis=0)
        share = FIRST_RANDOM_SHARE / (1.0 + self._visits / VISITS_TO_HALVE)
        if self._advised is not None:
            share *= 1.0 - self._agreements / np.maximum(self._visits, 1.0)
        self._random_share = np.maximum(share, LEAST_RANDOM_SHARE)


class CellView:
    """A table of choices as a tabular learner sees it: cells, actions and rewards.

    Args:
        states: number of states if observations are state numbers, whose cells are then looked up; else None.
        measure: an objective that replaces the rewards, or a potential; None for the task's rewards alone.

    Attributes:
        cells, actions: their numbers; with several actuators, each combination of labels is an action.
        discount: its horizon, 1 / (1 - discount), is twice the step limit. Scores are undiscounted returns within the
            limit, and with this horizon late rewards count nearly in full.
    """

    def __init__(self, policy: TablePolicy, states: int | None = None, measure: Measure | None = None) -> None:
        self._policy, self._counts, self.measure = policy, choices_of(policy.task), measure
        self.cells, self.actions = policy.grid.size, int(np.prod(self._counts))
        self.discount = 1.0 - 1.0 / (2.0 * policy.task.max_steps)
        self._known = policy.cells(np.arange(states).reshape(-1, 1)) if states is not None else None

    def read(self, observations: Rows) -> Cells:
        """Return the cells of n observations."""
        seen = np.asarray(observations)
        return self._policy.cells(seen) if self._known is None else self._known[seen[:, 0]]

    def act(self, actions: Cells) -> npt.NDArray[Any]:
        """Convert n action indices to actions of the environment."""
        if self._policy.task.action_space == "discrete":
            return actions
        return np.stack(np.unravel_index(actions, self._counts), axis=1)


@dataclass(eq=False)
class LearnerActor:
    """An actor, and its own decider, that takes a learner's actions and reports every step to the learner."""

    choose: Callable[[Cells], Cells]  # returns an action for each of n cells
    record: Callable[[ParallelStep], object]  # called with every step of the parallel episodes
    view: CellView
    independent = False

    def begin(self, episodes: int, /) -> LearnerActor:
        """Begin new episodes."""
        measure = self.view.measure
        self._before = np.zeros((episodes, measure.task.width) if measure is not None else 0)
        self._cells = np.full(episodes, -1, np.int64)  # the cell of each episode; -1 before its first decision
        self._actions = np.zeros(episodes, np.int64)  # the last action of each episode
        return self

    def decide(self, observations: Rows, indices: Indices, /) -> npt.NDArray[Any]:
        """Return the next actions, see `Decider`."""
        cells: Cells = self._cells[indices]
        if (cells < 0).any():
            cells = self.view.read(observations)
            self._cells[indices] = cells
            if self.view.measure is not None:
                self._before[indices] = observations
        chosen = self.choose(cells)
        self._actions[indices] = chosen
        return self.view.act(chosen)

    def learn(
        self, indices: Indices, observations: Rows, rewards: Vector, terminated: npt.NDArray[np.bool_], /
    ) -> None:
        """Record the results, see `LearningDecider`.

        A potential adds discount * potential(after) - potential(before), and is 0 after the end of an episode.
        """
        after, measure = self.view.read(observations), self.view.measure
        if measure is not None:
            before = self._before[indices]
            if measure.objective is not None:
                rewards = measure.objectives(before, self.view.act(self._actions[indices]), rewards)
            ahead = np.where(terminated, 0.0, measure.potentials(np.asarray(observations)))
            rewards = rewards + self.view.discount * ahead - measure.potentials(before)
            self._before[indices] = observations
        self.record(ParallelStep(self._cells[indices], self._actions[indices], rewards, after, terminated))
        self._cells[indices] = after


def learn_tables(
    view: CellView,
    practice: Practice,
    seeds: Callable[[int, int], Sequence[int]],
    episodes: int,
    rng: np.random.Generator,
    *,
    advice: npt.NDArray[np.int64] | None = None,
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Learn in batches; after each, yield the number of episodes so far and the best known table, shape (cells,).

    Args:
        practice: plays an episode with each seed, and returns the episodes' returns.
        seeds: returns the seeds of the next episodes, given the number played so far and the number wanted.
        advice: the advised action of each cell, shape (cells,).
    """
    played = 0

    def practised(choose: Callable[[Cells], Cells], count: int) -> tuple[Vector, list[ParallelStep]]:
        nonlocal played
        steps = list[ParallelStep]()
        returns = practice(LearnerActor(choose, steps.append, view), seeds(played, count))
        played += count
        return returns, steps

    trials = list[tuple[Vector, list[ParallelStep]]]()
    if advice is not None:
        count = int(np.clip(TRIAL_SHARE * episodes, *TRIAL_EPISODES))
        trials.append(practised(lambda cells: advice[cells], count))
        trials.append(practised(lambda cells: rng.integers(view.actions, size=len(cells)), count))
    followed = advice if trials and is_better(trials[0][0], trials[1][0]) else None  # better than random actions
    learner = Learner(view.cells, view.actions, view.discount, rng, advice=followed)
    for _, steps in trials:
        learner.replay(steps)
    if trials:
        yield played, learner.best()
    size = int(np.clip(episodes // BATCHES, *BATCH_EPISODES))
    while played < episodes:
        _, steps = practised(learner.choose, min(max(size, played // GROWTH), episodes - played))
        learner.replay(steps)
        yield played, learner.best()


def is_better(returns: Vector, others: Vector) -> bool:
    """Whether the mean return is better by more than the standard error of the difference."""
    return bool(returns.mean() - others.mean() > standard_error(returns, others))


def q_learning(policy: Policy, trials: Trials, rng_seed: int) -> Refined | None:
    """Learn a table with the proposed table as advice; return None if the budget is too small.

    If the MDP is known, episodes are drawn from it, and exact scores choose the best of all tables. Otherwise some of
    the later tables and the proposed one are compared on new episodes. The comparison uses returns even if an objective
    was learned.

    Raises:
        PolicyError: the policy is not a table of choices, or the policy or the objective has memory.
    """
    table, mdp = choosing_table(policy, "q", trials.measure), trials.mdp
    if trials.practice is None or trials.episodes < LEAST_EPISODES:
        return None
    advice = entries_of(table)
    view = CellView(table, len(mdp.start) if mdp is not None else None, trials.measure)
    validation = int(trials.episodes * VALIDATION_SHARE) if mdp is None else 0
    episodes, rng = trials.episodes - validation, np.random.default_rng(rng_seed)
    lessons = learn_tables(view, trials.practice, trials.seeds, episodes, rng, advice=advice)
    found = [entries for _, entries in lessons]
    if mdp is None:
        late = found[len(found) // 2 :]
        found = [late[i] for i in np.unique(np.linspace(0, len(late) - 1, COMPARED).astype(int))]
    distinct = {entries.tobytes(): entries for entries in found}
    distinct.pop(advice.tobytes(), None)
    tables = [table, *(with_entries(table, entries) for entries in distinct.values())]
    if mdp is None:
        place, validated = best_by_halving(tables, replace(trials, episodes=validation), episodes)
    else:
        scores = [score.mean for one in tables if (score := exact_score(one, mdp)) is not None]
        place, validated = int(np.argmax(scores)), 0
    return Refined(tables[place], episodes + validated, "q", view.cells)
