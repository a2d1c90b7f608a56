"""Options, the table of providers, specs, `.env` files, keys, prices, and thinking split from the answer."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from services import OPENAI

from policygen.errors import UsageError
from policygen.llm import LLMOptions, check_address, connect
from policygen.llm.base import cost, read_reply, token_count
from policygen.llm.hosted import Key, find_key


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("opnai:gpt-5-mini", "did you mean openai:MODEL"),
        ("", "write one of builtin, random, openai:MODEL"),
        ("gpt-5-mini", "no model provider is called 'gpt-5-mini'"),
        ("openai", "write openai:MODEL"),
        ("openai:", "write openai:MODEL"),
        ("replay", "write replay:RUN"),
        ("builtin:fast", "write builtin"),
        ("manual:", "write manual[:DIR]"),
    ],
)
def test_a_bad_spec_says_what_to_write(spec: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect(spec, LLMOptions())
    assert said in str(caught.value)


def test_a_spec_is_read_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("builtin", "random"):
        provider = connect(name, LLMOptions())
        assert (provider.spec, provider.is_language_model) == (name, False)
    assert connect("ollama:library/qwen3:8b", LLMOptions()).model == "library/qwen3:8b"
    monkeypatch.setenv("OPENAI_API_KEY", OPENAI.key)
    provider = connect("  OpenAI:gpt-5-mini@http://127.0.0.1:9/v1 ", LLMOptions())
    assert (provider.spec, provider.is_language_model) == ("openai:gpt-5-mini@http://127.0.0.1:9/v1", True)
    assert provider.model == "gpt-5-mini"


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="must look like http"):
        connect("compatible:m", LLMOptions(base_url="localhost:8000"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("answer", ("answer", "", False)),
        ("<think>hm</think>answer", ("answer", "hm", False)),
        ("<think>a</think>one\n<think>b</think>two", ("one\ntwo", "a\n\nb", False)),
        ("hm\n</think>\n\nanswer", ("answer", "hm", False)),
        ("<think>hm, and then", ("", "hm, and then", True)),
        ("Well.\n<think>hm", ("Well.", "hm", True)),
        ("<think>\n\n</think>answer", ("answer", "", False)),
        ("<thinking>hm</thinking>answer", ("answer", "hm", False)),
        ("<think>a <think> b</think> c</think>answer", ("answer", "c\n\na <think> b", False)),
        ("I put it in a <think> tag: | 0 | left |", ("I put it in a <think> tag: | 0 | left |", "", False)),
        ("x < 0 and think > 1", ("x < 0 and think > 1", "", False)),
    ],
)
def test_thinking_is_split_from_the_answer(text: str, expected: tuple[str, str, bool]) -> None:
    reply = read_reply(text, "m")
    assert (reply.text, reply.reasoning, reply.truncated) == expected


def test_an_empty_variable_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_KEY", "  ")
    monkeypatch.setenv("SECOND_KEY", " value ")
    assert find_key("FIRST_KEY", "SECOND_KEY") == Key("SECOND_KEY", "value")
    assert find_key("FIRST_KEY") is None


def test_prices_are_known_free_or_unknown() -> None:
    def price(provider: str, model: str, *tokens: int) -> float | None:
        return cost(LLMOptions(), f"{provider}:{model}", model, *tokens)

    assert price("openai", "gpt-5-mini", 1_000_000, 0) == pytest.approx(0.25)
    assert price("gemini", "gemini-2.5-flash", 0, 1_000_000) == pytest.approx(2.5)
    assert price("anthropic", "claude-sonnet-4-6", 1000, 0) == pytest.approx(0.003)
    assert price("ollama", "qwen3", 10, 10) == 0.0
    for provider, model in [("openai", "no-such-model"), ("compatible", "gpt-5-mini"), ("manual", "manual")]:
        assert price(provider, model, 10, 10) is None


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["openai:gpt-5-mini"], "as in openai:gpt-5-mini@http://127.0.0.1:9/v1"),
        (["compatible:m", "gemini:g"], "as in gemini:g@http://127.0.0.1:9/v1"),
    ],
)
def test_a_bare_address_diverts_no_other_model(specs: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", OPENAI.key)
    options = LLMOptions(base_url="http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match="--base-url is") as refused:
        check_address(specs, options.base_url)
    assert said in str(refused.value)
    named = connect("openai:x@http://me:pw@127.0.0.1:8/v1", options)
    assert named.spec == "openai:x@http://***@127.0.0.1:8/v1"
    assert named.key_goes_to == "the key in OPENAI_API_KEY goes to 127.0.0.1:8"  # type: ignore[attr-defined]


def test_a_reply_of_many_tags_is_split_at_once() -> None:
    assert read_reply("<think>" * 200_000, "m").truncated
    assert read_reply("<think>a</think>b" * 50_000, "m").text == "b" * 50_000


def test_a_count_is_a_plausible_number_of_tokens_and_no_flag() -> None:
    usage = SimpleNamespace(whole=7, share=7.5, many=10**15, flag=True, numpy=np.int64(3), text="7")
    assert token_count(usage, "whole", "numpy") == 10
    assert [token_count(usage, name) for name in ("share", "many", "flag", "text", "missing")] == [None] * 5
