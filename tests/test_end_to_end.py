"""Whole runs through the real SDKs against a server on loopback: what is written down, counted, paid and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_server import ChatServer, Scripted
from services import COMPATIBLE, GEMINI, OPENAI, Service
from support import (
    ALWAYS_DOWN,
    ALWAYS_RIGHT,
    BEST_LAKE,
    MALFORMED_LAKE,
    NO_POLICY,
    Line,
    attempts_of,
    figure,
    files_with,
    in_a_process,
    outcome,
    sentences,
    the_run,
    timeless,
    transcript_of,
)

import policygen
from policygen.errors import ProviderError
from policygen.runs.logbook import Logbook
from policygen.search.resume import resume

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture(params=(COMPATIBLE, OPENAI, GEMINI), ids=lambda service: service.name)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Service:
    chosen: Service = request.param
    monkeypatch.setenv(chosen.variable, chosen.key)
    return chosen


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policygen.llm.retry._usual_wait", lambda tries: 0.0)


def run(server: ChatServer, service: Service = COMPATIBLE, **settings: object) -> policygen.RunResult:
    return policygen.run("frozenlake", llm=service.at(server.url), **settings)


# --- one run with everything in it -----------------------------------------------------------------------------------

STORY = (
    Scripted(ALWAYS_RIGHT, tokens_in=1000, tokens_out=50),  # 1: a good reply
    Scripted(MALFORMED_LAKE, tokens_in=1100, tokens_out=60),  # 2: malformed,
    Scripted(ALWAYS_DOWN, tokens_in=1200, tokens_out=70),  # and repaired
    Scripted(NO_POLICY, tokens_in=3001, tokens_out=302),  # 3: never right
    Scripted(NO_POLICY, tokens_in=3003, tokens_out=304),
    Scripted(MALFORMED_LAKE, tokens_in=3005, tokens_out=306),
    Scripted(status=429, error="slow down", retry_after=0),  # 4: a rate limit,
    Scripted(ALWAYS_RIGHT, tokens_in=2000, tokens_out=80),  # and then an answer
    Scripted(BEST_LAKE, finish="length", tokens_in=3010, tokens_out=320),  # 5: cut off, though it reads as a policy,
    Scripted(ALWAYS_DOWN, reasoning=BEST_LAKE, tokens_in=3030, tokens_out=340),  # and repaired after some reasoning
    Scripted(f"<think>{ALWAYS_DOWN}</think>\n{BEST_LAKE}", tokens_in=3007, tokens_out=308),  # 6: the best there is
)


def test_a_run_records_and_counts_exactly_what_happened(service: Service) -> None:
    prices = {} if service is COMPATIBLE else {"prices": (1.0, 2.0)}
    with ChatServer(STORY) as server:
        result = run(server, service, iterations=20, **prices)
        chats = server.chats
    assert len(chats) == len(STORY)
    counted = {"requests": 11, "repairs": 4, "attempts": 6, "tokens in": 23356, "tokens out": 2140}
    assert {name: figure(result, name) for name in counted} == counted
    assert sum(one.failed for one in result.attempts) == 1
    assert figure(result, "stopped") == "the best known score, 0.74016, was reached"
    assert figure(result, "solved") is True
    assert Logbook(result.folder).summary() == result.summary
    replies = [line["reply"] for line in transcript_of(result.folder)]
    if service is COMPATIBLE:
        assert figure(result, "USD") is None
        assert all(reply["usd"] is None for reply in replies)
    else:
        assert figure(result, "USD") == pytest.approx(sum(reply["usd"] for reply in replies))
        assert figure(result, "USD") > 0
    attempts = attempts_of(result.folder)
    assert [a["number"] for a in attempts] == list(range(7))
    assert [a["requests"]["calls"] for a in attempts] == [0, 1, 2, 3, 2, 2, 1]
    assert [a["requests"]["repairs"] for a in attempts] == [0, 0, 1, 2, 0, 1, 0]
    assert [a["requests"]["tokens_in"] for a in attempts] == [0, 1000, 2300, 9009, 2000, 6040, 3007]
    assert [a["policy"] is None for a in attempts] == [True, False, False, True, False, False, False]
    assert [a["accepted"] for a in attempts] == [False, True, True, False, False, False, True]
    assert files_with(result.folder, service.key) == []
    # The transcript holds every request and reply, and where it belongs.
    lines = transcript_of(result.folder)
    assert [line["attempt"] for line in lines] == [1, 2, 2, 3, 3, 3, 4, 5, 5, 6]
    assert [line["request"] for line in lines] == [0, 0, 1, 0, 1, 2, 0, 0, 1, 0]
    assert [line["requests"] for line in lines] == [1, 1, 1, 1, 1, 1, 2, 1, 1, 1]
    assert all(line["error"] is None for line in lines)
    assert [line["reply"]["truncated"] for line in lines] == [False] * 7 + [True, False, False]
    # What the server was sent is what the transcript says: every message, word for word.
    answered = [chat for chat, scripted in zip(chats, STORY, strict=True) if scripted.status == 200]
    for line, chat in zip(lines, answered, strict=True):
        sent = json.dumps(chat.body, ensure_ascii=False)
        assert all(json.dumps(m["content"], ensure_ascii=False)[1:-1].rstrip("\\n") in sent for m in line["messages"])
    assert [line["reply"]["reasoning"] for line in lines[8:]] == [BEST_LAKE, ALWAYS_DOWN]
    assert lines[9]["reply"]["text"] == BEST_LAKE


def test_a_refused_key_ends_the_run_and_resume_goes_on(service: Service) -> None:
    refused = Scripted(status=401, error=f"Incorrect key {service.key}", code="invalid_api_key")
    script = [ALWAYS_RIGHT, refused, NO_POLICY, ALWAYS_DOWN, BEST_LAKE]
    with ChatServer(script) as server:
        with pytest.raises(ProviderError, match=r"^[^\n]*(refused|key)[^\n]*$") as failure:
            run(server, service, iterations=3)
        folder = the_run(Path("results"))
        assert service.key not in str(failure.value)
        assert Logbook(folder).summary() is None
        assert transcript_of(folder)[1]["reply"] is None
        begun = resume(folder, trust=True)
        list(begun.attempts())
        begun.finish()
        assert len(server.chats) == 5
    assert figure(folder, "requests") == 5
    assert [a["requests"]["calls"] for a in attempts_of(folder)] == [0, 1, 3, 1]  # the refused request is attempt 2's
    assert figure(folder, "repairs") == 1
    assert figure(folder, "stopped") == "all 3 iterations are done"
    assert files_with(folder, service.key) == []
    assert files_with(folder, service.key[:12]) == []


# --- as a user types it ----------------------------------------------------------------------------------------------


def test_the_command_line_runs_a_model_to_the_end(tmp_path: Path) -> None:
    with ChatServer([ALWAYS_DOWN, BEST_LAKE]) as server:
        words = ("run", "frozenlake", "--iterations", 5, "--llm", "compatible:m", "--base-url", server.openai_url)
        done = in_a_process(*words, cwd=tmp_path, OPENAI_COMPATIBLE_API_KEY=COMPATIBLE.key)
        assert server.chats[0].headers["authorization"] == f"Bearer {COMPATIBLE.key}"
    assert (done.returncode, done.stderr) == (0, "")
    folder = the_run(tmp_path / "results")
    assert (
        "final score: 0.7402 (exact) mean return, from the environment's transition table\nsolved: yes" in done.stdout
    )
    assert f"results: results/{folder.name}" in done.stdout
    assert figure(folder, "requests") == 2
    assert {path.name for path in folder.iterdir()} == {
        *("config.toml", "task.json", "templates.json", "transcript.jsonl", "attempts.jsonl", "best.json"),
        *("episodes.npz", "learning_curve.csv", "learning_curve.png", "summary.json", ".lock"),
    }
    assert files_with(folder, COMPATIBLE.key) == []


def test_a_refused_key_is_one_sentence_with_the_way_to_go_on(
    tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", OPENAI.key)
    with ChatServer([Scripted(status=401, error="no such key", code="invalid_api_key"), ALWAYS_DOWN]) as server:
        model = ("--llm", f"openai:gpt-5-mini@{server.openai_url}")
        done = line("run", "frozenlake", "--iterations", 1, *model)
        resume_it = ("resume", f"results/{the_run(tmp_path / 'results').name}", *model)
        assert done.code == 1
        assert sentences(done.err) == [
            "Error: OpenAI refused the key in OPENAI_API_KEY (401): no such key",
            f"Nothing is lost; continue with: policygen {' '.join(resume_it)}",
        ]
        again = line(*resume_it)
    assert again.code == 0, again.err


# --- budgets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 2, 7])
def test_max_calls_is_never_exceeded_and_the_summary_says_so(limit: int) -> None:
    # A repair, a retry and a good reply, over and over.
    script = [MALFORMED_LAKE, Scripted(status=503, retry_after=0), ALWAYS_DOWN, ALWAYS_RIGHT] * 5
    with ChatServer(script) as server:
        result = run(server, iterations=10, max_calls=limit)
        assert len(server.chats) == limit
    assert figure(result, "requests") == limit
    assert result.summary.stopped == f"all {limit} calls (--max-calls) are used"
    assert sum(line["requests"] for line in transcript_of(result.folder)) == limit


@pytest.mark.parametrize("limit", [0.0, 0.03])
def test_max_usd_is_never_exceeded_and_counts_what_the_longest_reply_would_cost(limit: float) -> None:
    with ChatServer([Scripted(NO_POLICY, tokens_in=2100, tokens_out=1000)] * 50) as server:
        result = run(server, iterations=4, max_usd=limit, prices=(1.0, 5.0), max_output_tokens=1000)
        spent = len(server.chats) * (2100 * 1.0 + 1000 * 5.0) / 1e6
    assert figure(result, "USD") == pytest.approx(spent)
    assert spent <= limit
    assert result.summary.stopped == f"the next call could exceed {limit:g} USD (--max-usd)"


@pytest.mark.parametrize("limit", [10, 79])
def test_max_episodes_is_never_exceeded_and_every_paid_reply_is_an_attempt(limit: int) -> None:
    settings = {"max_tokens": 1, "max_usd": 0}  # no model, so no tokens and no money
    result = policygen.run("cartpole", iterations=6, max_episodes=limit, final_episodes=2, **settings)
    assert (figure(result, "requests"), figure(result, "USD")) == (0, 0.0)
    assert figure(result, "episodes") <= limit
    assert "--max-episodes" in result.summary.stopped or f"of {limit} episodes" in result.summary.stopped
    assert len(attempts_of(result.folder)) == len(result.attempts)
    assert len(transcript_of(result.folder)) == figure(result, "attempts")


# --- replies without a server ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"conversation": "continued"}], ids=str)
def test_replay_reproduces_a_run_offline(settings: dict[str, object]) -> None:
    script = [ALWAYS_RIGHT, MALFORMED_LAKE, ALWAYS_DOWN, NO_POLICY, NO_POLICY, NO_POLICY, BEST_LAKE, *[ALWAYS_DOWN] * 4]
    with ChatServer(script) as server:
        first = run(server, iterations=6, max_calls=11, **settings)
    again = policygen.run(
        "frozenlake",
        llm=f"replay:{first.folder}",
        iterations=sum(one.is_asked for one in first.attempts[1:]),
        out="again",
        **settings,
    )
    free = {"usd": 0.0, "model": ""}  # who answered, and for how much
    replayed, recorded = (timeless(attempts_of(one.folder)) for one in (again, first))
    for attempt in (*replayed, *recorded):
        attempt["requests"] |= free
    assert replayed == recorded
    assert outcome(again.folder)["best"] == outcome(first.folder)["best"]
    assert again.asks_a_model is True
    assert figure(again, "USD") == 0.0
