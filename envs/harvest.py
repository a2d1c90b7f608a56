"""Write task files from Gymnasium's documentation and simulators; for developers, when Gymnasium changes.

    python envs/harvest.py [ID | NAME.toml ...]

It writes `envs/gymnasium/ID.toml` for each id, and renews the facts and heights of tasks of MuJoCo written by hand,
below the line `MARK` of `envs/NAME.toml`; by default for all `IDS` and all tasks. Docstrings are read by patterns made
for Gymnasium's own: look at the difference before you commit it. What they read wrongly is in `CORRECTIONS`.
"""

from __future__ import annotations

import inspect
import itertools
import keyword
import math
import re
import sys
import textwrap
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import numpy.typing as npt
import tomli_w

from policygen.quantities.grid import Grid
from policygen.quantities.text import slug
from policygen.tasks.documentation import has_model
from policygen.tasks.environments import make, make_env
from policygen.tasks.load import task_from_file, task_from_gym
from policygen.tasks.spaces import Actuator, Height, Observation
from policygen.tasks.task import Task
from policygen.tasks.taskfile import draft_of

FOLDER = Path(__file__).parent / "gymnasium"
MARK = "# From here on written by envs/harvest.py, from Gymnasium and its simulator."
IDS = (
    *("CartPole-v0", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"),
    *("LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3"),
    *("Blackjack-v1", "FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1", "Taxi-v4"),
    *("Reacher-v5", "Pusher-v5", "InvertedPendulum-v5", "InvertedDoublePendulum-v5", "HalfCheetah-v5", "Hopper-v5"),
    *("Swimmer-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5", "HumanoidStandup-v5"),
)
# What is wrong in the files, because the documentation is wrong or was read wrongly: a pattern, and what is right.
_LEGS = (("front right", "2", "back left"), ("back left", "3", "back right"), ("back right", "4", "front right"))
CORRECTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    # Seen along +x, the way it walks.
    "Ant": tuple((rf"{said}([^\n]*_{leg}\))", rf"{right}\1") for said, leg, right in _LEGS),
    "Walker2d": (
        (r'the \(front\) \\"tip\\"', "the torso"),
        (r"of the (thigh|leg|foot) hinge \((thigh|leg|foot)_left", r"of the left \1 hinge (\2_left"),
    ),
    "CartPole": (
        (r" The default reward threshold is 500 .*", ""),  # it is 475 and 195
        (r"This environment corresponds to the version[^.]*\.\n", ""),
        (r"\n\nObservation Space:\nNote: While the ranges(.|\n)*?\(or ±12°\)\n", "\n"),  # the end of an episode says it
    ),
    "Reacher": (("so dt = 5", "so dt = 2"),),
    "Pusher": (
        (r"P_fingertip - P_target", "P_fingertip - P_object"),
        (r"fingertip is further away from the target", "fingertip is further away from the object"),
        (r"arm is 0 in all 6 parts", "arm is 0 in all 7 parts"),
    ),
    "LunarLander": (
        (r"is greater than 1\)", "is not between -1 and 1)"),
        (r"collide with any other body:", "collide with any other body."),
    ),
    "Blackjack": (
        (r"\n\nThis environment corresponds to the version of the blackjack problem", ""),
        (r"Starting State: The starting state is initialised with the following values\.\n\n", ""),
    ),
    "Taxi": ((r"will incur the time step\n", "will incur the time step penalty.\n"),),
    "Pendulum": (
        ("apply torque on the free end to swing it", "apply torque at the fixed point to swing the free end"),
    ),
}
CORRECTIONS["LunarLanderContinuous"] = CORRECTIONS["LunarLander"]


def main() -> None:
    """Write the files that the command line names, or all."""
    warnings.simplefilter("ignore")
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or [*IDS, *(path.name for path in sorted(FOLDER.parent.glob("*.toml")))]:
        path = FOLDER.parent / name
        if not name.endswith(".toml"):
            (FOLDER / f"{name}.toml").write_text(file_of(name), encoding="utf-8")
        elif tail := tail_of(task_from_file(path)):
            text = path.read_text(encoding="utf-8").partition(MARK)[0].rstrip()
            path.write_text(f"{text}\n\n{tail}", encoding="utf-8")
        print(name, flush=True)


def file_of(gym_id: str) -> str:
    """Return the text of a task file with what Gymnasium says of an environment."""
    task, env = task_from_gym(gym_id), make(gym_id, {})
    sections = sections_of(inspect.cleandoc(type(env.unwrapped).__doc__ or ""))
    section = section_of(sections, "observation")
    found, named = named_observations(task.observations, section, section_of(sections, "starting"), env)
    found = [with_limits(o) for o in found] if named else found
    observed = [o.name for o in found]
    actuators, documented = named_actuators(task.actuators, section_of(sections, "action"), observed, env)
    encoding, remark = encoding_of(found, section, env)
    if encoding:
        found = [replace(o, about=o.about or encoding) for o in found]
    names = dict(zip(task.observation_names, observed, strict=True))
    arguments = arguments_in_force(env)
    about = prose(sections, arguments, [*["observation"] * named, *["action"] * documented])
    choice = len(actuators) == 1 and actuators[0].is_choice
    action_names = actuators[0].labels if choice else [a.name for a in actuators]
    harvested = replace(
        task,
        observations=tuple(found),
        actuators=actuators,
        about=about,
        documentation="",
        assumed=(),
        grid=task.grid and Grid(tuple(replace(d, name=names[d.name]) for d in task.grid.dimensions)),
        facts=(),
    )
    facts = (
        *([remark] if encoding else []),
        *describe_arguments(arguments, env, about),
        *simulator_facts(env, action_names, observed, arguments),
    )
    env.close()
    text = f"{draft_of(harvested)}\n\n{_tail(harvested, facts)}"
    for wrong, right in CORRECTIONS.get(gym_id.partition("-")[0], ()):
        text, count = re.subn(wrong, right, text)
        if not count:
            raise SystemExit(f"{gym_id}: the correction of {wrong!r} does not fit")
    tomllib.loads(text)
    return text


def tail_of(task: Task) -> str:
    """Return facts and heights of a task of MuJoCo, as text of its file; empty for any other task."""
    env = make_env(task)
    try:
        if not has_model(env):
            return ""
        return _tail(task, simulator_facts(env, [actuator.name for actuator in task.actuators]))
    finally:
        env.close()


