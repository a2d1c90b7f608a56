"""Questions to a model that drives: each shows the situation of one step.

If the task has a grid, quantities are shown as bins, so that situations repeat. Observed texts are shown as they are.
A prompt depends on its `Situation` alone, so equal situations are equal questions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.extensions.seats.asking import Questions
from policygen.extensions.seats.decisions import Action, read_decision
from policygen.llm.messages import Prompt
from policygen.policies.features import CellReader, Reader, cell_reader
from policygen.prompts.render import Show
from policygen.prompts.views import grid_view, task_view
from policygen.quantities.text import format_number, to_digits
from policygen.quantities.tree import names_in, texts_in
from policygen.quantities.words import decoded
from policygen.tasks.task import Task

DIGITS = 3  # significant digits of a quantity without bins
# Limits on the description of the task, the largest first; the first that fits the prompt is used.
_SHOWS = (Show(), Show(prose=2_500, facts=2_000, details=2_000), Show(prose=800, facts=400, details=300))


@dataclass(frozen=True, slots=True)
class ShownQuantity:
    """A quantity as a prompt shows it."""

    name: str
    unit: str
    text: str  # its value, or the range of its bin
    bin: int = 0
    labelled: bool = False  # whether the bin's number is shown, too; not for a bin of one integer
    is_text: bool = False  # whether it is an observed text, which may have several lines


@dataclass(frozen=True, slots=True)
class PastStep:
    """A previous step: the quantities shown, the action in the task's words, and its reward."""

    shown: tuple[ShownQuantity, ...]
    action: str
    reward: float


@dataclass(frozen=True, slots=True)
class Situation:
    """The quantities and previous steps that a model is shown at one step; equal situations are one question."""

    now: tuple[ShownQuantity, ...]
    recent: tuple[PastStep, ...] = ()
    # The first observation in this situation, shape (d,); for providers that are not language models.
    observation: npt.NDArray[Any] | None = field(default=None, compare=False)


class StepQuestions(Questions[Situation, Action]):
    """The questions about the action of a step: bins of the task's grid, or numbers of three digits.

    Args:
        template: template of the question, instead of `drive`.
        memory: number of previous steps shown.
        prompt_tokens: maximum number of estimated tokens of a prompt.
    """

    remedy = "show fewer steps (--memory), or less in the template"

    def __init__(self, task: Task, *, template: str | None = None, memory: int = 0, prompt_tokens: int = 6_000) -> None:
        self.task, self.memory = task, memory
        self._reader: Reader = cell_reader(task, task.grid) if task.grid is not None else Reader(task)
        self._units = {observation.name: observation.unit for observation in task.observations}
        self._by_cell: dict[int, tuple[ShownQuantity, ...]] = {}
        # A prompt shows texts; it leaves out the columns that hold them, and features that depend on texts alone.
        self._left_out = set(task.columns[len(task.observations) :])
        for name, node in task.parsed_features if task.texts else ():
            if (read := names_in(node)) <= self._left_out and (read or texts_in(node)):
                self._left_out.add(name)
        grid = [dimension for dimension in grid_view(task.grid) if dimension["name"] not in self._left_out]
        shared = {"form": form_of(task)}
        variables = {"task": task_view(task), "grid": grid, "memory": memory, **shared}
        templates = ("drive_system", template or "drive", "drive_repair")
        super().__init__(templates, ({**variables, "show": show} for show in _SHOWS), prompt_tokens, shared)

    def prompt(self, question: Situation) -> Prompt:
        """Render the question for a situation; the prompt's context is the observation."""
        variables = {"now": question.now, "recent": question.recent, "memory": self.memory}
        return self._render(variables, question.observation)

    def read(self, text: str, question: Situation) -> Action:
        """Return the action that an answer states; see `read_decision`."""
        return read_decision(text, self.task)

    def cell(self, observation: npt.NDArray[Any]) -> int | None:
        """Return the cell of a flattened observation of shape (d,); None if the task has no grid."""
        if not isinstance(self._reader, CellReader):
            return None
        # In a batch of one, as a table computes it, so that both give the same cell.
        return int(self._reader.cells(np.asarray(observation)[np.newaxis])[0])

    def shown(self, observation: npt.NDArray[Any]) -> tuple[ShownQuantity, ...]:
        """Return the quantities to show of a flattened observation of shape (d,)."""
        first, texts = len(self.task.observations), []
        for text in self.task.texts:
            texts.append(ShownQuantity(text.name, "", decoded(observation[first : first + text.columns]), is_text=True))
            first += text.columns
        cell, grid = self.cell(observation), self.task.grid
        if cell is None or grid is None:
            values = self._reader.row(observation)
            numbers = tuple(
                ShownQuantity(name, self._units.get(name, ""), format_number(to_digits(value, DIGITS)))
                for name, value in zip(self._reader.names, values, strict=True)
                if name not in self._left_out
            )
            return (*texts, *numbers)
        if cell not in self._by_cell:
            self._by_cell[cell] = tuple(
                ShownQuantity(d.name, self._units.get(d.name, ""), d.label(b), b, not d.has_integer_bins)
                for d, b in zip(grid.dimensions, grid.bins_of(cell).tolist(), strict=True)
                if d.name not in self._left_out
            )
        return (*texts, *self._by_cell[cell])


def form_of(task: Task) -> str:
    """Return the format of an action: `left | right`, `-2 to 2`, or an example if there are several actuators."""
    if len(task.actuators) == 1:
        only = task.actuators[0]
        numbers = () if only.is_choice else (f"{format_number(only.low)} to {format_number(only.high)}",)
        return " | ".join((*only.names, *numbers))
    return ", ".join(a.labels[0] if a.is_choice else format_number((a.low + a.high) / 2) for a in task.actuators)
