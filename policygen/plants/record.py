"""The record of a fitted plant in an attempt: its equations, its prediction errors, and their description in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from policygen.plants.fit import AHEAD, LARGEST_ERROR, FittedPlant, in_usual_changes, predictions
from policygen.plants.transitions import Transitions
from policygen.policies.cells import action_words
from policygen.policies.plant import NEXT, START
from policygen.quantities.text import format_number, to_digits
from policygen.tasks.task import Task

MOST_UNCERTAIN = 5  # uncertain numbers that a record holds
UNCERTAIN = 0.1  # least standard deviation of an uncertain number, as a share of the number
SHARE = 'as a share of the change over that time: 1 is as good as "nothing changes"'


class PredictionError(NamedTuple):
    """The errors of predicting one observation, as a share of its change: 1 is as good as "nothing changes"."""

    name: str
    one: float  # one step ahead
    ahead: float | None  # `AHEAD` steps ahead; None if no episode is that long

    @property
    def larger(self) -> float:
        """The larger of the two errors."""
        return max(self.one, self.ahead or 0.0)


class UncertainNumber(NamedTuple):
    """A number that the data leave uncertain."""

    line: str  # the left-hand side of its line
    value: float
    deviation: float  # its standard deviation


class PredictedValue(NamedTuple):
    """An observation before a step and after it, and its predicted value after it."""

    name: str
    before: float
    after: float
    predicted: float


class WorstPrediction(NamedTuple):
    """The step that is predicted worst."""

    step: int  # its number in its episode, counted from 0
    action: str  # in the task's words
    row: tuple[PredictedValue, ...]  # all observations, the one predicted worst first


@dataclass(frozen=True, slots=True)
class PlantRecord:
    """A summary of a fitted plant, as an attempt records it and as prompts and reports show it."""

    text: str  # the lines of the plant, with the fitted numbers
    steps: int  # number of transitions that it was fitted to
    errors: tuple[PredictionError, ...] = ()  # of each observation
    uncertain: tuple[UncertainNumber, ...] = ()  # the least certain numbers
    worst: WorstPrediction | None = None  # None if it is not recorded


def record_of(fitted: FittedPlant, data: Transitions) -> PlantRecord:
    """Return a summary of a fitted plant; `data` are the transitions that it was fitted to."""
    equations, task, values = fitted.equations, fitted.equations.task, fitted.values[0]
    names, ahead = task.observation_names, fitted.error_ahead
    errors = [
        PredictionError(name, _rounded(fitted.error[i]), None if ahead is None else _rounded(ahead[i]))
        for i, name in enumerate(names)
    ]
    sizes = np.abs(values)
    shares = np.where(sizes > 0, fitted.deviations / np.maximum(sizes, 1e-300), 0.0)
    uncertain = [
        UncertainNumber(equations.places[k], _rounded(values[k]), _rounded(fitted.deviations[k]))
        for k in np.argsort(-shares, kind="stable").tolist()[:MOST_UNCERTAIN]
        if shares[k] > UNCERTAIN
    ]
    predicted = predictions(equations, values, fitted.hidden, data, begins=np.arange(len(data)), steps=1)
    wrong = np.abs(in_usual_changes(predicted - data.after, data.rms_changes))
    at = int(wrong.max(axis=1).argmax())
    row = [
        PredictedValue(names[i], _rounded(data.before[at, i]), _rounded(data.after[at, i]), _rounded(predicted[at, i]))
        for i in np.argsort(-wrong[at], kind="stable").tolist()
    ]
    action = action_words(task.actuators, [_rounded(part) for part in np.atleast_1d(data.actions[at])])
    worst = WorstPrediction(int(at - data.starts[data.episode_index[at]]), action, tuple(row))
    return PlantRecord(fitted.plant.to_text(), fitted.steps, tuple(errors), tuple(uncertain), worst)


def _rounded(value: float) -> float:
    """Round to 4 significant digits; a value that is not finite becomes `LARGEST_ERROR`."""
    return to_digits(value, 4) if np.isfinite(value) else LARGEST_ERROR


def lines_with_units(text: str, task: Task) -> list[str]:
    """Return the lines of a plant; a line about an observation has its unit as a comment."""
    units = {observation.name: observation.unit for observation in task.observations}
    found = []
    for line in text.splitlines():
        word, _, name = line.partition(" = ")[0].partition(" ")
        unit = units.get(name, "") if word in (NEXT, START) else ""
        found.append(f"{line}  # {unit}" if unit else line)
    return found


def errors_in_words(record: PlantRecord) -> list[tuple[str, str, str]]:
    """Return for each observation its name and its errors one step and `AHEAD` steps ahead; a dash if unknown."""
    return [(e.name, f"{e.one:.2g}", "–" if e.ahead is None else f"{e.ahead:.2g}") for e in record.errors]


def uncertain_in_words(record: PlantRecord) -> list[str]:
    """Return the uncertain numbers, each with its standard deviation and the line that has it."""
    return [f"{one.value:.4g} ± {one.deviation:.2g} in `{one.line}`" for one in record.uncertain]


def worst_in_words(record: PlantRecord) -> tuple[str, list[tuple[str, ...]]]:
    """Return the step that is predicted worst, and a row per observation: name, before, after, predicted.

    Both are empty if no step is recorded.
    """
    worst = record.worst
    if worst is None:
        return "", []
    step = f"step {worst.step} of an episode{f', action {worst.action}' if worst.action else ''}"
    return step, [(v.name, *map(format_number, (v.before, v.after, v.predicted))) for v in worst.row]


def plant_words(record: PlantRecord, task: Task) -> Iterator[str]:
    """Yield the lines of a plant with units, then as comments its errors, worst prediction and uncertain numbers."""
    yield f"# plant fitted to {record.steps:,} steps"
    yield from lines_with_units(record.text, task)
    yield from _aligned([("prediction error", "1 step", f"{AHEAD} steps"), *errors_in_words(record)])
    yield f"# ({SHARE})"
    step, rows = worst_in_words(record)
    if rows:
        yield f"# worst prediction: {step}"
        yield from _aligned([("observation", "before", "after", "predicted"), *rows])
    yield from (f"# uncertain: {words}" for words in uncertain_in_words(record))


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the rows of a table as comment lines, with names aligned left and numbers aligned right."""
    width = max(len(name) for name, *_ in rows)
    yield from (f"# {name:{width}}" + "".join(f"  {number:>9}" for number in numbers) for name, *numbers in rows)