def _tail(task: Task, facts: Sequence[str]) -> str:
    env = make(task.gym_id, dict(task.kwargs))
    stated = {
        "gymnasium": gym.__version__,
        "observation_space": " ".join(str(env.observation_space).split()),
        "action_space": " ".join(str(env.action_space).split()),
        "facts": list(facts),
    }
    heights = [asdict(one) for one in heights_of(task)]
    env.close()
    tables = {**({"heights": heights} if heights else {}), "harvested": stated}
    return f"{MARK}\n{tomli_w.dumps(tables)}"


# --- the sections, tables and prose of a docstring -------------------------------------------------------------------

# First words of the titles of useful sections, most important first: a long text is cut at its end.
_WANTED = ("description", "reward", "episode", "terminat", "truncat", "transition", "starting", "observation", "action")
_LONGEST_PROSE = 4_000  # characters
_LONGEST_NOTES = 700  # characters of the section on observations, if the task holds its table


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with its text and tables; each row maps lower-case column heads to cells."""

    title: str
    text: str
    tables: tuple[tuple[Mapping[str, str], ...], ...]


def sections_of(documentation: str) -> list[Section]:
    """Return the sections under the highest level of headings; text before the first heading has an empty title."""
    fenced = r"^[ \t]*```.*?(?:^[ \t]*```[^\n]*\n?|\Z)"  # figures, shell commands or references
    lines = re.sub(fenced, "", documentation, flags=re.DOTALL | re.MULTILINE).splitlines()
    headings = [re.match(r" {0,3}(#+)\s*\S", line) for line in lines]
    highest = min((len(heading[1]) for heading in headings if heading), default=1)
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line, heading in zip(lines, headings, strict=True):
        if heading and len(heading[1]) == highest:
            sections.append((line.strip("#: "), []))
        else:
            sections[-1][1].append(f"{line.strip('#: ')}:" if heading else line.rstrip())
    return [_section(title, body) for title, body in sections]


def section_of(sections: Sequence[Section], start: str) -> Section | None:
    """Return the first section whose title begins with `start`, in any case; None if there is none."""
    return next((section for section in sections if section.title.lower().startswith(start)), None)


def _section(title: str, lines: Sequence[str]) -> Section:
    text: list[str] = []
    tables: list[tuple[Mapping[str, str], ...]] = []
    rest = list(lines)
    while rest:
        # A table has a line of dashes below its head; without one, bars and spaces are a map, kept as they are.
        if len(rest) > 1 and rest[0].lstrip().startswith("|") and re.fullmatch(r"\s*\|[\s|:-]*-[\s|:-]*", rest[1]):
            head = [cell.lower() for cell in _cells(rest[0])]
            count = next((i for i, line in enumerate(rest) if not line.lstrip().startswith("|")), len(rest))
            rows = [_cells(line) for line in rest[2:count]]
            tables.append(tuple(dict(zip(head, row, strict=False)) for row in rows))
            rest = rest[count:]
        else:
            text.append(rest.pop(0))
    return Section(title, re.sub(r"\n{3,}", "\n\n", "\n".join(text)).strip("\n"), tuple(tables))


def _cells(line: str) -> list[str]:
    return [" ".join(cell.split()) for cell in line.strip().strip("|").split("|")]


def numbered(section: Section, count: int) -> list[Mapping[str, str]]:
    """Return the table rows numbered 0, 1, ... in order, at most `count`, from one or more tables of a section.

    A table that starts again from 0 is ignored: it describes something else.
    """
    rows: list[Mapping[str, str]] = []
    for row in itertools.chain.from_iterable(section.tables):
        if len(rows) < count and row.get("num") == str(len(rows)):
            rows.append(row)
    return rows


def choices(section: Section, count: int) -> list[str] | None:
    """Return the meanings of `count` choices, from a list `- 0: Move left` or a table; None if one is missing."""
    rows = [row.get("action", "") for row in numbered(section, count)]
    meanings = dict(reversed(re.findall(r"^\s*[-*]\s*(\d+):\s*(.+?)\s*$", section.text, flags=re.MULTILINE)))
    found = rows if len(rows) == count else [meanings.get(str(i), "") for i in range(count)]
    return [without_markup(text) for text in found] if all(found) else None


def prose(sections: Sequence[Section], arguments: Mapping[str, Any], in_tables: Sequence[str]) -> str:
    """Return the text of the sections that help to design a controller, without markup.

    Args:
        arguments: arguments of the environment; lines about other values of these are left out.
        in_tables: first words of the titles of sections whose tables the task holds: "observation" keeps only its
            notes, "action" nothing.
    """
    opening = next((section.text for section in sections if not section.title), "")
    kept = [text] if (text := _readable(opening, arguments)) else []
    for wanted in _WANTED:
        for section in (one for one in sections if one.title.lower().startswith(wanted)):
            text = _readable(section.text, arguments)
            if wanted in in_tables:
                notes = [part for part in text.split("\n\n") if not _ON_THE_SPACE.search(part)]
                # The text about actions says nothing that their names do not say.
                text = "\n\n".join(notes)[:_LONGEST_NOTES].rstrip() if wanted == "observation" else ""
            if text:
                kept.append(f"{section.title}: {text}" if "\n" not in text else f"{section.title}:\n{text}")
    return "\n\n".join(kept)[:_LONGEST_PROSE].strip()


# Paragraphs on the type and the parts of a space, which the task holds.
_ON_THE_SPACE = re.compile(
    r"Box\(|ndarray|elements|shape|action space|during construction|^\s*[-*]? ?\d+:|-dimensional vector"
    r"|State consists of|discrete states|body parts are|^Note:$"
)
# Lines that do not help to design a controller: rendering, history, versions, defaults.
_IRRELEVANT = re.compile(
    r"gymnasium\.farama|Adapted from|inspiration from|mujoco-py|during construction|rgb|render|Pixel art"
    r"|heuristic|multivariate|`info` contains|`info` also|exclude_current_positions_from_observation`? is set"
    r"|number of independent state|on `v[234]`|described in Example|by Sutton and Barto|This MDP first appeared"
    r"|is based on the (?:work|one)|corresponds to the .* described in|^\s*From \"|^\s*by Tom|Pontryagin|^\s*> "
    r"|engine at full throttle or turn|environment has discrete actions|two environment versions|action_mask"
    r"|this reward would be positive|A reward for moving forward|A negative reward to penalize|frame_skip|frametime"
    r"|so that the .* stand up|is called \"Ant\"|^\s*See `|The number of possible observations is dependent"
    r"|By default, |The observation space consists|total reward returned is|quaternions|read more about|returned as|!\["
)


def _readable(text: str, arguments: Mapping[str, Any]) -> str:
    """Remove links, markup, irrelevant lines and lines about other arguments; keep paragraphs and maps."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", _without_links(text)):
        lines = [line for line in paragraph.split("\n") if not _IRRELEVANT.search(line)]
        lines = [without_markup(_in_force(one, arguments)) for one in lines if not _about_another_value(one, arguments)]
        if any(map(str.strip, lines)):
            paragraphs.append("\n".join(lines).strip("\n"))
    return re.sub(r"\n{3,}", "\n\n", textwrap.dedent("\n\n".join(paragraphs))).strip("\n")


