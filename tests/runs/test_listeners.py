"""Listeners are called in order, and a failing one does not harm the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import ALWAYS_LEFT, LEANING, Written

import policygen
from policygen.errors import PolicygenError
from policygen.runs.attempt import Attempt
from policygen.runs.listeners import Listener, RunView
from policygen.runs.logbook import Logbook, Summary

pytestmark = pytest.mark.usefixtures("workplace")

QUICK: dict[str, Any] = {"episodes": 4, "final_episodes": 4, "warmup_episodes": 4}


class Diary(Listener):
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def started(self, run: RunView) -> None:
        self.heard.append(run.config.task)
        assert (run.folder / "config.toml").is_file()

    def attempted(self, attempt: Attempt) -> None:
        self.heard.append(attempt.number)

    def finished(self, summary: Summary) -> None:
        self.heard.append(summary)

    def ended(self) -> None:
        self.heard.append("ended")


def test_a_listener_hears_everything_in_order() -> None:
    diary = Diary()
    result = policygen.run("cartpole", llm=Written([ALWAYS_LEFT, LEANING]), iterations=2, listeners=[diary], **QUICK)
    assert diary.heard == ["cartpole", 0, 1, 2, result.summary, "ended"]
    assert Logbook(result.folder).summary() == result.summary


def test_a_listener_hears_the_end_of_a_run_that_fails() -> None:
    diary = Diary()
    with pytest.raises(PolicygenError):
        policygen.run("cartpole", llm=Written([LEANING]), iterations=2, listeners=[diary], **QUICK)
    assert diary.heard == ["cartpole", 0, 1, "ended"]


def test_a_listener_that_fails_is_said_once_and_the_run_is_whole() -> None:
    def fail(*arguments: object) -> None:
        raise ConnectionError("the tracker is away")

    moments = ("started", "attempted", "finished", "ended")
    broken = [type(f"Broken_{moment}", (Diary,), {moment: fail})() for moment in moments]
    diary = Diary()
    with pytest.warns(UserWarning, match="failed, and the run continues without it: the tracker is away") as said:
        result = policygen.run(
            "cartpole", llm=Written([LEANING, LEANING]), iterations=2, listeners=[*broken, diary], **QUICK
        )
    assert [str(one.message).partition(" ")[0] for one in said] == [f"Broken_{moment}" for moment in moments]
    assert result.policy is not None
    assert diary.heard[-1] == "ended"
    assert (result.folder / "learning_curve.png").is_file()


def test_what_the_users_own_callback_raises_ends_the_run() -> None:
    def stop(attempt: Attempt) -> None:
        raise KeyError(attempt.number)

    with pytest.raises(KeyError):
        policygen.run("cartpole", iterations=1, on_attempt=stop, **QUICK)
    (folder,) = Path("results").iterdir()
    assert Logbook(folder).summary() is None
