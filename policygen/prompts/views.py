"""Views for templates: plain data of the task, random actions, requirements, objectives and the plant."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from policygen.episodes.aggregate import MEAN, Aggregate
from policygen.episodes.requirements import Violations
from policygen.episodes.trajectory import Trajectory
from policygen.plants.fit import AHEAD
from policygen.plants.record import PlantRecord, PredictionError, UncertainNumber, WorstPrediction
from policygen.policies.parts import ENDS
from policygen.policies.plant import NEXT, Plant
from policygen.policies.shaping import REWARD, Measure
from policygen.prompts.refused import rows_at
from policygen.quantities.grid import Grid
from policygen.quantities.text import slug
from policygen.runs.attempt import Attempt
from policygen.runs.state import Context, revised
from policygen.tasks.spaces import Actuator, Observation, ObservedText
from policygen.tasks.task import Optimum, Task
from policygen.tasks.vocabulary import DERIVED

AROUND_VIOLATION = (-2, -1, 0, 1)  # steps that are shown around the first violation
MOST_OBJECTIVES = 3  # last objectives that are shown, beside that of the best policy
EXTREME = 4  # least number of episodes to show the best and the worst one separately


# --- task and grid ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskView:
    """The part of a task that templates may read; the fields are those of `Task`, and `score` says what is maximised.

    `perturbed` describes the perturbations of the environment. Of a requirement it has the name, the condition in
    words, and whether it is hard. In `observed`, neighbouring observations with the same description and unit are one
    entry, named by all their names; so are neighbours that differ in the body only.
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
    changed: dict[str, Any] = {
        "observed": _together(task.observations),
        "requirements": tuple((one.name, str(one), one.hard) for one in task.requirements),
        "perturbed": tuple(one.described for one in task.perturb),
        "score": aggregate.words,
    }
    same = (field.name for field in fields(TaskView) if field.name not in changed)
    return TaskView(**{name: getattr(task, name) for name in same}, **changed)


