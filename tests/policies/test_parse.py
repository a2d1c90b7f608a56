# ruff: noqa: E501 - cases are easier to compare with one on a line
"""Replies read into policies, or into all their problems: it tests `policies.cells`, too."""

from __future__ import annotations

import keyword
import re
from dataclasses import replace

import numpy as np
import pytest
from generators import linear_policies, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import ARM, PAIR, discovered

from policygen.policies.linear import LinearPolicy
from policygen.policies.lines import MAX_CHARACTERS
from policygen.policies.parse import MOST_PROBLEMS, ParseResult, parse
from policygen.policies.parts import MOST_FEATURES
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension, Grid, integer_dimension
from policygen.quantities.text import WORDS, to_text
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

CARTPOLE = load_task("cartpole")
LAKE = load_task("frozenlake")
PENDULUM = discovered("Pendulum-v1")
LANDER = load_task("lunarlander")
GRIDLESS = replace(PAIR, features=(), grid=None)
EVERY_TASK = pytest.mark.parametrize("task", [CARTPOLE, LAKE, PENDULUM, ARM, GRIDLESS], ids=lambda task: task.name)
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


def read(text: str, task: Task = LAKE, **options) -> Policy:
    parsed = parse(text, task, **options)
    assert parsed.problems == ()
    assert parsed.policy is not None
    return parsed.policy


def lake_table(text: str, **options) -> list[list[str]]:
    """The action of every square, row by row."""
    policy = read(text, LAKE, **options)
    labels = LAKE.actuators[0].labels
    return [[labels[policy.act_one([4 * row + column])] for column in range(4)] for row in range(4)]


def problems(text: str, task: Task = LAKE, **options) -> list[str]:
    parsed = parse(text, task, **options)
    assert parsed.policy is None
    assert parsed.problems
    return [str(problem) for problem in parsed.problems]


# --- reading is the inverse of writing -------------------------------------------------------------------------------


@EVERY_TASK
@given(data=st.data())
@QUICK
def test_a_policy_reads_back_equal(task, data):
    for policy in (data.draw(tables(task)), data.draw(linear_policies(task))):
        for incumbent in (None, policy):
            assert parse(policy.to_text(), task, policy.kind, incumbent) == ParseResult(policy, ())


def test_a_revision_may_have_another_kind_or_order_of_the_grid():
    old = TablePolicy.from_actions(LAKE, np.zeros(16))
    for dimensions in (LAKE.grid.dimensions[::-1], (integer_dimension("column", 4), Dimension("square", (7.5,)))):
        policy = TablePolicy.from_actions(LAKE, np.arange(Grid(dimensions).size) % 4, Grid(dimensions))
        assert read(policy.to_text()) == policy
        squares = np.arange(16).reshape(-1, 1)
        assert np.array_equal(read(policy.to_text(), incumbent=old).act(squares), policy.act(squares))
    restated = "bins column: 0.5, 1.5, 2.5\nbins row: 0.5, 1.5, 2.5\n| column | row | action |\n| 0 | 1 | up |"
    kept = read(restated, incumbent=old)
    assert kept.grid == old.grid
    assert np.flatnonzero(kept.actions == 3).tolist() == [4]
    linear, table = read("left = 0\nright = angle", CARTPOLE), TablePolicy.from_actions(CARTPOLE, np.zeros(324))
    assert "have no row" in problems("| * | * | 0 | * | left |", CARTPOLE, incumbent=linear)[0]
    assert "there is no equation for right" in problems("left = 1", CARTPOLE, incumbent=table)[0]


# --- what is tolerated -----------------------------------------------------------------------------------------------

