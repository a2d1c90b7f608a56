"""The choice of a run's proposer: one model, several that take turns, or a plain search.

`make_proposer` is the one place that asks whether a provider is a language model.
"""

from __future__ import annotations

from dataclasses import replace

from policygen.errors import PolicyError
from policygen.llm import LLMOptions, Provider, ProviderPool
from policygen.llm.messages import Prompt
from policygen.llm.prices import cost
from policygen.policies.parse import ParseResult, parse
from policygen.proposers.builtin import PlainSearch
from policygen.proposers.proposer import LanguageModel, Proposal, Proposer
from policygen.runs.attempt import START
from policygen.runs.config import RunConfig
from policygen.runs.request_log import RequestLog, llm_options
from policygen.runs.state import Context
from policygen.runs.turns import choose_model
from policygen.tasks.task import KIND_WORDS, Task


def make_proposer(provider: Provider, config: RunConfig) -> Proposer:
    """Return the proposer for a run with these settings."""
    made: Proposer
    if isinstance(provider, ProviderPool):
        made = Team(provider, config)
    else:
        made = LanguageModel(provider, config) if provider.is_language_model else PlainSearch(provider, config)
    return Started(made, config) if config.start else made


class Started:
    """Proposes the policy that the user starts from (`--start`), and then what another proposer does."""

    def __init__(self, then: Proposer, config: RunConfig) -> None:
        self.provider = then.provider
        self.introduction = f"the policy given with --start, then {then.introduction}"
        self.is_language_model = then.is_language_model
        self._then, self._config = then, config

    def check(self, task: Task) -> None:
        """Refuse a start that is no policy for the task.

        Raises:
            PolicyError: it has problems; all are listed with their lines.
            UsageError: the other proposer cannot be used.
        """
        self._then.check(task)
        parsed = self._parsed(task)
        if parsed.policy is None:
            found = "\n".join(f"  {problem}" for problem in parsed.problems)
            kind = KIND_WORDS[self._config.policy]
            raise PolicyError(f"--start: it cannot be read as a policy of this run (--policy {kind}):\n{found}")

    def propose(self, prompt: Prompt, context: Context, request_log: RequestLog) -> Proposal:
        """Return the given policy for attempt 1, and later what the other proposer proposes."""
        if context.number == 1:
            return Proposal(1, self._parsed(context.task), (), model=START)
        return self._then.propose(prompt, context, request_log)

    def _parsed(self, task: Task) -> ParseResult:
        return parse(self._config.start or "", task, self._config.policy)


class Team:
    """Asks the model whose turn it is (see `runs.turns`); each attempt records which it was."""

    is_language_model = True

    def __init__(self, several: ProviderPool, config: RunConfig) -> None:
        self.provider: Provider = several
        self.introduction = several.spec
        self._config = config
        self._members = {
            provider.spec: LanguageModel(provider, config, options=_options(provider, config))
            for provider in several.providers
        }

    def check(self, task: Task) -> None:
        """Refuse a cost limit that cannot be enforced; see `LanguageModel.check`."""
        for member in self._members.values():
            member.check(task)

    def propose(self, prompt: Prompt, context: Context, request_log: RequestLog) -> Proposal:
        """Return a policy for attempt `context.number` by the model whose turn it is; see `LanguageModel.propose`."""
        chosen = choose_model(context.number, context.attempts, tuple(self._members), self._config)
        return self._members[chosen].propose(prompt, context, request_log)


def _options(provider: Provider, config: RunConfig) -> LLMOptions:
    """Return the run's options; prices that the user states apply only to models whose price is not known."""
    options = replace(llm_options(config), price_in=None, price_out=None)
    known = cost(options, provider.spec, provider.model, 1, 1) is not None
    return options if known else llm_options(config)
