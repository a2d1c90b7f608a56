"""Requirements of a task: conditions that episodes must meet, whatever their return."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from policygen.errors import ExpressionError, TaskError
from policygen.quantities.text import parse_expression
from policygen.quantities.tree import Node

_CHANGES = re.compile(r"([A-Za-z_]\w*)\s+changes")
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(steps?|s|ms)")
_INFO = re.compile(r"\binfo_([A-Za-z_]\w*)")
MOST_REQUIREMENTS = 50


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on the steps of an episode, in the language of policies: either `always` or `at_end`.

    Attributes:
        always: a condition that must hold at every step. With `after` or `within`: at every step that is at least
            `within` steps after an event.
        at_end: a condition that must hold at the last observation (`finally` in task files).
        after: a condition; each step at which it holds is an event. `NAME changes` is one, too. Empty: the only event
            is the start of the episode.
        within: number of steps.
        hard: whether a policy that violates it too often cannot become the best.
        allowed: share of episodes that may violate it.
    """

    name: str
    always: str = ""
    at_end: str = ""
    after: str = ""
    within: int | None = None
    hard: bool = True
    allowed: float = 0.01

    @property
    def condition(self) -> str:
        """The text of its condition."""
        return self.always or self.at_end

    def __str__(self) -> str:
        """Describe it in words: `always error < 0.1, from 20 steps after reference changes on`."""
        words = f"{'always' if self.always else 'finally'} {self.condition}"
        if self.after or self.within is not None:
            words += f", from {self.within or 0} step{'s' * (self.within != 1)} after {self.after or 'the start'} on"
        return words

    @property
    def info_names(self) -> frozenset[str]:
        """The keys of the environment's `info` whose values it reads, as `info_KEY`."""
        return frozenset(_INFO.findall(f"{self.condition} {self.after}"))


def info_names(requirements: Sequence[Requirement]) -> tuple[str, ...]:
    """Return the keys of `info` that the requirements read, sorted."""
    return tuple(sorted(frozenset().union(*(one.info_names for one in requirements))))


def parsed(requirement: Requirement, names: Sequence[str], texts: Sequence[str]) -> tuple[Node, Node | None]:
    """Return the condition and the event of a requirement as expressions; the event is None without `after`.

    Args:
        names: quantities and parts of the decision; `info_KEY` may be used, too.
        texts: names of observed texts.

    Raises:
        TaskError: one of them cannot be parsed, or a condition at the end is timed; the message names the requirement.
    """
    if requirement.at_end and (requirement.after or requirement.within is not None):
        raise TaskError(f"requirement `{requirement.name}`: `after` and `within` are for `always`; leave them out")
    names = [*names, *(f"info_{key}" for key in sorted(requirement.info_names) if f"info_{key}" not in names)]
    event = _CHANGES.sub(r"(\1 != prev(\1, \1))", requirement.after)
    try:
        condition = parse_expression(requirement.condition, names, texts=texts)
        return condition, parse_expression(event, names, texts=texts) if event else None
    except ExpressionError as error:
        raise TaskError(f"requirement `{requirement.name}`: {error}") from None


def steps_of(duration: str, seconds: float | None) -> int:
    """Convert a duration such as `20 steps` or `0.4 s` to a number of steps.

    Args:
        seconds: the length of a step in seconds; None if unknown.

    Raises:
        TaskError: `duration` is not a duration, or is in seconds while the length of a step is unknown.
    """
    match = _DURATION.fullmatch(duration.strip())
    if match is None:
        raise TaskError(f"`within = {duration!r:.40}` is not a duration; write `20 steps` or `0.4 s`")
    if match[2].startswith("step"):
        return round(float(match[1]))
    if seconds is None:
        what = "the length of a step is unknown; write `step_seconds = 0.02` in the task file, or `within` in steps"
        raise TaskError(what)
    return round(float(match[1]) * (0.001 if match[2] == "ms" else 1) / seconds)
