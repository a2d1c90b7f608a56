"""The main loop: play, prompt, propose, assess, keep the best; at the end, tune with the remaining episodes."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.exact import finite_mdp
from policygen.episodes.score import NEGLIGIBLE, Score, reaches
from policygen.errors import BudgetExhausted, EnvironmentFault
from policygen.notices import announced_if_slow
from policygen.policies.parse import ParseResult
from policygen.prompts.render import render_prompt
from policygen.prompts.templates import improve_template
from policygen.proposers.proposer import Proposal, Proposer
from policygen.registry import resolved
from policygen.runs.attempt import Attempt, best_of
from policygen.runs.config import RunConfig
from policygen.runs.request_log import RequestLog, conversation_turn
from policygen.runs.state import CLOSINGS, Assessment, Search
from policygen.search.assess import (
    assess,
    assess_random_actions,
    confirm_best,
    target_score,
    validation_score,
    with_performance,
)
from policygen.search.refine.tunable import Trials
from policygen.search.runner import EpisodeRunner
from policygen.tasks.task import Task

RESIGNATIONS = 2  # consecutive replies of "no improvement" that end a run
_IDENTIFYING = 40  # leading characters by which a user's comment is recognised in a prompt
_ADD = 'add a line to it: {% include "_comments.j2" %}'


def new_search(task: Task) -> Search:
    """Return the search of a new run, without attempts."""
    return Search(task, ReplayBuffer(), finite_mdp(task))


def optimize(search: Search, proposer: Proposer, request_log: RequestLog, runner: EpisodeRunner) -> Iterator[Attempt]:
    """Improve the policy of `search.task`, one attempt at a time, until there is a reason to stop.

    Yields attempts as they are scored, starting with random actions as number 0, or after the last attempt of `search`,
    which holds the state. At the end, `search.stopped` is the reason: all iterations are done, a budget is used up, the
    target is reached, or the search makes no progress.

    Args:
        request_log: sends the proposer's requests, or returns their recorded replies.
        runner: plays all episodes, and has the run's settings.

    Raises:
        ProviderError: a request fails for good; `search` holds the results so far.
        TemplateError: the prompt cannot be rendered.
        EnvironmentFault: the environment fails under random actions, or keeps failing (see `assess`).
    """
    config = runner.config
    try:
        if not search.attempts:
            yield search.keep(assess_random_actions(runner))
        while (context := search.next_context(config)) is not None:
            search.validation = confirm_best(search, runner)
            reached = reason_to_stop(search.convincing_score, search.task, config)
            if reason := reached or reason_to_give_up(search.attempts, config):
                search.stopped = reason
                break
            # Unused recorded replies mean that an earlier process was interrupted. In case the user's environment
            # crashed it, other processes play it now.
            runner.simulator.isolated = request_log.has_recorded and runner.simulator.foreign
            runner.ledger.check_episodes(config.episodes)  # to score a proposal
            context = replace(context, comments=request_log.comments_for(context.number))
            prompt = render_prompt(context, config, search.turns)
            if not all(comment[:_IDENTIFYING] in prompt.messages[-1].content for comment in context.comments):
                request_log.tell(f"template {improve_template(config)} does not show comments; {_ADD}")
            proposal = proposer.propose(prompt, context, request_log)
            with announced_if_slow(f"playing attempt {proposal.number}"):
                assessment = assess(proposal, search, runner)
            yield search.keep(assessment)
            if config.conversation == "continued":  # otherwise no prompt contains earlier turns
                search.turns += conversation_turn(proposal.exchanges)
        else:
            count = config.iterations
            search.stopped = f"all {count} iterations are done" if count > 1 else "the only iteration is done"
    except BudgetExhausted as error:
        search.stopped = str(error)
    # Use the remaining episodes to tune an earlier policy that was still improving, and the best; no model is asked.
    with suppress(BudgetExhausted):
        while (following := _next_tuning(search, runner)) is not None:
            chosen, trials = following
            proposal = Proposal(len(search.attempts), ParseResult(chosen.policy, ()), ())
            with announced_if_slow(f"tuning the best policy further, as attempt {proposal.number}"):
                assessment = assess(proposal, search, runner, trials)
            yield search.keep(assessment)
    with suppress(BudgetExhausted, EnvironmentFault):
        yield from _close(search, runner)
    if search.attempts:
        search.replace_last(runner.with_final_counts(search.attempts[-1]))


def _close(search: Search, runner: EpisodeRunner) -> Iterator[Attempt]:
    """Yield an attempt for each closing that has a result; its policy, if any, becomes the best."""
    for kind, entry in CLOSINGS.items():
        if search.incumbent is None or search.attempts[-1].kind == kind:
            continue
        started, number = time.perf_counter(), len(search.attempts)
        try:
            found = resolved(entry)(search, runner)
        finally:
            runner.tell(None)
        if found is None:
            continue
        attempt = Attempt(number, None, None, kind=kind, verdict=found.words)
        if found.policy is None:
            attempt = runner.with_spending(attempt, started)
            yield search.keep(Assessment(attempt, (), search.best_score, search.validation))
            continue
        performance = runner.perform(number, found.policy)
        attempt = replace(with_performance(attempt, found.policy, performance, found.race), accepted=True)
        assert performance.score is not None
        validation = validation_score(found.policy, performance.score, runner)
        attempt = runner.with_spending(attempt, started)
        yield search.keep(Assessment(attempt, performance.trajectories, performance.score, validation))


def _next_tuning(search: Search, runner: EpisodeRunner) -> tuple[Attempt, Trials] | None:
    """Return the attempt to tune next and its budget; it depends only on the attempts, so resuming chooses the same."""
    best, number = search.best, len(search.attempts)
    if best is None or runner.config.refine.method is None or search.best_score is None or search.best_score.exact:
        return None
    if reason_to_stop(search.convincing_score, search.task, runner.config):
        return None
    unfinished = best_unfinished(search.attempts)
    since_reply = itertools.takewhile(lambda attempt: not attempt.is_asked, reversed(search.attempts))
    due = 1 + (unfinished is not None) - sum(attempt.kind == "tuning" for attempt in since_reply)
    if due == 2 and unfinished is not None and (trials := runner.last_trials(number, due)) is not None:
        return unfinished, trials
    trials = runner.last_trials(number, 1) if due > 0 else None
    return (best, trials) if trials is not None else None


def reason_to_stop(unbiased: Score | None, task: Task, config: RunConfig) -> str:
    """Return why a run stops at this score, as a sentence; empty if it goes on."""
    target = target_score(task, config)
    if not reaches(unbiased, target, NEGLIGIBLE if config.stop_at is None else 0.0):
        return ""
    return f"the {'best known score' if config.stop_at is None else 'score to stop at'}, {target:.6g}, was reached"


def reason_to_give_up(attempts: Sequence[Attempt], config: RunConfig) -> str:
    """Return why a run stops after these attempts, as a sentence; empty if it goes on."""
    asked = [attempt for attempt in attempts if attempt.is_asked and attempt.number > 0]
    resigned = len(list(itertools.takewhile(lambda attempt: attempt.kind == "resignation", reversed(asked))))
    if resigned >= min(RESIGNATIONS, config.patience or RESIGNATIONS):
        return f"the model saw no improvement, {resigned} {'reply' if resigned == 1 else 'replies'} in a row"
    best = best_of(attempts)
    since = sum(best is None or attempt.number > best.number for attempt in asked)
    if config.patience is not None and since >= config.patience:
        return f"{since} attempts in a row brought no new best (--patience {config.patience})"
    return ""


def best_unfinished(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the best attempt among those whose tuning ended while it was still improving; None without any.

    Policies that differ from the run's best only in their numbers are left out, because tuning continues from the best;
    so are former bests, which later attempts have revised.
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
