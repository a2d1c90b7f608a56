"""Recorded runs, answered again from real files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from services import Asked

from policygen.errors import ProviderError, UsageError
from policygen.llm import LLMOptions, connect
from policygen.llm.messages import Message, Prompt, Reply

FIRST = Reply("one\u2028 \u00e9", "gpt-5-mini", 100, 20, usd=0.5, seconds=3.0, reasoning="hm", finish_reason="stop")
SECOND = Reply("two", "gpt-5-mini", 110, 30, truncated=True)


def _line(reply: Reply | None, error: str | None = None, attempt: int = 1, content: str = "go") -> str:
    messages = [{"role": "user", "content": content}]
    record = {
        "attempt": attempt,
        "request": 0,
        "requests": 1,
        "messages": messages,
        "reply": asdict(reply) if reply else None,
        "error": error,
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


def _run(tmp_path: Path, text: str) -> str:
    (tmp_path / "transcript.jsonl").write_text(text, encoding="utf-8", newline="\n")
    return f"replay:{tmp_path}"


def _prompt(attempt: int, repair: int = 0, content: str = "go") -> Prompt:
    return Prompt((Message("user", content),), key=(attempt, repair))


def test_each_reply_belongs_to_its_attempt_and_costs_nothing(tmp_path: Path, asked: Asked) -> None:
    text = _line(None, "the server was down") + "\n" + _line(FIRST) + _line(SECOND, attempt=2)
    provider = connect(_run(tmp_path, text), LLMOptions())
    second, first = asked(provider, _prompt(2)), asked(provider, _prompt(1, content="of another template"))
    assert (first.text, first.model, first.tokens_in, first.tokens_out) == (FIRST.text, "gpt-5-mini", 100, 20)
    assert (first.usd, first.reasoning) == (0.0, "hm")
    assert first.seconds < 1
    assert (second.text, second.truncated) == ("two", True)
    with pytest.raises(ProviderError, match="2 replies, and none to this request; use the task"):
        asked(provider, _prompt(2, 1, "something else"))


def test_a_question_of_another_number_gets_the_answer_to_the_same_messages(tmp_path: Path, asked: Asked) -> None:
    text = _line(FIRST, content="which way?") + _line(SECOND, attempt=2, content="and now?")
    provider = connect(_run(tmp_path, text), LLMOptions())
    assert [asked(provider, _prompt(0, content=c)).text for c in ("and now?", "which way?")] == ["two", FIRST.text]


def test_a_torn_last_line_is_left_out(tmp_path: Path, asked: Asked) -> None:
    whole = _line(FIRST)
    (tmp_path / "transcript.jsonl").write_bytes((whole + whole).encode()[: -len(whole.encode()) // 2 - 1])
    provider = connect(f"replay:{tmp_path}", LLMOptions())
    assert provider.diagnose().lines[0].endswith("1 reply of gpt-5-mini")
    assert asked(provider, _prompt(1)).text == FIRST.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{torn\n" + _line(FIRST), "line 1 is not JSON"),
        (
            _line(FIRST) + '{"attempt": 1}\n',
            r"is damaged: a request: .*; restore it from a copy, or replay another run",
        ),
        (_line(FIRST) + "[1]\n" + _line(FIRST), "line 2 is not a record"),
        (_line(FIRST).replace('"tokens_in": 100', '"tokens_in": "many"'), "tokens_in"),
        (_line(None, "down"), "holds no replies"),
        ("", "holds no replies"),
    ],
)
def test_what_is_no_transcript_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        connect(_run(tmp_path, text), LLMOptions())


def test_a_missing_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"replay:RUN needs a run folder.*nowhere"):
        connect(f"replay:{tmp_path / 'nowhere'}", LLMOptions())


@pytest.mark.parametrize(("model", "expected"), [("builtin", False), ("gpt-5-mini", True)])
def test_what_was_recorded_decides_whether_it_is_a_language_model(tmp_path: Path, model: str, expected: bool) -> None:
    provider = connect(_run(tmp_path, _line(Reply("a", model))), LLMOptions())
    assert provider.is_language_model is expected
    assert provider.model == model
