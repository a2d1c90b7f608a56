"""A finished run with a larger budget continues as if it had this budget from the start."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer
from searched import POLE, made
from support import (
    ALWAYS_DOWN,
    ALWAYS_RIGHT,
    BEST_LAKE,
    MALFORMED_LAKE,
    NO_POLICY,
    Line,
    attempts_of,
    outcome,
    sentences,
    summary_of,
    transcript_of,
)

from policygen.errors import LogbookError, PolicygenError, UsageError
from policygen.search.resume import load_run, resume
from policygen.search.run import carry_out
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")


def finished(folder: Path, *assignments: str) -> Path:
    """Continue a run to its end, and return its folder."""
    carry_out(resume(folder, assignments=assignments))
    return folder


SMALL: dict[str, Any] = {"jobs": 1, "episodes": 4, "warmup_episodes": 4, "final_episodes": 5}
LINEAR: dict[str, Any] = {**SMALL, "policy": "linear", "seed": 3}
SWING = replace(load_task("pendulum"), max_steps=60)
STORIES: dict[str, tuple[str | Task, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "table": (POLE, SMALL, {"iterations": 2}, {"iterations": 4}),
    "exact": ("frozenlake", SMALL, {"iterations": 2}, {"iterations": 4}),
    "stopped at the optimum": ("nim", SMALL, {"iterations": 4}, {"iterations": 8}),
    "tuned": (SWING, {**LINEAR, "refine": "cma:30"}, {"iterations": 2}, {"iterations": 4}),
    # Episodes are left after the proposals, and the best policy is tuned on with them: later, when more is asked for.
    "tuned on": (
        POLE,
        {**LINEAR, "refine": "cma:30", "max_episodes": 400, "stop_at": 1e9},
        {"iterations": 2},
        {"iterations": 4},
    ),
    "tuned, more episodes": (
        POLE,
        {**LINEAR, "refine": "cma:30", "iterations": 5, "stop_at": 1e9},
        {"max_episodes": 150},
        {"max_episodes": 400},
    ),
    "calls": ("frozenlake", {**SMALL, "iterations": 9}, {"max_calls": 4}, {"max_calls": 8}),
    "patience": ("frozenlake", {**SMALL, "iterations": 8, "seed": 2}, {"patience": 1}, {"patience": 3}),
    "episodes": (POLE, {**SMALL, "iterations": 12}, {"max_episodes": 37}, {"max_episodes": 70}),
    "several": (
        POLE,
        {**SMALL, "seed": 5},
        {"iterations": 2, "max_episodes": 60, "max_calls": 4},
        {"iterations": 5, "max_episodes": 200, "max_calls": 9},
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_finished_run_with_more_is_the_run_that_had_it_at_first(name: str) -> None:
    task, common, less, more = STORIES[name]
    whole = made(task, "whole", **common, **more)
    part = made(task, "part", **common, **less)
    before = len(attempts_of(part))
    finished(part, *(f"{key}={value}" for key, value in more.items()))
    assert outcome(part) == outcome(whole)
    said = [[(line["attempt"], line["reply"]["text"]) for line in transcript_of(folder)] for folder in (part, whole)]
    assert said[0] == said[1]  # prompts say how many attempts were planned when they were sent
    assert load_run(part).config.trusted() == load_run(whole).config.trusted()  # but for the folders they came from
    mine, theirs = (load_run(folder).search.buffer for folder in (part, whole))
    assert [(e.attempt, e.trajectory.seed) for e in mine] == [(e.attempt, e.trajectory.seed) for e in theirs]
    assert name == "stopped at the optimum" or len(attempts_of(part)) > before


def test_one_that_was_interrupted_may_get_more_as_well() -> None:
    whole = made(POLE, "whole", iterations=6, **SMALL)
    part = made(POLE, "part", iterations=4, **SMALL)
    lines = (part / "attempts.jsonl").read_bytes().splitlines(keepends=True)
    (part / "attempts.jsonl").write_bytes(b"".join(lines[:3]))
    for name in ("summary.json", "episodes.npz"):
        (part / name).unlink()
    finished(part, "iterations=6")
    assert outcome(part) == outcome(whole)


SCRIPT = (ALWAYS_RIGHT, MALFORMED_LAKE, ALWAYS_DOWN, *[NO_POLICY] * 3, ALWAYS_DOWN, BEST_LAKE, ALWAYS_RIGHT)


@pytest.mark.parametrize(("calls", "conversation"), [(1, "fresh"), (6, "continued")])
def test_a_model_is_asked_nothing_again(calls: int, conversation: str) -> None:
    settings: dict[str, Any] = {"iterations": 10, "conversation": conversation, "llm": "compatible:m"}
    with ChatServer(SCRIPT) as server:
        whole = made("frozenlake", "whole", base_url=server.openai_url, max_calls=8, **settings)
        asked = [chat.body["messages"] for chat in server.chats]
    with ChatServer(SCRIPT) as server:
        part = made("frozenlake", "part", base_url=server.openai_url, max_calls=calls, **settings)
        finished(part, "max_calls=8")
        assert [chat.body["messages"] for chat in server.chats] == asked
    assert outcome(part) == outcome(whole)


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("iterations=2", "--set iterations=2: the run has 3; a resumed run can only have more"),
        ("max_calls=9", "--set max_calls=9: the run has no such limit; a resumed run can only have more"),
        (
            "episodes=9",
            "--set episodes: a resumed run can only change prompt_tokens, .* or increase iterations, ",
        ),
        ("refine=cma", "--set refine: a resumed run can only change"),
        ("iterations=many", "iterations"),
    ],
)
def test_what_cannot_change_is_refused_by_a_sentence(assignment: str, sentence: str) -> None:
    folder = made("frozenlake", "runs", iterations=3, **SMALL)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UsageError, match=sentence) as caught:
        resume(folder, assignments=[assignment])
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_shares_of_a_budget_would_all_have_been_others() -> None:
    settings: dict[str, Any] = {**LINEAR, "iterations": 1, "refine": "cma", "max_episodes": 300}
    folder = made(POLE, "runs", **settings)
    for more in ("iterations=2", "max_episodes=500"):
        with pytest.raises(UsageError, match=r"--refine cma divides --max-episodes 300 over 1 iterations: .*cma:300"):
            resume(folder, assignments=[more])
    with pytest.raises(LogbookError, match="is finished"):
        resume(folder, assignments=["jobs=1"])


def test_the_command_takes_budgets_as_options_and_says_what_it_cannot_do(line: Line) -> None:
    folder = made("frozenlake", "runs", iterations=1, **SMALL)
    copy = Path(shutil.copytree(folder, "copy"))
    done = line("resume", folder, "--iterations", 3)
    assert done.code == 0, done.err
    assert done.out.startswith("continuing after attempt 1\n")
    assert "stopped: all 3 iterations are done" in done.out
    assert summary_of(folder)["iterations"] == 3
    assert outcome(finished(copy, "iterations=3")) == outcome(folder)
    refused = line("resume", folder, "--max-usd", 1)
    assert refused.code == 2
    assert sentences(refused.err) == [
        "Error: --set max_usd=1: the run has no such limit; a resumed run can only have more"
    ]
    with pytest.raises(PolicygenError, match=r"is finished; see it .* or extend it, as in: .* --iterations 6"):
        resume(folder)
