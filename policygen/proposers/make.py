"""The choice of a run's proposer: one model, several that take turns, or a plain search.

`make_proposer` is the one place that asks whether a provider is a language model.
"""

from __future__ import annotations

from dataclasses import replace

from policygen.llm import LLMOptions, Provider, Several
from policygen.llm.messages import Prompt
from policygen.llm.prices import cost
from policygen.proposers.builtin import PlainSearch
from policygen.proposers.proposer import LanguageModel, Proposal, Proposer
from policygen.runs.config import RunConfig
from policygen.runs.request_log import RequestLog, llm_options
from policygen.runs.state import Context
from policygen.runs.turns import whose_turn
from policygen.tasks.task import Task


def make_proposer(provider: Provider, config: RunConfig) -> Proposer:
    """Return the proposer for a run with these settings."""
    if isinstance(provider, Several):
        return Team(provider, config)
    return LanguageModel(provider, config) if provider.is_language_model else PlainSearch(provider, config)


class Team:
    """Asks the model whose turn it is (see `runs.turns`); each attempt records which it was."""

    is_language_model = True

    def __init__(self, several: Several, config: RunConfig) -> None:
        self.provider: Provider = several
        self.introduction = several.spec
        self._config = config
        self._members = {
            provider.spec: LanguageModel(provider, config, options=_options(provider, config))
            for provider in several.providers
        }

    def check(self, task: Task) -> None:
        """Refuse a cost limit that cannot be enforced.

        Raises:
            UsageError: a model's price is unknown.
        """
        for member in self._members.values():
            member.check(task)

    def propose(self, prompt: Prompt, context: Context, request_log: RequestLog) -> Proposal:
        """Return a policy for attempt `context.number` by the model whose turn it is; see `LanguageModel.propose`."""
        chosen = whose_turn(context.number, context.attempts, tuple(self._members), self._config)
        return self._members[chosen].propose(prompt, context, request_log)


def _options(provider: Provider, config: RunConfig) -> LLMOptions:
    """Return the run's options; prices that the user states apply only to models whose price is not known."""
    options = replace(llm_options(config), price_in=None, price_out=None)
    known = cost(options, provider.spec, (provider.model,), 1, 1) is not None
    return options if known else llm_options(config)
