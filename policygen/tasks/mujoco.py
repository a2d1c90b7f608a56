"""Facts about a MuJoCo model in SI units: time step, actuators, joints, bodies, floor."""

from __future__ import annotations

import importlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
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
    """Reset an environment and describe its model in the initial pose, most useful sentences first.

    Args:
        actions: the task's names of the components of an action, in order; `action[i]` if missing.
        detail: 2 for everything, 1 without positions, 0 without damping, armature and springs either.
    """
    base: Any = env.unwrapped
    env.reset(seed=0)
    if all(hasattr(base, name) for name in ("set_state", "init_qpos", "init_qvel")):
        base.set_state(base.init_qpos, base.init_qvel)  # the pose without the noise of a reset
    mujoco = importlib.import_module("mujoco")  # an optional extra; installed if there is a model
    sim = _Simulation(base.model, base.data, mujoco, _signals(env, base.model, actions), detail)
    return [
        *_summary(sim, int(getattr(base, "frame_skip", 1))),
        *([f"(Shortened: {_LEFT_OUT[detail]} are left out.)"] if _LEFT_OUT[detail] else []),
        *_floor(sim),
        *_collisions(sim),
        *_joints(sim),
        *_bodies(sim),
    ]


@dataclass(frozen=True, slots=True)
class _Simulation:
    """A MuJoCo model, its state in the initial pose, the `mujoco` module, and the names of the actuators' inputs."""

    model: Any
    data: Any
    mujoco: Any
    signals: tuple[str, ...]
    detail: int  # as in `model_facts`

    def joint_kind(self, joint: int) -> str:
        return word_of(self.mujoco.mjtJoint, self.model.jnt_type[joint])

    def geom_kind(self, geom: int) -> str:
        return word_of(self.mujoco.mjtGeom, self.model.geom_type[geom])

    def joint_name(self, joint: int) -> str:
        return str(self.model.joint(joint).name or f"#{joint}")

    def body_name(self, body: int) -> str:
        return str(self.model.body(body).name or f"body{body}")  # as in the names of its observations


def word_of(enumeration: Any, value: Any) -> str:
    """Return the name of a MuJoCo constant in lower case: `hinge` for `mjJNT_HINGE`."""
    return str(enumeration(int(value)).name).partition("_")[2].lower()


def _signals(env: gym.Env[Any, Any], model: Any, actions: Sequence[str]) -> tuple[str, ...]:
    """Return the name of each actuator's input: the component of the action if it is the input, else `control[i]`."""
    space = env.action_space
    # If the ranges differ, the environment transforms the action.
    if (
        not isinstance(space, gym.spaces.Box)
        or space.shape != (model.nu,)
        or not np.allclose(np.stack([space.low, space.high], 1), model.actuator_ctrlrange)
    ):
        return tuple(f"control[{i}]" for i in range(model.nu))
    return tuple(actions) if len(actions) == model.nu else tuple(f"action[{i}]" for i in range(model.nu))


def _summary(sim: _Simulation, frame_skip: int) -> list[str]:
    model = sim.model
    step = float(model.opt.timestep)
    lines = [f"One step lasts {_number(step * frame_skip)} s ({frame_skip} x {_number(step)} s of simulation)."]
    weightless = int(model.opt.disableflags) & int(sim.mujoco.mjtDisableBit.mjDSBL_GRAVITY)
    gravity = (
        "no gravity" if weightless or not np.any(model.opt.gravity) else f"gravity {_vector(model.opt.gravity)} m/s^2"
    )
    lines.append(f"Axes are (x, y, z), z upwards; {gravity}; total mass {_number(model.body_mass.sum())} kg.")
    if model.opt.density > 0 or model.opt.viscosity > 0:
        density, viscosity = _number(model.opt.density), _number(model.opt.viscosity)
        lines.append(f"Everything moves in a fluid of density {density} kg/m^3 and viscosity {viscosity} Pa s.")
    return lines


