"""The cache answers what was answered before, keeps seeds apart, and costs no run when it is damaged."""

from __future__ import annotations

import multiprocessing
import sqlite3
import struct
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Scripted
from support import (
    ALWAYS_LEFT,
    LEANING,
    NO_POLICY,
    Written,
    attempts_of,
    figure,
    outcome,
    timeless,
    transcript_of,
)

import policygen
from policygen.errors import UsageError
from policygen.llm import LLMOptions
from policygen.llm.cache import Cache, CacheKey, cache_key
from policygen.llm.messages import Message, Prompt, Reply

pytestmark = pytest.mark.usefixtures("workplace")

PROMPT = Prompt((Message("system", "You improve policies."), Message("user", "Improve this one, ä\ud800.")))


def key(attempt: int = 1, seed: int = 0, repair: int = 0, **changed: Any) -> CacheKey:
    """The key of a request that differs from the usual one in what is given."""
    provider = Written([])
    provider.spec, provider.model = changed.pop("spec", "openai:m"), changed.pop("model", "m")
    request_seed = changed.pop("request_seed", None)
    prompt = Prompt(changed.pop("messages", PROMPT.messages), seed=request_seed, key=(attempt, repair))
    return cache_key(provider, LLMOptions(**{"max_output_tokens": 100, **changed}), prompt, seed)


ASKED = key()
REPLY = Reply("| a |\u2028x", "m-2026", 10, 5, 0.25, 1.5, False, "hm", "stop")


def replies_in(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "replies.sqlite")) as connection:
        return int(connection.execute("SELECT count(*) FROM replies").fetchone()[0])


QUICK: dict[str, Any] = {"episodes": 4, "final_episodes": 4, "warmup_episodes": 4}


def test_an_answer_comes_back_as_it_was_and_costs_nothing() -> None:
    cache = Cache(Path("answers/deep"))
    assert cache.get(ASKED) is None
    cache.put(ASKED, REPLY)
    assert Cache(cache.folder).get(ASKED) == replace(REPLY, seconds=0.0, cached=True)
    cache.put(ASKED, replace(REPLY, text="later"))  # the first one stays
    assert cache.get(ASKED).text == REPLY.text
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
        assert cache.get(key(**{name: value})) is None, name


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
    assert Path("answers/replies.sqlite").stat().st_size < 100_000


def test_attempts_differ_in_their_seed_and_a_run_again_asks_nobody() -> None:
    settings = {"temperature": 0.0, "iterations": 3, "repairs": 0, "extra_body": {"top_k": 20}}
    with ChatServer([LEANING, ALWAYS_LEFT, LEANING] * 2) as server:
        first = run(server, "one", **settings)
        again = run(server, "two", **settings)
        assert len(server.chats) == 3
        assert len({chat.body["seed"] for chat in server.chats}) == 3
        assert {chat.body["top_k"] for chat in server.chats} == {20}
        run(server, "three", **{**settings, "temperature": None})
        assert all("seed" not in chat.body for chat in server.chats[3:])
    assert (figure(again, "replies from the cache"), again.final) == (3, first.final)
    assert "top_k = 20" in (first.folder / "config.toml").read_text()


def test_a_run_that_is_interrupted_goes_on_with_the_cache_as_if_it_had_not_been() -> None:
    from policygen.search.resume import resume
    from policygen.search.run import carry_out

    with ChatServer([LEANING, NO_POLICY, ALWAYS_LEFT, LEANING]) as server:
        whole = run(server, "one")
        again = run(server, "two")

        def stop(attempt: policygen.Attempt) -> None:
            if attempt.number == 1:
                raise KeyError

        with pytest.raises(KeyError):
            run(server, "three", on_attempt=stop)
        (folder,) = Path("three").iterdir()
        left = resume(folder, changes={"base_url": server.openai_url})
        left.cache = Cache(Path("answers"))
        carry_out(left)
        assert len(server.chats) == 4
    assert (figure(left, "requests"), figure(left, "replies from the cache")) == (0, 4)
    assert outcome(folder) == outcome(again.folder)
    assert figure(whole, "requests") == 4


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
    for text in (*texts, *costs, b"\x80\x04.", 7, "[" * 10**5):
        cache.put(ASKED, REPLY)
        assert cache.get(ASKED).text == REPLY.text
        with sqlite3.connect(cache.path) as connection:
            connection.execute("UPDATE replies SET reply = ?", (text,))
        connection.close()
        with pytest.warns(UserWarning, match="damaged; its request is sent again"):
            assert cache.get(ASKED) is None


