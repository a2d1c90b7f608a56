"""Play episodes of environments with vectorised numpy dynamics: classic control and policygen's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from policygen.episodes.batched_actors import play_together
from policygen.episodes.classic import ClassicCopies, has_classic_form
from policygen.episodes.dynamics import DynamicsEnv, DynamicsVectorEnv
from policygen.episodes.trajectory import Actor, Learning, SideBySide, Trajectory, chunks
from policygen.tasks.task import Task

VECTOR_COPIES = 1_024  # simultaneous episodes


def has_vector_form(env: gym.Env[Any, Any]) -> bool:
    """Whether the environment has numpy dynamics that start like a single environment, from its state or its seed."""
    if has_classic_form(env):
        return True
    entry = getattr(env.spec, "vector_entry_point", None) if env.spec else None
    return isinstance(entry, str) and (entry.endswith(":CartPoleVectorEnv") or _takes_seeds(env))


def _takes_seeds(env: gym.Env[Any, Any]) -> bool:
    """Whether it is one of policygen's own: with a seed per copy, these play the episodes of single environments."""
    return isinstance(env.unwrapped, DynamicsEnv)


def play_vectorised(task: Task, env: gym.Env[Any, Any], actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
    """Play one episode per seed, in the order of the seeds; `env` is a single environment of the task."""
    return [trajectory for chunk in chunks(seeds, VECTOR_COPIES) for trajectory in _play(task, env, actor, chunk)]


def play_many_vectorised(
    task: Task, env: gym.Env[Any, Any], actors: Sequence[Actor], seeds: Sequence[int]
) -> list[list[Trajectory]]:
    """Play each actor on the same seeds, as many side by side as fit."""
    return play_together(partial(play_vectorised, task, env), actors, seeds, VECTOR_COPIES)


def _play(task: Task, env: gym.Env[Any, Any], actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
    """Play with the vectorised dynamics, started as a single environment starts from each seed.

    Ended episodes are dropped whenever half of the copies are idle, so they cost little.
    """
    n, limit = len(seeds), task.max_steps
    copies, first = _begun(task, env, seeds)
    observations = np.empty((limit + 1, *first.shape), np.float32)
    box = task.action_space == "box"
    actions = np.empty((limit, n, len(task.actuators)), np.float32) if box else np.empty((limit, n), np.int16)
    rewards = np.empty((limit, n))
    lengths = np.zeros(n, np.int64)
    terminated = np.zeros(n, np.bool_)
    observations[0] = first
    live = np.arange(n)
    # Rows of the live copies: a slice is several times faster than a list of indices.
    rows: slice | npt.NDArray[np.intp] = slice(None)
    done = np.zeros(n, np.bool_)  # of the live copies
    running = n
    step = 0
    decider = actor.begin(n)
    learning = decider if isinstance(decider, Learning) else None
    while running:
        if running * 2 <= len(live):
            rows = live = live[~done]
            copies, done = _kept(task, copies, ~done), np.zeros(running, np.bool_)
        chosen = np.asarray(decider.decide(observations[step, rows], live))
        observations[step + 1, rows], rewards[step, rows], fallen, _, _ = copies.step(chosen)
        actions[step, rows] = chosen
        step += 1
        if learning is not None:
            on = live[~done]
            learning.learn(on, observations[step, on], rewards[step - 1, on], np.asarray(fallen, np.bool_)[~done])
        if step < limit and not fallen.any():
            continue
        ended = (fallen | (step >= limit)) & ~done
        lengths[live[ended]] = step
        terminated[live[ended]] = fallen[ended]
        done |= ended
        running = int(np.count_nonzero(~done))
    copies.close()
    return SideBySide(observations, actions, rewards, lengths, terminated).trajectories(seeds)


def _starts(env: gym.Env[Any, Any], seeds: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the start state that each seed gives a single environment: shape (d, n)."""
    single: Any = env.unwrapped
    columns = []
    for seed in seeds:
        single.reset(seed=int(seed))
        columns.append(np.asarray(single.state, np.float64))
    return np.stack(columns, axis=1)


def _begun(task: Task, env: gym.Env[Any, Any], seeds: Sequence[int]) -> tuple[Any, npt.NDArray[Any]]:
    """Return copies at the start of an episode, and their first observations, shape (n, d)."""
    if has_classic_form(env):
        classic = ClassicCopies(env, seeds)
        return classic, classic.first
    if _takes_seeds(env):
        copies = _made(task, len(seeds), autoreset_mode=AutoresetMode.DISABLED)
        return copies, copies.reset(seed=[int(seed) for seed in seeds])[0]
    state = _starts(env, seeds)
    return _copies(task, state), state.T


def _kept(task: Task, copies: Any, which: npt.NDArray[np.bool_]) -> Any:
    """Return only the copies `which`."""
    if isinstance(copies, DynamicsVectorEnv | ClassicCopies):
        copies.keep(which)
        return copies
    return _copies(task, copies.state[:, which])


def _copies(task: Task, state: npt.NDArray[np.float64]) -> Any:
    """Make copies in the given states, shape (d, n)."""
    copies = _made(task, state.shape[1])
    copies.reset(seed=0)
    copies.state = state.copy()
    return copies


def _made(task: Task, count: int, **more: Any) -> Any:
    # Their own time limit is one step beyond the task's, to distinguish truncation from termination in one step.
    return gym.make_vec(
        task.gym_id,
        num_envs=count,
        vectorization_mode="vector_entry_point",
        max_episode_steps=task.max_steps + 1,
        **{**dict(task.kwargs), **more},
    ).unwrapped
