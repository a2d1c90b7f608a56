"""The documentation of an environment, as it is: docstrings, its package's description, arguments, spaces."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

MOST_CHARACTERS = 6_000  # of all sections together
SHORT = 1_000  # characters of docstrings below which the description of the package is added
SEEN = "[seen]"  # title of the section on what was observed under random actions
MOST_OF_A_VALUE = 120  # characters of an argument or a space
# Modules whose base classes describe no environment.
_GENERAL = ("builtins", "abc", "typing", "gymnasium.core", "gymnasium.utils", "gymnasium.envs.mujoco.mujoco_env")


def documentation_of(env: gym.Env[Any, Any], seen: Sequence[str]) -> str:
    """Return the documentation of an environment in sections of at most `MOST_CHARACTERS` together.

    Each section begins with its title in brackets. Sections that fit as a whole go before parts of others.

    Args:
        seen: sentences on what was observed while random actions were played.
    """
    with suppress(Exception):  # the environment's own code
        text = _documented(env)
        own = [("arguments in force", _signature(env)), ("spaces", _spaces(env)), ("seen", "\n".join(seen))]
        return _fitting([*text, *((title, words) for title, words in own if words)])
    return ""


def _documented(env: gym.Env[Any, Any]) -> list[tuple[str, str]]:
    """Return the docstrings of the environment's classes, module and factory, and perhaps its package's description."""
    kind = type(env.unwrapped)
    owners: list[tuple[str, Any]] = []
    for owner in kind.__mro__:
        if not owner.__module__.startswith(_GENERAL):
            owners += [(f"class {owner.__name__}", owner), (f"{owner.__name__}.__init__", vars(owner).get("__init__"))]
    owners.append((f"module {kind.__module__}", sys.modules.get(kind.__module__)))
    if env.spec is not None and env.spec.entry_point is not None:
        entry = env.spec.entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        owners.append(
            (f"function {getattr(creator, '__name__', '')}", creator if inspect.isfunction(creator) else None)
        )
    found: dict[str, str] = {}  # titles by text: a text stands once
    for title, owner in owners:
        text = inspect.cleandoc(vars(owner).get("__doc__") or "") if hasattr(owner, "__dict__") else ""
        if inspect.isfunction(owner):
            text = inspect.cleandoc(owner.__doc__ or "")
        if text:
            found.setdefault(_plain(text), title)
    sections = [(title, text) for text, title in found.items()]
    if sum(map(len, found)) < SHORT:
        words = {kind.__name__.lower(), (env.spec.name if env.spec is not None else kind.__name__).lower()}
        sections += _package_sections(kind.__module__.partition(".")[0], words)
    return sections


def _package_sections(package: str, words: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the sections of the description of a package; first those that name the environment."""
    names = metadata.packages_distributions().get(package, [])
    for name in names[:1]:
        about = metadata.metadata(name).json
        text = str(about.get("description", ""))
        parts: list[list[str]] = [[]]
        in_code = False
        for line in _plain(text).splitlines():
            in_code ^= line.startswith("```")
            if line.startswith("#") and not in_code:
                parts.append([])
            parts[-1].append(line)
        sections = [part for lines in parts if (part := "\n".join(lines).strip())]
        sections.sort(key=lambda part: not any(word in part.lower() for word in words))
        yield from ((f"package {name}", part) for part in [str(about.get("summary", "")), *sections] if part)


def _signature(env: gym.Env[Any, Any]) -> str:
    """Return the environment's class as called: `Room(outside=5.0, size=3)`, defaults included."""
    kind, given = type(env.unwrapped), dict(env.spec.kwargs) if env.spec is not None else {}
    values = {
        name: given.get(name, parameter.default)
        for name, parameter in inspect.signature(kind).parameters.items()
        if name in given or parameter.default is not inspect.Parameter.empty
    }
    return f"{kind.__name__}({', '.join(f'{name}={_short(value)}' for name, value in {**values, **given}.items())})"


def _spaces(env: gym.Env[Any, Any]) -> str:
    return f"observation_space = {_short(env.observation_space, 8)}\naction_space = {_short(env.action_space, 8)}"


def _short(value: Any, times: int = 1) -> str:
    text = " ".join(repr(value).split())
    most = MOST_OF_A_VALUE * times
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def _plain(text: str) -> str:
    """Return a text without control characters, runs of empty lines and trailing spaces."""
    lines = ["".join(c for c in line.expandtabs() if c.isprintable()).rstrip() for line in text.splitlines()]
    return "\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before).strip("\n")


def _fitting(sections: Sequence[tuple[str, str]]) -> str:
    """Return the sections that fit, in their order; what room is left goes to the beginnings of the others.

    The last sections are short and hold what nothing else says: they are chosen first.
    """
    room, shown = MOST_CHARACTERS, dict[int, str]()
    order = [*range(len(sections))[::-1][:3], *range(len(sections))]
    for whole in (True, False):
        for i in order:
            title, text = sections[i]
            needed = len(title) + 4
            if i in shown or (whole and needed + len(text) > room) or needed >= room:
                continue
            kept = text if needed + len(text) <= room else f"{text[: room - needed - 4].rpartition(chr(10))[0]}\n..."
            shown[i] = kept
            room -= needed + len(kept)
    titled = itertools.groupby(sorted(shown), lambda i: sections[i][0])  # parts of one text stand below one title
    return "\n".join(f"[{title}]\n" + "\n".join(map(shown.__getitem__, parts)) for title, parts in titled)
