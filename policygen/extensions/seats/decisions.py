"""The action in a model's answer: a name, a number, `Action: N`, or why there is none.

An action is one number for each actuator: the index of a label, or a value within the actuator's range.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from policygen.extensions.seats.asking import UnreadableAnswer, quoted
from policygen.policies.cells import NUMBER, ascii_signs, read_action
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task

_MOST_VALUE = 400  # characters behind `Action:`
_MARKS = "*`\"'_ \t"
_LOOSE = re.compile(rf"(?<![\w.]){NUMBER.pattern}(?![\w.]*\w)")

Action = tuple[float, ...]


def read_decision(text: str, task: Task) -> Action:
    """Read the last action that an answer states.

    It is searched in this order: after the last `Action:` (or the actuators' own names, `torque: 0.5`); in the last
    line; for a single actuator, the last name mentioned in the text, or the only number in the last line. If the text
    after `Action:` is not an action, the search ends.

    Raises:
        UnreadableAnswer: the text states no action.
    """
    action = _stated(text, task)
    if action is None:
        last = text.splitlines()[-1]
        with suppress(UnreadableAnswer):
            return _whole(last, task)
        action = _mentioned(text, task.actuators[0]) if len(task.actuators) == 1 else None
        if action is None:
            raise UnreadableAnswer(f"it ends with {quoted(last)}, and {_expected(task)}")
    return action


def as_action(task: Task, action: Action) -> Any:
    """Convert an action to the environment's own form: an int for Discrete, else an array of shape (m,)."""
    if task.action_space == "discrete":
        return round(action[0])
    return task.limits.to_action(action) if task.has_numbers else np.array(action, np.int64)


def neutral(task: Task) -> Action:
    """Return the first label of every choice, and of every number the value nearest to 0."""
    return tuple(0.0 if a.is_choice else min(max(0.0, a.low), a.high) for a in task.actuators)


def _stated(text: str, task: Task) -> Action | None:
    """Read the text after the last `Action:`, or after the name of every actuator; None if the text has neither."""
    if texts := _behind("action", text):
        return _whole(texts[-1], task)
    values = [_behind(actuator.name, text) for actuator in task.actuators]
    return _each([found[-1] for found in values], task) if all(values) else None


def _behind(name: str, text: str) -> list[str]:
    """Return the texts after `NAME:` or `NAME =`, each to the end of its line; empty ones are left out."""
    pattern = rf"(?<!\w){re.escape(name)}[*`\"']{{0,3}}[ \t]{{0,4}}[:=](?P<value>[^\n]{{0,{_MOST_VALUE}}})"
    values = (match["value"].strip(_MARKS) for match in re.finditer(pattern, text, re.IGNORECASE))
    return [value for value in values if value]


def _whole(text: str, task: Task) -> Action:
    """Read the values of all actuators from one text: one entry for each actuator."""
    if len(task.actuators) == 1:
        return _each([text], task)
    named = [_behind(actuator.name, text) for actuator in task.actuators]
    if all(named):  # one line may name them all: `gear=low, horn=1`
        return _each([re.split(r"[,;]", found[-1])[0] for found in named], task)
    parts = [part for part in re.split(r"[,;\s]+", text.strip(_MARKS + "[](){}.")) if part]
    if len(parts) != len(task.actuators):
        raise UnreadableAnswer(f"{quoted(text)} has {len(parts)} of {len(task.actuators)} entries")
    return _each(parts, task)


def _each(parts: Sequence[str], task: Task) -> Action:
    return tuple(_one(part, actuator) for part, actuator in zip(parts, task.actuators, strict=True))


def _one(entry: str, actuator: Actuator) -> float:
    """Return the number that an entry means."""
    text = entry.strip(_MARKS + "[]{}()").rstrip(".,;!*`\"' ")
    value = read_action(text, actuator)
    if isinstance(value, float):
        return value
    # `left, since the pole leans left`: a name or a number that more words follow, but no second choice.
    names = _names(actuator)
    begins = [name for name in names if re.match(rf"{re.escape(name)}(?!\w)", text, re.IGNORECASE)]
    number = NUMBER.match(ascii_signs(text))
    first = max(begins, key=len, default="") or (text[: number.end()] if number is not None else "")
    rest = text[len(first) :]
    second = re.match(r"\s*(\||/|or\b)", rest, re.IGNORECASE) or (
        any(re.match(rf"\s*,\s*{re.escape(n)}\W*\Z", rest) for n in names) if begins else _found(names, rest)
    )
    if first and not second and not rest[:1].isalnum():
        value = read_action(first, actuator)
    if isinstance(value, str):
        raise UnreadableAnswer(f"it says {quoted(entry)}, {value}")
    return value


def _mentioned(text: str, actuator: Actuator) -> Action | None:
    """Read the name that is mentioned last, or else the only number of the last line."""
    found = _found([name for name in _names(actuator) if not NUMBER.fullmatch(name)], text)
    if found:
        return (_one(found[-1], actuator),)
    numbers = _LOOSE.findall(ascii_signs(text.splitlines()[-1]))
    return (_one(numbers[0], actuator),) if len(numbers) == 1 else None


def _names(actuator: Actuator) -> tuple[str, ...]:
    return actuator.labels or tuple(name for name, _ in actuator.levels)


def _found(names: Sequence[str], text: str) -> list[str]:
    """Return the names that a text mentions as whole words, in its order; of several that fit the longest."""
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.findall(rf"(?<!\w)(?:{either})(?!\w)", text, re.IGNORECASE) if names else []


def _expected(task: Task) -> str:
    if len(task.actuators) == 1:
        only = task.actuators[0]
        if only.is_choice:
            return f"the action is one of {', '.join(only.labels)}"
        return f"the action is a number from {only.low:g} to {only.high:g}"
    return f"the action has {len(task.actuators)} entries: {', '.join(a.name for a in task.actuators)}"
