"""Questions that go out together: within the budget, on record before they are sent, waiting when a server says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

from policygen.errors import BudgetExhausted
from policygen.llm import LLMOptions, Provider
from policygen.llm.base import Keyed
from policygen.llm.cache import Cache, question
from policygen.llm.messages import Exchange, FailedExchange, Prompt, Reply
from policygen.llm.prices import cost
from policygen.llm.retry import Wait, ask
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.request_log import llm_options, seeded

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Record:
    """Who writes down what is asked: `sent` before every single request, `exchanged` when it was answered or failed."""

    sent: Callable[[int, int], None] = lambda number, request: None
    exchanged: Callable[[Exchange | FailedExchange], None] = lambda exchange: None


@dataclass(frozen=True, slots=True)
class _Held:
    """What a request under way may cost at most."""

    tokens_in: int
    tokens_out: int
    usd: float


class Asker:
    """Asks one provider, from several threads at a time.

    A request that is under way holds what it may cost at most, so that requests side by side exceed no budget together;
    near the end of a budget they go one by one. The first goes alone: what the model does not take shows once. After a
    wait that a server asks for, or that a passing fault needs, nobody sends anything until it is over.

    Args:
        concurrency: requests under way at a time; one for a provider that is no server, a person for one.
        cache: where answers are looked up before anybody is asked, and kept; the same question is the same answer.
        record: who writes down what is asked.
    """

    def __init__(
        self,
        provider: Provider,
        config: RunConfig,
        *,
        concurrency: int = 1,
        cache: Cache | None = None,
        record: Record | None = None,
        tell: Callable[[Wait], None] = lambda wait: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.provider = provider
        self.ledger = Ledger(config)
        self.concurrency = concurrency if isinstance(provider, Keyed) else 1
        self._config = config
        self._options: LLMOptions = llm_options(config)
        self._cache = cache if provider.is_language_model else None
        self._record = record or Record()
        self._tell = tell
        self._sleep = sleep
        self._free = threading.Condition()  # guards the ledger, the record and what follows
        self._under_way = 0
        self._answered = False
        self._not_before = 0.0  # seconds since the epoch

    def together(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """`work`, which asks, on each of the items, side by side; the results in their order.

        Raises:
            PolicygenError: what one of them raises, the first in their order; those under way are waited for first.
        """
        alone = len(items) if self.concurrency == 1 else 0 if self._answered else 1
        results = [work(item) for item in items[:alone]]
        rest = items[alone:]
        if not rest:
            return results
        with ThreadPoolExecutor(min(self.concurrency, len(rest))) as executor:
            futures = [executor.submit(work, item) for item in rest]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                # What was not begun is not asked any more; what is under way is paid for, and its answer kept.
                for future in futures:
                    future.cancel()
        for future in futures:
            if not future.cancelled() and (error := future.exception()) is not None:
                raise error
        return results + [future.result() for future in futures]

    def ask(self, number: int, request: int, prompt: Prompt) -> Exchange:
        """The answer to question `number`; `request` is 0, or 1 for its repair.

        Raises:
            BudgetExhausted: it cannot be afforded.
            ProviderError: the provider cannot be asked; the failed exchange is on record.
        """
        prompt = seeded(prompt, self._config, 0, request)
        asked = question(self.provider, self._options, prompt, seed=self._config.seed, attempt=0, request=request)
        known = self._cache.get(asked) if self._cache is not None and asked is not None else None
        if known is not None:
            with self._free:
                return self._charged(number, request, prompt, known, 0)
        held = self._hold(prompt)
        tries = 0

        def charge() -> None:
            nonlocal tries
            if (seconds := self._not_before - time.time()) > 0:
                self._sleep(seconds)
            with self._free:
                self.ledger.charge_call()
                tries += 1
                self._record.sent(number, request)

        try:
            reply = ask(
                self.provider,
                prompt,
                charge=charge,
                max_output_tokens=held.tokens_out,
                options=self._options,
                sleep=self._sleep,
                on_wait=self._waits,
            )
        except BaseException as error:
            with self._free:
                self._release(held)
                if tries:
                    failed = FailedExchange(number, request, prompt, tries, str(error) or "interrupted")
                    self._record.exchanged(failed)
            raise
        with self._free:
            self._release(held)
            self._answered = True
            exchange = self._charged(number, request, prompt, reply, tries)
        # What a nearly used-up budget cut short is no answer for whoever has more.
        cut_short = reply.truncated and held.tokens_out < self._config.max_output_tokens
        if self._cache is not None and asked is not None and not cut_short:
            self._cache.put(asked, reply)
        return exchange

    def _charged(self, number: int, request: int, prompt: Prompt, reply: Reply, tries: int) -> Exchange:
        tokens = self.ledger.charge_reply(prompt, reply)
        exchange = Exchange(number, request, prompt, reply, tries, *tokens)
        self._record.exchanged(exchange)
        return exchange

    def _hold(self, prompt: Prompt) -> _Held:
        """What the request may cost at most, held until it is answered.

        Raises:
            BudgetExhausted: it cannot be afforded, and nothing under way could give back what it holds.
        """
        with self._free:
            while self._under_way and not self._has_room(prompt):
                self._free.wait()
            allowance = self.ledger.reply_allowance(prompt)
            most = self._most(prompt, allowance) if self.ledger.holds_cost else 0.0
            self.ledger.check_cost(most)
            held = _Held(self.ledger.expected_tokens(prompt), allowance, most or 0.0)
            self._under_way += 1
            self._count(held, 1)
            return held

    def _release(self, held: _Held) -> None:
        self._under_way -= 1
        self._count(held, -1)
        self._free.notify_all()

    def _count(self, held: _Held, sign: int) -> None:
        self.ledger.tokens_in += sign * held.tokens_in
        self.ledger.tokens_out += sign * held.tokens_out
        if self.ledger.usd is not None and held.usd:
            self.ledger.usd += sign * held.usd

    def _has_room(self, prompt: Prompt) -> bool:
        try:
            allowance = self.ledger.reply_allowance(prompt)
            if self.ledger.holds_cost:
                self.ledger.check_cost(self._most(prompt, allowance))
        except BudgetExhausted:
            return False
        return allowance >= self._config.max_output_tokens

    def _most(self, prompt: Prompt, allowance: int) -> float | None:
        spec, model = self.provider.spec, self.provider.model
        return cost(self._options, spec, (model,), self.ledger.expected_tokens(prompt), allowance)

    def _waits(self, wait: Wait) -> None:
        if wait.reason and wait.until is not None:
            with self._free:
                self._not_before = max(self._not_before, wait.until)
            self._tell(wait)
