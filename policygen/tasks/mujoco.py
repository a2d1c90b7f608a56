"""Facts from a compiled MuJoCo model: time step, actuators, joints, bodies, floor, in SI units."""

from __future__ import annotations

import importlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

MOST_COLLISIONS = 8  # pairs of bodies in one sentence
# The facts left out at each level of detail.
_LEFT_OUT = ("positions, damping, armature and springs", "positions", "")


def has_model(env: gym.Env[Any, Any]) -> bool:
    """Whether the environment has a MuJoCo model."""
    return all(hasattr(getattr(env.unwrapped, "model", None), name) for name in ("opt", "nbody", "actuator_gear"))


def model_facts(env: gym.Env[Any, Any], actions: Sequence[str], detail: int) -> list[str]:
    """Describe the model of an environment, most useful sentences first; resets it, positions are of the initial pose.

    Args:
        actions: the task's names of the components of an action, in order; `action[i]` if missing.
        detail: 2 for everything, 1 without positions, 0 without damping, armature and springs either.
    """
    base: Any = env.unwrapped
    env.reset(seed=0)
    if all(hasattr(base, name) for name in ("set_state", "init_qpos", "init_qvel")):
        base.set_state(base.init_qpos, base.init_qvel)  # the pose without the noise of a reset
    mujoco = importlib.import_module("mujoco")  # an optional extra; installed if there is a model
    machine = _Machine(base.model, base.data, mujoco, _signals(env, base.model, actions), detail)
    return [
        *_summary(machine, int(getattr(base, "frame_skip", 1))),
        *([f"(Shortened: {_LEFT_OUT[detail]} are left out.)"] if _LEFT_OUT[detail] else []),
        *_floor(machine),
        *_collisions(machine),
        *_joints(machine),
        *_bodies(machine),
    ]


@dataclass(frozen=True, slots=True)
class _Machine:
    """A MuJoCo model, its state in the initial pose, and the `mujoco` module.

    `signals` names the input of each actuator; `detail` is as in `model_facts`.
    """

    model: Any
    data: Any
    mujoco: Any
    signals: tuple[str, ...]
    detail: int


@dataclass(frozen=True, slots=True)
class _Joint:
    """A joint in words; `traits` are often the same for all joints."""

    subject: str
    details: tuple[str, ...]
    traits: tuple[str, ...]


def _signals(env: gym.Env[Any, Any], model: Any, actions: Sequence[str]) -> tuple[str, ...]:
    """Name the input of each actuator: the component of the action if the two agree, else `control[i]`."""
    space = env.action_space
    if (
        not isinstance(space, gym.spaces.Box)
        or space.shape != (model.nu,)
        or not np.allclose(np.stack([space.low, space.high], 1), model.actuator_ctrlrange)
    ):  # the environment then transforms the action
        return tuple(f"control[{i}]" for i in range(model.nu))
    return tuple(actions) if len(actions) == model.nu else tuple(f"action[{i}]" for i in range(model.nu))


def _summary(machine: _Machine, frame_skip: int) -> list[str]:
    model = machine.model
    step = float(model.opt.timestep)
    lines = [f"One step lasts {_number(step * frame_skip)} s ({frame_skip} x {_number(step)} s of simulation)."]
    weightless = int(model.opt.disableflags) & int(machine.mujoco.mjtDisableBit.mjDSBL_GRAVITY)
    gravity = (
        "no gravity" if weightless or not np.any(model.opt.gravity) else f"gravity {_vector(model.opt.gravity)} m/s^2"
    )
    lines.append(f"Axes are (x, y, z), z upwards; {gravity}; total mass {_number(model.body_mass.sum())} kg.")
    if model.opt.density > 0 or model.opt.viscosity > 0:
        density, viscosity = _number(model.opt.density), _number(model.opt.viscosity)
        lines.append(f"Everything moves in a fluid of density {density} kg/m^3 and viscosity {viscosity} Pa s.")
    return lines


def _kind(machine: _Machine, joint: int) -> str:
    return str(machine.mujoco.mjtJoint(int(machine.model.jnt_type[joint])).name).removeprefix("mjJNT_").lower()


