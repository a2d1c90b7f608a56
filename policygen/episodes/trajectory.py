"""Episodes as arrays, and whoever chooses the actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from policygen.tasks.task import Task

T = TypeVar("T")
Rows = Sequence[npt.NDArray[Any]] | npt.NDArray[Any]
Indices = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """One episode as arrays.

    Attributes:
        observations: float32, shape (T + 1, d): the last row is the observation after the last action.
        actions: int16 of shape (T,) for Discrete, (T, m) for MultiDiscrete, float32 (T, m) for Box.
        rewards: float32, shape (T,).
        episode_return: undiscounted sum of rewards, added in double precision.
        seed: what the environment was reset with.
        terminated: the environment ended the episode; `truncated`: the time limit did.
        terms: the sum of each of the reward's terms, where the environment tells them apart (`reward_...`,
            `..._penalty` and `..._cost` in `info`, as MuJoCo's do).
        unstable: whether the simulation diverged on the way, as far as the environment tells.
    """

    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    episode_return: float
    seed: int
    terminated: bool
    truncated: bool
    terms: tuple[tuple[str, float], ...] = ()
    unstable: bool = False

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.rewards)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, seeds for one, at most `size` at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


@dataclass(frozen=True, slots=True, eq=False)
class SideBySide:
    """n episodes played side by side, each padded to the time limit of T steps.

    Attributes:
        observations: shape (T + 1, n, d).
        actions: shape (T, n) for Discrete, else (T, n, m).
        rewards: shape (T, n).
        lengths: steps that each episode took, shape (n,).
        terminated: whether the environment ended it, shape (n,).
    """

    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.floating[Any]]
    lengths: npt.NDArray[np.int64]
    terminated: npt.NDArray[np.bool_]

    def trajectories(self, seeds: Sequence[int]) -> list[Trajectory]:
        """The episodes one by one, each with its seed."""
        return [self._trajectory(i, int(seed)) for i, seed in enumerate(seeds)]

    def _trajectory(self, i: int, seed: int) -> Trajectory:
        steps = int(self.lengths[i])
        rewards = self.rewards[:steps, i]
        return Trajectory(
            self.observations[: steps + 1, i].copy(),
            self.actions[:steps, i].copy(),
            rewards.astype(np.float32),
            float(rewards.sum(dtype=np.float64)),
            seed,
            bool(self.terminated[i]),
            steps == len(self.rewards),
        )


class Decider(Protocol):
    """An actor at work on n episodes that are played side by side, row i of its memory being episode i."""

    def decide(self, observations: Rows, rows: Indices, /) -> Sequence[Any] | npt.NDArray[Any]:
        """The next actions, one for each of the `rows`, in the environment's own form.

        An episode is new until its first decision, and every call is its next step. An episode that has ended is soon
        not asked about any more; an answer for it is thrown away.

        Args:
            observations: one flattened observation for each of the `rows`: an array of shape (k, d), or a sequence of
                k rows of shape (d,) where the environments are stepped one by one.
            rows: which of the n episodes are asked about, each at most once, in the order of `observations`.
        """
        ...


@runtime_checkable
class Witness(Protocol):
    """A decider that is told what came of its decisions, where the environments are stepped one by one."""

    def happened(self, row: int, reward: float, ended: Trajectory | None, /) -> None:
        """Episode `row` paid a reward for the last decision and, if it is over, is `ended`."""
        ...


@runtime_checkable
class Learning(Protocol):
    """A decider that is told what came of every decision before it is asked for the next one."""

    def learn(
        self,
        rows: Indices,
        observations: Rows,
        rewards: npt.NDArray[np.float64],
        terminated: npt.NDArray[np.bool_],
        /,
    ) -> None:
        """What came of the last decision in each of the `rows`, none of which had ended before it.

        Args:
            rows: which episodes, as `Decider.decide` was asked about them.
            observations: those after the step, as `Decider.decide` takes them.
            rewards: shape (k,).
            terminated: whether the environment ended the episode, shape (k,). An episode that the time limit cuts has
                not: what would have come after it counts.
        """
        ...


class Actor(Protocol):
    """Whatever chooses actions: a policy, with memory or without, random numbers, a model.

    `portable` says that an episode depends on its seed and on what a copy of the actor decides in it, on nothing that
    the actor did before or does beside it: then other processes may play with pickled copies.
    """

    @property
    def portable(self) -> bool:
        """Whether copies in other processes play the same episodes."""
        ...

    def begin(self, episodes: int, /) -> Decider:
        """Take up so many new episodes; those taken up before are not touched."""
        ...


class RandomActor:
    """Uniformly random actions, for the episodes before the first policy."""

    portable = False  # its generator goes on from episode to episode

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._rng = np.random.default_rng(seed)

    def begin(self, episodes: int, /) -> RandomActor:
        """Itself: which episodes it decides makes no difference."""
        return self

    def decide(self, observations: Rows, rows: Indices, /) -> npt.NDArray[Any]:
        """One random action for each of the `rows`."""
        n = len(rows)
        columns = [
            self._rng.integers(len(a.labels), size=n) if a.is_choice else self._rng.uniform(a.low, a.high, size=n)
            for a in self._task.actuators
        ]
        if self._task.action_space == "discrete":
            return columns[0]
        stacked = np.stack(columns, axis=1)
        return self._task.limits.carried_out(stacked) if self._task.has_numbers else stacked