def test_half_a_character_in_an_answer_turns_no_cache_off() -> None:
    with ChatServer([f"{LEANING}\n\ud83d half", ALWAYS_LEFT]) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        first = run(server, "one", iterations=2)
        run(server, "two", iterations=2)
        assert len(server.chats) == 2
    assert transcript_of(first.folder)[0]["reply"]["text"].endswith("\ufffd half")


def test_what_is_no_cache_is_a_sentence_before_anything_is_asked() -> None:
    folder = Path("answers")
    folder.mkdir()
    path = folder / "replies.sqlite"
    kept = folder / "mine.txt"
    kept.write_text("mine")
    with sqlite3.connect("elsewhere.sqlite") as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    for make in (
        lambda: path.write_bytes(b"not a database at all" * 100),
        lambda: path.mkdir(),
        lambda: path.symlink_to(Path("elsewhere.sqlite").absolute()),
        lambda: path.write_bytes(Path("elsewhere.sqlite").read_bytes()),
    ):
        make()
        with pytest.raises(UsageError, match="delete the folder, or choose another") as failure:
            run(ChatServer(), "runs")
        assert "\n" not in str(failure.value)
        assert not Path("runs").exists()
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    assert kept.read_text() == "mine"
    assert Path("elsewhere.sqlite").exists()


def test_a_strangers_trigger_is_not_pulled() -> None:
    cache = Cache(Path("answers"))
    with sqlite3.connect(cache.path) as connection:
        connection.execute("CREATE TRIGGER evil AFTER INSERT ON replies BEGIN DELETE FROM replies; END")
    connection.close()
    with pytest.raises(UsageError, match="not a cache of policygen"):
        Cache(cache.folder)


def test_a_strangers_journal_deletes_no_file() -> None:
    cache = Cache(Path("answers"))
    cache.put(ASKED, REPLY)
    victim = Path("precious.txt").absolute()
    victim.write_text("precious")
    name, magic = str(victim).encode(), bytes.fromhex("d9d505f920a163d7")
    pages = cache.path.stat().st_size // 4096
    head = (magic + struct.pack(">IIIII", 0, 1, pages, 512, 4096)).ljust(512, b"\0")
    end = struct.pack(">I", 2**30 // 4096 + 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    journal = Path("answers/replies.sqlite-journal")
    journal.write_bytes(head + end)
    with pytest.raises(UsageError, match="names a file outside the cache"):
        Cache(cache.folder)
    with pytest.warns(UserWarning, match="the run continues without it"):
        assert cache.get(ASKED) is None
    journal.unlink()
    assert victim.read_text() == "precious"
    journal.symlink_to(victim)
    with pytest.raises(UsageError, match="is a link, or not a plain file"):
        Cache(cache.folder)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("harm", ["gone", "rubbish", "a page"])
def test_a_cache_that_is_lost_on_the_way_is_one_warning_and_the_run_is_whole(harm: str) -> None:
    path = Path("answers/replies.sqlite")

    def spoil(attempt: policygen.Attempt) -> None:
        if attempt.number == 1 and harm == "gone":
            path.unlink()
            path.parent.rmdir()
        elif attempt.number == 1:
            path.write_bytes(b"rubbish" * 1000 if harm == "rubbish" else path.read_bytes()[:4096] + b"\xff" * 4096)

    with ChatServer([LEANING, ALWAYS_LEFT, LEANING]) as server, pytest.warns(UserWarning, match="answers") as said:
        result = run(server, "runs", on_attempt=spoil)
    sentences = [str(one.message) for one in said if "answers" in str(one.message)]
    assert len(sentences) == 1
    assert "the run continues without it" in sentences[0]
    assert figure(result, "requests") == 3


def test_no_key_is_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-abcdefgh12345678WXYZ"
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", key)
    with ChatServer([LEANING + f"\nYour key is {key}."]) as server:
        run(server, "runs", iterations=1)
        assert server.chats[0].headers["authorization"] == f"Bearer {key}"
    data = b"".join(file.read_bytes() for file in Path("answers").iterdir())
    assert b"sk-abcdefgh" not in data
    assert b"You" in data


# --- many processes --------------------------------------------------------------------------------------------------


def put_many(folder: Path, first: int) -> None:
    warnings.simplefilter("error")
    cache = Cache(folder)
    for number in range(20):
        asked = key(number % 10, seed=first)
        if cache.get(asked) is None:
            cache.put(asked, replace(REPLY, text=f"{first} {number}"))
        shared = key(number)
        cache.put(shared, REPLY)
        assert cache.get(shared).text == REPLY.text


def test_processes_share_it() -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=put_many, args=(Path("answers"), first)) for first in (1, 2, 3, 4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert replies_in(Path("answers")) == 20 + 4 * 10
