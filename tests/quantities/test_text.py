from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
from generators import both_forms, of_row, trees
from hypothesis import given, settings
from hypothesis import strategies as st

from policygen.errors import ExpressionError
from policygen.quantities.text import format_number, parse_expression, to_digits, to_text

NAMES = ("x", "y", "spin", "theta_2")


@given(trees(NAMES))
@settings(max_examples=80, deadline=None)
def test_text_of_a_tree_reads_back_to_an_equal_tree(tree):
    assert parse_expression(to_text(tree), NAMES) == tree


@given(
    st.text(alphabet="xy0123456789.+-*/^%()<>=!, andorptif", max_size=60)
    | st.text(alphabet="text,contains()\"' lamp+*x^2", max_size=50)
)
@settings(max_examples=150, deadline=None)
def test_whatever_is_accepted_is_written_so_that_it_reads_back(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            node = parse_expression(text, ("x", "y"), texts=("text",))
        except ExpressionError:
            return
        assert parse_expression(to_text(node), ("x", "y"), texts=("text",)) == node


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_written_exactly_or_to_significant_digits(value):
    assert float(format_number(value)) == value
    assert [to_digits(one, 3) for one in (1234.5, -0.00123456, 7.0)] == [1230, -0.00123, 7]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1 + 2*3", 7), ("(1 + 2)*3", 9), ("2^3^2", 512), ("-2^2", -4), ("(-2)^2", 4), ("2^-1", 0.5), ("8/4/2", 1)),
        *(("8 - 4 - 2", 2), ("7 % 3", 1), ("mod(-1, 4)", 3), ("7 // 2", 3), ("-7 // 2", -4), ("1 < 2 < 3", 1)),
        *(("3 > 2 > 2", 0), ("not 1 < 2", 0), ("1 or 0 and 0", 1), ("5 if 0 else 6", 6), ("where(2 > 1, 5, 6)", 5)),
        *(("if_ + 1", 4), ("min(3, 1, 2) + max(3, 1, 2)", 4), ("clip(7, -1, 1)", 1), ("pow(2, 5)", 32), ("5.", 5)),
        *(("arctan2(1, 1)*4 - pi", 0), ("2×3 − 1 · 4 ÷ 2", 4), ("3² + 2³", 17), ("1e-3*1E3", 1), ("-.5", -0.5)),
        *(
            ("sign(-3) + abs(-3)", 2),
            ("sqrt(16) + floor(2.7)", 6),
            ("(1 ≤ 2) + (3 ≥ 4)", 1),
            ("9^9^9^9^9^9^9", math.inf),
        ),
    ],
)
def test_operators_bind_and_group_as_in_mathematics(text, value):
    assert both_forms(text, if_=3.0) == pytest.approx(value)


def test_a_name_of_the_task_comes_before_a_constant():
    assert both_forms("pi + 1", pi=1.0) == 2.0
    assert both_forms("pi", x=0.0) == math.pi


# --- refusals --------------------------------------------------------------------------------------------------------

HOSTILE = {
    "code": (
        "x.__class__",
        "__import__('os').system('true')",
        "x()()()",
        "[x for x in y]",
        "(lambda: x)()",
        "(z := 3)",
    ),
    "values": ("'abc'", r"'\d'", "x[0]", "x, y", "1j", "True", "x in y", "x = 1", "x @ y", "1 << 99999", "x \\"),
    "characters": ("x\0 + 1", "х + 1", "x\u00a0+ 1", "\u202ex + 1", "\ud800"),  # the second has a Cyrillic x
    "numbers": ("2x", "1if x else 2", "0xff", "1e999", "9" * 1_900),
    "nesting": ("(" * 1_000_000, "(" * 300 + "x" + ")" * 300, "sin(" * 51 + "x" + ")" * 51, "//".join(["x"] * 60)),
    "chains": ("-" * 1_900 + "x", "x if x else " * 150 + "x", "x^" * 300 + "x", "0<(" * 20 + "x" + ")<1" * 20),
    "longer when written": ("+".join(["9e14"] * 190),),
    "parts": ("", "x +", "(x", "velocity", "sin", "atan2(x)", "sin(x, y)", "max(x, y, key=1)", "max(*x)"),
    "arguments of tune": ("tune(1)", "tune(start=1, low=0, high=2)", "tune(x, 0, 1)", "tune(2*3, 0, 9)"),
    "tune in tune": ("tune(tune(1, 0, 2), 0, 3)", "tune(1, fixed(0), 2)"),
    "ranges": ("tune(1, 0, 1e999)", "tune(2, 0, 1)", "tune(1, 2, 0)", "tune(0, -1e308, 1e308)"),
}


@pytest.mark.parametrize(
    "text", [text for texts in HOSTILE.values() for text in texts], ids=lambda text: ascii(text[:30])
)
def test_what_is_not_arithmetic_is_refused_in_one_short_sentence(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ExpressionError) as refusal:
            parse_expression(text, ("x", "y"))
    assert 10 < len(str(refusal.value)) < 400
    assert "\n" not in str(refusal.value)


def test_nothing_in_an_expression_is_executed(tmp_path: Path) -> None:
    with pytest.raises(ExpressionError):
        parse_expression(f"x if open('{tmp_path / 'touched'}', 'w') else x", ("x",))
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (199, "+".join(["x"] * 199)),
        (1, " and ".join(["x"] * 190)),
        (1, "*".join(["x"] * 199)),
        (1, "x/" * 150 + "x"),
        (0, "x < " * 20 + "x"),
    ],
)
def test_long_but_bounded_expressions_are_read_written_and_computed(value, text):
    node = parse_expression(text, ("x",))
    assert parse_expression(to_text(node), ("x",)) == node
    assert of_row(node, ("x",))([1.0]) == value


def test_an_unknown_name_lists_the_nearest_first_and_not_all_of_many():
    for text, names, problem in (
        ("2*velocty", ("position", "velocity", "angle"), "name `velocty`; known are velocity, position, angle"),
        ("sine(x)", ("x",), "unknown function `sine`; known are sin"),
        ("z", [f"q{i}" for i in range(300)], "unknown name `z`; .* and 276 more"),
        ("a" * 1_999, ("x",), r"^.{,119}$"),
    ):
        with pytest.raises(ExpressionError, match=problem):
            parse_expression(text, names)
