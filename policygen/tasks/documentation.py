"""The documentation of an environment: spaces, arguments, docstrings, package description and MuJoCo model."""

from __future__ import annotations

import importlib
import inspect
import itertools
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator

MOST_CHARACTERS = 6_000  # characters of all sections
MOST_OF_FACTS = 5_000  # characters of all facts about a model
SHORT = 1_000  # with fewer characters of docstrings, the whole description of the package is added
MOST_OF_A_VALUE = 120  # characters of an argument or of a space without parts
# Modules whose base classes describe no environment.
_GENERAL = ("builtins", "abc", "typing", "gymnasium.core", "gymnasium.utils", "gymnasium.envs.mujoco.mujoco_env")
# First words of headings of sections that describe no environment.
_IRRELEVANT = (
    *("install", "getting started", "quick", "usage", "using", "example", "licen", "citation", "citing", "cite"),
    *("bibtex", "references", "contribut", "develop", "test", "changelog", "version", "release", "roadmap", "credits"),
    *("acknowledg", "author", "contact", "links", "badges", "contents", "table of contents", "train", "benchmark"),
    *("baseline", "results", "docs", "check out", "visuali", "project link", "render"),
)
# Beginnings of words in the headings of sections that go before others.
_RELEVANT = ("observ", "action", "reward", "state", "terminat", "dynamic")
_LISTINGS = frozenset(
    ("python", "py", "pycon", "bash", "sh", "shell", "console", "zsh")
)  # languages of listings left out
_Section = tuple[int, str]  # the level of the heading, 0 without one; the text


def documentation_of(env: gym.Env[Any, Any]) -> str:
    """Return the documentation of an environment in sections, of at most `MOST_CHARACTERS` in all.

    Each section begins with its title in brackets; the first one has the spaces and the arguments in force. Whole
    sections go before parts of others. Sections whose heading is about other things, such as installing, are left out.
    """
    with suppress(Exception):  # the environment's own code
        own = [f"observation: {_form(env.observation_space)}", f"action: {_form(env.action_space)}", *_arguments(env)]
        found = [("in force", "\n".join(own)), *_documented(env)]
        return _fitting([(title, text) for title, text in found if text])
    return ""


