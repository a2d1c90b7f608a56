"""When a tuned search begins anew, and with which policy it goes on otherwise.

A numerical search climbs the hill that it starts on. So two are begun, the better one goes on, and where it stalls
another is begun (restarts, as in Auger and Hansen 2005, "A restart CMA evolution strategy with increasing population
size", doi:10.1109/CEC.2005.1554902, here with the same population): the run keeps the best of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from policygen.policies.policy import Policy
from policygen.runs.state import Attempt

FIRST = 2  # searches, before the better one goes on
STALLED = 0.03  # of what a search has gained over random actions; less than that in the last `OVER` proposals
OVER = 3


def goes_on_with(attempts: Sequence[Attempt]) -> Policy | None:
    """The best policy of the search that goes on; None where another one begins.

    Args:
        attempts: of the run so far, random actions first. The first proposal is what every search begins with.
    """
    tuned = [one for one in attempts if one.number > 0 and one.score is not None]
    searches = _searches(tuned)
    if len(searches) < FIRST:
        return None
    if len(searches) == len(tuned):  # none has gone on yet
        present = max(searches, key=_best)
    else:
        present = next(search for search in searches if search[-1] is tuned[-1])
    random = attempts[0].score.mean if attempts[0].score is not None else 0.0
    if len(present) > OVER and _best(present) - _best(present[:-OVER]) <= STALLED * abs(_best(present) - random):
        return None
    return max(present, key=_mean).policy


def begins(attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Whether a proposal is what all searches of its proposer begin with, and not what tuning made of it."""
    first = next((one for one in attempts if one.number > 0 and one.model == attempt.model), attempt)
    return attempt.digests[0] == first.digests[0]


def _searches(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """The attempts of each search, in their order; an attempt belongs to the one whose policy it went on with."""
    searches: list[list[Attempt]] = []
    of: dict[bytes | None, list[Attempt]] = {}
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
