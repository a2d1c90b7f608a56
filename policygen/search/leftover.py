"""Spend the remaining episodes on tuning the best policies further."""

from __future__ import annotations

from collections.abc import Iterator

from policygen.errors import BudgetExhausted
from policygen.policies.parse import Parsed
from policygen.proposers.proposer import Proposal
from policygen.runs.attempt import Attempt
from policygen.runs.state import Search
from policygen.search.assess import assess
from policygen.search.judge import best_unfinished, reason_to_stop
from policygen.search.refine.tunable import Trials
from policygen.search.runner import EpisodeRunner


def tune_leftover(search: Search, runner: EpisodeRunner) -> Iterator[Attempt]:
    """Tune a policy whose tuning was still improving, and the best, with the remaining episodes; no model is asked."""
    while (turn := _next_turn(search, runner)) is not None:
        chosen, trials = turn
        proposal = Proposal(len(search.attempts), Parsed(chosen.policy, (), chosen.coverage), ())
        try:
            yield search.keep(assess(proposal, search, runner, trials))
        except BudgetExhausted:
            return


def _next_turn(search: Search, runner: EpisodeRunner) -> tuple[Attempt, Trials] | None:
    """Return the next attempt to tune and its budget; the choice depends only on the attempts, as resuming needs."""
    best, number = search.best, len(search.attempts)
    if best is None or runner.config.refine.method is None or search.best_score is None or search.best_score.exact:
        return None
    if reason_to_stop(search.unbiased_score, search.task, runner.config):
        return None
    rising = best_unfinished(search.attempts)
    turns = 1 + (rising is not None) - [attempt.kind for attempt in search.attempts].count("tuning")
    if turns == 2 and rising is not None and (trials := runner.last_trials(number, turns)) is not None:
        return rising, trials
    trials = runner.last_trials(number, 1) if turns > 0 else None
    return (best, trials) if trials is not None else None
