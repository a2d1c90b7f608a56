"""Proved ranges: no observation within the ranges takes a step of a program out of its interval."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from exporting import CASES, CHECKOUT, SHIPPED, written
from support import Line

from policygen.extensions.check import Interval, check, report
from policygen.policies.policy import Policy
from policygen.quantities.codegen import row_function

# Policies that use the names of the environment itself.
PLAIN = {name.lower(): f"{name}-v5" for name in ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Pusher", "Swimmer")}
NAMES = [name for name in CASES if not name.startswith(("shipped", "hostile"))]


def assert_sound(policy: Policy) -> None:
    """Play random observations within ranges, step by step, and compare every step with its interval."""
    task, rng = policy.task, np.random.default_rng(0)
    low = np.array([max(o.low, -3.0) for o in task.observations])
    high = np.array([min(o.high, 2.5) for o in task.observations])
    ranges = {o.name: Interval(float(a), float(b)) for o, a, b in zip(task.observations, low, high, strict=True)}
    _, steps = check(policy, ranges)
    program = policy.program
    numbers = [i for i, x in enumerate(steps) if isinstance(x, Interval)]
    width = [task.width, len(policy.remembers)]
    every = row_function(type(program)(program.inputs, program.steps, tuple(numbers), {}, program.table), width)
    memory = [math.nan] * width[1]
    for _ in range(50):
        row = np.where(rng.random(len(low)) < 0.3, rng.choice([low, high]), rng.uniform(low, high)).tolist()
        for position, value in zip(numbers, every(row, memory), strict=True):
            assert value in steps[position], (position, program.steps[position], value, steps[position])
        if memory:
            policy.step(row, memory)


@pytest.mark.parametrize("name", NAMES)
def test_no_observation_within_the_ranges_leaves_an_interval(name: str) -> None:
    assert_sound(CASES[name]())


# Those for environments of other packages (others-*) need these packages.
PUBLISHED = sorted((CHECKOUT / "results" / "policies").glob("[!o]*.txt"))


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.stem)
def test_published_policies_stay_within_their_intervals(file: Path) -> None:
    name = re.sub(r"-(first-reply|lineages.*|2\d\d|estimator|integral|memoryless|slippery)$", "", file.stem)
    assert_sound(written(file.read_text(encoding="utf-8"), SHIPPED.get(file.stem, PLAIN.get(name, name))))


def test_limits_that_can_be_left_are_told() -> None:
    policy = written("torque = -10*sin - 2*rate + where(rate > 20, 1, 0)", "pendulum")
    ranges = {name: Interval(-1.0, 1.0) for name in ("cos", "sin")} | {"rate": Interval(-8.0, 8.0)}
    said = report(policy, ranges)
    assert "torque: -26 to 26; it can exceed its limits, -2 to 2, and is then clipped" in said
    assert any(line.startswith("conditions that never change: 1 (") for line in said)
    slow = written("let slow = 0.9*prev(slow) + 0.1*rate\ntorque = 0.1*slow", "pendulum")
    assert check(slow, ranges)[0]["prev(slow)"].high == pytest.approx(8, rel=0.2)


def test_the_command_prints_proved_ranges(line: Line) -> None:
    Path("p.txt").write_text((CHECKOUT / "results" / "policies" / "pendulum.txt").read_text(encoding="utf-8"))
    assert "torque" in line("show", "p.txt", "--task", "pendulum", "--check").out.rpartition("proved")[2]
