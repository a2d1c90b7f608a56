"""Ask a model for a policy, read the reply, and ask for a repair while it cannot be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from policygen.budget import Ledger
from policygen.config import RunConfig
from policygen.drafts import Problem
from policygen.errors import BudgetExhausted, ProviderError
from policygen.language import Parsed, parse
from policygen.llm import LLMOptions, Provider
from policygen.llm.prices import cost
from policygen.llm.retry import ask
from policygen.messages import Message, Prompt, Reply
from policygen.prompts import render_repair
from policygen.search import Context

CUT_OFF = Problem(
    None, "the reply was cut off by its length limit", "think briefly and write the whole policy in fewer lines"
)


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


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a model proposed: a policy or problems, and the exchanges it took.

    `turns` is what a continued conversation remembers: the request and the last reply. `stopped` is the reason if a
    budget ended before the reply could be repaired.
    """

    parsed: Parsed
    exchanges: tuple[Exchange, ...]
    turns: tuple[Message, ...]
    stopped: str = ""


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


def propose(correspondent: Correspondent, number: int, prompt: Prompt, context: Context, config: RunConfig) -> Proposal:
    """A policy for attempt `number`, or the problems that remain after `config.repairs` repairs.

    Raises:
        BudgetExhausted: not even the first request is affordable.
        ProviderError: the model cannot be asked.
    """
    exchanges: list[Exchange] = []
    parsed, reply, stopped = Parsed(None, ()), None, ""
    current = prompt
    for round_ in range(config.repairs + 1):
        if reply is not None:
            current = render_repair(current, reply.text, parsed.problems, context, config)
        try:
            exchange = correspondent.ask(number, round_, current)
        except BudgetExhausted as error:
            if not exchanges:
                raise
            stopped = str(error)
            break
        exchanges.append(exchange)
        reply = exchange.reply
        parsed = _read(reply, context, config)
        if parsed.policy is not None:
            break
    return Proposal(parsed, tuple(exchanges), _turns(prompt, exchanges[-1].reply), stopped)


def _turns(prompt: Prompt, reply: Reply) -> tuple[Message, ...]:
    return prompt.messages[-1], Message("assistant", reply.text or "(empty)")


def _read(reply: Reply, context: Context, config: RunConfig) -> Parsed:
    parsed = parse(
        reply.text,
        context.task,
        context.kind,
        context.incumbent,
        free_grid=config.grid == "free",
        definitions={definition.name: definition.node for definition in context.definitions},
    )
    if reply.truncated:
        # Even if what arrived happens to read as a policy, its last row may be half a row.
        return Parsed(None, (CUT_OFF, *parsed.problems))
    return parsed
