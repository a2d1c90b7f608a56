"""The action in a model's answer: a name, a number, `Action: N`, the last one stated; or what is wrong with it.

An action is handed on as one number for each actuator: the index of a label, or a value within the actuator's range.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from policygen.llm.messages import Reply
from policygen.policies.cells import NUMBER, ascii_signs, read_action
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task

MOST_READ = 20_000  # characters of an answer, its last ones
_MOST_VALUE = 400  # characters behind `Action:`
_SHOWN = 60  # characters of an answer that a sentence repeats
_MARKS = "*`\"'_ \t"
_LOOSE = re.compile(rf"(?<![\w.]){NUMBER.pattern}(?![\w.]*\w)")

Action = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The content of an answer: an action, or the problem to name in a repair request."""

    action: Action | None
    problem: str = ""


def read_decision(reply: Reply, task: Task) -> Decision:
    """The last action that an answer states.

    Looked for in this order: behind the last `Action:` (or the actuators' own names, `torque: 0.5`), the last line, and
    for a single actuator the last name mentioned in the text, a number that stands alone in the last line. Where
    `Action:` is followed by what is none, that is the problem, and nothing else is looked for.
    """
    if reply.truncated:
        return Decision(None, "it was cut off by its length limit")
    text = reply.text[-MOST_READ:].strip()
    if not text:
        return Decision(None, "it is empty")
    stated = _stated(text, task) or _last_line(text, task)
    if stated is None and len(task.actuators) == 1:
        stated = _mentioned(text, task.actuators[0])
    return stated or Decision(None, f"it ends with `{_short(text.splitlines()[-1])}`, and {_expected(task)}")


def as_action(task: Task, action: Action) -> Any:
    """An action in the environment's own form: an int for Discrete, else an array of shape (m,)."""
    if task.action_space == "discrete":
        return round(action[0])
    return task.limits.carried_out_one(action) if task.has_numbers else np.array(action, np.int64)


def neutral(task: Task) -> Action:
    """The first label of every choice, and of every number the value nearest to 0."""
    return tuple(0.0 if a.is_choice else min(max(0.0, a.low), a.high) for a in task.actuators)


def _stated(text: str, task: Task) -> Decision | None:
    """Read the text after the last `Action:`, or after the name of every actuator; None if the text has neither."""
    said = _behind("action", text)
    if said:
        return _whole(said[-1], task)
    values = [_behind(actuator.name, text) for actuator in task.actuators]
    if not all(values):
        return None
    parts = [_one(found[-1], actuator) for found, actuator in zip(values, task.actuators, strict=True)]
    return _together(parts)


def _behind(name: str, text: str) -> list[str]:
    """Return the texts after `NAME:` or `NAME =`, each to the end of its line; empty ones are left out."""
    pattern = rf"(?<!\w){re.escape(name)}[*`\"']{{0,3}}[ \t]{{0,4}}[:=](?P<value>[^\n]{{0,{_MOST_VALUE}}})"
    values = (match["value"].strip(_MARKS) for match in re.finditer(pattern, text, re.IGNORECASE))
    return [value for value in values if value]


def _last_line(text: str, task: Task) -> Decision | None:
    """The last line, where it is an action and nothing else."""
    decision = _whole(text.splitlines()[-1], task)
    return decision if decision.action is not None else None


def _whole(said: str, task: Task) -> Decision:
    """Read the values of all actuators from one text: one entry for each actuator."""
    if len(task.actuators) == 1:
        return _together([_one(said, task.actuators[0])])
    named = [_behind(actuator.name, said) for actuator in task.actuators]
    if all(named):  # one line may name them all: `gear=low, horn=1`
        parts = [re.split(r"[,;]", found[-1])[0] for found in named]
    else:
        parts = [part for part in re.split(r"[,;\s]+", said.strip(_MARKS + "[](){}.")) if part]
    if len(parts) != len(task.actuators):
        return Decision(None, f"`{_short(said)}` has {len(parts)} of {len(task.actuators)} entries")
    return _together([_one(part, actuator) for part, actuator in zip(parts, task.actuators, strict=True)])


def _together(parts: list[float | str]) -> Decision:
    wrong = [part for part in parts if isinstance(part, str)]
    if wrong:
        return Decision(None, wrong[0])
    return Decision(tuple(float(part) for part in parts))


def _one(said: str, actuator: Actuator) -> float | str:
    """The number that an entry means, or what is wrong with it."""
    text = said.strip(_MARKS + "[]{}()").rstrip(".,;!*`\"' ")
    value = read_action(text, actuator)
    if isinstance(value, float):
        return value
    # `left, since the pole leans left`: a name or a number that more words follow, but no second choice.
    names = actuator.labels or tuple(name for name, _ in actuator.levels)
    begins = [name for name in names if re.match(rf"{re.escape(name)}(?!\w)", text, re.IGNORECASE)]
    number = NUMBER.match(ascii_signs(text))
    first = max(begins, key=len, default="") or (text[: number.end()] if number is not None else "")
    rest = text[len(first) :]
    second = re.match(r"\s*(\||/|or\b)", rest, re.IGNORECASE) or (
        _names_one(rest, names) if not begins else any(re.match(rf"\s*,\s*{re.escape(n)}\W*\Z", rest) for n in names)
    )
    if first and not second and not rest[:1].isalnum():
        value = read_action(first, actuator)
    return value if isinstance(value, float) else f"it says `{_short(said)}`, {value}"


def _names_one(text: str, names: tuple[str, ...]) -> bool:
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) for name in names)


def _mentioned(text: str, actuator: Actuator) -> Decision | None:
    """The name that is mentioned last, or else the only number of the last line."""
    names = actuator.labels or tuple(name for name, _ in actuator.levels)
    words = sorted((name for name in names if not NUMBER.fullmatch(name)), key=len, reverse=True)
    if words:
        found = re.findall(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", text, re.IGNORECASE)
        if found:
            return _together([_one(found[-1], actuator)])
    numbers = _LOOSE.findall(ascii_signs(text.splitlines()[-1]))
    return _together([_one(numbers[0], actuator)]) if len(numbers) == 1 else None


def _expected(task: Task) -> str:
    if len(task.actuators) == 1:
        only = task.actuators[0]
        if only.is_choice:
            return f"the action is one of {', '.join(only.labels)}"
        return f"the action is a number from {only.low:g} to {only.high:g}"
    return f"the action has {len(task.actuators)} entries: {', '.join(a.name for a in task.actuators)}"


def _short(text: str) -> str:
    words = " ".join(text.replace("`", "'").split())
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 4]} ..."
