"""OpenAI, servers that speak its protocol, and Ollama: where they differ from the other services."""

from __future__ import annotations

import warnings

import pytest
from chat_server import ChatServer, Scripted
from services import COMPATIBLE, OPENAI, PROMPT, Asked

from policygen.errors import ProviderError, TransientProviderError, UsageError
from policygen.llm import LLMOptions, connect
from policygen.llm.messages import Message, Prompt
from policygen.llm.openai import _ollama_url


def _unsupported(name: str, instead: str) -> Scripted:
    message = f"Unsupported parameter: '{name}' is not supported with this model. Use '{instead}' instead."
    return Scripted(status=400, error=message, code="unsupported_parameter", parameter=name)


def test_the_limit_takes_its_other_name_when_rejected(keys: None, asked: Asked) -> None:
    script = [_unsupported("max_tokens", "max_completion_tokens"), Scripted("first"), Scripted("second")]
    with ChatServer(script) as server:
        provider = COMPATIBLE.connect(server.url)
        asked(provider)
        asked(provider)
    names = [[name for name in request.body if name.startswith("max_")] for request in server.requests]
    assert names == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]


def test_a_reply_is_never_asked_for_without_a_limit(keys: None, asked: Asked) -> None:
    script = [
        _unsupported("max_completion_tokens", "max_tokens"),
        _unsupported("max_tokens", "max_completion_tokens"),
        Scripted("never"),
    ]
    with ChatServer(script) as server:
        with pytest.raises(ProviderError, match="does not take 'max_tokens'"):
            asked(OPENAI.connect(server.url))
        assert len(server.requests) == 2


def test_no_key_of_openai_goes_to_another_server(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", OPENAI.key)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-mine")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"Authorization: Bearer {OPENAI.key}")
    with ChatServer(["ok", "ok"]) as server:
        for name in ("compatible", "ollama"):
            provider = connect(f"{name}:qwen3", LLMOptions(base_url=server.openai_url))
            asked(provider)
            provider.diagnose()
    assert len(server.chats) == 2
    for request in server.requests:
        sent = str(request.headers)
        assert OPENAI.key not in sent
        assert "of-mine" not in sent


def test_a_missing_key_or_address_is_told_with_what_to_do(asked: Asked) -> None:
    with ChatServer([Scripted(status=401, error="no token")]) as server:
        with pytest.raises(ProviderError, match="set OPENAI_COMPATIBLE_API_KEY"):
            asked(COMPATIBLE.connect(server.url))
        with pytest.raises(ProviderError, match="usually ends in /v1"):
            asked(connect("compatible:qwen3", LLMOptions(base_url=server.url)))
    with pytest.raises(UsageError, match="compatible:qwen3 needs the server's address"):
        connect("compatible:qwen3", LLMOptions())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "answer", "reasoning": "thoughts"}, ("answer", "thoughts", "stop")),
        ({"content": "answer", "reasoning_content": "thoughts"}, ("answer", "thoughts", "stop")),
        ({"content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]}, ("one two", "", "stop")),
        ({"content": None, "refusal": "I would rather not."}, ("", "", "refusal")),
    ],
)
def test_messages_of_other_shapes_are_read(
    asked: Asked, message: dict[str, object], expected: tuple[str, str, str]
) -> None:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    body = {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}
    with ChatServer([Scripted(body=body)]) as server:
        reply = asked(COMPATIBLE.connect(server.url))
    assert (reply.text, reply.reasoning, reply.finish_reason) == expected


@pytest.mark.parametrize(
    ("error", "passing"),
    [({"code": 502, "message": "died behind the router"}, True), ({"code": 403, "message": "flagged"}, False)],
)
def test_an_error_inside_a_choice_is_an_error(asked: Asked, error: dict[str, object], passing: bool) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "half a"}, "finish_reason": "error"}
    body = {"object": "chat.completion", "model": "m", "choices": [{**choice, "error": error}]}
    with (
        ChatServer([Scripted(body=body)]) as server,
        pytest.raises(ProviderError, match=str(error["message"])) as raised,
    ):
        COMPATIBLE.connect(server.url).complete(PROMPT, 100)
    assert isinstance(raised.value, TransientProviderError) == passing


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": "top_k must be positive"}}},
            "Provider returned error: top_k must be positive",
        ),
        (
            {"error": {"message": "failed", "metadata": {"raw": '{"error": {"message": "context too long"}}'}}},
            "failed: context too long",
        ),
        ({"errors": [{"code": 7003, "message": "no route"}]}, "no route"),
        ({"object": "error", "message": "no such adapter"}, "no such adapter"),
        ([{"error": {"code": 400, "message": "in a list"}}], "in a list"),
        ({"detail": [{"loc": ["body", "n"], "msg": "not a number"}]}, "body.n: not a number"),
    ],
)
def test_the_words_of_an_error_are_found_where_servers_put_them(asked: Asked, body: object, words: str) -> None:
    with ChatServer([Scripted(status=400, body=body)]) as server, pytest.raises(ProviderError) as caught:
        asked(COMPATIBLE.connect(server.url))
    assert f"answered 400: {words}" in str(caught.value)


