"""The requirements of a task as templates see them, with the violations of the best policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policygen.episodes.requirements import Violations
from policygen.prompts.refused import rows_at
from policygen.runs.attempt import Attempt
from policygen.runs.state import Context

ROWS = (-2, -1, 0, 1)  # steps that are shown around the first violation


@dataclass(frozen=True, slots=True)
class RequirementView:
    """A requirement, and how the best policy meets it.

    Attributes:
        text: its condition in words.
        allowed: share of episodes that may violate it.
        violated, episodes: number of the best policy's episodes that violate it, and of all; None and 0 before there is
            a best policy.
        worst: the value of the left side of its comparison where it was furthest from being met.
        rows: steps around the first violation in its worst episode.
    """

    name: str
    text: str
    hard: bool
    allowed: float
    violated: int | None
    episodes: int
    worst: float | None
    rows: tuple[Mapping[str, Any], ...]


def requirement_views(context: Context) -> list[RequirementView]:
    """Return the views of all requirements of the task."""
    best = context.best
    counted = {one.name: one for one in best.violations} if best is not None else {}
    views = []
    for requirement in context.task.requirements:
        found = counted.get(requirement.name)
        views.append(
            RequirementView(
                requirement.name,
                str(requirement),
                requirement.hard,
                requirement.allowed,
                found.violated if found is not None else None,
                found.episodes if found is not None else 0,
                found.worst if found is not None else None,
                _rows(best, found, context) if best is not None and found is not None else (),
            )
        )
    return views


def _rows(best: Attempt, found: Violations, context: Context) -> tuple[Mapping[str, Any], ...]:
    if not found.violated or found.step is None:
        return ()
    played = [e.trajectory for e in context.buffer.of_attempt(best.number) if e.trajectory.seed == found.seed]
    return tuple(rows_at(best, played[0], [found.step + k for k in ROWS], context.task)) if played else ()
