"""Requests to providers, with the only retry policy."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from policygen.errors import PolicygenError, ProviderError, RejectedParameter, TransientProviderError
from policygen.llm.base import LLMOptions, Provider, cost, token_count
from policygen.llm.messages import NO_MODEL, Prompt, Reply, charged_tokens, cut_to
from policygen.outgoing import redacted

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_ADDED_TOKENS = 4_000  # most tokens that a chat template and a hidden system prompt may add to a prompt

RETRIES = 5  # times a request is repeated after transient faults
LONGEST_WAIT = 300.0
"""Longest wait in s; if a server asks for more, the request fails."""
# Waits of 2, 4, 8, ..., at most 60 s, plus up to 2 s at random, so that parallel runs do not retry in step. Together
# they last longer than the minute of a rate limit.
_usual_wait = wait_exponential_jitter(initial=2, max=60, jitter=2)


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for a reply of the provider `spec` or, if `reason` names a transient fault, for the next try.

    `since` and `until` are in seconds since the epoch; `until` is None if the wait has no limit.
    """

    spec: str
    since: float
    until: float | None
    reason: str = ""

    def __str__(self) -> str:
        until = "" if self.until is None else f", until {_clock(self.until)}"
        if not self.reason:
            return f"waiting for {self.spec} since {_clock(self.since)}{until}"
        seconds = 0.0 if self.until is None else self.until - self.since
        return f"waiting {seconds:.0f} s for {self.spec}{until}: {self.reason}"


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))


def ask(
    provider: Provider,
    prompt: Prompt,
    *,
    before_try: Callable[[], None],
    max_output_tokens: int,
    options: LLMOptions,
    sleep: Callable[[float], None] = time.sleep,
    on_wait: Callable[[Wait], None] = lambda wait: None,
) -> Reply:
    """Return the provider's reply to `prompt`, with at most `max_output_tokens` and without keys.

    Its `seconds` are those of the successful request, its `usd` the price of the charged tokens, if known. After a
    transient fault the request is repeated; the waits grow, and last at least as long as the server asks. A parameter
    that the model rejects is dropped, and the request repeated at once. A provider of the user's program may return a
    plain string.

    Args:
        before_try: called before every request; a BudgetExhausted that it raises ends the call.
        on_wait: called before every request and every wait for the next try.

    Raises ProviderError if the fault is not transient, the wait would exceed LONGEST_WAIT, RETRIES retries failed, or
    the provider returns neither a `Reply` nor a string or raises another exception.
    """
    spec, bounded = provider.spec, hasattr(provider, "key_goes_to")  # requests to servers have a timeout

    def one_try() -> Reply:
        while True:
            before_try()
            started, now = time.perf_counter(), time.time()
            on_wait(Wait(spec, now, now + options.timeout_seconds if bounded else None))
            try:
                answer: object = provider.complete(prompt, max_output_tokens)
            except RejectedParameter as error:
                # drop() returns False the second time, so each parameter is dropped at most once.
                if not getattr(provider, "drop", lambda parameter: False)(error.parameter):
                    raise ProviderError(str(error)) from None
            except PolicygenError:
                raise
            except Exception as error:
                # A provider of the user's may raise anything. The request is charged, and the run can continue.
                what = f"{type(error).__name__}: {error}".removesuffix(": ")
                raise ProviderError(f"{spec} failed with {what}") from error
            else:
                reply = Reply(answer, provider.model) if isinstance(answer, str) else answer
                if not isinstance(reply, Reply):
                    raise ProviderError(
                        f"{spec} answered with {type(reply).__name__}; `complete` returns a "
                        "policygen.llm.messages.Reply, or the model's text as a string"
                    )
                reply = replace(reply, seconds=time.perf_counter() - started)
                return _sanitised(provider, prompt, reply, max_output_tokens, options)

    def seconds_to_wait(state: RetryCallState) -> float:
        # A server that asks for no wait, or a short one, may refuse the next tries as well.
        seconds = max(_usual_wait(state), getattr(_fault(state), "retry_after", None) or 0.0)
        if seconds > LONGEST_WAIT:
            longer = f"{seconds:.0f} s, more than {LONGEST_WAIT:.0f} s"
            raise ProviderError(f"the server asks to wait {longer}: {_fault(state)}") from None
        return seconds

    def announce(state: RetryCallState) -> None:
        now = time.time()
        on_wait(Wait(spec, now, now + state.upcoming_sleep, str(_fault(state))))

    retrying = Retrying(
        retry=retry_if_exception_type(TransientProviderError),
        wait=seconds_to_wait,
        stop=stop_after_attempt(RETRIES + 1),
        sleep=sleep,
        before_sleep=announce,
        reraise=True,
    )
    try:
        return retrying(one_try)
    except TransientProviderError as error:
        tries = f"{RETRIES + 1} tries" if RETRIES else "1 try"
        raise ProviderError(f"gave up after {tries}: {error}") from None


def _fault(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None


def _sanitised(provider: Provider, prompt: Prompt, reply: Reply, allowance: int, options: LLMOptions) -> Reply:
    """Return the reply with its price, within the allowed length, without secrets and impossible token counts."""
    if not provider.is_language_model:
        return reply
    reply = replace(
        reply,
        text=_printable(reply.text),
        reasoning=_printable(reply.reasoning),
        model=provider.model if reply.model == NO_MODEL else _printable(reply.model),
        finish_reason=_printable(reply.finish_reason),
        tokens_in=token_count(reply, "tokens_in"),
        tokens_out=token_count(reply, "tokens_out"),
    )
    reply = cut_to(_believed(provider, prompt, reply, allowance), allowance)
    if reply.usd is not None:
        return reply
    # If the server names another model than the requested one, the higher price counts.
    charged = charged_tokens(prompt, reply)
    prices = [cost(options, provider.spec, model, *charged) for model in (reply.model, provider.model)]
    return replace(reply, usd=max((price for price in prices if price is not None), default=None))


def _believed(provider: Provider, prompt: Prompt, reply: Reply, allowance: int) -> Reply:
    """Lower token counts that are impossible for the texts, with a warning; hidden thinking may use the allowance."""
    # A token is at least one byte of text.
    most_in = sum(len(one.content.encode(errors="replace")) for one in prompt.messages) + _ADDED_TOKENS
    most_out = max(allowance, len((reply.text + reply.reasoning).encode(errors="replace")))
    believed = []
    for what, counted, characters, most in (
        ("prompt", reply.tokens_in, prompt.characters, most_in),
        ("reply", reply.tokens_out, reply.characters, most_out),
    ):
        if counted is not None and counted > most:
            said = f"{counted:,} tokens for a {what} of {characters:,} characters, which is impossible"
            warnings.warn(f"{provider.spec} counted {said}; {most:,} are charged", stacklevel=2)
        believed.append(counted if counted is None else min(counted, most))
    return replace(reply, tokens_in=believed[0], tokens_out=believed[1])


def _printable(text: str) -> str:
    """Remove secrets, and replace lone surrogates, which JSON may contain but UTF-8 cannot encode."""
    return redacted(_LONE_SURROGATES.sub("\ufffd", text))
