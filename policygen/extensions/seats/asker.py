"""The questions of a seat to one provider, several of them under way at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

from policygen.llm import Provider
from policygen.llm.base import Keyed
from policygen.llm.cache import Cache
from policygen.llm.messages import Exchange, FailedExchange, Prompt
from policygen.llm.retry import Wait
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.listeners import Activity
from policygen.runs.request_log import RequestLog

T = TypeVar("T")
R = TypeVar("R")


@dataclass(eq=False)
class Asker:
    """Asks one provider, from several threads at a time; see `RequestLog`.

    The first request goes alone: what the model does not take shows once.

    Args:
        concurrency: requests under way at a time; one for a provider that is no server, a person for one.
        cache: the same question is the same answer, in whatever episode.
        tell: told of the waits that servers ask for.
    """

    provider: Provider
    config: RunConfig
    _: KW_ONLY
    concurrency: int = 1
    cache: Cache | None = None
    on_exchange: Callable[[Exchange | FailedExchange], None] = lambda exchange: None
    on_sent: Callable[[int, int], None] = lambda number, request: None
    tell: Callable[[Wait], None] = lambda wait: None
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        def told(activity: Activity | None) -> None:
            if isinstance(activity, Wait) and activity.reason:
                self.tell(activity)

        self.ledger = Ledger(self.config)
        self.concurrency = self.concurrency if isinstance(self.provider, Keyed) else 1
        self._log = RequestLog(
            self.ledger,
            on_exchange=self.on_exchange,
            on_sent=self.on_sent,
            tell=told,
            cache=self.cache,
            by_attempt=False,
            sleep=self.sleep,
        )
        self._answered = False

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
        """The answer to question `number`, see `RequestLog.ask`; `request` is 0, or 1 for its repair."""
        exchange = self._log.ask(self.provider, number, request, prompt)
        self._answered = self._answered or exchange.requests > 0
        return exchange
