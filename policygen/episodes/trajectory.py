"""Episodes as arrays, protocols of actors, which choose the actions, and actors that choose at random."""

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
        seed: seed of the environment's reset.
        terminated, truncated: whether the environment, or a time limit, ended the episode.
        terms: the sum of each reward term that the environment reports in `info` (`reward_...`, `..._penalty` or
            `..._cost`, as in MuJoCo environments).
        unstable: whether the environment reports that the simulation diverged.
        info: the values in `info` that the task's requirements read, each of shape (T + 1,), NaN where missing; not
            stored in files.
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
    info: tuple[tuple[str, npt.NDArray[np.float64]], ...] = ()

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.rewards)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in chunks of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


class Decider(Protocol):
    """Chooses the actions in n simultaneous episodes, which have the indices 0 to n - 1."""

    def decide(self, observations: Rows, indices: Indices, /) -> Sequence[Any] | npt.NDArray[Any]:
        """Return the next action in each of the episodes `indices`, as a `Trajectory` stores it.

        An episode begins with its first decision; each call is its next step. Episodes that have ended may appear in a
        few more calls; their actions are ignored.

        Args:
            observations: one flattened observation per episode: an array of shape (k, d), or a sequence of k rows of
                shape (d,) if the environments are stepped in turn.
            indices: the episodes, each at most once, in the order of `observations`.
        """
        ...


@runtime_checkable
class StepObserver(Protocol):
    """A decider that gets the reward of each decision, and each finished episode; only for copies stepped in turn."""

    def observe_step(self, index: int, reward: float, ended: Trajectory | None, /) -> None:
        """Observe the reward of the last decision in episode `index`, and the whole episode if it has ended."""
        ...


@runtime_checkable
class LearningDecider(Protocol):
    """A decider that learns while it plays: it gets the results of each step before it decides on the next."""

    def learn(
        self,
        indices: Indices,
        observations: Rows,
        rewards: npt.NDArray[np.float64],
        terminated: npt.NDArray[np.bool_],
        /,
    ) -> None:
        """Observe the results of the last decision in each of the episodes `indices`, which had not ended before it.

        Args:
            indices: the episodes, as in `Decider.decide`.
            observations: the observations after the step, in the form of `Decider.decide`.
            rewards: shape (k,).
            terminated: whether the environment ended the episode, shape (k,); false if a time limit did,
                because later rewards would still count.
        """
        ...


# Ranges of the numeric random actions in successive episodes, as shares of the full range.
STRENGTHS = (1.0, 1.0, 0.3, 0.1)


class Actor(Protocol):
    """A source of actions: a policy, a random generator or a language model.

    Other processes may play with pickled copies of an independent actor.
    """

    @property
    def independent(self) -> bool:
        """Whether each episode is independent of the others that the actor plays."""
        ...

    def begin(self, episodes: int, /) -> Decider:
        """Return a decider for new episodes."""
        ...


class RandomActor:
    """An actor that draws uniformly distributed actions, for the episodes before the first policy."""

    independent = False  # the generator's state depends on earlier episodes

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._rng = np.random.default_rng(seed)

    def begin(self, episodes: int, /) -> RandomActor:
        """Return itself: it has no memory per episode."""
        return self

    def decide(self, observations: Rows, indices: Indices, /) -> npt.NDArray[Any]:
        """Draw a random action for each of the episodes `indices`."""
        n = len(indices)
        columns = [
            self._rng.integers(len(a.labels), size=n) if a.is_choice else self._rng.uniform(a.low, a.high, size=n)
            for a in self._task.actuators
        ]
        if self._task.action_space == "discrete":
            return columns[0]
        stacked = np.stack(columns, axis=1)
        return self._task.limits.to_actions(stacked) if self._task.has_numbers else stacked


class HeldRandomActor(RandomActor):
    """An actor that repeats each random action for a few steps, to move a slow system; it plays one episode at a time.

    Each episode draws its own mean number of steps per action: at least 1, at most 20 or a 25th of the step limit,
    whichever is larger. Successive episodes shrink the range of numeric actions around its middle by the factors
    `STRENGTHS`, in turn, because strong actions may end an episode before it shows the states that matter.
    """

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        self._longest = max(20.0, task.max_steps / 25)
        self._episodes = 0
        self._numbers = np.array([not actuator.is_choice for actuator in task.actuators])
        self._middle = np.array([0.0 if a.is_choice else (a.low + a.high) / 2 for a in task.actuators])

    def begin(self, episodes: int, /) -> HeldRandomActor:
        """Draw the mean number of steps per action for the next episode."""
        self._change = 1 / float(np.exp(self._rng.uniform(0, np.log(self._longest))))
        self._held: npt.NDArray[Any] | None = None
        self._strength = STRENGTHS[self._episodes % len(STRENGTHS)]
        self._episodes += 1
        return self

    def decide(self, observations: Rows, indices: Indices, /) -> npt.NDArray[Any]:
        """Return the previous action or, with a fixed probability, a new one."""
        if self._held is None or self._rng.random() < self._change:
            actions = super().decide(observations, indices)
            if self._strength < 1 and self._numbers.any():
                weak = self._middle + self._strength * (actions - self._middle)
                actions = np.where(self._numbers, weak, actions).astype(actions.dtype)
            self._held = actions
        return self._held
