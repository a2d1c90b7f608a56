"""The statistics of comparisons, against scipy, tables and sums done by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from policygen.extensions.plots.curves import average, interval_over_seeds


def test_an_interval_of_what_cannot_vary() -> None:
    assert interval_over_seeds(np.array([3.0])) is None
    assert interval_over_seeds(np.full(10, 500.0)) == (500.0, 500.0)


# --- averages of curves ----------------------------------------------------------------------------------------------


def arrays(*rows: Sequence[float]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    return [np.array(row, float) for row in rows]


def curves(xs: Any, levels: Any) -> list[Any]:
    return [*zip(arrays(*xs), arrays(*levels), strict=True)]


def test_the_band_is_that_of_all_resamples() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 10.0]
    _, centre, lower, upper = average(curves([[0]] * 5, [[value] for value in values]))
    assert centre == pytest.approx([3.2])
    resamples = [np.mean(drawn) for drawn in itertools.product(values, repeat=5)]
    low, high = np.percentile(resamples, [2.5, 97.5])
    assert average(curves([[0]] * 5, [[value] for value in values]))[2] == lower  # the same again
    assert 0 < low < 3.2 < high < 10
    assert lower[0] == pytest.approx(low, abs=0.3)
    assert upper[0] == pytest.approx(high, abs=0.7)


@pytest.mark.parametrize(
    ("xs", "levels", "x", "centre"),
    [
        # The second run keeps its last level after its end, and its first one before its start.
        ([[0, 10, 30], [5, 20]], [[0, 1, 2], [4, 6]], [0, 5, 10, 20, 30], [2, 2, 2.5, 3.5, 4]),
        ([[0]] * 3, [[0], [4], [100]], [0], [104 / 3]),
        ([[0]] * 4, [[0], [4], [8], [100]], [0], [28]),
        ([[0, 0, 0]], [[1, 2, 3]], [0], [3]),
        ([[0, 1, 2], [0, 1, 2]], [[np.nan, 1, 1], [np.nan, np.nan, 3]], [2], [2]),
        ([[0, 1]] * 4, [[1, 2]] * 4, [0, 1], [1, 2]),
    ],
    ids=["all steps", "three runs", "four runs", "several levels at a place", "runs begin late", "equal runs"],
)
def test_averages_of_curves(xs: Any, levels: Any, x: list[float], centre: list[float]) -> None:
    spent, mean, *_ = average(curves(xs, levels))
    assert spent.tolist() == x
    assert mean == pytest.approx(centre)


def test_long_runs_are_thinned_and_keep_their_ends() -> None:
    xs = np.arange(5_000.0)
    spent, mean, *_ = average([(xs, xs)] * 2)
    assert len(spent) == 200
    assert (spent[0], spent[-1]) == (0, 4_999)
    assert (mean == spent).all()