def _joints(machine: _Machine) -> list[str]:
    """Describe free joints, then actuated ones; traits that all of these share are stated once."""
    model = machine.model
    joints: list[_Joint] = []
    lines: list[str] = []
    driven = set()
    for i, signal in enumerate(machine.signals):
        joint = _driven_joint(machine, i)
        if joint is None:
            lines.append(f"{signal} acts on {_target(machine, i)}: {', '.join(_drive(machine, i, 'force'))}.")
            continue
        driven.add(joint)
        subject = f"{signal} drives {_kind(machine, joint)} {_joint_name(model, joint)}"
        effort = "force" if _kind(machine, joint) == "slide" else "torque"
        traits = (*_drive(machine, i, effort), *_resistance(machine, joint))
        joints.append(_Joint(subject, _details(machine, joint), traits))
    lines = [*_free_joints(machine, driven), *lines]
    if len(joints) < 2:
        return lines + [_sentence(j.subject, (*j.traits, *j.details)) for j in joints]
    # Every joint has a first trait, the actuator's effect, so its most frequent value can be the default.
    usual, count = Counter(j.traits[0] for j in joints).most_common(1)[0]
    shared = [usual] * (count > 1) + [t for t in joints[0].traits[1:] if all(t in j.traits for j in joints)]
    if shared:
        unless = ", unless said otherwise" if 1 < count < len(joints) else ""
        lines.append(f"Every actuated joint{unless}: {', '.join(shared)}.")
    return lines + [_sentence(j.subject, (*(t for t in j.traits if t not in shared), *j.details)) for j in joints]


def _sentence(subject: str, details: Sequence[str]) -> str:
    return f"{subject}: {', '.join(details)}." if details else f"{subject}."


def _free_joints(machine: _Machine, driven: set[int]) -> list[str]:
    """Describe joints without an actuator; those that let a body move in the world share one line."""
    model = machine.model
    lines = []
    for body in range(1, model.nbody):
        first = int(model.body_jntadr[body])
        joints = [j for j in range(first, first + int(model.body_jntnum[body])) if j not in driven]
        if not joints:
            continue
        name = _body_name(model, body)
        if int(model.body_parentid[body]) == 0 and (len(joints) > 1 or _kind(machine, joints[0]) == "free"):
            motions = ", ".join(_motion(machine, joint) for joint in joints)
            height = _number(round(float(machine.data.xpos[body][2]), 3))
            lines.append(f"Body {name} has no actuator of its own, starts at height {height} m, and moves: {motions}.")
            continue
        for joint in joints:
            subject = f"No actuator drives {_kind(machine, joint)} {_joint_name(model, joint)}"
            lines.append(_sentence(subject, (*_details(machine, joint), *_resistance(machine, joint))))
    return lines


def _motion(machine: _Machine, joint: int) -> str:
    kind, name = _kind(machine, joint), _joint_name(machine.model, joint)
    if kind == "free":
        return f"freely in all directions ({name})"
    if kind == "ball":
        return f"turns freely ({name})"
    axis = machine.data.xaxis[joint]
    if kind == "slide":
        place = _number(round(float(machine.data.qpos[machine.model.jnt_qposadr[joint]]), 3))
        return f"along {_direction(axis)} ({name}, {place} in this pose)"
    return f"turns about {_direction(axis)} ({name}; positive {_sense(axis)})"


def _sense(axis: npt.NDArray[np.float64]) -> str:
    """Describe a positive turn: about +y it takes z towards x."""
    largest = int(np.argmax(np.abs(axis)))
    first, second = (("y", "z"), ("z", "x"), ("x", "y"))[largest]
    if axis[largest] < 0:
        first, second = second, first
    return f"takes {first} towards {second}"


def _direction(vector: npt.NDArray[np.float64]) -> str:
    """Name the main axes of a direction: `+x`, `-y+z` and so on."""
    unit = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return "".join(
        f"{'+' if part > 0 else '-'}{axis}" for axis, part in zip("xyz", unit, strict=True) if abs(part) > 0.3
    )


def _details(machine: _Machine, joint: int) -> tuple[str, ...]:
    model, data, kind = machine.model, machine.data, _kind(machine, joint)
    body = int(model.jnt_bodyid[joint])
    details = []
    if kind in ("hinge", "slide"):
        axis = data.xaxis[joint]
        lever = data.subtree_com[body] - data.xanchor[joint]
        motion = np.cross(axis, lever) if kind == "hinge" else axis
        turn = f"axis {_direction(axis)}"
        # A hinge through its load's centre of mass moves that centre in no direction.
        if machine.detail and kind == "hinge" and np.linalg.norm(motion) > 0.01:
            turn += f", positive moves {_body_name(model, body)} towards {_direction(motion)}"
        details.append(turn)
        unit = "rad" if kind == "hinge" else "m"
        if model.jnt_limited[joint]:
            low, high = model.jnt_range[joint]
            details.append(f"range {_number(low)} to {_number(high)} {unit}")
        if machine.detail > 1 and kind == "hinge":
            details.append(f"at {_vector(data.xanchor[joint])} m")
    return tuple(details)


