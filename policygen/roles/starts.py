"""When a tuned search begins anew, and with which policy it goes on otherwise.

A numerical search climbs the hill that it starts on. So two are begun, the better one goes on, and where it stalls
another is begun (restarts, as in Auger and Hansen 2005, "A restart CMA evolution strategy with increasing population
size", doi:10.1109/CEC.2005.1554902, here with the same population): the run keeps the best of all of them.

Of the equations that score the labels of a choice the steepest wins far out, on either side. Which label that is is
settled early in a search, and no small step exchanges two of them. So where a search has stalled the best policy with
two labels exchanged is tried before another begins from nothing, and it goes on where it is better at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.runs.state import Attempt, text_digest

FIRST = 2  # searches, before the better one goes on
STALLED = 0.03  # of what a search has gained over random actions; less than that in the last `OVER` proposals
OVER = 3
EXCHANGES = 3  # at most, one after the other, before another search begins


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
    others = [search for search in searches if search is not present]
    if _exchanged_labels(present, tuned) and _best(present) <= max(map(_best, others)):
        return None
    random = attempts[0].score.mean if attempts[0].score is not None else 0.0
    if len(present) > OVER and _best(present) - _best(present[:-OVER]) <= STALLED * abs(_best(present) - random):
        return None
    return max(present, key=_mean).policy


def with_labels_exchanged(attempts: Sequence[Attempt], best: Policy | None, rng: np.random.Generator) -> Policy | None:
    """What is tried where a search has stalled: the best policy with two labels of a choice exchanged.

    Returns:
        None where no search has gone on, where enough were tried, or where there are no others: a choice between two
        labels has none, as that would only turn the policy round.
    """
    tuned = [one for one in attempts if one.number > 0 and one.score is not None]
    searches = _searches(tuned)
    if len(searches) < FIRST or not isinstance(best, LinearPolicy):
        return None
    failed = [len(search) == 1 and _exchanged_labels(search, tuned) for search in searches]
    if all(failed[-EXCHANGES:]):
        return None
    known = {one.digests[0] for one in tuned}
    others = [one for one in _exchanges(best) if text_digest(one) not in known]
    return others[rng.integers(len(others))] if others else None


def _exchanges(policy: LinearPolicy) -> Iterator[LinearPolicy]:
    """The policy with the equations of two labels exchanged, for every two labels of a choice among three or more."""
    first = 0
    for actuator in policy.task.actuators:
        outputs = range(first, first := first + max(1, len(actuator.labels)))
        for one, other in combinations(outputs, 2) if len(outputs) > 2 else ():
            equations = list(policy.equations)
            (name, node), (other_name, other_node) = equations[one], equations[other]
            equations[one], equations[other] = (name, other_node), (other_name, node)
            yield replace(policy, equations=tuple(equations))


def _exchanged_labels(search: Sequence[Attempt], tuned: Sequence[Attempt]) -> bool:
    """Whether a search began with another policy than the first one did."""
    return search[0].digests[0] != tuned[0].digests[0]


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
