"""Choose which of several models proposes next, from recorded attempts alone: a resumed run chooses the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from policygen.runs.attempt import START, Attempt, costs_of
from policygen.runs.config import RunConfig

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Share:
    """The contribution of one of several models."""

    model: str
    proposals: int  # number of attempts that it proposed
    accepted: int  # number of these attempts that became the best
    # sum of the improvements on the previous best. The first policy of a run has no previous best and does not count.
    gain: float
    usd: float | None  # their cost; None if a price is unknown


def shares(attempts: Sequence[Attempt], models: Sequence[str]) -> tuple[Share, ...]:
    """Return the contribution of each model."""
    found = []
    for model in models:
        own = [attempt for attempt in _asked(attempts) if attempt.requests.model == model]
        gain = math.fsum(map(_gain, own))
        found.append(Share(model, len(own), sum(a.accepted for a in own), gain, costs_of(own).usd))
    return tuple(found)


def choose_model(number: int, attempts: Sequence[Attempt], models: Sequence[str], config: RunConfig) -> str:
    """Return the model that proposes attempt `number`.

    Args:
        attempts: the earlier attempts; those of its own round are ignored.
    """
    if config.choose == "round" or len(models) == 1:
        return models[(number - 1) % len(models)]
    return _next_model(attempts, models, [])


def ucb_choice(values: Mapping[T, float], tried: Mapping[T, int]) -> T:
    """Return the choice with the highest upper confidence bound, or the first untried one.

    UCB1 (Auer, Cesa-Bianchi and Fischer, "Finite-time analysis of the multiarmed bandit problem", 2002); the values
    are divided by the largest.
    """
    if untried := [one for one in values if not tried[one]]:
        return untried[0]
    most, total = max(values.values()), sum(tried[one] for one in values)
    scale = 1 / most if most > 0 and math.isfinite(most) else 0.0
    return max(values, key=lambda one: scale * values[one] + math.sqrt(2 * math.log(total) / tried[one]))


def _next_model(attempts: Sequence[Attempt], models: Sequence[str], waiting: Sequence[str]) -> str:
    """Return the model that `ucb_choice` chooses, or first the untried ones in turn.

    A model's value is the gain of its proposals divided by their cost, relative to the best model's (as in
    ShinkaEvolve, arXiv 2509.19349). The cost is in dollars if all models have a price, else in replies. `waiting` are
    the models already chosen in this round, whose proposals are not scored yet: each counts as a choice without gain.
    """
    asked = _asked(attempts)
    # The first policy of a run has no gain, because there was no best before it.
    counted = [attempt for attempt in asked if not attempt.accepted or attempt.comparison.gain is not None]
    tried = Counter(waiting) + Counter(attempt.requests.model for attempt in counted)
    turns = Counter(waiting) + Counter(attempt.requests.model for attempt in asked)
    untried = [model for model in models if not tried[model]]
    if untried:
        return min(untried, key=lambda model: turns[model])
    return ucb_choice(_values(counted, models), tried)


def _values(attempts: Sequence[Attempt], models: Sequence[str]) -> dict[str, float]:
    """Return the gain of each model divided by its cost."""
    gains, dollars, replies = dict.fromkeys(models, 0.0), dict.fromkeys(models, 0.0), dict.fromkeys(models, 0)
    priced = True
    for attempt in attempts:
        asked = attempt.requests
        if asked.model in gains:
            gains[asked.model] += _gain(attempt)
            dollars[asked.model] += asked.price or 0.0
            replies[asked.model] += asked.repairs + 1
            priced = priced and asked.price is not None
    priced = priced and all(dollars[model] > 0 for model in models if replies[model])
    costs = dollars if priced else replies
    return {model: gains[model] / costs[model] if costs[model] else 0.0 for model in models}


def _asked(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts that a model proposed; not random actions, later tuning, or a policy given by --start."""
    asked = (attempt for attempt in attempts if attempt.number > 0 and attempt.is_asked)
    return [attempt for attempt in asked if attempt.requests.model != START]


def _gain(attempt: Attempt) -> float:
    return max(0.0, attempt.comparison.gain or 0.0) if attempt.accepted else 0.0
