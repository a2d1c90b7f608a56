"""Assess a proposal: score it, tune it, and compare it with the best policy so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from policygen.episodes.race import Levels, Race, compare_on_common_episodes, race
from policygen.episodes.score import Score, first_episodes, p_of_higher_mean, reaches
from policygen.episodes.trajectory import Trajectory
from policygen.errors import BudgetExhausted, EnvironmentFault, PolicygenError
from policygen.llm.messages import NO_MODEL
from policygen.notices import announced_if_slow
from policygen.policies.lines import Problem
from policygen.policies.policy import Policy, from_record
from policygen.policies.shaping import Shaping
from policygen.proposers.builtin_linear import constant_starts, starts_new_search
from policygen.proposers.proposer import Proposal
from policygen.runs.attempt import Attempt, Comparison, Played, Requests, Tuned, TuningState, saved, text_digest
from policygen.runs.config import RunConfig
from policygen.runs.methods import METHODS
from policygen.runs.notes import IDEA, REPEATS, SHAPING, STOPPED, notes_of_episodes, violations_of
from policygen.runs.state import Assessment, Search
from policygen.runs.tuning import (
    CAREFUL_STEP,
    FIRST_STEP,
    LAST_SIGNIFICANCE,
    PROLONGATIONS,
    SIGNIFICANCE,
    most_compared,
)
from policygen.search.refine.cma import carry_over
from policygen.search.refine.tunable import Refined, Trials, is_choice_table, refine
from policygen.search.runner import EpisodeRunner, Performance
from policygen.tasks.task import Task

# Tuning steps are proportional to a constant's size. Weights of standardised observations count as at least this large,
# so that zeros can change.
STANDARDISED_STEP = 2.5
HIGHER_MEAN = Levels(gain=1, loss=1)  # tuning keeps any gain, because the result must still beat the best policy
SIGNIFICANT = Levels(gain=SIGNIFICANCE, loss=SIGNIFICANCE)


def assess_random_actions(runner: EpisodeRunner) -> Assessment:
    """Play attempt 0: random actions, whose episodes are the first in the buffer."""
    started = time.perf_counter()
    with announced_if_slow("playing episodes of random actions"):
        warm_up = runner.play_randomly()
    played, notes = Played.of(warm_up.trajectories), warm_up.notes(None)
    attempt = Attempt(0, None, warm_up.score, played, verdict="random actions", notes=notes)
    return Assessment(runner.with_spending(attempt, started), warm_up.trajectories)


def assess(proposal: Proposal, search: Search, runner: EpisodeRunner, trials: Trials | None = None) -> Assessment:
    """Score a proposal, tune it, and compare it with the best so far; `search` is not changed.

    An exception ends only this attempt and is recorded in it. If it ended the run, resuming would fail at the same
    point. An attempt that exceeds a budget is recorded without a score, and ends the run.

    Args:
        trials: budget for tuning an earlier policy further; default: the tuning budget of one proposal.

    Raises EnvironmentFault if the environment failed under several proposals in a row, or under both the first policy
    and a constant action.
    """
    started, parsed = time.perf_counter(), proposal.parsed
    attempt = _unscored_attempt(proposal, tuning=trials is not None)

    def unscored(verdict: str, **changes: Any) -> Assessment:
        failed = runner.with_spending(replace(attempt, verdict=verdict, **changes), started)
        return Assessment(failed, (), search.best_score, search.validation)

    if parsed.policy is None:
        return unscored("the model sees no improvement" if parsed.resigned else "no policy")
    try:
        assessed = _assess_policy(attempt, proposal, search, runner, trials)
    except BudgetExhausted as error:
        notes = {**attempt.notes, STOPPED.key: str(error)}
        return unscored("not scored: the episodes are used up", saved=saved(parsed.policy), notes=notes)
    except Exception as error:
        if isinstance(error, EnvironmentFault):
            runner.note_fault(error, first=search.incumbent is None)
        problem = Problem(None, f"this policy could not be scored: {message_of(error)}", "propose another one")
        return unscored("not scored", problems=(problem,))
    runner.faults = 0
    return replace(assessed, attempt=runner.with_spending(assessed.attempt, started))


def message_of(error: Exception) -> str:
    """Return an exception's message on one line, preceded by its type unless it was written for users."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, PolicygenError) else f"{type(error).__name__}{f': {text}' if text else ''}"


