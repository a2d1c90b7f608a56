"""Parts of a policy without effect in its episodes."""

from __future__ import annotations

import numpy as np
import pytest
from support import fenced

import policygen
from policygen.episodes.idle import LEAST_STEPS, undefined_and_idle
from policygen.episodes.trajectory import Trajectory
from policygen.policies.parse import parse

STEPS = 300


def played(*lines: str, task: str = "pendulum", steps: int = STEPS) -> tuple[list[tuple[str, float]], list[str]]:
    """The parts found in a policy that has seen a swing: cos, sin and rate of two periods."""
    policy = parse(fenced(*lines), policygen.load_task(task)).policy
    assert policy is not None
    phase = np.linspace(0, 4 * np.pi, steps + 1)
    swing = [np.cos(phase), np.sin(phase), 2 * np.cos(phase), np.sin(phase)][: policy.task.width]
    observations = np.stack(swing, axis=1).astype(np.float32)
    episodes = []
    for seed, rows in enumerate(np.split(observations, [steps // 2])):
        memory, actions = policy.start(1)[0].tolist() if policy.remembers else [], []
        for row in rows[:-1].tolist():
            action, memory = policy.step(row, memory)
            actions.append(action)
        rewards = np.ones(len(actions), np.float32)
        episodes.append(Trajectory(rows, np.array(actions), rewards, rewards.sum(), seed, False, True))
    undefined, idle = undefined_and_idle(policy, episodes)
    return list(undefined), [str(one) for one in idle]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["torque = cos + 0.5*rate"], []),
        (["torque = cos + 0.001*rate"], ["`0.001*rate` in torque (changes no output by 1% of its range)"]),
        (["torque = cos + 0.02*rate"], []),  # 4% of -1 to 1
        (["torque = 0.01*cos + 0.0025*sin"], []),  # small against the limits, not against what it does
        (["torque = 20*cos + 0.15*sin"], []),  # small in the sum, not where it crosses from limit to limit
        (["torque = 0*cos + sin"], []),  # written so as to do nothing
        (["let e = cos + 0.001*sin", "torque = e"], ["`0.001*sin` in e (changes no output by 1% of its range)"]),
        (["let e = clip(cos + 9 + 0.2*sin, 0, 1)", "torque = sin*e"], [
            "`cos` in e (changes no output by 1% of its range)",
            "`0.2*sin` in e (changes no output by 1% of its range)",
        ]),
        (["torque = where(cos > 0, 99, -99) + 0.001*rate"], ["torque (always at a limit)"]),
        (["torque = where(cos > 2, 5, sin + 0.0001*cos)"], ["`cos > 2` in torque (never true)"]),
        (["torque = cos*(cos < 2) + sin*(sin < 0.5)"], ["`cos < 2` in torque (always true)"]),
        (["torque = where(cos > 2 and sin > 0 or rate > 1, 1, 0)"], ["`cos > 2 and sin > 0` in torque (never true)"]),
        (["torque = where(sin > 0, where(cos > 3, 1, 0), 0.5)"], ["`cos > 3` in torque (never true)"]),
        (["torque = where(cos > 3, where(cos > 4, 1, 0), sin)"], ["`cos > 3` in torque (never true)"]),
        # Every step adds little to an integral, but all of them together much.
        (["let sum = prev(sum) + 0.001*cos", "torque = sum"], []),
        (["let e = cos + 0.001*sin", "let sum = 0.9*prev(sum) + 0.1*e", "torque = sum"], []),
        (["torque = 0.99*prev(torque) + 0.001*cos"], []),
        # An integral that never acts.
        (["let sum = where(abs(prev(e)) < -79.9, prev(sum) + rate, 0)", "let e = cos", "torque = e + sum"], [
            "`abs(prev(e)) < -79.9` in sum (never true)",
            "`sum` in torque (changes no output by 1% of its range)",
        ]),
    ],
)  # fmt: skip
def test_terms_conditions_and_outputs_without_effect_are_found(lines: list[str], found: list[str]) -> None:
    assert played(*lines) == ([], found)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["left = velocity", "right = 0.3*position"], []),
        (["left = position + 0.0001*velocity", "right = 0"], [
            "`0.0001*velocity` in left (changes no output by 1% of its range)"
        ]),
        (["left = 100 + position", "right = 100 + velocity"], []),  # without either 100 the choice is always the same
        (["left = 5 + 0.1*position", "right = velocity"], ["action (always left)"]),
    ],
)  # fmt: skip
def test_a_choice_has_idle_terms_only_where_no_decision_changes(lines: list[str], found: list[str]) -> None:
    assert played(*lines, task="cartpole") == ([], found)


def test_a_table_has_conditions_in_its_features_and_a_few_steps_show_nothing() -> None:
    table = ["let far = position > 7", "bins far: 0.5", "| far | action |", "| 0 | left |", "| 1 | right |"]
    assert played(*table, task="cartpole") == ([], ["`position > 7` in far (never true)"])
    assert played(*table, task="cartpole", steps=LEAST_STEPS - 2) == ([], [])


def test_values_that_are_no_number_are_found_beside_them() -> None:
    lines = ["let bad = log(-1 - cos^2)", "torque = sin + bad"]
    assert played(*lines) == ([("bad", 1.0)], ["`bad` in torque (changes no output by 1% of its range)"])
