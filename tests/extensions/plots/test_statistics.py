"""The statistics of comparisons, against scipy, tables and sums done by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from policygen.extensions.compare.statistics import (
    fewest_pairs,
    holm,
    mean_of_means,
    more_runs_needed,
    p_against_mean,
    performance_profile,
    probability_of_improvement,
    seeds_needed,
    shuffle_p,
    sign_flip_p,
    stratified_interval,
)
from policygen.extensions.plots.statistics import average, interval_over_seeds


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_an_interval_is_as_wide_as_students(rng: np.random.Generator) -> None:
    values = rng.normal(10, 2, 30)
    low, high = interval_over_seeds(values) or (0, 0)
    half = stats.t.ppf(0.975, 29) * values.std(ddof=1) / math.sqrt(30)
    assert low == pytest.approx(values.mean() - half, abs=0.15)
    assert high == pytest.approx(values.mean() + half, abs=0.15)
    assert interval_over_seeds(values) == (low, high)  # the same again


def test_an_interval_of_what_cannot_vary() -> None:
    assert interval_over_seeds(np.array([3.0])) is None
    assert interval_over_seeds(np.full(10, 500.0)) == (500.0, 500.0)
    assert stratified_interval([np.array([1.0]), np.array([2.0])], mean_of_means) is None


def test_a_stratified_interval_of_one_task_is_the_plain_one_and_tasks_count_the_same(rng: np.random.Generator) -> None:
    values = rng.normal(0, 1, 40)
    plain, stratified = interval_over_seeds(values), stratified_interval([values], mean_of_means)
    assert plain == pytest.approx(stratified, abs=0.03)
    assert mean_of_means([np.array([1.0]), np.array([3.0, 5.0])]) == 2.5
    # Two tasks of variance 1 and n runs each: the mean over both has variance 1/(2n).
    one, two = rng.normal(0, 1, 200), rng.normal(50, 1, 200)
    low, high = stratified_interval([one, two], mean_of_means) or (0, 0)
    assert high - low == pytest.approx(2 * 1.96 / math.sqrt(400), rel=0.12)


def test_the_probability_of_improvement_is_the_mann_whitney_share(rng: np.random.Generator) -> None:
    ours, theirs = rng.normal(1, 1, 9), rng.normal(0, 1, 12)
    u = stats.mannwhitneyu(ours, theirs).statistic
    assert probability_of_improvement([ours], [theirs]) == pytest.approx(u / (9 * 12))
    assert probability_of_improvement([np.array([1.0, 2])], [np.array([2.0, 2])]) == 0.25
    assert probability_of_improvement([np.array([1.0]), np.array([0.0])], [np.array([0.0]), np.array([0.0])]) == 0.75


def test_the_permutation_test_is_scipys(rng: np.random.Generator) -> None:
    for n in (3, 6, 10):
        differences = rng.normal(0.6, 1, n)
        theirs = stats.permutation_test(
            (differences, np.zeros(n)), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf
        )
        assert sign_flip_p([differences]) == pytest.approx(theirs.pvalue)
    assert sign_flip_p([np.array([1.0, 2.0, 3.0])]) == 0.25  # two of eight
    assert sign_flip_p([np.zeros(4)]) == 1.0
    many = rng.normal(0.5, 1, 60)
    assert sign_flip_p([many]) == pytest.approx(stats.ttest_1samp(many, 0).pvalue, abs=0.01)


def test_the_test_of_unpaired_runs_is_scipys(rng: np.random.Generator) -> None:
    ours, theirs = rng.normal(1, 1, 6), rng.normal(0, 1, 7)
    exact = stats.permutation_test((ours, theirs), lambda x, y: np.mean(x) - np.mean(y), n_resamples=np.inf)
    assert shuffle_p([ours], [theirs]) == pytest.approx(exact.pvalue, abs=0.01)
    assert shuffle_p([np.ones(3)], [np.ones(3)]) == 1.0


def test_holms_correction_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([0.2]) == [0.2]


@pytest.mark.parametrize(
    # Of tables of power (two-sided paired t-test, level 0.05, power 0.8).
    ("effect", "seeds"),
    [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)],
)
def test_seeds_that_would_settle_it_are_those_of_the_tables(effect: float, seeds: int) -> None:
    assert seeds_needed(effect, 1.0) == seeds
    assert seeds_needed(-10 * effect, 10.0) == seeds


def test_what_no_number_of_seeds_settles() -> None:
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(0.001, 1.0) is None
    assert seeds_needed(2.0, 0.0) == 2
    assert seeds_needed(50.0, 1.0) in (2, 3)


def test_no_test_of_so_few_seeds_comes_down_to_the_level() -> None:
    for level in (0.05, 0.05 / 3, 0.25):
        fewest = fewest_pairs(level)
        lowest = [sign_flip_p([np.arange(1.0, n + 1)]) for n in (fewest - 1, fewest)]
        assert lowest[1] <= level < lowest[0]
    assert (fewest_pairs(0.05), fewest_pairs(0.05 / 3)) == (6, 7)
    assert more_runs_needed(0.05, 3, 3) == 1  # 2/20, and 2/70
    assert more_runs_needed(0.05, 2, 5) == 0  # 1/21
    assert more_runs_needed(0.05, 2, 2, tasks=2) == 1  # 2/36


def test_a_profile_is_the_share_of_runs_above_each_threshold() -> None:
    profile = performance_profile([np.array([0.0, 1.0]), np.array([1.0, 1.0])], np.array([-1.0, 0.0, 0.5, 1.0]))
    assert profile.centre.tolist() == [1.0, 0.75, 0.75, 0.0]
    assert np.all(profile.low <= profile.centre)
    assert np.all(profile.high >= profile.centre)


def test_runs_against_a_published_mean_are_welchs_test_students_or_a_sign_test(rng: np.random.Generator) -> None:
    runs = rng.normal(5, 2, 8)
    others = stats.norm.ppf((np.arange(10) + 0.5) / 10, 3, 1)
    welch = stats.ttest_ind(runs, others, equal_var=False).pvalue
    assert p_against_mean(runs, float(others.mean()), float(others.std(ddof=1)), 10) == pytest.approx(welch)
    assert p_against_mean(runs, 3.0, None, 10) == pytest.approx(stats.ttest_1samp(runs, 3.0).pvalue)
    assert p_against_mean(np.full(6, 500.0), 478.0, None, None) == 2 / 2**6
    assert p_against_mean(np.full(6, 500.0), 500.0, None, None) == 1.0
    assert p_against_mean(runs[:1], 3.0, 1.0, 10) == 1.0


# --- averages of curves ----------------------------------------------------------------------------------------------


def arrays(*rows: Sequence[float]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    return [np.array(row, float) for row in rows]


def test_the_band_is_that_of_all_resamples() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 10.0]
    band = average(arrays(*[[0]] * 5), arrays(*[[value] for value in values]))
    # A quarter of five runs is 1.25 of them: none of the outermost, three quarters of their neighbours.
    weights = [0, 0.3, 0.4, 0.3, 0]
    assert band.centre == pytest.approx([0.3 * 1 + 0.4 * 2 + 0.3 * 3])
    resamples = [np.dot(sorted(drawn), weights) for drawn in itertools.product(values, repeat=5)]
    low, high = np.percentile(resamples, [2.5, 97.5])
    assert average(arrays(*[[0]] * 5), arrays(*[[value] for value in values])).low == band.low  # the same again
    assert 0 < low < 2 < high < 10
    assert band.low[0] == pytest.approx(low, abs=0.3)
    assert band.high[0] == pytest.approx(high, abs=0.7)


@pytest.mark.parametrize(
    ("xs", "levels", "x", "centre"),
    [
        # The second run keeps its last level after its end, and its first one before its start.
        ([[0, 10, 30], [5, 20]], [[0, 1, 2], [4, 6]], [0, 5, 10, 20, 30], [2, 2, 2.5, 3.5, 4]),
        ([[0]] * 3, [[0], [4], [100]], [0], [104 / 3]),
        ([[0]] * 4, [[0], [4], [8], [100]], [0], [6]),
        ([[0, 0, 0]], [[1, 2, 3]], [0], [3]),
        ([[0, 1, 2], [0, 1, 2]], [[np.nan, 1, 1], [np.nan, np.nan, 3]], [2], [2]),
        ([[0, 1]] * 4, [[1, 2]] * 4, [0, 1], [1, 2]),
    ],
    ids=["all steps", "three runs", "four runs", "several levels at a place", "runs begin late", "equal runs"],
)
def test_averages_of_curves(xs: Any, levels: Any, x: list[float], centre: list[float]) -> None:
    band = average(arrays(*xs), arrays(*levels))
    assert band.x.tolist() == x
    assert band.centre == pytest.approx(centre)


def test_the_band_of_two_runs_is_their_range_and_that_of_equal_runs_has_no_width() -> None:
    band = average(arrays([0, 10, 30], [5, 20]), arrays([0, 1, 2], [4, 6]))
    assert (band.low.tolist(), band.high.tolist()) == ([0, 0, 1, 1, 2], [4, 4, 4, 6, 6])
    band = average(arrays(*[[0, 1]] * 4), arrays(*[[1, 2]] * 4))
    assert band.low.tolist() == band.high.tolist() == [1, 2]


def test_long_runs_are_thinned_and_keep_their_ends() -> None:
    xs = np.arange(5_000.0)
    band = average([xs, xs], [xs, xs])
    assert len(band.x) == 200
    assert (band.x[0], band.x[-1]) == (0, 4_999)
    assert (band.centre == band.x).all()
