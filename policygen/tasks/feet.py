"""Compute the height of a walking robot's feet above the floor from its observations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.quantities.text import slug
from policygen.tasks.environments import make_env
from policygen.tasks.faults import close
from policygen.tasks.mujoco import has_model, touches, word_of
from policygen.tasks.task import Task

MOST_FEET = 6  # a robot with more ends of limbs has no feet
UPWARDS = 0.9  # least vertical component of the axis of a slide joint that lifts a body

Columns = Mapping[str, npt.NDArray[np.float64]]
Heights = Callable[[npt.NDArray[Any]], Columns]


def foot_heights(task: Task) -> Heights | None:
    """Return a function from observations, shape (T, d), to heights by name: each foot's lowest point in m, shape (T,).

    Feet are the ends of limbs that can touch the floor. None if the task is not a MuJoCo model that moves up and down
    and observes its joint positions first, as Gymnasium's do.
    """
    try:
        return _heights_of(task)
    except Exception:  # the user's model; heights are optional
        return None


@lru_cache(maxsize=8)
def _heights_of(task: Task) -> Heights | None:
    env = make_env(task)
    try:
        base: Any = env.unwrapped
        structure = getattr(base, "observation_structure", None)
        if not has_model(env) or not isinstance(structure, dict) or not structure.get("qpos"):
            return None
        model, mujoco = base.model, sys.modules["mujoco"]
    finally:
        close(env)
    skipped, count = int(structure.get("skipped_qpos", 0)), int(structure["qpos"])
    feet = _feet(model, mujoco)
    if skipped + count != model.nq or count > len(task.observations) or not 0 < len(feet) <= MOST_FEET:
        return None
    taken = {name.lower() for name in (*task.quantity_names, *(a.name for a in task.actuators))}
    names = {body: slug(f"{model.body(body).name or f'body{body}'}_height") for body in feet}
    data: Any = mujoco.MjData(model)

    def heights(observations: npt.NDArray[Any]) -> Columns:
        found = np.zeros((len(observations), len(feet)))
        for row, observation in zip(found, observations, strict=True):
            data.qpos[skipped:] = observation[:count]
            mujoco.mj_kinematics(model, data)
            row[:] = [min(_lowest(model, data, geom, mujoco) for geom in geoms) for geoms in feet.values()]
        return {name: found[:, i] for i, name in enumerate(names.values()) if name.lower() not in taken}

    return heights


def _feet(model: Any, mujoco: Any) -> dict[int, list[int]]:
    """Return, for the body of each foot, the geoms that can touch a floor at height 0; empty if there are no feet."""
    planes = [g for g in range(model.ngeom) if word_of(mujoco.mjtGeom, model.geom_type[g]) == "plane"]
    kinds = [word_of(mujoco.mjtJoint, kind) for kind in model.jnt_type]
    lifted = any(
        kind == "free" or (kind == "slide" and abs(model.jnt_axis[j][2]) > UPWARDS)
        for j, kind in enumerate(kinds)
        if model.body_parentid[model.jnt_bodyid[j]] == 0
    )
    if not lifted or len(planes) != 1 or abs(float(model.geom_pos[planes[0]][2])) > 1e-6:
        return {}
    parents = {int(parent) for parent in model.body_parentid}
    feet: dict[int, list[int]] = {}
    for geom in range(model.ngeom):
        body = int(model.geom_bodyid[geom])
        if body and body not in parents and touches(model, planes[0], geom):
            feet.setdefault(body, []).append(geom)
    return feet


def _lowest(model: Any, data: Any, geom: int, mujoco: Any) -> float:
    """Return the height of the lowest point of a geom in m; for rare shapes, that of a sphere around it."""
    height, size = float(data.geom_xpos[geom][2]), model.geom_size[geom]
    vertical = np.abs(data.geom_xmat[geom][6:])  # of the geom's own axes
    match word_of(mujoco.mjtGeom, model.geom_type[geom]):
        case "sphere":
            return height - float(size[0])
        case "capsule":
            return height - float(size[0] + vertical[2] * size[1])
        case "box":
            return height - float(vertical @ size)
    return height - float(model.geom_rbound[geom])
