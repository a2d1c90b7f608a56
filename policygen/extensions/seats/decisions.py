"""The action in a model's answer: one number for each actuator, the index of a label or a value within its range."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from policygen.extensions.seats.session import UnreadableAnswer, quoted
from policygen.policies.cells import NUMBER, ascii_signs, read_action
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import Task

_MOST_VALUE = 400  # number of characters read after `Action:`
_MARKS = "*`\"'_ \t"  # formatting around a value
_NUMBER_IN_TEXT = re.compile(rf"(?<![\w.]){NUMBER.pattern}(?![\w.]*\w)")

Action = tuple[float, ...]


def read_decision(text: str, task: Task) -> Action:
    """Return the last action that an answer states.

    The places are searched in this order:

    1. The text after the last `Action:`, or after the name of every actuator (`torque: 0.5`). If there is such a text,
       but it is not an action, the search ends.
    2. The last line.
    3. For a single actuator: the last of its names in the text, or else the only number in the last line.

    Raises:
        UnreadableAnswer: the text states no action.
    """
    if texts := _texts_after("action", text):
        return _read_all(texts[-1], task)
    values = [_texts_after(actuator.name, text) for actuator in task.actuators]
    if all(values):
        return _read_parts([found[-1] for found in values], task)
    last = text.splitlines()[-1]
    with suppress(UnreadableAnswer):
        return _read_all(last, task)
    first, *others = task.actuators
    if others:
        expected = f"the action has {len(task.actuators)} entries: {', '.join(a.name for a in task.actuators)}"
    else:
        numbers = _NUMBER_IN_TEXT.findall(ascii_signs(last))
        mentioned = _names_in([name for name in first.names if not NUMBER.fullmatch(name)], text)
        if mentioned or len(numbers) == 1:
            return (_read_entry((mentioned or numbers)[-1], first),)
        labels, bounds = f"one of {', '.join(first.labels)}", f"a number from {first.low:g} to {first.high:g}"
        expected = f"the action is {labels if first.is_choice else bounds}"
    raise UnreadableAnswer(f"it ends with {quoted(last)}, and {expected}")


def as_action(task: Task, action: Action) -> Any:
    """Convert an action to the environment's own form: an int for Discrete, else an array of shape (m,)."""
    if task.action_space == "discrete":
        return round(action[0])
    return task.limits.to_action(action) if task.has_numbers else np.array(action, np.int64)


def neutral(task: Task) -> Action:
    """Return the first label of each actuator or, if it has none, the number of its range that is nearest to 0."""
    return tuple(0.0 if a.is_choice else min(max(0.0, a.low), a.high) for a in task.actuators)


def _texts_after(name: str, text: str) -> list[str]:
    """Return the texts after `NAME:` or `NAME =`, each to the end of its line, without empty ones."""
    pattern = rf"(?<!\w){re.escape(name)}[*`\"']{{0,3}}[ \t]{{0,4}}[:=](?P<value>[^\n]{{0,{_MOST_VALUE}}})"
    values = (match["value"].strip(_MARKS) for match in re.finditer(pattern, text, re.IGNORECASE))
    return [value for value in values if value]


def _read_all(text: str, task: Task) -> Action:
    """Return the action in a text that has one entry for each actuator."""
    if len(task.actuators) == 1:
        return _read_parts([text], task)
    named = [_texts_after(actuator.name, text) for actuator in task.actuators]
    if all(named):  # one line may name them all: `gear=low, horn=1`
        return _read_parts([re.split(r"[,;]", found[-1])[0] for found in named], task)
    parts = [part for part in re.split(r"[,;\s]+", text.strip(_MARKS + "[](){}.")) if part]
    if len(parts) != len(task.actuators):
        raise UnreadableAnswer(f"{quoted(text)} has {len(parts)} of {len(task.actuators)} entries")
    return _read_parts(parts, task)


def _read_parts(parts: Sequence[str], task: Task) -> Action:
    return tuple(_read_entry(part, actuator) for part, actuator in zip(parts, task.actuators, strict=True))


def _read_entry(entry: str, actuator: Actuator) -> float:
    """Return the index of a label, or the number, that an entry states."""
    text = entry.strip(_MARKS + "[]{}()").rstrip(".,;!*`\"' ")
    value = read_action(text, actuator)
    if isinstance(value, float):
        return value
    # A name or a number may be followed by words, but not by a second choice: `left, since the pole leans left`.
    names = actuator.names
    begins = [name for name in names if re.match(rf"{re.escape(name)}(?!\w)", text, re.IGNORECASE)]
    number = NUMBER.match(ascii_signs(text))
    first = max(begins, key=len, default="") or (text[: number.end()] if number is not None else "")
    rest = text[len(first) :]
    second = re.match(r"\s*(\||/|or\b)", rest, re.IGNORECASE) or (
        any(re.match(rf"\s*,\s*{re.escape(n)}\W*\Z", rest) for n in names) if begins else _names_in(names, rest)
    )
    if first and not second and not rest[:1].isalnum():
        value = read_action(first, actuator)
    if isinstance(value, str):
        raise UnreadableAnswer(f"it says {quoted(entry)}, {value}")
    return value


def _names_in(names: Sequence[str], text: str) -> list[str]:
    """Return the names that a text has as whole words, in the order of the text; where several fit, the longest."""
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.findall(rf"(?<!\w)(?:{either})(?!\w)", text, re.IGNORECASE) if names else []
