"""The notes of attempts on plants."""

from __future__ import annotations

from typing import Any

from policygen.runs.notes import Note
from policygen.tasks.task import Task

# Most fits of the plant for a proposal. After each fit a real episode is played, or several short ones.
MOST_ROUNDS = 25


def _fits(task: Task, plant: Any) -> object:
    from policygen.extensions.plants.equations import Equations  # start-up time

    return Equations(task, plant)


# The lines of a plant that a reply wrote, and the plant that an attempt was tuned in.
PLANT: Note[Any] = Note("plant", "policygen.extensions.plants.equations:Plant", check=_fits)
FITTED_PLANT: Note[Any] = Note("fitted_plant", "policygen.extensions.plants.fit:PlantRecord")
