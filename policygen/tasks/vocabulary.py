"""Short names for observations and actions, from the tables and lists of an environment's documentation."""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym

from policygen.quantities.text import slug
from policygen.tasks.documentation import Section, choices, numbered, without_markup
from policygen.tasks.spaces import Actuator, Observation

_LONGEST = 26  # characters of a name from a description; instead of a longer one, the MuJoCo model's name is used
_UNITS = ("rad/s", "m/s", "rad", "m", "N m", "N")

# Name, unit and meaning of observations that Gymnasium documents in prose.
_IN_PROSE: dict[str, tuple[tuple[str, str, str], ...]] = {
    "LunarLander": (
        ("x", "", "horizontal place, 0 is the middle of the pad, positive to the right"),
        ("y", "", "height above the pad"),
        ("vx", "", "horizontal velocity"),
        ("vy", "", "vertical velocity, positive upwards"),
        ("angle", "rad", "of the lander, positive leans to the left"),
        ("spin", "", "angular velocity, positive turns to the left"),
        ("leg1", "", "1 while the left leg touches the ground"),
        ("leg2", "", "1 while the right leg touches the ground"),
    ),
    "BipedalWalker": (
        ("lean", "rad", "angle of the hull, positive leans back"),
        ("lean_rate", "", "angular velocity of the hull"),
        ("vx", "", "forward velocity"),
        ("vz", "", "vertical velocity"),
        *(
            line
            for leg in (1, 2)
            for line in (
                (f"hip{leg}", "rad", f"angle of hip {leg}"),
                (f"hip{leg}_rate", "", f"speed of hip {leg}"),
                (f"knee{leg}", "rad", f"angle of knee {leg}, plus 1"),
                (f"knee{leg}_rate", "", f"speed of knee {leg}"),
                (f"contact{leg}", "", f"1 while foot {leg} touches the ground"),
            )
        ),
        *((f"lidar{i}", "", f"distance to the ground ahead, ray {i} of 0 (down) to 9 (ahead)") for i in range(10)),
    ),
}
_ACTIONS_IN_PROSE: dict[str, tuple[tuple[str, str], ...]] = {
    "LunarLander": (
        ("main", "main engine, on above 0"),
        ("side", "below -0.5 left, above 0.5 right orientation engine"),
    ),
    "BipedalWalker": tuple(
        (f"{joint}{leg}_drive", f"motor of {joint} {leg}") for leg in (1, 2) for joint in ("hip", "knee")
    ),
}


def named_observations(
    found: Sequence[Observation], section: Section | None, starting: Section | None, env: gym.Env[Any, Any]
) -> tuple[list[Observation], bool]:
    """Return observations with names, units and meanings from the documentation, and whether all are documented.

    Args:
        section: the section on the observation space.
        starting: the section on the starting state.
    """
    family = _IN_PROSE.get(type(env.unwrapped).__name__, ())
    if len(family) == len(found):
        pairs = zip(found, family, strict=True)
        return [replace(o, name=name, unit=unit, about=about) for o, (name, unit, about) in pairs], True
    rows = numbered(section, len(found)) if section else []
    if not rows and starting:  # a table with a row per observation, without numbers
        for table in starting.tables:
            if len(table) == len(found) and all("observation" in row for row in table):
                rows = list(table)
    names = _distinct(rows)
    named = [
        replace(o, name=name, unit=_unit(row), about=_with_body(_meaning(row.get("observation", ""), row), row, env))
        for o, name, row in zip(found, names, rows, strict=False)
    ]
    rest = _named_per_body(found[len(named) :], env) if rows else []
    named += [o for o in rest if o.name not in names]
    if len({o.name for o in named}) < len(found):
        return list(found), False
    return named, bool(len(rows) == len(found) or rest)


def _meaning(text: str, row: Mapping[str, str]) -> str:
    """Return the description in a table row, followed by the joint's name in the MuJoCo model, which the facts use."""
    about, model = without_markup(text), _model_name(row)
    about += ", part of a unit quaternion" * ("-orientation" in about)
    return f"{about} ({model})" if model and model not in about else about


def _with_body(about: str, row: Mapping[str, str], env: gym.Env[Any, Any]) -> str:
    """Add to a meaning the name of the body, if the joint connects it to the world and the meaning lacks the name."""
    model, joint = getattr(env.unwrapped, "model", None), _model_name(row)
    try:
        body = model.body(int(model.joint(joint).bodyid[0]))  # type: ignore[union-attr]
    except (AttributeError, KeyError, TypeError):  # no model, or no joint of this name
        return about
    name, stem = str(body.name), re.sub(r"_link$|\d+$", "", body.name)
    if int(body.parentid[0]) or not name or any(word in about.lower() for word in (name.lower(), stem.lower())):
        return about
    return about.replace(f"({joint})", f"({joint}, of body {name})") if stem != "body" else about


