"""The registry of prompt sections that extensions add: the data of each, and the place where prompts show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from policygen.registry import Registry
from policygen.runs.config import RunConfig
from policygen.runs.state import Context

Place = Literal["after_language", "after_account", "after_history", "after_episodes"]
PLACES = frozenset(f"_{place}" for place in get_args(Place))  # templates include a place by this name


@dataclass(frozen=True, slots=True)
class Section:
    """A section of prompts.

    Attributes:
        name: the variable by which all templates read the data. `templates/_NAME.j2` formats it.
        data: returns the data: plain values, mappings, sequences. It reads the state of the search only: it plays no
            episode, makes no environment, scores no policy. Prompts leave the section out if its data is empty or None.
        place: where templates show the section: in the system message `after_language`; in the request
            `after_account` (how the best policy does), `after_history` (the attempts), `after_episodes`.
    """

    name: str
    data: Callable[[Context, RunConfig], Any]
    place: Place


SECTIONS: Registry[Section] = Registry("section of prompts")
"""The sections by name, in the order in which prompts show those of one place."""


def add_section(section: Section) -> None:
    """Add a section to prompts; raise UsageError if another one has its name."""
    SECTIONS.add(section.name, section)


def section_data(context: Context, config: RunConfig) -> dict[str, Any]:
    """Return the data of every section, by name."""
    return {name: section.data(context, config) for name, section in SECTIONS.items()}


def place_source(place: str) -> str:
    """Return the text of a template that includes the sections of one of `PLACES`."""
    names = [name for name, section in SECTIONS.items() if f"_{section.place}" == place]
    return "".join(f'{{% if {name} %}}{{% include "_{name}.j2" %}}{{% endif %}}' for name in names)
