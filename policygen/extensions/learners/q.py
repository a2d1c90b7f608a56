"""`q`: tabular learning from episodes, advised by the proposed table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import exact_score
from policygen.episodes.score import standard_error
from policygen.episodes.trajectory import Indices, Rows
from policygen.extensions.learners.learner import Cells, Learner, Step, Vector
from policygen.policies.policy import Policy
from policygen.policies.shaping import Measure
from policygen.policies.table import TablePolicy
from policygen.runs.tuning import VALIDATION_SHARE
from policygen.search.refine.cma import best_by_halving
from policygen.search.refine.tables import choices_of, choosing_table, entries_of, with_entries
from policygen.search.refine.tunable import Practice, Refined, Trials

TRIAL_SHARE = 0.05  # share of the episodes for evaluating the advice, and as much for random actions
TRIAL_EPISODES = (4, 32)  # least and most episodes for the advice, and as many for random actions
BATCHES = 100  # the first batches have 1/100 of all episodes, but not fewer or more than BATCH_EPISODES
BATCH_EPISODES = (8, 128)  # small batches learn sooner
GROWTH = 16  # a batch has at least 1/16 of the episodes so far
LEAST_EPISODES = 40
COMPARED = 8  # tables from the second half of learning that are compared with the proposed one, on new episodes


class CellView:
    """A table of choices as a tabular learner sees it: cells, actions and rewards.

    Args:
        states: number of states if observations are state numbers; their cells are then looked up.
        measure: an objective that replaces the rewards, or a potential; None for the task's rewards alone.

    Attributes:
        cells, actions: how many there are; with several actuators, actions are all combinations.
        discount: its horizon, 1 / (1 - discount), is twice the step limit. Scores are undiscounted returns within the
            limit; with a horizon beyond it, late rewards count nearly in full.
    """

    def __init__(self, policy: TablePolicy, states: int | None = None, measure: Measure | None = None) -> None:
        self._policy, self._counts, self.measure = policy, choices_of(policy.task), measure
        self.cells, self.actions = policy.grid.size, int(np.prod(self._counts))
        self.discount = 1.0 - 1.0 / (2.0 * policy.task.max_steps)
        self._known = policy.cells(np.arange(states).reshape(-1, 1)) if states is not None else None

    def read(self, observations: Rows) -> Cells:
        """Convert n observations to cells."""
        seen = np.asarray(observations)
        return self._policy.cells(seen) if self._known is None else self._known[seen[:, 0]]

    def act(self, actions: Cells) -> npt.NDArray[Any]:
        """Convert n action indices to the environment's own form."""
        if self._policy.task.action_space == "discrete":
            return actions
        return np.stack(np.unravel_index(actions, self._counts), axis=1)


@dataclass(eq=False)
class LearnerActor:
    """An actor that acts by a learner's choices and reports every step to the learner; it is its own decider.

    Attributes:
        choose: returns an action for each of n cells.
        record: called with every step of the parallel episodes.
    """

    choose: Callable[[Cells], Cells]
    record: Callable[[Step], object]
    view: CellView
    independent = False

    def begin(self, episodes: int, /) -> LearnerActor:
        """Begin new episodes."""
        measure = self.view.measure
        self._before = np.zeros((episodes, measure.task.width) if measure is not None else 0)
        self._cells = np.full(episodes, -1, np.int64)  # the cell of each episode; -1 before its first decision
        self._actions = np.zeros(episodes, np.int64)  # the last ones
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
        self.record(Step(self._cells[indices], self._actions[indices], rewards, after, terminated))
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
    """Learn in batches; after each, yield the episodes played so far and the best known table, shape (cells,).

    Args:
        practice: plays an episode with each seed, and returns their returns.
        seeds: returns seeds for the next episodes, from the number played so far and the number wanted.
        advice: the adviser's action for every cell, shape (cells,).
    """
    played, returns, recorded = 0, list[Vector](), list[list[Step]]()
    if advice is not None:
        tried: list[Callable[[Cells], Cells]] = [
            lambda cells: advice[cells],
            lambda cells: rng.integers(view.actions, size=len(cells)),
        ]
        count = int(np.clip(TRIAL_SHARE * episodes, *TRIAL_EPISODES))
        for choose in tried:
            recorded.append([])
            returns.append(practice(LearnerActor(choose, recorded[-1].append, view), seeds(played, count)))
            played += count
    followed = advice if returns and is_better(*returns) else None  # better than random actions
    learner = Learner(view.cells, view.actions, view.discount, rng, advice=followed)
    for steps in recorded:
        learner.replay(steps)
    if recorded:
        yield played, learner.best()
    size = int(np.clip(episodes // BATCHES, *BATCH_EPISODES))
    while played < episodes:
        count = min(max(size, played // GROWTH), episodes - played)
        steps = []
        practice(LearnerActor(learner.choose, steps.append, view), seeds(played, count))
        learner.replay(steps)
        played += count
        yield played, learner.best()


def is_better(returns: Vector, others: Vector) -> bool:
    """Whether the mean return is better by more than the standard error of the difference."""
    return bool(returns.mean() - others.mean() > standard_error(returns, others))


def q_learning(policy: Policy, trials: Trials, rng_seed: int) -> Refined | None:
    """Learn a table with the proposed table as advice; None if the budget is too small.

    If the MDP is known, episodes are drawn from it, and exact scores choose the best table of all batches. Otherwise
    some of the last tables and the proposed one are compared on new episodes. The comparison uses returns even if an
    objective was learned.

    Raises:
        PolicyError: the policy is not a table of choices, or it or the objective has memory.
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
