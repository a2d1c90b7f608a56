"""Ask a provider, and ask again when that helps: the one retry policy."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from policygen.errors import PolicygenError, ProviderError, RejectedParameter, TransientProviderError
from policygen.llm.base import MOST_TOKENS, Adaptable, Keyed, LLMOptions, Provider
from policygen.llm.messages import NO_MODEL, Prompt, Reply, charged_tokens, cut_to
from policygen.llm.prices import cost
from policygen.outgoing import redacted

_HALVES = re.compile("[\ud800-\udfff]")

LONGEST_WAIT = 300.0
"""Seconds; a server that asks for a longer wait is not waited for."""

# 2, 4, 8, ... at most 60 seconds, and up to 2 more so that parallel runs do not come back together. The five retries of
# the default outlast a rate limit counted by the minute.
_UNASKED_WAIT = wait_exponential_jitter(initial=2, max=60, jitter=2)


@dataclass(frozen=True, slots=True)
class Wait:
    """What is waited for: the reply of `spec`, or, after a passing fault (`reason`), the moment to ask again.

    `since` and `until` are seconds since the epoch; `until` is None where nothing bounds the wait.
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
    charge: Callable[[], None],
    max_output_tokens: int,
    options: LLMOptions,
    sleep: Callable[[float], None] = time.sleep,
    on_wait: Callable[[Wait], None] = lambda wait: None,
) -> Reply:
    """The provider's reply to `prompt`, with `Reply.seconds` the duration of the request that succeeded.

    The reply is no longer than `max_output_tokens`, holds no key that the server echoed, and has a price where one is
    known or stated, from the tokens that are charged for it.

    `charge` is called before every request, repeated ones included, and may raise BudgetExhausted, which passes
    through. A passing fault is waited out: as long as the server asked, else exponentially longer with some jitter;
    `on_wait` is told before, and before every request. A parameter that the model rejects is dropped and the request
    repeated at once.
    A provider of one's own may answer with a plain string.

    Raises ProviderError for a final fault, a wait beyond LONGEST_WAIT, or after `options.max_retries` repetitions; also
    where a provider answers with neither a `Reply` nor a string, or raises an exception of its own.
    """

    def one_try() -> Reply:
        while True:
            charge()
            started, now = time.perf_counter(), time.time()
            # Only what goes to a server is bounded; a person takes the time it takes.
            on_wait(Wait(provider.spec, now, now + options.timeout_seconds if isinstance(provider, Keyed) else None))
            try:
                reply = provider.complete(prompt, max_output_tokens)
            except RejectedParameter as error:
                # drop() answers False the second time, so this ends after as many rounds as there are parameters.
                if not (isinstance(provider, Adaptable) and provider.drop(error.parameter)):
                    raise ProviderError(str(error)) from None
            except PolicygenError:
                raise
            except Exception as error:
                # Whatever a provider of one's own raises: the request is charged and recorded, the run can go on.
                what = f"{type(error).__name__}: {error}".removesuffix(": ")
                raise ProviderError(f"{provider.spec} failed with {what}") from error
            else:
                reply = replace(_as_reply(reply, provider), seconds=time.perf_counter() - started)
                return _settled(provider, prompt, reply, max_output_tokens, options)

    def announce(state: RetryCallState) -> None:
        seconds, now = state.next_action.sleep if state.next_action else 0.0, time.time()
        on_wait(Wait(provider.spec, now, now + seconds, str(_last_error(state))))

    retrying = Retrying(
        retry=retry_if_exception(_passes),
        wait=_wait,
        stop=stop_after_attempt(options.max_retries + 1),
        sleep=sleep,
        before_sleep=announce,
        retry_error_callback=_give_up,
    )
    return retrying(one_try)


def _as_reply(answer: object, provider: Provider) -> Reply:
    if isinstance(answer, str):
        return Reply(answer, provider.model)
    if isinstance(answer, Reply):
        return answer
    raise ProviderError(
        f"{provider.spec} answered with {type(answer).__name__}; `complete` returns a policygen.llm.messages.Reply, "
        "or the model's text as a string"
    )


def _settled(provider: Provider, prompt: Prompt, reply: Reply, allowance: int, options: LLMOptions) -> Reply:
    """The reply as the rest of the program may take it: cut, without secrets, with counts that can be, and a price."""
    if not provider.is_language_model:
        return reply
    reply = replace(
        reply,
        text=_kept(reply.text),
        reasoning=_kept(reply.reasoning),
        model=provider.model if reply.model == NO_MODEL else _kept(reply.model),
        finish_reason=_kept(reply.finish_reason),
        tokens_in=_possible(reply.tokens_in),
        tokens_out=_possible(reply.tokens_out),
    )
    reply = cut_to(reply, allowance)
    if reply.usd is not None:
        return reply
    # A server that names a cheaper model than the one asked is not believed, a dearer one is.
    charged = charged_tokens(prompt, reply)
    prices = [cost(options, provider.spec, (model,), *charged) for model in (reply.model, provider.model)]
    return replace(reply, usd=max((price for price in prices if price is not None), default=None))


def _kept(text: str) -> str:
    """`text` without secrets, and without halves of characters (JSON can write them), which no file can hold."""
    return redacted(_HALVES.sub("\ufffd", text))


def _possible(count: int | None) -> int | None:
    return count if count is not None and 0 <= count <= MOST_TOKENS else None


def _passes(error: BaseException) -> bool:
    if not isinstance(error, TransientProviderError):
        return False
    if error.retry_after is not None and error.retry_after > LONGEST_WAIT:
        raise ProviderError(
            f"not waiting {error.retry_after:.0f} s, which the server asked for (at most {LONGEST_WAIT:.0f} s): {error}"
        ) from None
    return True


def _wait(state: RetryCallState) -> float:
    error = _last_error(state)
    if isinstance(error, TransientProviderError) and error.retry_after is not None:
        return error.retry_after
    return _UNASKED_WAIT(state)


def _give_up(state: RetryCallState) -> Reply:
    tries = f"{state.attempt_number} tries" if state.attempt_number > 1 else "1 try"
    raise ProviderError(f"gave up after {tries}: {_last_error(state)}") from None


def _last_error(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
