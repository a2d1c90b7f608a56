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

Columns = Mapping[str, npt.NDArray[np.float32]]
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
    geoms = np.concatenate([*feet.values()])
    starts = np.cumsum([0, *map(len, feet.values())][:-1])
    radius, half = map(np.array, zip(*(_extent(model, geom, mujoco) for geom in geoms), strict=True))
    data: Any = mujoco.MjData(model)

    def heights(observations: npt.NDArray[Any]) -> Columns:
        centres, axes = np.zeros((len(observations), len(geoms))), np.zeros((len(observations), len(geoms), 3))
        qpos, xpos, xmat = data.qpos, data.geom_xpos, data.geom_xmat
        for i, row in enumerate(observations[:, :count].astype(np.float64)):
            qpos[skipped:] = row
            mujoco.mj_kinematics(model, data)
            centres[i], axes[i] = xpos[geoms, 2], xmat[geoms, 6:]
        lowest = centres - radius - np.einsum("tgk,gk->tg", np.abs(axes), half)
        found = np.minimum.reduceat(lowest, starts, axis=1).astype(np.float32)
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


def _extent(model: Any, geom: int, mujoco: Any) -> tuple[float, npt.NDArray[np.float64]]:
    """Return a geom's radius and half lengths along its own axes, in m; for rare shapes, those of a sphere around it.

    Its lowest point lies below its centre by the radius plus the vertical components of the half lengths.
    """
    size = np.array(model.geom_size[geom], np.float64)
    match word_of(mujoco.mjtGeom, model.geom_type[geom]):
        case "sphere":
            return float(size[0]), np.zeros(3)
        case "capsule":
            return float(size[0]), np.array([0.0, 0.0, size[1]])
        case "box":
            return 0.0, size
    return float(model.geom_rbound[geom]), np.zeros(3)
