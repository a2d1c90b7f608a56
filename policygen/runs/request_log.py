"""Requests and replies: charged and recorded as they happen, replayed when a run is resumed."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from policygen.errors import BudgetExhausted
from policygen.llm import LLMOptions, Provider
from policygen.llm.cache import Cache, CacheKey, cache_key
from policygen.llm.messages import Exchange, FailedExchange, Message, Prompt, Reply
from policygen.llm.prices import cost
from policygen.llm.retry import Wait, ask
from policygen.runs.budget import Hold, Ledger, Price
from policygen.runs.config import RequestSettings, RunConfig
from policygen.runs.listeners import Activity, ignore_activity
from policygen.runs.steering import Steering

MOST_IDEA = 160  # characters of the sentence that describes an attempt
MOST_READ = 20_000  # characters of a reply that are searched for that sentence
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_END = re.compile(r"(?<=[.!?])\s")


@dataclass(frozen=True, slots=True)
class _Request:
    """One request of an attempt or question: its provider, prompt and options."""

    provider: Provider
    number: int
    request: int
    prompt: Prompt
    options: LLMOptions

    def exchange_with(self, reply: Reply, requests: int, *tokens: int) -> Exchange:
        return Exchange(self.number, self.request, self.prompt, reply, requests, *tokens)


@dataclass(eq=False)
class RequestLog:
    """The only sender of requests to models: it uses recorded replies first, then cached ones, then asks the model.

    Every request is charged and recorded before it is sent, and its result is recorded afterwards. Several threads may
    ask. The maximum cost of each unfinished request is reserved, so that together they exceed no budget. If the budget
    left does not cover another reply of full length, requests are sent one at a time. While a request waits before a
    retry, no other request is sent.

    Args:
        recorded: exchanges that an interrupted run had paid for but not yet used.
        tell: called with waiting and other long-running activities.
        steering: the user's messages to the run.
        cache: stores answers of language models; looked up before a request.
        by_attempt: whether the cache key and the model's seed include the attempt's number; if not, equal requests of
            two attempts count as the same.
        on_exchange: called immediately with every new exchange, before anything else can fail. Failed exchanges are
            reported only for language models: another provider costs nothing and is asked again.
        on_sent: called with the attempt and the number of its request before every single request to a model is sent.
    """

    ledger: Ledger
    _: KW_ONLY
    recorded: Sequence[Exchange | FailedExchange] = ()
    on_exchange: Callable[[Exchange | FailedExchange], None] = lambda exchange: None
    on_sent: Callable[[int, int], None] = lambda attempt, request: None
    tell: Callable[[Activity | None], None] = ignore_activity
    cache: Cache | None = None
    steering: Steering | None = None
    by_attempt: bool = True
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._recorded: dict[tuple[int, int], list[Exchange | FailedExchange]] = {}
        for exchange in self.recorded:
            self._recorded.setdefault((exchange.attempt, exchange.request), []).append(exchange)
        self._free = threading.Condition()  # guards the ledger, the records and what follows
        self._not_before = 0.0  # seconds since the epoch

    @property
    def repeats(self) -> bool:
        """Whether requests from before an interruption, answered or failed, are still to be repeated."""
        return bool(self._recorded)

    @property
    def answered(self) -> bool:
        """Whether at least one of the requests to be repeated has a reply on record."""
        return any(isinstance(earlier, Exchange) for some in self._recorded.values() for earlier in some)

    def ask(
        self, provider: Provider, number: int, request: int, prompt: Prompt, options: LLMOptions | None = None
    ) -> Exchange:
        """Return the reply to request `request` (0, or the number of the repair) of attempt or question `number`.

        Args:
            options: the options of the request; by default those of the run's settings.

        Raises:
            BudgetExhausted: it cannot be afforded.
            ProviderError: the provider cannot be asked; the failed exchange is recorded.
        """
        config = self.ledger.config
        always = getattr(provider, "always_seeded", False)
        seeded_prompt = seeded(prompt, config, self._attempt_in_key(number), request, always=always)
        asked = _Request(provider, number, request, seeded_prompt, options or llm_options(config))
        exchange, failed = self._on_record(asked)
        if exchange is None:
            key = self._key(asked)
            exchange = self._in_cache(asked, key) or self._send(asked, key)
        # Add the failed requests of the interrupted run to this attempt; the transcript has a line for each.
        return replace(exchange, requests=exchange.requests + failed)

    def _on_record(self, asked: _Request) -> tuple[Exchange | None, int]:
        """Return the answer from before an interruption and the number of failed requests, all charged again."""
        failed = 0
        for earlier in self._recorded.pop((asked.number, asked.request), ()):
            for _ in range(earlier.requests):
                self.ledger.charge_call()
            if isinstance(earlier, Exchange):
                tokens = self.ledger.charge_reply(asked.prompt, earlier.reply)
                return asked.exchange_with(earlier.reply, earlier.requests, *tokens), failed
            failed += earlier.requests
        return None, failed

    def _attempt_in_key(self, number: int) -> int:
        """The attempt's number in the cache key and in the model's seed; 0 if it is left out."""
        return number if self.by_attempt else 0

    def _key(self, asked: _Request) -> CacheKey | None:
        """Return the key of a request in the cache; None if the cache is not used for it."""
        if self.cache is None or not asked.provider.is_language_model:
            return None
        attempt = self._attempt_in_key(asked.number)
        place = {"seed": self.ledger.config.seed, "attempt": attempt, "request": asked.request}
        return cache_key(asked.provider, asked.options, asked.prompt, **place)

    def _in_cache(self, asked: _Request, key: CacheKey | None) -> Exchange | None:
        """Return the cache's answer, charged and recorded; None without one."""
        reply = self.cache.get(key) if self.cache is not None and key is not None else None
        return self._charge_and_record(asked.exchange_with(reply, 0)) if reply is not None else None

    def _send(self, asked: _Request, key: CacheKey | None) -> Exchange:
        if not asked.provider.is_language_model:
            return self._ask_search(asked)
        try:
            exchange, cut_short = self._ask_model(asked)
        finally:
            self.tell(None)
        if self.cache is not None and key is not None and not cut_short:
            self.cache.put(key, exchange.reply)
        return exchange

    def _ask_search(self, asked: _Request) -> Exchange:
        """Ask a provider that is no language model: it costs nothing, and no other request is under way."""
        before = self.ledger.calls
        reply = ask(
            asked.provider,
            asked.prompt,
            charge=self.ledger.charge_call,
            max_output_tokens=self.ledger.config.max_output_tokens,
            options=asked.options,
        )
        return self._charge_and_record(asked.exchange_with(reply, self.ledger.calls - before))

    def _ask_model(self, asked: _Request) -> tuple[Exchange, bool]:
        """Return the exchange, and whether the remaining budget shortened the reply; then the reply is not cached."""
        model, options = asked.provider, asked.options
        hold = self._hold(asked.prompt, lambda *tokens: cost(options, model.spec, model.model, *tokens))
        tries = 0

        def charge() -> None:
            nonlocal tries
            # A request that is alone has already waited before its own retry.
            if len(self.ledger.held) > 1 and (seconds := self._not_before - time.time()) > 0:
                self.sleep(seconds)
            with self._free:
                self.ledger.charge_call()
                self.on_sent(asked.number, asked.request)
                tries += 1

        try:
            reply = ask(
                model,
                asked.prompt,
                charge=charge,
                max_output_tokens=hold.tokens_out,
                options=options,
                sleep=self.sleep,
                on_wait=self._on_wait,
            )
        except BaseException as error:
            with self._free:
                self.ledger.release(hold)
                self._free.notify_all()
                if tries:
                    place = (asked.number, asked.request, asked.prompt)
                    self.on_exchange(FailedExchange(*place, tries, str(error) or "interrupted"))
            raise
        exchange = self._charge_and_record(asked.exchange_with(reply, tries), hold)
        return exchange, reply.truncated and hold.tokens_out < self.ledger.config.max_output_tokens

    def _charge_and_record(self, exchange: Exchange, hold: Hold | None = None) -> Exchange:
        with self._free:
            tokens_in, tokens_out = self.ledger.charge_reply(exchange.prompt, exchange.reply, hold)
            self._free.notify_all()
            exchange = replace(exchange, tokens_in=tokens_in, tokens_out=tokens_out)
            self.on_exchange(exchange)
        return exchange

    def _hold(self, prompt: Prompt, price: Price) -> Hold:
        """Reserve the maximum cost of a request.

        If others are unfinished and the budget covers no reply of full length, wait for them.

        Raises:
            BudgetExhausted: the budget left does not cover it, even when all requests under way have ended.
        """
        with self._free:
            while True:
                try:
                    hold = self.ledger.hold(prompt, price)
                except BudgetExhausted:
                    if not self.ledger.held:
                        raise
                else:
                    if len(self.ledger.held) == 1 or hold.tokens_out >= self.ledger.config.max_output_tokens:
                        return hold
                    self.ledger.release(hold)
                self._free.wait()

    def _on_wait(self, wait: Wait) -> None:
        if wait.reason and wait.until is not None:
            with self._free:
                self._not_before = max(self._not_before, wait.until)
        self.tell(wait)


