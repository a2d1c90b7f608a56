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
_LEFT_OUT = ("positions, damping, friction, armature, springs and directions of hinges", "positions", "")


def has_model(env: gym.Env[Any, Any]) -> bool:
    """Whether the environment has a MuJoCo model."""
    return all(hasattr(getattr(env.unwrapped, "model", None), name) for name in ("opt", "nbody", "actuator_gear"))


def model_facts(env: gym.Env[Any, Any], actions: Sequence[str], detail: int) -> list[str]:
    """Reset an environment and describe its model in the initial pose, most useful sentences first.

    Args:
        actions: the task's names of the components of an action, in order; `action[i]` if missing.
        detail: 2 for everything; 1 without positions; 0 also without damping, armature, springs and dry friction, and
            without the direction in which a hinge moves its body.
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
        isinstance(space, gym.spaces.Box)
        and space.shape == (model.nu,)
        and np.allclose(np.stack([space.low, space.high], 1), model.actuator_ctrlrange)
    ):
        return tuple(actions) if len(actions) == model.nu else tuple(f"action[{i}]" for i in range(model.nu))
    return tuple(f"control[{i}]" for i in range(model.nu))


def _summary(sim: _Simulation, frame_skip: int) -> list[str]:
    model = sim.model
    step = float(model.opt.timestep)
    lines = [f"One step lasts {_number(step * frame_skip)} s ({frame_skip} x {_number(step)} s of simulation)."]
    pulls = np.any(model.opt.gravity) and not model.opt.disableflags & int(sim.mujoco.mjtDisableBit.mjDSBL_GRAVITY)
    gravity = f"gravity {_vector(model.opt.gravity)} m/s^2" if pulls else "no gravity"
    lines.append(f"Axes are (x, y, z), z upwards; {gravity}; total mass {_number(model.body_mass.sum())} kg.")
    if model.opt.density > 0 or model.opt.viscosity > 0:
        density, viscosity = _number(model.opt.density), _number(model.opt.viscosity)
        lines.append(f"Everything moves in a fluid of density {density} kg/m^3 and viscosity {viscosity} Pa s.")
    return lines


def _joints(sim: _Simulation) -> list[str]:
    """Describe joints without an actuator, then actuated ones; traits that all of these share are stated once."""
    joints: list[tuple[str, list[str], list[str]]] = []  # subject, traits, details
    lines: list[str] = []
    driven = set()
    for i, signal in enumerate(sim.signals):
        acts_on, target = word_of(sim.mujoco.mjtTrn, sim.model.actuator_trntype[i]), int(sim.model.actuator_trnid[i][0])
        if acts_on.startswith("joint"):
            driven.add(target)
            kind = sim.joint_kind(target)
            traits = _drive(sim, i, "force" if kind == "slide" else "torque") + _resistance(sim, target)
            joints.append((f"{signal} drives {kind} {sim.joint_name(target)}", traits, _details(sim, target)))
        else:
            named = acts_on in ("tendon", "site", "body")
            what = f"{acts_on} {getattr(sim.model, acts_on)(target).name or target}" if named else f"target {target}"
            lines.append(_sentence(f"{signal} acts on {what}", _drive(sim, i, "force")))
    lines = [*_unactuated_joints(sim, driven), *lines]
    shared: list[str] = []
    if len(joints) > 1:
        # Every joint has a first trait, the actuator's effect, so its most frequent value can be the default.
        all_traits = [traits for _, traits, _ in joints]
        usual, count = Counter(traits[0] for traits in all_traits).most_common(1)[0]
        shared = [usual] * (count > 1) + [t for t in all_traits[0][1:] if all(t in traits for traits in all_traits)]
        if shared:
            unless = ", unless said otherwise" if 1 < count < len(joints) else ""
            lines.append(f"Every actuated joint{unless}: {', '.join(shared)}.")
    return lines + [
        _sentence(subject, [*(t for t in traits if t not in shared), *details]) for subject, traits, details in joints
    ]


def _sentence(subject: str, details: Sequence[str]) -> str:
    return f"{subject}: {', '.join(details)}." if details else f"{subject}."


def _unactuated_joints(sim: _Simulation, driven: set[int]) -> list[str]:
    """Describe joints without an actuator; those that move a body freely in the world share one line."""
    model = sim.model
    lines = []
    for body in range(1, model.nbody):
        joints = [j for j in range(model.njnt) if model.jnt_bodyid[j] == body and j not in driven]
        if joints and model.body_parentid[body] == 0 and (len(joints) > 1 or sim.joint_kind(joints[0]) == "free"):
            motions = ", ".join(_motion(sim, joint) for joint in joints)
            height = _number(round(float(sim.data.xpos[body][2]), 3))
            name = sim.body_name(body)
            lines.append(f"Body {name} has no actuator of its own, starts at height {height} m, and moves: {motions}.")
        else:
            for joint in joints:
                subject = f"No actuator drives {sim.joint_kind(joint)} {sim.joint_name(joint)}"
                lines.append(_sentence(subject, _details(sim, joint) + _resistance(sim, joint)))
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
    main = int(np.argmax(np.abs(axis)))
    first, second = ("yz", "zx", "xy")[main] if axis[main] > 0 else ("zy", "xz", "yx")[main]
    return f"turns about {_direction(axis)} ({name}; positive takes {first} towards {second}{resistance})"


def _direction(vector: npt.NDArray[np.float64]) -> str:
    """Name the main axes of a direction: `+x`, `-y+z` and so on."""
    unit = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return "".join(
        f"{'+' if part > 0 else '-'}{axis}" for axis, part in zip("xyz", unit, strict=True) if abs(part) > 0.3
    )


def _details(sim: _Simulation, joint: int) -> list[str]:
    """Describe the axis, range and place of a hinge, or the axis and range of a slide."""
    model, data, kind = sim.model, sim.data, sim.joint_kind(joint)
    if kind not in ("hinge", "slide"):
        return []
    body = int(model.jnt_bodyid[joint])
    axis = data.xaxis[joint]
    details = [f"axis {_direction(axis)}"]
    # A hinge through the centre of mass of what it moves does not move that centre.
    motion = np.cross(axis, data.subtree_com[body] - data.xanchor[joint])
    if sim.detail and kind == "hinge" and np.linalg.norm(motion) > 0.01:
        details.append(f"positive moves {sim.body_name(body)} towards {_direction(motion)}")
    if model.jnt_limited[joint]:
        low, high = map(_number, model.jnt_range[joint])
        details.append(f"range {low} to {high} {'rad' if kind == 'hinge' else 'm'}")
    if sim.detail > 1 and kind == "hinge":
        details.append(f"at {_vector(data.xanchor[joint])} m")
    return details


def _resistance(sim: _Simulation, joint: int) -> list[str]:
    """Describe damping, armature, stiffness and dry friction of a joint, if any."""
    model = sim.model
    if not sim.detail:
        return []
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
    return [f"{name} {_number(value)} {unit}" for name, value, unit in values if value > 0]


def _drive(sim: _Simulation, actuator: int, effort: str) -> list[str]:
    """Describe an actuator: its torque or force if it is a plain motor, else `not a plain motor`; then its limits."""
    model = sim.model
    unit = "N m" if effort == "torque" else "N"
    signal = "control" if sim.signals[actuator].startswith("control[") else "action"
    types = model.actuator_gaintype, model.actuator_biastype, model.actuator_dyntype
    if not any(kind[actuator] for kind in types):  # 0 is a fixed gain, no bias, and no dynamics
        gain = float(model.actuator_gear[actuator][0]) * float(model.actuator_gainprm[actuator][0])
        traits = [f"{effort} = {_number(gain)} {unit} x {signal}"]
    else:
        # With an affine bias, the second number is the negative stiffness of a position servo.
        stiffness = -float(model.actuator_biasprm[actuator][1])
        servo = f" but a servo that holds a position with {_number(stiffness)} {unit} a unit" if stiffness > 0 else ""
        traits = [f"not a plain motor{servo}"]
    if model.actuator_ctrllimited[actuator]:
        low, high = map(_number, model.actuator_ctrlrange[actuator])
        traits.append(f"{signal} {low} to {high}")
    if model.actuator_forcelimited[actuator]:
        low, high = map(_number, model.actuator_forcerange[actuator])
        traits.append(f"limited to {low} to {high} before the gear")
    return traits


def _bodies(sim: _Simulation) -> list[str]:
    """Describe each body's mass and shapes in a line; equal bodies share one."""
    model = sim.model
    alike: dict[str, list[str]] = {}
    for body in range(1, model.nbody):
        shapes = [_shape(sim, geom) for geom in range(model.ngeom) if model.geom_bodyid[geom] == body]
        words = "; ".join(shape for shape in dict.fromkeys(shapes) if shape)
        mass = float(model.body_mass[body])
        if words or mass:
            alike.setdefault(f"{_number(mass)} kg" + (f", {words}" if words else ""), []).append(sim.body_name(body))
    return [f"Body {', '.join(names)}: {'each ' * (len(names) > 1)}{words}." for words, names in alike.items()]