PLAIN = "| row | column | action |\n| 0 | * | up |\n| 1-2 | 0,3 | left |\n| * | * | down |"
TOLERATED = {
    "a fence": f"~~~markdown\n{PLAIN}\n~~~",
    "Windows": PLAIN.replace("\n", "\r\n"),
    "prose around": f"I changed row 0.\n\n{PLAIN}\n\nThis should be better.",
    "prose with pipes": f"Keep |row - column| small.\n{PLAIN}",
    "prose that starts with let": f"Let me improve the table.\nLet us see:\n{PLAIN}",
    "an earlier fenced block": f"```\nrow = 4\n```\nbut better:\n```\n{PLAIN}\n```",
    "a later block without a policy": f"```\n{PLAIN}\n```\n```\nThat is all.\n```",
    "a rule line": PLAIN.replace("\n| 0", "\n|:---|---:|:--:|\n| 0", 1),
    "a grid of rules": "+---+---+---+\n" + PLAIN.replace("\n", "\n+---+---+---+\n"),
    "no outer pipes": "\n".join(line.strip("| ") for line in PLAIN.splitlines()),
    "bullets": "\n".join("- " + line for line in PLAIN.splitlines()),
    "bold": PLAIN.replace("| row", "| **row**").replace("action", "**action**").replace("up", "**up**").replace("| 0 ", "| **0** "),
    "code": PLAIN.replace("up", "`up`").replace("row", "`row`"),
    "capitals": PLAIN.replace("row", "Row").replace("up", "UP").replace("action", "Action"),
    "numbers of actions": PLAIN.replace("up", "3").replace("left", "0").replace("down", "1"),
    "names and numbers": PLAIN.replace("up", "up (3)").replace("left", "0 (left)").replace("down", "down: 1"),
    "a comment in the middle": "| action | why | row | column |\n| up | safe | 0 | * |\n| left | | 1-2 | 0,3 |\n| down | - | * | * |",
    "reordered columns": "| action | column | row |\n| up | * | 0 |\n| left | 0,3 | 1-2 |\n| down | * | * |",
    "no header": "\n".join(PLAIN.splitlines()[1:]),
    "a column for comments": PLAIN.replace("action |", "action | why |").replace("up |", "up | safest | really |").replace("down |", "down | |"),
    "comments": PLAIN.replace("up |", "up |  # safest").replace("| action |", "| action |  # three columns"),
    "a comment line": "# | row | column | action |\n// 4 x 4\n" + PLAIN,
    "ranges in words": PLAIN.replace("1-2", "1 to 2").replace("0,3", "{0, 3}"),
    "em-dash and blanks": PLAIN.replace("1-2", "1 — 2"),
    "comparisons": PLAIN.replace("| 0 |", "| <1 |").replace("1-2", "1,2"),
    "any and all": PLAIN.replace("| * | * |", "| any | all |"),
    "restated and improved": "| row | column | action |\n| * | * | left |\n\nBetter:\n" + PLAIN,
    "a row twice": PLAIN + "\n| 0 | * | left |",
}  # fmt: skip


@pytest.mark.parametrize("text", TOLERATED.values(), ids=TOLERATED)
def test_text_and_markup_around_a_table_are_ignored(text):
    expected = [["up"] * 4, ["left", "down", "down", "left"], ["left", "down", "down", "left"], ["down"] * 4]
    assert lake_table(text) == expected


@pytest.mark.parametrize(
    ("cell", "bins"),
    [("2", [2]), ("0-2", [0, 1, 2]), ("1,3", [1, 3]), ("*", [0, 1, 2, 3]), (">1", [2, 3]), ("<= 1", [0, 1]), ("≥2", [2, 3]),
     ("!=1", [0, 2, 3]), ("=3", [3]), ("0, 2-3", [0, 2, 3]), ("{1}", [1]), *((f"1{dash}3", [1, 2, 3]) for dash in ("-", "–", "—", "−", " to ", ".."))],
)  # fmt: skip
def test_a_cell_names_bins(cell, bins):
    table = lake_table(f"| {cell} | * | up |\n| * | * | down |")
    assert [i for i in range(4) if table[i][0] == "up"] == bins


NO_BINS = ["", "4", "-1", "0-4", "2-1", "1 2", "1.5", "a", "1;2", "0-", "<0", "1e1", "٣٣", "0 or 1", "(0,1)"]
NO_ACTIONS = ["", "*", "forward", "4", "-1", "1.0", "up (2)", "up or left", "0000000000001", "left:" * 500, "(" * 900]
NO_NUMBERS = ["1.5 | 0", "0 | 0.6", "left | left", "nan | 0", "inf | 0", "1e999 | 0", "0,5 | 0", "x | 0"]


@pytest.mark.parametrize(
    ("row", "task", "problem"),
    [
        *((f"{cell} | * | up", LAKE, f"line 1: `{cell}` in column row") for cell in NO_BINS),
        *((f"* | * | {cell}", LAKE, f"line 1: `{cell[:40]}` is not an action; expected one of left, down, right, up") for cell in NO_ACTIONS),
        *((f"* | * | {cells}", ARM, "is not an action; expected") for cells in NO_NUMBERS),
    ],
)  # fmt: skip
def test_a_cell_that_cannot_be_read_is_reported_and_never_guessed(row, task, problem):
    assert problem in problems(f"| {row} |\n| * | * | up |", task)[0]