def _model_name(row: Mapping[str, str]) -> str:
    """Return the name in the MuJoCo model of what a table row is about; empty if the row has none."""
    found = re.match(r"[A-Za-z]\w*", row.get("name (in corresponding xml file)", ""))
    return found[0] if found and found[0] not in ("NA", "cos", "sin") else ""


def _unit(row: Mapping[str, str]) -> str:
    if "-orientation" in row.get("observation", ""):  # a quaternion, which the table calls an angle
        return ""
    text = next((value for key, value in row.items() if key.startswith(("type", "unit"))), "")
    unit = next((unit for unit in _UNITS if f"({unit})" in text), "")
    # One table gives joint speeds the unit rad.
    return "rad/s" if unit == "rad" and "velocity" in row.get("observation", "").lower() else unit


def _observation_name(row: Mapping[str, str]) -> str:
    name = _name_from(row["observation"])
    model = re.sub(r"_joint$", "", _model_name(row))
    if len(name) > _LONGEST and model and not model.startswith("root"):
        velocity = "velocity" in row["observation"].lower()
        shape = re.match(r"(cos|sin)\((\w+)\)", row.get("name (in corresponding xml file)", ""))
        return f"{shape[1]}_{shape[2]}" if shape else f"{model}_{'rate' if velocity else 'angle'}"
    return name


def _name_from(text: str) -> str:
    """Convert a description to a name: "angular velocity of the thigh hinge" is `thigh_rate`."""
    text = re.sub(r"\s=\s.*", "", re.sub(r"\(.*?\)", "", without_markup(text).replace("`", "")).lower())
    text = re.sub(r"\b([wxyz])-(?:coordinate|value)\b", r"\1", text)
    text = re.sub(r"\balong the .*| on the cart$", "", text)
    outer, _, inner = text.partition(" of ")
    if inner and (short := {"cosine": "cos", "sine": "sin"}.get(outer.strip())):
        return slug(f"{short}_{_name_from(inner)}")
    if inner:
        text = f"{_name_from(inner)} {outer}"
    text = re.sub(r"angle[ _]angular velocity", "rate", text.replace("_", " "))
    if inner or "coordinate" in text:
        text = text.replace("angular velocity", "rate")
    return slug(" ".join(word for word in text.split() if word not in _DROPPED))


_DROPPED = {"the", "a", "an", "of", "in", "to", "on", "be", "that", "joint", "hinge", "rotor"}


