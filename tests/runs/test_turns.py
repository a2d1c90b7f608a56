"""Turns of several models: each once, then by gain per cost, computed from the attempts alone."""

from __future__ import annotations

from dataclasses import replace

from policygen.runs.attempt import Attempt, Comparison, Requests
from policygen.runs.config import RunConfig
from policygen.runs.turns import Share, choose_model, shares

MODELS = ("x:a", "x:b", "x:c")


def config(**settings: object) -> RunConfig:
    return RunConfig(task="frozenlake", **settings)


RANDOM = Attempt(0, None, None, verdict="random actions")


def played(count: int, gains: dict[str, float], prices: dict[str, float | None], **settings: object) -> list[Attempt]:
    """Return `count` attempts; each is made by the model whose turn it is, and has the gain of that model."""
    attempts, models = [RANDOM], tuple(gains)
    for number in range(1, count + 1):
        model = choose_model(number, attempts, models, config(**settings))
        gain = gains[model] if number > 1 else None
        attempts.append(
            Attempt(
                *(number, None, None),
                accepted=gain is None or gain > 0,
                comparison=Comparison(gain),
                requests=Requests(model, price=prices.get(model, 0.01), usd=prices.get(model, 0.01)),
            )
        )
    return attempts


def count_of(attempts: list[Attempt]) -> dict[str, int]:
    return {model: sum(a.requests.model == model for a in attempts) for model in MODELS}


def test_one_after_the_other() -> None:
    attempts = played(7, dict.fromkeys(MODELS, 1.0), {}, choose="round")
    assert [a.requests.model for a in attempts[1:]] == [*MODELS, *MODELS, "x:a"]


def test_everybody_once_and_whoever_made_the_first_policy_again_as_that_improved_on_nothing() -> None:
    attempts = played(4, {"x:a": 0.0, "x:b": 0.0, "x:c": 0.0}, {})
    assert [a.requests.model for a in attempts[1:]] == ["x:a", "x:b", "x:c", "x:a"]


def test_what_gains_most_is_asked_most_and_nobody_is_forgotten() -> None:
    found = count_of(played(60, {"x:a": 0.1, "x:b": 1.0, "x:c": 0.0}, {}))
    assert found["x:b"] > 30
    assert found["x:b"] > found["x:a"] >= found["x:c"] > 3


def test_the_same_gain_for_less_money_is_asked_more() -> None:
    gains = dict.fromkeys(MODELS, 1.0)
    found = count_of(played(60, gains, {"x:a": 1.0, "x:b": 0.01, "x:c": 1.0}))
    assert found["x:b"] > 30
    unpriced = count_of(played(60, gains, {"x:a": 1.0, "x:b": 0.01, "x:c": None}))  # then replies are what counts
    free = count_of(played(60, gains, {"x:a": 0.0, "x:b": 0.01, "x:c": 1.0}))
    assert unpriced == free == {"x:a": 21, "x:b": 20, "x:c": 19}  # the first policy counts for nobody


def test_without_any_gain_all_are_asked_alike() -> None:
    assert count_of(played(30, dict.fromkeys(MODELS, 0.0), {})) == {"x:a": 11, "x:b": 10, "x:c": 9}


def test_tuning_and_strangers_count_for_nobody() -> None:
    attempts = played(9, {"x:a": 0.1, "x:b": 1.0, "x:c": 0.0}, {})
    expected = choose_model(10, attempts, MODELS, config())
    better = replace(attempts[2], comparison=Comparison(1e9))
    others = [replace(better, requests=Requests("x:gone")), replace(better, kind="tuning")]
    assert choose_model(10, [*attempts, *others], MODELS, config()) == expected


def test_shares_say_what_each_contributed() -> None:
    attempts = [
        RANDOM,
        Attempt(1, None, None, accepted=True, requests=Requests("x:a", usd=0.5)),
        Attempt(2, None, None, accepted=True, comparison=Comparison(2.0), requests=Requests("x:b", usd=None)),
        Attempt(3, None, None, accepted=False, comparison=Comparison(-1.0), requests=Requests("x:a", usd=0.25)),
        Attempt(4, None, None, accepted=True, comparison=Comparison(1.0), kind="tuning"),
    ]
    assert shares(attempts, ("x:a", "x:b")) == (Share("x:a", 2, 1, 0.0, 0.75), Share("x:b", 1, 1, 2.0, None))
