"""Requests to models: charge, send and record them, and reuse recorded replies when a run is resumed."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from policygen.errors import BudgetExhausted, LogbookError
from policygen.files import read
from policygen.llm import LLMOptions, Provider, reads_prompts
from policygen.llm.base import cost
from policygen.llm.messages import Exchange, FailedExchange, Message, Prompt
from policygen.llm.retry import Wait, ask
from policygen.llm.store import Cache, Transcript, cache_key
from policygen.outgoing import shown
from policygen.runs.budget import Hold, Ledger, Price
from policygen.runs.config import RunConfig
from policygen.runs.listeners import Activity

_Request = tuple[int, int, Prompt]  # number of the attempt (or question), number of the repair (0: none), prompt


@dataclass(eq=False)
class RequestLog:
    """The only sender of requests to models: it returns a recorded reply, else a cached one, else asks the model.

    Every request is charged before it is sent, and for a language model also recorded; its result is recorded after it.
    Several threads may ask. The maximum cost of each unfinished request is reserved, so that together they exceed no
    budget. If the rest of the budget covers no second reply of full length, requests are sent one at a time. While a
    request waits before a retry, no other is sent.
    """

    ledger: Ledger
    _: KW_ONLY
    # exchanges that an interrupted run paid for but has not used
    recorded: Sequence[Exchange | FailedExchange] = ()
    # called with every new exchange at once, before anything else can fail; with failed ones only of language models,
    # because other providers cost nothing and are asked again
    on_exchange: Callable[[Exchange | FailedExchange], None] = lambda exchange: None
    # called before every try of a request to a language model, with the numbers of attempt and repair
    on_sent: Callable[[int, int], None] = lambda attempt, repair: None
    # called with the current activity, such as a wait; None: it has ended
    tell: Callable[[Activity | None], None] = lambda activity: None
    cache: Cache | None = None  # earlier replies of language models
    comments: Comments | None = None  # the user's comments on the run
    # whether the keys of recorded and cached replies, and the sampling seeds, depend on the attempt
    by_attempt: bool = True
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._recorded: dict[tuple[int, int], list[Exchange | FailedExchange]] = {}
        for exchange in self.recorded:
            self._recorded.setdefault((exchange.attempt, exchange.request), []).append(exchange)
        self._changed = threading.Condition()  # guards ledger, on_exchange, _not_before; notified when a hold ends
        self._not_before = 0.0  # the end of the latest wait for a retry, in seconds since the epoch

    @property
    def has_recorded(self) -> bool:
        """Whether some of the `recorded` exchanges are still unused."""
        return bool(self._recorded)

    def comments_for(self, attempt: int) -> tuple[str, ...]:
        """Return the user's comments for an attempt's prompt: those of its recorded exchange, or else the new ones."""
        for earlier in self._recorded.get((attempt, 0), ()):
            if isinstance(earlier, Exchange):
                return earlier.prompt.comments
        return self.comments.new() if self.comments is not None else ()

    def ask(
        self, provider: Provider, attempt: int, repair: int, prompt: Prompt, options: LLMOptions | None = None
    ) -> Exchange:
        """Return the reply to a prompt, as an exchange.

        Args:
            attempt: number of the attempt, or of a question outside a run.
            repair: number of the repair; 0 is the first request.
            options: the options of the request; by default those of the run's settings.

        Raises:
            BudgetExhausted: the rest of the budget does not cover the request.
            ProviderError: the provider cannot be asked; the failed exchange is recorded.
        """
        config = self.ledger.config
        options = options or config
        key = (attempt if self.by_attempt else 0, repair)
        always = getattr(provider, "always_seeded", False)
        request = (attempt, repair, seeded(prompt, config, key, always=always))
        exchange, failed = self._from_record(request)
        if exchange is None:
            exchange = self._answer(provider, request, options)
        # The failed tries of the interrupted run belong to this attempt; the transcript has a line for each.
        return replace(exchange, requests=exchange.requests + failed)

    def _from_record(self, request: _Request) -> tuple[Exchange | None, int]:
        """Charge what is recorded for a request; return its reply, if any, and the number of failed tries before it."""
        failed = 0
        for earlier in self._recorded.pop(request[:2], ()):
            with self._changed:
                for _ in range(earlier.requests):
                    self.ledger.charge_call()
                if isinstance(earlier, Exchange):
                    tokens = self.ledger.charge_reply(request[2], earlier.reply)
                    return Exchange(*request, earlier.reply, earlier.requests, *tokens), failed
            failed += earlier.requests
        return None, failed

    def _answer(self, provider: Provider, request: _Request, options: LLMOptions) -> Exchange:
        """Return the exchange with a cached reply; if there is none, with a new one, which is then cached."""
        cache = self.cache if provider.is_language_model and reads_prompts(provider.spec) else None
        if cache is None:
            return self._send(provider, request, options)[0]
        key = cache_key(provider, options, request[2], self.ledger.config.seed)
        if (reply := cache.get(key, options.max_output_tokens)) is not None:
            return self._charge_and_record(Exchange(*request, reply, 0))
        exchange, cut_short = self._send(provider, request, options)
        if not cut_short:
            cache.put(key, exchange.reply)
        return exchange

    def _send(self, provider: Provider, request: _Request, options: LLMOptions) -> tuple[Exchange, bool]:
        """Ask the provider; return the exchange, and whether the reply was cut short for lack of budget."""
        longest, prompt = self.ledger.config.max_output_tokens, request[2]
        hold = None
        if provider.is_language_model:
            hold = self._hold(prompt, lambda *tokens: cost(options, provider.spec, provider.model, *tokens))
        allowed, tries = hold.tokens_out if hold is not None else longest, 0

        def before_try() -> None:
            nonlocal tries
            # If another request waits to retry, wait as long. A single request has waited already.
            if len(self.ledger.held) > 1 and (seconds := self._not_before - time.time()) > 0:
                self.sleep(seconds)
            with self._changed:
                self.ledger.charge_call()
                if hold is not None:
                    self.on_sent(*request[:2])
                tries += 1

        try:
            reply = ask(
                provider,
                prompt,
                before_try=before_try,
                max_output_tokens=allowed,
                options=options,
                sleep=self.sleep,
                on_wait=self._on_wait,
            )
        except BaseException as error:
            if hold is not None:
                with self._changed:
                    self.ledger.held.remove(hold)
                    self._changed.notify_all()
                    if tries:
                        self.on_exchange(FailedExchange(*request, tries, str(error) or "interrupted"))
            raise
        finally:
            self.tell(None)
        exchange = self._charge_and_record(Exchange(*request, reply, tries), hold)
        return exchange, reply.truncated and allowed < longest

    def _charge_and_record(self, exchange: Exchange, hold: Hold | None = None) -> Exchange:
        with self._changed:
            tokens_in, tokens_out = self.ledger.charge_reply(exchange.prompt, exchange.reply, hold)
            self._changed.notify_all()
            exchange = replace(exchange, tokens_in=tokens_in, tokens_out=tokens_out)
            self.on_exchange(exchange)
        return exchange

    def _hold(self, prompt: Prompt, price: Price) -> Hold:
        """Reserve the maximum cost of a request; while the budget covers no full reply, wait for the other requests.

        Raises BudgetExhausted if the budget does not cover the request even after all others have ended.
        """
        with self._changed:
            while True:
                try:
                    hold = self.ledger.hold(prompt, price)
                except BudgetExhausted:
                    if not self.ledger.held:
                        raise
                else:
                    if len(self.ledger.held) == 1 or hold.tokens_out >= self.ledger.config.max_output_tokens:
                        return hold
                    self.ledger.held.remove(hold)
                self._changed.wait()

    def _on_wait(self, wait: Wait) -> None:
        if wait.reason and wait.until is not None:
            with self._changed:
                self._not_before = max(self._not_before, wait.until)
        self.tell(wait)


def conversation_turn(exchanges: Sequence[Exchange]) -> tuple[Message, Message]:
    """Return the messages that a continued conversation keeps of an attempt: its first request and its last reply."""
    return exchanges[0].prompt.messages[-1], Message("assistant", exchanges[-1].reply.text or "(empty)")


def seeded(prompt: Prompt, config: RunConfig, key: tuple[int, int], *, always: bool = False) -> Prompt:
    """Return `prompt` with its key (attempt and repair) and, with `temperature` or if `always`, a sampling seed.

    The seed is the first 31 bits (some servers take no more) of a SHA-256 of the run's seed, attempt and repair.
    """
    if config.temperature is None and not always:
        return replace(prompt, key=key)
    digest = hashlib.sha256(f"{config.seed} {key[0]} {key[1]}".encode()).digest()
    return replace(prompt, key=key, seed=int.from_bytes(digest[:4], "big") >> 1)


# --- comments --------------------------------------------------------------------------------------------------------

FILE = "comments.md"
MOST_CHARACTERS = 4_000  # of a line, and of all new lines in one prompt; the others wait for the next prompt
_LARGEST = 2**20  # bytes of the file


class Comments:
    """The user's comments on a run: the lines of `comments.md`, each of which goes into one prompt.

    Args:
        used: the lines in earlier prompts that were answered.
        tell: called with sentences for the user.
    """

    def __init__(
        self, folder: Path, used: Iterable[str] = (), tell: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._path, self._used, self._tell = folder / FILE, Counter(used), tell
        self._unreadable = False

    def new(self) -> tuple[str, ...]:
        """Return the lines that no prompt has had, as many as fit into one, and count them as used.

        An edited line is new. Once the file could not be read, it is not read again.
        """
        chosen, room, left = list[str](), MOST_CHARACTERS, Counter(self._used)
        for line in self._lines():
            if left[line]:
                left[line] -= 1
            elif len(line) <= room:
                chosen.append(line)
                room -= len(line)
            else:
                most = f"{MOST_CHARACTERS:,} new characters"
                self._tell(f"{self._path} has more than {most}: the rest is for later prompts")
                break
        self._used.update(chosen)
        return tuple(chosen)

    def _lines(self) -> Iterator[str]:
        try:
            text = "" if self._unreadable else read(self._path, str, most=_LARGEST)
        except FileNotFoundError:
            return
        except LogbookError as error:
            self._unreadable = True
            self._tell(f"prompts have no comments from now on: {error}")
            return
        for line in text.splitlines():
            if words := shown(line).strip():
                yield words[:MOST_CHARACTERS]


def used_comments(transcript: Transcript) -> dict[int, tuple[str, ...]]:
    """Return the comments in the prompts that have a reply, by attempt."""
    exchanges = (one for one in transcript.exchanges() if isinstance(one, Exchange) and one.prompt.comments)
    return {exchange.attempt: exchange.prompt.comments for exchange in exchanges}
