"""Lineages: families of policies that differ in structure, and the choice of the one that the next proposals revise.

A lineage begins with a proposal whose prompt asks for a structure unlike all others; later proposals revise its best
policy. All is computed from recorded attempts, so that a resumed run chooses the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from policygen.episodes.requirements import excess
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.text import to_text
from policygen.quantities.tree import Name, Node, linear_terms, replaced, with_constants
from policygen.runs.attempt import Attempt, best_of
from policygen.runs.config import RunConfig
from policygen.runs.turns import ucb_choice

NEW_EVERY = 4  # the first of each group of this many rounds begins a lineage
LEAST_ATTEMPTS = 2  # of a lineage before it is dropped as worse than the others


@dataclass(frozen=True, slots=True)
class Lineage:
    """A first attempt and its revisions, and the best of them."""

    number: int  # number of the attempt that began it; 0 in a run without lineages
    attempts: tuple[Attempt, ...] = ()  # its attempts, oldest first; none in a run without lineages
    best: Attempt | None = None  # the policy that the next proposal revises; None if it has none


def lineages_of(attempts: Sequence[Attempt], most: int) -> list[Lineage]:
    """Return the lineages to continue: the one with the run's best policy, then those with the highest scores.

    Of two lineages whose best policies have the same structure, only the better one is continued. Beyond `most`, only
    lineages with fewer than `LEAST_ATTEMPTS` are kept.
    """
    families: dict[int, list[Attempt]] = {}
    for attempt in attempts[1:]:
        families.setdefault(attempt.lineage, []).append(attempt)
    best_of_run = best_of(attempts)

    def rank(attempt: Attempt) -> tuple[bool, float, float]:
        assert attempt.score is not None
        return attempt is best_of_run, -excess(attempt.violations), attempt.score.value

    scored = {number: [one for one in own if one.score is not None] for number, own in families.items()}
    bests = sorted((max(own, key=rank) for own in scored.values() if own), key=rank, reverse=True)
    different: dict[object, Attempt] = {}
    for best in bests:
        if best.policy is not None:
            different.setdefault(structure(best.policy), best)
    kept = [Lineage(best.lineage, tuple(families[best.lineage]), best) for best in different.values()]
    return kept[:most] + [lineage for lineage in kept[most:] if len(lineage.attempts) < LEAST_ATTEMPTS]


def lineage_for(number: int, attempts: Sequence[Attempt], best: Attempt | None, config: RunConfig) -> Lineage:
    """Return the lineage that attempt `number` continues, or a new one; `best` is the best attempt of the run.

    A round continues the lineage with the highest upper confidence bound on the gain per reply, see `turns.ucb_choice`.
    """
    if config.lineages == 1:
        return Lineage(0, best=best)
    known = {lineage.number: lineage for lineage in lineages_of(attempts, config.lineages)}
    if not known or (number - 1) // config.candidates % NEW_EVERY == 0:
        return Lineage(number)
    tried = {one: len(lineage.attempts) - 1 for one, lineage in known.items()}
    return known[ucb_choice({one: _gain_per_reply(lineage) for one, lineage in known.items()}, tried)]


def _gain_per_reply(lineage: Lineage) -> float:
    """Return the gain of the best policy of a lineage over its first, divided by the number of replies."""
    scores = [attempt.score.value for attempt in lineage.attempts if attempt.score is not None] or [0.0]
    best = lineage.best.score.value if lineage.best is not None and lineage.best.score is not None else scores[0]
    return max(0.0, best - scores[0]) / sum(attempt.requests.repairs + 1 for attempt in lineage.attempts)


def structure(policy: Policy) -> object:
    """Return a policy's expressions without numbers and names of features; equal for policies of one structure."""
    names = {name: Name(f"feature{i}") for i, (name, _) in enumerate(policy.lets)}

    def terms(node: Node) -> frozenset[str]:
        # A sum is the set of its terms: tuning may change the sign and so the operator before a number.
        parts = (replaced(term, names) for term in linear_terms(node) if term is not None)
        return frozenset(to_text(with_constants(part, repeat(0.0))) for part in parts)

    equations = policy.equations if isinstance(policy, LinearPolicy) else ()
    found = tuple(terms(node) for _, node in (*policy.lets, *equations))
    return (found, policy.grid.names, policy.grid.shape) if isinstance(policy, TablePolicy) else found
