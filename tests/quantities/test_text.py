"""Expressions as text, their trees, and observed texts: it tests `quantities.tree` and `quantities.operations`, too."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from generators import both_forms, of_columns, of_row
from hypothesis import given, settings
from hypothesis import strategies as st

from policygen.errors import ExpressionError
from policygen.quantities.operations import column_of, columns_for, contains_batch, contains_scalar, decoded, encoded
from policygen.quantities.text import format_number, parse_expression, to_digits, to_text
from policygen.quantities.tree import (
    constants,
    limits,
    signed_constants,
    with_constants,
    with_plain_signs,
)

NAMES = ("x", "y", "spin", "theta_2")


@given(
    st.text(alphabet="xy0123456789.+-*/^%()<>=!, andorptif", max_size=60)
    | st.text(alphabet="text,contains()\"' lamp+*x^2", max_size=50)
)
@settings(max_examples=150, deadline=None)
def test_accepted_text_reads_back_as_the_same_expression(text):
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
def test_text_that_is_not_arithmetic_is_refused_in_a_short_sentence(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ExpressionError) as refusal:
            parse_expression(text, ("x", "y"))
    assert 10 < len(str(refusal.value)) < 400
    assert "\n" not in str(refusal.value)


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


@pytest.mark.parametrize(
    ("text", "names", "problem"),
    [
        ("2*velocty", ("position", "velocity", "angle"), "name `velocty`; known: velocity, position, angle"),
        ("sine(x)", ("x",), "unknown function `sine`; known: sin"),
        ("z", [f"q{i}" for i in range(300)], "unknown name `z`; .* and 276 more"),
        ("a" * 1_999, ("x",), r"^.{,119}$"),
        ("xx + zz", ("x",), r"unknown names `xx` \(did you mean x\?\), `zz`; known: x$"),
    ],
)
def test_an_unknown_name_lists_the_nearest_first_and_not_all_of_many(text, names, problem):
    with pytest.raises(ExpressionError, match=problem):
        parse_expression(text, names)


# --- tree -------------------------------------------------------------------------------------------------------------


def test_fixed_numbers_compute_the_same_and_are_not_tuned():
    tree = parse_expression("fixed(0.2 + a)*3 + 0.5", ["a"])
    assert constants(tree) == (3.0, 0.5)
    changed = with_constants(tree, iter([6.0, 1.0]))
    assert to_text(changed) == "fixed(0.2 + a)*6 + 1"
    assert of_row(changed, ["a"])([1.0]) == pytest.approx(8.2)
    assert of_columns(changed, ["a"])([np.array([1.0, 2.0])]).tolist() == pytest.approx([8.2, 14.2])


def test_a_number_with_a_range_computes_as_its_start_is_always_tuned_and_stays_in_the_range():
    text = "tune(2, 0, 10)*x - tune(-1, -3, 0.5) + fixed(7*tune(0, 0, 2)) + x^tune(3, 1, 4)*tune(5, 5, 5)"
    tree = parse_expression(text, ["x"])
    plain = parse_expression("2*x - -1 + fixed(7*0) + x^3*5", ["x"])
    assert to_text(tree) == text
    for other in ("-tune(2, 0, 10)*x", "x - -tune(-2, -5, 0)*x", "prev(x, tune(0, -1, 1))", "-tune(2, 0, 3)^2"):
        assert to_text(with_plain_signs(parse_expression(other, ["x"]))) == other
    assert of_row(tree, ["x"])([1.7]) == of_row(plain, ["x"])([1.7])
    assert constants(tree) == (2.0, -1.0, 0.0, 3.0)
    assert limits(tree) == ((0, 10), (-3, 0.5), (0, 2), (1, 4))
    assert signed_constants(tree) == (2.0, -1.0, 0.0, 3.0)  # in `tune` as written: `x - tune(-1, -3, 0.5)`
    signed = parse_expression("2*x - 0.5*y - (3*x - 1) - -4*x/7 + sin(5*x - 6)^2", ["x", "y"])
    assert signed_constants(signed) == (2, -0.5, 3, -1, 4, 7, 5, -6)
    far = to_text(with_plain_signs(with_constants(tree, iter([-9.0, -9.0, 9.0, 9.0]))))
    assert far == "tune(0, 0, 10)*x - tune(-3, -3, 0.5) + fixed(7*tune(2, 0, 2)) + x^tune(4, 1, 4)*tune(5, 5, 5)"


# --- words ------------------------------------------------------------------------------------------------------------

TEXTS = ("text",)


def read(text: str):
    return parse_expression(text, ("x",), texts=TEXTS)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
@settings(max_examples=50, deadline=None)
def test_a_text_is_kept_exactly_even_in_single_precision(text):
    row = encoded(text, columns_for(40, 4))
    assert decoded(row.astype(np.float32)) == text
    with pytest.raises(ValueError, match="has 7 bytes; the observation space has room for 6"):
        encoded("seven..", 2)
    with pytest.raises(TypeError, match="the observation holds a int"):
        encoded(7, 2)  # type: ignore[arg-type]


def test_many_texts_are_searched_as_one_is_and_capitals_do_not_count():
    texts = ["A Lamp lies here.", "", "lam p", "the LAMP", "lämp, lamp"]
    rows = np.array([encoded(text, 8) for text in texts]).astype(np.float32)
    assert contains_batch(list(rows.T), "lamp").tolist() == [1, 0, 0, 1, 1]
    assert [contains_scalar(row.tolist(), "lamp") for row in rows] == [1, 0, 0, 1, 1]
    names = ("x", *(column_of("text", i) for i in range(8)), "later")
    node = read('2*contains(text, "lamp") + x')
    columns = [np.ones(5), *rows.T.astype(np.float64), np.zeros(5)]
    assert of_columns(node, names)(columns).tolist() == [3, 1, 1, 3, 3]
    scalar = of_row(node, names)
    assert [scalar([1.0, *row, 0.0]) for row in rows.tolist()] == [3, 1, 1, 3, 3]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('contains(text, "lamp")', 'contains(text, "lamp")'),
        ("not contains(text, 'a 2x (old) - key')", 'not contains(text, "a 2x (old) - key")'),
        ("contains(text, “Exits: north, east.”)^2", 'contains(text, "Exits: north, east.")^2'),
        ('contains(text, "it\'s") + contains(text, "3rd")', 'contains(text, "it\'s") + contains(text, "3rd")'),
    ],
)
def test_phrases_are_left_as_they_are_and_read_back(text, written):
    node = read(text)
    assert to_text(node) == written
    assert read(written) == node


NO_PHRASE = ("text", 'text, ""', f'text, "{"x" * 61}"', 'text, "a|b"', 'text, f"{x}"', "text, lamp")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((f"contains({arguments})", "takes the name of an observed text and a phrase") for arguments in NO_PHRASE),
        ('contains(x, "lamp")', "unknown text `x`; known: text"),
        ('contains(txt, "lamp")', "unknown text `txt`; known: text"),
        ('"lamp"', "`lamp` is not a number"),
        ("2*text", "`text` is a text, not a number; write `contains(text"),
        ("text[0]", "`text[0]` is not arithmetic"),
        ("prev(text)", "unknown name `text`"),
        ('contains(text, "lamp"', "cannot read"),
    ],
)
def test_other_uses_of_texts_are_refused_in_a_sentence(text, said):
    with pytest.raises(ExpressionError) as caught:
        read(text)
    assert said in str(caught.value)
    with pytest.raises(ExpressionError, match="unknown function `contains`"):
        parse_expression('contains(x, "lamp")', ("x",))
