"""Plants: equations of motion that replies write and tuning fits to episodes (`--refine model`)."""

# Imports inside functions keep the time to read a policy short: most need no plant.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from policygen.errors import PolicyError, UsageError
from policygen.extensions.plants.plant import MOST_ROUNDS, known_plant, plant_view
from policygen.policies.lines import STATEMENTS, Line, Statement
from policygen.policies.parts import Parts
from policygen.prompts.sections import Section, add_section
from policygen.runs.methods import METHODS, Method
from policygen.runs.state import Context
from policygen.tasks.task import Task

MOST_OBSERVED = 6  # observations up to which `auto` tunes in a plant; regressions over more take minutes


def _check(task: Task) -> None:
    from policygen.extensions.plants.equations import Equations

    if task.text_names:
        return
    try:
        Equations(task, known_plant(task))
    except PolicyError as error:
        raise UsageError(f"`reward`, `ends` or `starts` of {task.name} cannot be used: {error}") from None


def _read(parts: Parts, lines: Mapping[tuple[str, str], Line]) -> Any:
    from policygen.extensions.plants.equations import read_plant

    return read_plant(parts, lines)


def _private(task: Task, lines: Sequence[Line]) -> list[str]:
    return [*task.decision_names, *(line.name for line in lines if line.word == "hidden")]


def _tunes_in_plant(context: Context) -> bool:
    return context.tuning is not None and context.tuning.method == "model"


add_section(
    Section("plant", lambda context, _: plant_view(context) if _tunes_in_plant(context) else None, "after_episodes")
)
add_section(Section("plant_language", lambda context, _: _tunes_in_plant(context), "after_language"))
STATEMENTS.add(
    "plant",
    Statement(
        words=("next", "start"),
        declares=("hidden",),
        names=("reward", "ends"),
        read=_read,
        private=_private,
    ),
)
METHODS.add(
    "model",
    Method(
        "policygen.extensions.plants.tuning:tune_in_plant",
        most_episodes=MOST_ROUNDS,
        check=_check,
        suits=lambda task: len(task.observations) <= MOST_OBSERVED,
    ),
)
