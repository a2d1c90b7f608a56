"""Count how often episodes violate the requirements of a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.errors import TaskError
from policygen.policies.features import Reader, decision_columns
from policygen.quantities.codegen import compiled
from policygen.quantities.tree import Call, Node, names_in, remembered_in
from policygen.tasks.task import Requirement, Task, parsed_requirement

CONFIDENCE = 0.95
FULL_COST = 10.0  # cost of a violated requirement at the end of a search, as a multiple of the range of returns so far
# For each comparison, the distance of its two sides from meeting it; negative where it holds with a margin.
_DISTANCE: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.subtract,
    "<=": np.subtract,
    ">": lambda left, right: right - left,
    ">=": lambda left, right: right - left,
    "==": lambda left, right: np.abs(left - right),
}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Violations:
    """A count of the episodes that violated a requirement.

    Attributes:
        violated: number of episodes that violated it, out of `episodes`.
        worst: the left side of its comparison at the step that was furthest from meeting it; None if the condition is
            not a comparison.
        seed: seed of the worst episode: the one with that step or, if the condition is not a comparison, the one with
            the largest share of violating steps; None if no episode violated such a condition.
        step: first step of the worst episode that violated it; None if none did.
    """

    name: str
    hard: bool
    allowed: float
    violated: int
    episodes: int
    worst: float | None = None
    seed: int | None = None
    step: int | None = None

    @property
    def share(self) -> float:
        """The share of the episodes that violated it."""
        return self.violated / self.episodes if self.episodes else 0.0

    @property
    def upper(self) -> float:
        """The one-sided upper 95% confidence bound of the share (Clopper and Pearson 1934)."""
        from scipy.special import betaincinv  # start-up time

        if self.violated >= self.episodes:
            return 1.0
        return float(betaincinv(self.violated + 1, self.episodes - self.violated, CONFIDENCE))

    @property
    def excess(self) -> float:
        """How far the share exceeds the allowed one; 0 if it does not, or the requirement is not hard."""
        return max(0.0, self.share - self.allowed) if self.hard else 0.0

    @property
    def basis(self) -> str:
        """The number of episodes and the worst one: `of 20 episodes (upper 95% bound 14%), worst 0.08 with seed 5`."""
        bound = f" (upper 95% bound {100 * self.upper:.2g}%)" if self.violated < self.episodes else ""
        worst = f", worst {self.worst:.4g} with seed {self.seed}" if self.worst is not None else ""
        return f"of {self.episodes} episodes{bound}{worst}"

    def __str__(self) -> str:
        """Format as one line: `overshoot: violated in 3 of 20 episodes (...), worst 0.08 with seed 5`, see `basis`."""
        return f"{self.name}: violated in {self.violated} {self.basis}"


def excess(violations: Sequence[Violations]) -> float:
    """Return the sum of `Violations.excess` over the requirements."""
    return float(sum(one.excess for one in violations))


class Sides(NamedTuple):
    """The two sides of a requirement's comparison along an episode."""

    requirement: str  # its name
    node: Node  # the left side
    left: Floats  # the values of the left side, shape (T + 1,)
    right: Floats


class Requirements:
    """The compiled requirements of a task.

    Raises TaskError if one of them cannot be parsed, and later if one reads a number that `info` does not hold.
    """

    def __init__(self, task: Task) -> None:
        self._compiled = [_CompiledRequirement(task, requirement) for requirement in task.requirements]

    def count(self, trajectories: Sequence[Trajectory]) -> tuple[Violations, ...]:
        """Count the episodes that violate each requirement, and find the worst one."""
        return tuple(one.count(trajectories) for one in self._compiled)

    def shares(self, trajectories: Sequence[Trajectory]) -> Floats:
        """Return shares of violating steps and mean excesses over the limit: shape (2, requirements, episodes)."""
        found = [[one.in_episode(episode)[:2] for episode in trajectories] for one in self._compiled]
        return np.moveaxis(np.array(found), 2, 0)

    def sides(self, trajectory: Trajectory) -> list[Sides]:
        """Return the two sides of each comparison in an episode; requirements that are not comparisons are left out."""
        compared = [one for one in self._compiled if one.sides]
        return [Sides(one.requirement.name, one.sides[0], *one.values(trajectory)[-2:]) for one in compared]


class Penalty:
    """The cost of violated hard requirements, which grows during a search.

    It grows from 0 to more than any difference of returns. At the start of a search most policies violate something,
    and those whose episodes end early may violate least. With the full cost from the start, a search would keep them.

    Args:
        episodes: number of episodes that the search may play.
    """

    def __init__(self, task: Task, episodes: int) -> None:
        hard = tuple(one for one in task.requirements if one.hard)
        self._hard = Requirements(replace(task, requirements=hard)) if hard else None
        self._episodes, self._played = max(1, episodes), 0
        self._lowest, self._highest = np.inf, -np.inf
        self._furthest = np.full((len(hard), 1), 1e-12)  # the largest mean excess so far

    def __call__(self, values: Floats, trajectories: Sequence[Sequence[Trajectory]]) -> Floats:
        """Return the values of some policies minus the costs of the violations in their episodes.

        A violated requirement costs 1, plus the share of violating steps, plus the mean distance from the limit
        relative to the largest so far. So a search can improve gradually, even if violations are rare.
        """
        if self._hard is None:
            return values
        self._played += sum(map(len, trajectories))
        self._lowest, self._highest = min(self._lowest, values.min()), max(self._highest, values.max())
        weight = FULL_COST * min(1.0, self._played / self._episodes) ** 2 * (self._highest - self._lowest)
        found = list(map(self._hard.shares, trajectories))
        excesses = np.concatenate([self._furthest, *(excess for _, excess in found)], axis=1)
        self._furthest = excesses.max(axis=1, keepdims=True)
        costs = [np.where(share > 0, 1 + share + excess / self._furthest, 0.0) for share, excess in found]
        return values - weight * np.array([cost.sum(axis=0).mean() for cost in costs])


