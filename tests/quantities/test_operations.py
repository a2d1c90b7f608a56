from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from generators import NASTY, of_columns, of_row, same

from policygen.errors import ExpressionError
from policygen.quantities.operations import FUNCTIONS, OPERATIONS, ROWS, Operation
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Call, Name, Number

LETTERS = tuple("abcdefgh")
EVERY_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def of_names(row: Operation, count: int) -> Call:
    return Call(row.name, tuple(map(Name, LETTERS[:count])))


def test_a_name_means_one_operation():
    names = [name for row in ROWS for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
    symbols = [row.syntax for row in ROWS if row.syntax]
    assert len(symbols) == len(set(symbols))
    assert set(FUNCTIONS.values()) | {row for row in ROWS if row.level} == set(OPERATIONS.values())


@EVERY_ROW
def test_batch_and_scalar_forms_agree_on_awkward_numbers(row):
    node, names = of_names(row, row.fewest), LETTERS[: row.fewest]
    rows = list(itertools.product(NASTY, repeat=row.fewest))
    with np.errstate(all="ignore"):
        column = np.asarray(of_columns(node, names)([np.array(c) for c in zip(*rows, strict=True)]))
    assert column.dtype == np.float64
    scalar = of_row(node, names)
    for numbers, value in zip(rows, column.tolist(), strict=True):
        one = scalar(numbers)
        assert isinstance(one, float)
        assert same(one, value, 1e-12), numbers


@EVERY_ROW
def test_batch_and_scalar_forms_agree_where_some_arguments_are_constants(row):
    # numpy computes with a constant in another way than with a column of equal numbers.
    for place, constant in itertools.product(range(row.fewest), filter(math.isfinite, NASTY)):
        arguments = [Name("x")] * row.fewest
        node = Call(row.name, (*arguments[:place], Number(constant), *arguments[place + 1 :]))
        with np.errstate(all="ignore"):
            column = np.broadcast_to(of_columns(node, "x")([np.array(NASTY)]), len(NASTY))
        for number, value in zip(NASTY, column.tolist(), strict=True):
            assert same(of_row(node, "x")([number]), value, 1e-12), (number, constant)


@EVERY_ROW
def test_forms_take_as_many_arguments_as_the_row_says(row):
    numbers = [0.5 + i for i in range(row.most)]
    for count in range(row.fewest, row.most + 1):
        assert float(row.batch(*map(np.float64, numbers[:count]))) == pytest.approx(row.scalar(*numbers[:count]))


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
