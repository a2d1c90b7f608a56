"""Statements that extensions add to the language change equations, are refused where they cannot, or are noted."""

from __future__ import annotations

import numpy as np
import pytest

from policygen.errors import ExpressionError
from policygen.policies.lines import STATEMENTS, Statement
from policygen.policies.parse import ParseResult, parse
from policygen.quantities.tree import Call, Node
from policygen.tasks.load import load_task

TASK = load_task("pendulum")


def capped(equation: Node, limit: Node) -> Node:
    limit = Call("fixed", (limit,))
    return Call("clip", (equation, Call("neg", (limit,)), limit))


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STATEMENTS, "_entries", dict(STATEMENTS))
    STATEMENTS.add("limit", Statement(words=("limit",), rewrite=capped))


def texts(parsed: ParseResult) -> list[str]:
    return list(map(str, parsed.problems))


def test_a_statement_changes_the_equation_of_an_output_for_good() -> None:
    parsed = parse("limit torque = 0.5 + let_go\nlet let_go = abs(sin)\ntorque = -3*rate", TASK)
    assert parsed.policy is not None, texts(parsed)
    again = parse(parsed.policy.to_text(), TASK)
    assert again.policy == parsed.policy
    observed = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0], [1.0, 0.0, 0.1]])
    assert parsed.policy.act(observed).ravel() == pytest.approx([-0.5, -1.5, -0.3])


def test_alone_it_changes_the_best_policy() -> None:
    best = parse("torque = -3*rate", TASK).policy
    parsed = parse("limit torque = 1", TASK, incumbent=best)
    assert parsed.policy is not None, texts(parsed)
    assert parsed.policy.to_text() == "torque = clip(-3*rate, -fixed(1), fixed(1))"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("torque = rate\nlimit toque = 1", "line 2: unknown output `toque`; known: torque"),
        ("torque = rate\nlimit torque = speed", "line 2: unknown name `speed`"),
        (
            "torque = rate\nlimit torque = 1\nlimit torque = 2",
            "is defined differently on line 2; write it once",
        ),
        (
            "limit torque = 1\nbins rate: 0\n| rate | torque |\n| * | 1 |",
            "`limit torque` changes the equation of an output",
        ),
        ("torque = rate\ncap torque = 1", "there is no statement `cap NAME = EXPRESSION`; known: let, bins, "),
    ],
)
def test_problems_name_line_and_remedy(text: str, problem: str) -> None:
    found = texts(parse(text, TASK))
    assert any(problem in one for one in found), found


def test_prose_with_an_equals_sign_is_no_statement() -> None:
    assert parse("so gravity = 9.81 here\ntorque = rate", TASK).policy is not None


def test_a_statement_that_refuses_its_line_is_a_problem_of_that_line() -> None:
    def refusing(equation: Node, limit: Node) -> Node:
        raise ExpressionError("the limit is below 0; write a positive one")

    STATEMENTS.add("cap", Statement(words=("cap",), rewrite=refusing))
    parsed = parse("torque = rate\ncap torque = -1", TASK)
    assert texts(parsed) == ["line 2: the limit is below 0; write a positive one"]
