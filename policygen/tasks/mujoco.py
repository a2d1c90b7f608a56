"""Facts of a MuJoCo model in SI units, from the model object: step, gravity, actuators, joints, masses."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np

MOST_CHARACTERS = 5_000  # of all sentences together


def has_model(env: gym.Env[Any, Any]) -> bool:
    """Whether the environment has a MuJoCo model."""
    return all(hasattr(getattr(env.unwrapped, "model", None), name) for name in ("opt", "nbody", "actuator_gear"))


def step_seconds_of(env: gym.Env[Any, Any]) -> float | None:
    """Return the seconds of a step: those of the model, times `frame_skip`; None without a model."""
    with suppress(Exception):  # the environment's own code
        if has_model(env) and isinstance(skip := env.unwrapped.frame_skip, int):  # type: ignore[attr-defined]
            return float(env.unwrapped.model.opt.timestep) * skip  # type: ignore[attr-defined]
    return None


def model_facts(env: gym.Env[Any, Any], actions: Sequence[str]) -> tuple[str, ...]:
    """Describe the model of an environment, one sentence each; nothing if it has none, or one that cannot be read.

    Args:
        actions: the task's names of the components of an action, in order.
    """
    if not has_model(env):
        return ()
    try:
        lines = list(_sentences(env, actions))
    except Exception:  # facts are optional, and the model is the user's
        return ()
    kept, room = list[str](), MOST_CHARACTERS
    for line in lines:
        room -= len(line)
        if room < 0:
            return (*kept, f"({len(lines) - len(kept)} more facts of the model are left out.)")
        kept.append(line)
    return tuple(kept)


def _sentences(env: gym.Env[Any, Any], actions: Sequence[str]) -> Iterator[str]:
    model: Any = env.unwrapped.model  # type: ignore[attr-defined]
    mujoco = importlib.import_module("mujoco")  # an optional extra; installed if there is a model
    step = float(model.opt.timestep)
    if (seconds := step_seconds_of(env)) is not None:
        yield f"One step lasts {_number(seconds)} s ({round(seconds / step)} x {_number(step)} s of simulation)."
    gravity = ", ".join(map(_number, model.opt.gravity))
    yield f"Gravity is ({gravity}) m/s^2 along (x, y, z); the total mass is {_number(model.body_mass.sum())} kg."
    signals, driven = _signals(env, model, actions), set[int]()
    for i, signal in enumerate(signals):
        kind, target = _word(mujoco.mjtTrn, model.actuator_trntype[i]), int(model.actuator_trnid[i][0])
        if kind.startswith("joint"):
            driven.add(target)
            yield f"{signal} drives {_joint(model, mujoco, target)}; {_drive(model, i)}."
        else:
            yield f"{signal} acts on {kind} {target}; {_drive(model, i)}."
    for joint in range(model.njnt):
        if joint not in driven:
            yield f"No actuator drives {_joint(model, mujoco, joint)}."
    masses = [(str(model.body(i).name or f"body{i}"), float(model.body_mass[i])) for i in range(1, model.nbody)]
    yield f"Masses in kg: {', '.join(f'{name} {_number(mass)}' for name, mass in masses if mass > 0)}."


def _signals(env: gym.Env[Any, Any], model: Any, actions: Sequence[str]) -> list[str]:
    """Return the name of each actuator's input: the component of the action if it is the input, else `control[i]`."""
    space = env.action_space
    # If the ranges differ, the environment transforms the action.
    direct = (
        isinstance(space, gym.spaces.Box)
        and space.shape == (model.nu,) == (len(actions),)
        and np.allclose(np.stack([space.low, space.high], 1), model.actuator_ctrlrange)
    )
    return list(actions) if direct else [f"control[{i}]" for i in range(model.nu)]


def _joint(model: Any, mujoco: Any, joint: int) -> str:
    kind = _word(mujoco.mjtJoint, model.jnt_type[joint])
    body = int(model.jnt_bodyid[joint])
    words = f"the {kind} joint {model.joint(joint).name or joint} of body {model.body(body).name or body}"
    if kind in ("hinge", "slide"):
        words += f" about axis ({', '.join(map(_number, model.jnt_axis[joint]))})"
        if model.jnt_limited[joint]:
            low, high = map(_number, model.jnt_range[joint])
            words += f", from {low} to {high} {'rad' if kind == 'hinge' else 'm'}"
        if damping := float(np.ravel(model.dof_damping[model.jnt_dofadr[joint]])[0]):
            words += f", damping {_number(damping)}"
    return words


def _drive(model: Any, actuator: int) -> str:
    """Describe an actuator: its force or torque if it is a plain motor, else that it is none."""
    types = model.actuator_gaintype, model.actuator_biastype, model.actuator_dyntype
    if any(kind[actuator] for kind in types):  # 0 is a fixed gain, no bias, and no dynamics
        return "it is not a plain motor"
    gain = float(model.actuator_gear[actuator][0]) * float(model.actuator_gainprm[actuator][0])
    return f"force (N) or torque (N m) = {_number(gain)} x its input"


def _word(enumeration: Any, value: Any) -> str:
    """Return the name of a MuJoCo constant in lower case: `hinge` for `mjJNT_HINGE`."""
    return str(enumeration(int(value)).name).partition("_")[2].lower()


def _number(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-9 else float(value):.4g}"
