"""The verified envelope: what is proved holds at every point, and what is violated or unknown is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from exporting import CASES, cases, written
from generators import linear_policies
from hypothesis import given, settings
from support import ARM, Line

from policygen.extensions.check.envelope import Claim, Envelope, envelope
from policygen.extensions.export.arithmetic import steps_of
from policygen.extensions.export.program import program_of
from policygen.policies.policy import Policy
from policygen.quantities.compiled import slot_of

UNIT = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}


def claim(found: Envelope, words: str) -> Claim:
    """The only claim with these words."""
    (one,) = [c for c in found.claims if words in f"{c.expression} {c.need}"]
    return one


def of(text: str, task: str = "pendulum", **ranges: tuple[float, float]) -> Envelope:
    return envelope(written(text, task), ranges, points=2_000)


def test_a_policy_within_its_limits_is_proved() -> None:
    found = of("torque = clip(-10*sin - 2*rate, -2, 2)/(1 + 0*cos^2)")
    assert {c.verdict for c in found.claims} == {"proved"}
    assert found.exit_code == 0
    limits = claim(found, "before it is clipped")
    assert (limits.low, limits.high) == (-2.0, 2.0)
    assert found.box["rate"] == (-8.0, 8.0, "bounds of the task")


def test_an_output_beyond_its_limits_is_violated_and_by_how_much() -> None:
    found = of("torque = -10*sin - 2*rate")
    limits = claim(found, "before it is clipped")
    assert limits.verdict == "violated"
    assert (limits.low, limits.high) == (-26.0, 26.0)
    assert "before it is clipped (or passes them by at most 24)" in str(limits)
    assert limits.sampled == (-26.0, 26.0)  # the corners are sampled, too
    assert 1_000 < limits.violations < 2_000
    assert found.exit_code == 1
    inside = of("torque = -10*sin - 2*rate", sin=(-0.1, 0.1), rate=(-0.5, 0.5))
    assert inside.exit_code == 0
    assert inside.box["sin"][2] == "stated"


@pytest.mark.parametrize(
    ("text", "expression", "need", "verdict"),
    [
        ("1/rate", "rate", "is not 0", "violated"),
        ("1/(0.1 + abs(rate))", "0.1 + abs(rate)", "is not 0", "proved"),
        ("1/(rate^2 + 1e-60)", "rate^2 + 1e-60", "is not 0", "not proved"),  # in single precision it may be
        ("1/(1 + sin^2 - sin*sin)", "1 + sin^2 - sin*sin", "is not 0", "not proved"),
        ("mod(rate, cos)", "cos", "is not 0", "violated"),
        ("mod(rate, 2 + cos)", "2 + cos", "is not 0", "proved"),
        ("sqrt(sin)", "sin", "is at least 0", "violated"),
        ("sqrt(sin^2 + cos^2)", "sin^2 + cos^2", "is at least 0", "proved"),
        ("log(abs(sin))", "abs(sin)", "is above 0", "violated"),
        ("log(2 + sin)", "2 + sin", "is above 0", "proved"),
        ("rate^0.5", "rate", "is at least 0", "violated"),
        ("rate^-2", "rate", "is not 0", "violated"),
        ("abs(rate)^sin", "abs(rate)", "is above 0", "violated"),
        ("exp(20*rate)", "exp(20*rate)", "does not overflow", "violated"),
        ("tan(rate)", "tan(rate)", "does not overflow", "not proved"),
        ("min(rate^22*rate^22, 1)", "rate^22*rate^22", "does not overflow", "violated"),
    ],
)
def test_operations_are_defined_or_it_is_said(text: str, expression: str, need: str, verdict: str) -> None:
    found = envelope(written(f"torque = 0.001*clip({text}, -1, 1)", "pendulum"), {}, points=4_000)
    (one,) = [c for c in found.claims if c.expression.startswith(f"{expression} (in clip(") and c.need.startswith(need)]
    assert one.verdict == verdict
    assert claim(found, "before it is clipped").verdict == "proved"


def test_remembered_values_have_a_fixed_point_or_none() -> None:
    lets = "let sum = clip(prev(sum) + 0.05*sin, -1, 1)\nlet slow = 0.9*prev(slow) + 0.1*rate\n"
    found = of(f"{lets}torque = 0.1*sum + 0.1*slow + 0.1*prev(torque)")
    assert found.box["prev(sum)"][:2] == (-1.0, 1.0)
    assert found.box["prev(slow)"][1] == pytest.approx(8, rel=1e-3)
    assert found.box["prev(torque)"][1] == pytest.approx((0.1 + 0.8) / 0.9, rel=1e-3)
    assert found.exit_code == 0
    endless = of("let sum = prev(sum) + 0.05*sin\ntorque = clip(sum, -2, 2)")
    assert claim(endless, "prev(sum) (in sum)").verdict == "not proved"
    assert "prev(sum): -inf to inf" in str(endless)
    assert claim(endless, "before it is clipped").verdict == "proved"
    assert endless.exit_code == 3


@pytest.mark.parametrize(
    "name", cases("remembering", "mixed", "whole", "shipped, pendulum-torque-estimator", "table, cartpole")
)
def test_every_value_of_a_step_lies_in_its_bounds_in_both_precisions(name: str) -> None:
    policy = CASES[name]()
    program = program_of(policy)
    names = [name for _, name in program.observed]
    box = dict.fromkeys(names, (-3.0, 2.5))
    found = envelope(policy, box, points=2_000)
    assert all(one.sampled is None or one.low <= one.sampled[0] <= one.sampled[1] <= one.high for one in found.claims)
    rng = np.random.default_rng(3)
    shape = (31, 50, len(policy.task.observations))
    for dtype in (np.float64, np.float32):
        steps = list(steps_of(program, rng.choice([-3.0, 2.5, 0.0, 0.7], shape), dtype))
        for remembered in policy.remembers:
            low, high, _ = found.box[f"prev({remembered})"]
            kept = np.array([values[slot_of(remembered)] for values, _ in steps[1:]], np.float64)
            assert ((low <= kept) & (kept <= high)).all(), remembered


@settings(max_examples=60, deadline=None)
@given(policy=linear_policies(ARM))
def test_claims_hold_for_any_policy(policy: Policy) -> None:
    found = envelope(policy, {name: UNIT[name] for _, name in program_of(policy).observed}, points=200)
    for one in found.claims:
        assert one.sampled is None or one.low <= one.sampled[0] <= one.sampled[1] <= one.high, one
        assert not (one.verdict == "proved" and one.violations), one


def test_observations_without_bounds_have_the_range_of_episodes() -> None:
    found = envelope(written("left = 0\nright = 10*angle + spin", "cartpole"), {}, points=100)
    low, high, source = found.box["spin"]
    assert "20 episodes" in source
    least, most = (float(word) for word in source.split(" in 20")[0].split(" to "))
    assert high - low == pytest.approx(2 * (most - least), rel=1e-3)
    assert found.box["angle"][2] == "bounds of the task"
    assert not any("clipped" in one.need for one in found.claims)  # scores of choices have no limits


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    (tmp_path / "p.txt").write_text("torque = -10*sin - 2*rate + 0*sqrt(cos)")
    return tmp_path / "p.txt"


def test_the_command_prints_and_exits_as_its_help_says(policy_file: Path, line: Line) -> None:
    said = line("check", policy_file, "--task", "pendulum", "--samples", 500)
    assert said.code == 1
    assert "violated: cos (in sqrt(cos)) is at least 0; its values: -1 to 1, sampled: -1 to 1" in said.out
    assert "claims are proved for all of these ranges" in said.out
    boxes = ("--box", "sin=-0.1:0.1", "--box", "rate=-0.5:0.5", "--box", "cos=0:1")
    assert line("check", policy_file, "--task", "pendulum", *boxes).code == 0
    policy_file.write_text("let s = prev(s) + sin\ntorque = clip(s, -1, 1)")
    said = line("check", policy_file, "--task", "pendulum", "--json")
    assert said.code == 3
    record = json.loads(said.out, parse_constant=lambda word: pytest.fail(word))
    assert record["exit_code"] == 3
    assert record["box"]["prev(s)"][:2] == ["-inf", "inf"]
    assert {one["verdict"] for one in record["claims"]} == {"proved", "not proved"}


@pytest.mark.parametrize(
    ("box", "said"),
    [
        ("sin", "write NAME=LOW:HIGH"),
        ("sin=1:0", "write NAME=LOW:HIGH"),
        ("sin=0:inf", "write NAME=LOW:HIGH"),
        ("sin=0:1:2", "write NAME=LOW:HIGH"),
        ("speed=0:1", "the policy reads cos, sin, rate; name one of these"),
    ],
)
def test_a_wrong_box_is_one_sentence(box: str, said: str, policy_file: Path, line: Line) -> None:
    refused = line("check", policy_file, "--task", "pendulum", "--box", box)
    assert refused.code == 2
    assert said in refused.err
    assert "Traceback" not in refused.err
