"""Interval arithmetic: a result holds every value that the operation has on members of its arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from generators import NASTY, trees
from hypothesis import given, settings
from hypothesis import strategies as st

from policygen.extensions.check.intervals import EVERYTHING, INTERVALS, RULES, Interval, enclosing, hull, result
from policygen.extensions.export.arithmetic import numpy_arithmetic
from policygen.quantities.operations import OPERATIONS, ROWS
from policygen.quantities.text import parse_expression
from policygen.quantities.tree import Node

ENDS = st.one_of(
    st.integers(-12, 12).map(lambda k: k * math.pi / 4),
    st.integers(-8, 8).map(float),
    st.floats(-10, 10),
    st.floats(allow_nan=False),
    st.sampled_from([value for value in NASTY if value == value]),
)


@st.composite
def intervals(draw: Any) -> Interval:
    a, b = draw(ENDS), draw(ENDS)
    return Interval(min(a, b) + 0.0, max(a, b) + 0.0, draw(st.integers(0, 9)) == 0)


def members(x: Interval, rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Ends, numbers beside them and between, whole ones, and zero, infinities and NaN if they belong to it."""
    low, high = max(x.low, -1e308), min(x.high, 1e308)
    scale = np.exp(rng.uniform(-30, 0, count)) * rng.choice([0, 1], count)
    with np.errstate(all="ignore"):
        between = low + (high / 2 - low / 2) * 2 * rng.random(count)
        beside = np.nextafter([low, high], [np.inf, -np.inf])
        near = [between, low + scale, high - scale, rng.normal(0, 3, count), rng.integers(-9, 9, count) * np.pi / 4]
    some = np.concatenate([*near, np.rint(rng.normal(0, 3, count)), [x.low, x.high, 0.0, np.nan], beside])
    return rng.choice(some[((some >= x.low) & (some <= x.high)) | (np.isnan(some) & x.nan)], count)


def holds(x: Interval, values: np.ndarray[Any, Any]) -> bool:
    return bool((((values >= x.low) & (values <= x.high)) | (np.isnan(values) & x.nan)).all())


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interval_holds_every_sampled_value_in_both_precisions(name: str) -> None:
    row = OPERATIONS[name]

    @settings(max_examples=40, deadline=None)
    @given(data=st.data(), seed=st.integers(0, 2**32 - 1))
    def check(data: st.DataObject, seed: int) -> None:
        count = data.draw(st.integers(row.fewest, min(row.most, 4)))
        arguments = [data.draw(intervals()) for _ in range(count)]
        rng = np.random.default_rng(seed)
        found = result(name, *arguments)
        columns = [members(x, rng, 100) for x in arguments]
        with np.errstate(all="ignore"):
            assert holds(found, np.asarray(row.batch(*columns))), (arguments, found)
            values = [row.scalar(*some) for some in np.stack(columns, axis=1).tolist()]
            assert holds(found, np.array(values)), (arguments, found)
            narrow = [enclosing([x.low, x.high]) for x in arguments]
            singles = [members(x, rng, 100).astype(np.float32) for x in narrow]
            assert all(holds(x, column.astype(np.float64)) for x, column in zip(narrow, singles, strict=True))
            results = np.asarray(row.batch(*singles), np.float32).astype(np.float64)
            assert holds(result(name, *narrow), results), narrow

    check()


@settings(max_examples=60, deadline=None)
@given(node=trees(("x", "y"), leaves=10), x=intervals(), y=intervals(), seed=st.integers(0, 2**32 - 1))
def test_any_expression(node: Node, x: Interval, y: Interval, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = {"x": members(x, rng, 100), "y": members(y, rng, 100)}
    with np.errstate(all="ignore"):
        values = np.broadcast_to(numpy_arithmetic().value(node, columns), (100,))
    found = INTERVALS.value(node, {"x": x, "y": y})
    assert holds(found, values)
    assert holds(INTERVALS.finite(found), np.asarray(numpy_arithmetic().finite(np.array(values))))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("x^2", 0, 4),
        ("x*x", -2, 4),
        ("sqrt(x^2 + 1)", 1, math.sqrt(5)),
        ("1/(2 + sin(x))", 1 / 3, 1 / (2 - math.sin(1))),
        ("cos(x)", math.cos(2), 1),
        ("tanh(9*x)", -1, 1),
        ("clip(1/x, -3, 3)", -3, 3),
        ("where(x > 3, 100, x)", -1, 2),
        ("where(x > 1, 100, x)", -1, 100),
        ("min(x, 1, 7)", -1, 1),
        ("mod(x, 3)", 0, 3),
        ("abs(x)", 0, 2),
        ("atan2(x, 1)", -math.pi / 4, math.atan(2)),
        ("atan2(x, x/4)", -math.pi, math.pi),
        ("2^x", 0.5, 4),
        ("x == 1 and not x > 5", 0, 1),
        ("exp(-800 - x^2)", 0, 1e-38),
    ],
)
def test_intervals_are_tight(text: str, low: float, high: float) -> None:
    found = INTERVALS.value(parse_expression(text, ("x",)), {"x": Interval(-1.0, 2.0)})
    assert (found.low, found.high) == pytest.approx((low, high), rel=2e-6, abs=2e-38)
    assert not found.nan or "1/x" in text


def test_what_is_exact_is_not_rounded() -> None:
    x = {"x": Interval(-1.0, 2.0)}
    for text, low, high in (("2*clip(x, -1, 1)", -2, 2), ("x^2 + 0", 0, 4), ("0.5*x - 1", -1.5, 0)):
        found = INTERVALS.value(parse_expression(text, ("x",)), x)
        assert (found.low, found.high) == (low, high) or text == "x^2 + 0"
        assert found.low >= 0 or text != "x^2 + 0"
    assert Interval(0.5, 0.5) == enclosing([0.5])
    tenth = enclosing([0.1])
    assert tenth.low < 0.1 < tenth.high
    assert np.float32(tenth.low) == tenth.low


def test_every_rule_is_of_an_operation() -> None:
    assert RULES.keys() <= {"prev", *(row.name for row in ROWS)}
    assert hull(Interval(0, 1), Interval(3, 4, nan=True)) == Interval(0, 4, nan=True)
    assert result("/", Interval(1, 1), Interval(-1, 1)) == EVERYTHING
