"""Aggregates of episode returns that a run can maximise, such as the mean or CVaR, and their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import UsageError

RESAMPLES = 2_000
_AT_A_TIME = 20  # samples drawn together; all at once would need much memory
_WITH_SHARE = ("quantile", "cvar")
# For each name, the label beside a number, and the definition.
_WORDS = {
    "mean": ("mean", "mean sum of rewards"),
    "median": ("median", "median over episodes of the sum of rewards"),
    "quantile": ("{:g}% quantile", "{:g}% quantile over episodes of the sum of rewards"),
    "cvar": ("{:g}% CVaR", "mean sum of rewards of the worst {:g}% of episodes (CVaR)"),
    "worst": ("worst return", "lowest sum of rewards of all episodes"),
}
Returns = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A statistic of episode returns; `share` is the Q of `quantile:Q` and `cvar:Q`, between 0 and 1; else 0."""

    name: str = "mean"
    share: float = 0.0

    def __str__(self) -> str:
        """The setting, as in `cvar:0.1`."""
        return f"{self.name}:{self.share:g}" if self.name in _WITH_SHARE else self.name

    @property
    def label(self) -> str:
        """The name beside a number, as in `10% CVaR`."""
        return _WORDS[self.name][0].format(100 * self.share)

    @property
    def prefix(self) -> str:
        """The label and a space, to precede a number; empty for the mean."""
        return "" if self.name == "mean" else f"{self.label} "

    @property
    def of_returns(self) -> str:
        """The name of the statistic of the returns: `mean return`, `10% CVaR of the return`."""
        return {"mean": "mean return", "worst": self.label}.get(self.name, f"{self.label} of the return")

    @property
    def words(self) -> str:
        """The definition, as it follows the word `the` in a sentence."""
        return _WORDS[self.name][1].format(100 * self.share)

    @property
    def bounded_by_mean(self) -> bool:
        """Whether the statistic never exceeds the mean: its value is then at most the best possible mean."""
        return self.name in ("mean", "cvar", "worst")

    def of(self, returns: Sequence[float] | Returns) -> Any:
        """Return the statistic along the last axis; a number, or an array of shape (...) for shape (..., episodes).

        `quantile` is numpy's default, which interpolates. `cvar` is the mean of the `share` worst episodes: their
        number is rounded, and at least one.
        """
        values = np.asarray(returns, np.float64)
        if self.name == "mean":
            return values.mean(axis=-1)
        if self.name == "worst":
            return values.min(axis=-1)
        if self.name == "cvar":
            count = self._worst_count(values.shape[-1])
            return np.partition(values, count - 1, axis=-1)[..., :count].mean(axis=-1)
        return np.quantile(values, self.share if self.name == "quantile" else 0.5, axis=-1)

    def _worst_count(self, episodes: int) -> int:
        return max(1, round(self.share * episodes))

    def resampled(self, returns: Sequence[float] | Returns, stream: int = 0) -> Returns:
        """Return the statistic of `RESAMPLES` bootstrap samples of the episodes, shape (RESAMPLES,).

        Equal numbers of episodes and equal `stream`s draw the same positions, so the differences of two results on the
        same seeds are those of a paired bootstrap. Different `stream`s draw independent samples.
        """
        values, rng = np.asarray(returns, np.float64), np.random.default_rng(stream)
        size = _AT_A_TIME, len(values)
        drawn = (values[rng.integers(len(values), size=size)] for _ in range(RESAMPLES // _AT_A_TIME))
        return np.concatenate([self.of(some) for some in drawn])

    def interval(self, returns: Sequence[float] | Returns, level: float = 0.95) -> tuple[float, float] | None:
        """Return a two-sided interval of a statistic other than the mean; None for a single episode.

        For `median` and `quantile` it is the percentile bootstrap of `RESAMPLES` samples. In trials with 20 or 100
        normal, skewed or mostly equal returns, it covered the true value in 89% to 100%.

        For `cvar` it is a Student's t interval: the standard error is that of the influence function of CVaR, and the
        degrees of freedom are the number of worst episodes minus one. It covered the true `cvar:0.1` of skewed returns
        in 87% of trials with 100 episodes, and in 83% with 20; a bootstrap covered it in 77% and 50%.

        None for `worst`: no sample bounds how low a return can be; see `unseen_share`.
        """
        values = np.asarray(returns, np.float64)
        if self.name == "worst" or len(values) < 2:
            return None
        if self.name != "cvar":
            low, high = np.quantile(self.resampled(values), [(1 - level) / 2, (1 + level) / 2])
            return float(low), float(high)
        from scipy.special import stdtrit  # start-up time

        count = self._worst_count(len(values))
        edge = np.partition(values, count - 1)[count - 1]
        error = float(np.std(np.minimum(values - edge, 0) / self.share, ddof=1)) / math.sqrt(len(values))
        half = float(stdtrit(max(1, count - 1), (1 + level) / 2)) * error
        return float(self.of(values)) - half, float(self.of(values)) + half


MEAN = Aggregate()


def unseen_share(episodes: int) -> float:
    """Return a 95% upper bound on the share of episodes with a lower return than the worst of `episodes` played."""
    return 1 - float(0.05 ** (1 / episodes))


def read_aggregate(value: Any) -> Aggregate:
    """Read the setting `score`: `mean`, `median`, `quantile:Q`, `cvar:Q` or `worst`, with Q between 0 and 1.

    Raises:
        UsageError: `value` is none of these.
    """
    if isinstance(value, Aggregate):
        return value
    name, colon, text = str(value).partition(":")
    share = 0.0
    with suppress(ValueError):
        share = float(text)
    if name in _WITH_SHARE and 0 < share < 1:
        return Aggregate(name, share)
    if name in _WORDS and name not in _WITH_SHARE and not colon:
        return Aggregate(name)
    raise UsageError(
        f"--score {str(value)[:40]}: choose mean, median, worst, or quantile:Q or cvar:Q with Q between 0 and 1, as in "
        "cvar:0.1"
    )