def turns(exchanges: Sequence[Exchange]) -> tuple[Message, Message]:
    """Return the messages of an attempt that a continued conversation keeps: the request and the last reply."""
    return exchanges[0].prompt.messages[-1], Message("assistant", exchanges[-1].reply.text or "(empty)")


def first_sentence(reply: str) -> str:
    """Return the first sentence of a reply outside its code blocks, on one line of at most MOST_IDEA characters."""
    text = _THOUGHT.sub("", reply[:MOST_READ])
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            if lines:
                break
        elif not fenced and line.strip() and not line.lstrip().startswith(("#", "|", "---")):
            lines.append(line.strip().lstrip("*->• "))
        elif lines:
            break
    words = " ".join("".join(c if c.isprintable() else " " for c in " ".join(lines)).replace("**", "").split())
    sentence = _END.split(words, maxsplit=1)[0]
    return sentence if len(sentence) <= MOST_IDEA else f"{sentence[: MOST_IDEA - 4].rstrip()} ..."


def seeded(prompt: Prompt, config: RunConfig, attempt: int, request: int, *, always: bool = False) -> Prompt:
    """Return `prompt` with a sampling seed, a different one for each attempt and repair of a run.

    The seed is the first 31 bits (some servers take no more) of a SHA-256 of `request_seed`, else the run's seed, with
    the attempt and the request. Without `request_seed` and temperature no seed is sent, unless it `always` is.
    """
    if config.request_seed is None and config.temperature is None and not always:
        return prompt
    base = config.seed if config.request_seed is None else config.request_seed
    digest = hashlib.sha256(f"{base} {attempt} {request}".encode()).digest()
    return replace(prompt, seed=int.from_bytes(digest[:4], "big") >> 1)


def llm_options(config: RunConfig) -> LLMOptions:
    """Return those settings of a run that configure its requests to the model."""
    return LLMOptions(
        **{name: getattr(config, name) for name in RequestSettings.model_fields},
        base_url_from=config.origin("base_url"),
        provider_from=config.origin("llm"),
        extra_body_from=config.origin("extra_body"),
    )
