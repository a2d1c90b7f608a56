"""Prompts for a model that drives: the situation of one step in words, and the messages that ask for its action.

Quantities are binned if the task has a grid, so that situations repeat. Observed texts are shown as they are, and the
grid's bins of them are left out. A prompt is made from its `Situation` alone, so that equal situations are equal
questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import TemplateError
from policygen.llm.messages import Message, Prompt
from policygen.policies.cells import action_text
from policygen.policies.features import CellReader, Reader, cell_reader
from policygen.prompts.render import Show
from policygen.prompts.templates import load_template, render_template
from policygen.prompts.views import grid_view, task_view
from policygen.quantities.text import format_number
from policygen.quantities.tree import names_in, texts_in
from policygen.quantities.words import decoded
from policygen.tasks.task import Task

SYSTEM, REQUEST, REPAIR = "drive_system", "drive", "drive_repair"
DIGITS = 3  # significant ones of a quantity that has no bins
# From all to the least that is told of a task, for prompts that must be short.
_SHOWS = (Show(), Show(prose=2_500, facts=2_000, details=2_000), Show(prose=800, facts=400, details=300))


@dataclass(frozen=True, slots=True)
class ShownQuantity:
    """One quantity as it is shown: `text` is its value, or the values of its bin; `labelled` where these differ.

    `said` marks a text that was read, which may have several lines.
    """

    name: str
    unit: str
    text: str
    bin: int = 0
    labelled: bool = False
    said: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A step before: what was shown, the action in the task's words, and the reward that it paid."""

    shown: tuple[ShownQuantity, ...]
    action: str
    reward: float


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a model is shown at one step; equal situations are one question.

    The `observation` that first led into it, of shape (d,), travels beside the prompt for whoever is no language model.
    """

    now: tuple[ShownQuantity, ...]
    recent: tuple[Step, ...] = ()
    observation: npt.NDArray[Any] | None = field(default=None, compare=False)


class Window:
    """Looks at observations as the model is shown them.

    `cells` of them are those of the task's grid; without one, quantities are shown as numbers of three digits.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._reader: Reader = cell_reader(task, task.grid) if task.grid is not None else Reader(task)
        self._units = {observation.name: observation.unit for observation in task.observations}
        self._told = _told_by_texts(task)
        self._known: dict[int, tuple[ShownQuantity, ...]] = {}

    def cell(self, observation: npt.NDArray[Any]) -> int | None:
        """The cell of one flattened observation of shape (d,); None where the task has no grid."""
        if not isinstance(self._reader, CellReader):
            return None
        # In a batch of one: edges are those that a table compares with.
        return int(self._reader.cells(np.asarray(observation)[np.newaxis])[0])

    def shown(self, observation: npt.NDArray[Any]) -> tuple[ShownQuantity, ...]:
        """One flattened observation of shape (d,) in words."""
        return self._texts(observation) + self._numbers(observation)

    def _texts(self, observation: npt.NDArray[Any]) -> tuple[ShownQuantity, ...]:
        first, said = len(self.task.observations), []
        for text in self.task.texts:
            said.append(ShownQuantity(text.name, "", decoded(observation[first : first + text.columns]), said=True))
            first += text.columns
        return tuple(said)

    def _numbers(self, observation: npt.NDArray[Any]) -> tuple[ShownQuantity, ...]:
        cell = self.cell(observation)
        if cell is None:
            values = self._reader.row(observation)
            return tuple(
                ShownQuantity(name, self._units.get(name, ""), format_number(float(f"{value:.{DIGITS}g}")))
                for name, value in zip(self._reader.names, values, strict=True)
                if name not in self._told
            )
        if cell not in self._known:
            grid = self.task.grid
            assert grid is not None
            self._known[cell] = tuple(
                ShownQuantity(d.name, self._units.get(d.name, ""), d.label(b), b, not d.counts_integers)
                for d, b in zip(grid.dimensions, grid.bins_of(cell).tolist(), strict=True)
                if d.name not in self._told
            )
        return self._known[cell]


def _told_by_texts(task: Task) -> frozenset[str]:
    """The quantities that texts alone decide, and the columns that texts are kept in."""
    told = set(task.columns[len(task.observations) :])
    for name, node in task.parsed_features if task.texts else ():
        if (read := names_in(node)) <= told and (read or texts_in(node)):
            told.add(name)
    return frozenset(told)


def in_words(task: Task, action: Sequence[float]) -> str:
    """An action, a number for each actuator, in the task's words."""
    return ", ".join(action_text(a, value) for a, value in zip(task.actuators, action, strict=True))


class Questions:
    """Renders what a model is asked.

    Args:
        template: renders the request of a step instead of `drive.j2`.
        memory: steps before that are shown.
        most: estimated tokens that a prompt may have.

    Raises:
        TemplateError: a template is missing or broken, or what it says of the task alone is too long.
    """

    def __init__(self, task: Task, *, template: str | None = None, memory: int = 0, most: int = 6_000) -> None:
        self._template = template or REQUEST
        self._memory = memory
        self._most = most
        for name in (SYSTEM, self._template, REPAIR):
            load_template(name)
        self._form = form_of(task)
        told = _told_by_texts(task)
        grid = [dimension for dimension in grid_view(task.grid) if dimension["name"] not in told]
        said = {"task": task_view(task), "grid": grid, "form": self._form, "memory": memory}
        for show in _SHOWS:
            self._system = Message("system", render_template(SYSTEM, {**said, "show": show}))
            if Prompt((self._system,)).estimated_tokens <= 0.8 * most:
                return
        self._refuse_length(Prompt((self._system,)))

    def prompt(self, situation: Situation) -> Prompt:
        """The question for a situation.

        Raises:
            TemplateError: it cannot be rendered, or is too long.
        """
        said = {"now": situation.now, "recent": situation.recent, "memory": self._memory, "form": self._form}
        request = Message("user", render_template(self._template, said))
        prompt = Prompt((self._system, request), situation.observation)
        if prompt.estimated_tokens > self._most:
            self._refuse_length(prompt)
        return prompt

    def repair(self, prompt: Prompt, reply: str, problem: str) -> Prompt:
        """The same question once more, after a reply that says no action."""
        request = render_template(REPAIR, {"problem": problem, "form": self._form})
        return prompt.followed_by(Message("assistant", reply[-2_000:] or "(empty)"), Message("user", request))

    def _refuse_length(self, prompt: Prompt) -> None:
        raise TemplateError(
            f"the prompt has about {prompt.estimated_tokens:,} tokens and may have {self._most:,}; raise "
            "--set prompt_tokens=N, show fewer steps (--memory), or less in the template"
        )


def form_of(task: Task) -> str:
    """Return the format of an action: `left | right`, `-2 to 2`, or an example if there are several actuators."""
    if len(task.actuators) == 1:
        only = task.actuators[0]
        names = only.labels or tuple(name for name, _ in only.levels)
        numbers = () if only.is_choice else (f"{format_number(only.low)} to {format_number(only.high)}",)
        return " | ".join((*names, *numbers))
    return ", ".join(a.labels[0] if a.is_choice else format_number((a.low + a.high) / 2) for a in task.actuators)
