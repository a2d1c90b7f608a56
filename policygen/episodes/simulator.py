"""Episodes: many at once, one seed each, every episode played to its end.

An episode's start depends on its seed alone, so two policies played on the same seeds meet the same starts (common
random numbers). Nothing is cut short when another episode ends first, so no length is preferred."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from types import TracebackType
from typing import Any, Self

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Actor, Trajectory
from policygen.errors import TaskError
from policygen.policies.policy import Policy
from policygen.tasks.environments import make_env
from policygen.tasks.spaces import flatten, layout_of
from policygen.tasks.task import Task

COPIES = 32  # environments stepped side by side in one process; more share the policy's overhead no better
VECTOR_COPIES = 1_024  # episodes of a vectorised environment at a time
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
        self._vectorised = _has_vector_form(self._envs[0])

    @property
    def engine(self) -> str:
        """What plays the episodes: `vector` (one vectorised environment) or `copies` (many stepped side by side)."""
        return "vector" if self._vectorised else "copies"

    def play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """One episode per seed, in the order of the seeds.

        Raises:
            TaskError: the environment itself failed.
        """
        try:
            if self._vectorised:
                return [t for chunk in chunks(seeds, VECTOR_COPIES) for t in self._play_vectorised(actor, chunk)]
            return self._play_copies(actor, seeds)
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
        while running:
            latest = [episode.observations[-1] for episode in running]
            # Row by row costs less than a batch up to some tens of rows, and never depends on how many there are.
            actions = list(map(actor.act_one, latest)) if isinstance(actor, Policy) else actor.act(np.stack(latest))
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

    def _play_vectorised(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """Gymnasium's own vectorised dynamics, started from the states that the seeds give a single environment.

        Episodes that have ended are dropped whenever half of the copies are idle, so they cost next to nothing.
        """
        single = self._envs[0].unwrapped
        state = np.empty((len(self.task.observations), len(seeds)))
        for i, seed in enumerate(seeds):
            single.reset(seed=int(seed))
            state[:, i] = single.state  # type: ignore[attr-defined]
        limit = self.task.max_steps
        observations = np.empty((limit + 1, len(seeds), len(state)), np.float32)
        actions = np.empty((limit, len(seeds)), np.int16)
        rewards = np.empty((limit, len(seeds)), np.float32)
        lengths = np.zeros(len(seeds), np.int64)
        terminated = np.zeros(len(seeds), np.bool_)
        envs = _vector_env(self.task, state)
        observations[0] = state.T
        live = np.arange(len(seeds))
        # Where the live copies' rows are: a slice is several times faster than a list of numbers.
        rows: slice | npt.NDArray[np.intp] = slice(None)
        done = np.zeros(len(seeds), np.bool_)  # of the live copies
        running = len(seeds)
        step = 0
        while running:
            if running * 2 <= len(live):
                rows = live = live[~done]
                envs, done = _vector_env(self.task, envs.state[:, ~done]), np.zeros(running, np.bool_)
            chosen = np.asarray(actor.act(observations[step, rows]))
            observations[step + 1, rows], rewards[step, rows], ended, _, _ = envs.step(chosen)
            actions[step, rows] = chosen
            step += 1
            if step < limit and not ended.any():
                continue
            ended = (ended | (step >= limit)) & ~done
            lengths[live[ended]] = step
            # The state, not the flag of the call: a copy that is cut and falls on the same step has fallen.
            terminated[live[ended]] = _fallen(envs, ended)
            done |= ended
            running = int(np.count_nonzero(~done))
        envs.close()
        return [
            Trajectory(
                observations[: n + 1, i].copy(),
                actions[:n, i].copy(),
                rewards[:n, i].copy(),
                float(rewards[:n, i].sum(dtype=np.float64)),
                int(seed),
                bool(terminated[i]),
                bool(n == limit),
            )
            for i, (seed, n) in enumerate(zip(seeds, lengths.tolist(), strict=True))
        ]


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


def chunks(seeds: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """The seeds, at most `size` at a time."""
    for start in range(0, len(seeds), size):
        yield seeds[start : start + size]


def _has_vector_form(env: gym.Env[Any, Any]) -> bool:
    """Whether Gymnasium has numpy dynamics for it whose state can be set (CartPole so far)."""
    entry = getattr(env.spec, "vector_entry_point", None) if env.spec else None
    return isinstance(entry, str) and entry.endswith(":CartPoleVectorEnv")


def _vector_env(task: Task, state: npt.NDArray[np.float64]) -> Any:
    # Its own time limit is one step beyond ours, so that cutting and falling on one step can be told apart.
    envs = gym.make_vec(
        task.gym_id,
        num_envs=state.shape[1],
        vectorization_mode="vector_entry_point",
        max_episode_steps=task.max_steps + 1,
        **dict(task.kwargs),
    ).unwrapped
    envs.reset(seed=0)
    envs.state = state.copy()  # type: ignore[attr-defined]
    return envs


def _fallen(envs: Any, which: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    x, _, angle, _ = envs.state[:, which]
    fallen: npt.NDArray[np.bool_] = (np.abs(x) > envs.x_threshold) | (np.abs(angle) > envs.theta_threshold_radians)
    return fallen
