"""A sentence about numbers that tuning changed in a way that their author may not expect."""

from __future__ import annotations

from policygen.policies.policy import Policy
from policygen.quantities.tree import numbers

MOST_SHOWN = 3  # numbers of each kind in one sentence


def surprises(before: Policy, after: Policy) -> str:
    """Describe numbers whose sign tuning changed, and numbers in conditions that it changed by more than their size.

    Args:
        before, after: the policy before and after tuning, which differ only in numbers.

    Returns:
        One line; empty if there are none. Numbers in `tune(...)` are left out.
    """
    turned, moved = list[str](), list[str]()
    old = dict((*before.lets, *before.formulas()))
    for name, node in (*after.lets, *after.formulas()):
        for was, now in zip(numbers(old[name]), numbers(node), strict=True):
            one, other = was.sign * was.number.value, now.sign * now.number.value
            if was.number.limits is not None or one == other:
                continue
            words = f"{one:.4g} to {other:.4g} in `{name}`"
            if was.in_condition and abs(other - one) > abs(one):
                moved.append(words)
            elif one * other < 0:
                turned.append(words)
    kinds = (("turned the sign of", turned), ("moved in a condition", moved))
    return " and ".join(f"{words} {_some(found)}" for words, found in kinds if found)


def _some(found: list[str]) -> str:
    more = len(found) - MOST_SHOWN
    return ", ".join(found[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
