"""Operations, and the functions generated from programs: every form of an expression has the same value."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from generators import NASTY, both_forms, nasty_floats, of_columns, of_row, same, trees
from hypothesis import given, settings
from hypothesis import strategies as st

from policygen.errors import ExpressionError
from policygen.quantities.codegen import column_function, finite, row_function
from policygen.quantities.operations import FUNCTIONS, OPERATIONS, ROWS, Operation
from policygen.quantities.program import Lowering, finite_number
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Call, Name, Number, previous_of

NAMES = ("x", "y", "spin", "theta_2")
UNITS = 4 * np.finfo(float).eps
FLOAT_ROWS = st.lists(st.tuples(*[nasty_floats()] * 4), min_size=1, max_size=20)


def value_of(node, row):
    """The value of an expression by its definition, one operation after another."""
    match node:
        case Number(value):
            return float(value)
        case Name(name):
            return row[name]
        case Call("^", (base, Number(exponent))) if exponent in (0.5, 2.0, 3.0):
            x = value_of(base, row)
            return OPERATIONS["sqrt"].scalar(x) if exponent == 0.5 else x * x if exponent == 2.0 else x * x * x
        case Call(function, arguments):
            return OPERATIONS[function].scalar(*(value_of(one, row) for one in arguments))


def programs(trees_of_lets, wanted):
    lowering = Lowering((), NAMES)
    for number, tree in enumerate(trees_of_lets):
        lowering.define(f"f{number}", tree)
    return lowering.program([lowering.lower(tree) for tree in wanted])


def columns_of(program, rows):
    with np.errstate(all="ignore"):
        found = column_function(program)([np.array(column) for column in zip(*rows, strict=True)])
    return [np.broadcast_to(one, len(rows)).tolist() for one in found]


@given(trees(NAMES, exact=True, leaves=12), trees((*NAMES, "f0"), exact=True, leaves=12), FLOAT_ROWS)
@settings(max_examples=100, deadline=None)
def test_rows_columns_and_the_definition_agree_to_the_last_bit_where_every_operation_is_exact(let, wanted, rows):
    program = programs([let], [wanted])
    of_row, found = row_function(program, [4]), columns_of(program, rows)
    many = columns_of(program, [rows[i % len(rows)] for i in range(1_000)])
    for i, row in enumerate(rows):
        known = dict(zip(NAMES, row, strict=True))
        known["f0"] = finite_number(value_of(let, known))
        expected = value_of(wanted, known)
        for value in (of_row(list(row))[0], found[0][i], many[0][i]):
            assert same(value, expected), (to_text(let), to_text(wanted), row)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1/zero", math.inf), ("-1/zero", -math.inf), ("1/(-zero)", math.inf), ("zero/zero", math.nan)),
        *(("mod(1, zero)", math.nan), ("log(-one)", math.nan), ("log(zero)", -math.inf), ("sqrt(-one)", math.nan)),
        *(("zero^-1", math.inf), ("(-zero)^-1", math.inf), ("(-8)^(one/3)", math.nan), ("exp(1000*one)", math.inf)),
        *(("(1e300*one)*1e300", math.inf), ("atan2(zero, -zero)", 0.0), ("not (zero/zero)", 0.0)),
        *(("where(zero/zero, 1, 2)", 1.0), ("min(zero/zero, 1)", math.nan), ("clip(one, 3, 2)", 2.0)),
        *(("log(zero)^0.5", math.nan), ("log(zero)^(one/2)", math.inf), ("1/0 + zero", math.inf)),
        *(("log(zero - one)", math.nan), ("sqrt(log(zero))", math.nan), ("(zero - one)^0.5", math.nan)),
        ("pow(log(zero), 0.5 + zero)", math.inf),
        *(("where(zero > 0, 1, log(zero) - log(zero))", math.nan), ("floor(1e300 + zero)", 1e300)),
    ],
)
def test_undefined_values_follow_ieee_754_and_zero_has_no_sign(text, value):
    for zero in (0.0, -0.0):
        assert same(both_forms(text, zero=zero, one=1.0), value)


@given(st.lists(st.floats(), min_size=1))
def test_values_of_features_are_always_finite(numbers):
    made = finite(np.array(numbers)).tolist()
    assert made == list(map(finite_number, numbers))
    assert all(map(math.isfinite, made))
    assert (finite_number(math.nan), finite_number(-math.inf)) == (0.0, -1e6)


def test_equal_subterms_are_one_step_and_steps_without_use_are_left_out():
    lowering = Lowering((), ("x", "y"))
    names = ("x", "y", "f")
    lowering.define("f", parse_expression("sin(x)*2 + y", names))
    lowering.define("g", parse_expression("cos(y)", names))
    program = lowering.program([lowering.lower(parse_expression("sin(x)*2 + y^2 - sin(x)", names))])
    assert [step.op for step in program.steps] == ["input", "input", "sin", "number", "*", "*", "+", "-"]


def test_no_text_from_outside_reaches_the_source(monkeypatch):
    sources = []
    monkeypatch.setattr(
        "policygen.quantities.codegen.compile",
        lambda text, *more: sources.append(text) or compile(text, *more),
        raising=False,
    )
    names = ("evil_name", "text[0]", "text[1]", previous_of("evil_name"))
    lowering = Lowering((), names)
    text = 'where(contains(text, "evil phrase"), prev(evil_name, 31337)*evil_name, 12345.678)'
    lowering.define("evil_let", parse_expression(text, ("evil_name",), texts=("text",)))
    program = lowering.program([lowering.named["evil_let"]])
    row_function(program, [4])([1.0, 2.0, 3.0, math.nan])
    row_function(program, [4])([1e300, 2.0, 3.0, 1e300])
    column_function(program)([np.ones(2)] * 4)
    assert sources
    for word in ("evil", "phrase", "31337", "12345", "text"):
        assert not any(word in source for source in sources)


# --- operations -------------------------------------------------------------------------------------------------------

LETTERS = tuple("abcdefgh")
EVERY_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def of_names(row: Operation, count: int) -> Call:
    return Call(row.name, tuple(map(Name, LETTERS[:count])))


@EVERY_ROW
def test_an_operation_of_a_row_and_of_columns_is_within_four_units_of_its_definition(row):
    for count in {row.fewest, min(row.most, 4)}:
        node, names = of_names(row, count), LETTERS[:count]
        rows = list(
            itertools.product(NASTY, repeat=count)
            if count < 3
            else zip(*(NASTY[i:] + NASTY[:i] for i in range(count)), strict=True)
        )
        with np.errstate(all="ignore"):
            column = np.asarray(of_columns(node, names)([np.array(c) for c in zip(*rows, strict=True)]))
        assert column.dtype == np.float64
        scalar = of_row(node, names)
        for numbers, value in zip(rows, column.tolist(), strict=True):
            expected, one = row.scalar(*numbers), scalar(numbers)
            assert isinstance(one, float)
            assert same(one, expected, UNITS), numbers
            assert same(value, expected, UNITS), numbers


@EVERY_ROW
def test_an_operation_is_the_same_with_constant_arguments(row):
    # numpy computes with a constant in another way than with a column of equal numbers.
    for place, constant in itertools.product(range(row.fewest), filter(math.isfinite, NASTY)):
        arguments = [Name("x")] * row.fewest
        node = Call(row.name, (*arguments[:place], Number(constant), *arguments[place + 1 :]))
        with np.errstate(all="ignore"):
            column = np.broadcast_to(of_columns(node, "x")([np.array(NASTY)]), len(NASTY))
        for number, value in zip(NASTY, column.tolist(), strict=True):
            assert same(of_row(node, "x")([number]), value, 1e-12), (number, constant)


@EVERY_ROW
def test_text_reads_back_beside_and_inside_every_other_operation(row):
    plain = of_names(row, row.fewest)
    assert parse_expression(to_text(plain), LETTERS) == plain
    for other in ROWS:
        for place in range(other.fewest):
            inside: list[Name | Number | Call] = list(map(Name, LETTERS[: other.fewest]))
            for argument in (plain, Number(-2.0)):
                inside[place] = argument
                if (other.name, argument) == ("neg", Number(-2.0)):
                    continue  # a negative number is a number, not the negation of one
                tree = Call(other.name, tuple(inside))
                assert parse_expression(to_text(tree), LETTERS) == tree


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_called_by_its_name_and_aliases_with_the_arguments_it_takes(name):
    row = FUNCTIONS[name]
    assert name not in ("and", "or", "not", "neg"), "an operator that is a word is no function"
    for count in range(row.fewest, row.most + 1):
        assert parse_expression(f"{name}({', '.join(LETTERS[:count])})", LETTERS) == of_names(row, count)
    for count in {row.fewest - 1, row.most + 1} - set(range(row.fewest, row.most + 1)):
        expected = row.fewest if row.fewest == row.most else f"{row.fewest} to {row.most}"
        with pytest.raises(ExpressionError, match=rf"takes {expected} arguments, here it has {count}"):
            parse_expression(f"{name}({', '.join(['a'] * count)})", LETTERS)