@pytest.mark.parametrize(
    ("cells", "action"),
    [("left | 0.5", [-1, 0.5]), ("off | -2", [0, -2]), ("0.25 | −1.5", [0.25, -1.5]), ("+.5 | –1e-1", [0.5, -0.1]), ("-1 (left) | 0", [-1, 0])],
)  # fmt: skip
def test_numbers_and_named_levels_are_actions(cells, action):
    assert read(f"| * | * | {cells} |", ARM).act_one([0, 0]) == pytest.approx(action)


@pytest.mark.parametrize("number", ["1/2", "50%", "1.5×10^-3", "0.5 rad", "0.5*2", "1.2.3", "1_000"])
def test_a_number_of_bins_or_actions_is_read_whole_or_not_at_all(number):
    edges = problems(f"bins angle: {number}\n| angle | action |\n| * | left |", CARTPOLE)
    assert edges == [f"line 1: the bin edge `{number}` is not a number; write `bins angle: 0, 0.5, 1`"]
    assert "is not an action; expected" in problems(f"| * | * | 0 | {number} |", ARM)[0]


EQUATIONS = {
    "plain": "left = 0\nright = 2*angle + spin",
    "bullets": "- left = 0\n* right = 2*angle + spin",
    "numbered": "1. left = 0\n2) right = 2*angle + spin",
    "bold": "**left** = 0\n**right = 2*angle + spin**",
    "code": "`left` = 0\n`right = 2*angle + spin`",
    "scores": "score_left = 0\nscore(right) = 2*angle + spin",
    "indexed": "action[0] = 0\naction_1 = 2*angle + spin",
    "colon": "left := 0;\nright:= 2*angle + spin;",
    "comments": "left = 0  # nothing\nright = 2*angle + spin  # falling right",
    "unicode": "left = 0\nright = 2×angle − −1·spin",
    "spaces": "left =\u00a00\nright\u2009=\u202f2*angle\u200b +\u3000spin",
}  # fmt: skip


@pytest.mark.parametrize("text", EQUATIONS.values(), ids=EQUATIONS)
def test_markup_of_an_equation_is_ignored(text):
    policy = read(text, CARTPOLE, kind="linear")
    assert isinstance(policy, LinearPolicy)
    assert to_text(dict(policy.equations)["left"]) == "0"
    assert policy.act([[0.0, 0.0, 0.25, -0.4], [0.0, 0.0, 0.25, -0.6]]).tolist() == [1, 0]


@pytest.mark.parametrize("name", sorted({*keyword.kwlist} - WORDS))
def test_a_keyword_of_python_is_a_name_like_another(name: str) -> None:
    policy = read(f"let {name} = angle + 0.2*prev({name}, 1)\nleft = -2*{name}\nright = tune(3, 1, 5)*{name}", CARTPOLE)
    assert [feature for feature, _ in policy.lets] == [name]
    assert read(policy.to_text(), CARTPOLE) == policy
    assert policy.act([[0.0, 0.0, 0.1, 0.0]], policy.start(1)).tolist() == [1]


def test_the_kind_is_what_the_text_looks_like_unless_given():
    assert isinstance(read("| * | * | up |"), TablePolicy)
    assert isinstance(read("left = 0\ndown = 1\nright = 0\nup = 0"), LinearPolicy)
    assert "write table rows such as `| * | * | left |`" in problems("left = 0", kind="table")[0]
    assert "equation each for left, down, right, up" in problems("| * | * | up |", kind="linear")[0]


# --- features and bins -----------------------------------------------------------------------------------------------