def _joints(sim: _Simulation) -> list[str]:
    """Describe joints without an actuator, then actuated ones; traits that all of these share are stated once."""
    joints: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []  # subject, details, traits
    lines: list[str] = []
    driven = set()
    for i, signal in enumerate(sim.signals):
        if not word_of(sim.mujoco.mjtTrn, sim.model.actuator_trntype[i]).startswith("joint"):
            lines.append(f"{signal} acts on {_target(sim, i)}: {', '.join(_drive(sim, i, 'force'))}.")
            continue
        joint = int(sim.model.actuator_trnid[i][0])
        driven.add(joint)
        kind = sim.joint_kind(joint)
        traits = (*_drive(sim, i, "force" if kind == "slide" else "torque"), *_resistance(sim, joint))
        subject = f"{signal} drives {kind} {sim.joint_name(joint)}"
        joints.append((subject, _details(sim, joint), traits))
    lines = [*_unactuated_joints(sim, driven), *lines]
    shared: list[str] = []
    if len(joints) > 1:
        # Every joint has a first trait, the actuator's effect, so its most frequent value can be the default.
        all_traits = [traits for *_, traits in joints]
        usual, count = Counter(traits[0] for traits in all_traits).most_common(1)[0]
        shared = [usual] * (count > 1) + [t for t in all_traits[0][1:] if all(t in traits for traits in all_traits)]
        if shared:
            unless = ", unless said otherwise" if 1 < count < len(joints) else ""
            lines.append(f"Every actuated joint{unless}: {', '.join(shared)}.")
    return lines + [
        _sentence(subject, (*(t for t in traits if t not in shared), *details)) for subject, details, traits in joints
    ]


def _sentence(subject: str, details: Sequence[str]) -> str:
    return f"{subject}: {', '.join(details)}." if details else f"{subject}."


def _unactuated_joints(sim: _Simulation, driven: set[int]) -> list[str]:
    """Describe joints without an actuator; those that move a body freely in the world share one line."""
    model = sim.model
    lines = []
    for body in range(1, model.nbody):
        joints = [j for j in range(model.njnt) if model.jnt_bodyid[j] == body and j not in driven]
        if not joints:
            continue
        if model.body_parentid[body] == 0 and (len(joints) > 1 or sim.joint_kind(joints[0]) == "free"):
            motions = ", ".join(_motion(sim, joint) for joint in joints)
            height = _number(round(float(sim.data.xpos[body][2]), 3))
            name = sim.body_name(body)
            lines.append(f"Body {name} has no actuator of its own, starts at height {height} m, and moves: {motions}.")
            continue
        for joint in joints:
            subject = f"No actuator drives {sim.joint_kind(joint)} {sim.joint_name(joint)}"
            lines.append(_sentence(subject, (*_details(sim, joint), *_resistance(sim, joint))))
    return lines


def _motion(sim: _Simulation, joint: int) -> str:
    kind, name = sim.joint_kind(joint), sim.joint_name(joint)
    if kind == "free":
        return f"freely in all directions ({name})"
    if kind == "ball":
        return f"turns freely ({name})"
    axis = sim.data.xaxis[joint]
    resistance = "".join(f", {trait}" for trait in _resistance(sim, joint))
    if kind == "slide":
        place = _number(round(float(sim.data.qpos[sim.model.jnt_qposadr[joint]]), 3))
        return f"along {_direction(axis)} ({name}, {place} in this pose{resistance})"
    return f"turns about {_direction(axis)} ({name}; positive {_sense(axis)}{resistance})"


def _sense(axis: npt.NDArray[np.float64]) -> str:
    """Describe a positive turn about an axis: about +y it `takes z towards x`."""
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


