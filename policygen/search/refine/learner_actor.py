"""Actors for tabular learners: they convert observations to cells and choices to actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Indices, Rows
from policygen.policies.shaping import Measure
from policygen.policies.table import TablePolicy
from policygen.search.refine.learner import Cells, Learner, Step, Vector
from policygen.tasks.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class CellView:
    """A numbering of cells and actions for a learner.

    Attributes:
        cells, actions: how many there are; with several actuators, actions are all combinations.
        read: converts n observations to cells.
        act: converts n action indices to the environment's own form.
    """

    cells: int
    actions: int
    read: Callable[[Rows], Cells]
    act: Callable[[Cells], npt.NDArray[Any]]


def cell_view(policy: TablePolicy, states: int | None = None) -> CellView:
    """Return the cells and actions of a table whose actions are choices.

    Args:
        states: number of states if observations are state numbers; their cells are then looked up.
    """
    counts = choices_of(policy.task)
    alone = policy.task.action_space == "discrete"

    def act(actions: Cells) -> npt.NDArray[Any]:
        return actions if alone else np.stack(np.unravel_index(actions, counts), axis=1)

    if states is None:
        return CellView(policy.grid.size, int(np.prod(counts)), lambda rows: policy.cells(np.asarray(rows)), act)
    known = policy.cells(np.arange(states).reshape(-1, 1))
    return CellView(policy.grid.size, int(np.prod(counts)), lambda rows: known[np.asarray(rows)[:, 0]], act)


def choices_of(task: Task) -> tuple[int, ...]:
    """Return the number of labels of each actuator; 0 for an actuator that takes numbers."""
    return tuple(len(actuator.labels) for actuator in task.actuators)


def entries_of(policy: TablePolicy) -> npt.NDArray[np.int64]:
    """Return the index of the table's action in every cell, shape (cells,); it counts combinations of actuators."""
    actions = np.asarray(policy.actions, np.int64).reshape(policy.grid.size, -1)
    return np.asarray(np.ravel_multi_index(tuple(actions.T), choices_of(policy.task)), np.int64)


def with_entries(policy: TablePolicy, entries: Cells) -> TablePolicy:
    """Return the table with other actions, given by their indices as in `entries_of`, shape (cells,)."""
    actions = np.stack(np.unravel_index(entries, choices_of(policy.task)), axis=1)
    return TablePolicy.from_actions(policy.task, actions, policy.grid, policy.lets, policy.written)


@dataclass(frozen=True, slots=True, eq=False)
class ShapedReward:
    """The reward of a learner: the objective, or the environment's reward without one, plus the potential's share.

    Attributes:
        measure: holds objective and potential; either may be missing.
        discount: the learner's discount.
    """

    measure: Measure
    discount: float

    def compute(
        self,
        before: Vector,
        actions: npt.NDArray[Any],
        after: Rows,
        rewards: Vector,
        terminated: npt.NDArray[np.bool_],
    ) -> Vector:
        """Compute the rewards of n steps, shape (n,), from the observations before and after them.

        A potential adds discount * potential(after) - potential(before), and is 0 after the end of an episode.
        """
        measure = self.measure
        if measure.objective is not None:
            rewards = measure.objectives(before, actions, rewards)
        if measure.potential is None:
            return rewards
        ahead = np.where(terminated, 0.0, measure.potentials(np.asarray(after)))
        return rewards + self.discount * ahead - measure.potentials(before)


@dataclass(frozen=True, slots=True)
class Trial:
    """A learner that only records: it follows a table, or acts at random without one.

    Attributes:
        steps: steps of all episodes side by side, in the form for a learner.
    """

    view: CellView
    table: Cells | None
    rng: np.random.Generator
    steps: list[Step] = field(default_factory=list)

    def choose(self, cells: Cells, /) -> npt.NDArray[np.int64]:
        """Return the table's actions."""
        if self.table is None:
            return self.rng.integers(self.view.actions, size=len(cells))
        return self.table[cells].astype(np.int64)

    def learn(self, step: Step, /) -> None:
        """Record the step."""
        self.steps.append(step)


@dataclass(frozen=True, slots=True, eq=False)
class LearnerActor:
    """An actor whose choices a learner makes."""

    learner: Learner | Trial
    view: CellView
    shaped_reward: ShapedReward | None = None
    independent = False

    def begin(self, episodes: int, /) -> CellDecider:
        """Begin new episodes."""
        return CellDecider(self.learner, self.view, episodes, self.shaped_reward)


class CellDecider:
    """The decider of a `LearnerActor`: a learner decides in n episodes and learns from them."""

    def __init__(
        self, learner: Learner | Trial, view: CellView, episodes: int, shaped_reward: ShapedReward | None
    ) -> None:
        self._learner, self._view, self._shaped_reward = learner, view, shaped_reward
        self._before = np.zeros((episodes, shaped_reward.measure.task.width) if shaped_reward is not None else 0)
        self._cells = np.full(episodes, -1, np.int64)  # the cell of each episode; -1 before its first decision
        self._last_actions = np.zeros(episodes, np.int64)

    def decide(self, observations: Rows, rows: Indices, /) -> npt.NDArray[Any]:
        """Return the next actions, see `Decider`."""
        cells: Cells = self._cells[rows]
        if (cells < 0).any():
            cells = self._view.read(observations)
            self._cells[rows] = cells
            if self._shaped_reward is not None:
                self._before[rows] = observations
        chosen = self._learner.choose(cells)
        self._last_actions[rows] = chosen
        return self._view.act(chosen)

    def learn(self, rows: Indices, observations: Rows, rewards: Vector, terminated: npt.NDArray[np.bool_], /) -> None:
        """Learn from the results, see `LearningDecider`."""
        after = self._view.read(observations)
        if self._shaped_reward is not None:
            acted = self._view.act(self._last_actions[rows])
            rewards = self._shaped_reward.compute(self._before[rows], acted, observations, rewards, terminated)
            self._before[rows] = observations
        self._learner.learn(Step(self._cells[rows], self._last_actions[rows], rewards, after, terminated))
        self._cells[rows] = after


def is_better(returns: Vector, others: Vector) -> bool:
    """Whether the mean return is better by more than the standard error of the difference."""
    error = np.sqrt(returns.var(ddof=1) / len(returns) + others.var(ddof=1) / len(others))
    return bool(returns.mean() - others.mean() > error)
