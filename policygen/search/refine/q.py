"""`q` and `sarsa`: tabular learning from episodes, with the proposed table as adviser."""

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
from policygen.search.refine.cma import best_of
from policygen.search.refine.learner import Learner
from policygen.search.refine.lessons import (
    CellView,
    LearnerActor,
    ShapedReward,
    Witness,
    board_of,
    entries_of,
    is_better,
    with_entries,
)
from policygen.search.refine.tunable import Practice, Refined, Trials
from policygen.tasks.task import Task

TRIAL_SHARE = 0.05  # of the episodes, for what the advice is worth, and as much for random actions
TRIED = (4, 32)  # episodes of each, at least and at most
SIDE_BY_SIDE = (
    8,
    128,
)  # episodes between replays, at least and at most: the fewer, the sooner each gains by the others
BATCHES = 100  # that the episodes are played in, where there are enough of them ...
GROWTH = 16  # ... and fewer of more than so many times the smallest: a batch adds at least this part of what was seen
LEAST_EPISODES = 40
COMPARED = 8  # tables of the last half of the learning, on episodes that it has not seen; and the proposed one


@dataclass(frozen=True, slots=True, eq=False)
class LearningBudget:
    """What a learner may play, on which seeds, for how many episodes, and how it values what comes later.

    `measure`, where there is one, has an objective that it learns in the place of the rewards, or a potential.
    """

    practice: Practice
    seeds: Callable[[int, int], Sequence[int]]
    episodes: int
    discount: float
    measure: Measure | None = None


def discount_of(task: Task) -> float:
    """What a reward is worth a step later.

    What is scored is the undiscounted return within the step limit, and the learner does not know how much of the limit
    is left: half of it on average, which is as far as this discount looks ahead.
    """
    return 1.0 - 1.0 / (2.0 * task.max_steps)


def learnt(
    board: CellView,
    course: LearningBudget,
    rng: np.random.Generator,
    *,
    advice: npt.NDArray[np.int64] | None = None,
    expected: bool = False,
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Episodes played so far, and the table that is known to be best by then, shape (cells,): one pair a batch.

    Args:
        advice: the adviser's action for every cell, shape (cells,).
        expected: by expected SARSA instead of Q-learning.
    """
    played = 0
    witnesses: list[Witness] = []
    praise = ShapedReward(course.measure, course.discount) if course.measure is not None else None
    if advice is not None:
        count = int(np.clip(TRIAL_SHARE * course.episodes, *TRIED))
        for table in (advice, None):
            witnesses.append(Witness(board, table, rng, praise))
            course.practice(witnesses[-1], course.seeds(played, count))
            played += count
        if not is_better(witnesses[0].returns, witnesses[1].returns):
            advice = None  # no better than random actions
    learner = Learner(board.cells, board.actions, course.discount, rng, advice=advice, expected=expected)
    for witness in witnesses:
        for step in witness.steps:
            learner.learn(step)
        learner.replay()
    if witnesses:
        yield played, learner.best()
    size = int(np.clip(course.episodes // BATCHES, *SIDE_BY_SIDE))
    while played < course.episodes:
        count = min(max(size, played // GROWTH), course.episodes - played)
        course.practice(LearnerActor(learner, board, praise), course.seeds(played, count))
        learner.replay()
        played += count
        yield played, learner.best()


def q_learning(
    policy: Policy, method: Literal["q", "sarsa"], trials: Trials, rng_seed: int, mdp: FiniteMDP | None
) -> Refined | None:
    """Learn a table from its own advice; None where the budget does not suffice.

    Where the MDP is known, episodes are drawn from it, and the best table of all batches is chosen by exact scores.
    Elsewhere some of the last ones and the proposed one are compared on episodes that taught nothing. Returns compare
    them, also where an objective taught them.

    Raises:
        PolicyError: the policy is no table of choices, or it remembers, or the objective does.
    """
    table = choosing_table(policy, method)
    if trials.measure is not None:
        check_forgetful(trials.measure, method)
    if trials.practice is None or trials.episodes < LEAST_EPISODES:
        return None
    advice = entries_of(table)
    board = board_of(table, len(mdp.start) if mdp is not None else None)
    validation = int(trials.episodes * VALIDATION_SHARE) if mdp is None else 0
    course = LearningBudget(
        trials.practice, trials.seeds, trials.episodes - validation, discount_of(table.task), trials.measure
    )
    rng = np.random.default_rng(rng_seed)
    batches = list(learnt(board, course, rng, advice=advice, expected=method == "sarsa"))
    if mdp is not None:
        tables = [table, *(with_entries(table, entries) for entries in _distinct([e for _, e in batches], advice))]
        scores = [score.mean for one in tables if (score := exact_score(one, mdp)) is not None]
        return Refined(tables[int(np.argmax(scores))], course.episodes, method, board.cells)
    late = batches[len(batches) // 2 :]
    moments = np.unique(np.linspace(0, len(late) - 1, COMPARED).astype(int))
    tables = [table, *(with_entries(table, e) for e in _distinct([late[i][1] for i in moments], advice))]
    place, validated = best_of(tables, replace(trials, episodes=validation), course.episodes) if tables[1:] else (0, 0)
    return Refined(tables[place], course.episodes + validated, method, board.cells)


def choosing_table(policy: Policy, method: str) -> TablePolicy:
    """The policy, if it is a table that chooses among named actions and remembers nothing.

    Raises:
        PolicyError: it is not.
    """
    if not isinstance(policy, TablePolicy) or not all(actuator.is_choice for actuator in policy.task.actuators):
        raise PolicyError(f"{method} learns tables that choose among named actions; tune other policies by cma")
    if policy.remembers:
        raise PolicyError(f"{method} learns tables that remember nothing; tune this one by cma or coordinate")
    return policy


def check_forgetful(measure: Measure, method: str) -> None:
    """Refuse an objective that remembers.

    Raises:
        PolicyError: it does.
    """
    if measure.remembers:
        raise PolicyError(
            f"{method} sees one step at a time, and the objective remembers {', '.join(measure.remembers)}: leave "
            "`prev(...)` out of it"
        )


def _distinct(tables: Sequence[npt.NDArray[np.int64]], known: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """The tables that differ from each other and from the one that is known, in their order."""
    unique = {table.tobytes(): table for table in tables}
    unique.pop(known.tobytes(), None)
    return list(unique.values())
