"""Measurements of the speed benchmark: two sides in turn, and the verdict on their ratio."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

SECONDS = 0.05  # of a side in a sample

Sample = Callable[[], tuple[float, float]]
"""Measures both sides once: what ours takes and what the other takes, usually in seconds."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A row of the table: what is compared, and the limit of the ratio.

    Attributes:
        limit: ours takes at most this share of the other's amount; or, if `faster`, is at least so many times faster.
        sides: prepares both sides; raises `Missing` if a package or program is not installed.
        repeats: number of samples of a full run; a quick run takes half as many, at least 3.
    """

    what: str
    against: str
    limit: float
    sides: Callable[[], AbstractContextManager[Sample]]
    faster: bool = False
    repeats: int = 9

    @property
    def limit_text(self) -> str:
        """The limit in words."""
        return f"at least {self.limit:g} times faster" if self.faster else f"at most {self.limit:g}"


class Missing(Exception):
    """A requirement of a measurement that this machine lacks."""


@dataclass(frozen=True, slots=True)
class Result:
    """The median amounts of both sides, and the median, least and greatest ratio of a sample."""

    promise: Promise
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float

    @property
    def kept(self) -> bool:
        """Whether the ratio is within the limit."""
        return self.ratio >= self.promise.limit if self.promise.faster else self.ratio <= self.promise.limit


def measured(promise: Promise, *, quick: bool) -> Result:
    """Measure a promise; the medians are over alternating samples.

    Raises:
        Missing: something is not installed.
    """
    with promise.sides() as sample:
        repeats = max(3, promise.repeats // 2) if quick else promise.repeats
        ours, theirs = np.array([sample() for _ in range(repeats)]).T
    ratios = theirs / ours if promise.faster else ours / theirs
    mine, other, ratio = (float(np.median(values)) for values in (ours, theirs, ratios))
    return Result(promise, mine, other, ratio, float(ratios.min()), float(ratios.max()))


def alternating(
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    factor: float = 1.0,
    clock: Callable[[], float] = time.process_time,
) -> Sample:
    """Return the sample of two functions that do the same, each called for about `SECONDS`.

    Args:
        factor: how many times as much work ours does in a call.
        clock: processor time, which other programs disturb least; wall time for work in several processes.
    """
    ours(), theirs()
    calls = [max(1, round(SECONDS / max(_seconds(function, 1, clock), 1e-9))) for function in (ours, theirs)]
    return lambda: (_seconds(ours, calls[0], clock), _seconds(theirs, calls[1], clock) * factor)


def _seconds(function: Callable[[], Any], calls: int, clock: Callable[[], float]) -> float:
    started = clock()
    for _ in range(calls):
        function()
    return (clock() - started) / calls


# --- the table -------------------------------------------------------------------------------------------------------

HEADER = """\
| what | ours | compared with | theirs | ratio | its range | promised ratio | kept |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def line_of(result: Result) -> str:
    """Return the row of a result in the Markdown table."""
    promise = result.promise
    amounts = f"{_amount(result.ours)} | {promise.against} | {_amount(result.theirs)}"
    ratios = f"{result.ratio:.3g} | {result.low:.3g} to {result.high:.3g}"
    return f"| {promise.what} | {amounts} | {ratios} | {promise.limit_text} | {'yes' if result.kept else '**no**'} |"


def missing_line(promise: Promise, why: Missing) -> str:
    """Return the row of what could not be measured."""
    return f"| {promise.what} | not measured: {why} | {promise.against} | | | | {promise.limit_text} | |"


def _amount(seconds: float) -> str:
    for factor, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {name}"
    return f"{seconds * 1e9:.3g} ns"
