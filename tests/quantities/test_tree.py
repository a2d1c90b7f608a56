from __future__ import annotations

import math

import numpy as np
import pytest
from generators import of_columns, of_row, trees
from hypothesis import given, settings
from hypothesis import strategies as st

from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import (
    Call,
    Name,
    Number,
    constants,
    limits,
    linear_terms,
    signed_constants,
    with_constants,
    with_plain_signs,
)

NAMES = ("x", "y", "spin", "theta_2")


def test_linear_terms_lifts_what_is_not_linear():
    terms = linear_terms(parse_expression("3*(x - 0.02) - tanh(y)/2 + x", NAMES))
    assert terms == pytest.approx({Name("x"): 4.0, None: -0.06, Call("tanh", (Name("y"),)): -0.5})
    assert linear_terms(parse_expression("x*y", NAMES)) == {Call("*", (Name("x"), Name("y"))): 1.0}
    assert linear_terms(parse_expression("x/0", NAMES)) == {Call("/", (Name("x"), Number(0.0))): 1.0}
    for text in ("-(x / 1e-320)", "1e200 * (1e200 * x)"):  # an infinite coefficient is written in no language
        assert all(map(math.isfinite, linear_terms(parse_expression(text, NAMES)).values()))


@given(trees(("x", "y"), leaves=8), st.floats(-3, 3), st.floats(-3, 3))
@settings(max_examples=60, deadline=None)
def test_linear_terms_add_up_to_the_expression(tree, x, y):
    whole = of_row(tree, ("x", "y"))([x, y])
    parts = [
        (1.0 if term is None else of_row(term, ("x", "y"))([x, y])) * weight
        for term, weight in linear_terms(tree).items()
    ]
    size = sum(map(abs, parts))
    if math.isfinite(whole) and size < 1e100:
        assert sum(parts) == pytest.approx(whole, rel=1e-6, abs=1e-6 * max(size, 1e-300))


def test_what_is_fixed_computes_the_same_and_is_no_constant_to_tune():
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
    assert linear_terms(parse_expression("tune(2, 0, 10)*x", ["x"])) == {Name("x"): 2.0}  # as fast as the number
    assert constants(tree) == (2.0, -1.0, 0.0, 3.0)
    assert limits(tree) == ((0, 10), (-3, 0.5), (0, 2), (1, 4))
    assert signed_constants(tree) == (2.0, -1.0, 0.0, 3.0)  # in `tune` as written: `x - tune(-1, -3, 0.5)`
    far = to_text(with_plain_signs(with_constants(tree, iter([-9.0, -9.0, 9.0, 9.0]))))
    assert far == "tune(0, 0, 10)*x - tune(-3, -3, 0.5) + fixed(7*tune(2, 0, 2)) + x^tune(4, 1, 4)*tune(5, 5, 5)"


def test_constants_are_told_with_the_sign_that_they_are_read_with() -> None:
    node = parse_expression("2*x - 0.5*y - (3*x - 1) - -4*x/7 + sin(5*x - 6)^2", ["x", "y"])
    assert signed_constants(node) == (2, -0.5, 3, -1, 4, 7, 5, -6)
    assert tuple(map(abs, signed_constants(node))) == tuple(map(abs, constants(node)))
