"""Runs in which several models take turns: their records, resuming, and output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer
from support import (
    ALWAYS_DOWN,
    ALWAYS_RIGHT,
    BEST_LAKE,
    MALFORMED_LAKE,
    NO_POLICY,
    Line,
    attempts_of,
    outcome,
    summary_of,
    the_run,
)

import policygen
from policygen.errors import UsageError
from policygen.llm import LLMOptions, ProviderPool, connect, specs_of
from policygen.llm.base import Diagnosis
from policygen.llm.messages import Prompt, Reply
from policygen.search.resume import resume
from policygen.search.run import carry_out

pytestmark = pytest.mark.usefixtures("workplace")

QUICK: dict[str, Any] = {"episodes": 4, "final_episodes": 4, "warmup_episodes": 4, "stop_at": 2.0}


class Speaker:
    """A model that gives these replies in order, and then repeats the last."""

    is_language_model = True

    def __init__(self, name: str, *texts: str, usd: float | None = None) -> None:
        self.spec, self.model, self.texts, self.usd, self.asked = f"own:{name}", name, texts, usd, 0

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        self.asked += 1
        return Reply(self.texts[min(self.asked, len(self.texts)) - 1], self.model, 100, 50, self.usd)

    def diagnose(self) -> Diagnosis:
        return Diagnosis(True, (f"{self.model} listens",))


def team() -> ProviderPool:
    return ProviderPool([Speaker("good", ALWAYS_DOWN, BEST_LAKE, usd=0.01), Speaker("bad", NO_POLICY, usd=0.01)])


def test_every_attempt_records_its_model_and_shares_are_told() -> None:
    result = policygen.run("frozenlake", llm=team(), iterations=12, repairs=0, **QUICK)
    assert result.summary.llm == "own:good + own:bad"
    models = [attempt.requests.model for attempt in result.attempts]
    assert models[:4] == ["", "own:good", "own:bad", "own:good"]
    good, bad = result.summary.shares
    assert (good.model, bad.model) == ("own:good", "own:bad")
    assert good.proposals == models.count("own:good") > bad.proposals == models.count("own:bad")
    assert good.gain == pytest.approx(
        sum(a.comparison.gain for a in result.attempts if a.accepted and a.comparison.gain)
    )
    assert good.gain > 0 == bad.gain
    assert good.usd == pytest.approx(0.01 * good.proposals)
    assert [record["model"] for record in attempts_of(result.folder)] == models
    assert summary_of(result.folder)["shares"][0]["accepted"] == 2


def test_a_resumed_run_goes_on_with_the_same_turns() -> None:
    def run(out: str, on_attempt: Callable[[policygen.Attempt], None] = lambda attempt: None) -> policygen.RunResult:
        return policygen.run(
            "frozenlake", llm=team(), iterations=9, repairs=1, out=out,
            on_attempt=on_attempt, **QUICK,
        )  # fmt: skip

    whole = run("whole")

    def stop(attempt: policygen.Attempt) -> None:
        if attempt.number == 5:
            raise KeyError

    with pytest.raises(KeyError):
        run("broken", stop)
    folder = the_run(Path("broken"))
    again = team()
    # What they said by then they do not say again.
    for speaker in again.providers:
        own = [a for a in attempts_of(folder) if a["model"] == speaker.spec]
        speaker.asked = sum(a["calls"] for a in own)
    begun = resume(folder, again)
    for speaker in again.providers:
        left = [e for e in begun.answers if e.attempt > 5]
        speaker.asked += sum(e.requests for e in left if e.reply.model == speaker.model)
    carry_out(begun)
    assert outcome(folder) == outcome(whole.folder)


def test_the_same_team_again_with_a_cache_takes_the_same_turns_at_no_cost() -> None:
    first = policygen.run("frozenlake", llm=team(), iterations=8, repairs=1, cache="answers", **QUICK)
    silent = ProviderPool([Speaker("good"), Speaker("bad")])
    again = policygen.run("frozenlake", llm=silent, iterations=8, repairs=1, cache="answers", **QUICK)
    assert [a.requests.model for a in again.attempts] == [a.requests.model for a in first.attempts]
    assert (again.summary.llm_calls, again.summary.usd) == (0, 0)
    assert again.final == first.final


def test_a_replay_records_what_it_repeats() -> None:
    first = policygen.run("frozenlake", llm=team(), iterations=3, repairs=0, **QUICK)
    again = policygen.run("frozenlake", llm=f"replay:{first.folder}", iterations=3, repairs=0, out="again", **QUICK)
    assert again.final == first.final


@pytest.mark.parametrize(
    ("llms", "said"),
    [
        (["compatible:a", "builtin"], "--llm builtin cannot be one of several models; name language models only"),
        (["compatible:a", "compatible:a"], "--llm compatible:a is named twice"),
        (["compatible:a", "opnai:b"], "no model provider is called 'opnai' (did you mean openai:MODEL"),
        (["compatible:a", "openai"], "'openai' does not say which MODEL"),
    ],
)
def test_who_takes_no_turns_is_a_sentence(llms: list[str], said: str) -> None:
    with pytest.raises(UsageError) as failure:
        policygen.run("frozenlake", llm=llms, base_url="http://127.0.0.1:1/v1", **QUICK)
    assert said in str(failure.value)
    assert not Path("results").exists()


def test_names_with_a_plus_in_them_are_names() -> None:
    assert specs_of("replay:my + runs") == ("replay:my + runs",)
    assert specs_of("openai:a + gemini:b") == ("openai:a", "gemini:b")
    assert specs_of("builtin") == ("builtin",)


def test_each_model_has_its_address_and_a_limit_of_cost_needs_all_prices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefgh12345678WXYZ")
    llm = "openai:gpt-5-mini + compatible:m@http://127.0.0.1:1/v1"
    team = connect(llm, LLMOptions())
    assert isinstance(team, ProviderPool)
    assert team.key_goes_to == "the key in OPENAI_API_KEY goes to api.openai.com"
    with pytest.raises(UsageError, match=r"the price of compatible:m@http://127.0.0.1:1/v1 is unknown"):
        policygen.run("frozenlake", llm=llm, max_usd=1.0)


def test_turns_on_the_command_line(tmp_path: Path, line: Line) -> None:
    with ChatServer([ALWAYS_DOWN, MALFORMED_LAKE, ALWAYS_RIGHT, BEST_LAKE]) as server:
        arguments = ("run", "frozenlake", "--llm", "compatible:a", "--llm", "compatible:b", "--set", "choose=round")
        more = ("--base-url", server.openai_url, "--iterations", 3, "--repairs", 1, "--set", "stop_at=2")
        done = line(*arguments, *more)
        assert [chat.body["model"] for chat in server.chats] == ["a", "b", "b", "a"]
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].endswith("proposals from compatible:a + compatible:b")
    assert any(line.startswith("  2/3  compatible:b: ") for line in lines)
    assert any(
        line.startswith("compatible:a: 2 proposals (67%), 2 became the best, total gain 0.6907") for line in lines
    )
    assert any(
        line.startswith("compatible:b: 1 proposal (33%), 0 became the best, total gain 0, cost un") for line in lines
    )
    folder = the_run(tmp_path / "results")
    assert folder.name.startswith("frozenlake-compatible-2")
    shown = line("prompt", folder)
    assert "cost unknown" in shown.err
