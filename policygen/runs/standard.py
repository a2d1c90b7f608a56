"""The standard that a proposal must meet to become the best: the judge applies it, and prompts state it."""

from __future__ import annotations

# A challenger must be better at this one-sided level of the paired test. Close calls get up to so many times the
# episodes; on the most, where waiting no longer helps and both are nearly as good, less certainty is enough.
SIGNIFICANCE = 0.1
LAST_SIGNIFICANCE = 0.2
PROLONGATIONS = (2, 4)
# Episodes without a single failure that show a policy to fail seldom: with a confidence of 95% in fewer than 1 of 100
# (the rule of three; Hanley and Lippman-Hand, JAMA 249, 1983). Returns that are all the same tell nothing by spread.
FAULTLESS = 300


def most_compared(episodes: int) -> int:
    """The most episodes that a comparison or a validation takes where a score usually takes so many."""
    return max(PROLONGATIONS[-1] * episodes, FAULTLESS)
