"""Play many episodes at once, one seed each, every episode to its end.

An episode's start depends only on its seed, so policies played on the same seeds get the same starts (common random
numbers). No episode is cut when another one ends, so lengths are unbiased."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from types import TracebackType
from typing import Any, Self

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Actor, Learning, Trajectory, Witness
from policygen.episodes.vector import has_vector_form, play_many_vectorised, play_vectorised
from policygen.errors import EnvironmentFault
from policygen.tasks.actions import builder
from policygen.tasks.environments import became_unstable, make_env, origin
from policygen.tasks.faults import STEP_TIMEOUT, OwnDirectory, Watchdog, close, fault, flag_of, misshapen, number_of
from policygen.tasks.spaces import flatten, layout_of
from policygen.tasks.task import Task

COPIES = 32  # environments stepped side by side in one process; more are no faster
# Names of reward terms in `info`.
_TERM = re.compile(r"reward_\w+$|\w+_(?:penalty|cost)$")


class Closable(ABC):
    """A context manager that closes its environments."""

    @abstractmethod
    def close(self) -> None:
        """Close the environments."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Simulator(Closable):
    """Plays episodes of one task and keeps its environments for reuse; close it, or use it with `with`.

    Args:
        step_timeout: limit on one step in seconds, see `Watchdog`.
        expendable: whether the process may be ended for a step that cannot be interrupted.
        vectorise: whether a vectorised form of the environment may play; it also asks for actions of ended episodes.
    """

    def __init__(
        self, task: Task, step_timeout: float = STEP_TIMEOUT, *, expendable: bool = False, vectorise: bool = True
    ) -> None:
        self.task = task
        self._limits = (step_timeout, expendable)
        self._place = OwnDirectory()
        with self._place:
            self._envs = [make_env(task)]
        self._vectorised = vectorise and task.given is None and has_vector_form(self._envs[0])
        self._copies = 1 if task.given is not None and task.given.alone else COPIES

    @property
    def engine(self) -> str:
        """The engine: `vector` (one vectorised environment) or `copies` (many stepped side by side)."""
        return "vector" if self._vectorised else "copies"

    @property
    def origin(self) -> str:
        """The environment behind the task's id in this process."""
        return origin(self._first())

    def play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """Play one episode per seed, in the order of the seeds.

        Raises:
            EnvironmentFault: the environment itself failed; the next episodes are played in new ones.
        """
        with self._renewed_after_faults():
            if self._vectorised:
                return play_vectorised(self.task, self._first(), actor, seeds)
            return self._play_copies(actor, seeds)

    def play_many(self, actors: Sequence[Actor], seeds: Sequence[int]) -> list[list[Trajectory]]:
        """Play each portable actor on the same seeds.

        Raises:
            EnvironmentFault: the environment itself failed; the next episodes are played in new ones.
        """
        with self._renewed_after_faults():
            if self._vectorised:
                return play_many_vectorised(self.task, self._first(), actors, seeds)
            return [self._play_copies(actor, seeds) for actor in actors]

    @contextmanager
    def _renewed_after_faults(self) -> Iterator[None]:
        with self._place:
            env = self._first()
        try:
            with self._place:
                yield
        except BaseException as error:
            self.close()
            if isinstance(error, AssertionError | gym.error.Error):  # from vectorised dynamics
                raise fault(error, env, self.task.gym_id, "step") from error
            raise

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            close(env, self._limits[0])
        self._envs.clear()

    def _first(self) -> gym.Env[Any, Any]:
        """Return an environment for inspection."""
        if not self._envs:
            self._envs.append(make_env(self.task))
        return self._envs[0]

    def _play_copies(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        build = builder(self.task.action_layout)
        layout, width = layout_of(self._first().observation_space), (self.task.width,)
        while len(self._envs) < min(len(seeds), self._copies):
            self._envs.append(make_env(self.task))
        waiting = list(enumerate(seeds))[::-1]
        results: list[Trajectory | None] = [None] * len(seeds)
        running: list[_Episode] = []
        deciding = False

        def progress() -> object:
            # The time of the actor does not count.
            return object() if deciding else (len(waiting), sum(len(episode.rewards) for episode in running))

        with Watchdog(self._limits[0], progress, self._first(), expendable=self._limits[1]):
            running += [self._begun(i, *waiting.pop()) for i in range(min(len(seeds), self._copies))]
            decider = actor.begin(len(seeds))
            witness = decider if isinstance(decider, Witness) else None
            learning = decider if isinstance(decider, Learning) else None
            rows = np.arange(len(running))
            while running:
                deciding = True
                actions = decider.decide([episode.observations[-1] for episode in running], rows)
                deciding = finished = False
                fallen: list[bool] = []
                for episode, action in zip(running, actions, strict=True):
                    try:
                        observation, reward, terminated, truncated, info = episode.env.step(
                            action if build is None else build(action)
                        )
                        row = flatten(layout, observation)
                        if row.shape != width:
                            raise misshapen(row, width[0])
                        episode.observations.append(row.copy())
                        episode.actions.append(action)
                        episode.rewards.append(number_of(reward))
                        episode.note_terms(info)
                        terminated, truncated = flag_of(terminated, "terminated"), flag_of(truncated, "truncated")
                        fallen.append(terminated)
                        if terminated or truncated:
                            finished = True
                            results[episode.index] = episode.trajectory(terminated, truncated)
                    except BaseException as error:
                        raise fault(error, episode.env, self.task.gym_id, "step") from error
                    if witness is not None:
                        witness.happened(episode.index, episode.rewards[-1], results[episode.index])
                if learning is not None:
                    after, paid = zip(
                        *((episode.observations[-1], episode.rewards[-1]) for episode in running), strict=True
                    )
                    learning.learn(rows, after, np.array(paid, np.float64), np.array(fallen))
                if finished:
                    still = []
                    for episode in running:
                        if results[episode.index] is None:
                            still.append(episode)
                        elif waiting:
                            still.append(self._begun(self._envs.index(episode.env), *waiting.pop()))
                    running = still
                    rows = np.array([episode.index for episode in running], np.intp)
        return [trajectory for trajectory in results if trajectory is not None]

    def _begun(self, copy: int, index: int, seed: int) -> _Episode:
        """Begin episode `index` in copy `copy`."""
        env = self._ready(copy)
        try:
            observation, _ = env.reset(seed=int(seed))
            row = flatten(layout_of(env.observation_space), observation)
            if row.shape != (self.task.width,):
                raise misshapen(row, self.task.width)
        except BaseException as error:
            raise fault(error, env, self.task.gym_id, "reset") from error
        return _Episode(env, index, int(seed), [row.copy()])

    def _ready(self, copy: int) -> gym.Env[Any, Any]:
        """Return copy `copy`, ready for another episode.

        A reused Box2D world computes differently from a new one (Gymnasium issue 728): an episode would depend on those
        before it, so such copies are made anew.
        """
        alone = self.task.given is not None and self.task.given.alone
        if hasattr(self._envs[copy].unwrapped, "world") and not alone:
            close(self._envs[copy], self._limits[0])
            self._envs[copy] = make_env(self.task)
        return self._envs[copy]


@dataclass(slots=True)
class _Episode:
    """An episode in progress."""

    env: gym.Env[Any, Any]
    index: int
    seed: int
    observations: list[npt.NDArray[Any]]
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terms: dict[str, float] | None = None

    def note_terms(self, info: Mapping[str, Any]) -> None:
        """Add up the reward's terms; the first step determines their names."""
        if self.terms is None:
            if not isinstance(info, Mapping):
                raise EnvironmentFault(f"its `info` is of type {type(info).__name__}, not a dictionary")
            self.terms = {name: 0.0 for name, value in info.items() if _TERM.match(name) and isinstance(value, Real)}
        for name in self.terms:
            value = info.get(name)
            if isinstance(value, Real):
                self.terms[name] += float(value)

    def trajectory(self, terminated: bool, truncated: bool) -> Trajectory:
        """Return the whole episode.

        Raises:
            EnvironmentFault: a number is not finite, or beyond single precision.
        """
        actions = np.asarray(self.actions)
        with np.errstate(over="ignore"):
            observations = np.asarray(self.observations, np.float32)
            rewards = np.asarray(self.rewards, np.float32)
        if not (np.isfinite(rewards).all() and np.isfinite(observations).all()):
            raise EnvironmentFault(_unfinite(self.observations, self.rewards))
        return Trajectory(
            observations,
            actions.astype(np.int16 if np.issubdtype(actions.dtype, np.integer) else np.float32),
            rewards,
            float(np.sum(self.rewards)),
            self.seed,
            terminated,
            truncated,
            tuple(
                (name.removeprefix("reward_"), value)
                for name, value in (self.terms or {}).items()
                if math.isfinite(value)
            ),
            became_unstable(self.env),
        )


def _unfinite(observations: Sequence[npt.NDArray[Any]], rewards: Sequence[float]) -> str:
    """Describe the first number of an episode that is not finite in single precision."""
    most = float(np.finfo(np.float32).max)
    for step, reward in enumerate(rewards, start=1):
        if not abs(reward) <= most:
            return f"the reward of step {step} is {reward:g}"
    for step, row in enumerate(observations):
        for value in np.asarray(row, np.float64):
            if not abs(value) <= most:
                return f"the observation after {step} steps holds {value:g}"
    return "a number is not finite"
