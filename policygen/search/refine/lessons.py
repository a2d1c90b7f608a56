"""How a learner practises: what it is asked and told while episodes go on, and what an adviser is worth beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Indices, Rows
from policygen.policies.shaping import Measure
from policygen.policies.table import TablePolicy
from policygen.search.refine.learner import Cells, Step, Vector
from policygen.tasks.task import Task


class Student(Protocol):
    """Whoever chooses an action in each cell, and is told what came of it."""

    def choose(self, cells: Cells, /) -> npt.NDArray[np.int64]:
        """An action for each of n cells."""
        ...

    def learn(self, step: Step, /) -> None:
        """What came of it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class CellView:
    """Cells and actions as a learner counts them, and how observations and the task's actions become these.

    Attributes:
        cells, actions: how many there are; the actions of several actuators are all their combinations.
        read: cells of n observations.
        act: n actions in the environment's own form.
    """

    cells: int
    actions: int
    read: Callable[[Rows], Cells]
    act: Callable[[Cells], npt.NDArray[Any]]


def board_of(policy: TablePolicy, states: int | None = None) -> CellView:
    """The cells and actions of a table whose actions are choices.

    Args:
        states: how many states there are where observations are their numbers: the cells are then looked up.
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
    """How many labels each actuator has; 0 for a number."""
    return tuple(len(actuator.labels) for actuator in task.actuators)


def entries_of(policy: TablePolicy) -> npt.NDArray[np.int64]:
    """What the table names in every cell as the number of an action, shape (cells,)."""
    actions = np.asarray(policy.actions, np.int64).reshape(policy.grid.size, -1)
    return np.asarray(np.ravel_multi_index(tuple(actions.T), choices_of(policy.task)), np.int64)


def with_entries(policy: TablePolicy, entries: Cells) -> TablePolicy:
    """The table over the same cells with other actions, given by their numbers."""
    actions = np.stack(np.unravel_index(entries, choices_of(policy.task)), axis=1)
    return TablePolicy.from_actions(policy.task, actions, policy.grid, policy.lets, policy.written)


@dataclass(frozen=True, slots=True, eq=False)
class ShapedReward:
    """What a learner is told that a step pays: the objective in the place of the reward, and what the potential adds.

    Attributes:
        measure: has the two; either may be missing.
        discount: with which the learner values what comes later.
    """

    measure: Measure
    discount: float

    def told(
        self,
        before: Vector,
        actions: npt.NDArray[Any],
        after: Rows,
        rewards: Vector,
        terminated: npt.NDArray[np.bool_],
    ) -> Vector:
        """That of n steps, shape (n,), by what was observed before and after them.

        A potential adds discount * potential(after) - potential(before), and is 0 after the end of an episode.
        """
        measure = self.measure
        if measure.objective is not None:
            rewards = measure.objectives(before, actions, rewards)
        if measure.potential is None:
            return rewards
        ahead = np.where(terminated, 0.0, measure.potentials(np.asarray(after)))
        return rewards + self.discount * ahead - measure.potentials(before)


@dataclass(frozen=True, slots=True, eq=False)
class LearnerActor:
    """A student as an actor: it sees cells, and what it decides acts."""

    student: Student
    board: CellView
    praise: ShapedReward | None = None
    portable = False

    def begin(self, episodes: int, /) -> Lesson:
        """Take up so many new episodes."""
        return Lesson(self.student, self.board, episodes, self.praise)


class Lesson:
    """A student at work on n episodes."""

    def __init__(self, student: Student, board: CellView, episodes: int, praise: ShapedReward | None) -> None:
        self._student, self._board, self._praise = student, board, praise
        self._before = np.zeros((episodes, praise.measure.task.width) if praise is not None else 0)
        self._at = np.full(episodes, -1, np.int64)  # the cell of each episode; not known before its first decision
        self._did = np.zeros(episodes, np.int64)

    def decide(self, observations: Rows, rows: Indices, /) -> npt.NDArray[Any]:
        """The next actions, see `Decider`."""
        cells: Cells = self._at[rows]
        if (cells < 0).any():
            cells = self._board.read(observations)
            self._at[rows] = cells
            if self._praise is not None:
                self._before[rows] = observations
        chosen = self._student.choose(cells)
        self._did[rows] = chosen
        return self._board.act(chosen)

    def learn(self, rows: Indices, observations: Rows, rewards: Vector, terminated: npt.NDArray[np.bool_], /) -> None:
        """What came of them, see `Learning`."""
        after = self._board.read(observations)
        if self._praise is not None:
            acted = self._board.act(self._did[rows])
            rewards = self._praise.told(self._before[rows], acted, observations, rewards, terminated)
            self._before[rows] = observations
        self._student.learn(Step(self._at[rows], self._did[rows], rewards, after, terminated))
        self._at[rows] = after


# --- what an adviser is worth ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Witness:
    """Follows a table, or acts at random without one, and keeps what it saw.

    Attributes:
        steps: of all episodes side by side, as a learner is told of them.
        returns: undiscounted sums of what the environment paid in each episode, shape (episodes,).
    """

    board: CellView
    table: Cells | None
    rng: np.random.Generator
    praise: ShapedReward | None = None
    steps: list[Step] = field(default_factory=list)
    returns: Vector = field(default_factory=lambda: np.zeros(0))

    def choose(self, cells: Cells, /) -> npt.NDArray[np.int64]:
        """What the table names."""
        if self.table is None:
            return self.rng.integers(self.board.actions, size=len(cells))
        return self.table[cells].astype(np.int64)

    def learn(self, step: Step, /) -> None:
        """Note what came of it."""
        self.steps.append(step)

    def begin(self, episodes: int, /) -> Lesson:
        """Take up so many new episodes."""
        self.returns = np.zeros(episodes)
        return _Witnessing(self, episodes)

    portable = False


class _Witnessing(Lesson):
    """A lesson of which the returns are noted."""

    def __init__(self, witness: Witness, episodes: int) -> None:
        super().__init__(witness, witness.board, episodes, witness.praise)
        self._returns = witness.returns

    def learn(self, rows: Indices, observations: Rows, rewards: Vector, terminated: npt.NDArray[np.bool_], /) -> None:
        self._returns[rows] += rewards
        super().learn(rows, observations, rewards, terminated)


def is_better(returns: Vector, others: Vector) -> bool:
    """Whether the mean return is better by more than the standard error of the difference."""
    error = np.sqrt(returns.var(ddof=1) / len(returns) + others.var(ddof=1) / len(others))
    return bool(returns.mean() - others.mean() > error)