def _together(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    groups = [list(group) for _, group in itertools.groupby(observations, lambda o: (o.about or o.name, o.unit))]
    entries = list[Observation]()
    for (names, about), run in itertools.groupby(groups, _of_any_body):
        first, *others = run
        if others:
            bodies = ", ".join(DERIVED.sub(r"\1", group[0].about).partition(":")[0] for group in (first, *others))
            entries.append(replace(first[0], name=f"{names} (BODY: {bodies})", about=about))
        else:
            entries.append(replace(first[0], name=", ".join(o.name for o in first)))
    return tuple(entries)


def _of_any_body(group: Sequence[Observation]) -> tuple[str, str]:
    """Return names and description of a group, with `BODY` for the name of the body that the description names."""
    names, about = [o.name for o in group], group[0].about
    found = DERIVED.match(about)
    body = found[1] if found else None
    if body is None or not all(name.startswith(f"{slug(body)}_") for name in names):
        return ", ".join(names), about
    own = len(slug(body))
    return ", ".join(f"BODY{name[own:]}" for name in names), about.replace(f"of body {body}", "of BODY", 1)


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


# --- random actions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RandomView:
    """The score of random actions, in words and as a number; empty and None if none were played."""

    score: str
    mean: float | None


def random_view(attempts: Sequence[Attempt]) -> RandomView | None:
    """Return the view of attempt 0; None before it."""
    if not attempts or attempts[0].number != 0:
        return None
    score = attempts[0].score
    return RandomView(str(score) if score else "", score.value if score else None)


# --- requirements ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequirementView:
    """A requirement, and how the best policy meets it.

    Attributes:
        violated, episodes: number of the best policy's episodes that violate it, and of all; None and 0 before there is
            a best policy.
    """

    name: str
    text: str  # its condition in words
    hard: bool
    allowed: float  # share of episodes that may violate it
    violated: int | None = None
    episodes: int = 0
    worst: float | None = None  # the value of the left side of its comparison where it was furthest from being met
    rows: tuple[Mapping[str, Any], ...] = ()  # steps around the first violation in its worst episode


def requirement_views(context: Context) -> list[RequirementView]:
    """Return the views of all requirements of the task."""
    best = context.best
    counted = {one.name: one for one in best.violations} if best is not None else {}
    views = []
    for requirement in context.task.requirements:
        view = RequirementView(requirement.name, str(requirement), requirement.hard, requirement.allowed)
        if best is not None and (found := counted.get(requirement.name)) is not None:
            rows = _rows(best, found, context)
            view = replace(view, violated=found.violated, episodes=found.episodes, worst=found.worst, rows=rows)
        views.append(view)
    return views


def _rows(best: Attempt, found: Violations, context: Context) -> tuple[Mapping[str, Any], ...]:
    if not found.violated or found.step is None:
        return ()
    played = [e.trajectory for e in context.buffer.of_attempt(best.number) if e.trajectory.seed == found.seed]
    steps = [found.step + k for k in AROUND_VIOLATION]
    return tuple(rows_at(best, played[0], steps, context.task)) if played else ()


# --- objectives ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObjectiveView:
    """The objective that one attempt was tuned for."""

    number: int
    is_best: bool
    lines: tuple[str, ...]  # its objective and potential, after the features that they need
    refinement: str  # the result of tuning, in words
    # groups of episodes, each with its number of episodes and their mean return
    groups: tuple[tuple[str, int, float], ...] = ()
    # each term of the objective with its mean sum per episode, one for each group; empty without an objective
    terms: tuple[tuple[str, tuple[float, ...]], ...] = ()
    total: tuple[float, ...] = ()  # the same for the whole objective


def objective_views(context: Context) -> list[ObjectiveView]:
    """Return the last objectives, oldest first, and that of the best policy."""
    shaped = [attempt for attempt in context.attempts if attempt.shaping is not None and attempt.saved is not None]
    shown = [attempt for attempt in shaped if attempt is context.best or attempt in shaped[-MOST_OBJECTIVES:]]
    best = context.best.number if context.best is not None else 0
    return [
        context.buffer.cached(("objective", attempt.number, best), lambda attempt=attempt: _objective(attempt, context))  # type: ignore[misc]
        for attempt in shown
    ]


def _objective(attempt: Attempt, context: Context) -> ObjectiveView:
    assert attempt.shaping is not None
    view = ObjectiveView(
        attempt.number, attempt is context.best, tuple(attempt.shaping.to_text().splitlines()), attempt.tuned.refinement
    )
    groups = _groups(attempt, context)
    if not attempt.shaping.objective or not groups:
        return view
    measure = Measure(context.task, attempt.shaping)
    sums = [measure.sums_of_terms(episodes).mean(axis=1) for _, episodes in groups]
    return replace(
        view,
        groups=tuple((name, len(some), float(np.mean([t.episode_return for t in some]))) for name, some in groups),
        terms=tuple((text, tuple(float(one[i]) for one in sums)) for i, text in enumerate(measure.terms)),
        total=tuple(float(one.sum()) for one in sums),
    )


def _groups(attempt: Attempt, context: Context) -> list[tuple[str, Sequence[Trajectory]]]:
    """Return groups of episodes: an attempt's best and worst ones (or all, if alike), and the best policy's."""
    own = sorted(_episodes(attempt, context), key=lambda t: -t.episode_return)
    if not own:
        return []
    groups: list[tuple[str, Sequence[Trajectory]]] = [("its", own)]
    if own[0].episode_return > own[-1].episode_return:
        extreme = max(1, len(own) // EXTREME)
        groups = [("its best", own[:extreme]), ("its worst", own[-extreme:])]
    if context.best is not None and attempt is not context.best and (others := _episodes(context.best, context)):
        groups.append(("the best policy's", others))
    return groups


def _episodes(attempt: Attempt, context: Context) -> list[Trajectory]:
    return [episode.trajectory for episode in context.buffer.of_attempt(attempt.number, len(attempt.played))]


# --- plant -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlantView:
    """The plant so far: the one fitted last, or the one of the replies if a reply has written one since."""

    lines: tuple[str, ...]  # the plant in the policy language
    steps: int = 0  # number of steps it was fitted to; 0: its numbers are as written
    regressed: tuple[str, ...] = ()  # left-hand sides of its lines that no reply and no task file has stated
    errors: tuple[PredictionError, ...] = ()  # the observations, worst predicted first
    largest: float = 0.0  # the largest of all these errors; 0 without any
    ahead: int = AHEAD  # number of steps that `PredictionError.ahead` looks ahead
    uncertain: tuple[UncertainNumber, ...] = ()
    worst: WorstPrediction | None = None


def plant_view(context: Context) -> PlantView | None:
    """Return the view of the plant so far; None if the run does not tune in a plant."""
    if context.tuning is None or context.tuning.method != "model":
        return None
    stated = revised(context.task, context.attempts)
    account = _last_account(context)
    if account is None:
        return PlantView(tuple(stated.to_text().splitlines()))
    lines = tuple(account.text.splitlines())
    errors = sorted(account.errors, key=lambda error: -error.larger)
    return PlantView(
        lines,
        account.steps,
        _regressed(lines, stated),
        tuple(errors),
        errors[0].larger if errors else 0.0,
        uncertain=account.uncertain,
        worst=account.worst,
    )


def _last_account(context: Context) -> PlantRecord | None:
    """Return the plant fitted last; None if there is none, or a reply after it has written another one."""
    for attempt in reversed(context.attempts):
        if attempt.tuned.fitted_plant is not None or attempt.plant is not None:
            return attempt.tuned.fitted_plant
    return None


def _regressed(lines: Sequence[str], stated: Plant) -> tuple[str, ...]:
    """Return the left-hand sides of the equations of motion, the reward and the end that `stated` does not have."""
    own = {f"{NEXT} {name}" for name, _ in stated.next}
    own |= {name for name, text in ((REWARD, stated.reward), (ENDS, stated.ends)) if text}
    sides = [line.partition(" = ")[0] for line in lines]
    moving = (side for side in sides if side.startswith(f"{NEXT} ") or side in (REWARD, ENDS))
    return tuple(side for side in moving if side not in own)
