"""Plants: equations of motion that replies write and tuning fits to episodes (`--refine model`)."""

from __future__ import annotations

from policygen.errors import PolicyError, UsageError
from policygen.runs.methods import METHODS, Method
from policygen.tasks.task import Task

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


METHODS.add(
    "model",
    Method(
        "policygen.search.refine.model:tune_in_plant",
        most_episodes=MOST_ROUNDS,
        check=_check,
        suits=lambda task: len(task.observations) <= MOST_OBSERVED,
    ),
)