def _assess_policy(
    attempt: Attempt, proposal: Proposal, search: Search, runner: EpisodeRunner, trials: Trials | None
) -> Assessment:
    policy = proposal.parsed.policy
    assert policy is not None
    attempt = replace(attempt, saved=saved(policy))
    if (twin := _find_earlier_twin(attempt, search, runner)) is not None:
        notes = {**notes_of_episodes(twin), **attempt.notes, REPEATS.key: twin.number}
        words = f"the same policy as attempt {twin.number}, so it has the same score"
        repeat = replace(attempt, score=twin.shared_score, played=twin.played, notes=notes, verdict=words)
        return Assessment(repeat, (), search.best_score, search.validation)
    if proposal.standardised and runner.config.refine.most_episodes is not None:
        # If real episodes are scarce, proposals of `builtin` are not played before tuning: most weights are 0.
        performance = Performance(None)
    else:
        if proposal.model == NO_MODEL and not any(one.number and one.score for one in search.attempts):
            with announced_if_slow("playing constant actions, to start from the best of them"):
                policy = runner.best_start(constant_starts(policy))
            attempt = replace(attempt, saved=saved(policy))
        performance = _extend_if_overestimated(policy, runner.perform(proposal.number, policy), search, runner)
    floor = STANDARDISED_STEP if proposal.standardised else 0.0
    tuning = _tune(attempt, policy, performance, search, runner, trials=trials, floor=floor)
    policy, performance, refined = tuning.policy, tuning.performance, tuning.refined
    if performance.score is None:
        performance = runner.perform(proposal.number, policy)
    race_result, best_score = _race_against_best(policy, performance, search, runner)
    words = str(race_result) if race_result is not None else "the first policy"
    attempt = replace(
        with_performance(attempt, policy, performance, race_result),
        tuned=tuning.tuned,
        accepted=race_result is None or race_result.verdict == "better",
        verdict=words + (f"; not tuned: {tuning.untuned_reason}" if tuning.untuned_reason else ""),
    )
    watched: Sequence[Trajectory] = ()
    if refined is not None:
        attempt, watched = replace(attempt, notes={**attempt.notes, **refined.notes}), refined.watched
    validation = validation_score(policy, best_score, runner) if attempt.accepted else search.validation
    return Assessment(attempt, [*watched, *performance.trajectories], best_score, validation)


def _find_earlier_twin(attempt: Attempt, search: Search, runner: EpisodeRunner) -> Attempt | None:
    """Return the first attempt with the same policy, if scoring this one would only repeat its episodes.

    Return None if the run tunes (tuning continues from the earlier attempt) or scores are exact (their episodes have
    new seeds and so add to the replay buffer).
    """
    if runner.config.refine.method is not None:
        return None
    scored = (one for one in search.attempts if one.score is not None and not one.score.exact)
    return next((one for one in scored if one.digests == attempt.digests), None)


def with_performance(attempt: Attempt, policy: Policy, performance: Performance, race: Race | None) -> Attempt:
    """Add a policy, its score, episodes and notes, and its race against the best one to an attempt."""
    assert performance.score is not None
    return replace(
        attempt,
        saved=saved(policy),
        score=performance.score,
        played=Played.of(performance.trajectories, exact=performance.score.exact),
        notes={**attempt.notes, **performance.notes(policy)},
        comparison=Comparison.of(race),
    )


def validation_score(policy: Policy, score: Score, runner: EpisodeRunner) -> Score | None:
    """Return the validation score of a new best policy; None if its score is exact or no episodes are left."""
    return None if score.exact else runner.validate(policy, None, runner.config.episodes)


def _extend_if_overestimated(
    policy: Policy, performance: Performance, search: Search, runner: EpisodeRunner
) -> Performance:
    """Score a policy on more shared episodes if the usual ones cannot distinguish it from the best."""
    score, best, usual = performance.score, search.incumbent, runner.config.episodes
    best_score, unbiased = search.best_score, search.validation
    if score is None or best is None or best_score is None or unbiased is None:
        return performance
    found = Race(score, first_episodes(best_score, score.episodes), SIGNIFICANT)
    overestimated = is_overestimated(best_score, unbiased, target_score(search.task, runner.config), usual)
    if not overestimated or found.verdict in ("better", "worse"):
        return performance
    wanted = max(PROLONGATIONS[-1] * usual, unbiased.episodes)
    if best_score.episodes >= wanted and text_digest(policy) == text_digest(best):
        return replace(performance, score=first_episodes(best_score, wanted))
    return replace(performance, score=runner.prolong(policy, score, wanted))


def target_score(task: Task, config: RunConfig) -> float | None:
    """Return the score at which a run stops: `stop_at` or, if it is not set, the known optimum."""
    if config.stop_at is not None:
        return config.stop_at
    return task.optimum.value if task.optimum is not None else None