class _EpisodeViolations(NamedTuple):
    """The violations of a requirement in one episode."""

    share: float = 0.0  # of the steps that violate it
    excess: float = 0.0  # distance beyond the limit, averaged over the steps; 0 without a comparison
    step: int | None = None  # the first violating step
    worst: float = np.nan  # as in `Violations`; NaN without a comparison
    distance: float = np.nan  # from `worst` to meeting the comparison; negative if it is met with a margin


class _CompiledRequirement:
    """A requirement, compiled into a function of an episode's rows."""

    def __init__(self, task: Task, requirement: Requirement) -> None:
        self._task, self.requirement, self._decisions = task, requirement, task.decision_names
        known = list(dict.fromkeys([*task.quantity_names, *self._decisions]))
        condition, event = parsed_requirement(requirement, known, task.text_names)
        nodes = [node for node in (condition, event) if node is not None]
        self._has_event = event is not None
        self._distance: Callable[[Any, Any], Any] = np.subtract
        self.sides: list[Node] = []
        match condition:
            case Call(operator, (left, right)) if operator in _DISTANCE:
                self._distance, self.sides = _DISTANCE[operator], [left, right]
        read = frozenset().union(*(names_in(node) for node in nodes))
        previous = frozenset().union(*(remembered_in(node) for node in nodes))
        self._info = [name for name in sorted(requirement.info_names) if f"info_{name}" not in known]
        infos = [f"info_{name}" for name in self._info]
        self._reader = Reader(task, (), read - {*self._decisions, *infos}, previous)
        self._function = compiled([*nodes, *self.sides], (*self._reader.names, *self._decisions, *infos))

    def count(self, trajectories: Sequence[Trajectory]) -> Violations:
        found = [self.in_episode(episode) for episode in trajectories]
        violated, requirement = sum(one.share > 0 for one in found), self.requirement
        facts = requirement.name, requirement.hard, requirement.allowed, violated, len(found)
        compared = [i for i, one in enumerate(found) if not np.isnan(one.distance)]
        if not compared and not violated:
            return Violations(*facts)
        where = max(compared or range(len(found)), key=lambda i: found[i].distance if compared else found[i].share)
        worst = found[where].worst if compared else None
        return Violations(*facts, worst, trajectories[where].seed, found[where].step)

    def in_episode(self, trajectory: Trajectory) -> _EpisodeViolations:
        if not trajectory.length:
            return _EpisodeViolations()
        holds, *others = self.values(trajectory)
        places = np.arange(len(holds))
        if self.requirement.at_end:
            required = places == len(places) - 1
        else:  # nothing is required before the first event; without one, the start of the episode is one
            events = others[0] != 0 if self._has_event else places == 0
            last = np.maximum.accumulate(np.where(events, places, -1))
            required = (last >= 0) & (places - last >= (self.requirement.within or 0))
        rows = np.flatnonzero(required)
        if not len(rows):
            return _EpisodeViolations()
        broken = rows[(holds[rows] == 0) | np.isnan(holds[rows])]
        worst, distance, excess = np.nan, np.nan, 0.0
        if self.sides:
            left, right = others[-2:]
            beyond = self._distance(left, right)[rows]
            place = int(np.argmax(np.where(np.isnan(beyond), np.inf, beyond)))
            worst, distance = float(left[rows[place]]), float(beyond[place])
            excess = float(np.maximum(np.nan_to_num(beyond, posinf=0.0), 0.0).mean())
        return _EpisodeViolations(
            len(broken) / len(rows), excess, int(broken[0]) if len(broken) else None, worst, distance
        )

    def values(self, trajectory: Trajectory) -> list[Floats]:
        """Return condition, event (if any) and sides at the T + 1 observations; the last one has the last action."""
        quantities = self._reader.along((trajectory.observations.astype(np.float64), trajectory.actions))
        actions = np.concatenate([trajectory.actions, trajectory.actions[-1:]])
        decided = decision_columns(self._task)(actions)
        info, n = dict(trajectory.info), len(trajectory.observations)
        for name in self._info:
            if name not in info or np.isnan(info[name]).all():
                what = f"requirement `{self.requirement.name}` reads `info_{name}`"
                raise TaskError(f"{what}, but the `info` of {self._task.gym_id} holds no number `{name}`")
        columns = [*quantities, *decided, *(info[name] for name in self._info)]
        with np.errstate(all="ignore"):
            return [np.broadcast_to(np.asarray(one, np.float64), (n,)) for one in self._function(columns)]
