"""Intervals and tests of differences between contenders; resampling is seeded, so results are reproducible."""

# Imports inside functions: scipy.stats takes a second to load.

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np

from policygen.extensions.plots.statistics import RESAMPLES, Band, Interval
from policygen.extensions.plots.style import Numbers

FLIPS = 20_000  # permutations of a test; if there are fewer, as for 14 pairs, all are tried
POWER = 0.8
MOST_SEEDS = 10_000  # upper limit of `seeds_needed`


def stratified_interval(
    strata: Sequence[Numbers], statistic: Callable[[Sequence[Numbers]], Numbers]
) -> Interval | None:
    """Return the 95% percentile interval of a statistic over several tasks, or None if no task has two runs.

    Args:
        strata: per task the values of its runs, shapes (runs of the task,); they are resampled within each task.
        statistic: maps one array of shape (resamples, runs of the task) per task to shape (resamples,).
    """
    if all(len(values) < 2 for values in strata):
        return None
    low, high = np.percentile(statistic(_resampled(strata, RESAMPLES)), [2.5, 97.5])
    return float(low), float(high)


def _resampled(strata: Sequence[Numbers], count: int) -> list[Numbers]:
    rng = np.random.default_rng(0)
    return [values[rng.integers(len(values), size=(count, len(values)))] for values in strata]


def mean_of_means(strata: Sequence[Numbers]) -> Numbers:
    """Return the mean over tasks of the mean over runs; every task counts the same."""
    return np.asarray(np.mean([np.mean(values, axis=-1) for values in strata], axis=0))


def probability_of_improvement(ours: Sequence[Numbers], theirs: Sequence[Numbers]) -> float:
    """Return the probability that a run of ours beats one of theirs on a random task; ties count half.

    This is the mean over tasks of the share of winning pairs (the Mann-Whitney statistic).
    """
    shares = [
        np.mean((np.sign(np.subtract.outer(one, other)) + 1) / 2) for one, other in zip(ours, theirs, strict=True)
    ]
    return float(np.mean(shares))


def sign_flip_p(differences: Sequence[Numbers]) -> float:
    """Return the two-sided p-value of a permutation test that flips the signs of paired differences.

    The statistic is the mean over tasks of the mean over pairs. Up to 14 pairs all signs are tried, for more pairs
    20,000 random ones (`scipy.stats.permutation_test`).
    """
    from scipy.stats import permutation_test

    values = np.concatenate([np.asarray(d, dtype=np.float64) / len(d) for d in differences])
    if len(values) < 2:
        return 1.0
    rng = np.random.default_rng(0)
    test = permutation_test((values,), np.sum, permutation_type="samples", n_resamples=FLIPS, random_state=rng)
    return float(test.pvalue)


def shuffle_p(ours: Sequence[Numbers], theirs: Sequence[Numbers]) -> float:
    """Return the two-sided p-value of a permutation test of unpaired runs, shuffled within each task.

    The statistic is the mean over tasks of the difference of means; 20,000 random shuffles.
    """
    rng = np.random.default_rng(0)
    observed, shuffled = 0.0, np.zeros(FLIPS)
    for one, other in zip(ours, theirs, strict=True):
        both = np.concatenate([one, other])
        orders = rng.permuted(np.tile(both, (FLIPS, 1)), axis=1)
        observed += one.mean() - other.mean()
        shuffled += orders[:, : len(one)].mean(axis=1) - orders[:, len(one) :].mean(axis=1)
    extreme = np.count_nonzero(np.abs(shuffled) >= abs(observed) * (1 - 1e-12))
    return float((extreme + 1) / (FLIPS + 1))


def p_against_mean(scores: Numbers, mean: float, std: float | None, runs: int | None) -> float:
    """Return the two-sided p-value of the difference between runs and a published mean; 1.0 for a single run.

    If standard deviation and number of runs are published, this is Welch's t-test, else Student's test against an exact
    mean. Student's test is impossible if all runs have the same score: then a sign test gives 2/2^n, or 1 if that score
    is the mean.
    """
    from scipy.stats import ttest_1samp, ttest_ind_from_stats

    n = len(scores)
    if n < 2:
        return 1.0
    alike = float(np.ptp(scores)) <= 1e-9 * max(1.0, abs(mean))
    if std and runs and runs > 1:
        spread = 0.0 if alike else float(np.std(scores, ddof=1))
        return float(ttest_ind_from_stats(float(scores.mean()), spread, n, mean, std, runs, equal_var=False).pvalue)
    if alike:
        return 1.0 if math.isclose(scores[0], mean, rel_tol=1e-9, abs_tol=1e-9) else 2.0 / 2**n
    return float(ttest_1samp(scores, mean).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for multiple tests (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    tests_left = np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, tests_left * np.asarray(p_values)[order]))
    return corrected.tolist()


def fewest_pairs(level: float) -> int:
    """Return the fewest pairs with which a sign-flip test can reach a level; n pairs reach 2/2^n."""
    return max(1, math.ceil(round(math.log2(2 / level), 9)))


def more_runs_needed(level: float, ours: int, theirs: int, tasks: int = 1) -> int:
    """Return how many more runs of each contender and task the test of `shuffle_p` needs to be able to reach a level.

    For one task with n and m runs its smallest p-value is 1/C(n + m, n), for several tasks the product of these. It is
    doubled for n = m, because the two sides are then interchangeable.
    """
    more = 0
    while (1 + (ours == theirs)) / math.comb(ours + theirs + 2 * more, ours + more) ** tasks > level:
        more += 1
    return more


def seeds_needed(mean: float, std: float, level: float = 0.05) -> int | None:
    """Estimate the number of seeds from which a paired two-sided t-test finds a difference with a power of 80%.

    Args:
        mean, std: observed mean and standard deviation of the differences over seeds.
        level: the significance level of the test.

    Returns:
        None if more than 10,000 seeds would be needed, or there is no difference.
    """
    if mean == 0 or not math.isfinite(mean) or not math.isfinite(std):
        return None
    if std == 0:
        return 2
    effect = abs(mean) / std
    # The power grows with the number of seeds, so bisection finds the first that suffices.
    found = bisect_left(range(MOST_SEEDS + 1), POWER, lo=2, key=lambda seeds: _power(effect, seeds, level))
    return found if found <= MOST_SEEDS else None


def _power(effect: float, seeds: int, level: float) -> float:
    from scipy.stats import nct, t

    critical, shift = t.ppf(1 - level / 2, seeds - 1), effect * math.sqrt(seeds)
    power = float(nct.sf(critical, seeds - 1, shift))
    return power if math.isfinite(power) else 1.0  # the series fails far in the tail


def performance_profile(strata: Sequence[Numbers], thresholds: Numbers) -> Band:
    """Return the share of runs above each threshold, each task counting the same, with a pointwise 95% interval.

    The interval is a stratified bootstrap.
    """

    def shares(samples: Sequence[Numbers]) -> Numbers:
        per_task = [np.mean(values[..., None] > thresholds, axis=-2) for values in samples]
        return np.asarray(np.mean(per_task, axis=0))

    low, high = np.percentile(shares(_resampled(strata, 1_000)), [2.5, 97.5], axis=0)
    return Band(thresholds, shares(strata), low, high)