def _resistance(machine: _Machine, joint: int) -> tuple[str, ...]:
    """Describe damping, armature, stiffness and dry friction of a joint, if any."""
    model = machine.model
    if not machine.detail:
        return ()
    dof = int(model.jnt_dofadr[joint])
    slide = _kind(machine, joint) == "slide"
    effort, per = ("N", "m") if slide else ("N m", "rad")
    found = (
        ("damping", model.dof_damping[dof], f"{effort} s/{per}"),
        ("armature", model.dof_armature[dof], "kg" if slide else "kg m^2"),
        ("spring", model.jnt_stiffness[joint], f"{effort}/{per}"),
        ("dry friction", model.dof_frictionloss[dof], effort),
    )
    # A stiffness is one number or, in newer MuJoCo, the first of several.
    values = [(name, float(np.ravel(value)[0]), unit) for name, value, unit in found]
    return tuple(f"{name} {_number(value)} {unit}" for name, value, unit in values if value > 0)


def _driven_joint(machine: _Machine, actuator: int) -> int | None:
    kinds = machine.mujoco.mjtTrn
    kind = int(machine.model.actuator_trntype[actuator])
    if kind not in (int(kinds.mjTRN_JOINT), int(kinds.mjTRN_JOINTINPARENT)):
        return None
    return int(machine.model.actuator_trnid[actuator][0])


def _target(machine: _Machine, actuator: int) -> str:
    model, kinds = machine.model, machine.mujoco.mjtTrn
    target = int(model.actuator_trnid[actuator][0])
    kind = int(model.actuator_trntype[actuator])
    readers: dict[int, tuple[str, Callable[[int], Any]]] = {
        int(kinds.mjTRN_TENDON): ("tendon", model.tendon),
        int(kinds.mjTRN_SITE): ("site", model.site),
        int(kinds.mjTRN_BODY): ("body", model.body),
    }
    if kind not in readers:
        return f"target {target}"
    word, reader = readers[kind]
    return f"{word} {reader(target).name or target}"


def _drive(machine: _Machine, actuator: int, effort: str) -> tuple[str, ...]:
    """Describe an actuator's effect: the torque or force of a plain motor, else that it is not one."""
    model, mujoco = machine.model, machine.mujoco
    gain = float(model.actuator_gear[actuator][0]) * float(model.actuator_gainprm[actuator][0])
    unit = "N m" if effort == "torque" else "N"
    plain = (
        int(model.actuator_gaintype[actuator]) == int(mujoco.mjtGain.mjGAIN_FIXED)
        and int(model.actuator_biastype[actuator]) == int(mujoco.mjtBias.mjBIAS_NONE)
        and int(model.actuator_dyntype[actuator]) == int(mujoco.mjtDyn.mjDYN_NONE)
    )
    signal = "control" if machine.signals[actuator].startswith("control[") else "action"
    if plain:
        traits = [f"{effort} = {_number(gain)} {unit} x {signal}"]
    else:
        # With an affine bias, the second number is the negative stiffness of a position servo.
        stiffness = -float(model.actuator_biasprm[actuator][1])
        servo = f" but a servo that holds a position with {_number(stiffness)} {unit} a unit" if stiffness > 0 else ""
        traits = [f"not a plain motor{servo}"]
    if model.actuator_ctrllimited[actuator]:
        low, high = model.actuator_ctrlrange[actuator]
        traits.append(f"{signal} {_number(low)} to {_number(high)}")
    if model.actuator_forcelimited[actuator]:
        low, high = model.actuator_forcerange[actuator]
        traits.append(f"limited to {_number(low)} to {_number(high)} before the gear")
    return tuple(traits)


def _joint_name(model: Any, joint: int) -> str:
    return str(model.joint(joint).name or f"#{joint}")


def _body_name(model: Any, body: int) -> str:
    return str(model.body(body).name or f"body{body}")  # as its observations are called


def _bodies(machine: _Machine) -> list[str]:
    """Describe each body's mass and shapes in a line; equal bodies share one."""
    model = machine.model
    alike: dict[str, list[str]] = {}
    for body in range(1, model.nbody):
        first = int(model.body_geomadr[body])
        shapes = [_shape(machine, geom) for geom in range(first, first + int(model.body_geomnum[body]))]
        words = "; ".join(shape for shape in dict.fromkeys(shapes) if shape)
        mass = float(model.body_mass[body])
        if not words and not mass:
            continue
        alike.setdefault(f"{_number(mass)} kg" + (f", {words}" if words else ""), []).append(_body_name(model, body))
    return [f"Body {', '.join(names)}: {'each ' * (len(names) > 1)}{words}." for words, names in alike.items()]