def _details(sim: _Simulation, joint: int) -> tuple[str, ...]:
    model, data, kind = sim.model, sim.data, sim.joint_kind(joint)
    body = int(model.jnt_bodyid[joint])
    details = []
    if kind in ("hinge", "slide"):
        axis = data.xaxis[joint]
        lever = data.subtree_com[body] - data.xanchor[joint]
        motion = np.cross(axis, lever) if kind == "hinge" else axis
        turn = f"axis {_direction(axis)}"
        # A hinge through the centre of mass of what it moves does not move that centre.
        if sim.detail and kind == "hinge" and np.linalg.norm(motion) > 0.01:
            turn += f", positive moves {sim.body_name(body)} towards {_direction(motion)}"
        details.append(turn)
        unit = "rad" if kind == "hinge" else "m"
        if model.jnt_limited[joint]:
            low, high = model.jnt_range[joint]
            details.append(f"range {_number(low)} to {_number(high)} {unit}")
        if sim.detail > 1 and kind == "hinge":
            details.append(f"at {_vector(data.xanchor[joint])} m")
    return tuple(details)


def _resistance(sim: _Simulation, joint: int) -> tuple[str, ...]:
    """Describe damping, armature, stiffness and dry friction of a joint, if any."""
    model = sim.model
    if not sim.detail:
        return ()
    dof = int(model.jnt_dofadr[joint])
    slide = sim.joint_kind(joint) == "slide"
    effort, per = ("N", "m") if slide else ("N m", "rad")
    found = (
        ("damping", model.dof_damping[dof], f"{effort} s/{per}"),
        ("armature", model.dof_armature[dof], "kg" if slide else "kg m^2"),
        ("spring", model.jnt_stiffness[joint], f"{effort}/{per}"),
        ("dry friction", model.dof_frictionloss[dof], effort),
    )
    # A newer MuJoCo has several numbers for a stiffness; the first is the linear one.
    values = [(name, float(np.ravel(value)[0]), unit) for name, value, unit in found]
    return tuple(f"{name} {_number(value)} {unit}" for name, value, unit in values if value > 0)


def _target(sim: _Simulation, actuator: int) -> str:
    """Return the name of the target of an actuator that does not act on a joint."""
    target = int(sim.model.actuator_trnid[actuator][0])
    kind = word_of(sim.mujoco.mjtTrn, sim.model.actuator_trntype[actuator])
    if kind not in ("tendon", "site", "body"):
        return f"target {target}"
    return f"{kind} {getattr(sim.model, kind)(target).name or target}"


def _drive(sim: _Simulation, actuator: int, effort: str) -> tuple[str, ...]:
    """Describe an actuator: its torque or force if it is a plain motor, else `not a plain motor`; then its limits."""
    model, mujoco = sim.model, sim.mujoco
    gain = float(model.actuator_gear[actuator][0]) * float(model.actuator_gainprm[actuator][0])
    unit = "N m" if effort == "torque" else "N"
    types = ("gain", "fixed"), ("bias", "none"), ("dyn", "none")
    plain = all(
        word_of(getattr(mujoco, f"mjt{name.title()}"), getattr(model, f"actuator_{name}type")[actuator]) == value
        for name, value in types
    )
    signal = "control" if sim.signals[actuator].startswith("control[") else "action"
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


def _bodies(sim: _Simulation) -> list[str]:
    """Describe each body's mass and shapes in a line; equal bodies share one."""
    model = sim.model
    alike: dict[str, list[str]] = {}
    for body in range(1, model.nbody):
        shapes = [_shape(sim, geom) for geom in range(model.ngeom) if model.geom_bodyid[geom] == body]
        words = "; ".join(shape for shape in dict.fromkeys(shapes) if shape)
        mass = float(model.body_mass[body])
        if not words and not mass:
            continue
        alike.setdefault(f"{_number(mass)} kg" + (f", {words}" if words else ""), []).append(sim.body_name(body))
    return [f"Body {', '.join(names)}: {'each ' * (len(names) > 1)}{words}." for words, names in alike.items()]


