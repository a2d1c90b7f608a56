"""A drive: the questions to a model, the table of its answers, the costs, and the folder.

It tests `cli.seats` and `extensions.seats.session`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Scripted
from support import CHECKOUT, LEANING, Line, lines_of, transcript_of

import policygen
from policygen.errors import BudgetExhausted, ProviderError, UsageError
from policygen.extensions.seats.drive import drive, open_drive
from policygen.extensions.seats.session import Session
from policygen.llm import connect
from policygen.llm.messages import Message, Prompt
from policygen.policies.policy import Policy
from policygen.runs.config import RunConfig, effective_config
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")

RIGHT = "I go on.\nAction: right"
Found = dict[str, Any]
Played = tuple[Path, Found, ChatServer]


def driven(
    server: ChatServer,
    task: str | Task = "frozenlake",
    episodes: int = 2,
    out: str = "out",
    *,
    memory: int = 0,
    **options: Any,
) -> Found:
    loaded = task if isinstance(task, Task) else load_task(task)
    settings = {"llm": "compatible:m", "base_url": server.openai_url, **options}
    config = effective_config(loaded, loaded.name, options=settings)
    driver = open_drive(loaded, config, Path(out), memory=memory, concurrency=1)
    with closing(driver.session):
        return drive(driver, episodes)


def read(out: str = "out") -> Found:
    found: Found = json.loads(Path(out, "drive.json").read_text())
    return found


def asked(server: ChatServer) -> list[str]:
    """What the model was asked last in each request."""
    return [one.body["messages"][-1]["content"] for one in server.chats]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Two episodes on the ice with one answer that is repaired, and one that stays unreadable."""
    folder = tmp_path_factory.mktemp("drive") / "out"
    with ChatServer([RIGHT, "Hm.", "Hm?", "no idea", "Action: down", *[RIGHT] * 12]) as server:
        found = driven(server, out=str(folder), prices=(1.0, 2.0))
    return folder, found, server


def test_every_situation_is_asked_once_and_an_unreadable_answer_gets_one_repair_before_a_fallback(lake: Played) -> None:
    _, found, server = lake
    now = [text for text in asked(server) if text.startswith("Now:")]
    assert len(now) == len(set(now)) == found["asked"]
    assert now[0] == "Now:\n- row: 0\n- column: 0\n\nWhich action?\n"
    assert found["steps"] == found["asked"] + found["hits"]
    assert (found["episodes"], found["finished"], found["stopped"]) == (2, True, "")
    assert (found["repairs"], found["fallbacks"]) == (2, 1)
    assert found["requests"] == found["llm_calls"] == found["asked"] + found["repairs"]
    repair = server.chats[2].body["messages"]
    assert [message["role"] for message in repair] == ["system", "user", "assistant", "user"]
    assert repair[2]["content"] == "Hm."
    assert "it says `Hm.`, expected one of left, down, right, up, or its number 0 to 3." in repair[3]["content"]
    assert repair[3]["content"].endswith("Action: left | down | right | up\n")
    # What the model did not choose is no decision of the table.
    chosen = {tuple(one["bins"].values()): one["chosen"] for one in found["decisions"]}
    assert sum(sum(times.values()) for times in chosen.values()) == found["steps"] - found["fallback_uses"]
    assert len(chosen) == found["asked"] - found["fallbacks"]


def test_decisions_become_a_table_and_costs_are_told_for_each_episode(lake: Played) -> None:
    folder, found, _ = lake
    policy = Policy.load(folder / "best.json")
    assert policy.act_one([0]) == 2
    assert found["most_chosen"] == "right"
    assert policygen.score(policy).mean == found["table"]["mean"]
    assert found["table"]["exact"]
    assert found["cells"] == 16 > found["cells_seen"]
    assert read(str(folder))["decisions"][0]["bins"] == {"row": 0, "column": 0}
    assert found["tokens_per_episode"] == found["requests"] * 2100 / 2
    assert found["usd_per_episode"] == pytest.approx(found["requests"] * 2200e-6 / 2)
    assert found["decision_seconds"] > 0 < found["answer_seconds"]
    lines = lines_of(folder / "transcript.jsonl")
    assert sum("sent" in line for line in lines) == found["requests"] == len(transcript_of(folder))
    assert lines[0]["sent"] == {"attempt": 1, "request": 0}, "recorded before it is sent"


