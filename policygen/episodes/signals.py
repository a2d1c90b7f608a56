"""Properties of signals: their ranges, rhythms, and the first step outside the usual range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]

LONGEST_LOOK = 800  # number of last steps of an episode that are searched for a rhythm
LEAST_CORRELATION = 0.5  # minimum autocorrelation at a lag of one period
NEARLY = 0.8  # the first peak of the autocorrelation with at least this share of the highest one gives the period
LEAST_PERIODS = 2.5  # number of periods that the searched steps must contain
LAST_MOMENTS = 60  # steps before a failure that do not count towards usual ranges; at most a third of the episode
LEAST_USUAL = 50  # minimum number of steps for a usual range
USUAL_QUANTILES = (0.005, 0.995)
MARGIN = 0.25  # added to a usual range on either side, as a share of its width


@dataclass(frozen=True, slots=True)
class Signal:
    """One quantity in one episode; its values lie between `low` and `high`."""

    name: str
    low: float
    high: float
    saturated: float | None = None  # share of the steps at a limit of the actuator; None without limits
    period: int | None = None  # in steps; None without a rhythm


@dataclass(frozen=True, slots=True)
class Anomaly:
    """The first quantity that leaves its usual range, `low` to `high`, for good; and the step at which it does."""

    name: str
    step: int
    low: float
    high: float


def ranges(columns: Mapping[str, Column]) -> tuple[Signal, ...]:
    """Return the range of each column of shape (T,)."""
    return tuple(Signal(name, float(values.min()), float(values.max())) for name, values in columns.items())


def rhythms(columns: Mapping[str, Column], limits: Mapping[str, tuple[float, float]]) -> tuple[tuple[Signal, ...], str]:
    """Return range, saturation and rhythm of each column of shape (T,), and the name of the most rhythmic one.

    The period is the lag of the first high peak of the autocorrelation, without the first fifth of the episode, its
    start. Range and saturation are those of the whole episode.
    """
    periods = {name: _period(values) for name, values in columns.items()}
    reference = max(periods, key=lambda name: periods[name][1], default="")
    found = []
    for signal in ranges(columns):
        saturated = None
        if signal.name in limits:
            low, high = limits[signal.name]
            values = columns[signal.name]
            saturated = float(np.mean((values <= low) | (values >= high)))
        found.append(replace(signal, saturated=saturated, period=periods[signal.name][0]))
    return tuple(found), reference if reference and periods[reference][0] is not None else ""


def _detrended(values: Column) -> Column:
    """Return the part of a signal that is searched for a rhythm, with its linear trend removed."""
    part = values[len(values) // 5 :][-LONGEST_LOOK:]
    steps = np.arange(len(part))
    if len(part) < 4:
        return np.asarray(part - part.mean(), np.float64)
    slope, offset = np.polyfit(steps, part, 1)
    return np.asarray(part - slope * steps - offset, np.float64)


def _period(values: Column) -> tuple[int | None, float]:
    """Return the period in steps and the autocorrelation at it; (None, 0) without a rhythm."""
    part = _detrended(values)
    n = len(part)
    power = float(part @ part)
    if n < 8 or power < 1e-12 * n:
        return None, 0.0
    spectrum = np.fft.rfft(part, 2 * n)
    correlation = np.fft.irfft(np.abs(spectrum) ** 2)[: int(n / LEAST_PERIODS) + 2]
    # At a longer lag, fewer products are summed.
    correlation = correlation / power * n / (n - np.arange(len(correlation)))
    below = np.flatnonzero(correlation < 0)
    if not len(below):
        return None, 0.0
    later = correlation[below[0] :]
    peaks = np.flatnonzero((later[1:-1] >= later[:-2]) & (later[1:-1] > later[2:])) + 1
    if not len(peaks) or later[peaks].max() < LEAST_CORRELATION:
        return None, 0.0
    # Later peaks are multiples of the first one that is nearly the highest.
    peak = int(peaks[later[peaks] >= NEARLY * later[peaks].max()][0])
    return int(below[0]) + peak, float(later[peak])


def first_anomaly(columns: Mapping[str, Column], usual: Mapping[str, tuple[float, float]]) -> Anomaly | None:
    """Return the first quantity that leaves its usual range and stays outside until the end of the episode."""
    found: Anomaly | None = None
    for name, (low, high) in usual.items():
        inside = np.flatnonzero((columns[name] >= low) & (columns[name] <= high))
        step = int(inside[-1]) + 1 if len(inside) else 0
        if step < len(columns[name]) and (found is None or step < found.step):
            found = Anomaly(name, step, low, high)
    return found


def usual_ranges(episodes: Sequence[tuple[Mapping[str, Column], bool]]) -> dict[str, tuple[float, float]]:
    """Return the usual range of each quantity, by name, without the last steps before a failure.

    Args:
        episodes: the columns of each episode, and whether it failed. If too few steps are left, the result is empty.
    """
    kept = [
        {
            name: values[: len(values) - min(LAST_MOMENTS, len(values) // 3)] if failed else values
            for name, values in columns.items()
        }
        for columns, failed in episodes
    ]
    usual = {}
    for name in kept[0] if kept else ():
        values = np.concatenate([columns[name] for columns in kept])
        if len(values) < LEAST_USUAL:
            return {}
        if not np.isfinite(values).all():
            continue  # quantiles of NaN or infinity say nothing
        low, high = np.quantile(values, USUAL_QUANTILES)
        margin = MARGIN * (high - low)
        usual[name] = (float(low - margin), float(high + margin))
    return usual


def largest_rise(values: Sequence[float], width: int) -> int:
    """Return the step of the most significant rise: of the mean of the next `width` values over that of the last ones.

    Each difference of the two means is divided by the standard deviation that it would have without a trend.
    """
    if len(values) < 2:
        return 0
    summed = np.concatenate([[0.0], np.cumsum(values)])
    steps = np.arange(1, len(values))
    start, end = np.maximum(steps - width, 0), np.minimum(steps + width, len(values))
    before, after = steps - start, end - steps
    rise = (summed[end] - summed[steps]) / after - (summed[steps] - summed[start]) / before
    return int(steps[np.argmax(rise * np.sqrt(before * after / (before + after)))])
