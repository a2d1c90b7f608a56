"""Plants: equations of motion that replies write and tuning fits to episodes (`--refine model`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from policygen.errors import PolicyError, UsageError
from policygen.policies.parts import Parts
from policygen.policies.statements import STATEMENTS, Line, Statement
from policygen.runs.methods import METHODS, Method
from policygen.tasks.task import Task, decision_names

# Most fits of the plant for a proposal. After each fit a real episode is played, or several short ones.
MOST_ROUNDS = 25
MOST_OBSERVED = 6  # observations up to which `auto` tunes in a plant; regressions over more take minutes


def _check(task: Task) -> None:
    from policygen.policies.plant import Equations, known_plant  # start-up time

    if task.text_names:
        return
    try:
        Equations(task, known_plant(task))
    except PolicyError as error:
        raise UsageError(f"`reward`, `ends` or `starts` of {task.name} cannot be used: {error}") from None


def _read(parts: Parts, lines: Mapping[tuple[str, str], Line]) -> Any:
    from policygen.extensions.plants.read import read_plant  # start-up time

    return read_plant(parts, lines)


def _private(task: Task, lines: Sequence[Line]) -> list[str]:
    return [*decision_names(task), *(line.name for line in lines if line.word == "hidden")]


STATEMENTS.add(
    "plant",
    Statement(
        words=("next", "start"),
        declares=("hidden",),
        names=("reward", "ends"),
        read=_read,
        private=_private,
        reads="the action of the step or a hidden state",
    ),
)
METHODS.add(
    "model",
    Method(
        "policygen.search.refine.model:tune_in_plant",
        most_episodes=MOST_ROUNDS,
        check=_check,
        suits=lambda task: len(task.observations) <= MOST_OBSERVED,
    ),
)
