"""Averages over runs with bootstrap intervals: of final scores and of curves; resampling is seeded."""

# Imports inside functions: scipy.stats takes a second to load, and a single curve does not need it.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policygen.extensions.plots.style import Numbers

RESAMPLES = 5_000
CURVE_RESAMPLES = 2_000
MOST_POINTS = 200  # of a mean curve; a bootstrap at every step of every run would take minutes

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Band:
    """A curve over `x` and its 95% interval over runs; arrays of shape (points,)."""

    x: Numbers
    centre: Numbers
    low: Numbers
    high: Numbers


def interval_over_seeds(values: Numbers) -> Interval | None:
    """Return the 95% percentile bootstrap interval (`scipy.stats.bootstrap`) of the mean over the runs of one task.

    Returns None for a single run. For few runs the interval is too narrow.
    """
    if len(values) < 2:
        return None
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    low, high = _bootstrap(values, RESAMPLES)
    return float(low), float(high)


def _bootstrap(table: Numbers, resamples: int, batch: int | None = None) -> Any:
    from scipy.stats import bootstrap

    return bootstrap(
        (table,),
        np.mean,
        axis=0,
        vectorized=True,
        n_resamples=resamples,
        batch=batch,
        method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval


def average(xs: Sequence[Numbers], levels: Sequence[Numbers]) -> Band:
    """Return the mean of step functions over runs, with a 95% percentile bootstrap interval.

    A run that ends early keeps its last level. For two runs the band is their range; for few runs it is too narrow.

    Args:
        xs: per run the increasing positions of its steps; shapes (attempts of the run,).
        levels: per run the level from each step on; same shapes.
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
    centre = table.mean(axis=0)
    if len(table) < 2 or not len(points):
        return Band(points, centre, centre, centre)
    return Band(points, centre, *_bootstrap(table, CURVE_RESAMPLES, batch=100))
