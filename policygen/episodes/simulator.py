"""Episodes: many at once, one seed each, every episode played to its end.

An episode's start depends on its seed alone, so two policies played on the same seeds meet the same starts (common
random numbers). Nothing is cut short when another episode ends first, so no length is preferred."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from types import TracebackType
from typing import Any, Self

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Actor, Trajectory
from policygen.episodes.vector import has_vector_form, play_many_vectorised, play_vectorised
from policygen.errors import TaskError
from policygen.tasks.environments import make_env, origin
from policygen.tasks.spaces import flatten, layout_of
from policygen.tasks.task import Task

COPIES = 32  # environments stepped side by side in one process; more share the policy's overhead no better
# How the terms of a reward are called in `info`.
_TERM = re.compile(r"reward_\w+$|\w+_(?:penalty|cost)$")


class Closable(ABC):
    """What holds environments, and closes them at the end of a `with`."""

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
    """Plays episodes of one task and keeps its environments for the next time; close it, or use it with `with`."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._envs = [make_env(task)]
        self._vectorised = has_vector_form(self._envs[0])

    @property
    def engine(self) -> str:
        """What plays the episodes: `vector` (one vectorised environment) or `copies` (many stepped side by side)."""
        return "vector" if self._vectorised else "copies"

    @property
    def origin(self) -> str:
        """What the task's id stands for in this process."""
        return origin(self._envs[0])

    def play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """One episode per seed, in the order of the seeds.

        Raises:
            TaskError: the environment itself failed.
        """
        with self._failing_in_a_sentence():
            if self._vectorised:
                return play_vectorised(self.task, self._envs[0], actor, seeds)
            return self._play_copies(actor, seeds)

    def play_many(self, actors: Sequence[Actor], seeds: Sequence[int]) -> list[list[Trajectory]]:
        """Each of some portable actors on the same seeds.

        Raises:
            TaskError: the environment itself failed.
        """
        with self._failing_in_a_sentence():
            if self._vectorised:
                return play_many_vectorised(self.task, self._envs[0], actors, seeds)
            return [self._play_copies(actor, seeds) for actor in actors]

    @contextmanager
    def _failing_in_a_sentence(self) -> Iterator[None]:
        try:
            yield
        except (AssertionError, gym.error.Error) as error:
            raise TaskError(f"{self.task.gym_id} failed while playing: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
        self._envs.clear()

    def _play_copies(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        while len(self._envs) < min(len(seeds), COPIES):
            self._envs.append(make_env(self.task))
        layout = layout_of(self._envs[0].observation_space)
        waiting = list(enumerate(seeds))[::-1]
        results: list[Trajectory | None] = [None] * len(seeds)
        running = [_Episode(self._ready(i), *waiting.pop()) for i in range(min(len(seeds), COPIES))]
        decider = actor.begin(len(seeds))
        rows = np.arange(len(running))
        while running:
            actions = decider.decide([episode.observations[-1] for episode in running], rows)
            finished = False
            for episode, action in zip(running, actions, strict=True):
                observation, reward, terminated, truncated, info = episode.env.step(action)
                episode.observations.append(flatten(layout, observation).copy())
                episode.actions.append(action)
                episode.rewards.append(float(reward))
                episode.note_terms(info)
                if terminated or truncated:
                    finished = True
                    results[episode.index] = episode.trajectory(bool(terminated), bool(truncated))
            if finished:
                still = []
                for episode in running:
                    if results[episode.index] is None:
                        still.append(episode)
                    elif waiting:
                        still.append(_Episode(self._ready(self._envs.index(episode.env)), *waiting.pop()))
                running = still
                rows = np.array([episode.index for episode in running], np.intp)
        return [trajectory for trajectory in results if trajectory is not None]

    def _ready(self, copy: int) -> gym.Env[Any, Any]:
        """Copy number `copy` for another episode: as good as new.

        A Box2D world that is emptied and filled again computes otherwise than a new one (Gymnasium issue 728), so that
        an episode would depend on those before it.
        """
        if hasattr(self._envs[copy].unwrapped, "world"):
            self._envs[copy].close()
            self._envs[copy] = make_env(self.task)
        return self._envs[copy]


@dataclass(slots=True)
class _Episode:
    """One episode under way."""

    env: gym.Env[Any, Any]
    index: int
    seed: int
    observations: list[npt.NDArray[Any]]
    actions: list[Any]
    rewards: list[float]
    terms: dict[str, float] | None

    def __init__(self, env: gym.Env[Any, Any], index: int, seed: int) -> None:
        self.env, self.index, self.seed = env, index, int(seed)
        observation, _ = env.reset(seed=int(seed))
        self.observations = [flatten(layout_of(env.observation_space), observation).copy()]
        self.actions, self.rewards, self.terms = [], [], None

    def note_terms(self, info: Mapping[str, Any]) -> None:
        """Add up the reward's terms; which there are is read off the first step."""
        if self.terms is None:
            self.terms = {name: 0.0 for name, value in info.items() if _TERM.match(name) and isinstance(value, Real)}
        for name in self.terms:
            value = info.get(name)
            if isinstance(value, Real):
                self.terms[name] += float(value)

    def trajectory(self, terminated: bool, truncated: bool) -> Trajectory:
        actions = np.asarray(self.actions)
        return Trajectory(
            np.asarray(self.observations, np.float32),
            actions.astype(np.int16 if np.issubdtype(actions.dtype, np.integer) else np.float32),
            np.asarray(self.rewards, np.float32),
            float(np.sum(self.rewards)),
            self.seed,
            terminated,
            truncated,
            tuple((name.removeprefix("reward_"), value) for name, value in (self.terms or {}).items()),
        )