def test_a_drive_is_replayed_from_its_transcript_by_what_was_asked(lake: Played) -> None:
    folder, found, server = lake
    again = driven(server, llm=f"replay:{folder}")
    assert [again[name] for name in ("returns", "decisions", "table", "llm_calls")] == [
        found[name] for name in ("returns", "decisions", "table", "llm_calls")
    ]
    assert (again["usd"], again["is_language_model"]) == (0.0, True)
    with pytest.raises(ProviderError, match="but none for this request"):
        driven(server, "taxi", llm=f"replay:{folder}", out="other")


def test_the_published_drive_of_taxi_was_asked_what_is_asked_today() -> None:
    folder = CHECKOUT / "results" / "transcripts" / "driving-taxi"
    with ChatServer() as server:
        found = driven(server, "taxi", 1, llm=f"replay:{folder}", seed=100)
    assert found["finished"]
    assert found["repairs"] == found["fallbacks"] == 0


def test_the_steps_before_belong_to_the_situation() -> None:
    with ChatServer(["Action: down", "Action: right"] * 30) as server:
        found = driven(server, episodes=1, memory=1)
    questions = asked(server)
    assert questions[0].startswith("The episode begins.\n\nNow:\n- row: 0\n- column: 0\n")
    assert questions[1].startswith("The last step:\n- row 0, column 0: you chose down, reward 0\n\nNow:\n")
    assert len(set(questions)) == len(questions) == found["asked"]


def test_a_task_without_bins_is_shown_numbers_and_makes_no_table() -> None:
    car = replace(load_task("mountaincar-continuous"), grid=None)
    with ChatServer(["Action: 0.5"] * 60) as server:
        found = driven(server, car, 1, max_calls=5)
    assert "Now:\n- position: -0.5" in asked(server)[0]
    assert "bin" not in asked(server)[0]
    assert found["table"] is None
    assert not Path("out/best.json").exists()
    assert found["requests"] == 5 == found["asked"]
    assert found["stopped"] == "all 5 calls (--max-calls) are used"
    assert found["episodes"] == 0


class Together(ChatServer):
    """Answers slowly, and keeps the most requests that were under way at a time."""

    most = now = 0

    def _next(self) -> Scripted:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.05)
        with self._lock:
            self.now -= 1
        return super()._next()


def session_with(
    server: ChatServer, texts: Sequence[str], concurrency: int, **options: Any
) -> tuple[Session, Callable[[], list[str | None]]]:
    """A session and, for a call, its answers to the texts."""
    config = RunConfig(task="t", llm="compatible:m", base_url=server.openai_url, **options)
    provider = connect(config.llm, config)
    session = Session(Path("out"), config, provider, "drive", {}, concurrency=concurrency)
    prompts = [Prompt((Message("user", text),)) for text in texts]
    return session, lambda: session.answers(prompts, lambda text, _: text)


def test_questions_of_episodes_side_by_side_go_out_together() -> None:
    with Together([f"{i}" for i in range(9)]) as server:
        session, answers = session_with(server, [f"{i}" for i in range(9)], 4)
        assert len(answers()) == 9
    assert 1 < server.most <= 4
    ledger = session.log.ledger
    assert (ledger.calls, ledger.tokens_in, ledger.tokens_out) == (9, 9 * 2000, 9 * 100)


@pytest.mark.parametrize("limit", [{"max_calls": 4}, {"max_tokens": 9_000}, {"max_usd": 0.01, "prices": (1.0, 1.0)}])
def test_budgets_hold_for_requests_side_by_side(limit: dict[str, Any]) -> None:
    with ChatServer(["left"] * 12) as server:
        texts = [f"{i} " + "word " * 1600 for i in range(12)]
        session, answers = session_with(server, texts, 6, max_output_tokens=500, **limit)
        with pytest.raises(BudgetExhausted):
            answers()
    assert len(server.chats) == session.log.ledger.calls == 4
    assert session.log.ledger.tokens_in == 4 * 2000, "nothing is held any more"


