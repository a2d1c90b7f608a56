"""The columns of a trace: what reward and ends depend on, what the policy reads, what varies most, the rest in turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from policygen.episodes.evidence import Relevance
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.quantities.tree import names_in, remembered_in

MOST_COLUMNS = 12  # quantities of a trace before there is a policy
MOST_READ = 20  # quantities of a trace if the best policy consists of equations
IN_TURN = 2  # places of a trace for the quantities that would be left out; each prompt shows others of them
MOST_RELEVANT = 6  # observations that are shown whether or not the policy reads them


def ranked(names: Sequence[str], best: Policy | None, relevance: Relevance, turn: int) -> list[str]:
    """Return the quantities to show, the most important first; if there are many, the last ones change with `turn`.

    The order is: observations that reward and ends depend on; features of `best` that remember themselves (a clock, a
    latch); the quantities that it reads, alternately an observation and a feature, those of its outputs before those of
    its features; and the rest, by variance.
    """
    lines = [names_in(node) for _, node in best.equations] if isinstance(best, LinearPolicy) else []
    lets = [names_in(node) for _, node in best.lets] if isinstance(best, LinearPolicy) else []
    direct, read = (frozenset().union(*some) for some in (lines, lets))
    states = {name for name, node in best.lets if name in remembered_in(node)} if isinstance(best, LinearPolicy) else ()
    variance = relevance.variance
    order = dict.fromkeys(name for name in relevance.relevant[:MOST_RELEVANT] if name in names)
    order |= dict.fromkeys(name for name in names if name in states)
    observed = [name for name in names if name in variance and name in direct]
    observed += [name for name in names if name in variance and name in read]
    features = [name for name in names if name not in variance and name in direct]
    features += [name for name in reversed(names) if name not in variance and name in read]  # decisive ones come last
    order |= dict.fromkeys(name for pair in zip_longest(observed, features) for name in pair if name is not None)
    order |= dict.fromkeys(sorted(names, key=lambda name: (name in relevance.further, -variance.get(name, 0.0))))
    most = MOST_READ if lines else MOST_COLUMNS
    if len(order) <= most:
        return list(order)
    kept, rest = list(order)[: most - IN_TURN], list(order)[most - IN_TURN :]
    return kept + [rest[(turn * IN_TURN + i) % len(rest)] for i in range(IN_TURN)]