def is_overestimated(best: Score | None, unbiased: Score | None, target: float | None, episodes: int) -> bool:
    """Whether the best policy does worse on new episodes than on the `episodes` by which it was selected.

    If so, those episodes no longer distinguish policies. If their score reaches the target at which a run stops, any
    shortfall on new episodes counts. Otherwise Welch's one-sided t-test decides, at a level at which one failure in
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


def confirm_best(search: Search, runner: EpisodeRunner) -> Score | None:
    """Return the best policy's validation score, extended while it may reach the target score by luck alone."""
    best, score, target = search.incumbent, search.validation, target_score(search.task, runner.config)
    if best is None or target is None:
        return score
    for episodes in (PROLONGATIONS[-1] * runner.config.episodes, most_compared(runner.config.episodes)):
        if score is None or score.mean < target or reaches(score, target):
            break
        try:
            score = runner.validate(best, score, episodes)
        except EnvironmentFault:  # if the fault lasts, the next attempt reports it
            break
    return score


def _unscored_attempt(proposal: Proposal, *, tuning: bool) -> Attempt:
    """Return the attempt of a proposal, with its requests but without a score."""
    replies = [exchange.reply for exchange in proposal.exchanges]
    costs = [0.0 if reply.cached else reply.usd for reply in replies]
    requests = Requests(
        model=proposal.model,
        calls=sum(exchange.requests for exchange in proposal.exchanges),
        repairs=max(0, len(proposal.exchanges) - 1),
        tokens_in=sum(exchange.tokens_in for exchange in proposal.exchanges),
        tokens_out=sum(exchange.tokens_out for exchange in proposal.exchanges),
        usd=None if None in costs else float(sum(filter(None, costs))),
        llm_seconds=sum(reply.seconds for reply in replies),
    )
    notes = {**proposal.parsed.notes, IDEA.key: proposal.idea, STOPPED.key: proposal.stopped}
    return Attempt(
        proposal.number,
        None,
        None,
        kind="tuning" if tuning else "resignation" if proposal.parsed.resigned else "proposal",
        problems=proposal.parsed.problems,
        requests=requests,
        notes={key: value for key, value in notes.items() if value},
    )


class _TuningOutcome(NamedTuple):
    """The better of a policy and its tuned form; `untuned_reason`: why nothing was tuned, if the run tunes."""

    policy: Policy
    performance: Performance
    tuned: Tuned
    refined: Refined | None = None
    untuned_reason: str = ""


def _why_untuned(policy: Policy, trials: Trials, config: RunConfig) -> str:
    """Return why nothing was tuned: the policy has no numbers to tune, or the episodes are too few."""
    if not trials.tunable(policy).size and not is_choice_table(policy):
        return "it has no numbers to tune"
    if trials.episodes <= 0:
        return f"{'--max-steps' if config.max_steps is not None else '--max-episodes'} leaves too few episodes"
    return f"{trials.episodes:,} episodes are too few for it"


def _tune(
    attempt: Attempt,
    policy: Policy,
    performance: Performance,
    search: Search,
    runner: EpisodeRunner,
    *,
    trials: Trials | None,
    floor: float,
) -> _TuningOutcome:
    """Tune a policy, and return the better of the original and the tuned one."""
    score, refining, shaping = performance.score, runner.config.refine, SHAPING.of(attempt)
    if refining.method is None:
        return _TuningOutcome(policy, performance, Tuned())
    careful = not floor and refining.most_episodes is None and already_works(score, search)
    first_step = CAREFUL_STEP if careful else FIRST_STEP
    attempts = [*search.attempts, attempt]
    trials = replace(trials or runner.trials(attempt.number, shaping), attempts=attempts, first_step=first_step)
    try:
        starts_anew = floor and starts_new_search(attempt, search.attempts)
        state = None if starts_anew else _tuning_state(policy, attempt, search, first_step)
        trials = replace(trials, floor=floor, state=state)
        refined = None
        if trials.episodes > 0:
            refined = refine(policy, refining.method, trials, runner.config.seed + attempt.number)
        if refined is None:
            return _TuningOutcome(policy, performance, Tuned(), None, _why_untuned(policy, trials, runner.config))
        # A run with a policy that cannot be read back could not be resumed.
        refined = replace(refined, policy=from_record(refined.policy.to_record(), search.task))
        tuned = _extend_if_overestimated(refined.policy, runner.perform(attempt.number, refined.policy), search, runner)
    except Exception as error:  # keep the untuned policy
        if score is None and isinstance(error, BudgetExhausted):
            raise
        return _TuningOutcome(policy, performance, Tuned(f"{refining.method}, given up: {message_of(error)}"))
    finally:
        runner.tell(None)
    assert tuned.score is not None
    found = None
    if score is not None:
        ones = replace(tuned.score, violations=tuned.violations), replace(score, violations=performance.violations)
        found = compare_on_common_episodes(*ones, HIGHER_MEAN)
    words = _describe_tuning(refined, tuned.score, found, shaping)
    if found is not None and found.verdict != "better":
        return _TuningOutcome(policy, performance, Tuned(words, tuning=refined.state), refined)
    return _TuningOutcome(
        refined.policy, tuned, Tuned(words, attempt.saved, score, refined.spread, refined.state), refined
    )