def _shape(machine: _Machine, geom: int) -> str:
    """Describe the shape and size of a geom; empty if it has no simple size."""
    model, data, kinds = machine.model, machine.data, machine.mujoco.mjtGeom
    kind = int(model.geom_type[geom])
    size = model.geom_size[geom]
    positions = machine.detail > 1
    centre = f", centre {_vector(data.geom_xpos[geom])}" if positions else ""
    if kind == int(kinds.mjGEOM_SPHERE):
        return f"sphere of radius {_number(size[0])} m{centre}"
    if kind in (int(kinds.mjGEOM_CAPSULE), int(kinds.mjGEOM_CYLINDER)):
        word = "capsule" if kind == int(kinds.mjGEOM_CAPSULE) else "cylinder"
        axis = data.geom_xmat[geom].reshape(3, 3)[:, 2]
        along = f" along {_direction(axis if axis[np.argmax(np.abs(axis))] > 0 else -axis)[1:]}" if positions else ""
        # MuJoCo stores half of the length; a capsule's excludes its round ends.
        return f"{word} of radius {_number(size[0])} m and length {_number(2 * size[1])} m{along}{centre}"
    if kind == int(kinds.mjGEOM_BOX):
        return f"box {' x '.join(_number(2 * side) for side in size)} m{centre}"
    if kind == int(kinds.mjGEOM_ELLIPSOID):
        return f"ellipsoid {' x '.join(_number(2 * side) for side in size)} m{centre}"
    return ""


def _floor(machine: _Machine) -> list[str]:
    """Describe sliding friction between a plane and bodies that can touch it; MuJoCo uses the larger of two geoms'."""
    model, kinds = machine.model, machine.mujoco.mjtGeom
    planes = [g for g in range(model.ngeom) if int(model.geom_type[g]) == int(kinds.mjGEOM_PLANE)]
    lines = []
    for plane in planes:
        bodies: dict[str, list[str]] = {}
        for geom in range(model.ngeom):
            body = int(model.geom_bodyid[geom])
            if body == int(model.geom_bodyid[plane]) or not touches(model, plane, geom):
                continue
            same = int(model.geom_priority[plane]) == int(model.geom_priority[geom])
            first = max((plane, geom), key=lambda g: int(model.geom_priority[g]))
            friction = max(float(model.geom_friction[g][0]) for g in ((plane, geom) if same else (first,)))
            named = bodies.setdefault(_number(friction), [])
            if _body_name(model, body) not in named:
                named.append(_body_name(model, body))
        if bodies:
            common = max(bodies, key=lambda value: len(bodies[value]))
            others = [f"{value} for {', '.join(names)}" for value, names in bodies.items() if value != common]
            height = _number(round(float(machine.data.geom_xpos[plane][2]), 3))
            lines.append(
                f"Floor at z = {height} m: sliding friction coefficient {common}"
                + (f", but {'; '.join(others)}" if others else "")
                + "."
            )
    return lines


def _collisions(machine: _Machine) -> list[str]:
    """Describe which bodies can collide with one another; the floor has a sentence of its own."""
    model, plane = machine.model, int(machine.mujoco.mjtGeom.mjGEOM_PLANE)
    solid = [geom for geom in range(model.ngeom) if int(model.geom_type[geom]) != plane]
    found: dict[tuple[int, int], None] = {}
    for one, other in itertools.combinations(solid, 2):
        bodies = sorted((int(model.geom_bodyid[one]), int(model.geom_bodyid[other])))
        if touches(model, one, other) and _are_apart(machine, *bodies):
            found[bodies[0], bodies[1]] = None
    if not found:
        return ["No two bodies collide with each other."]
    some = [f"{_body_name(model, one)} with {_body_name(model, other)}" for one, other in list(found)[:MOST_COLLISIONS]]
    more = len(found) - len(some)
    return [f"Bodies that can collide: {', '.join(some)}" + (f" and {more} more pairs" if more else "") + "."]


def _are_apart(machine: _Machine, one: int, other: int) -> bool:
    """Whether two bodies may collide: they move against each other, are no neighbours, and the model allows it."""
    model, flag = machine.model, int(machine.mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)
    welded = [int(model.body_weldid[body]) for body in (one, other)]
    parents = [int(model.body_weldid[model.body_parentid[body]]) for body in welded]
    neighbours = (parents[0] == welded[1] or parents[1] == welded[0]) and 0 not in welded
    filtered = neighbours and not int(model.opt.disableflags) & flag
    return welded[0] != welded[1] and not filtered and (one << 16) + other not in model.exclude_signature


def touches(model: Any, one: int, other: int) -> bool:
    """Whether two geoms collide by their bit masks."""
    return bool(
        int(model.geom_contype[one]) & int(model.geom_conaffinity[other])
        or int(model.geom_contype[other]) & int(model.geom_conaffinity[one])
    )


def _number(value: float) -> str:
    """Write a number to four significant digits; rounding errors around zero become 0."""
    return f"{0.0 if abs(value) < 1e-9 else float(value):.4g}"


def _vector(values: Iterable[float]) -> str:
    return "(" + ", ".join(_number(round(float(value), 3)) for value in values) + ")"
