"""When a tuned search begins anew, and with which policy it goes on otherwise.

A numerical search climbs the hill that it starts on. So two are begun, the better one goes on, and where it stalls
another is begun (restarts, as in Auger and Hansen 2005, "A restart CMA evolution strategy with increasing population
size", doi:10.1109/CEC.2005.1554902, here with the same population): the run keeps the best of all of them.

Far out in any direction the label wins whose score rises most. Which one that is, is settled early in a search, and no
small step exchanges two of them. So where a search has stalled the best policy is tried with two labels exchanged
before another search begins from nothing; where that makes a new best, the search goes on there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import combinations

import numpy as np

from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.runs.attempt import Attempt, text_digest

Search = list[Attempt]

FIRST = 2  # searches, before the better one goes on
STALLED = 0.03  # of what a search has gained over random actions; less than that in the last `OVER` proposals
OVER = 3
EXCHANGES = 3  # at most, one after the other, before another search begins from nothing


def goes_on_with(attempts: Sequence[Attempt]) -> Policy | None:
    """The best policy of the search that goes on; None where none does, and another begins.

    Args:
        attempts: of the run so far, random actions first. The first proposal is what a search from nothing begins with.
    """
    tuned = _tuned(attempts)
    searches = _searches(tuned)
    if len(searches) < FIRST:
        return None
    if len(searches) == len(tuned):  # none has gone on yet
        present = max(searches, key=_best)
    else:
        exchanges = _exchanges_of_bests(tuned)
        going_on = [search for search in searches if not _failed(search, exchanges)]
        present = max(going_on, key=lambda search: search[-1].number)
    random = attempts[0].score.mean if attempts[0].score is not None else 0.0
    if len(present) > OVER and _best(present) - _best(present[:-OVER]) <= STALLED * abs(_best(present) - random):
        return None
    return max(present, key=_mean).policy


def with_labels_exchanged(attempts: Sequence[Attempt], best: Policy | None, rng: np.random.Generator) -> Policy | None:
    """Return the best policy with two labels of a choice exchanged, to try before a new search begins from nothing.

    Returns:
        None while fewer than `FIRST` searches have begun, after `EXCHANGES` failures in a row, and once all exchanges
        have been tried. A choice between two labels has no exchange: it would only reverse the policy.
    """
    tuned = _tuned(attempts)
    searches = _searches(tuned)
    if len(searches) < FIRST or not isinstance(best, LinearPolicy):
        return None
    exchanges = _exchanges_of_bests(tuned)
    if all(_failed(search, exchanges) for search in searches[-EXCHANGES:]):
        return None
    known = {digest for one in tuned for digest in one.digests}
    others = [one for one in _exchanges(best) if text_digest(one) not in known]
    return others[rng.integers(len(others))] if others else None


def _tuned(attempts: Sequence[Attempt]) -> list[Attempt]:
    return [one for one in attempts if one.number > 0 and one.score is not None]


def _failed(search: Search, exchanges: Set[bytes]) -> bool:
    """Whether a search began with labels exchanged and made no new best."""
    return search[0].digests[0] in exchanges and not any(attempt.accepted for attempt in search)


def _exchanges_of_bests(attempts: Sequence[Attempt]) -> set[bytes]:
    """Return the text digests of all policies that are a best of the run with two labels exchanged."""
    bests = [one.policy for one in attempts if one.accepted and isinstance(one.policy, LinearPolicy)]
    return {text_digest(exchanged) for best in bests for exchanged in _exchanges(best)}


def _exchanges(policy: LinearPolicy) -> Iterator[LinearPolicy]:
    """The policy with the equations of two labels exchanged, for every two labels of a choice among three or more."""
    first = 0
    for actuator in policy.task.actuators:
        outputs = range(first, first + max(1, len(actuator.labels)))
        first += len(outputs)
        for one, other in combinations(outputs, 2) if len(outputs) > 2 else ():
            equations = list(policy.equations)
            (name, node), (other_name, other_node) = equations[one], equations[other]
            equations[one], equations[other] = (name, other_node), (other_name, node)
            if node != other_node:
                yield replace(policy, equations=tuple(equations))


def begins(attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Whether a search begins with a proposal: its proposer's first once more, or a best one with labels exchanged."""
    own = [one for one in attempts if one.number > 0 and one.requests.model == attempt.requests.model]
    first = own[0] if own else attempt
    return attempt.digests[0] in {first.digests[0], *_exchanges_of_bests(own)}


def _searches(attempts: Sequence[Attempt]) -> list[Search]:
    """The attempts of each search, in their order; an attempt belongs to the one whose policy it went on with."""
    searches: list[Search] = []
    of: dict[bytes | None, Search] = {}
    start = None
    for attempt in attempts:
        proposed, tuned = attempt.digests
        start = start or proposed
        search = of.get(proposed) if proposed != start else None
        if search is None:
            searches.append(search := [])
        search.append(attempt)
        of[tuned] = search
    return searches


def _mean(attempt: Attempt) -> float:
    assert attempt.score is not None
    return attempt.score.mean


def _best(search: Sequence[Attempt]) -> float:
    return max(map(_mean, search))
