"""What is asked and answered: requests within the budget, recorded as they happen, replayed when a run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from policygen.errors import BudgetExhausted, ProviderError
from policygen.llm import LLMOptions, Provider
from policygen.llm.messages import Prompt, Reply
from policygen.llm.prices import cost
from policygen.llm.retry import ask
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request, the reply to it, the tries it took and the tokens charged."""

    attempt: int
    request: int
    prompt: Prompt
    reply: Reply
    requests: int
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True)
class FailedExchange:
    """A request that was never answered, and why; its tries are charged like any other."""

    attempt: int
    request: int
    prompt: Prompt
    requests: int
    error: str


class Correspondent:
    """Talks to one provider for a run: within the budget, recorded, answers of an interrupted run first.

    Args:
        recorded: exchanges that an interrupted run had paid for but not yet used, in order.
        on_exchange: called with every new exchange as soon as it is there, before anything else can fail.
    """

    def __init__(
        self,
        provider: Provider,
        ledger: Ledger,
        *,
        recorded: Sequence[Exchange | FailedExchange] = (),
        on_exchange: Callable[[Exchange | FailedExchange], None] = lambda exchange: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.provider = provider
        self.ledger = ledger
        self._recorded = list(recorded)
        self._on_exchange = on_exchange
        self._sleep = sleep
        self._options = llm_options(ledger.config)

    def ask(self, attempt: int, request: int, prompt: Prompt) -> Exchange:
        """One reply to `prompt`.

        Raises:
            BudgetExhausted: the call would exceed a budget.
            ProviderError: the provider cannot be asked; the failed exchange is recorded.
        """
        before = self.ledger.calls
        while self._recorded:
            earlier = self._recorded.pop(0)
            for _ in range(earlier.requests):
                self.ledger.charge_call()
            if isinstance(earlier, Exchange):
                tokens = self.ledger.charge_reply(prompt, earlier.reply)
                return Exchange(attempt, request, prompt, earlier.reply, self.ledger.calls - before, *tokens)
        unanswered = self.ledger.calls - before
        allowance = self._allowance(prompt)
        try:
            reply = ask(
                self.provider,
                prompt,
                charge=self.ledger.charge_call,
                max_output_tokens=allowance,
                options=self._options,
                sleep=self._sleep,
            )
        except (ProviderError, BudgetExhausted, KeyboardInterrupt) as error:
            requests = self.ledger.calls - before - unanswered
            if requests:
                self._on_exchange(FailedExchange(attempt, request, prompt, requests, str(error) or "interrupted"))
            raise
        tokens = self.ledger.charge_reply(prompt, reply)
        exchange = Exchange(attempt, request, prompt, reply, self.ledger.calls - before - unanswered, *tokens)
        self._on_exchange(exchange)
        # What an interrupted run asked in vain has lines of its own in the log, and is this attempt's all the same.
        return replace(exchange, requests=exchange.requests + unanswered)

    def _allowance(self, prompt: Prompt) -> int:
        """Tokens the reply to `prompt` may have, where it can be afforded at all; a search without a model uses none.

        Raises:
            BudgetExhausted: it cannot.
        """
        if not self.provider.is_language_model:
            return self.ledger.config.max_output_tokens
        allowance = self.ledger.reply_allowance(prompt)
        if self.ledger.config.max_usd is not None:
            name = self.provider.spec.partition(":")[0]
            expected = self.ledger.expected_tokens(prompt)
            self.ledger.check_cost(cost(self._options, name, (self.provider.model,), expected, allowance))
        return allowance


def llm_options(config: RunConfig) -> LLMOptions:
    """What a run's settings say about reaching the model."""
    return LLMOptions(
        base_url=config.base_url,
        temperature=config.temperature,
        max_output_tokens=config.max_output_tokens,
        timeout_seconds=config.timeout_seconds,
        price_in=config.price_in,
        price_out=config.price_out,
    )