def test_what_a_model_does_not_take_is_found_out_once_and_a_rate_limit_holds_all_back() -> None:
    refusal = Scripted(status=400, parameter="temperature", error="Unsupported parameter: 'temperature'")
    slept: list[float] = []
    with ChatServer([refusal, "first", *[Scripted(status=429, retry_after=70)] * 3, *["left"] * 3]) as server:
        session, answers = session_with(server, [f"{i}" for i in range(4)], 3, temperature=0.5)
        session.log.sleep = slept.append
        with pytest.warns(UserWarning, match="does not take a temperature"):
            assert answers() == ["first", "left", "left", "left"]
    assert [("temperature" in one.body) for one in server.chats] == [True] + [False] * 7
    assert slept.count(70.0) == 3  # longer than any wait of ours: one request may be refused three times
    assert session.log.ledger.calls == 8


def test_a_failing_server_loses_no_answer_and_the_same_command_goes_on() -> None:
    refusal = Scripted(status=401, error="wrong key", code="invalid_api_key")
    with ChatServer([RIGHT, RIGHT, refusal, *[RIGHT] * 14]) as server:
        with pytest.raises(ProviderError):
            driven(server)
        assert (read()["finished"], read()["stopped"]) == (False, "interrupted")
        assert Policy.load("out/best.json").act_one([0]) == 2
        found = driven(server)
        again = driven(server, episodes=3)
    assert found["finished"]
    assert (found["cached"], found["requests"]) == (2, found["asked"] - 2)
    assert again["cached"] >= found["asked"]
    assert again["returns"][:2] == found["returns"]


def test_another_drive_or_other_files_are_not_written_over() -> None:
    with ChatServer([RIGHT] * 30) as server:
        driven(server, max_calls=1)
        with pytest.raises(UsageError, match="another `policygen drive`: its seed is 0, not 7; choose another --out"):
            driven(server, seed=7)
        Path("mine").mkdir()
        Path("mine/notes.txt").write_text("mine")
        with pytest.raises(UsageError, match="mine holds other files; choose another --out"):
            driven(server, out="mine")


@pytest.mark.parametrize(
    ("llm", "sentence"),
    [
        ("builtin", "builtin proposes policies and cannot decide single steps; a saved policy can"),
        ("policy:", "has no best.json"),
        ("policy:lean.json", "is a policy for cartpole, whose observations or actions differ from those of frozenlake"),
        ("replay:results/x", r"there is no results/x"),
    ],
)
def test_a_provider_that_cannot_drive_is_refused_before_anything_is_played(llm: str, sentence: str) -> None:
    policygen.parse(LEANING, "cartpole").save("lean.json")
    loaded = load_task("frozenlake")
    with pytest.raises(policygen.PolicygenError, match=sentence):
        open_drive(loaded, effective_config(loaded, "frozenlake", options={"llm": llm}), Path("out"))
    assert not Path("out").exists()


def test_a_policy_drives_without_a_key_and_a_setting_without_effect_is_refused(line: Line) -> None:
    policygen.parse("| row | column | action |\n|---|---|---|\n| * | 3 | down |\n| * | * | right |", "frozenlake").save(
        "best.json"
    )
    said = line("drive", "frozenlake", "--llm", "policy:best.json", "--episodes", 3, "--out", "here")
    assert said.code == 0, said.err
    assert "decided by: policy:best.json, which is not a language model" in said.out
    assert "requests, none to a language model" in said.out
    assert read("here")["llm_calls"] == 0
    assert line("eval", "here").out.startswith("frozenlake: ")
    assert "# table for frozenlake" in line("show", "here").out
    said = line("drive", "frozenlake", "--llm", "policy:x", "--policy", "table")
    assert (said.code, "there is no option --policy" in said.err) == (2, True)
