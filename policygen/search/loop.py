"""The loop: play, prompt, propose, assess, keep the best; at the end, tune with the episodes that are left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.exact import finite_mdp
from policygen.errors import BudgetExhausted
from policygen.policies.parse import ParseResult
from policygen.prompts.render import render_prompt
from policygen.proposers.proposer import Proposal, Proposer
from policygen.runs.attempt import Attempt
from policygen.runs.config import RunConfig
from policygen.runs.request_log import RequestLog, conversation_turn
from policygen.runs.state import Search
from policygen.search.assess import assess, assess_random_actions, confirm_best
from policygen.search.judge import best_unfinished, reason_to_give_up, reason_to_stop
from policygen.search.refine.tunable import Trials
from policygen.search.runner import EpisodeRunner
from policygen.search.steer import check_shown, wait_and_comment
from policygen.tasks.task import Task


def new_search(task: Task, config: RunConfig) -> Search:
    """Return an empty search for a run."""
    return Search(task, ReplayBuffer(config.buffer_steps), finite_mdp(task))


def optimize(search: Search, proposer: Proposer, request_log: RequestLog, runner: EpisodeRunner) -> Iterator[Attempt]:
    """Improve the policy of `search.task`, one attempt at a time, until there is a reason to stop.

    Yields attempts as they are scored; the first, number 0, is random actions. `search` holds the state. At the end,
    `search.stopped` is the reason: all iterations are done, a budget is used up, the target is reached, or the search
    makes no progress. A search that already has attempts continues after its last attempt.

    Args:
        request_log: sends every request of the proposer, or returns its recorded reply.
        runner: plays every episode, and has the settings of the run.

    Raises:
        ProviderError: a request fails for good; `search` holds the results so far.
        TemplateError: the prompt cannot be rendered.
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
            # Unused recorded replies mean that an earlier process was interrupted. If the user's environment crashed
            # it, this process survives only if others play the environment.
            runner.players.isolated = request_log.has_recorded and runner.players.foreign
            runner.ledger.check_affordable(config.episodes)
            context = wait_and_comment(context, request_log)
            prompt = render_prompt(context, config, search.earlier_turns(config))
            check_shown(context, prompt, config, request_log)
            proposal = proposer.propose(prompt, context, request_log)
            yield search.keep(assess(proposal, search, runner))
            if config.conversation == "continued":  # else no prompt carries them
                search.turns += conversation_turn(proposal.exchanges)
        else:
            search.stopped = f"all {config.iterations} iterations are done"
    except BudgetExhausted as error:
        search.stopped = str(error)
    # With the episodes left, tune an earlier policy that was still improving, then the best; no model is asked.
    with suppress(BudgetExhausted):
        while (following := _next_tuning(search, runner)) is not None:
            chosen, trials = following
            proposal = Proposal(len(search.attempts), ParseResult(chosen.policy, (), chosen.coverage), ())
            yield search.keep(assess(proposal, search, runner, trials))
    if search.attempts:
        search.replace_last(runner.with_final_counts(search.attempts[-1]))


def _next_tuning(search: Search, runner: EpisodeRunner) -> tuple[Attempt, Trials] | None:
    """Return the next attempt to tune and its budget; the choice depends only on the attempts, as resuming needs."""
    best, number = search.best, len(search.attempts)
    if best is None or runner.config.refine.method is None or search.best_score is None or search.best_score.exact:
        return None
    if reason_to_stop(search.convincing_score, search.task, runner.config):
        return None
    unfinished = best_unfinished(search.attempts)
    due = 1 + (unfinished is not None) - sum(attempt.kind == "tuning" for attempt in search.attempts)
    if due == 2 and unfinished is not None and (trials := runner.last_trials(number, due)) is not None:
        return unfinished, trials
    trials = runner.last_trials(number, 1) if due > 0 else None
    return (best, trials) if trials is not None else None
