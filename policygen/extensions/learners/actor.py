"""Tables as a learner sees them, and the actor whose choices a learner makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Indices, Rows
from policygen.extensions.learners.learner import Cells, Step, Vector
from policygen.policies.shaping import Measure
from policygen.policies.table import TablePolicy
from policygen.search.refine.tables import choices_of


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
