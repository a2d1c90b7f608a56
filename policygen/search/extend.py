"""Extend a run's budget: keep the attempts that the larger budget would not have changed."""

from __future__ import annotations

from collections.abc import Sequence

from policygen.errors import UsageError
from policygen.runs.attempt import Attempt
from policygen.runs.config import RunConfig
from policygen.runs.standard import PROLONGATIONS


def check_extension(before: RunConfig, now: RunConfig) -> None:
    """Refuse a larger budget that would have changed every attempt.

    Raises:
        UsageError: tuning gets shares of a budget, and the budget or the number of shares differs.
    """
    shared_out = before.refine.method is not None and before.refine.episodes is None and before.max_episodes is not None
    if shared_out and (before.iterations, before.max_episodes) != (now.iterations, now.max_episodes):
        raise UsageError(
            f"--refine {before.refine} divides --max-episodes {before.max_episodes} over {before.iterations} "
            "iterations: larger numbers would have changed every proposal's tuning. Begin a new run; one with a fixed "
            f"number of episodes per proposal, such as --refine {before.refine}:300, can be extended"
        )


def unchanged(attempts: Sequence[Attempt], before: RunConfig, now: RunConfig) -> int:
    """Count the first attempts that the larger budget `now` would not have changed.

    The number of planned attempts in prompts is ignored. Attempts that only tuned are dropped: they follow the last
    proposal. So are a round that a budget cut, and attempts near the old limit of episodes, which may have been scored
    or tuned on fewer.
    """
    proposals = [attempt for attempt in attempts if attempt.kind != "tuning"]
    kept = len(proposals)
    for number, attempt in enumerate(proposals):
        if attempt.stopped or (number and _was_short(proposals[number - 1].standing.episodes, before, now)):
            kept = number
            break
    return kept - max(0, kept - 1) % now.candidates


def _was_short(played: int, before: RunConfig, now: RunConfig) -> bool:
    """Whether the old limit may have changed an attempt that began after `played` episodes."""
    if before.max_episodes is None or before.max_episodes == now.max_episodes:
        return False
    # Upper bound of an attempt's episodes and reserve: its score, confirmation and validation of a best policy, both
    # sides of a close comparison, and the rest of its round.
    scores = 3 * PROLONGATIONS[-1] + 6 + 2 * before.candidates
    return before.max_episodes - played < scores * before.episodes + (before.refine.episodes or 0)
