"""The action in a model's answer: names, numbers, the last one stated, and what is wrong with it."""

from __future__ import annotations

import re
from contextlib import nullcontext, suppress

import numpy as np
import pytest
from support import ARM, PAIR

from policygen.extensions.seats.drive import as_action, form_of, neutral, read_decision
from policygen.extensions.seats.session import UnreadableAnswer, readable
from policygen.llm.messages import Reply
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Actuator, Observation
from policygen.tasks.task import Task

LAKE = load_task("frozenlake")
NUMBERED = Task("numbered", "N-v0", (Observation("x"),), (Actuator("action", ("0", "1", "2")),), "discrete", 9)
TORQUE = Task(
    "torque", "T-v0", (Observation("x"),), (Actuator("torque", (), -2.0, 2.0, (("off", 0.0),)),), "box", max_steps=9
)


def said(text: str, task: Task = LAKE, **more: bool) -> tuple[float, ...]:
    return read_decision(readable(Reply(text, "m", **more)), task)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("right", 2),
        ("**Action:** `right` (away from the hole)", 2),
        ("action = right", 2),
        ("Action:\nright", 2),
        ('{"reason": "left is a hole", "action": 2}', 2),
        ("Action: right (2)", 2),
        ("Action: right, since left leads into the hole", 2),
        ("Action: left\nNo, that is a hole.\nAction: right", 2),
        ("Going left is bad, so I go right.", 2),
        ("I choose number 2.", 2),
        ("1. left is a hole\n2. go up\nright", 2),
        ("2. right", 2),
        ("Reaction: left\nright", 2),
    ],
)
def test_the_last_action_stated_counts(text: str, action: int) -> None:
    assert said(text) == (action,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("I would rather not say.", "it says `I would rather not say.`, expected one of left, down, right, up"),
        ("Action: 4", "it says `4`, expected one of left, down, right, up, or its number 0 to 3"),
        ("Action: lift", "did you mean left?"),
        ("Action: left or right", "it says `left or right`"),
        ("Action: 2nd", "it says `2nd`"),
        ("Between 1 and 3.", "it says `Between 1 and 3.`"),
        ("Action: left (cut off)", "it was cut off by its length limit"),
    ],
)
def test_what_is_no_action_is_a_problem_in_words(text: str, problem: str) -> None:
    with pytest.raises(UnreadableAnswer, match=re.escape(problem)):
        said(text, truncated="(cut off)" in text)


@pytest.mark.parametrize(
    ("task", "text", "action"),
    [
        # Labels that are numbers are not found in the middle of others.
        (NUMBERED, "The value is 0.12, so 1 it is", None),
        (NUMBERED, "I take 1", (1,)),
        (NUMBERED, "The value is 0.12.\nAction: 1", (1,)),
        # Numbers lie in the range and are never clipped.
        (TORQUE, "Action: \N{MINUS SIGN}0.5 Nm", (-0.5,)),
        (TORQUE, "torque: 1.5", (1.5,)),
        (TORQUE, "off", (0.0,)),
        (TORQUE, "Better to push with 0.7", (0.7,)),
        (TORQUE, "Action: 2.5", None),
        (TORQUE, "Action: nan", None),
        (TORQUE, "Action: 1e999", None),
        # Several actuators are stated in order or by name.
        (PAIR, "Action: [1, 1]", (1, 1)),
        (PAIR, "Action: gear=high, horn=1", (1, 1)),
        (PAIR, "gear: low\nthen better\ngear: high\nhorn: 1", (1, 1)),
        (PAIR, '{"gear": "high", "horn": 1}', (1, 1)),
        (PAIR, "high 1", (1, 1)),
        (PAIR, "Action: high", None),
        (PAIR, "Action: high, 2", None),
        (PAIR, "high, 1, 1", None),
        (ARM, "Action: left, -1.5", (-1.0, -1.5)),
        (ARM, "Action: off, 0.75", None),
    ],
)
def test_numbers_and_several_actuators(task: Task, text: str, action: tuple[float, ...] | None) -> None:
    with pytest.raises(UnreadableAnswer) if action is None else nullcontext():
        assert said(text, task) == action


def test_actions_have_the_environments_own_form() -> None:
    assert type(as_action(LAKE, neutral(LAKE))) is int
    assert as_action(PAIR, neutral(PAIR)).dtype == np.int64
    assert as_action(ARM, neutral(ARM)).dtype == np.float32
    assert neutral(ARM) == (0.0, 0.0)


@pytest.mark.parametrize("task", [LAKE, NUMBERED, TORQUE, PAIR, ARM])
def test_the_form_that_a_model_is_shown_is_told_apart_or_an_action(task: Task) -> None:
    with pytest.raises(UnreadableAnswer) if len(task.actuators) == 1 else nullcontext():
        said(f"Action: {form_of(task)}", task)


def test_long_hostile_answers_are_read_in_no_time() -> None:
    for text in ("action " * 200_000, "Action:" * 200_000, "left|" * 200_000, "9" * 1_000_000, "`" * 1_000_000):
        for task in (LAKE, TORQUE, PAIR):
            with suppress(UnreadableAnswer):
                said(text, task)
