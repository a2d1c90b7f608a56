"""Policies that differ in constants alone decide together what each decides alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policygen.policies.linear import DifferentStructure, Population
from policygen.policies.parse import parse
from policygen.search.refine.tunable import Tunable
from policygen.tasks.load import load_task

PENDULUM = "let lift = rate^2/6 + 5*(cos - 1.1)\n" + (
    "torque = where(cos > 0.8, -12*sin - 3*rate, -lift*rate/tanh(0.7*sin)) - 2*sin + 0.3"
)
RANGED = (
    "let lift = tune(0, -1, 1)*rate^tune(2, 1, 3)\ntorque = tune(0, -5, 5)*cos - tune(-1, -9, 9)*lift + tune(2, 0, 4)"
)
ACROBOT = "let pump = rate1 + 0.3*rate2\nminus = -2.1*pump - cos1*sin2\nzero = 0.1\nplus = 2*pump"


def policies_of(name: str, text: str, count: int) -> list[Any]:
    policy = parse(text, load_task(name), "linear").policy
    assert policy is not None
    tunable = Tunable(policy)
    rng = np.random.default_rng(0)
    return [tunable.at(rng.normal(size=tunable.size)) for _ in range(count)]


@pytest.mark.parametrize(("name", "text"), [("pendulum", PENDULUM), ("pendulum", RANGED), ("acrobot", ACROBOT)])
def test_together_they_decide_as_each_alone(name: str, text: str) -> None:
    policies = policies_of(name, text, 7)
    together = Population(policies, 5)
    rng = np.random.default_rng(1)
    d = len(policies[0].task.observations)
    for rows in (np.arange(35), np.array([0, 4, 11, 30, 34]), np.array([17])):
        observations = rng.normal(size=(len(rows), d)).astype(np.float32)
        observations[0] = 0  # divides by zero
        alone = np.concatenate([policies[row // 5].act(one[None]) for row, one in zip(rows, observations, strict=True)])
        for _ in range(2):
            assert np.array_equal(together.decide(observations, rows), alone)


@pytest.mark.parametrize(
    "other",
    [
        "minus = rate1\nzero = 0\nplus = rate2",
        "let pump = rate1\nminus = -2*pump\nzero = 0.1\nplus = 2*pump",
        "let push = rate1 + 0.3*rate2\nminus = -2.1*push - cos1*sin2\nzero = 0.1\nplus = 2*push",
        "let pump = rate1 + 0.3*rate2\nminus = -2.1*pump - cos1*sin2\nzero = 0.1\nplus = 2*cos2",
    ],
)
def test_policies_of_another_structure_or_kind_are_told_apart(other: str) -> None:
    table = parse("| cos1 | torque |\n| * | plus |", load_task("acrobot")).policy
    for others in (policies_of("acrobot", other, 1), [table]):
        with pytest.raises(DifferentStructure):
            Population([*policies_of("acrobot", ACROBOT, 2), *others], 3)
