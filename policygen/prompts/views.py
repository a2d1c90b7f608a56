"""Views for templates of the task, a grid and random actions: plain data without methods that act or write."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from policygen.episodes.aggregate import MEAN, Aggregate
from policygen.quantities.grid import Grid
from policygen.runs.attempt import Attempt
from policygen.tasks.spaces import Actuator, Observation, ObservedText
from policygen.tasks.task import Optimum, Task


@dataclass(frozen=True, slots=True)
class TaskView:
    """The part of a task that templates may read; the fields are those of `Task`, and `score` says what is maximised.

    `perturbed` describes the perturbations of the environment. Of a requirement it has the name, the condition in
    words, and whether it is hard. In `observed`, neighbouring observations with the same description and unit are one
    entry, named by all their names.
    """

    name: str
    gym_id: str
    observations: tuple[Observation, ...]
    observed: tuple[Observation, ...]
    texts: tuple[ObservedText, ...]
    actuators: tuple[Actuator, ...]
    action_space: str
    max_steps: int
    score: str
    features: tuple[tuple[str, str], ...]
    requirements: tuple[tuple[str, str, bool], ...]
    perturbed: tuple[str, ...]
    about: str
    hints: tuple[str, ...]
    facts: tuple[str, ...]
    discount: float
    solved: float | None
    optimum: Optimum | None
    observation_names: tuple[str, ...]
    quantity_names: tuple[str, ...]


def task_view(task: Task, aggregate: Aggregate = MEAN) -> TaskView:
    """Return the view of a task without its grid (`grid` is the one in use), and of the aggregate to maximise."""
    shared = {
        field.name: getattr(task, field.name)
        for field in fields(TaskView)
        if field.name not in ("observed", "requirements", "perturbed", "score")
    }
    required = tuple((one.name, str(one), one.hard) for one in task.requirements)
    perturbed = tuple(one.described for one in task.perturb)
    shared |= {"requirements": required, "perturbed": perturbed, "score": aggregate.words}
    return TaskView(observed=_together(task.observations), **shared)


def grid_view(grid: Grid | None) -> list[dict[str, Any]]:
    """Return the views of a grid's dimensions; none without a grid."""
    return [
        {
            "name": d.name,
            "bins": [{"index": i, "label": d.label(i)} for i in range(d.bins)],
            "plain": d.label(0) == "0",  # bin i is the value i
        }
        for d in (grid.dimensions if grid is not None else ())
    ]


def _together(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    groups = [list(group) for _, group in itertools.groupby(observations, lambda o: (o.about or o.name, o.unit))]
    return tuple(replace(group[0], name=", ".join(o.name for o in group)) for group in groups)


@dataclass(frozen=True, slots=True)
class RandomView:
    """The score of random actions, in words and as a number; empty and None if none were played."""

    score: str
    mean: float | None


def random_view(attempts: Sequence[Attempt]) -> RandomView | None:
    """Return the view of attempt 0; None before it."""
    first = next((attempt for attempt in attempts[:1] if attempt.number == 0), None)
    if first is None:
        return None
    return RandomView(str(first.score) if first.score else "", first.score.value if first.score else None)
