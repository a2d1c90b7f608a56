"""The retry policy, asked with providers that fail on command."""

from __future__ import annotations

import email.utils
import time

import pytest
from chat_server import ChatServer, Scripted
from services import PROMPT, Asked

from policygen.errors import BudgetExhausted, ProviderError, TransientProviderError
from policygen.llm import LLMOptions, connect
from policygen.llm.hosted import rejected_parameter, requested_wait
from policygen.llm.messages import Prompt, Reply, charged_tokens
from policygen.llm.retry import ask


class Failing:
    """A provider of one's own: raises what it is given, one by one, then answers."""

    spec, model, is_language_model = "own:mine", "mine", True

    def __init__(self, *failures: Exception, answer: object = None) -> None:
        self.failures = list(failures)
        self.answer = answer
        self.requests = 0

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        self.requests += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.answer  # type: ignore[return-value]


@pytest.mark.parametrize("asked_for", [None, 0])
def test_waits_grow_whatever_less_the_server_asks_for(asked: Asked, asked_for: float | None) -> None:
    busy = [TransientProviderError("busy", retry_after=asked_for)] * 5
    reply = asked(Failing(*busy, answer=Reply("answer", "mine", seconds=99.0)))
    assert 0 <= reply.seconds < 5  # of the request that succeeded
    assert len(asked.waits) == 5
    assert all(2**n <= wait <= 2**n + 2 for n, wait in enumerate(asked.waits, start=1))
    assert sum(asked.waits) > 60  # outlasts a limit by the minute
    assert asked.charges == 6


def test_a_wait_is_waited_unless_it_is_too_long(asked: Asked) -> None:
    busy = [TransientProviderError("busy", retry_after=seconds) for seconds in (300, 0, 3600)]
    with pytest.raises(ProviderError, match=r"asks to wait 3600 s, more than 300 s: busy"):
        asked(Failing(*busy))
    assert (asked.charges, len(asked.waits), asked.waits[0]) == (3, 2, 300)
    assert asked.waits[1] >= 2  # the server's wait is a lower bound


@pytest.mark.parametrize("counts", [(10_000_000, 100), (100, 10_000_000), (9_000_000, 9_000_000)])
def test_a_count_that_the_texts_cannot_have_is_not_believed(asked: Asked, counts: tuple[int, int]) -> None:
    reply = Reply("word " * 60, "mine", *counts)
    with pytest.warns(UserWarning, match=r"counted .*,000,000 tokens for a .* characters, which is impossible"):
        believed = asked(Failing(answer=reply), max_output_tokens=1000)
    assert believed.tokens_in is not None
    assert believed.tokens_out is not None
    assert believed.tokens_in <= PROMPT.characters + 4_000
    assert believed.tokens_out <= 1000


def test_thinking_that_the_server_hides_is_charged_as_counted(asked: Asked) -> None:
    assert asked(Failing(answer=Reply("left = 1", "mine", 40, 7_900)), max_output_tokens=8_000).tokens_out == 7_900


@pytest.mark.parametrize("calls", [0, 1])
def test_a_budget_that_ends_passes_through_before_anything_is_sent(asked: Asked, calls: int) -> None:
    def charge() -> None:
        asked.charge()
        if asked.charges > calls:
            raise BudgetExhausted("that many calls")

    provider = Failing(TransientProviderError("busy"))
    with pytest.raises(BudgetExhausted, match="that many calls"):
        asked(provider, before_try=charge)
    assert provider.requests == calls


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_the_wait_asked_for_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert requested_wait(headers) == seconds
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert requested_wait({"retry-after": date}) == pytest.approx(30, abs=2)


@pytest.mark.parametrize(
    ("message", "named", "expected"),
    [
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", None, "max_tokens"),
        ("whatever it says", "temperature", "temperature"),
        ("whatever it says", "generation_config.temperature", "temperature"),
        ("whatever it says", "messages", None),
        ("Unrecognized request argument supplied: temperature", None, "temperature"),
        ("body.temperature: Extra inputs are not permitted", None, "temperature"),
        ("invalid temperature: only 1 is allowed for this model", "body.temperature", "temperature"),
        ("Unsupported value: 'max_tokens_per_day'", None, None),
        ("the temperature of the water is nice", None, None),
        ("Invalid 'temperature': decimal above maximum value. Expected a value <= 2", "temperature", None),
        ("'max_tokens' is too large: 8192. This model's maximum context length is 4096", "max_tokens", None),
    ],
)
def test_the_rejected_parameter_is_recognised(message: str, named: str | None, expected: str | None) -> None:
    assert rejected_parameter(message, ("temperature", "max_tokens"), named) == expected


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "own:mine answered with NoneType; `complete` returns a policygen.llm.messages.Reply, or"),
        (KeyError("choices"), "own:mine failed with KeyError: 'choices'"),
        (TimeoutError(), "own:mine failed with TimeoutError"),
    ],
)
def test_another_answer_or_an_exception_of_its_own_is_a_charged_sentence(answer: object, said: str) -> None:
    asked = Asked()
    provider = Failing(answer) if isinstance(answer, Exception) else Failing(answer=answer)
    with pytest.raises(ProviderError) as failure:
        asked(provider)
    assert said in str(failure.value)
    assert "\n" not in str(failure.value)
    assert asked.charges == 1


@pytest.mark.parametrize("reported", [None, 100])
def test_a_reply_longer_than_asked_for_is_cut_and_says_so(reported: int | None) -> None:
    with ChatServer([Scripted("word " * 10_000, tokens_in=reported, tokens_out=reported)]) as server:
        provider = connect("compatible:m", LLMOptions(base_url=server.openai_url))
        reply = ask(provider, PROMPT, before_try=lambda: None, max_output_tokens=300, options=LLMOptions())
    assert reply.truncated
    assert len(reply.text) == 300 * (4 if reported is None else 8)
    assert charged_tokens(PROMPT, reply)[1] == 300
