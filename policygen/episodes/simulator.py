"""Play many episodes at once, one seed each, every episode to its end.

An episode's start depends only on its seed, so policies played on the same seeds get the same starts (common random
numbers). No episode is cut when another one ends, so lengths are unbiased.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
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
from policygen.tasks.spaces import Layout, TextPart, flatten, layout_of
from policygen.tasks.task import Task

COPIES = 32  # environments that one process steps in turn; more are no faster
# Names of reward terms in `info`.
_TERM = re.compile(r"reward_\w+$|\w+_(?:penalty|cost)$")


class Simulator(AbstractContextManager["Simulator"]):
    """Plays episodes of one task and keeps its environments for reuse; close it, or use it with `with`.

    Args:
        step_timeout: limit on one step in seconds, see `Watchdog`.
        expendable: whether the process may be ended if a step cannot be interrupted, see `Watchdog`.
        vectorise: whether a vectorised form may play; it asks the actor for actions in ended episodes, too.
    """

    def __init__(
        self, task: Task, step_timeout: float = STEP_TIMEOUT, *, expendable: bool = False, vectorise: bool = True
    ) -> None:
        self.task = task
        self._step_timeout, self._expendable = step_timeout, expendable
        self._working_directory = OwnDirectory()
        with self._working_directory:
            self._envs = [make_env(task)]
        needs_single_steps = task.given is not None or info_names(task.requirements)
        self._vectorised = vectorise and not needs_single_steps and has_vector_form(self._envs[0])
        self._copies = 1 if task.given is not None and task.given.is_single_env else COPIES

    @property
    def engine(self) -> str:
        """The engine: `vector` (one vectorised environment) or `copies` (many environments stepped one by one)."""
        return "vector" if self._vectorised else "copies"

    @property
    def batch_size(self) -> int:
        """The largest number of episodes in one batch of the engine `vector`; 0 for `copies`."""
        return VECTOR_COPIES if self._vectorised else 0

    @property
    def origin(self) -> str:
        """A text that identifies the environment of the task in this process, see `environments.origin`."""
        return origin(self._first())

    def play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """Play one episode per seed, in the order of the seeds.

        Raises:
            EnvironmentFault: the environment failed; the next call makes new environments.
        """
        with self._working_directory:
            env = self._first()
            try:
                if self._vectorised:
                    return play_vectorised(self.task, env, actor, seeds)
                return self._play_copies(actor, seeds)
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
            close(env, self._step_timeout)
        self._envs.clear()

    def _first(self) -> gym.Env[Any, Any]:
        if not self._envs:
            self._envs.append(make_env(self.task))
        return self._envs[0]

    def _play_copies(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        to_env_action = builder(self.task.action_layout)
        while len(self._envs) < min(len(seeds), self._copies):
            self._envs.append(make_env(self.task))
        waiting = list(enumerate(seeds))[::-1]
        results: list[Trajectory | None] = [None] * len(seeds)
        running: list[RunningEpisode] = []
        deciding = False

        def progress() -> object:
            # There is no limit while the actor decides. A new object differs from all earlier values, so the watchdog
            # sees progress.
            return object() if deciding else (len(waiting), sum(len(episode.rewards) for episode in running))

        with Watchdog(self._step_timeout, progress, self._first(), expendable=self._expendable):
            for position in range(min(len(seeds), self._copies)):
                env = self._env_for_next_episode(position)
                running.append(RunningEpisode.start(env, self.task, *waiting.pop()))
            decider = actor.begin(len(seeds))
            observer = decider if isinstance(decider, StepObserver) else None
            learning = decider if isinstance(decider, LearningDecider) else None
            indices = np.arange(len(running))
            while running:
                deciding = True
                actions = decider.decide([episode.observations[-1] for episode in running], indices)
                deciding = finished = False
                for episode, action in zip(running, actions, strict=True):
                    ended = episode.step(action, action if to_env_action is None else to_env_action(action))
                    if ended is not None:
                        finished = True
                        results[episode.index] = ended
                    if observer is not None:
                        observer.observe_step(episode.index, episode.rewards[-1], results[episode.index])
                if learning is not None:
                    after = [episode.observations[-1] for episode in running]
                    rewards = np.array([episode.rewards[-1] for episode in running], np.float64)
                    learning.learn(indices, after, rewards, np.array([episode.terminated for episode in running]))
                if finished:
                    for i, episode in enumerate(running):
                        if waiting and results[episode.index] is not None:
                            env = self._env_for_next_episode(self._envs.index(episode.env))
                            running[i] = RunningEpisode.start(env, self.task, *waiting.pop())
                    running = [episode for episode in running if results[episode.index] is None]
                    indices = np.array([episode.index for episode in running], np.intp)
        return [trajectory for trajectory in results if trajectory is not None]

    def _env_for_next_episode(self, position: int) -> gym.Env[Any, Any]:
        if self.task.given is None or not self.task.given.is_single_env:
            self._envs[position] = renewed(self._envs[position], self.task, self._step_timeout)
        return self._envs[position]


def renewed(env: gym.Env[Any, Any], task: Task, step_timeout: float = STEP_TIMEOUT) -> gym.Env[Any, Any]:
    """Return an environment for the next episode: a new one if `env` has a Box2D world, else `env`.

    A reused world computes differently from a new one (Gymnasium issue 728), so episodes would depend on earlier ones.
    """
    if not hasattr(env.unwrapped, "world"):
        return env
    close(env, step_timeout)
    return make_env(task)


@dataclass(slots=True)
class RunningEpisode:
    """An episode in progress.

    Attributes:
        index: position of the episode in the list of seeds.
        env_observation: the last observation, in the environment's own form; `observations` are flattened rows.
        terminated: whether the environment ended the episode at the last step.
        terms: the sums of the reward terms so far, by their names in `info`; None before the first step.
        info: the values in `info` that requirements read, after the reset and after each step; NaN where missing.
    """

    env: gym.Env[Any, Any]
    task: Task
    index: int
    seed: int
    layout: Layout | TextPart | None
    env_observation: Any = None
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
            EnvironmentFault: the reset fails.
        """
        episode = cls(env, task, index, int(seed), layout_of(env.observation_space))
        try:
            episode.env_observation, info = env.reset(seed=episode.seed)
            episode.info = {name: [] for name in info_names(task.requirements)}
            episode._record_observation()
            episode._record_info(info)
        except BaseException as error:
            raise fault(error, env, task.gym_id, "reset") from error
        return episode

    def step(self, action: Any, env_action: Any) -> Trajectory | None:
        """Take a step; return the whole episode if it ends, else None.

        Args:
            action: as a `Trajectory` stores it.
            env_action: the same action in the environment's own form.

        Raises:
            EnvironmentFault: the environment fails, or a number is not finite or beyond single precision.
        """
        try:
            self.env_observation, reward, terminated, truncated, info = self.env.step(env_action)
            self._record_observation()
            self.actions.append(action)
            self.rewards.append(number_of(reward))
            self._add_terms(info)
            self._record_info(info)
            self.terminated, truncated = flag_of(terminated, "terminated"), flag_of(truncated, "truncated")
            return self._trajectory(truncated) if self.terminated or truncated else None
        except BaseException as error:
            raise fault(error, self.env, self.task.gym_id, "step") from error

    def _record_observation(self) -> None:
        row = flatten(self.layout, self.env_observation)
        if row.shape != (self.task.width,):
            raise wrong_length(row, self.task.width)
        # The actor sees the rounded numbers that the trajectory keeps: with others, a policy with memory could decide
        # differently later.
        with np.errstate(over="ignore"):
            self.observations.append(row.astype(np.float32))

    def _add_terms(self, info: Mapping[str, Any]) -> None:
        """Add the reward terms of a step to `terms`; the first step determines their names."""
        if self.terms is None:
            if not isinstance(info, Mapping):
                raise EnvironmentFault(f"its `info` is of type {type(info).__name__}, not a dictionary")
            self.terms = {name: 0.0 for name, value in info.items() if _TERM.match(name) and isinstance(value, Real)}
        for name in self.terms:
            value = info.get(name)
            if isinstance(value, Real):
                self.terms[name] += float(value)

    def _record_info(self, info: Mapping[str, Any]) -> None:
        for name, values in self.info.items():
            value = info.get(name) if isinstance(info, Mapping) else None
            values.append(float(value) if isinstance(value, Real | np.bool_) else math.nan)

    def _trajectory(self, truncated: bool) -> Trajectory:
        actions = np.asarray(self.actions)
        observations = np.asarray(self.observations)
        with np.errstate(over="ignore"):
            rewards = np.asarray(self.rewards, np.float32)
        if not np.isfinite(rewards).all():
            step = int(np.isfinite(rewards).argmin())
            raise EnvironmentFault(f"the reward of step {step + 1} is {self.rewards[step]:g}")
        if not np.isfinite(observations).all():
            step, column = np.argwhere(~np.isfinite(observations))[0]
            value = observations[step, column]
            raise EnvironmentFault(f"the observation after {step} steps holds {value:g} in single precision")
        return Trajectory(
            observations=observations,
            actions=actions.astype(np.int16 if np.issubdtype(actions.dtype, np.integer) else np.float32),
            rewards=rewards,
            episode_return=float(np.sum(self.rewards)),
            seed=self.seed,
            terminated=self.terminated,
            truncated=truncated,
            terms=tuple(
                (name.removeprefix("reward_"), v) for name, v in (self.terms or {}).items() if math.isfinite(v)
            ),
            unstable=became_unstable(self.env),
            info=tuple((name, np.array(values)) for name, values in self.info.items()),
        )
