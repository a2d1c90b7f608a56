"""Plants in replies: what is read, what is wrong with a line, and texts that mean harm (`extensions.plants`)."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from planted import EXACT, LINE, PENDULUM, SWINGS, plant, policy, read

from policygen.extensions.plants.equations import Equations
from policygen.policies.parse import parse
from policygen.tasks.spaces import ObservedText

HIDDEN = "hidden push\nlet p = 2*push\nnext push = 0.9*push\nstart push = normal(0, 2)\nends = p > 3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- next rate := rate  # nothing changes", "next rate = rate"),
        ("start rate = normal( 0 , 1 )", "start rate = normal( 0 , 1 )"),
        ("reward = next(near) - ends", "reward = next(near) - ends"),
        ("next rate = prev(u)\nlet u = rate + torque", "let u = rate + torque\nnext rate = prev(u)"),
        ("next rate = rate + push\nhidden push", "hidden push\nnext rate = rate + push"),
        (HIDDEN, HIDDEN),
        ("let v = u + rate\nlet u = 2*torque\nnext rate = v", "let u = 2*torque\nlet v = u + rate\nnext rate = v"),
    ],
)
def test_lines_as_people_and_models_write_them(text: str, expected: str) -> None:
    assert plant(text).to_text() == expected


MISPLACED = (
    "line 1: `next(rate)` is allowed in `reward` only; write the right side of `next rate` as a `let` and read that "
    "here (in `ends`, plain `rate` is the value after the step)"
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("next speed = 1", "line 1: unknown observation `speed`"),
        ("\n\nnext rate = speed", "line 3: unknown name `speed`"),
        ("next sin = sin + 0.05*next(rate)", MISPLACED),
        ("reward = next(torque)", "line 1: unknown observation or feature `torque`; known: "),
        ("ends = torque > 1", "line 1: unknown name `torque`"),
        ("next rate = rate\nnext rate = 2", "line 2: `next rate` is defined differently on line 1"),
        ("start rate = normal(0, -1)", "line 1: `normal(0, -1)` is not a start"),
        ("start rate = uniform(-1e308, 1e308)", "line 1: `uniform(-1e308, 1e308)` is not a start"),
        ("let a = b + torque\nlet b = a\nnext rate = a", "`a` depends on itself (a -> b -> a)"),
        ("torqe = -rate\nlet k = torque\nnext rate = k", "line 1: unknown output `torqe`"),
        ("let u = 2*torque\ntorque = u\nnext rate = u", "line 1: `u` reads the action of the step"),
        ("let v = u\nlet u = 2*torque\ntorque = v\nnext rate = u", "line 1: `v` reads the action of the step"),
        ("hidden rate\nnext rate = rate", "`rate` cannot name a hidden state"),
        ("hidden push = 3\nnext rate = push", "line 1: `hidden push` has a right-hand side"),
        ("hidden push\ntorque = push\nnext rate = push", "line 2: unknown name `push`"),
        ("hidden push\nlet u = 2*push\ntorque = u\nnext rate = u", "line 2: `u` reads the action of the step or a"),
        ("reward = prev(ends) + rate", "`prev(ends)` is always 0"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, problem: str) -> None:
    parsed = read(text)
    assert parsed.policy is None
    assert "plant" not in parsed.notes
    assert [str(one) for one in parsed.problems if str(one).startswith(problem)], list(map(str, parsed.problems))
    assert all(one.found and one.expected and "\x00" not in str(one) for one in parsed.problems)


HUGE = {
    "nesting": "next rate = " + "(" * 900 + "1" + ")" * 900,
    "lets": "\n".join(f"let a{i} = {i}*torque" for i in range(10_000)) + "\nnext rate = a1",
    "a chain": "\n".join(f"let a{i} = a{i + 1} + torque" for i in range(90)) + "\nnext rate = a0",
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_texts_are_refused_in_a_moment(name: str) -> None:
    begun = time.process_time()
    parsed = read(HUGE[name])
    assert "plant" not in parsed.notes
    assert 0 < len(parsed.problems) <= 21
    assert all(len(str(problem)) < 1_000 for problem in parsed.problems)
    assert time.process_time() - begun < 5


def test_what_makes_a_fit_long_is_bounded() -> None:
    hidden = [f"hidden h{i}" for i in range(50)]
    assert [str(one) for one in read("\n".join(hidden)).problems] == [
        "line 9: the plant has 50 hidden states; write at most 8"
    ]
    assert plant("\n".join(hidden[:8])).hidden == tuple(f"h{i}" for i in range(8))
    numbers = " + ".join(f"0.{i + 11}*sin({i + 2}*rate)" for i in range(50))
    fewer = "write shorter lines with fewer numbers, or keep some as they are with `fixed(...)`"
    found = read(f"next rate = {numbers}").problems
    assert [str(one) for one in found] == [f"a fit of the plant's 100 numbers takes 1.7 times too long; {fewer}"]
    assert plant(f"next rate = fixed({numbers})").next
    waves = numbers.split(" + ")
    some = " + ".join(waves[:20])
    assert plant(f"next rate = {some}\nnext cos = {some}\nnext sin = {some}").next
    # Lines that share a number are fitted together, and hidden states join all lines.
    joined = f"let a = 0.5*rate\nnext rate = {some} + a\nnext cos = {some} + a\nnext sin = {some} + a"
    assert [str(one) for one in read(joined).problems] == [
        f"a fit of the plant's 121 numbers takes 2.5 times too long; {fewer}"
    ]
    assert "times too long" in str(read(f"hidden h\nnext h = 0\nnext rate = {some}\nnext cos = {some}").problems)


def test_quantities_of_quantities_are_computed_once() -> None:
    begun = time.process_time()
    doubled = "\n".join(f"let a{i} = a{i - 1} + a{i - 1}" for i in range(1, 80)) + "\nlet a0 = rate\n"
    plant = read(doubled + "next rate = a79\nreward = next(a79)").notes["plant"]
    assert plant is not None
    own = Equations(PENDULUM, plant)
    given = list(np.array([[1.0], [0.0], [0.7]])), own.memory([], 1), [np.zeros(1)], own.values.tolist()
    after, _ = own.step(*given)
    reward, _ = own.outcome(*given, after)
    assert after[2] == pytest.approx(0.7 * 2.0**79)
    assert reward == pytest.approx(float(after[2][0]) * 2.0**79)
    assert time.process_time() - begun < 5


def test_a_plant_alone_keeps_the_incumbent_and_is_no_policy_without_one() -> None:
    incumbent = policy(SWINGS)
    assert read(EXACT, incumbent=incumbent).policy == incumbent
    alone = parse(EXACT, PENDULUM, "linear")
    assert alone.policy is None
    assert "no policy was found" in str(alone.problems[0])


def test_environments_observed_as_text_have_no_plant() -> None:
    task = replace(LINE, texts=(ObservedText("mission"),))
    (problem,) = parse("u = x\nnext x = x", task, "linear").problems
    assert (problem.line, problem.found) == (2, "the environment is observed as text")
