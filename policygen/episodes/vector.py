"""Play episodes of environments with vectorised numpy dynamics: classic control and policygen's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.episodes.batched import Copies, play_batch
from policygen.episodes.classic import ClassicCopies, has_classic_form
from policygen.episodes.trajectory import Actor, Trajectory, chunks
from policygen.tasks.task import Task

VECTOR_COPIES = 1_024  # simultaneous episodes


def has_vector_form(env: gym.Env[Any, Any]) -> bool:
    """Whether the environment has numpy dynamics that start like a single environment, from its state or its seed."""
    if has_classic_form(env):
        return True
    entry = getattr(env.spec, "vector_entry_point", None) if env.spec else None
    return isinstance(entry, str) and entry.endswith(":CartPoleVectorEnv")


def play_vectorised(task: Task, env: gym.Env[Any, Any], actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
    """Play one episode per seed, in the order of the seeds; `env` is a single environment of the task.

    Episodes start as a single environment starts from each seed.
    """
    parts = chunks(seeds, VECTOR_COPIES)
    return [episode for part in parts for episode in play_batch(task, actor, part, *_begun(task, env, part))]


def _begun(task: Task, env: gym.Env[Any, Any], seeds: Sequence[int]) -> tuple[Copies, npt.NDArray[Any]]:
    """Return copies at the start of an episode, and their first observations, shape (n, d)."""
    if has_classic_form(env):
        classic = ClassicCopies(env, seeds)
        return classic, classic.first
    single: Any = env.unwrapped
    states = []
    for seed in seeds:
        single.reset(seed=int(seed))
        states.append(np.asarray(single.state, np.float64))
    return CartPoles(task, np.stack(states, axis=1)), np.array(states, np.float32)


class CartPoles:
    """Gymnasium's own vectorised CartPole, in given states of shape (4, n)."""

    def __init__(self, task: Task, states: npt.NDArray[np.float64]) -> None:
        self._task = task
        self._put(states)

    def _put(self, states: npt.NDArray[np.float64]) -> None:
        # Their own time limit is one step beyond the task's, to distinguish truncation from termination in one step.
        envs: Any = gym.make_vec(
            self._task.gym_id,
            num_envs=states.shape[1],
            vectorization_mode="vector_entry_point",
            max_episode_steps=self._task.max_steps + 1,
            **dict(self._task.kwargs),
        ).unwrapped
        envs.reset(seed=0)
        envs.state = states.copy()
        self._envs = envs

    def step(self, actions: npt.NDArray[Any]) -> Sequence[Any]:
        """Step every copy."""
        stepped: Sequence[Any] = self._envs.step(actions)
        return stepped

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Keep only these copies."""
        self._put(self._envs.state[:, which])

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()
