"""The user's comments: each new line of `comments.md` is in one prompt, also of a run that was interrupted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support import ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE, Line, Written, transcript_of

import policygen
from policygen.llm.messages import Prompt, Reply
from policygen.runs.listeners import Activity, Listener, RunView
from policygen.runs.request_log import FILE, MOST_CHARACTERS, Comments
from policygen.search.resume import resume
from policygen.search.run import carry_out

REPLIES = (ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE, ALWAYS_DOWN)


class PowerFailure(BaseException):
    """An exception that policygen does not catch."""


class User(Written, Listener):
    """A provider that gives replies in order; before or after a request, it writes or fails."""

    def __init__(self, texts: Any, before: dict[int, Any]) -> None:
        super().__init__(texts)
        self.before, self.folder, self.said = before, Path(), list[str]()

    def started(self, run: RunView) -> None:
        self.folder = run.folder

    def doing(self, activity: Activity | None) -> None:
        if isinstance(activity, str):
            self.said.append(activity)

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        reply = super().complete(prompt, max_output_tokens)
        self.before.get(len(self.prompts), lambda folder: None)(self.folder)
        return reply


def writes(*lines: str) -> Any:
    return lambda folder: (folder / FILE).write_text("\n".join(lines) + "\n")


def a_run(out: Path, before: dict[int, Any], **settings: Any) -> User:
    user = User(REPLIES, before)
    settings = {"iterations": 4, "stop_at": 2.0, "episodes": 4, "final_episodes": 4, **settings}
    policygen.run("frozenlake", llm=user, out=out, listeners=[user], **settings)
    return user


def carrying(provider: Written, words: str) -> list[int]:
    """Return the numbers, from 1, of the prompts with these words."""
    return [i for i, prompt in enumerate(provider.prompts, start=1) if words in prompt.messages[-1].content]


def test_a_new_line_is_in_the_next_prompt_and_in_no_other(tmp_path: Path) -> None:
    user = a_run(tmp_path, {1: writes("Keep away from row 3."), 2: writes("Keep away from row 3.", "", "Go right.")})
    assert (carrying(user, "Keep away"), carrying(user, "- Go right.\n")) == ([2], [3])
    assert "## From the user" in user.prompts[1].messages[-1].content
    assert "From the user" not in user.prompts[3].messages[-1].content
    assert [row.get("comments") for row in transcript_of(user.folder)] == [
        *(None, ["Keep away from row 3."], ["Go right."], None)
    ]


@pytest.mark.parametrize("answered", [True, False])
def test_a_killed_run_neither_repeats_nor_loses_a_comment(tmp_path: Path, answered: bool) -> None:
    """It is killed while its second request, with a comment, waits for its reply, or when the reply has come."""

    def fail(*_: object) -> None:
        raise PowerFailure

    user = User(REPLIES, {1: writes("first"), 2: lambda folder: None if answered else fail()})
    settings: dict[str, Any] = {"iterations": 4, "stop_at": 2.0, "episodes": 4, "final_episodes": 4}
    stop = {"on_attempt": lambda attempt: fail() if attempt.number == 2 else None}
    with pytest.raises(PowerFailure):
        policygen.run("frozenlake", llm=user, out=tmp_path, listeners=[user], **stop, **settings)
    if answered:  # as a crash leaves it before the attempt was recorded
        log = user.folder / "attempts.jsonl"
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))
    writes("first", "second")(user.folder)
    again = Written(REPLIES[2 if answered else 1 :])
    carry_out(resume(user.folder, again))
    assert carrying(again, "- first\n") == ([] if answered else [1])
    assert carrying(again, "- second\n") == [1]
    comments = [row["comments"] for row in transcript_of(user.folder) if row["reply"] and "comments" in row]
    assert [line for lines in comments for line in lines] == ["first", "second"]


def test_an_edited_line_is_new_and_a_shortened_file_has_nothing_new(tmp_path: Path) -> None:
    comments = Comments(tmp_path)
    assert comments.new() == ()
    writes("one", "two")(tmp_path)
    assert comments.new() == ("one", "two")
    assert comments.new() == ()
    writes("one", "2", "two")(tmp_path)
    assert comments.new() == ("2",)
    writes("two")(tmp_path)
    assert comments.new() == ()
    writes("two", "two")(tmp_path)  # said again
    assert comments.new() == ("two",)
    assert Comments(tmp_path, ["two"]).new() == ("two",)


def test_a_prompt_takes_so_many_characters_and_the_others_wait(tmp_path: Path) -> None:
    said = list[str]()
    comments = Comments(tmp_path, tell=said.append)
    writes("a" * 3_000, "b" * 1_001, "c" * 9_000)(tmp_path)
    assert [comments.new() for _ in range(4)] == [("a" * 3_000,), ("b" * 1_001,), ("c" * MOST_CHARACTERS,), ()]
    assert said == [f"{tmp_path / FILE} has more than 4,000 new characters: the rest is for later prompts"] * 2


def test_a_mark_of_the_encoding_is_no_text_and_keys_and_control_characters_stay_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-abcdefgh12345678")
    (tmp_path / FILE).write_bytes("\ufeffBrake earlier.\r\nmy key is sk-proj-abcdefgh12345678\r\n\x1b[2J\n".encode())
    assert Comments(tmp_path).new() == ("Brake earlier.", "my key is ***", "\\x1b[2J")


@pytest.mark.parametrize("what", ["a pipe", "a link", "a folder", "bytes", "too much"])
def test_a_file_that_cannot_be_read_is_one_sentence_and_never_read_again(tmp_path: Path, what: str) -> None:
    path, said = tmp_path / FILE, list[str]()
    make: dict[str, Any] = {
        "a pipe": lambda: os.mkfifo(path),
        "a link": lambda: path.symlink_to("elsewhere"),
        "a folder": path.mkdir,
        "bytes": lambda: path.write_bytes(b"\xff\xfe"),
        "too much": lambda: path.write_text("x" * (2**20 + 1)),
    }
    make[what]()
    comments = Comments(tmp_path, tell=said.append)
    assert [comments.new(), comments.new()] == [(), ()]
    (sentence,) = said
    assert sentence.startswith("prompts have no comments from now on: ")
    assert "\n" not in sentence


def test_a_template_that_shows_no_comments_is_named(tmp_path: Path, workplace: Path) -> None:
    (workplace / "templates").mkdir()
    (workplace / "templates" / "mine.j2").write_text("Row and column decide. Attempt {{ number }}.\n")
    user = a_run(tmp_path, {1: writes("Go right.")}, template="mine")
    assert user.said == ['template mine does not show comments; add a line to it: {% include "_comments.j2" %}']


def test_a_preview_has_what_the_next_prompt_will_have(tmp_path: Path, line: Line) -> None:
    user = a_run(tmp_path, {1: writes("Go right.")}, iterations=2)
    assert "Go right." not in line("prompt", user.folder).out
    writes("Go right.", "Mind the ice.")(user.folder)
    before = json.dumps(transcript_of(user.folder))
    assert "- Mind the ice.\n" in line("prompt", user.folder).out
    assert json.dumps(transcript_of(user.folder)) == before