def _shape(sim: _Simulation, geom: int) -> str:
    """Describe the shape and size of a geom; empty for a plane, a mesh and the like."""
    size, kind = sim.model.geom_size[geom], sim.geom_kind(geom)
    positions = sim.detail > 1
    centre = f", centre {_vector(sim.data.geom_xpos[geom])}" if positions else ""
    match kind:
        case "sphere":
            return f"sphere of radius {_number(size[0])} m{centre}"
        case "capsule" | "cylinder":
            axis = sim.data.geom_xmat[geom].reshape(3, 3)[:, 2]
            up = axis if axis[np.argmax(np.abs(axis))] > 0 else -axis
            along = f" along {_direction(up)[1:]}" if positions else ""
            # MuJoCo stores half of the length; a capsule's excludes its round ends.
            return f"{kind} of radius {_number(size[0])} m and length {_number(2 * size[1])} m{along}{centre}"
        case "box" | "ellipsoid":
            return f"{kind} {' x '.join(_number(2 * side) for side in size)} m{centre}"
    return ""


def _floor(sim: _Simulation) -> list[str]:
    """Describe the sliding friction between each plane and the bodies that can touch it."""
    model = sim.model
    lines = []
    for plane in (geom for geom in range(model.ngeom) if sim.geom_kind(geom) == "plane"):
        bodies: dict[str, list[str]] = {}
        for geom in range(model.ngeom):
            body = int(model.geom_bodyid[geom])
            if body == model.geom_bodyid[plane] or not touches(model, plane, geom):
                continue
            # MuJoCo uses the geom with the higher priority; if both have the same, the larger friction.
            highest = max(model.geom_priority[[plane, geom]])
            friction = max(model.geom_friction[g][0] for g in (plane, geom) if model.geom_priority[g] == highest)
            named = bodies.setdefault(_number(friction), [])
            if sim.body_name(body) not in named:
                named.append(sim.body_name(body))
        if bodies:
            common = max(bodies, key=lambda value: len(bodies[value]))
            others = [f"{value} for {', '.join(names)}" for value, names in bodies.items() if value != common]
            height = _number(round(float(sim.data.geom_xpos[plane][2]), 3))
            lines.append(
                f"Floor at z = {height} m: sliding friction coefficient {common}"
                + (f", but {'; '.join(others)}" if others else "")
                + "."
            )
    return lines


def _collisions(sim: _Simulation) -> list[str]:
    """Describe which bodies can collide with one another; `_floor` describes contact with planes."""
    model = sim.model
    solid = [geom for geom in range(model.ngeom) if sim.geom_kind(geom) != "plane"]
    found: dict[tuple[int, int], None] = {}
    for one, other in itertools.combinations(solid, 2):
        bodies = sorted((int(model.geom_bodyid[one]), int(model.geom_bodyid[other])))
        if touches(model, one, other) and _may_collide(sim, *bodies):
            found[bodies[0], bodies[1]] = None
    if not found:
        return ["No two bodies collide with each other."]
    pairs = list(found)[:MOST_COLLISIONS]
    some = [f"{sim.body_name(one)} with {sim.body_name(other)}" for one, other in pairs]
    more = len(found) - len(some)
    return [f"Bodies that can collide: {', '.join(some)}" + (f" and {more} more pairs" if more else "") + "."]


def _may_collide(sim: _Simulation, one: int, other: int) -> bool:
    """Whether two bodies may collide: they can move relative to each other, and the model does not exclude it."""
    model, flag = sim.model, int(sim.mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)
    welded = [int(model.body_weldid[body]) for body in (one, other)]
    parents = [int(model.body_weldid[model.body_parentid[body]]) for body in welded]
    neighbours = (parents[0] == welded[1] or parents[1] == welded[0]) and 0 not in welded
    filtered = neighbours and not int(model.opt.disableflags) & flag
    return welded[0] != welded[1] and not filtered and (one << 16) + other not in model.exclude_signature


def touches(model: Any, one: int, other: int) -> bool:
    """Whether the bit masks of two geoms let them collide."""
    return bool(
        int(model.geom_contype[one]) & int(model.geom_conaffinity[other])
        or int(model.geom_contype[other]) & int(model.geom_conaffinity[one])
    )


def _number(value: float) -> str:
    """Write a number to four significant digits; rounding errors around zero become 0."""
    return f"{0.0 if abs(value) < 1e-9 else float(value):.4g}"


def _vector(values: Iterable[float]) -> str:
    return "(" + ", ".join(_number(round(float(value), 3)) for value in values) + ")"
