from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from policygen.episodes.score import (
    Score,
    difference,
    episode_seeds,
    half_interval,
    p_of_higher_mean,
    score_of_returns,
    standard_error,
)


def exact(mean):
    return Score(mean, 0.1, (mean, mean), True, "exact")


def sampled(*returns):
    return score_of_returns(np.array(returns), tuple(range(len(returns))), "vector")


@pytest.mark.parametrize("n", [2, 500])
def test_the_interval_is_students(n):
    returns = np.random.default_rng(n).normal(100, 30, size=n)
    score = sampled(*returns)
    expected = stats.t.interval(0.95, n - 1, loc=returns.mean(), scale=stats.sem(returns))
    assert score.ci95 == pytest.approx(expected, rel=1e-9)
    assert score.std == pytest.approx(returns.std(ddof=1))
    assert (score.mean, score.episodes, score.returns) == (returns.mean(), n, tuple(returns))


def test_a_single_episode_has_no_interval_and_equal_returns_a_point():
    single = sampled(3.0)
    assert (single.ci95, single.std, str(single)) == (None, 0.0, "3 over 1 episode")
    assert sampled(*[500.0] * 5).ci95 == (500.0, 500.0)


@pytest.mark.parametrize("shift", [-3.0, 0.5, 200.0])
def test_the_paired_comparison_is_students_paired_test(shift):
    rng = np.random.default_rng(8)
    old = rng.normal(50, 20, size=30)
    new = old + rng.normal(shift, 5, size=30)
    found = difference(sampled(*new), sampled(*old))
    assert found.gain == pytest.approx((new - old).mean())
    assert found.p == pytest.approx(stats.ttest_rel(new, old, alternative="greater").pvalue, rel=1e-6)
    # An exact score is compared with the other's episodes.
    for one, other in (
        (difference(exact(50), sampled(*old)), "less"),
        (difference(sampled(*old), exact(50)), "greater"),
    ):
        assert one.p == pytest.approx(stats.ttest_1samp(old, 50, alternative=other).pvalue, rel=1e-6)


def test_a_paired_comparison_needs_the_same_seeds():
    scores = [score_of_returns(np.array([1.0, 2.0]), seeds, "vector") for seeds in ((1, 2), (1, 3))]
    with pytest.raises(ValueError, match="same seeds"):
        difference(*scores)


def test_a_longer_list_of_seeds_starts_with_the_shorter_and_no_two_lists_share_a_seed():
    long = episode_seeds(3, "search", 200)
    for count in (0, 1, 50):
        assert episode_seeds(3, "search", count) == long[:count]
        assert episode_seeds(3, "search", count, first=20) == long[20 : 20 + count]
    assert all(0 <= seed < 2**32 for seed in long)
    purposes = ("search", "final", "warm-up", "s")
    streams = [episode_seeds(run, purpose, 500) for run in (0, 1, 2, 100) for purpose in purposes]
    assert len(set().union(*streams)) == 16 * 500


def test_errors_and_intervals_are_students() -> None:
    rng = np.random.default_rng(7)
    ones, others = rng.normal(1, 2, 12), rng.normal(0, 1, 7)
    welch = stats.ttest_ind(ones, others, equal_var=False, alternative="greater")
    assert p_of_higher_mean(ones, others) == pytest.approx(welch.pvalue)
    assert (ones.mean() - others.mean()) / standard_error(ones, others) == pytest.approx(welch.statistic)
    assert p_of_higher_mean([2.0, 2.0], [1.0, 1.0]) == 0.0
    low, high = stats.t.interval(0.9, 11, ones.mean(), ones.std(ddof=1) / math.sqrt(12))
    assert half_interval(ones, 0.95) == pytest.approx((high - low) / 2)
    assert standard_error(np.stack([ones, 2 * ones], axis=1)) == pytest.approx([stats.sem(ones), stats.sem(2 * ones)])
