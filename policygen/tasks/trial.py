"""A check of environments other than Gymnasium's and policygen's: two short episodes with the same seed."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.errors import EnvironmentFault
from policygen.tasks.actions import random_actions
from policygen.tasks.counted import steps_left
from policygen.tasks.environments import make_env, of_gymnasium_or_ours, origin
from policygen.tasks.faults import STEP_TIMEOUT, Watchdog, close, fault, flag_of, name_of, number_of, wrong_length
from policygen.tasks.spaces import Observation, flatten, layout_of
from policygen.tasks.task import Task

UNSEEDED = "episodes with the same seed differ, so policies cannot be compared on the same episodes"
MANY_STEPS = 100  # of an episode that checks an environment without a task file
_FEW_STEPS = 2  # with a task file
_STREAM = 2  # of random actions; without it, a draw of the environment from the same seed would be alike
_SECONDS = 0.5  # time limit of an episode
_TOLERANCE = 1e-5  # relative and absolute: a reused simulator may differ in the last bits (Box2D)
_MARGIN = 0.1  # values may lie outside their declared range by this share of it


def ignores_seed(
    env: gym.Env[Any, Any],
    observations: Sequence[Observation],
    width: int,
    step_timeout: float,
    *,
    steps: int = _FEW_STEPS,
) -> bool:
    """Whether two episodes with the same seed and the same actions differ.

    Gymnasium's and policygen's environments are not played, as their own tests check this.

    Args:
        width: number of columns of a flattened observation.
        steps: maximum steps of each episode. Two steps expose most environments that ignore their seed. They are enough
            for an environment with a task file: if it fails at a later step, the search records that and continues.

    Raises:
        EnvironmentFault: the environment fails or does not answer, or an observation or reward is not a number.

    Warns:
        UserWarning: observations lie far outside the declared space.
    """
    if of_gymnasium_or_ours(origin(env)) and not (env.spec and env.spec.additional_wrappers):
        return False
    steps = min(steps, steps_left() // 2)
    first, _ = random_episode(env, 0, width, step_timeout, steps=steps, until=time.monotonic() + _SECONDS)
    second, _ = random_episode(env, 0, width, step_timeout, steps=len(first) - 1)
    for o, column in zip(observations, np.array(first).T, strict=False):  # texts and the reward follow the numbers
        low, high = float(column.min()), float(column.max())
        margin = _MARGIN * (o.high - o.low) if math.isfinite(o.high - o.low) else _MARGIN
        if low < o.low - margin or high > o.high + margin:
            warnings.warn(
                f"{o.name} went from {low:g} to {high:g} under random actions, outside the {o.low:g} to {o.high:g} "
                "that the environment declares: correct its observation_space",
                stacklevel=2,
            )
    return len(first) != len(second) or not np.allclose(first, second, rtol=_TOLERANCE, atol=_TOLERANCE)


def seeds_checked(task: Task) -> Task:
    """Return the task with `unseeded` set by `ignores_seed`, unless it is set already; warn if it is unseeded."""
    if not task.unseeded:
        env = make_env(task)
        try:
            task = replace(task, unseeded=ignores_seed(env, task.observations, task.width, STEP_TIMEOUT))
        finally:
            close(env)
    warn_if_unseeded(task)
    return task


def warn_if_unseeded(task: Task) -> None:
    """Warn if episodes of a task ignore their seeds."""
    if task.unseeded:
        warnings.warn(
            f"two episodes of {task.gym_id} with one seed differ, so policies are compared on different episodes, and "
            "scores are labelled as unseeded: it probably draws from np.random instead of self.np_random (after "
            "super().reset(seed=seed))",
            stacklevel=3,
        )


def random_episode(
    env: gym.Env[Any, Any],
    seed: int,
    width: int,
    step_timeout: float,
    *,
    steps: int,
    until: float = math.inf,
    action: Any = None,
) -> tuple[list[npt.NDArray[np.float64]], bool]:
    """Play random actions; return each observation followed by its reward, and whether the episode was truncated.

    Args:
        width: number of columns of a flattened observation.
        steps: maximum number of steps; fewer if `steps_left` are fewer.
        until: a time of `time.monotonic` at which the episode stops, but not before two steps.
        action: the action of all steps; None: random ones, which depend on `seed` alone.

    Raises:
        EnvironmentFault: the environment fails or does not answer, or an observation or reward is not a number.
    """
    layout, rows = layout_of(env.observation_space), list[npt.NDArray[np.float64]]()
    draw = random_actions(env.action_space, np.random.default_rng([seed, _STREAM]))
    method, terminated, truncated, steps = "reset", False, False, min(steps, steps_left())

    def keep(observation: Any, reward: float) -> None:
        row = flatten(layout, observation)
        if row.shape != (width,):
            raise wrong_length(row, width)
        if row.dtype.kind not in "biuf" or not np.isfinite(row).all():
            raise EnvironmentFault(f"an observation holds a value that is not a number: {str(row.tolist())[:60]}")
        if not math.isfinite(reward):
            raise EnvironmentFault(f"the reward of step {len(rows)} is {reward:g}")
        rows.append(np.append(row.astype(np.float64), reward))

    try:
        with Watchdog(step_timeout, lambda: (len(rows), method), env):
            keep(env.reset(seed=seed)[0], 0.0)
            method = "step"
            while len(rows) <= steps and not (terminated or truncated):
                if len(rows) > 2 and time.monotonic() > until:
                    break
                observation, reward, terminated, truncated, _ = env.step(draw() if action is None else action)
                terminated, truncated = flag_of(terminated, "terminated"), flag_of(truncated, "truncated")
                keep(observation, number_of(reward))
    except BaseException as error:
        raise fault(error, env, name_of(env), method) from error
    return rows, truncated and not terminated
