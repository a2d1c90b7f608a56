"""The choice of a run's proposer: one language model, several that take turns, or a search without a model."""

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
    """A proposer that first proposes the policy given with `--start`, and then asks another proposer."""

    def __init__(self, then: Proposer, config: RunConfig) -> None:
        self.provider = then.provider
        self.introduction = f"the policy given with --start, then {then.introduction}"
        self.is_language_model = then.is_language_model
        self._then, self._config = then, config

    def check(self, task: Task) -> None:
        """Refuse a given text that is not a policy for the task.

        Raises:
            PolicyError: the text has problems; the message lists all with their lines.
            UsageError: the other proposer cannot be used.
        """
        self._then.check(task)
        parsed = self._parsed(task)
        if parsed.policy is None:
            found = "\n".join(f"  {problem}" for problem in parsed.problems)
            kind = KIND_WORDS[self._config.policy]
            raise PolicyError(f"--start: the text cannot be read as a policy of this run (--policy {kind}):\n{found}")

    def propose(self, prompt: Prompt, context: Context, request_log: RequestLog) -> Proposal:
        """Return the given policy for attempt 1, and the other proposer's proposal for later attempts."""
        if context.number == 1:
            return Proposal(1, self._parsed(context.task), (), model=START)
        return self._then.propose(prompt, context, request_log)

    def _parsed(self, task: Task) -> ParseResult:
        return parse(self._config.start or "", task, self._config.policy)


class Team:
    """A proposer that asks the language model whose turn it is (see `runs.turns`); each attempt records which."""

    is_language_model = True

    def __init__(self, pool: ProviderPool, config: RunConfig) -> None:
        self.provider: Provider = pool
        self.introduction = pool.spec
        self._config = config
        self._members = {
            provider.spec: LanguageModel(provider, config, options=_options(provider, config))
            for provider in pool.providers
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
    """Return the run's options, without the prices that the user states if the model's price is known."""
    stated = llm_options(config)
    listed = replace(stated, price_in=None, price_out=None)
    return listed if cost(listed, provider.spec, provider.model, 1, 1) is not None else stated