def _about_another_value(line: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a line is about a value that a boolean argument does not have: `if continuous is True`."""
    stated = re.findall(r"\bif\b[^.]*?`?(\w+)`?\s*(?:=+|is)\s*`?(True|False)\b", line, flags=re.IGNORECASE)
    return any(isinstance(arguments.get(name), bool) and str(arguments[name]) != value for name, value in stated)


def _in_force(line: str, arguments: Mapping[str, Any]) -> str:
    """Replace default values in a line by the arguments in force."""

    def value(match: re.Match[str]) -> str:
        argument = arguments.get(match[1])
        text = value_text(argument) if isinstance(argument, int | float | tuple | list) else ""
        return f"{match[1]} = {text}" if text else match[0]

    line = re.sub(r"`(\w+)`(?: argument)? \(defaults? (?:is|to) [^()]*\)", value, line)
    return re.sub(r"If `?(\w+) is True`? \((?:which is )?the default\), the", "The", line)


def value_text(value: Any) -> str:
    """Write a number, boolean or string, or a list of at most six of them; empty for anything else."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return str(value)
        share = Fraction(value).limit_denominator(12)
        exact = float(share) == float(value) and share.denominator in (3, 6, 7, 9, 11, 12)
        return str(share) if exact else f"{value:.6g}"
    if isinstance(value, list | tuple) and 0 < len(value) <= 6:
        parts = [value_text(item) for item in value]
        return f"({', '.join(parts)})" if all(parts) else ""
    return ""


def _without_links(text: str) -> str:
    text = re.sub(r"\[<a[^>]*>.*?</a>\]", "", text, flags=re.DOTALL)
    text = re.sub(r"<a[^>]*>(.*?)</a>", r"\1", text, flags=re.DOTALL)
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?:https?:|/)[^)]*\)", r"\1", text)
    return re.sub(r"\(?https?://\S+", "", text)