@pytest.mark.parametrize("body", [{"error": "Unexpected endpoint or method. (GET /models)"}, {}, {"data": 7}, [], "hm"])
def test_a_wrong_address_is_diagnosed_as_one(body: object) -> None:
    with ChatServer(listing=body) as server:
        diagnosis = COMPATIBLE.connect(server.url).diagnose()
    assert not diagnosis.ok
    assert "it usually ends in /v1" in diagnosis.lines[-1]


@pytest.mark.parametrize("reported", ["some-internal-name", "gpt-5-nano"], ids=["unknown", "cheaper"])
def test_a_model_is_priced_by_the_name_that_was_asked_for_whatever_the_server_calls_it(
    keys: None, asked: Asked, monkeypatch: pytest.MonkeyPatch, reported: str
) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000}
    body = {"object": "chat.completion", "model": reported, "choices": [choice], "usage": usage}
    with ChatServer([Scripted(body=body)] * 2) as server:
        assert asked(OPENAI.connect(server.url)).usd is None
        monkeypatch.setattr("policygen.llm.openai.OpenAI.own_url", server.openai_url)  # as if it were OpenAI's own
        reply = asked(connect(OPENAI.spec, LLMOptions()))
    assert reply.model == reported
    assert reply.usd == pytest.approx(1000 * 0.25e-6)


LONG = Prompt((Message("user", "word " * 2000),))


def test_ollama_costs_nothing_and_warns_of_a_cut_context(asked: Asked) -> None:
    with ChatServer([Scripted("ok", tokens_in=1024)], models={"qwen3:latest": {"context_length": 1024}}) as server:
        provider = connect("ollama:qwen3", LLMOptions(base_url=server.openai_url))
        with pytest.warns(
            UserWarning, match=r"context has 1024 tokens, .*prompt of about 2500: set OLLAMA_CONTEXT_LEN"
        ):
            reply = asked(provider, LONG)
    assert reply.usd == 0.0
    assert "max_tokens" in server.requests[0].body


@pytest.mark.parametrize(
    ("tokens_in", "prompt", "context"),
    [
        (2000, LONG, 1024),
        (None, LONG, 1024),
        (1, PROMPT, 1024),
        (30, LONG, 8192),  # the others were kept from an earlier request
        (30, LONG, None),  # an Ollama that does not tell its context
    ],
)
def test_ollama_does_not_warn_without_cause(
    asked: Asked, tokens_in: int | None, prompt: Prompt, context: int | None
) -> None:
    models: dict[str, dict[str, object]] = {"qwen3": {} if context is None else {"context_length": context}}
    with ChatServer([Scripted("ok", tokens_in=tokens_in)], models) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        asked(connect("ollama:qwen3", LLMOptions(base_url=server.openai_url)), prompt)


def test_ollama_is_found_where_its_own_variable_says(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer(["ok"], models={"qwen3:latest": {"context_length": 4096}}) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url.removeprefix("http://"))
        provider = connect("ollama:qwen3", LLMOptions())
        assert asked(provider).text == "ok"
        diagnosis = provider.diagnose()
    assert diagnosis.ok
    assert diagnosis.lines[-1] == "its context is 4096 tokens as loaded"


def test_ollama_that_is_down_or_lacks_the_model_says_what_to_type(asked: Asked, unused_url: str) -> None:
    with pytest.raises(ProviderError, match="ollama serve"):
        asked(connect("ollama:qwen3", LLMOptions(base_url=unused_url + "/v1")))
    with (
        ChatServer([Scripted(status=404, error="model 'qwen3' not found")]) as server,
        pytest.raises(ProviderError, match="ollama pull qwen3"),
    ):
        asked(connect("ollama:qwen3", LLMOptions(base_url=server.openai_url)))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://localhost:11434/v1"),
        ("box", "http://box:11434/v1"),
        ("box:8080", "http://box:8080/v1"),
        (":8080", "http://localhost:8080/v1"),
        ("0.0.0.0", "http://localhost:11434/v1"),
        ("0.0.0.0:8080", "http://localhost:8080/v1"),
        ("http://box", "http://box/v1"),
        ("https://box/ollama/", "https://box/ollama/v1"),
        ("http://box:8080/v1", "http://box:8080/v1"),
        ("[::1]:8080", "http://[::1]:8080/v1"),
    ],
)
def test_ollamas_variable_is_read_as_ollama_reads_it(host: str, url: str) -> None:
    assert _ollama_url(host) == url
    with pytest.raises(UsageError, match="OLLAMA_HOST=box:port"):
        _ollama_url("box:port")