OTHERS = "down = 0\nright = 0\nup = 0"
WRITTEN = {
    "a missing column": (LAKE, "| row | action |\n| 0 | up |\n| * | down |", "| row | column | action |\n| 0 | * | up |\n| * | * | down |"),
    "no column": (LAKE, "| action |\n| right |", "| row | column | action |\n| * | * | right |"),
    "floor division, no comment": (LAKE, f"left = square // 2\n{OTHERS}", f"left = floor(square/2)\n{OTHERS}"),
    "a feature without let": (LAKE, f"far = row + 2*column\nleft = far\n{OTHERS}", f"let far = row + 2*column\nleft = far\n{OTHERS}"),
    "a feature of the task, repeated": (LANDER, "let down = leg1 + leg2 > 0\nmain = down\nleft = 0\nright = 0\nnone = 0", "none = 0\nleft = 0\nmain = down\nright = 0"),
    "a feature of the task, changed": (LANDER, "let turn = 2*turn + prev(turn)\nmain = -sink\nleft = turn - 0.1\nright = -turn\nnone = 0.05", "let turn_2 = 2*turn + prev(turn_2)\nnone = 0.05\nleft = turn_2 - 0.1\nmain = -sink\nright = -turn_2"),
    "a column, changed": (LANDER, "let turn = 2*turn\nbins turn: -1, 1\n| turn | action |\n| 0 | left |\n| * | none |", "let turn_2 = 2*turn\nbins turn_2: -1, 1\n| turn_2 | action |\n| 0 | left |\n| * | none |"),
    "features that nothing reads": (LAKE, f"let a = row\nlet b = a\nlet c = 1\nleft = b\n{OTHERS}", f"let a = row\nlet b = a\nleft = b\n{OTHERS}"),
    "features beside a table": (LAKE, "let a = row\nlet b = row\n| * | * | up |", "| row | column | action |\n| * | * | up |"),
    "the header's order of columns": (CARTPOLE, "let lean = angle + spin\nbins lean: -0.1, 0.1\n| lean | position | action |\n| 0 | * | left |\n| * | * | right |",
        "let lean = angle + spin\nbins lean: -0.1, 0.1\nbins position: -0.8, 0.8\n| lean | position | action |\n| 0 | * | left |\n| * | * | right |"),
    "bins of a quantity": (CARTPOLE, "bins angle: [−0.1, 0, 1e-1]\n| angle | action |\n| 0-1 | left |\n| 2-3 | right |", "bins angle: -0.1, 0, 0.1\n| angle | action |\n| 0,1 | left |\n| 2,3 | right |"),
    "no grid of the task": (GRIDLESS, "bins x: 0\n| x | gear | horn |\n| 0 | low | 1 |\n| 1 | reverse | 0 |", "bins x: 0\n| x | gear | horn |\n| 0 | low | 1 |\n| 1 | reverse | 0 |"),
    "both names of an output": (PAIR, "gear_low = x\ngear(high) = y\ngear_reverse = 0\nhorn[1] = total\nhorn_0 = 1", "gear_low = x\ngear_high = y\ngear_reverse = 0\nhorn_0 = 1\nhorn_1 = total"),
}  # fmt: skip


@pytest.mark.parametrize(("task", "text", "written"), WRITTEN.values(), ids=WRITTEN)
def test_a_policy_is_written_in_one_form(task: Task, text: str, written: str) -> None:
    lines = [re.sub(r" +\|", " |", line) for line in read(text, task).to_text().splitlines()]
    assert [line for line in lines if not line.startswith("| -")] == written.splitlines()


def test_a_fixed_grid_takes_no_other_bins_and_a_task_without_a_grid_needs_some():
    assert problems("| * | low | 0 |", GRIDLESS) == [
        "task pair has no grid; give one with lines like `bins NAME: 0, 0.5`"
    ]
    table = "| lean | action |\n| * | left |"
    found = problems("let lean = angle\nbins lean: 0\n" + table, CARTPOLE, free_grid=False)
    assert found[0] == "line 2: the grid of this run is fixed; leave out the `bins` lines"
    own = "bins angle: -0.06, -0.02, 0, 0.02, 0.06\n| * | * | * | * | left |"
    assert read(own, CARTPOLE, free_grid=False).grid == CARTPOLE.grid


# --- all problems at once --------------------------------------------------------------------------------------------

