"""Aggregates of returns: their values, their intervals, and what cannot be read."""

from __future__ import annotations

import numpy as np
import pytest

from policygen.episodes.aggregate import Aggregate, read_aggregate, unseen_share
from policygen.episodes.score import Score, difference, first_episodes, score_of_returns, with_aggregate
from policygen.errors import UsageError

RETURNS = np.array([5.0, 1.0, 9.0, 3.0, 7.0, 11.0, 13.0, 15.0, 17.0, 19.0])


def scored(returns: object, setting: str) -> Score:
    values = np.asarray(returns, np.float64)
    return score_of_returns(values, tuple(range(len(values))), "vector", read_aggregate(setting))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("mean", 10.0),
        ("median", 10.0),
        ("quantile:0.1", np.quantile(RETURNS, 0.1)),
        ("cvar:0.2", 2.0),  # of 1 and 3
        ("cvar:0.01", 1.0),  # of one at least
        ("worst", 1.0),
    ],
)
def test_an_aggregate_is_a_statistic_of_the_returns(setting: str, value: float) -> None:
    aggregate = read_aggregate(setting)
    assert aggregate.of(RETURNS) == pytest.approx(value)
    assert aggregate.of(np.stack([RETURNS, RETURNS + 1])).tolist() == pytest.approx([value, value + 1])
    assert str(aggregate) == setting
    assert scored(RETURNS, setting).value == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "cvar", "cvar:0", "cvar:1", "cvar:nan", "worst:0.1", "mean:1", "best", "quantile:a"]
)
def test_another_setting_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--score .*: choose mean, median, worst"):
        read_aggregate(text)


@pytest.mark.parametrize(("setting", "least"), [("median", 0.88), ("quantile:0.1", 0.88), ("cvar:0.1", 0.85)])
def test_intervals_cover_the_true_value(setting: str, least: float) -> None:
    rng, aggregate = np.random.default_rng(5), read_aggregate(setting)
    truth = float(aggregate.of(rng.normal(size=500_000)))
    intervals = [aggregate.interval(rng.normal(size=100)) for _ in range(100)]
    covered = np.mean([low <= truth <= high for low, high in intervals])  # type: ignore[misc]
    assert least <= covered
    assert np.mean([high - low for low, high in intervals]) < 1.5  # type: ignore[misc]


def test_the_worst_has_no_interval_and_says_what_its_episodes_show() -> None:
    score = scored(np.arange(100), "worst")
    assert score.ci95 is None
    assert str(score) == "worst return 0 over 100 episodes (95% sure: at most 3% of episodes return less)"
    lowest = np.random.default_rng(1).random((2_000, 100)).min(axis=1)  # the share of episodes below is this number
    assert np.mean(lowest <= unseen_share(100)) == pytest.approx(0.95, abs=0.02)


def test_a_label_names_the_aggregate() -> None:
    assert str(scored(RETURNS, "cvar:0.2")).startswith("20% CVaR 2 [")
    assert str(with_aggregate(scored(RETURNS, "mean"), Aggregate("median"))).startswith("median 10 [")
    assert str(scored(RETURNS, "mean")).startswith("10 [")
    assert first_episodes(scored(RETURNS, "worst"), 1).value == 5.0


def test_policies_are_compared_on_what_the_run_maximises() -> None:
    rng = np.random.default_rng(0)
    steady, risky = np.full(60, 10.0), np.where(rng.random(60) < 0.15, 0.0, 14.0)
    steady = steady + 0.01 * rng.normal(size=60)
    found = difference(scored(steady, "mean"), scored(risky, "mean"))
    assert found.gain < 0
    assert found.p > 0.5
    found = difference(scored(steady, "cvar:0.1"), scored(risky, "cvar:0.1"))
    assert found.gain > 9
    assert found.half > 0
    assert found.p < 0.01
    with pytest.raises(ValueError, match="same aggregate"):
        difference(scored(steady, "worst"), scored(risky, "cvar:0.1"))


@pytest.mark.parametrize("setting", ["median", "quantile:0.2", "cvar:0.2"])
def test_policies_that_are_equally_good_are_seldom_told_apart(setting: str) -> None:
    rng, found = np.random.default_rng(3), 0
    for _ in range(30):
        starts = rng.normal(size=40)
        one, other = (scored(starts + rng.normal(size=40), setting) for _ in range(2))
        compared = difference(one, other)
        found += compared.gain > 0 and compared.p <= 0.1
    assert found <= 6
