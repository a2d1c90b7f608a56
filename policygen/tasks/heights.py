"""Compute the heights that a task file declares, such as those of feet, from observations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.tasks.environments import make_env
from policygen.tasks.faults import close
from policygen.tasks.task import Task

Heights = Callable[[npt.NDArray[Any]], Mapping[str, npt.NDArray[np.float32]]]


@lru_cache(maxsize=8)
def heights_of(task: Task) -> Heights | None:
    """Return a function from observations, shape (T, d), to the heights in m by name, each of shape (T,).

    None if the task declares none. The first observations are the positions of MuJoCo's joints, as in Gymnasium.
    """
    if not task.heights:
        return None
    env: Any = make_env(task)
    model, count = env.unwrapped.model, int(env.unwrapped.observation_structure["qpos"])
    close(env)
    mujoco = sys.modules["mujoco"]
    data = mujoco.MjData(model)
    bodies = [model.body(one.body).id for one in task.heights for _ in one.spheres]
    spheres = np.array([sphere for one in task.heights for sphere in one.spheres])
    starts = np.cumsum([0, *(len(one.spheres) for one in task.heights)][:-1])

    def heights(observations: npt.NDArray[Any]) -> Mapping[str, npt.NDArray[np.float32]]:
        lowest = np.zeros((len(observations), len(bodies)))
        for row, positions in zip(lowest, observations[:, :count].astype(np.float64), strict=True):
            data.qpos[model.nq - count :] = positions
            mujoco.mj_kinematics(model, data)
            row[:] = data.xpos[bodies, 2] + (data.xmat[bodies, 6:] * spheres[:, :3]).sum(axis=1) - spheres[:, 3]
        found = np.minimum.reduceat(lowest, starts, axis=1).astype(np.float32)
        return {one.name: found[:, k] for k, one in enumerate(task.heights)}

    return heights
