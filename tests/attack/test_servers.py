"""Every bad server against every real SDK: an end, a sentence, a kept budget, and the key nowhere else."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from attack.bad_server import MODES, BadServer
from attacks import LONG, Tallies
from chat_server import ChatServer
from services import ANTHROPIC, COMPATIBLE, GEMINI, OPENAI, PROMPT, Asked, Service
from support import files_with, foreign_variables, the_run

import policygen
from policygen.errors import PolicygenError, ProviderError
from policygen.llm import LLMOptions, Provider, transport
from policygen.llm.messages import MOST_CHARACTERS_PER_TOKEN
from policygen.llm.retry import ask
from policygen.outgoing import plain
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig

# It needs no key, and must not see that of another provider.
OLLAMA = Service("ollama", "qwen3", OPENAI.variable, OPENAI.key, "/v1")
SECONDS = 0.15
ALLOWANCE = 300


# Each mode meets one of the three SDKs in turn; in the long form it meets all services.
EVERY = (OPENAI, GEMINI, ANTHROPIC, COMPATIBLE, OLLAMA)
CASES = [
    pytest.param(service, mode, id=f"{service.name}-{mode}")
    for number, mode in enumerate(MODES)
    for service in (EVERY if LONG else (EVERY[number % 3],))
]


UNREADABLE = ("wrong encoding", "a page", "a page that says it is JSON")


def still_asking() -> bool:
    """Whether a thread of a request outlives it by half a minute."""
    for _ in range(3_000):
        if not any(thread.name == "request to a model" for thread in threading.enumerate()):
            return False
        time.sleep(0.01)
    return True


Attacked = tuple[Service, BadServer, ChatServer, Provider]


@pytest.fixture(scope="module")
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A service, the bad server in its place, a server that nothing may reach, and the provider that asks."""
    service: Service = request.param
    with pytest.MonkeyPatch.context() as patch:
        for name in foreign_variables():
            patch.delenv(name)
        patch.setenv(service.variable, service.key)
        patch.chdir(tmp_path_factory.mktemp("attack"))
        patch.setattr(transport, "LONGEST_BODY", 2**21)
        with ChatServer(["never"] * 1000) as other, BadServer(other.url, service.key) as server:
            yield service, server, other, service.connect(server.url, timeout_seconds=SECONDS)


@pytest.mark.parametrize(("attacked", "mode"), CASES, indirect=["attacked"])
def test_a_bad_server_costs_a_sentence(mode: str, attacked: Attacked, tally: Tallies) -> None:
    with tally("a request to a bad server ends, is charged and leaks nothing").one():
        service, server, other, provider = attacked
        server.begin(mode)
        ledger = Ledger(RunConfig(task="frozenlake", max_calls=3))
        said: list[str] = []
        reply = None
        with warnings.catch_warnings(record=True), patch("policygen.llm.retry.RETRIES", 1):
            try:
                reply = ask(
                    provider,
                    PROMPT,
                    before_try=ledger.charge_call,
                    max_output_tokens=ALLOWANCE,
                    options=LLMOptions(prices=(1.0, 1.0)),
                    sleep=lambda seconds: None,
                    on_wait=lambda wait: said.append(str(wait)),
                )
            except PolicygenError as error:
                said.append(str(error))
        assert len(server.requests) <= ledger.calls <= 3  # fewer where the time was over before the server read
        if mode.startswith(("drips", "silence")):
            assert f"gave no answer within {SECONDS:g} s" in said[-1]
        if mode in UNREADABLE:  # asking again would cost again
            assert (reply, ledger.calls) == (None, 1)
        assert not still_asking()
        if service is OLLAMA:
            assert not any(service.key.encode() in request for request in server.requests)
        assert other.requests == []
        for sentence in said:
            assert service.key not in sentence
            assert plain(sentence) == sentence
            assert "\n" not in sentence
            assert len(sentence) < 1500
        if reply is None:
            assert said
            return
        assert service.key not in repr(reply)
        assert len(reply.text) + len(reply.reasoning) <= ALLOWANCE * MOST_CHARACTERS_PER_TOKEN
        tokens_in, tokens_out = ledger.charge_reply(PROMPT, reply)
        assert tokens_in >= PROMPT.characters / MOST_CHARACTERS_PER_TOKEN - 1
        assert tokens_out >= (len(reply.text) + len(reply.reasoning)) / MOST_CHARACTERS_PER_TOKEN - 1
        assert reply.usd is not None
        assert reply.usd > 0


def test_a_body_without_end_is_given_up_for_its_size(monkeypatch: pytest.MonkeyPatch, workplace: Path) -> None:
    monkeypatch.setenv(OPENAI.variable, OPENAI.key)
    monkeypatch.setattr(transport, "LONGEST_BODY", 2**20)
    asked = Asked()
    with (
        BadServer("", OPENAI.key, "a body without end") as server,
        pytest.raises(ProviderError, match="longer than 1 MB"),
    ):
        asked(OPENAI.connect(server.url))
    assert asked.waits == []


@pytest.mark.parametrize(("attacked", "mode"), CASES if LONG else (), indirect=["attacked"])  # it takes minutes
def test_a_run_survives_a_bad_server(
    mode: str, attacked: Attacked, tally: Tallies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tally("a run with a bad server ends, within its budget, and leaks nothing").one():
        service, server, other, _ = attacked
        server.begin(mode)
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        monkeypatch.setenv(service.variable, service.key)
        settings = {"timeout_seconds": SECONDS, "iterations": 2, "max_calls": 6}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = ""
            try:
                policygen.run("frozenlake", llm=service.at(server.url), out=tmp_path, max_tokens=20_000, **settings)  # type: ignore[arg-type]
            except PolicygenError as error:
                said = str(error)
        assert plain(said) == said
        folder = the_run(tmp_path)
        assert files_with(folder, service.key) == []
        assert len(server.requests) <= 6
        assert other.requests == []
        for path in folder.glob("*.jsonl"):
            text = path.read_text(encoding="utf-8")
            assert plain(text) == text