def _documented(env: gym.Env[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of the environment's classes, module and factory, then its package's description."""
    kind = type(env.unwrapped)
    owners: list[tuple[str, Any]] = []
    for owner in kind.__mro__:
        if not owner.__module__.startswith(_GENERAL):
            owners += [(f"class {owner.__name__}", owner), (f"{owner.__name__}.__init__", vars(owner).get("__init__"))]
    owners.append((f"module {kind.__module__}", sys.modules.get(kind.__module__)))
    if env.spec is not None and env.spec.entry_point is not None:
        entry = env.spec.entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        owners += [(f"function {creator.__name__}", creator)] if inspect.isfunction(creator) else []
    found: dict[str, str] = {}  # titles by text, so that no text is repeated
    for title, owner in owners:
        # `__dict__` holds no docstring that is inherited from a base class
        text = owner.__doc__ if inspect.isfunction(owner) else getattr(owner, "__dict__", {}).get("__doc__")
        found.setdefault(_plain(inspect.cleandoc(text or "")), title)
    for text, title in found.items():
        yield from ((title, part) for _, part in _sections(text))
    yield from _description(env, only_named=sum(map(len, found)) >= SHORT)


def _description(env: gym.Env[Any, Any], *, only_named: bool) -> Iterator[tuple[str, str]]:
    """Yield the summary of an environment's package, and the sections of its description that name the environment.

    If it is the package's only one, yield all sections. If no section names it, yield all, or none if `only_named`.
    Leave out what names only other environments.
    """
    kind = type(env.unwrapped)
    module = kind.__module__.partition(".")[0]
    own = {kind.__name__, *([env.spec.id.rpartition("/")[2]] if env.spec is not None else [])}
    entries = {spec.id.rpartition("/")[2]: str(spec.entry_point) for spec in gym.registry.values()}
    of_package = {name: entry for name, entry in entries.items() if entry.startswith((f"{module}.", f"{module}:"))}
    # `module:Class` registers the class under its name; the package may have others that are not registered.
    alone = len({*of_package.values()}) == 1 and kind.__name__ not in of_package
    for package in metadata.packages_distributions().get(module, [])[:1]:
        about = metadata.metadata(package).json
        sections = _sections(_plain(str(about.get("description", ""))))
        shown = sections
        if not alone:
            named = _within(sections, lambda _, text: any(name in text for name in own))
            shown = list(itertools.compress(sections, named)) or ([] if only_named else sections)
        parts = [str(about.get("summary", "")), *(_without(text, {*of_package} - own, own) for _, text in shown)]
        yield from ((f"package {package}", part) for part in parts if part and shown)


def _without(text: str, others: Collection[str], own: Collection[str]) -> str:
    """Return a text without its rows, items and paragraphs that name one of `others` but none of `own`."""

    def is_kept(part: str) -> bool:
        return any(name in part for name in own) or not any(name in part for name in others)

    paragraphs = (
        part.splitlines() if part.lstrip().startswith(("|", "-", "*")) else [part] for part in text.split("\n\n")
    )
    return "\n\n".join(filter(None, ("\n".join(filter(is_kept, parts)) for parts in paragraphs)))


def _sections(text: str) -> list[_Section]:
    """Return the sections of a Markdown text, without listings of commands or Python and headings in `_IRRELEVANT`."""
    parts: list[tuple[int, list[str]]] = [(0, [])]
    in_code, language = False, ""
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
            ended, language = language, line[3:].strip().lower() if in_code else ""
            if ended in _LISTINGS:  # the closing fence of a listing that was left out
                continue
        if language in _LISTINGS:
            continue
        level = 0 if in_code else len(line) - len(line.lstrip("#"))
        if level:
            parts.append((level, []))
        if in_code or not line.lstrip().startswith(("[![", "![", "<")):  # without badges and pictures
            parts[-1][1].append(line)
    found = [(level, "\n".join(lines)) for level, lines in parts]

    def is_irrelevant(level: int, section: str) -> bool:
        heading = "".join(itertools.dropwhile(lambda c: not c.isalpha(), section.partition("\n")[0].lower()))
        return level > 0 and heading.startswith(_IRRELEVANT)

    kept = [part for part, irrelevant in zip(found, _within(found, is_irrelevant), strict=True) if not irrelevant]
    return [(level, plain) for level, section in kept if (plain := _plain(section))]


def _within(sections: Sequence[_Section], holds: Callable[[int, str], bool]) -> Iterator[bool]:
    """Yield for each section whether a condition holds for it, or for a section that contains it."""
    above: int | None = None
    for level, text in sections:
        if above is not None and level <= above:
            above = None
        if above is None and holds(level, text):
            above = level
        yield above is not None


def _arguments(env: gym.Env[Any, Any]) -> list[str]:
    """Return the call that makes the environment, as in `Room(outside=5.0, size=3)`, with defaults except None."""
    kind, given = type(env.unwrapped), dict(env.spec.kwargs) if env.spec is not None else {}
    values = {name: one.default for name, one in inspect.signature(kind).parameters.items()} | given
    shown = [f"{name}={_short(v)}" for name, v in values.items() if v is not None and v is not inspect.Parameter.empty]
    lines = [f"{kind.__name__}({', '.join(shown)})"] if shown else []
    for name in ("dt", "tau"):  # which may or may not be the length of a step
        with suppress(Exception):  # the environment's own code
            value = getattr(env.unwrapped, name)
            if isinstance(value, int | float) and name not in values:
                lines.append(f"attribute {name} = {value:.6g} (unit not stated)")
    return lines


def _form(space: gym.Space[Any]) -> str:
    """Describe a space without the bounds of a Box, which prompts give with each quantity."""
    match space:
        case spaces.Dict():
            return f"Dict({', '.join(f'{key!r}: {_form(part)}' for key, part in space.items())})"
        case spaces.Tuple():
            return f"Tuple({', '.join(map(_form, space))})"
        case spaces.Box():
            return f"Box of shape {space.shape}"
    return _short(space)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST_OF_A_VALUE else f"{text[: MOST_OF_A_VALUE - 4]} ..."


def _plain(text: str) -> str:
    """Return a text without control characters, runs of empty lines and trailing spaces."""
    lines = ["".join(c for c in line.expandtabs() if c.isprintable()).rstrip() for line in text.splitlines()]
    return "\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before).strip("\n")


def _describes(text: str) -> bool:
    """Whether a section's heading says that it describes the environment."""
    heading = text.partition("\n")[0].lower()
    return heading.startswith("#") and any(word.startswith(_RELEVANT) for word in heading.split())


def _fitting(sections: Sequence[tuple[str, str]]) -> str:
    """Return the sections that fit, in order, and the beginnings of others in the remaining room.

    The first section has priority, then those with a heading in `_RELEVANT`.
    """
    first = [i == 0 or _describes(text) for i, (_, text) in enumerate(sections)]
    room, shown = MOST_CHARACTERS, dict[int, str]()
    for whole, only_first in ((True, True), (True, False), (False, True), (False, False)):
        for i, (title, text) in enumerate(sections):
            needed = len(title) + 4
            if i in shown or first[i] < only_first or (whole and needed + len(text) > room) or needed >= room:
                continue
            kept = text if needed + len(text) <= room else f"{text[: room - needed - 4].rpartition(chr(10))[0]}\n..."
            shown[i] = kept
            room -= needed + len(kept)
    titled = itertools.groupby(sorted(shown), lambda i: sections[i][0])  # parts of a text share a title
    return "\n".join(f"[{title}]\n" + "\n".join(map(shown.__getitem__, parts)) for title, parts in titled)


def has_model(env: gym.Env[Any, Any]) -> bool:
    """Whether the environment has a MuJoCo model."""
    return all(hasattr(getattr(env.unwrapped, "model", None), name) for name in ("opt", "nbody", "actuator_gear"))


def step_seconds_of(env: gym.Env[Any, Any]) -> float | None:
    """Return the length of a step in seconds: the MuJoCo model's time step times `frame_skip`; None without a model."""
    with suppress(Exception):  # the environment's own code
        if has_model(env) and isinstance(skip := env.unwrapped.frame_skip, int):  # type: ignore[attr-defined]
            return float(env.unwrapped.model.opt.timestep) * skip  # type: ignore[attr-defined]
    return None


def model_facts(env: gym.Env[Any, Any], actions: Sequence[str]) -> tuple[str, ...]:
    """Describe the time step, gravity, actuators, joints and masses of a MuJoCo model in SI units, a sentence each.

    Without a model, or if it cannot be read, there are no sentences.

    Args:
        actions: the task's names of the components of an action, in order.
    """
    lines: list[str] = []
    with suppress(Exception):  # facts are optional, and a user's model may be incomplete
        lines = list(_sentences(env, actions)) if has_model(env) else []
    kept = [
        line for line, end in zip(lines, itertools.accumulate(map(len, lines)), strict=True) if end <= MOST_OF_FACTS
    ]
    more = len(lines) - len(kept)
    return (*kept, f"({more} more facts of the model are left out.)") if more else tuple(kept)


def _sentences(env: gym.Env[Any, Any], actions: Sequence[str]) -> Iterator[str]:
    model: Any = env.unwrapped.model  # type: ignore[attr-defined]
    mujoco = importlib.import_module("mujoco")  # an optional extra; installed if there is a model
    step = float(model.opt.timestep)
    if (seconds := step_seconds_of(env)) is not None:
        yield f"One step lasts {_number(seconds)} s ({round(seconds / step)} x {_number(step)} s of simulation)."
    gravity = ", ".join(map(_number, model.opt.gravity))
    yield f"Gravity is ({gravity}) m/s^2 along (x, y, z); the total mass is {_number(model.body_mass.sum())} kg."
    space = env.action_space
    # If the ranges differ, the environment transforms actions before they become inputs of actuators.
    direct = (
        isinstance(space, gym.spaces.Box)
        and space.shape == (model.nu,) == (len(actions),)
        and np.allclose(np.stack([space.low, space.high], 1), model.actuator_ctrlrange)
    )
    driven = set[int]()
    for i in range(model.nu):
        signal = actions[i] if direct else f"control[{i}]"
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
    """Describe the force or torque of an actuator, if it is a plain motor."""
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
