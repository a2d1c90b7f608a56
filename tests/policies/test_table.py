from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policygen.policies.table import Rule, compressed, dense_table, visible


def rows_of(table: np.ndarray) -> list[Rule]:
    """The rows of a table with one action a cell, after checking that they say the same as the table."""
    rules = compressed(table.reshape(-1, 1).astype(float), table.shape)
    assert np.array_equal(dense_table(rules, table.shape, 1).reshape(table.shape), table)
    return rules


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3).flatmap(
        lambda shape: st.tuples(
            st.just(tuple(shape)), st.lists(st.integers(0, 3), min_size=math.prod(shape), max_size=math.prod(shape))
        )
    )
)
@settings(max_examples=60, deadline=None)
def test_few_rows_say_the_same_as_the_dense_table(case):
    shape, actions = case
    assert len(rows_of(np.array(actions).reshape(shape))) <= len(actions)


def index(*shape: int) -> list[np.ndarray]:
    return list(np.indices(shape))


ROW, COLUMN = index(8, 8)
A, B, C, D = index(5, 4, 6, 3)
KNOWN = {
    "a single cell": (np.ones((1, 1)), 1),
    "one threshold": (np.where(ROW < 3, 1, 0), 2),
    "stripes of one quantity": (ROW % 2, 2),
    "bins of many that act alike": (np.where(np.isin(ROW, (1, 4, 6)), 1, 0), 2),
    "a rectangle out of pieces": (np.where(np.isin(ROW, (0, 3, 7)) & np.isin(COLUMN, (2, 5)), 1, 0), 2),
    "a band for each action": (ROW // 2, 4),
    "quarters": (2 * (ROW < 4) + (COLUMN < 4), 4),
    "one quantity of four decides": (np.where(C < 2, 0, np.where(C < 5, 1, 2)), 3),
    "two quantities of four decide": (np.where((A < 2) & (D == 1), 1, 0), 2),
    "a staircase": (np.where(ROW + COLUMN < 8, 1, 0), 8),
    "no two cells alike": (np.arange(12).reshape(3, 4), 12),
}


@pytest.mark.parametrize(("table", "rows"), KNOWN.values(), ids=KNOWN)
def test_a_known_table_takes_as_few_rows_as_are_known(table, rows):
    rules = rows_of(np.asarray(table))
    assert len(rules) == rows
    assert rules[-1].bins == tuple(tuple(range(size)) for size in table.shape), "the most frequent action: stars"


def test_rows_of_ranges_and_of_sets_cover_what_they_say_cell_by_cell():
    shape, rng = (5, 4, 6), np.random.default_rng(0)
    rules = []
    for action in range(60):
        chosen = [rng.choice(size, rng.integers(1, size + 1), replace=False) for size in shape]
        rules.append(Rule(tuple(tuple(sorted(bins.tolist())) for bins in chosen), (float(action),)))
    (actions,) = dense_table(rules, shape, 1).T
    first = []
    for cell in np.ndindex(*shape):
        hits = [i for i, rule in enumerate(rules) if all(cell[k] in rule.bins[k] for k in range(3))]
        first.append(hits[0] if hits else None)
    assert np.array_equal(actions, np.array(first, np.float64), equal_nan=True)
    assert visible(rules, shape) == tuple(rules[i] for i in sorted({hit for hit in first if hit is not None}))
