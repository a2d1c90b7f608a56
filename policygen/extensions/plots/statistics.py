"""Averages over runs with bootstrap intervals: of final scores and of curves; resampling is seeded.

Curves have interquartile means (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice"), scores plain ones.
"""

# Imports inside functions: scipy.stats takes a second to load, and a single curve does not need it.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policygen.extensions.plots.style import Numbers

RESAMPLES = 5_000
CURVE_RESAMPLES = 2_000
MOST_POINTS = 200  # of a mean curve; a bootstrap at every step of every run would take minutes
FEWEST_FOR_IQM = 4  # runs; with fewer, the interquartile mean would leave out no whole run

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Band:
    """A curve over `x` and its 95% interval over runs; arrays of shape (points,)."""

    x: Numbers
    centre: Numbers
    low: Numbers
    high: Numbers


def with_interval(mean: float, interval: Interval | None) -> str:
    """Return a mean and its interval, if any, in words: `0.6 [0.4, 0.8]`."""
    return f"{mean:.4g}" + (f" [{interval[0]:.4g}, {interval[1]:.4g}]" if interval else "")


def interval_over_seeds(values: Numbers) -> Interval | None:
    """Return the 95% percentile bootstrap interval (`scipy.stats.bootstrap`) of the mean over the runs of one task.

    Returns None for a single run. For few runs the interval is too narrow.
    """
    if len(values) < 2:
        return None
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    low, high = _bootstrap(values, np.mean, RESAMPLES)
    return float(low), float(high)


def _bootstrap(table: Numbers, mean: Callable[..., Numbers], resamples: int, batch: int | None = None) -> Any:
    from scipy.stats import bootstrap

    return bootstrap(
        (table,),
        mean,
        axis=0,
        vectorized=True,
        n_resamples=resamples,
        batch=batch,
        method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval


# --- averages of curves ----------------------------------------------------------------------------------------------


def centre_name(runs: int) -> str:
    """Return the name of the mean that `average` computes for a number of runs."""
    return "interquartile mean" if runs >= FEWEST_FOR_IQM else "mean"


def average(xs: Sequence[Numbers], levels: Sequence[Numbers], mean: Callable[..., Numbers] | None = None) -> Band:
    """Average step functions over runs, with a 95% percentile bootstrap interval.

    From four runs on, the average is the interquartile mean: it leaves out the lowest and the highest quarter of the
    runs, also fractions of a run (Agarwal et al. 2021). A run that ends early keeps its last level. For two runs the
    band is their range; for few runs it is too narrow.

    Args:
        xs: per run the increasing positions of its steps; shapes (attempts of the run,).
        levels: per run the level from each step on; same shapes.
        mean: the average to use instead, for any number of runs; called like `numpy.mean`.
    """
    points = np.unique(np.concatenate(xs))
    if len(points) > MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)]
    rows = [
        level[np.maximum(np.searchsorted(at, points, side="right") - 1, 0)]
        for at, level in zip(xs, levels, strict=True)
    ]
    table = np.array(rows, dtype=np.float64)
    known = ~np.isnan(table).any(axis=0)  # without warm-up a run has no level before its first policy
    points, table = points[known], table[:, known]
    taken = mean or _centre
    centre = taken(table, axis=0)
    if len(table) < 2 or not len(points):
        return Band(points, centre, centre, centre)
    low, high = _bootstrap(table, taken, CURVE_RESAMPLES, batch=100)
    return Band(points, centre, low, high)


def _centre(table: Numbers, axis: int = 0) -> Numbers:
    runs = table.shape[axis]
    if runs < FEWEST_FOR_IQM:
        return np.asarray(np.mean(table, axis=axis))
    # The weight of each run, in order of level: the part of it that is between the quartiles.
    share = np.diff(np.clip(np.arange(runs + 1), runs / 4, runs * 3 / 4)) / (runs / 2)
    return np.asarray(np.moveaxis(np.sort(table, axis=axis), axis, -1) @ share)
