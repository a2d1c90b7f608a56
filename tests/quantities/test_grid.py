from __future__ import annotations

import numpy as np
import pytest
from generators import dimensions
from hypothesis import given, settings
from hypothesis import strategies as st

from policygen.errors import UsageError
from policygen.quantities.grid import BLOCK_ROWS, COMPARE_AT_MOST, MAX_DIMENSIONS, Dimension, Grid, integer_dimension

DTYPES = (np.float64, np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_)


def expected_cells(grid: Grid, columns: list[np.ndarray]) -> np.ndarray:
    """The definition: np.digitize on the edges rounded to single precision, bins counted in C order."""
    edges = [np.array([np.float32(edge) for edge in d.edges], np.float64) for d in grid.dimensions]
    bins = [np.digitize(column.astype(np.float64), e) for column, e in zip(columns, edges, strict=True)]
    return np.ravel_multi_index(bins, grid.shape)


def values_near(dimension: Dimension, n: int, rng: np.random.Generator) -> np.ndarray:
    """Random values, the edges themselves, their neighbours, and what is not finite."""
    cuts = np.array(dimension.rounded_edges or (0.0,))
    special = np.concatenate(
        [cuts, np.nextafter(cuts, np.inf), np.nextafter(cuts, -np.inf), [np.nan, np.inf, -np.inf, -0.0]]
    )
    wide = rng.normal(scale=np.abs(cuts).max() + 1, size=n)
    return np.where(rng.random(n) < 0.5, wide, rng.choice(special, size=n))


@given(st.tuples(dimensions("a"), dimensions("b", 50), dimensions("c")), st.sampled_from(DTYPES), st.data())
@settings(max_examples=60, deadline=None)
def test_cells_are_those_of_digitize_for_any_dtype_block_and_memory_layout(parts, dtype, data):
    if data.draw(st.booleans()):  # many edges are searched, few are compared with each value
        parts = (
            *parts[:2],
            Dimension("c", tuple((np.arange(data.draw(st.sampled_from((COMPARE_AT_MOST, 300)))) / 7).tolist())),
        )
    sizes = st.sampled_from((0, 1, 99, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS + 7))
    n, layout = data.draw(sizes), data.draw(st.sampled_from(("columns", "rows", "every second", "reversed")))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    with np.errstate(all="ignore"):
        values = np.stack([values_near(d, 2 * n, rng) for d in parts], axis=1)
        if not np.issubdtype(dtype, np.floating):
            values = np.clip(np.nan_to_num(values), 0, 100)
        values = values.astype(dtype)
    rows = values[:n] if layout != "every second" else values[::2]
    columns = list({"columns": np.asfortranarray(rows), "reversed": rows[::-1]}.get(layout, rows).T)
    cells = Grid(parts).cells(columns)
    assert (cells.dtype, cells.shape) == (np.int32, (n,))
    assert np.array_equal(cells, expected_cells(Grid(parts), columns))


@pytest.mark.parametrize("shape", [(255,), (256, 1), (257,), (1, 16, 16), (5, 51), (255, 257), (256, 256), (65_537,)])
def test_all_cells_are_reached_however_wide_their_numbers_are(shape):
    grid = Grid(tuple(integer_dimension(f"a{i}", bins) for i, bins in enumerate(shape)))
    columns = list(np.unravel_index(np.arange(grid.size), shape))
    assert np.array_equal(grid.cells(columns), np.arange(grid.size))
    values = np.random.default_rng(0).normal(size=(grid.size, 2)).astype(np.float32)
    for held in (values[:, 0], values, np.arange(grid.size, dtype=np.int8)):
        assert np.array_equal(grid.look_up(columns, held), held)
        assert grid.look_up(columns, held).dtype == held.dtype


def test_integers_have_a_bin_each_an_edge_belongs_to_the_bin_above_and_nan_to_the_top():
    column = np.array([-np.inf, -1e-9, -0.0, 0.0, 0.05, np.float32(0.1), 5, np.inf, np.nan], np.float32)
    assert Grid((Dimension("a", (0.0, 0.1)),)).cells([column]).tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    grid = Grid((integer_dimension("row", 4), integer_dimension("column", 3)))
    rows, columns = np.divmod(np.arange(12), 3)
    assert grid.cells([rows, columns]).tolist() == list(range(12))
    assert grid.bins_of(np.arange(12)).tolist() == np.stack([rows, columns], axis=1).tolist()
    assert grid.bins_of(7).tolist() == [2, 1]
    assert (grid.size, grid.shape, grid.names) == (12, (4, 3), ("row", "column"))


@pytest.mark.parametrize(
    ("dimension", "labels"),
    [
        (Dimension("a", (-0.8, 0.8)), ["below -0.8", "-0.8 to 0.8", "0.8 and above"]),
        (Dimension("a", (2.0,)), ["below 2", "2 and above"]),
        (Dimension("a", ()), ["any value"]),
        (integer_dimension("a", 3), ["0", "1", "2"]),
    ],
)
def test_bins_are_named_by_their_values(dimension, labels):
    assert [dimension.label(i) for i in range(dimension.bins)] == labels


@pytest.mark.parametrize(
    ("edges", "problem"),
    [
        *((edges, "increase") for edges in ((1.0, 1.0), (2.0, 1.0), (0.1, 0.1 + 1e-12))),
        *(((edge,), "be finite") for edge in (float("nan"), float("inf"), -float("inf"), 1e39)),
    ],
)
def test_edges_are_finite_and_increase_in_single_precision(edges, problem):
    with pytest.raises(UsageError, match=f"bin edges of angle must {problem}"):
        Dimension("angle", edges)


def test_a_grid_has_distinct_dimensions_and_bounded_size():
    most = tuple(integer_dimension(f"a{i}", 1) for i in range(MAX_DIMENSIONS))
    for parts, problem in (
        ((integer_dimension("a", 2), integer_dimension("a", 3)), "bins a quantity twice"),
        ((integer_dimension("a", 1_000), integer_dimension("b", 1_001)), "1,001,000 cells; the limit is 1,000,000"),
        ((), "1 to 32 quantities"),
        ((*most, integer_dimension("more", 1)), "1 to 32 quantities"),
    ):
        with pytest.raises(UsageError, match=problem):
            Grid(parts)
    assert Grid(most).cells([np.zeros(3)] * 32).tolist() == [0] * 3
