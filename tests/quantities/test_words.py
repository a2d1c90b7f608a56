"""Texts as columns of numbers, and `contains`."""

from __future__ import annotations

import numpy as np
import pytest
from generators import of_columns, of_row
from hypothesis import given, settings
from hypothesis import strategies as st

from policygen.errors import ExpressionError
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.words import column_of, columns_for, contains_batch, contains_scalar, decoded, encoded

TEXTS = ("text",)


def read(text: str):
    return parse_expression(text, ("x",), texts=TEXTS)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
@settings(max_examples=50, deadline=None)
def test_a_text_is_kept_exactly_even_in_single_precision(text):
    row = encoded(text, columns_for(40, 4))
    assert decoded(row.astype(np.float32)) == text


def test_a_text_that_is_too_long_or_none_is_refused():
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
        ('contains(x, "lamp")', "unknown text `x`; known are text"),
        ('contains(txt, "lamp")', "unknown text `txt`; known are text"),
        ('"lamp"', "`lamp` is not a number"),
        ("2*text", "`text` is a text, not a number; write `contains(text"),
        ("text[0]", "`text[0]` is not arithmetic"),
        ("prev(text)", "unknown name `text`"),
        ('contains(text, "lamp"', "cannot read"),
    ],
)
def test_whatever_else_is_made_of_texts_is_refused_in_a_sentence(text, said):
    with pytest.raises(ExpressionError) as caught:
        read(text)
    assert said in str(caught.value)
    with pytest.raises(ExpressionError, match="unknown function `contains`"):
        parse_expression('contains(x, "lamp")', ("x",))
