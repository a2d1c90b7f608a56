"""Restarts of the numerical search: when a new search starts, and from which policy a search continues.

A numerical search finds only the nearest local optimum. So `builtin` starts two searches from weights 0 and continues
the better one. When that one stalls, it starts another. The run keeps the best policy of all searches. (Restarts as in
Auger and Hansen 2005, "A restart CMA evolution strategy with increasing population size",
doi:10.1109/CEC.2005.1554902, but with the same population.)

A search settles early which label (discrete action) wins for extreme observations, and no small step exchanges two
labels. So before a new search starts from weights 0, the best policy is tried with two labels exchanged. If that is a
new best policy, the search continues from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import combinations

import numpy as np

from policygen.policies.linear import LinearPolicy, middle_and_half
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.text import to_digits
from policygen.quantities.tree import constants, with_constants
from policygen.runs.attempt import Attempt, text_digest
from policygen.tasks.task import output_slices, outputs_by_actuator

SearchAttempts = list[Attempt]

MOST_LABELS = 12  # of a choice that a search may begin with
FIRST_SEARCHES = 2  # started before the better one is continued
# A search stalls if its last proposals gained at most this share of its gain over random actions.
LEAST_GAIN = 0.03
STALL_LENGTH = 3  # number of these proposals
EXCHANGES = 3  # failed exchanges in a row before a new search starts from weights 0


def policy_to_continue(attempts: Sequence[Attempt]) -> Policy | None:
    """Return the best policy of the search to continue; None if a new search should start.

    Args:
        attempts: the attempts of the run so far. Number 0 is random actions. A search starts with all weights 0, or
            with two labels exchanged.
    """
    scored = _scored(attempts)
    searches = _searches(scored)
    if len(searches) < FIRST_SEARCHES:
        return None
    if len(searches) == len(scored):  # none has been continued yet
        current = max(searches, key=_best_score)
    else:
        exchanges = _exchanges_of_bests(scored)
        continuing = [search for search in searches if not _failed(search, exchanges)]
        current = max(continuing, key=lambda search: search[-1].number)
    random = attempts[0].score.mean if attempts[0].score is not None else 0.0
    if len(current) > STALL_LENGTH:
        gain = _best_score(current) - _best_score(current[:-STALL_LENGTH])
        if gain <= LEAST_GAIN * abs(_best_score(current) - random):
            return None
    return max(current, key=_score).policy


def with_labels_exchanged(attempts: Sequence[Attempt], best: Policy | None, rng: np.random.Generator) -> Policy | None:
    """Return the best policy with two labels of a choice exchanged, to try before a new search starts from weights 0.

    Returns:
        None while fewer than `FIRST_SEARCHES` searches have started, after `EXCHANGES` failures in a row, and once all
        exchanges have been tried.
    """
    scored = _scored(attempts)
    searches = _searches(scored)
    if len(searches) < FIRST_SEARCHES or not isinstance(best, LinearPolicy):
        return None
    exchanges = _exchanges_of_bests(scored)
    if all(_failed(search, exchanges) for search in searches[-EXCHANGES:]):
        return None
    known = {digest for one in scored for digest in one.digests}
    others = [one for one in _exchanges(best) if text_digest(one) not in known]
    return others[rng.integers(len(others))] if others else None


def _scored(attempts: Sequence[Attempt]) -> list[Attempt]:
    return [one for one in attempts if one.number > 0 and one.score is not None]


def _failed(search: SearchAttempts, exchanges: Set[bytes]) -> bool:
    """Whether a search started from exchanged labels and found no new best policy."""
    return search[0].digests[0] in exchanges and not any(attempt.accepted for attempt in search)


def _exchanges_of_bests(attempts: Sequence[Attempt]) -> set[bytes]:
    """Return the text digests of all best policies so far with two labels exchanged."""
    bests = [one.policy for one in attempts if one.accepted and isinstance(one.policy, LinearPolicy)]
    return {text_digest(exchanged) for best in bests for exchanged in _exchanges(best)}


def _exchanges(policy: LinearPolicy) -> Iterator[LinearPolicy]:
    """Yield the policy with the equations of two labels exchanged, for each pair of labels of a choice.

    A choice between two labels is left out: an exchange would only reverse it.
    """
    nodes = dict(policy.equations)
    for outputs in outputs_by_actuator(policy.task):
        for one, other in combinations(outputs, 2) if len(outputs) > 2 else ():
            if nodes[one] != nodes[other]:
                exchanged = nodes | {one: nodes[other], other: nodes[one]}
                yield replace(policy, equations=tuple(exchanged.items()))


def constant_starts(policy: Policy) -> list[Policy]:
    """Return a table or equations with weights of 0, and others like it with a constant action; others stay alone.

    A number takes the middle, both ends and both quarters of its range, and 0. A choice takes labels at these places,
    or, if there is no other actuator, each of the first `MOST_LABELS`.
    """
    actuators, slices = policy.task.actuators, output_slices(policy.task)
    starts: list[Policy] = [policy]
    if not (isinstance(policy, TablePolicy) or (isinstance(policy, LinearPolicy) and has_zero_weights(policy))):
        return starts
    single = len(actuators) == 1 and actuators[0].is_choice
    places = range(min(len(actuators[0].labels), MOST_LABELS)) if single else (-1.0, 1.0, -0.5, 0.5, None)
    for place in places:
        biases, action = list[float](), list[float]()
        for actuator, part in zip(actuators, slices, strict=True):
            if actuator.is_choice:
                count = part.stop - part.start
                chosen = int(place or 0) if single else round(((place or 0.0) + 1) / 2 * (count - 1))
                biases += [float(label == chosen) for label in range(count)]
                action.append(float(chosen))
            else:
                middle, half = middle_and_half(actuator)
                biases.append(float(np.clip(-middle / half, -1, 1)) if place is None else place)
                action.append(to_digits(middle + half * biases[-1], 4))
        if isinstance(policy, TablePolicy):
            actions = np.tile(action, (policy.grid.size, 1))
            starts.append(TablePolicy.from_actions(policy.task, actions, policy.grid, policy.lets))
            continue
        equations = []
        for (name, node), bias in zip(policy.equations, biases, strict=True):
            values = [*constants(node)[:-1], to_digits(bias, 4)]  # the bias is the last constant
            equations.append((name, with_constants(node, iter(values))))
        starts.append(replace(policy, equations=tuple(equations)))
    return list(dict.fromkeys(starts))


def starts_new_search(attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Whether a proposal starts a search: its weights are 0, it exchanges labels, or it is its model's first one."""
    own = [one for one in attempts if one.number > 0 and one.requests.model == attempt.requests.model]
    first = own[0] if own else attempt
    return has_zero_weights(attempt.policy) or attempt.digests[0] in {first.digests[0], *_exchanges_of_bests(own)}


def has_zero_weights(policy: Policy | None) -> bool:
    """Whether all weights of equations are 0, so that the action is constant."""
    return isinstance(policy, LinearPolicy) and not policy.weights.any()


def _searches(attempts: Sequence[Attempt]) -> list[SearchAttempts]:
    """Return the attempts of each search, in order; an attempt belongs to the search whose policy it continued."""
    searches: list[SearchAttempts] = []
    by_policy: dict[bytes | None, SearchAttempts] = {}
    start = None
    for attempt in attempts:
        proposed, tuned = attempt.digests
        start = start or proposed
        is_start = proposed == start or has_zero_weights(attempt.proposed or attempt.policy)
        search = None if is_start else by_policy.get(proposed)
        if search is None:
            searches.append(search := [])
        search.append(attempt)
        by_policy[tuned] = search
    return searches


def _score(attempt: Attempt) -> float:
    assert attempt.score is not None
    return attempt.score.mean


def _best_score(search: Sequence[Attempt]) -> float:
    return max(map(_score, search))
