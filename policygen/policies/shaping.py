"""Reward shaping for tuning: an objective that replaces the reward, and a potential for learners.

Both stand beside a policy in a reply, but are not part of it. They guide the search; the score is still the return.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import ExpressionError, PolicyError
from policygen.policies.features import Reader, decision_columns, parse_lets
from policygen.quantities.codegen import Array, compiled, finite
from policygen.quantities.text import parse_expression
from policygen.quantities.tree import names_in, remembered_in
from policygen.tasks.task import Task

OBJECTIVE, POTENTIAL, REWARD = "objective", "potential", "reward"
Column = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shaping:
    """The right sides of `objective = EXPRESSION` and `potential = EXPRESSION` in a proposal; either may be empty."""

    # The names and definitions of the features that they need, each after those that it reads. Their constants stay as
    # proposed, because tuning must not change the measure by which it is judged.
    lets: tuple[tuple[str, str], ...] = ()
    objective: str = ""  # replaces the reward: tuning maximises its sum over the steps of an episode
    # The value of a state for a learner, whose reward increases by discount * potential(after) - potential(before); the
    # potential is 0 after termination. This does not change which policy is best (Ng, Harada and Russell 1999, "Policy
    # invariance under reward transformations").
    potential: str = ""

    def to_text(self) -> str:
        """Return the shaping as lines of the policy language, which `parse` reads back."""
        lets = [(f"let {name}", text) for name, text in self.lets]
        stated = [*lets, (OBJECTIVE, self.objective), (POTENTIAL, self.potential)]
        return "\n".join(f"{name} = {text}" for name, text in stated if text)


class Measure:
    """The objective and the potential of a `Shaping`, compiled.

    Attributes:
        objective, potential: the expressions; None if the shaping has none.

    Raises:
        PolicyError: the shaping does not fit the task.
    """

    def __init__(self, task: Task, shaping: Shaping) -> None:
        self.task, texts, names = task, task.text_names, (*task.decision_names, REWARD)
        try:
            lets, known = parse_lets(shaping.lets, task, "objective")
            objective = parse_expression(shaping.objective or "0", [*known, *names], texts=texts)
            potential = parse_expression(shaping.potential or "0", known, texts=texts)
        except ExpressionError as error:
            raise PolicyError(f"damaged objective: {error}") from None
        self._reader, self._potential_reader = (
            Reader(task, lets, names_in(node) & frozenset(known), remembered_in(node))
            for node in (objective, potential)
        )
        if self._potential_reader.remembered:
            raise PolicyError("damaged objective: its potential reads a previous value; use only values of the state")
        if REWARD in self._reader.previous:
            raise PolicyError(f"damaged objective: it reads `prev({REWARD})`; use `{REWARD}`, the reward of this step")
        self.objective = objective if shaping.objective else None
        self.potential = potential if shaping.potential else None
        self._decided = decision_columns(task)
        self._objective = compiled([objective], (*self._reader.names, *names))
        self._potential = compiled([potential], self._potential_reader.names)

    @property
    def remembers(self) -> tuple[str, ...]:
        """Names of the previous values that the objective reads, if any."""
        return self._reader.remembered

    def objectives(self, observations: Array, actions: Array, rewards: Array) -> Column:
        """Return the objective at each of n steps, shape (n,); it must not read previous values.

        Args:
            observations: shape (n, d).
        """
        quantities = self._reader.columns(np.asarray(observations, np.float64).T)
        return self._of_steps(quantities, actions, rewards)

    def sums(self, episodes: Sequence[Any]) -> Column:
        """Return the sum of the objective over the steps of each trajectory, shape (episodes,)."""
        played, sums = [t for t in episodes if t.length], np.zeros(len(episodes))
        if not played:
            return sums
        quantities = self._reader.along(*((t.observations[:-1].astype(np.float64), t.actions) for t in played))
        actions, rewards = (np.concatenate([getattr(t, name) for t in played]) for name in ("actions", "rewards"))
        starts = np.cumsum([0, *(t.length for t in played[:-1])])
        sums[[t.length > 0 for t in episodes]] = np.add.reduceat(self._of_steps(quantities, actions, rewards), starts)
        return sums

    def _of_steps(self, quantities: Sequence[Array], actions: Array, rewards: Array) -> Column:
        """Return the objective at each of n steps, shape (n,), with finite values."""
        columns = [*quantities, *self._decided(actions), np.asarray(rewards, np.float64)]
        with np.errstate(all="ignore"):
            (values,) = self._objective(columns)
        return finite(np.broadcast_to(values, len(rewards)).astype(np.float64))

    def potentials(self, observations: Array) -> Column:
        """Return the potential of n states, shape (n,), given observations of shape (n, d); 0 without a potential."""
        quantities = self._potential_reader.columns(np.asarray(observations, np.float64).T)
        with np.errstate(all="ignore"):
            (values,) = self._potential(quantities)
        return finite(np.broadcast_to(values, len(observations)).astype(np.float64))
