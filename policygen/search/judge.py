"""Decide when to stop, and whether the best policy was lucky. No episode is played here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from policygen.episodes.score import NEGLIGIBLE, Score, first_episodes, p_of_higher_mean, reaches
from policygen.runs.attempt import Attempt, best_of
from policygen.runs.config import RunConfig
from policygen.runs.tuning import LAST_SIGNIFICANCE
from policygen.tasks.task import Task

RESIGNATIONS = 2  # consecutive replies "no improvement" that end a run


def stop_score(task: Task, config: RunConfig) -> float | None:
    """Return the score at which a run stops: `stop_at`, else the known optimum."""
    if config.stop_at is not None:
        return config.stop_at
    return task.optimum.value if task.optimum is not None else None


def is_overestimated(best: Score | None, unbiased: Score | None, target: float | None, episodes: int) -> bool:
    """Whether the best policy does worse on new episodes than on the `episodes` by which it was selected.

    If so, those `episodes` no longer distinguish policies. If their score reaches the target at which a run stops, any
    shortfall on new episodes counts. Else Welch's one-sided t-test decides; its level is such that one failure in
    twenty episodes is significant.
    """
    if best is None or unbiased is None or best.exact or unbiased.exact or min(episodes, unbiased.episodes) < 2:
        return False
    first = first_episodes(best, min(episodes, best.episodes))
    if first.mean <= unbiased.mean:
        return False
    if target is not None and first.mean >= target > unbiased.mean:
        return True
    return p_of_higher_mean(first.returns, unbiased.returns) <= LAST_SIGNIFICANCE


def reason_to_stop(unbiased: Score | None, task: Task, config: RunConfig) -> str:
    """Return why a run with this score may stop, as a sentence; empty if it may still improve."""
    target = stop_score(task, config)
    if not reaches(unbiased, target, NEGLIGIBLE if config.stop_at is None else 0.0):
        return ""
    return f"the {'best known score' if config.stop_at is None else 'score to stop at'}, {target:.6g}, was reached"


def reason_to_give_up(attempts: Sequence[Attempt], config: RunConfig) -> str:
    """Return why a run stops after these attempts, as a sentence; empty if it continues.

    Depends only on the attempts, so that a resumed run stops at the same place.
    """
    attempts = [attempt for attempt in attempts if attempt.is_asked]
    resigned = 0
    for attempt in reversed(attempts):
        if attempt.kind != "resignation":
            break
        resigned += 1
    if resigned >= min(RESIGNATIONS, config.patience or RESIGNATIONS):
        return f"the model saw no improvement, {resigned} {'reply' if resigned == 1 else 'replies'} in a row"
    best = best_of(attempts)
    since = len(attempts) - 1 - (best.number if best is not None else 0)
    if config.patience is not None and since >= config.patience:
        return f"{since} attempts in a row brought no new best (--patience {config.patience})"
    return ""


def best_unfinished(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt with the best policy among those whose tuning was still improving; None if there is none.

    Policies that differ from the run's best only in their numbers do not count: tuning continues from the best. Nor do
    former bests, which later attempts have revised.
    """
    proposals = [attempt for attempt in attempts if attempt.kind == "proposal" and attempt.saved is not None]
    best = best_of(proposals)
    if best is None:
        return None
    candidates = [
        (attempt.score.mean, -attempt.number, attempt)
        for attempt in proposals
        if attempt.score is not None
        and attempt.tuned.tuning is not None
        and attempt.tuned.tuning.climbing
        and not attempt.accepted
        and _text_without_numbers(attempt) != _text_without_numbers(best)
    ]
    return max(candidates)[-1] if candidates else None


def _text_without_numbers(attempt: Attempt) -> str:
    text = attempt.policy.to_text(plain=True) if attempt.policy is not None else ""
    return re.sub(r"([-+] ?)?(?<!\w)[\d.]+(e[-+]?\d+)?", "0", text)
