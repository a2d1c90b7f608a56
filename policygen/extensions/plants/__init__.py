"""Plants: models of an environment's dynamics, which replies state and tuning fits to episodes (`--refine model`)."""

# Imports inside functions keep reading a policy fast: most policies need no plant.

from __future__ import annotations

from policygen.errors import PolicyError, UsageError
from policygen.extensions.plants.plant import MOST_ROUNDS, known_plant, plant_view
from policygen.policies.lines import STATEMENTS, Statement
from policygen.prompts.sections import Section, add_section
from policygen.registry import resolved
from policygen.runs.methods import METHODS, Method
from policygen.runs.state import Context
from policygen.tasks.task import Task

MOST_OBSERVED = 6  # `auto` tunes in a plant for at most so many observations; regressions over more take minutes


def _check(task: Task) -> None:
    from policygen.extensions.plants.equations import Equations

    if task.text_names:
        return
    try:
        Equations(task, known_plant(task))
    except PolicyError as error:
        raise UsageError(f"`reward`, `ends` or `starts` of {task.name} cannot be used: {error}") from None


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
        read=lambda *arguments: resolved("policygen.extensions.plants.equations:read_plant")(*arguments),
        private=lambda task, lines: [*task.decision_names, *(line.name for line in lines if line.word == "hidden")],
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
