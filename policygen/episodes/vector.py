"""Episodes of an environment for which Gymnasium has numpy dynamics of many copies at once (CartPole so far)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Actor, SideBySide, Trajectory, chunks
from policygen.tasks.task import Task

VECTOR_COPIES = 1_024  # episodes under way at a time


def has_vector_form(env: gym.Env[Any, Any]) -> bool:
    """Whether Gymnasium has numpy dynamics for it whose state can be set."""
    entry = getattr(env.spec, "vector_entry_point", None) if env.spec else None
    return isinstance(entry, str) and entry.endswith(":CartPoleVectorEnv")


def play_vectorised(task: Task, env: gym.Env[Any, Any], actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
    """One episode per seed, in the order of the seeds; `env` is a single environment of the task, to be reset."""
    return [trajectory for chunk in chunks(seeds, VECTOR_COPIES) for trajectory in _play(task, env, actor, chunk)]


def _play(task: Task, env: gym.Env[Any, Any], actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
    """The vectorised dynamics, started from the states that the seeds give a single environment.

    Episodes that have ended are dropped whenever half of the copies are idle, so they cost next to nothing.
    """
    state = _starts(env, seeds)
    n, limit = len(seeds), task.max_steps
    observations = np.empty((limit + 1, n, len(state)), np.float32)
    actions = np.empty((limit, n), np.int16)
    rewards = np.empty((limit, n), np.float32)
    lengths = np.zeros(n, np.int64)
    terminated = np.zeros(n, np.bool_)
    copies = _copies(task, state)
    observations[0] = state.T
    live = np.arange(n)
    # Where the live copies' rows are: a slice is several times faster than a list of numbers.
    rows: slice | npt.NDArray[np.intp] = slice(None)
    done = np.zeros(n, np.bool_)  # of the live copies
    running = n
    step = 0
    decider = actor.begin(n)
    while running:
        if running * 2 <= len(live):
            rows = live = live[~done]
            copies, done = _copies(task, copies.state[:, ~done]), np.zeros(running, np.bool_)
        chosen = np.asarray(decider.decide(observations[step, rows], live))
        observations[step + 1, rows], rewards[step, rows], ended, _, _ = copies.step(chosen)
        actions[step, rows] = chosen
        step += 1
        if step < limit and not ended.any():
            continue
        ended = (ended | (step >= limit)) & ~done
        lengths[live[ended]] = step
        # The state, not the flag of the call: a copy that is cut and falls on the same step has fallen.
        terminated[live[ended]] = _fallen(copies, ended)
        done |= ended
        running = int(np.count_nonzero(~done))
    copies.close()
    return SideBySide(observations, actions, rewards, lengths, terminated).trajectories(seeds)


def _starts(env: gym.Env[Any, Any], seeds: Sequence[int]) -> npt.NDArray[np.float64]:
    """The state that each seed gives a single environment: shape (d, n)."""
    single: Any = env.unwrapped
    columns = []
    for seed in seeds:
        single.reset(seed=int(seed))
        columns.append(np.asarray(single.state, np.float64))
    return np.stack(columns, axis=1)


def _copies(task: Task, state: npt.NDArray[np.float64]) -> Any:
    # Their own time limit is one step beyond ours, so that cutting and falling on one step can be told apart.
    copies: Any = gym.make_vec(
        task.gym_id,
        num_envs=state.shape[1],
        vectorization_mode="vector_entry_point",
        max_episode_steps=task.max_steps + 1,
        **dict(task.kwargs),
    ).unwrapped
    copies.reset(seed=0)
    copies.state = state.copy()
    return copies


def _fallen(copies: Any, which: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    x, _, angle, _ = copies.state[:, which]
    fallen: npt.NDArray[np.bool_] = (np.abs(x) > copies.x_threshold) | (np.abs(angle) > copies.theta_threshold_radians)
    return fallen