def _shape(sim: _Simulation, geom: int) -> str:
    """Describe the shape and size of a geom; empty for a plane, a mesh and the like."""
    size, kind = sim.model.geom_size[geom], sim.geom_kind(geom)
    centre = f", centre {_vector(sim.data.geom_xpos[geom])}" if sim.detail > 1 else ""
    match kind:
        case "sphere":
            return f"sphere of radius {_number(size[0])} m{centre}"
        case "capsule" | "cylinder":
            axis = sim.data.geom_xmat[geom].reshape(3, 3)[:, 2]
            up = axis if axis[np.argmax(np.abs(axis))] > 0 else -axis
            along = f" along {_direction(up)[1:]}" if sim.detail > 1 else ""
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
        bodies: dict[str, dict[str, None]] = {}  # the names of bodies, by their friction
        for geom in range(model.ngeom):
            body = int(model.geom_bodyid[geom])
            if body == model.geom_bodyid[plane] or not touches(model, plane, geom):
                continue
            # MuJoCo uses the geom with the higher priority; if both have the same, the larger friction.
            highest = max(model.geom_priority[[plane, geom]])
            friction = max(model.geom_friction[g][0] for g in (plane, geom) if model.geom_priority[g] == highest)
            bodies.setdefault(_number(friction), {})[sim.body_name(body)] = None
        if bodies:
            common = max(bodies, key=lambda value: len(bodies[value]))
            others = [f"{value} for {', '.join(names)}" for value, names in bodies.items() if value != common]
            height = _number(round(float(sim.data.geom_xpos[plane][2]), 3))
            but = f", but {'; '.join(others)}" if others else ""
            lines.append(f"Floor at z = {height} m: sliding friction coefficient {common}{but}.")
    return lines