def _tuning_state(policy: Policy, new: Attempt, search: Search, first_step: float) -> TuningState | None:
    """Return the state from which to tune this policy: that of its own last tuning, or one carried over from the best.

    None if there is no such state, or if this tuning has a new objective, for which other constants may matter.
    """
    digest, objective = text_digest(policy), _objective(SHAPING.of(new))
    for attempt in reversed(search.attempts):
        if attempt.tuned.tuning is not None and attempt.digests[1] == digest:
            return attempt.tuned.tuning if not objective or objective == _objective(SHAPING.of(attempt)) else None
    best = search.best
    if best is None or best.policy is None or best.tuned.tuning is None:
        return None
    if objective and objective != _objective(SHAPING.of(best)):
        return None
    return carry_over(policy, best.policy, best.tuned.tuning, first_step)


def already_works(score: Score | None, search: Search) -> bool:
    """Whether a score is over halfway from random actions to the best policy or, without one, to `solved`."""
    random, best = search.attempts[0].score, search.best_score
    goal = best.mean if best is not None else search.task.solved
    if score is None or random is None or goal is None:
        return False
    return goal > random.mean and score.mean > (random.mean + goal) / 2


def _objective(shaping: Shaping | None) -> tuple[str, ...]:
    """Return the objective and the features that it needs; empty if tuning maximises the return."""
    return (shaping.objective, *(text for _, text in shaping.lets)) if shaping is not None and shaping.objective else ()


def _describe_tuning(refined: Refined, score: Score, found: Race | None, shaping: Shaping | None) -> str:
    cost = "no episodes: exact scores"
    if refined.episodes:
        cost = f"{refined.episodes:,} episode{'s' * (refined.episodes != 1)}"
    if refined.place:
        cost = f"{refined.place}, {cost} of the environment"
    what, remark = "entries" if METHODS[refined.method].for_tables else "constants", ""
    if shaping is not None and shaping.objective:
        cost += " for its objective"
        cost += f" ({refined.climb[0]:.4g} to {refined.climb[1]:.4g})" if refined.climb is not None else ""
    if shaping is not None and shaping.potential and refined.method != "q":
        remark = "; its potential was not used: only q uses one"
    result = f"{score.mean:.4g}" if found is None else f"{found.incumbent.mean:.4g} to {found.challenger.mean:.4g}"
    words = f"{refined.method} over {refined.constants} {what}, {cost}: {result}{remark}"
    if found is not None and found.verdict != "better":
        return words + _reason_for_dropping(found)
    return words + (", which violates hard requirements less often" if found is not None and found.excess else "")


def _reason_for_dropping(found: Race) -> str:
    if found.excess <= 0:
        return ", which did not help and was dropped"
    worst = max(found.challenger.violations, key=lambda one: one.excess)
    share, limit = f"{100 * worst.share:.3g}%", f"{100 * worst.allowed:.3g}%"
    return f", dropped: it violates `{worst.name}` in {share} of {worst.episodes} episodes (limit {limit})"


def _race_against_best(
    policy: Policy, performance: Performance, search: Search, runner: EpisodeRunner
) -> tuple[Race | None, Score]:
    """Race a policy against the best, on more shared episodes while it is ahead and the budget allows.

    Return the race (None for the first policy), and the winner's score on all episodes played for the comparison.
    """
    best, usual, ours, theirs = search.best, runner.config.episodes, performance.score, search.best_score
    assert ours is not None
    if best is None or best.policy is None or theirs is None:
        return None, ours
    contenders, scores = (policy, best.policy), [ours, theirs]
    violations = performance.violations, violations_of(best)

    def score(side: int, count: int) -> Score:
        scores[side] = runner.prolong(contenders[side], scores[side], count)
        return replace(scores[side], violations=violations[side])

    def common() -> int:
        return min(score.episodes for score in scores if not score.exact)

    def lengths() -> Iterator[int]:
        yield ours.episodes
        for wanted in () if ours.exact else [times * usual for times in PROLONGATIONS]:
            # If steps are limited, each episode is charged at full length before it is played, but may be much
            # shorter: playing one episode at a time leaves steps for more of them.
            for count in (wanted,) if runner.config.max_steps is None else range(common() + 1, wanted + 1):
                if count > common() and not runner.affords(count, *scores):
                    break
                score(0, count)
                score(1, count)
            yield common()
            if common() < wanted:
                return

    # A challenger that is behind has lost. Policies still undecided after the last extension are about equally good,
    # hence a separate level.
    levels = Levels(gain=SIGNIFICANCE, loss=1, last=LAST_SIGNIFICANCE, most=PROLONGATIONS[-1] * usual)
    found = race(partial(score, 0), partial(score, 1), lengths(), levels)
    return found, scores[1] if found.verdict != "better" else first_episodes(scores[0], found.challenger.episodes)
