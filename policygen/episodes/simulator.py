"""Play many episodes at once, one seed each, every episode to its end.

An episode's start depends only on its seed, so policies played on the same seeds get the same starts (common random
numbers). No episode is cut when another one ends, so lengths are unbiased."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Actor, LearningDecider, StepObserver, Trajectory
from policygen.episodes.vector import VECTOR_COPIES, has_vector_form, play_vectorised
from policygen.errors import EnvironmentFault
from policygen.tasks.actions import builder
from policygen.tasks.environments import became_unstable, make_env, origin
from policygen.tasks.faults import STEP_TIMEOUT, OwnDirectory, Watchdog, close, fault, flag_of, number_of, wrong_length
from policygen.tasks.requirements import info_names
from policygen.tasks.spaces import Layout, Words, flatten, layout_of
from policygen.tasks.task import Task

COPIES = 32  # environments stepped side by side in one process; more are no faster
# Names of reward terms in `info`.
_TERM = re.compile(r"reward_\w+$|\w+_(?:penalty|cost)$")


class Simulator(AbstractContextManager["Simulator"]):
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
        alone = task.given is not None or info_names(task.requirements)
        self._vectorised = vectorise and not alone and has_vector_form(self._envs[0])
        self._copies = 1 if task.given is not None and task.given.alone else COPIES

    @property
    def engine(self) -> str:
        """The engine: `vector` (one vectorised environment) or `copies` (many stepped side by side)."""
        return "vector" if self._vectorised else "copies"

    @property
    def batch_size(self) -> int:
        """The most episodes that one batch plays; 0 if environments are stepped one by one."""
        return VECTOR_COPIES if self._vectorised else 0

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

    @contextmanager
    def _renewed_after_faults(self) -> Iterator[None]:
        with self._place:
            env = self._first()
        try:
            with self._place:
                yield
        except BaseException as error:
            self.close()
            if isinstance(error, gym.error.Error):  # from vectorised dynamics
                raise fault(error, env, self.task.gym_id, "step") from error
            raise

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            close(env, self._limits[0])
        self._envs.clear()

    def _first(self) -> gym.Env[Any, Any]:
        if not self._envs:
            self._envs.append(make_env(self.task))
        return self._envs[0]

    def _play_copies(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        build = builder(self.task.action_layout)
        while len(self._envs) < min(len(seeds), self._copies):
            self._envs.append(make_env(self.task))
        waiting = list(enumerate(seeds))[::-1]
        results: list[Trajectory | None] = [None] * len(seeds)
        running: list[RunningEpisode] = []
        deciding = False

        def progress() -> object:
            # The time of the actor does not count.
            return object() if deciding else (len(waiting), sum(len(episode.rewards) for episode in running))

        with Watchdog(self._limits[0], progress, self._first(), expendable=self._limits[1]):
            copies = range(min(len(seeds), self._copies))
            running += [RunningEpisode.start(self._ready(copy), self.task, *waiting.pop()) for copy in copies]
            decider = actor.begin(len(seeds))
            observer = decider if isinstance(decider, StepObserver) else None
            learning = decider if isinstance(decider, LearningDecider) else None
            rows = np.arange(len(running))
            while running:
                deciding = True
                actions = decider.decide([episode.observations[-1] for episode in running], rows)
                deciding = finished = False
                terminated: list[bool] = []
                for episode, action in zip(running, actions, strict=True):
                    ended = episode.step(action, action if build is None else build(action))
                    terminated.append(episode.terminated)
                    if ended is not None:
                        finished = True
                        results[episode.index] = ended
                    if observer is not None:
                        observer.observe_step(episode.index, episode.rewards[-1], results[episode.index])
                if learning is not None:
                    after, paid = zip(
                        *((episode.observations[-1], episode.rewards[-1]) for episode in running), strict=True
                    )
                    learning.learn(rows, after, np.array(paid, np.float64), np.array(terminated))
                if finished:
                    continuing = []
                    for episode in running:
                        if results[episode.index] is None:
                            continuing.append(episode)
                        elif waiting:
                            env = self._ready(self._envs.index(episode.env))
                            continuing.append(RunningEpisode.start(env, self.task, *waiting.pop()))
                    running = continuing
                    rows = np.array([episode.index for episode in running], np.intp)
        return [trajectory for trajectory in results if trajectory is not None]

    def _ready(self, copy: int) -> gym.Env[Any, Any]:
        if self.task.given is None or not self.task.given.alone:
            self._envs[copy] = renewed(self._envs[copy], self.task, self._limits[0])
        return self._envs[copy]


def renewed(env: gym.Env[Any, Any], task: Task, step_timeout: float = STEP_TIMEOUT) -> gym.Env[Any, Any]:
    """Return an environment for another episode: a new one if it has a Box2D world, else itself.

    A reused world computes differently from a new one (Gymnasium issue 728): an episode would depend on earlier ones.
    """
    if not hasattr(env.unwrapped, "world"):
        return env
    close(env, step_timeout)
    return make_env(task)


@dataclass(slots=True)
class RunningEpisode:
    """An episode in progress.

    Attributes:
        seen: the last observation, in the environment's own form.
        terminated: whether the environment ended it at the last step.
    """

    env: gym.Env[Any, Any]
    task: Task
    index: int
    seed: int
    layout: Layout | Words | None
    seen: Any = None
    terminated: bool = False
    observations: list[npt.NDArray[Any]] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terms: dict[str, float] | None = None
    info: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def start(cls, env: gym.Env[Any, Any], task: Task, index: int, seed: int) -> RunningEpisode:
        """Reset the environment with the seed.

        Raises:
            EnvironmentFault: it fails.
        """
        episode = cls(env, task, index, int(seed), layout_of(env.observation_space))
        try:
            episode.seen, info = env.reset(seed=episode.seed)
            episode.info = {name: [] for name in info_names(task.requirements)}
            episode._note_seen()
            episode._note_info(info)
        except BaseException as error:
            raise fault(error, env, task.gym_id, "reset") from error
        return episode

    def step(self, action: Any, own_form: Any) -> Trajectory | None:
        """Take a step, and return the whole episode if it ends.

        Args:
            action: as a `Trajectory` stores it.
            own_form: the same action as the environment takes it.

        Raises:
            EnvironmentFault: the environment fails, or a number is not finite or beyond single precision.
        """
        try:
            self.seen, reward, terminated, truncated, info = self.env.step(own_form)
            self._note_seen()
            self.actions.append(action)
            self.rewards.append(number_of(reward))
            self._note_terms(info)
            self._note_info(info)
            self.terminated, truncated = flag_of(terminated, "terminated"), flag_of(truncated, "truncated")
            return self._trajectory(truncated) if self.terminated or truncated else None
        except BaseException as error:
            raise fault(error, self.env, self.task.gym_id, "step") from error

    def _note_seen(self) -> None:
        row = flatten(self.layout, self.seen)
        if row.shape != (self.task.width,):
            raise wrong_length(row, self.task.width)
        self.observations.append(row.copy())

    def _note_terms(self, info: Mapping[str, Any]) -> None:
        """Add up the reward's terms; the first step determines their names."""
        if self.terms is None:
            if not isinstance(info, Mapping):
                raise EnvironmentFault(f"its `info` is of type {type(info).__name__}, not a dictionary")
            self.terms = {name: 0.0 for name, value in info.items() if _TERM.match(name) and isinstance(value, Real)}
        for name in self.terms:
            value = info.get(name)
            if isinstance(value, Real):
                self.terms[name] += float(value)

    def _note_info(self, info: Mapping[str, Any]) -> None:
        for name, values in self.info.items():
            value = info.get(name) if isinstance(info, Mapping) else None
            values.append(float(value) if isinstance(value, Real | np.bool_) else math.nan)

    def _trajectory(self, truncated: bool) -> Trajectory:
        actions = np.asarray(self.actions)
        with np.errstate(over="ignore"):
            observations = np.asarray(self.observations, np.float32)
            rewards = np.asarray(self.rewards, np.float32)
        if not (np.isfinite(rewards).all() and np.isfinite(observations).all()):
            raise EnvironmentFault(_not_finite(self.observations, self.rewards))
        return Trajectory(
            observations,
            actions.astype(np.int16 if np.issubdtype(actions.dtype, np.integer) else np.float32),
            rewards,
            float(np.sum(self.rewards)),
            self.seed,
            self.terminated,
            truncated,
            tuple(
                (name.removeprefix("reward_"), value)
                for name, value in (self.terms or {}).items()
                if math.isfinite(value)
            ),
            became_unstable(self.env),
            tuple((name, np.array(values)) for name, values in self.info.items()),
        )


def _not_finite(observations: Sequence[npt.NDArray[Any]], rewards: Sequence[float]) -> str:
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
