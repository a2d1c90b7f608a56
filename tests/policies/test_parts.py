from __future__ import annotations

import time

import pytest
from support import PAIR

from policygen.policies.lines import MAX_CHARACTERS, MAX_LINE, Problems
from policygen.policies.parts import MOST_FEATURES, Parts, Scope, Stated, read_parts
from policygen.quantities.grid import Dimension
from policygen.quantities.text import parse_expression, to_text
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

CARTPOLE = load_task("cartpole")
LAKE = load_task("frozenlake")


def parts_of(text: str, task: Task = CARTPOLE, **features: str) -> tuple[Parts, Problems]:
    offered = {name: parse_expression(f, task.quantity_names) for name, f in features.items()}
    problems = Problems()
    return read_parts(text, Scope(task, None, offered), problems), problems


def equations_of(text: str, task: Task = CARTPOLE) -> dict[str, str]:
    parts, problems = parts_of(text, task)
    assert problems == []
    return {name: to_text(node) for name, node in parts.equations.items()}


def problems_of(text: str, task: Task = CARTPOLE) -> list[str]:
    return list(map(str, parts_of(text, task)[1]))


# --- finding the policy in the text ----------------------------------------------------------------------------------


def test_the_last_block_with_a_policy_counts_and_lines_keep_their_numbers():
    text = "```\nleft = 1\n```\nBetter:\n~~~text\nleft = 2\nright = oops\n~~~\n```\nno policy here\n```"
    parts, problems = parts_of(text)
    assert {name: to_text(node) for name, node in parts.equations.items()} == {"left": "2"}
    assert [problem.line for problem in problems] == [7]


@pytest.mark.parametrize(
    "line", ["# left = 1", "// left = 1", "", "Let me think.", "|---|---|", "lean |angle| is small", "x == 3"]
)
def test_what_is_no_policy_line_is_passed_over(line):
    parts, problems = parts_of(line)
    assert (problems, parts.equations, parts.rows, parts.header, parts.lets) == ([], {}, (), None, {})


# --- lines -----------------------------------------------------------------------------------------------------------


def test_features_build_on_each_other_and_may_be_redefined():
    text = "let lean = angle + 0.2*spin\nLet twice = 2*lean\nlet lean = angle\nleft = twice + known"
    parts, problems = parts_of(text, known="spin")
    assert problems == []
    assert {name: to_text(node) for name, node in parts.lets.items()} == {"lean": "angle", "twice": "2*lean"}


def test_a_feature_that_cannot_be_read_is_reported_once_and_keeps_its_name():
    assert problems_of("let lean = angel\nleft = lean\nright = 2*lean") == [
        "line 1: unknown name `angel`; known are angle, position, velocity, spin, lean"
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("params[3]: 1e999", "line 1: params[3] is too large; write a smaller number"),
        (f"left = {'1' * MAX_LINE}", "line 1: the line has 16,007 characters; write at most 16,000 a line"),
        (
            f"bins angle: {', '.join(map(str, range(9_000)))}",
            "line 1: the line has 52,900 characters; write at most 16,000 a line",
        ),
        (f"bins angle: {', '.join(map(str, range(501)))}", "line 1: angle has 501 bin edges; write at most 500"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_what_to_write(line, problem):
    assert problems_of(line) == [problem]


def test_a_definition_that_the_task_has_itself_is_no_second_one():
    (name, text), *_ = LAKE.features
    assert parts_of(f"let {name} = {text}", LAKE)[0].lets == {}
    assert problems_of(f"let {name} = {text} + 1", LAKE) == [
        f"line 1: `{name}` is already a quantity of the task; choose another name for the feature"
    ]


def test_bins_are_edges_whatever_surrounds_them():
    parts, problems = parts_of("bins angle: -0.1, 0, \u22120.0 + 1\nbins spin = [0.5, 1.5]")
    assert parts.bins["spin"] == Stated(2, Dimension("spin", (0.5, 1.5)))
    assert [problem.line for problem in problems] == [1]
    assert parts.bins["angle"].value.bins == 4  # rows that use them are not wrong for that


def test_outputs_of_several_choices_are_called_by_both_names():
    assert equations_of("gear_low = x\ngear(high) = y\nhorn[1] = total", PAIR) == {
        "gear_low": "x",
        "gear_high": "y",
        "horn_1": "total",
    }


def test_what_is_far_too_long_is_not_read():
    assert problems_of("x" * (MAX_CHARACTERS + 1)) == ["the reply has 400,001 characters; at most 400,000 are read"]
    many = "\n".join(f"let f{i} = angle" for i in range(MOST_FEATURES + 50))
    assert problems_of(many) == [
        f"line {MOST_FEATURES + 1}: this is feature number {MOST_FEATURES + 1}; write at most 100"
    ]


def test_a_feature_with_parameters_in_it_is_a_feature_that_cannot_be_read():
    assert problems_of("let lean = angle params[9]: 2\nbins lean: 0") == [
        "line 1: cannot read `angle params[9]: 2` as arithmetic (invalid syntax); correct the expression"
    ]


def test_thousands_of_aliases_are_read_at_once():
    start = time.monotonic()
    assert parts_of("obs0 " * 40_000)[0].equations == {}
    assert time.monotonic() - start < 10  # it took minutes
    assert (
        equations_of("Now let let stand.\nlet obs0 = 2*obs1\nleft = obs0 + obs1\nright = 0")["left"]
        == "obs0 + velocity"
    )
