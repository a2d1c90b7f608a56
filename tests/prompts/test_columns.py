"""The columns of a trace: what reward and ends depend on, what a policy reads, and the rest in turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import fenced

import policygen
from policygen.episodes.evidence import Relevance
from policygen.policies.parse import parse
from policygen.prompts.columns import IN_TURN, MOST_COLUMNS, MOST_READ, ranked
from policygen.tasks.spaces import Observation
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")


def unnamed(count: int) -> Task:
    """Return a task with `count` observations; its text does not describe reward and ends."""
    observations = tuple(Observation(f"q{i}", low=-np.inf, high=np.inf) for i in range(count))
    task = policygen.load_task("pendulum")
    return replace(task, observations=observations, features=(), about="", inputs=(), reward="", solved=None)


NAMES = [f"q{i}" for i in range(30)]
KNOWN = Relevance(dict.fromkeys(NAMES, 0.0) | {"q25": 1.0, "q26": 2.0}, {f"q{i}": float(i) for i in range(30)})


def test_of_many_columns_the_relevant_and_the_varying_stay_and_the_rest_takes_turns() -> None:
    prompts = [ranked(NAMES, None, KNOWN, turn) for turn in range(1, 12)]
    assert all(len(names) == len(set(names)) == MOST_COLUMNS for names in prompts)
    assert {tuple(names[:-IN_TURN]) for names in prompts} == {tuple(prompts[0][:-IN_TURN])}
    assert prompts[0][:4] == ["q26", "q25", "q29", "q28"]
    assert {name for names in prompts for name in names} == set(NAMES)
    assert ranked(NAMES[:5], None, KNOWN, 1) == ["q4", "q3", "q2", "q1", "q0"]


def test_what_the_policy_reads_comes_after_the_relevant_and_before_the_rest() -> None:
    reply = fenced("let a = q3 + q4", "let b = a*q5", "torque = b + q6")
    policy = parse(reply, unnamed(30)).policy
    order = ranked([*NAMES, "a", "b"], policy, KNOWN, 1)
    assert order[:8] == ["q26", "q25", "q6", "b", "q3", "a", "q4", "q5"]
    assert len(order) == MOST_READ
    latch = parse(reply.replace("let b = a*q5", "let b = a*q5\nlet on = where(q7 > 1, 1, prev(on))\nlet c = on*b")
                  .replace("torque = b", "torque = c"), unnamed(30)).policy  # fmt: skip
    assert ranked([*NAMES, "a", "b", "on", "c"], latch, KNOWN, 1)[:6] == ["q26", "q25", "on", "q6", "c", "q3"]
