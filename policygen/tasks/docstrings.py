"""The documentation of an environment, as it is: spaces, arguments, docstrings, its package's description."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator

MOST_CHARACTERS = 6_000  # of all sections together
SHORT = 1_000  # characters of docstrings below which the description of the package is added
MOST_OF_A_VALUE = 120  # characters of an argument or of a space without parts
# Modules whose base classes describe no environment.
_GENERAL = ("builtins", "abc", "typing", "gymnasium.core", "gymnasium.utils", "gymnasium.envs.mujoco.mujoco_env")
# Beginnings of headings of sections that describe no environment.
_ASIDE = (
    *("install", "getting started", "quick", "usage", "using", "example", "licen", "citation", "citing", "cite"),
    *("bibtex", "references", "contribut", "develop", "test", "changelog", "version", "release", "roadmap", "credits"),
    *("acknowledg", "author", "contact", "links", "badges", "contents", "table of contents", "train", "benchmark"),
    *("baseline", "results", "docs", "check out"),
)


def documentation_of(env: gym.Env[Any, Any]) -> str:
    """Return the documentation of an environment in sections of at most `MOST_CHARACTERS` together.

    Each section begins with its title in brackets: first the spaces and arguments in force. Sections that fit as a
    whole go before parts of others. Sections with a heading about other things, such as installing, are left out.
    """
    with suppress(Exception):  # the environment's own code
        own = [f"observation: {_form(env.observation_space)}", f"action: {_form(env.action_space)}", *_arguments(env)]
        found = [("in force", "\n".join(own)), *_documented(env)]
        return _fitting([(title, text) for title, text in found if text])
    return ""


def _documented(env: gym.Env[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of the environment's classes, module and factory, and perhaps its package's description."""
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
    found: dict[str, str] = {}  # titles by text: a text stands once
    for title, owner in owners:
        # `vars`: not the docstring of a base class
        text = owner.__doc__ if inspect.isfunction(owner) else getattr(owner, "__dict__", {}).get("__doc__")
        found.setdefault(_plain(inspect.cleandoc(text or "")), title)
    for text, title in found.items():
        yield from ((title, part) for _, part in _sections(text))
    if sum(map(len, found)) < SHORT:
        yield from _description(env)


def _description(env: gym.Env[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yield the summary and the description of an environment's package.

    If the package has several environments, only the sections that name this one, outside of code, and what is below
    their headings; if there are none, all.
    """
    kind, ids = type(env.unwrapped), [env.spec.id.rpartition("/")[2]] if env.spec is not None else []
    package = kind.__module__.partition(".")[0]
    for name in metadata.packages_distributions().get(package, [])[:1]:
        about = metadata.metadata(name).json
        sections = list(_sections(_plain(str(about.get("description", "")))))
        entries = {str(spec.entry_point) for spec in gym.registry.values()}
        others = [entry for entry in entries if entry.replace(":", ".").startswith(f"{package}.")]
        names, mine, above = [kind.__name__, *ids], list[str](), None
        for level, text in sections:
            if above is not None and level <= above:
                above = None
            if above is not None or any(word in _outside_code(text) for word in names):
                mine.append(text)
                above = level if above is None else above
        if (len(others) == 1 and kind.__name__ not in ids) or not mine:  # an id like that is `module:Class`
            mine = [text for _, text in sections]
        yield from ((f"package {name}", part) for part in [str(about.get("summary", "")), *mine])


def _sections(text: str) -> Iterator[tuple[int, str]]:
    """Yield level and text of the sections of a Markdown text; those with a heading in `_ASIDE` are left out."""
    parts: list[tuple[int, list[str]]] = [(0, [])]
    in_code = False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        level = 0 if in_code else len(line) - len(line.lstrip("#"))
        if level:
            parts.append((level, []))
        if in_code or not line.lstrip().startswith(("[![", "![", "<")):  # badges and pictures
            parts[-1][1].append(line)
    aside: int | None = None
    for level, lines in parts:
        if aside is not None and level > aside:
            continue
        heading = lines[0].lower() if level else ""
        while heading and not heading[0].isalpha():
            heading = heading[1:]
        aside = level if heading.startswith(_ASIDE) else None
        if aside is None and (part := _plain("\n".join(lines))):
            yield level, part


def _outside_code(text: str) -> str:
    return "".join(text.split("```")[::2])


def _arguments(env: gym.Env[Any, Any]) -> list[str]:
    """Return the environment's class as called: `Room(outside=5.0, size=3)`, defaults included, but no None.

    What `dt` and `tau` count is not certain: they stand as attributes.
    """
    kind, given = type(env.unwrapped), dict(env.spec.kwargs) if env.spec is not None else {}
    values = {name: one.default for name, one in inspect.signature(kind).parameters.items()} | given
    shown = [f"{name}={_short(v)}" for name, v in values.items() if v is not None and v is not inspect.Parameter.empty]
    lines = [f"{kind.__name__}({', '.join(shown)})"] if shown else []
    for name in ("dt", "tau"):
        with suppress(Exception):  # the environment's own code
            value = getattr(env.unwrapped, name)
            if isinstance(value, int | float) and name not in values:
                lines.append(f"attribute {name} = {value:.6g} (unit not stated)")
    return lines


def _form(space: gym.Space[Any]) -> str:
    """Describe a space without the bounds of a Box, which each quantity has with its name."""
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


def _fitting(sections: Sequence[tuple[str, str]]) -> str:
    """Return the sections that fit, in their order; what room is left goes to the beginnings of the others."""
    room, shown = MOST_CHARACTERS, dict[int, str]()
    for whole in (True, False):
        for i, (title, text) in enumerate(sections):
            needed = len(title) + 4
            if i in shown or (whole and needed + len(text) > room) or needed >= room:
                continue
            kept = text if needed + len(text) <= room else f"{text[: room - needed - 4].rpartition(chr(10))[0]}\n..."
            shown[i] = kept
            room -= needed + len(kept)
    titled = itertools.groupby(sorted(shown), lambda i: sections[i][0])  # parts of one text stand below one title
    return "\n".join(f"[{title}]\n" + "\n".join(map(shown.__getitem__, parts)) for title, parts in titled)
