"""What is asked and answered: charged and recorded as it happens, replayed when a run goes on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from policygen.errors import BudgetExhausted, ProviderError
from policygen.llm import LLMOptions
from policygen.llm.cache import Cache
from policygen.llm.messages import Exchange, FailedExchange, Message, Prompt, Reply
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.listeners import Activity, tell_nobody
from policygen.runs.steering import Steering

MOST_IDEA = 160  # characters of the sentence that an attempt is remembered by
MOST_READ = 20_000  # characters of a reply that are searched for it
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_END = re.compile(r"(?<=[.!?])\s")


class RequestLog:
    """The requests and replies of a run: charged, recorded, the replies of an interrupted run first.

    Args:
        recorded: exchanges that an interrupted run had paid for but not yet used, in order.
        tell: told what is waited for, and everything else that takes long in the run.
        steering: what the user says to the run meanwhile.
        cache: where answers are looked up before anybody is asked, and kept.
        on_exchange: called with every new exchange as soon as it is there, before anything else can fail.
        on_sent: called with the attempt and the number of its request before every single request is sent.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        recorded: Sequence[Exchange | FailedExchange] = (),
        on_exchange: Callable[[Exchange | FailedExchange], None] = lambda exchange: None,
        on_sent: Callable[[int, int], None] = lambda attempt, request: None,
        tell: Callable[[Activity | None], None] = tell_nobody,
        cache: Cache | None = None,
        steering: Steering | None = None,
    ) -> None:
        self.ledger = ledger
        self._recorded = list(recorded)
        self._on_exchange = on_exchange
        self._on_sent = on_sent
        self.tell = tell
        self.cache = cache
        self.steering = steering

    @property
    def repeats(self) -> bool:
        """Whether the next reply is one that an interrupted run was left with."""
        return bool(self._recorded)

    @property
    def answered(self) -> bool:
        """Whether an interrupted run was left with a reply to what is asked next."""
        return any(isinstance(earlier, Exchange) for earlier in self._recorded)

    def charge_call(self, attempt: int, request: int) -> None:
        """Count one request of an attempt and write it down, before it is sent.

        Raises:
            BudgetExhausted: it would be one too many.
        """
        self.ledger.charge_call()
        self._on_sent(attempt, request)

    def exchange(self, attempt: int, request: int, prompt: Prompt, answer: Callable[[], Reply]) -> Exchange:
        """One reply to `prompt`: a recorded one, else what `answer` gives, which charges the calls it makes.

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
        try:
            reply = answer()
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


def turns(exchanges: Sequence[Exchange]) -> tuple[Message, Message]:
    """What a continued conversation remembers of an attempt: the request and the last reply."""
    return exchanges[0].prompt.messages[-1], Message("assistant", exchanges[-1].reply.text or "(empty)")


def first_sentence(reply: str) -> str:
    """The first sentence of a reply outside its code blocks, on one line of at most MOST_IDEA characters."""
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


def seeded(prompt: Prompt, config: RunConfig, attempt: int, request: int) -> Prompt:
    """`prompt` with the seed of its sampling, another one for each attempt and repair of a run.

    The first 31 bits of a SHA-256 (some servers take no more) of `request_seed`, else the run's seed, the attempt and
    the request. None is sent where neither `request_seed` nor a temperature is set: the model's own sampling varies.
    """
    if config.request_seed is None and config.temperature is None:
        return prompt
    base = config.seed if config.request_seed is None else config.request_seed
    digest = hashlib.sha256(f"{base} {attempt} {request}".encode()).digest()
    return replace(prompt, seed=int.from_bytes(digest[:4], "big") >> 1)


def llm_options(config: RunConfig) -> LLMOptions:
    """What a run's settings say about reaching the model."""
    return LLMOptions(
        base_url=config.base_url,
        base_url_from=config.address_from,
        provider_from=config.provider_from,
        temperature=config.temperature,
        top_p=config.top_p,
        reasoning_effort=config.reasoning_effort,
        request_seed=config.request_seed,
        extra_body=config.extra_body,
        extra_body_from=config.extra_body_from,
        max_output_tokens=config.max_output_tokens,
        timeout_seconds=config.timeout_seconds,
        price_in=config.price_in,
        price_out=config.price_out,
    )
