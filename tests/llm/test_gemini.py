"""Gemini's own ways: two variables for its key, quotas, and waits stated in the details of an error."""

from __future__ import annotations

import pytest
from chat_server import ChatServer, Scripted
from services import GEMINI, Asked

from policygen.errors import ProviderError, UsageError
from policygen.llm import LLMOptions, connect


def _exhausted(message: str, *details: dict[str, object]) -> Scripted:
    error = {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": list(details)}
    return Scripted(status=429, body={"error": error})


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "38.5s"}
MINUTE = {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "quotaValue": "10"}]}


def test_the_delay_in_the_details_is_waited(keys: None, asked: Asked) -> None:
    busy = _exhausted("Quota exceeded, limit: 10, model: gemini-2.5-flash", MINUTE, RETRY)
    with ChatServer([busy, Scripted("ok")]) as server:
        assert asked(GEMINI.connect(server.url)).text == "ok"
    assert asked.waits == [38.5]


@pytest.mark.parametrize(
    "message",
    [
        "Quota exceeded for metric: free_tier_requests, limit: 0, model: gemini-3-pro Please retry in 45.5s.",
        "Your prepayment credits are depleted.",
    ],
)
def test_a_quota_of_zero_or_spent_credit_is_final(keys: None, asked: Asked, message: str) -> None:
    with (
        ChatServer([_exhausted(message, RETRY), Scripted("never")]) as server,
        pytest.raises(ProviderError, match=r"has no Gemini quota for .*, or none left today"),
    ):
        asked(GEMINI.connect(server.url))
    assert asked.waits == []


def test_the_key_is_in_the_first_of_two_variables_as_for_google(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"set GEMINI_API_KEY \(or GOOGLE_API_KEY\)"):
        connect(GEMINI.spec, LLMOptions())
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-the-google-one")
    assert connect(GEMINI.spec, LLMOptions()).spec == GEMINI.spec
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-the-gemini-one")
    with ChatServer(["ok"], models={GEMINI.model: {}}) as server:
        provider = GEMINI.connect(server.url)
        asked(provider)
        assert server.requests[0].headers["x-goog-api-key"] == "AIza-the-google-one"
        assert provider.diagnose().lines[0] == "the key is in GOOGLE_API_KEY"


def test_thoughts_are_counted_as_output_and_a_blocked_prompt_says_why(keys: None, asked: Asked) -> None:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 70, "totalTokenCount": 85}
    content = {"role": "model", "parts": [{"text": "a"}]}
    body = {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}
    with ChatServer([Scripted(body=body), Scripted(finish="none")]) as server:
        provider = GEMINI.connect(server.url)
        reply, blocked = asked(provider), asked(provider)
    assert (reply.tokens_out, reply.model) == (75, GEMINI.model)
    assert blocked.finish_reason == "SAFETY"


def test_a_models_full_name_is_understood(keys: None, asked: Asked) -> None:
    with ChatServer(["ok"]) as server:
        reply = asked(connect(f"gemini:models/gemini-2.5-flash@{server.url}", LLMOptions()))
    assert server.requests[0].path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert reply.text == "ok"
