"""`q` and `sarsa`: tabular learning from episodes, advised by the proposed table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import FiniteMDP, exact_score
from policygen.errors import PolicyError
from policygen.policies.policy import Policy
from policygen.policies.shaping import Measure
from policygen.policies.table import TablePolicy
from policygen.runs.tuning import VALIDATION_SHARE
from policygen.search.refine.cma import best_by_halving
from policygen.search.refine.learner import Learner
from policygen.search.refine.learner_actor import (
    CellView,
    LearnerActor,
    ShapedReward,
    Trial,
    cell_view,
    entries_of,
    is_better,
    with_entries,
)
from policygen.search.refine.tunable import Practice, Refined, Trials
from policygen.tasks.task import Task

TRIAL_SHARE = 0.05  # share of the episodes for evaluating the advice, and as much for random actions
TRIAL_EPISODES = (4, 32)  # least and most episodes for the advice, and as many for random actions
BATCHES = 100  # number of batches into which the episodes are divided
BATCH_EPISODES = (8, 128)  # least and most episodes of the first batches; small ones learn sooner
GROWTH = 16  # a batch has at least 1/16 of the episodes so far
LEAST_EPISODES = 40
COMPARED = 8  # tables from the second half of learning that are compared with the proposed one, on new episodes


@dataclass(frozen=True, slots=True, eq=False)
class LearningBudget:
    """A learner's budget: how many episodes it may play, and how.

    Attributes:
        practice: plays an episode with each seed, and returns their returns.
        seeds: returns seeds for the next episodes, from the number played so far and the number wanted.
        measure: an objective that replaces the rewards, or a potential; None for the task's rewards alone.
    """

    practice: Practice
    seeds: Callable[[int, int], Sequence[int]]
    episodes: int
    discount: float
    measure: Measure | None = None


def discount_of(task: Task) -> float:
    """Return the discount of a learner; its horizon, 1 / (1 - discount), is twice the step limit of the task.

    Scores are undiscounted returns within the limit; with a horizon beyond it, late rewards count nearly in full.
    """
    return 1.0 - 1.0 / (2.0 * task.max_steps)


def learn_tables(
    view: CellView,
    budget: LearningBudget,
    rng: np.random.Generator,
    *,
    advice: npt.NDArray[np.int64] | None = None,
    expected: bool = False,
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Learn in batches; after each, yield the episodes played so far and the best known table, shape (cells,).

    Args:
        advice: the adviser's action for every cell, shape (cells,).
        expected: use expected SARSA instead of Q-learning.
    """
    played = 0
    trials: list[Trial] = []
    shaped_reward = ShapedReward(budget.measure, budget.discount) if budget.measure is not None else None
    if advice is not None:
        count = int(np.clip(TRIAL_SHARE * budget.episodes, *TRIAL_EPISODES))
        trials = [Trial(view, table, rng) for table in (advice, None)]
        returns = []
        for trial in trials:
            returns.append(budget.practice(LearnerActor(trial, view, shaped_reward), budget.seeds(played, count)))
            played += count
        if not is_better(*returns):  # than random actions
            advice = None
    learner = Learner(view.cells, view.actions, budget.discount, rng, advice=advice, expected=expected)
    for trial in trials:
        for step in trial.steps:
            learner.learn(step)
        learner.replay()
    if trials:
        yield played, learner.best()
    size = int(np.clip(budget.episodes // BATCHES, *BATCH_EPISODES))
    while played < budget.episodes:
        count = min(max(size, played // GROWTH), budget.episodes - played)
        budget.practice(LearnerActor(learner, view, shaped_reward), budget.seeds(played, count))
        learner.replay()
        played += count
        yield played, learner.best()


def q_learning(
    policy: Policy, method: Literal["q", "sarsa"], trials: Trials, rng_seed: int, mdp: FiniteMDP | None
) -> Refined | None:
    """Learn a table with the proposed table as advice; None if the budget is too small.

    If the MDP is known, episodes are drawn from it, and exact scores choose the best table of all batches. Otherwise
    some of the last tables and the proposed one are compared on new episodes. The comparison uses returns even if an
    objective was learned.

    Raises:
        PolicyError: the policy is not a table of choices, or it or the objective has memory.
    """
    table = choosing_table(policy, method)
    if trials.measure is not None:
        check_memoryless(trials.measure, method)
    if trials.practice is None or trials.episodes < LEAST_EPISODES:
        return None
    advice = entries_of(table)
    view = cell_view(table, len(mdp.start) if mdp is not None else None)
    validation = int(trials.episodes * VALIDATION_SHARE) if mdp is None else 0
    budget = LearningBudget(
        trials.practice, trials.seeds, trials.episodes - validation, discount_of(table.task), trials.measure
    )
    rng = np.random.default_rng(rng_seed)
    batches = list(learn_tables(view, budget, rng, advice=advice, expected=method == "sarsa"))
    if mdp is not None:
        tables = [table, *(with_entries(table, entries) for entries in _distinct([e for _, e in batches], advice))]
        scores = [score.mean for one in tables if (score := exact_score(one, mdp)) is not None]
        return Refined(tables[int(np.argmax(scores))], budget.episodes, method, view.cells)
    late = batches[len(batches) // 2 :]
    moments = np.unique(np.linspace(0, len(late) - 1, COMPARED).astype(int))
    tables = [table, *(with_entries(table, e) for e in _distinct([late[i][1] for i in moments], advice))]
    place, validated = (
        best_by_halving(tables, replace(trials, episodes=validation), budget.episodes) if tables[1:] else (0, 0)
    )
    return Refined(tables[place], budget.episodes + validated, method, view.cells)


def choosing_table(policy: Policy, method: str) -> TablePolicy:
    """Return the policy if it is a table of named actions without memory.

    Raises:
        PolicyError: it is not.
    """
    if not isinstance(policy, TablePolicy) or not all(actuator.is_choice for actuator in policy.task.actuators):
        raise PolicyError(f"{method} learns tables that choose among named actions; tune other policies by cma")
    if policy.remembers:
        raise PolicyError(f"{method} learns tables without memory; tune this one by cma or coordinate")
    return policy


def check_memoryless(measure: Measure, method: str) -> None:
    """Refuse an objective with memory.

    Raises:
        PolicyError: it has memory.
    """
    if measure.remembers:
        raise PolicyError(
            f"{method} sees one step at a time, and the objective remembers {', '.join(measure.remembers)}: leave "
            "`prev(...)` out of it"
        )


def _distinct(tables: Sequence[npt.NDArray[np.int64]], known: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Return the tables that differ from each other and from the known one, in order."""
    unique = {table.tobytes(): table for table in tables}
    unique.pop(known.tobytes(), None)
    return list(unique.values())