def _distinct(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a name per table row; a repeated one is made distinct by its axis or by the name of its joint."""
    names = [_observation_name(row) for row in rows]
    joints: dict[str, str] = {}
    result: list[str] = []
    for name, row in zip(names, rows, strict=True):
        model = _model_name(row)
        axis = re.search(r"along the ([xyz])-axis", row["observation"])
        if names.count(name) > 1 and axis:
            name = f"{name}_{axis[1]}"
        elif names.count(name) > 1 and model in joints:
            name = f"{joints[model]}_{name.rsplit('_', 1)[-1]}"
        elif name.endswith("_angle"):
            joints.setdefault(model, name.removesuffix("_angle"))
        result.append(name)
    return result


# The observed quantities of bodies: the word for each, and its components (MuJoCo has rotations first).
_PARTS = {
    "cfrc_ext": ("contact", "torque_x torque_y torque_z force_x force_y force_z"),
    "cvel": ("speed", "spin_x spin_y spin_z vx vy vz"),
    "cinert": ("inertia", "0 1 2 3 4 5 6 7 8 9"),
}
_EFFORT = "force of the actuator on the joint"
# Matches the `about` of observations that follow from positions and velocities; group 1 is their body, if any.
DERIVED = re.compile(rf"(?:{'|'.join(_PARTS)}) of body (\w+)(?=:|$)|{_EFFORT}$")


def _named_per_body(found: Sequence[Observation], env: gym.Env[Any, Any]) -> list[Observation]:
    """Return a MuJoCo environment's last observations, forces and motions of bodies, with names; empty if unclear."""
    base: Any = env.unwrapped
    structure = getattr(base, "observation_structure", None)
    if not found or not isinstance(structure, dict):
        return []
    bodies = [str(base.model.body(i).name or f"body{i}") for i in range(1, base.model.nbody)]
    named: list[tuple[str, str]] = []
    for part, size in structure.items():
        if part in _PARTS:
            word, components = _PARTS[part]
            units = ": contact torque in N m and force in N" * (part == "cfrc_ext")
            both = itertools.product(bodies, components.split())
            some = [(slug(f"{body}_{word}_{one}"), f"{part} of body {body}{units}") for body, one in both]
            named += some if len(some) == size else []
        elif part == "qfrc_actuator" and size:
            first = base.model.nv - size
            joints = [int(base.model.dof_jntid[i]) for i in range(first, base.model.nv)]
            named += [(slug(f"{base.model.joint(j).name}_effort"), _EFFORT) for j in joints]
    if len(named) != len(found):
        return []
    return [replace(o, name=name, about=about) for o, (name, about) in zip(found, named, strict=True)]


def named_actuators(
    actuators: Sequence[Actuator], section: Section | None, taken: Sequence[str], env: gym.Env[Any, Any]
) -> tuple[tuple[Actuator, ...], bool]:
    """Return actuators with names and labels from the documentation, and whether it has them.

    Args:
        section: the section on the action space.
        taken: names already in use; if the documentation repeats one of them, none of its names is used.
    """
    unnamed, count = tuple(actuators), len(actuators)
    used = {name.lower() for name in taken}
    if count == 1 and actuators[0].is_choice:
        texts = choices(section, len(actuators[0].labels)) if section else None
        labels = _labels(texts) if texts else []
        if not texts or not labels or {label.lower() for label in labels} & used:
            return unnamed, False
        about = "; ".join(f"{i}: {text}" for i, text in enumerate(texts)) if any(map(_says_more, texts, labels)) else ""
        return (replace(actuators[0], labels=tuple(labels), about=about),), True
    if any(actuator.is_choice for actuator in actuators):
        return unnamed, False
    pairs = _ACTIONS_IN_PROSE.get(type(env.unwrapped).__name__, ())
    if len(pairs) != count:
        rows = numbered(section, count) if section else []
        pairs = tuple((_effort_name(row), _meaning(row.get("action", ""), row)) for row in rows)
    names = {name.lower() for name, _ in pairs}
    if len(pairs) != count or len(names) < count or names & used:
        return unnamed, False
    return tuple(replace(a, name=name, about=about) for a, (name, about) in zip(actuators, pairs, strict=True)), True


def _says_more(text: str, label: str) -> bool:
    """Whether a description says more than its label and one word such as "Move" or "engine"."""
    return "(" in text or len(set(re.findall(r"\w+", text.lower())) - set(label.split("_"))) > 1


def _effort_name(row: Mapping[str, str]) -> str:
    """Return the name of an actuator from its table row, such as `thigh_torque`."""
    text = without_markup(row.get("action", "")).lower()
    kind = "force" if "force" in text or "(N)" in "".join(row.values()) else "torque"
    part = re.sub(r"\(.*?\)|\b(torque|force) applied (on|at)\b", "", text)
    words = [word for word in part.split() if word not in _DROPPED | {"torque", "force"}]
    name = slug(" ".join(words)) if words else ""
    if len(name) > _LONGEST - len(kind) or "coordinate" in name:
        name = re.sub(r"_joint$", "", _model_name(row)) or name
    return slug(f"{name}_{kind}") if name else kind


def _labels(texts: Sequence[str]) -> list[str]:
    """Return a label per choice, made of the words in which the descriptions differ; empty if labels are unclear."""
    parts = []
    for text in texts:
        text = re.sub(r"-(\d)", r"minus \1", re.sub(r"\(.*?\)|'", "", text.lower()))
        parts.append([w for w in re.findall(r"[a-z0-9]+", text) if w not in {"the", "a", "to", "cart"}])
    while all(len(words) > 1 for words in parts) and len({words[0] for words in parts}) == 1:
        parts = [words[1:] for words in parts]
    shared = 0
    while all(len(words) > shared + 1 for words in parts) and len({words[-1 - shared] for words in parts}) == 1:
        shared += 1
    end = parts[0][-shared:] if shared else []
    parts = [words[: len(words) - shared] for words in parts]
    if end and any(words[-1].isdigit() for words in parts):  # "-1 torque to the joint" and "0 torque to the joint"
        parts = [[end[0], *words] for words in parts]
    labels = ["_".join(words[:3]) for words in parts]
    usable = all(label.isidentifier() and not keyword.iskeyword(label) for label in labels)
    return labels if usable and len(set(labels)) == len(labels) else []
