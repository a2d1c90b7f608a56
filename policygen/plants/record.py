"""The record of a fitted plant in an attempt: its equations, its predictions of an episode, its description."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicyError
from policygen.plants.fit import AHEAD, LARGEST_ERROR, FittedPlant, hidden_starts, in_usual_changes
from policygen.plants.transitions import Transitions
from policygen.policies.cells import action_words
from policygen.policies.lines import Problems
from policygen.policies.parts import Scope, read_parts
from policygen.policies.plant import NEXT, NOISE, START, Column, Equations
from policygen.policies.read_equations import read_plant
from policygen.quantities.text import format_number
from policygen.tasks.task import Task

MOST_UNCERTAIN = 5  # numbers that a record names
UNCERTAIN = 0.1  # least standard deviation of an uncertain number, as a share of the number
SHARE = 'as a share of the change over that time: 1 is as good as "nothing changes"'


class PredictionError(NamedTuple):
    """The errors of predicting one observation, as a share of its change: 1 is as good as "nothing changes".

    Attributes:
        one: error one step ahead.
        ahead: error `AHEAD` steps ahead; None if no episode is that long.
    """

    name: str
    one: float
    ahead: float | None

    @property
    def larger(self) -> float:
        """The larger one of the two."""
        return max(self.one, self.ahead or 0.0)


class UncertainNumber(NamedTuple):
    """A number that the data leave uncertain: left-hand side of its line, value, standard deviation."""

    line: str
    value: float
    deviation: float


class PredictedValue(NamedTuple):
    """An observation before a step, after it, and its prediction for after it."""

    name: str
    before: float
    after: float
    predicted: float


class WorstPrediction(NamedTuple):
    """The step that is predicted worst.

    Attributes:
        step: its place in its episode; the first is 0.
        action: the action, in the task's words.
        row: all observations, the one predicted worst first.
    """

    step: int
    action: str
    row: tuple[PredictedValue, ...]


@dataclass(frozen=True, slots=True)
class PlantRecord:
    """A summary of a fitted plant, as an attempt records it and as prompts and reports show it.

    Attributes:
        text: its lines, with the fitted numbers.
        steps: number of transitions it was fitted to.
        errors: the prediction errors of each observation.
        uncertain: the least certain numbers.
    """

    text: str
    steps: int
    errors: tuple[PredictionError, ...] = ()
    uncertain: tuple[UncertainNumber, ...] = ()
    worst: WorstPrediction | None = None


def record_of(fitted: FittedPlant, data: Transitions) -> PlantRecord:
    """Return a summary of the plant, judged by the transitions that it was fitted to."""
    equations, names = fitted.equations, fitted.equations.task.observation_names
    one, ahead = fitted.error, fitted.error_ahead
    errors = [
        PredictionError(name, _short(one[i]), None if ahead is None else _short(ahead[i]))
        for i, name in enumerate(names)
    ]
    sizes = np.abs(fitted.values[0])
    shares = np.where(sizes > 0, fitted.deviations / np.maximum(sizes, 1e-300), 0.0)
    least = [k for k in np.argsort(-shares, kind="stable").tolist()[:MOST_UNCERTAIN] if shares[k] > UNCERTAIN]
    uncertain = [
        UncertainNumber(equations.places[k], _short(fitted.values[0][k]), _short(fitted.deviations[k])) for k in least
    ]
    return PlantRecord(fitted.plant.to_text(), fitted.steps, tuple(errors), tuple(uncertain), _worst(fitted, data))


def _worst(fitted: FittedPlant, data: Transitions) -> WorstPrediction:
    equations, task = fitted.equations, fitted.equations.task
    names = task.observation_names
    found, _ = equations.step(
        list(data.before.T),
        data.memory(equations, list(fitted.values[0]), fitted.hidden),
        equations.decided(data.actions),
        list(fitted.values[0]),
    )
    predicted = np.stack([np.broadcast_to(column, len(data)) for column in found], axis=1)
    wrong = np.abs(in_usual_changes(predicted - data.after, data.rms_changes))
    at = int(wrong.max(axis=1).argmax())
    row = [
        PredictedValue(names[i], _short(data.before[at, i]), _short(data.after[at, i]), _short(predicted[at, i]))
        for i in np.argsort(-wrong[at], kind="stable").tolist()
    ]
    action = action_words(task.actuators, [_short(part) for part in np.atleast_1d(data.actions[at])])
    return WorstPrediction(int(at - np.flatnonzero(data.first[: at + 1])[-1]), action, tuple(row))


def _short(value: float) -> float:
    """Round to 4 significant digits."""
    return float(f"{value:.4g}") if np.isfinite(value) else LARGEST_ERROR


def equations_of(record: PlantRecord, task: Task) -> Equations:
    """Return the equations of a recorded plant; they are compiled from its text and run no other code.

    Raises:
        PolicyError: the text is damaged.
    """
    scope, problems = Scope(task, None, {}, False), Problems()
    plant = read_plant(read_parts(record.text, scope, problems), scope, problems)
    if plant is None or len(problems):
        raise PolicyError(f"damaged plant: {'; '.join(map(str, problems)) or 'it has no lines'}")
    return Equations(task, plant)


def predicted(equations: Equations, episode: Trajectory) -> Column:
    """Return the observations that the equations predict from the start of an episode and its actions, without noise.

    Hidden states start with the values that fit the episode best.

    Returns:
        shape (steps + 1, d): the first row is the observed start; NaN or infinite if the equations break down.
    """
    observed = list(episode.observations[:1].astype(np.float64).T)
    hidden = hidden_starts(equations, Transitions.of(equations.task, [episode]))
    memory = equations.memory(hidden, 1)
    decided = equations.decided(episode.actions)
    rows = [episode.observations[0].astype(np.float64)]
    for step in range(episode.length):
        parts = [column[step : step + 1] for column in decided]
        observed, memory = equations.step(observed, memory, parts, equations.values)
        rows.append(np.array([float(np.ravel(value)[0]) for value in observed]))
    return np.stack(rows)


def lines_with_units(record: PlantRecord, task: Task) -> list[str]:
    """Return the lines of a plant, those of observations with their unit as a comment."""
    units = {observation.name: observation.unit for observation in task.observations}
    found = []
    for line in record.text.splitlines():
        word, _, name = line.partition(" = ")[0].partition(" ")
        unit = units.get(name, "") if word in (NEXT, START, NOISE) else ""
        found.append(f"{line}  # {unit}" if unit else line)
    return found


def errors_in_words(record: PlantRecord) -> list[tuple[str, str, str]]:
    """Return for each observation its name, and its error one step and `AHEAD` steps ahead (a dash: not known)."""
    return [(e.name, f"{e.one:.2g}", "–" if e.ahead is None else f"{e.ahead:.2g}") for e in record.errors]


def uncertain_in_words(record: PlantRecord) -> list[str]:
    """Return the uncertain numbers, each with its standard deviation and the line that has it."""
    return [f"{one.value:.4g} ± {one.deviation:.2g} in `{one.line}`" for one in record.uncertain]


def worst_in_words(record: PlantRecord) -> tuple[str, list[tuple[str, ...]]]:
    """Return the step that is predicted worst, and for each observation its name, before, after, and predicted.

    The rows are empty if no step is recorded.
    """
    worst = record.worst
    if worst is None:
        return "", []
    step = f"step {worst.step} of an episode{f', action {worst.action}' if worst.action else ''}"
    return step, [(v.name, *map(format_number, (v.before, v.after, v.predicted))) for v in worst.row]


def plant_words(record: PlantRecord, task: Task) -> Iterator[str]:
    """Yield the lines of a plant with units, then as comments its errors, worst prediction and uncertain numbers."""
    yield f"# plant fitted to {record.steps:,} steps"
    yield from lines_with_units(record, task)
    yield from _aligned([("prediction error", "1 step", f"{AHEAD} steps"), *errors_in_words(record)])
    yield f"# ({SHARE})"
    step, rows = worst_in_words(record)
    if rows:
        yield f"# worst prediction: {step}"
        yield from _aligned([("observation", "before", "after", "predicted"), *rows])
    yield from (f"# uncertain: {words}" for words in uncertain_in_words(record))


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the rows of a table as comments, names to the left and numbers to the right."""
    width = max(len(name) for name, *_ in rows)
    yield from (f"# {name:{width}}" + "".join(f"  {number:>9}" for number in numbers) for name, *numbers in rows)