def _collisions(sim: _Simulation) -> list[str]:
    """Describe which bodies can collide with one another; `_floor` describes contact with planes."""
    model = sim.model
    solid = [geom for geom in range(model.ngeom) if sim.geom_kind(geom) != "plane"]
    touching = (pair for pair in itertools.combinations(solid, 2) if touches(model, *pair))
    bodies = dict.fromkeys(tuple(sorted(int(model.geom_bodyid[geom]) for geom in pair)) for pair in touching)
    found = [f"{sim.body_name(one)} with {sim.body_name(two)}" for one, two in bodies if _may_collide(sim, one, two)]
    if not found:
        return ["No two bodies collide with each other."]
    more = len(found) - MOST_COLLISIONS
    some = ", ".join(found[:MOST_COLLISIONS])
    return [f"Bodies that can collide: {some}{f' and {more} more pairs' if more > 0 else ''}."]


def _may_collide(sim: _Simulation, one: int, other: int) -> bool:
    """Whether two bodies may collide: they can move relative to each other, and the model does not exclude it."""
    model = sim.model
    welded = [int(model.body_weldid[body]) for body in (one, other)]
    parents = [int(model.body_weldid[model.body_parentid[body]]) for body in welded]
    neighbours = (parents[0] == welded[1] or parents[1] == welded[0]) and 0 not in welded
    filtered = neighbours and not model.opt.disableflags & int(sim.mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)
    return welded[0] != welded[1] and not filtered and (one << 16) + other not in model.exclude_signature


def touches(model: Any, one: int, other: int) -> bool:
    """Whether the bit masks of two geoms let them collide."""
    types, affinities = model.geom_contype, model.geom_conaffinity
    return bool(types[one] & affinities[other] or types[other] & affinities[one])


def _number(value: float) -> str:
    """Write a number to four significant digits; rounding errors around zero become 0."""
    return f"{0.0 if abs(value) < 1e-9 else float(value):.4g}"


def _vector(values: Iterable[float]) -> str:
    return "(" + ", ".join(_number(round(float(value), 3)) for value in values) + ")"
