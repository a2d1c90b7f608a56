"""The registry of prompt sections that extensions add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from policygen.registry import Registry
from policygen.runs.config import RunConfig
from policygen.runs.state import Context

Place = Literal["after_language", "after_account", "after_history", "after_episodes"]
PLACES = frozenset(f"_{place}" for place in get_args(Place))  # the names by which templates include the places


@dataclass(frozen=True, slots=True)
class Section:
    """A section of prompts.

    Attributes:
        name: the variable that holds the data in all templates; `templates/_NAME.j2` formats it.
        data: returns the data as plain values, mappings and sequences. It only reads the state of the search: it plays
            no episode and scores no policy. Without data (empty or None), prompts leave the section out.
        place: the place in the prompt: `after_language` in the system message; in the request `after_account` (of the
            best policy's rewards), `after_history` (of the attempts) or `after_episodes`.
    """

    name: str
    data: Callable[[Context, RunConfig], Any]
    place: Place


SECTIONS: Registry[Section] = Registry("section of prompts")
"""The sections by name; prompts show those of one place in this order."""


def add_section(section: Section) -> None:
    """Add a section to prompts; raise UsageError if another one has its name."""
    SECTIONS.add(section.name, section)


def section_data(context: Context, config: RunConfig) -> dict[str, Any]:
    """Return the data of every section, by name."""
    return {name: section.data(context, config) for name, section in SECTIONS.items()}


def place_source(place: str) -> str:
    """Return the source of the template of one of the `PLACES`, which includes its sections."""
    names = [name for name, section in SECTIONS.items() if f"_{section.place}" == place]
    return "".join(f'{{% if {name} %}}{{% include "_{name}.j2" %}}{{% endif %}}' for name in names)