PROBLEMS = {
    **{f"the word {word}": (f"let {word} = row\nleft = -{word}", f"line 1: `{word}` is a word of the language; choose another name for the feature") for word in sorted(WORDS)},
    "a keyword of Python": ("let slope = lambda.x + 1", "line 1: `lambda.x` is not arithmetic; "),
    "an unread feature": ("let lean = rwo\nleft = lean\ndown = 2*lean\nright = 0\nup = 0", "line 1: unknown name `rwo`; known: row"),
    "a column without a header, changed": ("let row = 7\n| 0 | * | up |\n| * | * | down |", "line 1: `row` is already a quantity of the task; choose another name for the feature"),
    "not a feature": ("lean = row\nleft = 0\ndown = 0\nright = 0\nup = 1", "line 1: unknown output `lean`; known: left"),
    "no rows": ("| row | column | action |", "write table rows such as `| * | * | left |`"),
    "no policy": ("Hello.", "no policy was found; write one equation each for left, down, right, up"),
    "bad name": ("let 2x = row", "line 1: found `let 2x = row`; write `let NAME = EXPRESSION`"),
    "cut off": ("```\n| 0 | * | up |", "line 2: the block of the policy is not closed"),
    "no name remembered": ("left = prev(row + 1)", "prev() takes the name of one quantity"),
    "too much remembered": ("left = prev(row, column, 1)", "prev() takes the name of one quantity"),
    "prev alone": ("left = prev", "unknown name `prev`"),
    "an output read": ("left = left + 1", "unknown name `left`"),
    "no equals": ("let x row", "line 1: found `let x row`; write `let NAME = EXPRESSION`"),
    "an action": ("let up = 1", "line 1: `up` is already an action; choose another name"),
    "two features but for case": ("let a = row\nlet A = row", "line 2: `A` is already a feature, `a`"),
    "code": ("left = open('x')", "line 1: unknown function `open`; known: "),
    "bins that fall": ("bins row: 2, 1\n| * | * | up |", "line 1: the bin edges of row must increase in single precision (float32): 2.0, 1.0"),
    "edges that are no numbers": ("bins row: 0, 0.0 + 1\n| 0-2 | * | up |\n| * | * | up |", "line 1: the bin edge `0.0 + 1` is not a number"),
    "too many edges": (f"bins row: {', '.join(map(str, range(501)))}", "line 1: row has 501 bin edges; write at most 500"),
    "a long line of edges": (f"bins row: {', '.join(map(str, range(9_000)))}", "line 1: the line has 52,898 characters"),
    "too many cells": ("bins square: " + ",".join(map(str, range(400))) + "\nbins row: " + ",".join(map(str, range(999))) + "\nbins column: " + ",".join(map(str, range(99))) + "\n| * | * | up |", "the limit is 1,000,000: use fewer bins"),
    "more cells than a headless table has": ("| 1 | 0 | 0 | left |", "line 1: the row has 4 cells; write 3"),
    "near an action": ("| * | * | rigth |", "(did you mean right?)"),
    "near an observation": ("left = colum", "known: column, square, row"),
    "unknown column": ("| x | action |\n| 0 | up |", "line 1: the table has a column `x`; columns may be row, column, action"),
    "no action column": ("| row | column |\n| 0 | 1 |", "line 1: the table has no column `action`; write the header `| row | column | action |`"),
    "column twice": ("| row | row | action |\n| 0 | 1 | up |", "line 1: the header names a column twice"),
    "uncovered": ("| 0 | * | up |\n| 1 | 0 | up |", "11 of 16 cells have no row (the first is row 1, column 1); add rows, or end with a row for all others: `| * | * | left |`"),
    "circle": ("let a = b\nlet b = a + 1\nleft = a\ndown = 0\nright = 0\nup = 0", "`a` depends on itself (a -> b -> a); rename one of them, or read `prev(a)`, its value at the previous step"),
    "missing equations": ("left = 1", "there is no equation for down, right, up; write `down = ...`"),
    "unknown output": ("lft = 1\ndown = 1", "line 1: unknown output `lft`; known: left"),
    "two equations": ("left = 1\ndown = 0\nup = 0\nright = 0\nleft = row", "line 5: `left` is defined differently on line 1; write it once"),
    "two definitions": ("let a = row\nlet a = column\nleft = a\ndown = 0\nup = 0\nright = 0", "line 2: `a` is defined differently on line 1"),
    "assigned again": ("let a = row\na = column\nleft = a\ndown = 0\nup = 0\nright = 0", "line 2: `a` is defined differently on line 1"),
    "two kinds of bins": ("bins row: 0.5\nbins row: 1.5\n| row | action |\n| * | left |", "line 2: `bins row` is defined differently on line 1"),
    "a long line": ("| " + "0" * 20_000 + " | * | up |", "line 1: the line has 20,013 characters; write at most 16,000 a line"),
    "too long": ("x" * (MAX_CHARACTERS + 1), "the reply has 400,001 characters; at most 400,000 are read"),
    "too many features": ("\n".join(f"let f{i} = row" for i in range(MOST_FEATURES + 5)), "line 101: this is feature number 101; define at most 100"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_states_line_finding_and_remedy(text, problem):
    assert any(problem in found for found in problems(text))


def test_the_last_block_with_a_policy_counts_and_lines_keep_their_numbers():
    text = "```\nleft = oops\n```\nBetter:\n~~~text\nleft = 2\nright = oops\n~~~\n```\nno policy here\n```"
    assert [problem.line for problem in parse(text, CARTPOLE).problems] == [7]


def test_all_problems_are_reported_with_their_own_lines():
    text = "Prose.\n```\nlet a = rwo\nbins colum: 1\n| row | column | action |\n|---|---|---|\n| 9 | * | up |\n\n| 0 | x | upp |\n| 1 |\n```"
    assert [problem.line for problem in parse(text, LAKE).problems] == [3, 4, 7, 9, 9, 10]
    assert len(problems("let lean = angel\nleft = lean\nright = 2*lean", CARTPOLE)) == 1, (
        "of what is caused by another one, none"
    )
    found = parse("| 9 | * | up |\n" * 50, LAKE).problems
    assert len(found) == MOST_PROBLEMS + 1
    assert str(found[-1]) == "there are 30 more problems; correct these first"
    assert read("left = row\ndown = 0\nup = 0\nright = 0\nleft = row").to_text().startswith("left = row")


# --- revisions -------------------------------------------------------------------------------------------------------


@given(data=st.data(), task=st.sampled_from([LAKE, CARTPOLE, ARM]))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_cells_that_a_revision_leaves_out_keep_the_incumbents_action(data, task):
    incumbent = data.draw(tables(task, own_grid=False))
    other = data.draw(tables(task, own_grid=False))
    rows = other.rules[: data.draw(st.integers(1, len(other.rules)))]
    lines = [line for line in other.to_text().splitlines() if line.startswith("|")][: 2 + len(rows)]
    parsed = parse("\n".join(lines), task, incumbent=incumbent)
    assert parsed.problems == ()
    decided = np.zeros(task.grid.shape, np.bool_)
    for rule in rows:
        decided[np.ix_(*rule.bins)] = True
    decided = decided.reshape(-1)
    assert np.array_equal(parsed.policy.actions[decided], other.actions[decided])
    assert np.array_equal(parsed.policy.actions[~decided], incumbent.actions[~decided])


LEAN = "let lean = angle + 0.2*spin\nlet push = 2*lean\nleft = -lean\nright = push"
FAR = "let far = row + column\nbins far: 3\n| far | action |\n| 0 | up |\n| 1 | down |"
UP = "| * | * | up |"
REVISED = {
    "a feature of the task, again": ("let row = 2*row\nleft = row\n" + OTHERS, "let row = 3*row", "let row_2 = 3*row\nleft = row_2\n" + OTHERS),
    "an equation": (LEAN, "right = 3*lean", "let lean = angle + 0.2*spin\nleft = -lean\nright = 3*lean"),
    "a feature that kept equations read": (LEAN, "let lean = angle", "let lean = angle\nlet push = 2*lean\nleft = -lean\nright = push"),
    "such a feature without let": (LEAN, "lean = angle", "let lean = angle\nlet push = 2*lean\nleft = -lean\nright = push"),
    "a feature and an equation": (LEAN, "let lean = spin\nright = 2*lean", "let lean = spin\nleft = -lean\nright = 2*lean"),
    "a feature of a column": (FAR, "let far = row + 2*column", FAR.replace("row + column", "row + 2*column")),
    "edges": (FAR, "bins far: 4", FAR.replace("bins far: 3", "bins far: 4")),
    "a row": (FAR, "let far = row + column\n| far | action |\n| 0 | left |", FAR.replace("up", "left")),
    "a feature and every row": (FAR, "let far = row\n| far | action |\n| 0 | up |\n| 1 | down |", FAR.replace("row + column", "row")),
}  # fmt: skip
NOT_REVISED = {
    "a feature by itself": (LEAN, "let lean = 2*lean\nright = lean", "`lean` depends on itself (lean -> lean)"),
    "a feature that nothing reads": (LEAN, "let other = spin", "no policy was found"),
    "rows over another feature": (FAR, "let far = row\n| far | action |\n| 0 | left |", "1 of 2 cells have no row"),
    "rows on another grid": (UP, "bins row: 2\n| row | action |\n| 0 | up |", "1 of 2 cells have no row"),
    **{text: (FAR, text, "no policy was found") for text in ("bins far: 3, 4", "bins row: 2", "let near = 6 - row", "let far = row\n| far | action |")},
}  # fmt: skip


@pytest.mark.parametrize(("old", "text", "new"), REVISED.values(), ids=REVISED)
def test_a_revision_keeps_the_parts_of_the_best_policy_that_it_leaves_out(old: str, text: str, new: str) -> None:
    task = CARTPOLE if old == LEAN else LAKE
    incumbent = read(old, task)
    assert read(text, task, kind=incumbent.kind, incumbent=incumbent) == read(new, task)
    if old == LEAN and text.startswith("let") and "right" not in text:
        assert "no policy was found" in problems(text, task, kind="linear")[0]


@pytest.mark.parametrize(("old", "text", "problem"), NOT_REVISED.values(), ids=NOT_REVISED)
def test_a_revision_that_is_not_a_policy_is_a_problem(old: str, text: str, problem: str) -> None:
    task = CARTPOLE if old == LEAN else LAKE
    incumbent = read(old, task)
    assert problem in problems(text, task, kind=incumbent.kind, incumbent=incumbent)[0]


@pytest.mark.parametrize(
    ("text", "resigned"),
    [
        ("no improvement", True),
        ("The table cannot be better.\n```\nNo improvement.\n```", True),
        (f"It was:\n```\n{UP}\n```\nI leave it.\n~~~text\n- **no improvement**\n~~~", True),
        (f"There was no improvement.\n```\n{UP}\n```", False),
        (f"```\nno improvement\n```\n```\n{UP}\n```", False),
        (f"```\n# no improvement\n{UP}\n```", False),
    ],
)
def test_a_reply_may_say_that_it_cannot_improve_on_the_best(text: str, resigned: bool) -> None:
    parsed = parse(text, LAKE, "table", TablePolicy.from_actions(LAKE, np.zeros(16)))
    assert (parsed.resigned, parsed.policy is None, parsed.problems) == (resigned, resigned, ())
    assert not parse(text, LAKE, "table").resigned


# --- anything at all -------------------------------------------------------------------------------------------------

PIECES = ["|", "*", "let ", "bins ", "=", "```", "\n", "\u2028", "\0", "action", "row", "angle", "left", "(", ")", "-", "9" * 30, "e999", "if", "\ud800", "–", "²", "#", "//", ",", "0", ">=", "**", "`", " "]  # fmt: skip


@given(
    st.one_of(st.text(max_size=300), st.lists(st.sampled_from(PIECES), max_size=40).map("".join)),
    st.sampled_from([CARTPOLE, LAKE, ARM, GRIDLESS]),
    st.sampled_from([None, "table", "linear"]),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_any_text_gives_a_policy_or_problems(text, task, kind, free):
    parsed = parse(text, task, kind, free_grid=free)
    assert (parsed.policy is None) == bool(parsed.problems)
    assert all("\n" not in problem.expected for problem in parsed.problems)
    if parsed.policy is not None:
        assert parse(parsed.policy.to_text(), task).policy == parsed.policy
        assert len(parsed.policy.act(np.random.default_rng(0).normal(size=(5, len(task.observations))))) == 5


REPEATED = ["|", "| * | * | * | * | lft |\n", "let q = velocty\n", "a=b\n", "```\n", "\n", "obs0 ", "| * | * | * | * | " + "(" * 3_900 + "|\n"]  # fmt: skip
HUGE = {
    **{piece[:20]: (piece * (MAX_CHARACTERS // len(piece) + 1))[:MAX_CHARACTERS] for piece in REPEATED},
    "many features": "".join(f"let a{i}=spin\n" for i in range(20_000)),
    "a grid of a million cells": "bins position: " + ",".join(map(str, range(999))) + "\nbins velocity: " + ",".join(map(str, range(998)))
    + "\n| position | velocity | action |\n" + "| * | * | left |\n" * 20_000,
    "more dimensions than arrays have": "".join(f"let a{i}=spin\nbins a{i}:\n" for i in range(70)) + "|" + "|".join(f"a{i}" for i in range(70)) + "|action|\n|" + "*|" * 70 + "left|",
}  # fmt: skip


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_the_longest_replies_give_a_policy_or_problems(text):
    assert len(text) <= MAX_CHARACTERS
    parsed = parse(text, CARTPOLE)
    assert (parsed.policy is None) == bool(parsed.problems)


# --- every line counts -----------------------------------------------------------------------------------------------

SWING = load_task("pendulum")
UPRIGHT = "let upright = cos > 0.88646\n"
WRAPPED = """torque = where(upright, -20.035*sin, 0)
    - where(upright, 5.2118*rate, 0)
    + where(upright, 0, -sign(rate)*cos)
"""


@pytest.mark.parametrize("block", [True, False], ids=["in a block", "as plain text"])
def test_a_wrapped_equation_is_read_to_its_end(block: bool) -> None:
    one_line = UPRIGHT + " ".join(WRAPPED.split())
    for text in (
        UPRIGHT + WRAPPED,
        UPRIGHT + WRAPPED.replace("    ", ""),
        UPRIGHT + WRAPPED.replace("\n    - ", " -\n  ").replace("\n    + ", " +  # first\n"),
        UPRIGHT + f"torque = (\n{WRAPPED[9:]})\n",
        UPRIGHT + WRAPPED.replace("\n    ", " \\\n    "),
        UPRIGHT + WRAPPED.replace("\n    ", "\n    # damped\n    "),
    ):
        assert read(f"```\n{text}```" if block else text, SWING) == read(one_line, SWING)


@pytest.mark.parametrize("line", ["left: -3*angle", "left <- -3*angle", "left ← -3*angle", r"$\text{left} = -3*angle$"])
@pytest.mark.parametrize("fence", ["", "```\n"])
def test_an_output_is_read_whatever_sign_gives_it_its_equation(line: str, fence: str) -> None:
    incumbent = read("left = 0\nright = 1", CARTPOLE)
    revised = read(f"{fence}right = 2*spin\n{line}\n{fence}", CARTPOLE, kind="linear", incumbent=incumbent)
    assert "left = -3*angle" in revised.to_text()


@pytest.mark.parametrize(
    "line",
    [
        *("angle = 3", "Tilt = spin +", "It pushes harder.", "left", "max(angle, spin)"),
        *("left == -3*angle", "left -> -3*angle", "left ≈ -3*angle", '"left": "-3*angle",'),
        *("const gain = 5", "where gain = 5 is small", "float gain = 5", "| left | -3*angle |", "| an", "0 | * | left"),
    ],
)
def test_a_line_of_the_block_that_is_no_statement_is_a_problem(line: str) -> None:
    incumbent = read("left = 0\nright = 1", CARTPOLE)
    for before in ("left = -angle\nright = angle", "right = 2*spin\n"):
        parsed = parse(f"```\n{before}\n{line}\n```", CARTPOLE, "linear", incumbent)
        assert [problem.line for problem in parsed.problems] == [4]


def test_every_line_of_a_text_without_prose_is_a_statement_or_a_problem() -> None:
    text = "# Pushes harder.\nleft = -angle\n\nright = angle  # falling right\nIt pushes harder.\n"
    assert parse(text, CARTPOLE).problems == ()
    assert [problem.line for problem in parse(text, CARTPOLE, policy_only=True).problems] == [5]
    reply = f"It pushes harder:\n```\n{text[:-19]}\n```\n"
    assert parse(reply, CARTPOLE, policy_only=True).problems == ()


@pytest.mark.parametrize(
    "text", ["0,5", "x, 1", "x[0]", "x.real", "'x'", "lambda: 1", "[1]", "{1: 2}", "f'x'", "x(1)(2)"]
)
def test_a_problem_quotes_the_text_and_no_internals_of_python(text: str) -> None:
    read = parse(f"```\nlet x = angle\nleft = {text}\nright = 0\n```", CARTPOLE)
    (problem,) = read.problems
    assert not re.search(r"Tuple|Call\b|Subscript|Attribute|Lambda|List|Dict|JoinedStr|Constant|comma", problem.found)


@pytest.mark.parametrize(
    "text", [PLAIN.translate({ord("|"): "｜", ord("0"): "０", ord("*"): "＊"}), PLAIN.replace("|", "│")]
)
def test_a_table_of_full_width_signs_or_drawn_lines_is_a_table(text: str) -> None:
    assert parse(text, LAKE).policy == parse(PLAIN, LAKE).policy != None  # noqa: E711


@pytest.mark.parametrize("line", ["left = 3*spin", "right: -3*angle", "| 0 | up | | 1 | down |"])
def test_a_line_beside_a_table_that_is_no_row_of_it_is_a_problem(line: str) -> None:
    task = CARTPOLE if "angle" in line or "spin" in line else LAKE
    label, name = task.actuators[0].labels[0], task.grid.names[0]
    incumbent = parse(f"| * | {label} |\n", task, "table").policy
    parsed = parse(f"```\n| {name} | action |\n{line}\n| * | {label} |\n```", task, "table", incumbent)
    assert [problem.line for problem in parsed.problems] == [3]
