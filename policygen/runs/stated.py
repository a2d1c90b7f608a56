"""Notes on what replies and tasks state beside policies: objectives and requirements."""

from __future__ import annotations

from policygen.episodes.requirements import Violations
from policygen.policies.shaping import Measure, Shaping
from policygen.runs.attempt import Attempt
from policygen.runs.notes import Note

# The objective and the potential that guided an attempt's tuning.
SHAPING = Note("objective", Shaping, words=Shaping.to_text, distinguishes=True, check=Measure)
# How often the scored episodes violated each requirement of the task.
VIOLATIONS = Note("violations", tuple[Violations, ...])


def violations_of(attempt: Attempt) -> tuple[Violations, ...]:
    """Return how often an attempt's scored episodes violated each requirement."""
    return VIOLATIONS.of(attempt) or ()
