from __future__ import annotations

import math

import numpy as np
import pytest
from generators import both_forms, nasty_floats, same, trees
from hypothesis import given, settings
from hypothesis import strategies as st

from policygen.quantities.compiled import (
    compile_batch,
    compile_scalar,
    compile_together,
    finite,
    finite_scalar,
    slot_of,
)
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Name, constants, with_numbers

NAMES = ("x", "y", "spin", "theta_2")


@given(trees(NAMES, exact=True, leaves=12), st.lists(st.tuples(*[nasty_floats()] * 4), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_batch_and_scalar_forms_are_equal_to_the_last_bit_where_every_operation_is_exact(tree, rows):
    batch, scalar = compile_batch(tree, NAMES), compile_scalar(tree, NAMES)
    with np.errstate(all="ignore"):
        column = np.broadcast_to(batch([np.array(c) for c in zip(*rows, strict=True)]), (len(rows),)).tolist()
    for row, value in zip(rows, column, strict=True):
        assert same(scalar(list(row)), value), (to_text(tree), row)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1/zero", math.inf), ("-1/zero", -math.inf), ("1/(-zero)", math.inf), ("zero/zero", math.nan)),
        *(("mod(1, zero)", math.nan), ("log(-one)", math.nan), ("log(zero)", -math.inf), ("sqrt(-one)", math.nan)),
        *(("zero^-1", math.inf), ("(-zero)^-1", math.inf), ("(-8)^(one/3)", math.nan), ("exp(1000*one)", math.inf)),
        *(("(1e300*one)*1e300", math.inf), ("atan2(zero, -zero)", 0.0), ("not (zero/zero)", 0.0)),
        *(("where(zero/zero, 1, 2)", 1.0), ("min(zero/zero, 1)", math.nan)),
    ],
)
def test_what_has_no_value_follows_ieee_754_and_zero_has_no_sign(text, value):
    assert same(both_forms(text, zero=0.0, one=1.0), value)
    assert same(both_forms(text, zero=-0.0, one=1.0), value)


@given(st.lists(st.floats(), min_size=1))
def test_features_never_hand_on_what_is_not_finite(numbers):
    batch = finite(np.array(numbers)).tolist()
    assert batch == [finite_scalar(number) for number in numbers]
    assert all(map(math.isfinite, batch))
    assert finite_scalar(math.nan) == 0.0
    assert finite_scalar(-math.inf) == -1e6


TOGETHER = (
    "2*x*y^2 + 3*x*y^2 - 5*(x - y)",
    "7*y*3*x*y",
    "x*y",
    "(x + y)^3*4 - (2*x)^2 + x^3 - spin^1.5",
    "1*x + 2*y - 3*spin + 4*x^2 - 5*x*y + 6*y*y*spin - 7*sin(x) + 8 + theta_2*spin",
    "prev(x, 2*y) * 3",
    "where(x > 0, 2*x, fixed(3)*y)",
)


@pytest.mark.parametrize("variants", [(), (4, 1)])
def test_together_expressions_are_what_each_is_alone(variants):
    rng = np.random.default_rng(0)
    nodes = [parse_expression(text, NAMES) for text in TOGETHER]
    values = [value for node in nodes for value in constants(node)]
    names = [*NAMES, slot_of("x"), *(f"#{i}" for i in range(len(values)))]
    numbers = iter(names[len(NAMES) + 1 :])
    named = [with_numbers(node, lambda _: Name(next(numbers))) for node in nodes]
    columns = [*rng.uniform(0.5, 2, (len(NAMES), 30)), np.where(rng.random(30) < 0.5, np.nan, 1.5)]
    columns += [value * rng.uniform(0.5, 2, variants) for value in values]
    together = compile_together(named, names)
    for n in (None, None, *(() if variants else (30,))):
        for found, node, text in zip(together(columns, n), named, TOGETHER, strict=True):
            alone = compile_batch(node, names)(columns)
            assert np.allclose(*np.broadcast_arrays(found, alone), rtol=1e-12), text
        columns[-len(values) :] = [value + 1 for value in columns[-len(values) :]]  # they are not kept from before
