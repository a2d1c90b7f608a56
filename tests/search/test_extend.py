"""A finished run with a larger budget goes on from where it stands."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from searched import POLE, made
from support import (
    ALWAYS_DOWN,
    ALWAYS_RIGHT,
    BEST_LAKE,
    MALFORMED_LAKE,
    NO_POLICY,
    Line,
    Written,
    attempts_of,
    outcome,
    sentences,
)

from policygen.errors import PolicygenError, UsageError
from policygen.runs.config import read_assignment
from policygen.runs.logbook import Logbook
from policygen.search.resume import resume
from policygen.search.run import carry_out
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")


def finished(folder: Path, *assignments: str) -> Path:
    """Continue a run to its end, and return its folder."""
    carry_out(resume(folder, changes=dict(map(read_assignment, assignments))))
    return folder


SMALL: dict[str, Any] = {"jobs": 1, "episodes": 4, "warmup_episodes": 4, "final_episodes": 5}
LINEAR: dict[str, Any] = {**SMALL, "policy": "linear", "seed": 3}
SWING = replace(load_task("pendulum"), max_steps=60)
REPLIES = [ALWAYS_DOWN, NO_POLICY, MALFORMED_LAKE, ALWAYS_RIGHT, BEST_LAKE, ALWAYS_DOWN]
STORIES: dict[str, tuple[str | Task, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "iterations": ("frozenlake", SMALL, {"iterations": 2}, {"iterations": 4}),
    "calls": ("frozenlake", {**SMALL, "iterations": 9}, {"max_calls": 3}, {"max_calls": 6}),
    "patience": ("frozenlake", {**SMALL, "iterations": 4}, {"patience": 1}, {"patience": 3}),
    "tuned": (SWING, {**LINEAR, "refine": "cma:30"}, {"iterations": 2}, {"iterations": 4}),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_finished_run_goes_on_from_where_it_stands(name: str) -> None:
    """Where no attempt depends on the budgets, the outcome is that of a run with the larger ones."""
    task, settings, less, more = STORIES[name]
    llm = (lambda: None) if name == "tuned" else (lambda: Written(REPLIES))
    whole, part = made(task, "whole", llm(), **settings, **more), made(task, "part", llm(), **settings, **less)
    used = Logbook(part).summary().spent.requests
    again = None if name == "tuned" else Written(REPLIES[used:])
    carry_out(resume(part, again, more))
    assert outcome(part) == outcome(whole)


def test_attempts_that_only_tuned_and_their_episodes_stay() -> None:
    settings: dict[str, Any] = {**LINEAR, "refine": "cma:30", "max_episodes": 400, "stop_at": 1e9}
    folder = made(POLE, "part", **settings, iterations=2)
    before = attempts_of(folder)
    assert before[-1]["kind"] == "tuning"
    finished(folder, "iterations=4", "max_episodes=900")
    after = attempts_of(folder)
    assert after[: len(before)] == before
    assert [one["kind"] for one in after[len(before) :]][:2] == ["proposal", "proposal"]
    assert [one["number"] for one in after] == list(range(len(after)))
    assert after[-2]["counts"]["episodes"] <= after[-1]["counts"]["episodes"] <= 900
    assert before[-1]["counts"]["episodes"] < after[len(before)]["counts"]["episodes"]


def test_an_attempt_that_a_budget_cut_short_goes_on_with_its_recorded_reply() -> None:
    settings: dict[str, Any] = {**SMALL, "iterations": 2}
    folder = made("frozenlake", "part", Written([ALWAYS_DOWN, NO_POLICY]), **settings, max_calls=2)
    assert attempts_of(folder)[2]["notes"]["stopped"]
    asked = Written([BEST_LAKE])
    carry_out(resume(folder, asked, {"max_calls": 3}))
    assert len(asked.prompts) == 1
    assert asked.prompts[0].messages[2].content == NO_POLICY
    assert [one["problems"] for one in attempts_of(folder)] == [[]] * 3
    assert Logbook(folder).summary().spent.requests == 3


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
        resume(folder, changes=dict([read_assignment(assignment)]))
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_command_takes_budgets_as_options_and_says_what_it_cannot_do(line: Line) -> None:
    folder = made("frozenlake", "runs", iterations=1, **SMALL)
    copy = Path(shutil.copytree(folder, "copy"))
    done = line("resume", folder, "--iterations", 3)
    assert done.code == 0, done.err
    assert done.out.startswith("continuing after attempt 1\n")
    assert "stopped: all 3 iterations are done" in done.out
    assert sum(one.is_asked for one in Logbook(folder).attempts()[1:]) == 3
    assert outcome(finished(copy, "iterations=3")) == outcome(folder)
    refused = line("resume", folder, "--max-usd", 1)
    assert refused.code == 2
    assert sentences(refused.err) == [
        "Error: --set max_usd=1: the run has no such limit; a resumed run can only have more"
    ]
    with pytest.raises(PolicygenError, match=r"is finished; see it .* or go on with more, as in: .* --iterations 6"):
        resume(folder)
