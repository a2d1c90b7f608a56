"""The standard that a proposal must meet to become the best: the judge applies it, and prompts state it."""

from __future__ import annotations

# One-sided level at which a challenger must be better in the paired test. A close comparison plays these multiples of
# the episodes. After the last one a higher level is enough, because both policies are then nearly equally good.
SIGNIFICANCE = 0.1
LAST_SIGNIFICANCE = 0.2
PROLONGATIONS = (2, 4)
# Episodes without a failure that show, with a confidence of 95%, that a policy fails in fewer than 1 of 100
# (the rule of three; Hanley and Lippman-Hand, JAMA 249, 1983). Equal returns have no spread to judge by.
FAULTLESS = 300


def most_compared(episodes: int) -> int:
    """Return the maximum number of episodes of a comparison or validation, from the usual number of a score."""
    return max(PROLONGATIONS[-1] * episodes, FAULTLESS)
