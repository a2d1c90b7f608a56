"""Plants as text: the equations of an environment's dynamics, as replies state them and as fits record them.

A reply states a plant beside its policy. Policies are tuned in episodes of the plant, but scored in the environment.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from policygen.registry import resolved
from policygen.runs.notes import Note
from policygen.runs.state import Context
from policygen.tasks.task import Task

NEXT, START, HIDDEN, REWARD, ENDS = "next", "start", "hidden", "reward", "ends"
AHEAD = 20  # prediction errors are measured one step and this many steps ahead
MOST_ROUNDS = 25  # maximum number of fits for a proposal; a real episode, or several short ones, follow each
Texts = tuple[tuple[str, str], ...]
_EQUATIONS = "policygen.extensions.plants.equations:Equations"  # imported at first use, for a fast start
_NAME = re.compile(r"[A-Za-z_]\w*")
_PREVIOUS = re.compile(r"\bprev\(\s*(\w+)")


@dataclass(frozen=True, slots=True)
class Plant:
    """The equations of motion of a task's environment, as text."""

    lets: Texts = ()  # quantities that other lines read; each may read those before it
    # The value of observations and hidden states after a step. It may read quantities, hidden states, `prev(...)`, and
    # the parts of the action (a label of a choice is 1 if chosen). States without a line do not change.
    next: Texts = ()
    reward: str = ""  # of a step; it may read the same names, `next(NAME)` for a value after the step, and `ends`
    ends: str = ""  # a condition on quantities after a step that ends the episode; empty: no step does
    # The distributions from which observations or hidden states start, `normal(MEAN, DEVIATION)` or
    # `uniform(LOW, HIGH)`; the others start as in the episodes played.
    starts: Texts = ()
    hidden: tuple[str, ...] = ()  # states that are not observed, such as a load; their starts are fitted per episode

    def to_text(self) -> str:
        """Return the plant in the policy language; `parse` reads it back."""
        lines = [f"{HIDDEN} {name}" for name in self.hidden]
        for word, texts in (("let", self.lets), (NEXT, self.next), (START, self.starts)):
            lines += [f"{word} {name} = {text}" for name, text in texts]
        lines += [f"{name} = {text}" for name, text in ((REWARD, self.reward), (ENDS, self.ends)) if text]
        return "\n".join(lines)

    def revised_by(self, new: Plant) -> Plant:
        """Return this plant with the lines of `new` in place of its own; lines that `new` leaves out stay.

        Each `let` follows those that it reads. A `let` that nothing reads is removed.
        """
        moved, starts = dict((*self.next, *new.next)), dict((*self.starts, *new.starts))
        reward, ends = new.reward or self.reward, new.ends or self.ends
        lets = _in_order_of_need(dict((*self.lets, *new.lets)), [*moved.values(), reward, ends])
        hidden = tuple(dict.fromkeys((*self.hidden, *new.hidden)))
        return Plant(lets, tuple(moved.items()), reward, ends, tuple(starts.items()), hidden)


def _in_order_of_need(lets: dict[str, str], lines: Sequence[str]) -> Texts:
    """Return the `lets` that the lines read, each after those that it reads itself; `Equations` refuses circles."""
    ordered: dict[str, str] = {}
    visited, waiting = set[str](), list(lines)

    def visit(text: str) -> None:
        waiting.extend(_PREVIOUS.findall(text))  # come last: a previous value may be read before its definition
        for name in dict.fromkeys(_NAME.findall(_PREVIOUS.sub("", text))):
            if name in lets and name not in visited:
                visited.add(name)
                visit(lets[name])
                ordered[name] = lets[name]

    for text in waiting:  # which grows
        visit(text)
    return tuple(ordered.items())


def known_plant(task: Task) -> Plant:
    """Return the part of the plant that the task states: its reward, its end and the starts of observations."""
    return Plant(reward=task.reward, ends=task.ends, starts=task.starts)


def revised(task: Task, plants: Iterable[Plant | None]) -> Plant:
    """Return the plant that the task states, revised by the plants of replies in order; None: a reply without one."""
    return functools.reduce(Plant.revised_by, filter(None, plants), known_plant(task))


class PredictionError(NamedTuple):
    """The errors in predicting one observation, as a share of its change: 1 is as good as "nothing changes"."""

    name: str
    one: float  # one step ahead
    ahead: float | None  # `AHEAD` steps ahead; None if no episode is that long

    @property
    def larger(self) -> float:
        """The larger error of the two."""
        return max(self.one, self.ahead or 0.0)


@dataclass(frozen=True, slots=True)
class PlantRecord:
    """A summary of a fitted plant, which attempts record, and prompts and `show` print."""

    text: str  # the plant with its fitted numbers
    steps: int  # number of steps that it was fitted to
    errors: tuple[PredictionError, ...] = ()  # of each observation

    def to_text(self) -> str:
        """Return the plant between two comments: the number of steps, and the prediction errors."""
        errors = (f"{e.name} {e.one:.2g} / {'-' if e.ahead is None else f'{e.ahead:.2g}'}" for e in self.errors)
        told = f'# prediction errors, 1 step / {AHEAD} steps ahead, where 1 is no better than "nothing changes": '
        return f"# plant fitted to {self.steps:,} steps\n{self.text}\n{told}{', '.join(errors)}"


# The plant that a reply stated, and the plant in which the attempt was tuned.
PLANT = Note("plant", Plant, check=lambda task, plant: resolved(_EQUATIONS)(task, plant))
FITTED_PLANT = Note("fitted_plant", PlantRecord)


def plant_view(context: Context) -> dict[str, Any]:
    """Return the plant for templates: the last fitted one or, if a reply has stated one since, that of the replies."""
    stated = revised(context.task, map(PLANT.of, context.attempts)).to_text()
    noted = (a for a in reversed(context.attempts) if FITTED_PLANT.of(a) is not None or PLANT.of(a) is not None)
    record = next(map(FITTED_PLANT.of, noted), None) or PlantRecord(stated, 0)
    sides, own = ([line.partition(" = ")[0] for line in text.splitlines()] for text in (record.text, stated))
    errors = sorted(record.errors, key=lambda error: -error.larger)
    return {
        "lines": record.text.splitlines(),
        "steps": record.steps,  # that it was fitted to; 0: not fitted
        # left-hand sides of the lines that neither a reply nor the task file has stated
        "regressed": tuple(s for s in sides if s.split()[0] in (NEXT, REWARD, ENDS) and s not in own),
        "errors": errors,  # of the observations, the largest first
        "largest": errors[0].larger if errors else 0.0,
        "ahead": AHEAD,
    }
