"""Notes on what replies and tasks state beside policies: objectives, plants and requirements."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from policygen.episodes.requirements import Violations
from policygen.plants.fit import PlantRecord
from policygen.policies.plant import Equations, Plant, known_plant
from policygen.policies.shaping import Measure, Shaping
from policygen.runs.attempt import Attempt
from policygen.runs.notes import Note
from policygen.tasks.task import Task

# The objective and the potential that guided an attempt's tuning.
SHAPING = Note("objective", Shaping, words=Shaping.to_text, distinguishes=True, check=Measure)
# The lines of a plant that a reply wrote.
PLANT = Note("plant", Plant, check=Equations)
# The plant that an attempt was tuned in.
FITTED_PLANT = Note("fitted_plant", PlantRecord)
# How often the scored episodes violated each requirement of the task.
VIOLATIONS = Note("violations", tuple[Violations, ...])


def violations_of(attempt: Attempt) -> tuple[Violations, ...]:
    """Return how often an attempt's scored episodes violated each requirement."""
    return VIOLATIONS.of(attempt) or ()


def revised(task: Task, attempts: Sequence[Attempt]) -> Plant:
    """Return the plant that a task states, revised by the replies of the attempts."""
    plants = [plant for attempt in attempts if (plant := PLANT.of(attempt)) is not None]
    return functools.reduce(Plant.revised_by, plants, known_plant(task))
