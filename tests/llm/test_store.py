"""Stored replies: recorded runs, answered again; and the cache, which keeps seeds apart and survives damage."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Scripted
from services import Asked
from support import ALWAYS_LEFT, LEANING, NO_POLICY, Written, attempts_of, figure, outcome, timeless, transcript_of

import policygen
from policygen.errors import PolicygenError, ProviderError, UsageError
from policygen.llm import LLMOptions, connect
from policygen.llm.messages import Message, Prompt, Reply
from policygen.llm.store import Cache, cache_key

pytestmark = pytest.mark.usefixtures("workplace")

PROMPT = Prompt((Message("system", "You improve policies."), Message("user", "Improve this one, ä\ud800.")))


def key(attempt: int = 1, seed: int = 0, repair: int = 0, **changed: Any) -> str:
    """The key of a request that differs from the usual one in what is given."""
    provider = Written([])
    provider.spec, provider.model = changed.pop("spec", "openai:m"), changed.pop("model", "m")
    request_seed = changed.pop("request_seed", None)
    prompt = Prompt(changed.pop("messages", PROMPT.messages), seed=request_seed, key=(attempt, repair))
    return cache_key(provider, LLMOptions(**{"max_output_tokens": 100, **changed}), prompt, seed)


ASKED = key()
REPLY = Reply("| a |\u2028x", "m-2026", 10, 5, 0.25, 1.5, False, "hm", "stop")


def replies_in(folder: Path) -> int:
    return len(list(folder.glob("*.json")))


QUICK: dict[str, Any] = {"episodes": 4, "final_episodes": 4, "warmup_episodes": 4}


def test_an_answer_comes_back_as_it_was_and_costs_nothing() -> None:
    cache = Cache(Path("answers/deep"))
    assert cache.get(ASKED, 100) is None
    cache.put(ASKED, REPLY)
    assert Cache(cache.folder).get(ASKED, 100) == replace(REPLY, seconds=0.0, cached=True)
    cache.put(ASKED, replace(REPLY, text="later"))  # the first one stays
    assert cache.get(ASKED, 100).text == REPLY.text
    assert replies_in(cache.folder) == 1


def test_another_request_is_another_request() -> None:
    others: dict[str, Any] = {
        **{"spec": "gemini:m", "model": "n", "base_url": "http://localhost:1/v1", "messages": PROMPT.messages[1:]},
        **{"temperature": 0.0, "max_output_tokens": 200, "reasoning_effort": "low"},
        **{"seed": 1, "attempt": 2, "repair": 1, "request_seed": 3, "extra_body": {"top_k": 20}},
    }
    cache = Cache(Path("answers"))
    cache.put(ASKED, REPLY)
    for name, value in others.items():
        assert cache.get(key(**{name: value}), 100) is None, name


def test_replayed_replies_are_not_cached() -> None:
    policygen.run("cartpole", llm=Written([LEANING]), iterations=1, out="runs", **QUICK)
    (folder,) = Path("runs").iterdir()
    again = policygen.run("cartpole", llm=f"replay:{folder}", iterations=1, out="again", cache="answers", **QUICK)
    assert figure(again, "replies from the cache") is None
    assert replies_in(Path("answers")) == 0


def run(server: ChatServer, out: str, **settings: object) -> policygen.RunResult:
    settings = {"iterations": 3, "repairs": 1, "cache": "answers", **QUICK, **settings}
    return policygen.run("cartpole", llm="compatible:m", base_url=server.openai_url, out=out, **settings)


def test_the_same_run_again_asks_nobody_and_a_new_seed_asks_everything() -> None:
    with ChatServer([LEANING, NO_POLICY, ALWAYS_LEFT, LEANING] * 2) as server:
        first = run(server, "one", prices="1/1")
        assert len(server.chats) == figure(first, "requests") == 4
        again = run(server, "two", prices="1/1", max_calls=1, max_usd=0.01)
        assert len(server.chats) == 4
        other = run(server, "three", seed=1)
        assert len(server.chats) == 8
    assert (figure(again, "requests"), figure(again, "replies from the cache")) == (0, 4)
    assert [figure(again, name) for name in ("USD", "tokens in", "tokens out", "waiting")] == [0, 0, 0, 0]
    assert figure(first, "USD") > 0
    assert figure(first, "replies from the cache") is figure(other, "replies from the cache") is None
    assert again.final == first.final
    one, two = (
        [a | {"requests": a["requests"]["model"]} for a in timeless(attempts_of(r.folder))] for r in (first, again)
    )
    assert one == two
    assert [record["requests"] for record in transcript_of(again.folder)] == [0, 0, 0, 0]


def test_attempts_differ_in_the_seed_that_a_temperature_brings() -> None:
    settings = {"temperature": 0.0, "iterations": 3, "repairs": 0, "extra_body": {"top_k": 20}}
    with ChatServer([LEANING, ALWAYS_LEFT, LEANING] * 2) as server:
        first = run(server, "one", **settings)
        assert len({chat.body["seed"] for chat in server.chats}) == 3
        assert {chat.body["top_k"] for chat in server.chats} == {20}
        run(server, "two", **{**settings, "temperature": None})
        assert all("seed" not in chat.body for chat in server.chats[3:])
    assert "top_k = 20" in (first.folder / "config.toml").read_text()


def test_a_run_that_is_interrupted_goes_on_with_the_cache_as_if_it_had_not_been() -> None:
    from policygen.search.resume import resume
    from policygen.search.run import carry_out

    with ChatServer([LEANING, NO_POLICY, ALWAYS_LEFT, LEANING]) as server:
        run(server, "one")
        again = run(server, "two")

        def stop(attempt: policygen.Attempt) -> None:
            if attempt.number == 1:
                raise KeyError

        with pytest.raises(KeyError):
            run(server, "three", on_attempt=stop)
        (folder,) = Path("three").iterdir()
        carry_out(resume(folder, changes={"base_url": server.openai_url}, cache=Path("answers")))
        assert len(server.chats) == 4
    assert outcome(folder) == outcome(again.folder)


def test_what_a_budget_cut_short_is_asked_again_by_a_run_that_has_more() -> None:
    long = Scripted("word " * 4000, finish="length", tokens_in=100, tokens_out=300)
    with ChatServer([long, LEANING]) as server:
        short = run(server, "one", iterations=1, repairs=0, max_tokens=6000)
        assert short.policy is None
        assert run(server, "two", iterations=1, repairs=0).policy is not None
        assert len(server.chats) == 2


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_damaged_answer_is_a_warning_and_is_asked_for_again() -> None:
    texts = ("", "{", "[]", '{"text": 1, "model": "m"}', '{"text": "a", "model": "m", "tokens_in": -1}')
    costs = [f'{{"text": "a", "model": "m", "usd": {usd}}}' for usd in ("NaN", "-1e6", "Infinity", "1e300")]
    cache = Cache(Path("answers"))
    for text in (*texts, *costs, b"\x80\x04.", "7", "[" * 10**5):
        cache.put(ASKED, REPLY)
        assert cache.get(ASKED, 100).text == REPLY.text
        (file,) = cache.folder.iterdir()
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.warns(UserWarning, match="is damaged.*|its request is sent again"):
            assert cache.get(ASKED, 100) is None


def test_a_link_in_the_place_of_an_answer_is_not_followed() -> None:
    cache = Cache(Path("answers"))
    Path("precious.json").write_text(json.dumps(asdict(REPLY)))
    Path(f"answers/{ASKED}.json").symlink_to(Path("precious.json").absolute())
    with pytest.warns(UserWarning, match="not a plain file"):
        assert cache.get(ASKED, 100) is None
    cache.put(ASKED, replace(REPLY, text="new"))
    assert Path("precious.json").read_text() == json.dumps(asdict(REPLY))


def test_half_a_character_in_an_answer_turns_no_cache_off() -> None:
    with ChatServer([f"{LEANING}\n\ud83d half", ALWAYS_LEFT]) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        first = run(server, "one", iterations=2)
        run(server, "two", iterations=2)
        assert len(server.chats) == 2
    assert transcript_of(first.folder)[0]["reply"]["text"].endswith("\ufffd half")


def test_a_folder_that_cannot_be_made_is_a_sentence_before_anything_is_asked() -> None:
    Path("answers").write_text("mine")
    with pytest.raises(PolicygenError, match="choose another --cache"):
        run(ChatServer(), "runs")
    assert not Path("runs").exists()
    assert Path("answers").read_text() == "mine"


def test_a_cache_that_is_lost_on_the_way_is_one_warning_and_the_run_is_whole() -> None:
    def spoil(attempt: policygen.Attempt) -> None:
        if attempt.number == 1:
            shutil.rmtree("answers")

    with ChatServer([LEANING, ALWAYS_LEFT, LEANING]) as server, pytest.warns(UserWarning, match="answers") as said:
        result = run(server, "runs", on_attempt=spoil)
    (sentence,) = [str(one.message) for one in said if "answers" in str(one.message)]
    assert "the run continues without the cache" in sentence
    assert figure(result, "requests") == 3


# --- many processes --------------------------------------------------------------------------------------------------


def put_many(folder: Path, first: int) -> None:
    warnings.simplefilter("error")
    cache = Cache(folder)
    for number in range(20):
        asked = key(number % 10, seed=first)
        if cache.get(asked, 100) is None:
            cache.put(asked, replace(REPLY, text=f"{first} {number}"))
        shared = key(number)
        cache.put(shared, REPLY)
        assert cache.get(shared, 100).text == REPLY.text


def test_processes_share_it() -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=put_many, args=(Path("answers"), first)) for first in (1, 2, 3, 4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert replies_in(Path("answers")) == 20 + 4 * 10


# --- replay ----------------------------------------------------------------------------------------------------------

FIRST = Reply("one\u2028 \u00e9", "gpt-5-mini", 100, 20, usd=0.5, seconds=3.0, reasoning="hm", finish_reason="stop")
SECOND = Reply("two", "gpt-5-mini", 110, 30, truncated=True)


def _line(reply: Reply | None, error: str | None = None, attempt: int = 1, content: str = "go") -> str:
    record = {"attempt": attempt, "request": 0, "requests": 1, "messages": [{"role": "user", "content": content}]}
    record |= {"reply": asdict(reply) if reply else None, "error": error}
    return json.dumps(record, ensure_ascii=False) + "\n"


def _run(tmp_path: Path, text: str) -> str:
    (tmp_path / "transcript.jsonl").write_text(text, encoding="utf-8", newline="\n")
    return f"replay:{tmp_path}"


def _prompt(attempt: int, repair: int = 0, content: str = "go") -> Prompt:
    return Prompt((Message("user", content),), key=(attempt, repair))


def test_each_reply_belongs_to_its_attempt_or_to_the_same_messages_and_costs_nothing(
    tmp_path: Path, asked: Asked
) -> None:
    text = _line(None, "the server was down") + "\n" + _line(FIRST) + _line(SECOND, attempt=2, content="and now?")
    provider = connect(_run(tmp_path, text + _line(FIRST, attempt=3)[:-20]), LLMOptions())  # a torn last line
    assert provider.diagnose().lines[0].endswith("2 replies of gpt-5-mini")
    second, first = asked(provider, _prompt(2)), asked(provider, _prompt(1, content="of another template"))
    assert (first.text, first.model, first.tokens_in, first.tokens_out) == (FIRST.text, "gpt-5-mini", 100, 20)
    assert (first.usd, first.reasoning) == (0.0, "hm")
    assert first.seconds < 1
    assert (second.text, second.truncated) == ("two", True)
    assert asked(provider, _prompt(0, content="and now?")).text == "two"
    with pytest.raises(ProviderError, match=r"^[^\n]*holds 2 replies, but none for this request; use the task[^\n]*$"):
        asked(provider, _prompt(2, 1, "something else"))


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


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_a_missing_run_is_said(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"^replay:RUN needs a run folder[^\n]*{name}[^\n]*$"):
        connect(f"replay:{tmp_path / name}", LLMOptions())
