"""A larger budget for a run: which of its attempts would have been the same, had it been asked for at first."""

from __future__ import annotations

from collections.abc import Sequence

from policygen.errors import UsageError
from policygen.runs.config import RunConfig
from policygen.runs.standard import PROLONGATIONS
from policygen.runs.state import Attempt


def check_extension(before: RunConfig, now: RunConfig) -> None:
    """Refuse a larger budget under which no attempt so far would have been the same.

    Raises:
        UsageError: tuning was given shares of a budget, and the budget or the number of shares is another one.
    """
    shared_out = before.refine.method is not None and before.refine.episodes is None and before.max_episodes is not None
    if shared_out and (before.iterations, before.max_episodes) != (now.iterations, now.max_episodes):
        raise UsageError(
            f"--refine {before.refine} divides --max-episodes {before.max_episodes} over {before.iterations} "
            "iterations: with more of either, every proposal would have been tuned otherwise; begin a new run, or one "
            f"that says how many episodes tune a proposal, as in --refine {before.refine}:300, and can go on"
        )


def unchanged(attempts: Sequence[Attempt], before: RunConfig, now: RunConfig) -> int:
    """How many of a run's first attempts would be the same with the larger budget `now`, but for what prompts said of
    the number of attempts that were planned.

    What only tuned came after the last proposal, and comes later now. A round that a budget cut short is dropped, and
    so are attempts that so few episodes were left for that they may have been scored or tuned on fewer.
    """
    proposals = [attempt for attempt in attempts if attempt.kind != "tuning"]
    kept = len(proposals)
    for number, attempt in enumerate(proposals):
        if attempt.stopped or (number and _was_short(proposals[number - 1].episodes, before, now)):
            kept = number
            break
    return kept - max(0, kept - 1) % now.candidates


def _was_short(played: int, before: RunConfig, now: RunConfig) -> bool:
    """Whether the old limit of episodes may have changed an attempt before which so many had been played."""
    if before.max_episodes is None or before.max_episodes == now.max_episodes:
        return False
    # More than any attempt plays or keeps in reserve: its own score, what confirms and validates a best policy, both
    # sides of a close comparison, and the rest of its round.
    scores = 3 * PROLONGATIONS[-1] + 6 + 2 * before.candidates
    return before.max_episodes - played < scores * before.episodes + (before.refine.episodes or 0)
