"""The loop: play, prompt, propose, score, keep the best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.exact import finite_mdp
from policygen.episodes.players import Players
from policygen.errors import BudgetExhausted
from policygen.prompts.render import render_prompt
from policygen.roles.proposer import Proposal, propose
from policygen.runs.config import RunConfig
from policygen.runs.correspondence import Correspondent
from policygen.runs.example import Example
from policygen.runs.state import Attempt, Search
from policygen.search.judge import Judge
from policygen.tasks.task import Task


def new_search(task: Task, config: RunConfig, example: Example | None = None) -> Search:
    """An empty search for a run."""
    return Search(task, ReplayBuffer(config.buffer_steps), finite_mdp(task), example)


def optimize(search: Search, config: RunConfig, correspondent: Correspondent) -> Iterator[Attempt]:
    """Improve the policy of `search.task`, one attempt at a time, until the iterations, a budget or the task end.

    Yields attempts as they are scored, the first being number 0: random actions. `search` holds the state in between,
    and the reason for stopping afterwards; a search that already has attempts goes on after its last whole iteration.

    Raises:
        ProviderError: the model cannot be asked; what was found so far is in `search`.
        TemplateError: the prompt cannot be rendered.
    """
    ledger = correspondent.ledger
    with Players(search.task, config.jobs) as players:
        judge = Judge(search, config, ledger, players, told_units=correspondent.provider.is_language_model)
        try:
            if not search.attempts:
                yield judge.random_actions()
            _end_of_budget(search)
            for iteration in range((len(search.attempts) - 1) // config.candidates, config.iterations):
                if judge.nothing_left_to_gain():
                    search.stopped = "the best possible score was reached"
                    return
                judge.reserve_episodes()
                first = iteration * config.candidates + 1
                earlier = search.turns if config.conversation == "continued" else []
                context = search.context(first, config)
                contexts = [replace(context, number=first + k) for k in range(config.candidates)]
                proposals: list[Proposal] = []
                stopped = ""
                for context in contexts:
                    prompt = render_prompt(context, config, earlier)
                    try:
                        proposals.append(propose(correspondent, context.number, prompt, context, config))
                    except BudgetExhausted as error:
                        stopped = str(error)  # what was proposed, and paid for, is scored before the run ends
                        break
                for context, proposal in zip(contexts, proposals, strict=False):
                    yield judge.assess(context.number, proposal)
                if stopped:
                    raise BudgetExhausted(stopped)
                search.turns += proposals[0].turns
                _end_of_budget(search)
            search.stopped = f"all {config.iterations} iterations are done"
        except BudgetExhausted as error:
            search.stopped = str(error)


def _end_of_budget(search: Search) -> None:
    """End the run if an attempt used up a budget; the attempts know, so that a resumed run ends there too."""
    if stopped := next((attempt.stopped for attempt in search.attempts if attempt.stopped), ""):
        raise BudgetExhausted(stopped)
