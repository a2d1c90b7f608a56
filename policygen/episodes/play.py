"""The episode loop: an actor chooses the actions for copies of an environment that step together.

Actors see the same float32 rows that trajectories store. With more digits, a policy with memory could decide
differently when its trajectory is replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import (
    Actor,
    Decider,
    Indices,
    LearningDecider,
    Rows,
    StepObserver,
    Trajectory,
    chunks,
)
from policygen.policies.linear import DifferentStructure, Population
from policygen.tasks.task import Task

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
StepOutput = tuple[Array, Array, Flags, "bool | Flags"]
"""Observations, float32 of shape (k, d); rewards, terminations and truncations, each of shape (k,). A single truncation
stands for all copies."""


class Copies(ABC):
    """Copies of an environment that step together, each in an episode of its own.

    Attributes:
        engine: the name of this kind of copies in scores.
        max_copies: the largest number of copies.
        by_row: whether an actor gets a list of rows instead of one array; for few copies, that is faster.
        renews: whether ended copies can begin new episodes. If not, all episodes begin together.
        max_idle: ended copies keep stepping, ignored, until they make up at least this share of all copies.
    """

    engine: ClassVar[str]
    max_copies: int
    by_row: ClassVar[bool] = False
    renews: ClassVar[bool] = False
    max_idle: ClassVar[float] = 0.0

    @abstractmethod
    def begin(self, seeds: Sequence[int], /) -> Array:
        """Begin an episode with each of k seeds in k copies; return the observations, float32 of shape (k, d)."""

    @abstractmethod
    def step(self, actions: Any, /) -> StepOutput:
        """Step all copies."""

    @abstractmethod
    def replace(self, ended: Flags, seeds: Sequence[int], /) -> Array:
        """Begin episodes with `seeds` in the first ended copies, drop the other ended ones; return all observations.

        Without `renews`, `seeds` is empty.
        """

    def trajectory_fields(self, place: int, /) -> Mapping[str, Any]:
        """Return additional fields for the `Trajectory` of the copy `place`, whose episode has ended."""
        return {}


class Step(NamedTuple):
    """A step of all copies. Copy i plays episode `indices[i]`; `indices` changes only when copies are replaced."""

    indices: Indices
    before: Array  # the observations from which the actions were chosen
    actions: Any
    rewards: Array
    after: Array
    over: Flags | None  # whether each copy's episode ends with this step; None if none ends
    terminated: Flags
    truncated: bool | Flags


def play(task: Task, copies: Copies, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
    """Play one whole episode per seed; return them in the order of the seeds."""
    played: list[Trajectory] = []
    for part in [seeds] if copies.renews else chunks(seeds, copies.max_copies):
        record, decider = _Trajectories(task, part), actor.begin(len(part))
        observer = decider if isinstance(decider, StepObserver) else None
        for step in steps(copies, decider, part):
            record.add(step, copies)
            if observer is not None:
                for place, index in enumerate(step.indices.tolist()):
                    whole = record.trajectory(index) if step.over is not None and step.over[place] else None
                    observer.observe_step(index, float(step.rewards[place]), whole)
        played += map(record.trajectory, range(len(part)))
    return played


def steps(copies: Copies, decider: Decider, seeds: Sequence[int]) -> Iterator[Step]:
    """Play one episode per seed and yield every step; copies without `renews` take all seeds at once."""
    begun = min(len(seeds), copies.max_copies)
    indices, ended = np.arange(begun), np.zeros(begun, np.bool_)
    rows = copies.begin(seeds[:begun])
    learning = decider if isinstance(decider, LearningDecider) else None
    while begun:
        before, actions = rows, cast(Any, decider.decide(list(rows) if copies.by_row else rows, indices))
        if not copies.by_row:
            actions = np.asarray(actions)
        rows, rewards, terminated, truncated = copies.step(actions)
        if learning is not None:
            active = ~ended
            learning.learn(indices[active], rows[active], rewards[active], terminated[active])
        over = None
        if truncated is not False or np.count_nonzero(terminated):
            over = (terminated | truncated) & ~ended
        yield Step(indices, before, actions, rewards, rows, over, terminated, truncated)
        if over is None or not over.any():
            continue
        ended |= over
        idle = int(np.count_nonzero(ended))
        if idle == len(ended) and begun == len(seeds):
            return
        if idle < max(1, copies.max_idle * len(ended)):
            continue
        fresh = np.arange(begun, min(len(seeds), begun + idle))
        rows = copies.replace(ended, seeds[begun : begun + len(fresh)])
        indices, ended = replaced(indices, ended, fresh), np.zeros(len(rows), np.bool_)
        begun += len(fresh)


def replaced(lanes: Array, ended: Flags, fresh: Array) -> Array:
    """Return a copy of `lanes` with the values `fresh` in the first ended places and without the other ended places."""
    places = ended.nonzero()[0]
    lanes = lanes.copy()
    lanes[places[: len(fresh)]] = fresh
    return np.delete(lanes, places[len(fresh) :], axis=0) if len(fresh) < len(places) else lanes


@dataclass(slots=True)
class _Segment:
    """The steps between two replacements of copies; the first row is the observation before the first step."""

    start: int  # the number of its first step
    rows: list[Array]
    actions: list[Any] = field(default_factory=list)
    rewards: list[Array] = field(default_factory=list)
    stacked: tuple[Array, Array, Array] | None = None

    def arrays(self) -> tuple[Array, Array, Array]:
        """Return observations (s + 1, k, d), actions and rewards (s, k) of the s steps so far."""
        if self.stacked is None or len(self.stacked[2]) < len(self.rewards):
            self.stacked = np.array(self.rows), np.array(self.actions), np.array(self.rewards)
        return self.stacked


class _Trajectories:
    """Records steps, and returns them as trajectories."""

    def __init__(self, task: Task, seeds: Sequence[int]) -> None:
        self._action_dtype = np.float32 if task.has_numbers else np.int16
        self._seeds, self._steps = seeds, 0
        self._indices: Indices | None = None
        self._places: list[list[tuple[_Segment, int]]] = [[] for _ in seeds]
        self._ends: list[dict[str, Any]] = [{} for _ in seeds]
        self._stops = [0] * len(seeds)  # how many steps had been played when each episode ended

    def add(self, step: Step, copies: Copies) -> None:
        if step.indices is not self._indices:
            self._indices, self._now = step.indices, _Segment(self._steps, [step.before])
            for place, index in enumerate(step.indices.tolist()):
                self._places[index].append((self._now, place))
        self._steps += 1
        self._now.rows.append(step.after)
        self._now.actions.append(step.actions)
        self._now.rewards.append(step.rewards)
        if step.over is not None:
            cut = np.broadcast_to(step.truncated, step.over.shape)
            for place in step.over.nonzero()[0].tolist():
                index = int(step.indices[place])
                self._stops[index] = self._steps
                flags = {"terminated": bool(step.terminated[place]), "truncated": bool(cut[place])}
                self._ends[index] = {**flags, **copies.trajectory_fields(place)}

    def trajectory(self, index: int) -> Trajectory:
        """Return an episode that has ended."""
        seen, acted, paid = list[Array](), list[Array](), list[Array]()
        for segment, place in self._places[index]:
            rows, actions, rewards = segment.arrays()
            count = self._stops[index] - segment.start
            seen.append(rows[1 if seen else 0 : count + 1, place])  # the first row of a later segment is known
            acted.append(actions[:count, place])
            paid.append(rewards[:count, place])
        rewards = _joined(paid)
        with np.errstate(over="ignore"):
            return Trajectory(
                observations=_joined(seen),
                actions=_joined(acted).astype(self._action_dtype),
                rewards=rewards.astype(np.float32),
                episode_return=float(rewards.sum()),
                seed=int(self._seeds[index]),
                **self._ends[index],
            )


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)


def play_together(
    play: Callable[[Actor, Sequence[int]], list[Trajectory]], actors: Sequence[Actor], seeds: Sequence[int], most: int
) -> list[list[Trajectory]]:
    """Play every actor on the same seeds; each call of `play` gets as many actors as fit into `most` episodes."""
    if len(seeds) * 2 > most:
        return [play(actor, seeds) for actor in actors]
    played: list[list[Trajectory]] = []
    for some in chunks(actors, most // len(seeds)):
        together = play(_BatchedActors(some, len(seeds)), list(seeds) * len(some))
        played += [together[i : i + len(seeds)] for i in range(0, len(together), len(seeds))]
    return played


@dataclass
class _BatchedActors:
    """Several actors combined: the first decides in the first `each` episodes, the second in the next `each`, ..."""

    actors: Sequence[Actor]
    each: int
    independent: bool = True

    def begin(self, episodes: int, /) -> Decider:
        try:
            return Population(self.actors, self.each)
        except DifferentStructure:
            self._deciders = [actor.begin(self.each) for actor in self.actors]
            return self

    def decide(self, observations: Rows, indices: Indices, /) -> npt.NDArray[Any]:  # indices in ascending order
        ends = np.searchsorted(indices, self.each * np.arange(1, len(self._deciders) + 1)).tolist()
        chosen, start = [], 0
        for i, (decider, end) in enumerate(zip(self._deciders, ends, strict=True)):
            if end > start:
                chosen.append(np.asarray(decider.decide(observations[start:end], indices[start:end] - i * self.each)))
            start = end
        return np.concatenate(chosen)