# LaTeX and markup, with plain replacements.
_MARKUP: tuple[tuple[str, str], ...] = (
    (r"\s*\(see [^()]*\)", ""),
    (r"\s*\(`?observation\[[^()]*\)|\s*\(if +`exclude[^()]*\)", ""),
    (r"\\mathcal\{U\}_\{\[-?([^,]+?)(?:\s*(?:\\times|imes)\s*[I1]_\{?\d+\}?)?,[^\]]*\]\}", r"uniform noise up to \1"),
    (r"\\mathcal\{U\}_\{\[\[([^][]+)\], \[([^][]+)\]\]\}", r"uniform between (\1) and (\2)"),
    (r"\$0_\{?(\d+)\}?\$", r"0 in all \1 parts"),
    (r"\\mathcal\{N\}\(0_\{\d+\},\s*([^\s^]+)\^2[^)]*\)", r"normal noise of standard deviation \1"),
    (r"\\mathcal\{S\}\(([^)]*)\)", r"a random place within \1"),
    (r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2"),
    (r"\\\|(.*?)\\\|_2(\^2)?", r"|\1|\2"),
    (r"\\times", "x"),
    (r"\\leq?\b", "<="),
    (r"\\geq?\b", ">="),
    (r"\\infty", "inf"),
    (r"\\_", "_"),
    (r"\\([a-zA-Z]+)", r"\1"),
    (r"([_^])\{([^{}]*)\}", r"\1\2"),
    (r"<sup>(.*?)</sup>", r"^\1"),
    (r"<sub>(.*?)</sub>", r"_\1"),
    (r"\$", ""),
    (r"\*{2,}", ""),
    (r"(?<![\w*])\*(?=\S)((?:[^*\n]| \* )+?)(?<=\S)\*(?!\w)", r"\1"),
)


def without_markup(text: str) -> str:
    """Remove LaTeX, HTML tags and emphasis from a line."""
    for pattern, replacement in _MARKUP:
        text = re.sub(pattern, replacement, text)
    return text.rstrip()


# --- names of observations and actions -------------------------------------------------------------------------------

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


def _named_per_body(found: Sequence[Observation], env: gym.Env[Any, Any]) -> list[Observation]:
    """Return a MuJoCo environment's last observations, forces and motions of bodies, with names; empty if unclear."""
    base: Any = env.unwrapped
    structure = getattr(base, "observation_structure", None)
    if not found or not isinstance(structure, dict):
        return []
    bodies = [str(base.model.body(i).name or f"body{i}") for i in range(1, base.model.nbody)]
    named: list[tuple[str, str, str]] = []
    for part, size in structure.items():
        if part in _PARTS:
            word, components = _PARTS[part]
            units = ": contact torque in N m and force in N" * (part == "cfrc_ext")
            both = itertools.product(bodies, components.split())
            some = [(slug(f"{body}_{word}_{one}"), f"{part} of body {body}{units}", body) for body, one in both]
            named += some if len(some) == size else []
        elif part == "qfrc_actuator" and size:
            first = base.model.nv - size
            joints = [int(base.model.dof_jntid[i]) for i in range(first, base.model.nv)]
            named += [(slug(f"{base.model.joint(j).name}_effort"), _EFFORT, "joint") for j in joints]
    if len(named) != len(found):
        return []
    return [replace(o, name=n, about=a, derived=body) for o, (n, a, body) in zip(found, named, strict=True)]


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


# --- arguments, maps, probabilities, encodings -----------------------------------------------------------------------

# Arguments that do not matter to a policy: images, files, and those that the time step already reflects.
_NO_ARGUMENT = re.compile(
    r"render|camera|width|height|xml|frame_skip|^kwargs$|^self$|^desc$|in_observation$|from_observation$"
)
# A mixed-radix encoding such as `((row * 5 + column) * 5 + place) * 4 + goal`.
_FORMULA = re.compile(r"\(*[a-z]\w* \* \w+ \+ [a-z]\w*(?:\) \* \w+ \+ [a-z]\w*)*")
_MANY_VALUES = 50  # an integer with this many values may encode several numbers


def arguments_in_force(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Return the relevant arguments of the environment's constructor, by name: those given, else defaults."""
    given = dict(env.spec.kwargs) if env.spec else {}
    try:
        parameters = inspect.signature(type(env.unwrapped).__init__).parameters
    except (TypeError, ValueError):  # a class not written in Python
        return {}
    return {
        name: given.get(name, parameter.default)
        for name, parameter in parameters.items()
        if not _NO_ARGUMENT.search(name) and (name in given or parameter.default is not inspect.Parameter.empty)
    }


def describe_arguments(arguments: Mapping[str, Any], env: gym.Env[Any, Any], about: str = "") -> list[str]:
    """Describe the arguments in force, a map of letters, and the probabilities of an action's outcomes.

    Args:
        about: prose; arguments whose values it states are left out.
    """
    off = {word for name, value in arguments.items() if value is False for word in name.split("_")} - {"is", "enable"}
    # The probability of rain is irrelevant if it never rains.
    relevant = {n: value for n, value in arguments.items() if isinstance(value, bool) or not off & set(n.split("_"))}
    pairs = [f"{name} = {text}" for name, value in relevant.items() if (text := value_text(value))]
    pairs = [pair for pair in pairs if pair not in about]
    sentences = [f"Arguments in force: {', '.join(pairs)}."] if pairs else []
    rows = getattr(env.unwrapped, "desc", None)
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind == "S" and rows.dtype.itemsize == 1:
        lines = [b"".join(row).decode("ascii", "replace") for row in rows]
        if not any(set(line) & set("|+") for line in lines):  # the documentation shows maps with walls
            letters = set("".join(lines))
            legend = " (S start, F frozen, H hole, G goal)" if letters <= set("SFHG") else ""
            sentences.append(f"The map, row by row from the top{legend}: {' '.join(lines)}.")
    return sentences + _outcome_probabilities(env)


def _outcome_probabilities(env: gym.Env[Any, Any]) -> list[str]:
    """Describe the probabilities of the outcomes that most actions have; nothing if unknown, or there is only one."""
    known = getattr(env.unwrapped, "P", None)
    if not isinstance(known, dict) or not all(isinstance(actions, dict) for actions in known.values()):
        return []
    outcomes = Counter(
        tuple(sorted(Fraction(float(chance)).limit_denominator(1000) for chance, *_ in results))
        for actions in known.values()
        for results in actions.values()
    )
    usual = outcomes.most_common(1)[0][0] if outcomes else ()
    if len(usual) < 2:
        return []
    if len(set(usual)) == 1:
        return [f"An action has {len(usual)} outcomes of probability {usual[0]} each."]
    return [f"The outcomes of an action have probabilities {', '.join(map(str, usual[::-1]))}."]


def with_limits(observation: Observation) -> Observation:
    """Add the limits of a real number to its meaning, unless they are infinite or the meaning implies them."""
    low, high, about = observation.low, observation.high, observation.about
    if observation.integer or about.startswith("1 while") or not (math.isfinite(low) and math.isfinite(high)):
        return observation
    limits = f"{low + 0.0:.4g} to {high:.4g}"
    return replace(observation, about=f"{about}, {limits}" if about else limits)


def encoding_of(found: Sequence[Observation], section: Section | None, env: gym.Env[Any, Any]) -> tuple[str, str]:
    """Return the meaning of a single observed integer that encodes several, and a sentence on how to decode it.

    Both come from a formula in the documentation. Without one that can be decoded, the meaning is empty, and the
    sentence is general, or empty for fewer than `_MANY_VALUES` values. Both are empty if the environment observes
    anything but one integer.
    """
    if len(found) != 1 or not found[0].integer or found[0].high - found[0].low + 1 < 2:
        return "", ""
    state, values = found[0].name, int(found[0].high - found[0].low + 1)
    formula = _FORMULA.search(section.text) if section else None
    if formula and (parts := _decoded(formula[0].strip(), state, env)):
        lets = "; ".join(f"{name} = {text}" for name, text in parts)
        return (
            f"{values} values; it is {formula[0].strip()}",
            f"{state} stands for several numbers, which `let` can decode: {lets}; a table over some of these needs few"
            " rows.",
        )
    if values < _MANY_VALUES:
        return "", ""
    return "", (
        f"{state} has {values} values and may stand for several numbers; if its encoding is known, decode it, as in"
        f" `let column = mod(floor({state}/20), 5)`, and a table over the parts needs few rows"
    )


def _decoded(formula: str, state: str, env: gym.Env[Any, Any]) -> list[tuple[str, str]]:
    """Return name and expression of each part of a mixed-radix formula; empty if it cannot be decoded."""
    base: Any = env.unwrapped
    shape: Any = getattr(base, "shape", None)
    columns = getattr(base, "ncol", shape[1] if isinstance(shape, tuple) and len(shape) == 2 else None)
    digits: list[tuple[str, int]] = []
    while match := re.fullmatch(r"\(?(.+?)\)? \* (\w+) \+ ([a-z_]\w*)", formula):
        radix = int(match[2]) if match[2].isdigit() else columns if match[2] == "ncols" else None
        if not isinstance(radix, int):
            return []
        digits.append((match[3], radix))
        formula = match[1]
    if not digits or not re.fullmatch(r"\(*([a-z_]\w*)", formula):
        return []
    divisor, rest, parts = 1, state, []
    for name, radix in digits:
        parts.append((name, f"mod({rest}, {radix})"))
        divisor *= radix
        rest = state if divisor == 1 else f"floor({state}/{divisor})"
    return [(formula.lstrip("("), rest), *parts[::-1]]


# --- sentences on the simulator --------------------------------------------------------------------------------------

MOST_CHARACTERS = 5_000  # of all sentences together
_LONGEST_LIST = 6  # longer lists of numbers are not constants

# Constants that do not matter to a policy: images, windows, colours, and Gymnasium's own.
_NO_CONSTANT = re.compile(
    r"render|screen|viewport|window|surf|image|img|colou?r|font|icon|pixel|label|background|cell_size"
    r"|(pos|offset|gap|top|origin|orientation)$|^spec$|metadata|^nS$|^nA$|^reward_range$|^start_state_index$",
    re.IGNORECASE,
)


def simulator_facts(
    env: gym.Env[Any, Any],
    actions: Sequence[str] = (),
    observations: Sequence[str] = (),
    known: Collection[str] = (),
) -> tuple[str, ...]:
    """Describe the system in sentences of at most `MOST_CHARACTERS` in all, the most useful first.

    The facts about a MuJoCo model are its time step, actuators, joints, bodies and floor, in SI units and the initial
    pose. Those about any other environment are the constants in its code and, for a Box2D world, bodies, hinges, scales
    and effects of actions. The environment is reset and stepped.

    Args:
        actions: the task's names of the components of an action, in order, or of the choices; `action[i]` if missing.
        observations: the task's names of the components of an observation, in order.
        known: names of constants that the prompt already holds; they are left out.
    """
    if not has_model(env):
        world = world_facts(env, observations, actions) if has_world(env) else []
        return _shortened([*world, *_constants(env, known)])
    lines: list[str] = []
    for detail in (2, 1, 0):
        lines = model_facts(env, actions, detail)
        if sum(map(len, lines)) <= MOST_CHARACTERS:
            break
    return _shortened(lines)


def _shortened(lines: Sequence[str]) -> tuple[str, ...]:
    if sum(map(len, lines)) <= MOST_CHARACTERS:
        return tuple(lines)
    kept = _first_within(lines, MOST_CHARACTERS - 60)  # leaves room for the remark
    return (*kept, f"(Shortened: {len(lines) - len(kept)} more lines are left out.)")


def _first_within(texts: Sequence[str], characters: int) -> Sequence[str]:
    """Return the first texts that have at most so many characters together."""
    return texts[: sum(end <= characters for end in itertools.accumulate(map(len, texts)))]


def _constants(env: gym.Env[Any, Any], known: Collection[str]) -> tuple[str, ...]:
    """Return at most one sentence with the constants of the environment and its module: `NAME = value, ...`."""
    seen, changed, episodes = _numbers_of(env), set[str](), 0
    for _, action, *_ in random_play(env):
        if action is None:
            episodes += 1
            continue
        now = _numbers_of(env)
        if episodes == 1:  # attributes may first appear while the first episode is played
            seen = {**seen, **now, **seen}
        changed |= {name for name, value in seen.items() if now.get(name) != value}
    # Constants that number the actions (`LEFT = 0, DOWN = 1`) say nothing new, if each action has one.
    unchanged = {name: value for name, value in seen.items() if name not in changed}
    numbering = [name for name, value in unchanged.items() if name.isupper() and value.isdigit()]
    actions = sorted(map(str, range(getattr(env.action_space, "n", 0))))
    known = {*known, *(numbering if sorted(unchanged[name] for name in numbering) == actions else ())}
    head, words = "Constants of the simulator: ", [f"{n} = {text}, " for n, text in unchanged.items() if n not in known]
    if not words:
        return ()
    kept = _first_within(words, MOST_CHARACTERS - len(head) - 40)  # leaves room for the remark
    more = f" (shortened: {len(words) - len(kept)} more)" if len(kept) < len(words) else ""
    return (f"{head}{''.join(kept).removesuffix(', ')}{more}.",)


def _numbers_of(env: gym.Env[Any, Any]) -> dict[str, str]:
    """Return numbers as text, by name: of the module (in upper case), the class and the instance; the last counts."""
    base = env.unwrapped
    module = sys.modules.get(type(base).__module__)
    found: dict[str, Any] = {name: value for name, value in vars(module).items() if name.isupper()} if module else {}
    for owner in reversed(type(base).__mro__):
        if owner is not object and not owner.__module__.startswith("gymnasium.core"):
            found.update(vars(owner))
    found.update(vars(base))
    relevant = {n: value for n, value in found.items() if not n.startswith("_") and not _NO_CONSTANT.search(n)}
    return {name: text for name, value in relevant.items() if (text := _plain(value))}


def _plain(value: Any) -> str:
    """Write a finite number, or a short list of them; empty for anything else, booleans included."""
    if isinstance(value, list | tuple) and 1 <= len(value) <= _LONGEST_LIST:
        parts = [_plain(item) if not isinstance(item, list | tuple) else "" for item in value]
        return f"[{', '.join(parts)}]" if all(parts) else ""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return ""
    if isinstance(value, int | np.integer):
        return str(int(value))
    return f"{float(value):.6g}" if math.isfinite(value) else ""


# --- Box2D -----------------------------------------------------------------------------------------------------------

_EPISODES, _STEPS = 3, 40  # of random actions
EXACT = 1e-4  # largest error of `observation = factor * value + shift`, as a share of the observation's range
_MOTOR = "the motor of "  # the beginning of phrases about motors
SLIGHT = 0.01  # smaller effects of an action are not reported
ON_THE_SPOT = 0.01  # m; a body whose centre is nearer to its hinge turns on the spot
MOST_PARTS = 10  # of a list of bodies or hinges
_BODY_VALUES: tuple[tuple[str, Callable[[Any], float]], ...] = (
    ("x", lambda body: body.position[0]),
    ("y", lambda body: body.position[1]),
    ("angle", lambda body: body.angle),
    ("x speed", lambda body: body.linearVelocity[0]),
    ("y speed", lambda body: body.linearVelocity[1]),
    ("spin", lambda body: body.angularVelocity),
)
_HINGE_VALUES: tuple[tuple[str, Callable[[Any], float]], ...] = (
    ("angle", lambda joint: joint.angle),
    ("speed", lambda joint: joint.speed),
)


def has_world(env: gym.Env[Any, Any]) -> bool:
    """Whether the environment simulates a Box2D world."""
    return type(getattr(env.unwrapped, "world", None)).__module__.startswith("Box2D")


def world_facts(env: gym.Env[Any, Any], observations: Sequence[str], actions: Sequence[str]) -> list[str]:
    """Describe the world of an environment in m, kg, s and rad, one sentence each; the environment is stepped.

    Args:
        observations: the task's names of the numbers of an observation.
        actions: the task's names of the numbers of an action, or of the choices.
    """
    env.reset(seed=0)
    world: Any = env.unwrapped.world  # type: ignore[attr-defined]
    named = _named(env)
    bodies = [f"{name} {body.mass:.3g} kg" for name, body in named if _is_moving_body(body)]
    if not bodies:
        return []
    lines = [f"Bodies: {', '.join(bodies)}; gravity ({world.gravity[0]:.3g}, {world.gravity[1]:.3g}) m/s^2."]
    hinges = [
        f"{name} between {_name_of(joint.bodyA, named)} and {(turned := _name_of(joint.bodyB, named))}"
        + (f", {joint.lowerLimit:.3g} to {joint.upperLimit:.3g} rad" if joint.limitEnabled else "")
        + (f", a positive angle moves {turned} towards {way}" if (way := _way(joint)) else "")
        for name, joint in named
        if _is_hinge(joint)
    ]
    lines += [f"Hinges: {'; '.join(hinges)}."] * bool(hinges)
    if matches := _scales(env, observations):
        lines.append(f"Observations in values of the simulator (m, s, rad): {', '.join(matches)}.")
    return [*lines, *_effects(env, actions), *_reward(env)]


def _is_moving_body(thing: Any) -> bool:
    return hasattr(thing, "linearVelocity") and thing.mass > 0


def _is_hinge(thing: Any) -> bool:
    return hasattr(thing, "GetMaxMotorTorque") and hasattr(thing, "angle")


def _way(joint: Any) -> str:
    """Return the direction in which the second body moves when the angle grows; empty if it turns on the spot."""
    x, y = joint.bodyB.worldCenter - joint.anchorB
    if max(abs(x), abs(y)) < ON_THE_SPOT:
        return ""
    return f"{'+' if -y > 0 else '-'}x" if abs(y) > abs(x) else f"{'+' if x > 0 else '-'}y"


def _named(env: gym.Env[Any, Any]) -> list[tuple[str, Any]]:
    """Return (name, thing) of the moving bodies and hinges in the environment's attributes, and one level deeper."""
    found: list[tuple[str, Any]] = []
    waiting = [*_attributes("", env.unwrapped)]
    waiting += [part for name, thing in waiting for part in _attributes(f"{name}.", thing)]
    world: Any = env.unwrapped.world  # type: ignore[attr-defined]
    # Bodies and joints that the world no longer holds must not be read: their memory may be freed.
    held = [thing for thing in (*world.bodies, *world.joints) if _is_moving_body(thing) or _is_hinge(thing)]
    for name, part in waiting:
        is_held = any(isinstance(part, type(thing)) and part == thing for thing in held)
        if is_held and not any(isinstance(part, type(other)) and part == other for _, other in found):
            found.append((name, part))
    return found


def _attributes(prefix: str, whole: Any) -> Iterator[tuple[str, Any]]:
    for name, value in getattr(whole, "__dict__", {}).items():
        if isinstance(value, list):
            yield from ((f"{prefix}{name}[{i}]", part) for i, part in enumerate(value[:MOST_PARTS]))
        elif not name.startswith("_"):
            yield f"{prefix}{name}", value


def _name_of(thing: Any, named: Sequence[tuple[str, Any]]) -> str:
    return next((name for name, other in named if isinstance(other, type(thing)) and other == thing), "the ground")


def random_play(env: gym.Env[Any, Any]) -> Iterator[tuple[Any, Any, Any, bool]]:
    """Play random actions on fixed seeds; yield observation, action, reward, and whether the episode ended.

    The reset of each episode is yielded, too, with None as its action.
    """
    env.action_space.seed(0)
    for episode in range(_EPISODES):
        yield env.reset(seed=episode)[0], None, 0.0, False
        for _ in range(_STEPS):
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            yield observation, action, reward, terminated or truncated
            if terminated or truncated:
                break


def _scales(env: gym.Env[Any, Any], observations: Sequence[str]) -> list[str]:
    """Describe the observations that are a value of the world, scaled and shifted: `vx = 0.2 lander x speed`."""
    if env.observation_space.shape != (len(observations),):
        return []
    rows: list[npt.NDArray[Any]] = []
    seen: list[dict[str, float]] = []  # positions, angles and speeds of the bodies and hinges, by name
    for row, *_ in random_play(env):
        rows.append(np.asarray(row, np.float64))
        seen.append(
            {
                f"{name} {word}": float(read(thing))
                for name, thing in _named(env)
                for word, read in (_BODY_VALUES if _is_moving_body(thing) else _HINGE_VALUES)
            }
        )
    names = [name for name in seen[0] if all(name in one for one in seen)]
    values = np.array([[one[name] for name in names] for one in seen])
    matches: dict[str, list[str]] = {}  # by value
    for observation, column in zip(observations, np.stack(rows).T, strict=True):
        for name, value in zip(names, values.T, strict=True):
            slope, shift = np.polyfit(value, column, 1) if np.ptp(value) > EXACT else (0.0, 0.0)
            if slope and np.abs(slope * value + shift - column).max() < EXACT * np.ptp(column):
                factor = f"{slope:.3g} " if abs(slope - 1) > EXACT else ""
                moved = f" {'+' if shift > 0 else '-'} {abs(shift):.3g}" if abs(shift) > 10 * EXACT else ""
                matches.setdefault(name, []).append(f"{observation} = {factor}{name}{moved}")
                break
    # A value that several observations match is left out: rays, for example, are equal only over flat ground.
    return [some[0] for some in matches.values() if len(some) == 1]


def _effects(env: gym.Env[Any, Any], actions: Sequence[str]) -> list[str]:
    """Describe the effect of each action in the first step: on motors, else on the velocity of the heaviest body.

    A motor is described by its new setting, a velocity by the difference from a step with a zero action or the first
    choice.
    """
    space = env.action_space
    if isinstance(space, gym.spaces.Discrete) and int(space.n) == len(actions):
        nothing: Any = int(space.start)
        tries = [(name, [int(space.start) + i]) for i, name in enumerate(actions)]
    elif isinstance(space, gym.spaces.Box) and space.shape == (len(actions),):
        nothing = np.zeros(space.shape, space.dtype)
        unit = np.eye(len(actions), dtype=space.dtype)
        tries = []
        for i, (name, low, high) in enumerate(zip(actions, space.low.tolist(), space.high.tolist(), strict=True)):
            levels = [high, high / 2, low]
            tries.append((f"{name} = {', '.join(f'{one:.3g}' for one in levels)}", [one * unit[i] for one in levels]))
    else:
        return []
    baseline, lines = _after(env, nothing), list[str]()
    for words, some in tries:
        after = [_after(env, action) for action in some]
        changed = [key for key in baseline if any(abs(one[key] - baseline[key]) > SLIGHT for one in after)]
        motors = [key for key in changed if key.startswith(_MOTOR)]
        changes = []
        for key in motors or changed:
            values = [one[key] - (0.0 if motors else baseline[key]) for one in after]
            changes.append(key.format(", ".join(f"{value + 0.0:.2g}" for value in values)))
        if changes:
            lines.append(f"{words} {'sets' if motors else 'changes in a step'} {', '.join(changes)}.")
    return lines


def _reward(env: gym.Env[Any, Any]) -> list[str]:
    """Describe the reward if it is a weighted sum of the heaviest body's movement and the action's size.

    The weights are found by least squares on random steps, without those that end an episode.
    """
    rows, rewards, name, before = list[list[float]](), list[float](), "", np.zeros(3)
    for _, action, reward, ended in random_play(env):
        if ended:
            continue
        name, body = _heaviest(_named(env))
        after = np.array([read(body) for _, read in _BODY_VALUES[:3]], np.float64)  # x, y, angle
        if action is not None:
            size = np.abs(action).sum() if isinstance(env.action_space, gym.spaces.Box) else 0.0
            rows.append([*(after - before), abs(after[2]) - abs(before[2]), size])
            rewards.append(float(reward))
        before = after
    terms = [*(f"the change of {name} {value}" for value in ("x", "y", "angle")), f"the change of |{name} angle|"]
    table = np.array(rows).reshape(-1, len(terms) + 1)
    weights = np.linalg.lstsq(table, np.array(rewards), rcond=None)[0]
    spread = np.ptp(rewards) if rewards else 0.0
    if len(rows) < 2 * table.shape[1] or not np.abs(table @ weights - rewards).max() < EXACT * spread:
        return []
    shown = [
        f"{weight:.3g} x {term}"
        for weight, term, moved in zip(weights, [*terms, "the sum of |action|"], np.ptp(table, axis=0), strict=True)
        if abs(weight) * moved > EXACT * spread
    ]
    return [f"Reward of a step that does not end the episode: {' + '.join(shown)}.".replace("+ -", "- ")]


def _heaviest(named: Sequence[tuple[str, Any]]) -> tuple[str, Any]:
    return max((one for one in named if _is_moving_body(one[1])), key=lambda one: float(one[1].mass))


def _after(env: gym.Env[Any, Any], action: Any) -> dict[str, float]:
    """Return the motors' settings and the heaviest body's velocities after one step from a fixed start, by phrase."""
    env.reset(seed=0)
    env.step(action)
    named = _named(env)
    found: dict[str, float] = {}
    for name, joint in named:
        if _is_hinge(joint):
            found[f"{_MOTOR}{name} to {{}} rad/s"] = float(joint.motorSpeed)
            found[f"{_MOTOR}{name} to a torque of at most {{}} N m"] = float(joint.GetMaxMotorTorque())
    name, heaviest = _heaviest(named)
    for (word, read), unit in zip(_BODY_VALUES[3:], ("m/s", "m/s", "rad/s"), strict=True):
        found[f"{name} {word} by {{}} {unit}"] = float(read(heaviest))
    return found


# --- MuJoCo ----------------------------------------------------------------------------------------------------------

MOST_COLLISIONS = 8  # pairs of bodies in one sentence
# The facts left out at each level of detail.
_LEFT_OUT = ("positions, damping, friction, armature, springs and directions of hinges", "positions", "")


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
    """Describe joints without an actuator in sentences, then actuated ones in a table; an only one in a sentence."""
    joints: list[tuple[str, str, str, list[str]]] = []  # signal, kind, name, traits and details
    lines: list[str] = []
    driven = set()
    for i, signal in enumerate(sim.signals):
        acts_on, target = word_of(sim.mujoco.mjtTrn, sim.model.actuator_trntype[i]), int(sim.model.actuator_trnid[i][0])
        if acts_on.startswith("joint"):
            driven.add(target)
            kind = sim.joint_kind(target)
            traits = _drive(sim, i, "force" if kind == "slide" else "torque") + _resistance(sim, target)
            joints.append((signal, kind, sim.joint_name(target), traits + _details(sim, target)))
        else:
            named = acts_on in ("tendon", "site", "body")
            what = f"{acts_on} {getattr(sim.model, acts_on)(target).name or target}" if named else f"target {target}"
            lines.append(_sentence(f"{signal} acts on {what}", _drive(sim, i, "force")))
    lines = [*_unactuated_joints(sim, driven), *lines]
    if len(joints) < 2:
        return lines + [_sentence(f"{signal} drives {kind} {name}", traits) for signal, kind, name, traits in joints]
    (_, usual, _, first), *others = joints
    shared = [trait for trait in first if all(trait in traits for *_, traits in others)]
    one_kind = all(kind == usual for _, kind, *_ in others)
    rows = [
        {"action": signal, "drives joint": name if one_kind else f"{kind} {name}"}
        | dict(_cell(trait) for trait in traits if trait not in shared)
        for signal, kind, name, traits in joints
    ]
    return _table(
        _sentence(f"Each actuated joint is a {usual}" if one_kind else "Actuated joints, each", shared), rows, lines
    )


# The traits and details of a joint: their first words, the head of their column, and the units that they may end in.
_COLUMNS = (
    ("torque = ", "torque", ("N m x action", "N m x control")),
    ("force = ", "force", ("N x action", "N x control")),
    ("not a plain motor", "motor", ()),
    ("limited to ", "limited to", ()),
    ("positive moves ", "positive moves body to", ()),
    *((f"{name} ", name, ()) for name in ("action", "control", "axis")),
    ("damping ", "damping", ("N m s/rad", "N s/m")),
    ("armature ", "armature", ("kg m^2", "kg")),
    ("spring ", "spring", ("N m/rad", "N/m")),
    ("dry friction ", "dry friction", ("N m", "N")),
    ("range ", "range", ("rad", "m")),
    ("at ", "at", ("m",)),
)


def _cell(trait: str) -> tuple[str, str]:
    """Return a trait or detail of a joint as the head of a column, with the unit, and a cell."""
    start, head, units = next(one for one in _COLUMNS if trait.startswith(one[0]))
    value = trait if start == "not a plain motor" else trait.removeprefix(start).replace(" towards ", " ")
    unit = next((unit for unit in units if value.endswith(f" {unit}")), "")
    head = {"action": "from", "control": "from"}.get(head, head)
    return (f"{head} [{unit}]", value.removesuffix(f" {unit}")) if unit else (head, value)


def _table(title: str, rows: Sequence[Mapping[str, str]], before: Sequence[str] = ()) -> list[str]:
    """Return lines, a title, and rows with bars between their cells, below the heads of the columns."""
    heads = list(dict.fromkeys(head for row in rows for head in row))
    cells = [heads, *([row.get(head, "") for head in heads] for row in rows)]
    return [*before, *([title] if title else []), *(f"|{'|'.join(row)}" for row in cells if rows)]


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
        low, high = (f"{end:.3g}" for end in model.jnt_range[joint])
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
    """Describe each body's mass and shapes in a row of a table; equal bodies share one."""
    model = sim.model
    shapes = {
        body: [_shape(sim, geom) for geom in range(model.ngeom) if model.geom_bodyid[geom] == body]
        for body in range(1, model.nbody)
    }
    kinds = Counter(shape.partition(", ")[0] for some in shapes.values() for shape, _ in set(some) if ", " in shape)
    usual, count = kinds.most_common(1)[0] if kinds else ("", 0)
    alike: dict[tuple[str, ...], list[str]] = {}
    for body, own in shapes.items():
        told = [(shape, centre) for shape, centre in dict.fromkeys(own) if shape]
        if count > 1 and all(shape.startswith(f"{usual}, ") for shape, _ in told):
            told = [(shape.removeprefix(f"{usual}, "), centre) for shape, centre in told]
        if len(told) > 1:
            told = [(" and ".join(f"{shape} at {centre}" if centre else shape for shape, centre in told), "")]
        mass = float(model.body_mass[body])
        if told or mass:
            alike.setdefault((f"{mass:.3g}", *(told[0] if told else ("", ""))), []).append(sim.body_name(body))
    heads = "mass [kg]", "shape", "centre [m]"
    rows = [
        {"body": ", ".join(names)} | {head: cell for head, cell in zip(heads, row, strict=True) if cell}
        for row, names in alike.items()
    ]
    each = " (in a row with several bodies: each)" if any(len(names) > 1 for names in alike.values()) else ""
    title = f"Shapes: {usual} unless said otherwise{each}." if count > 1 else ""
    return _table(title, rows)


def _shape(sim: _Simulation, geom: int) -> tuple[str, str]:
    """Describe shape and size of a geom, and its centre; empty for a plane, a mesh and the like."""
    size, kind = sim.model.geom_size[geom], sim.geom_kind(geom)
    centre = _vector(sim.data.geom_xpos[geom]) if sim.detail > 1 else ""
    match kind:
        case "sphere":
            return f"sphere of radius {_number(size[0])} m", centre
        case "capsule" | "cylinder":
            axis = sim.data.geom_xmat[geom].reshape(3, 3)[:, 2]
            direction = _direction(axis) if _direction(axis)[0] == "+" else _direction(-axis)
            along = f" along {direction[1:]}" if sim.detail > 1 else " long"
            # MuJoCo stores half of the length; a capsule's excludes its round ends.
            return f"{kind} of radius {_number(size[0])} m, {2 * size[1]:.3g} m{along}", centre
        case "box" | "ellipsoid":
            return f"{kind} {' x '.join(_number(2 * side) for side in size)} m", centre
    return "", ""


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


# --- feet ------------------------------------------------------------------------------------------------------------

MOST_FEET = 6  # a robot with more ends of limbs has no feet
UPWARDS = 0.9  # least vertical component of the axis of a slide joint that lifts a body


def heights_of(task: Task) -> list[Height]:
    """Return the heights of the feet of a walking robot of MuJoCo; none for anything else.

    Feet are the ends of limbs that can touch the floor.
    """
    env = make_env(task)
    try:
        structure = getattr(env.unwrapped, "observation_structure", None)
        if not has_model(env) or not isinstance(structure, dict) or not structure.get("qpos"):
            return []
        model: Any = env.unwrapped.model  # type: ignore[attr-defined]
        feet = _feet(model)
        skipped, count = int(structure.get("skipped_qpos", 0)), int(structure["qpos"])
        if skipped + count != model.nq or count > len(task.observations) or not 0 < len(feet) <= MOST_FEET:
            return []
        return [_height(model, body, geoms) for body, geoms in feet.items()]
    finally:
        env.close()


def _height(model: Any, body: int, geoms: Sequence[int]) -> Height:
    """Return the lowest point of some capsules and spheres of a body."""
    name, spheres = str(model.body(body).name), list[tuple[float, float, float, float]]()
    for geom in geoms:
        kind = word_of(mujoco.mjtGeom, model.geom_type[geom])
        assert kind in ("capsule", "sphere"), f"the foot {name} is a {kind}"
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, model.geom_quat[geom])
        half = float(model.geom_size[geom][1]) * matrix.reshape(3, 3)[:, 2]
        for sign in (-1, 1) if kind == "capsule" else (0,):
            x, y, z = (round(float(part), 6) + 0.0 for part in model.geom_pos[geom] + sign * half)
            spheres.append((x, y, z, round(float(model.geom_size[geom][0]), 6)))
    return Height(slug(f"{name or f'body{body}'}_height"), name or body, tuple(spheres))


def _feet(model: Any) -> dict[int, list[int]]:
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


if __name__ == "__main__":
    main()
