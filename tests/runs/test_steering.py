"""The user's messages to a run: comments in prompts, pauses, resuming, and refused input."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from policygen.errors import LogbookError, UsageError
from policygen.runs.steering import FILE, MOST_CHARACTERS, MOST_TOGETHER, Steering


def told(steering: Steering, number: int, *, answered: bool = False) -> tuple[str, ...]:
    return steering.for_prompt(number, answered=answered)


def test_a_comment_is_told_until_it_is_withdrawn(tmp_path: Path) -> None:
    steering = Steering(tmp_path)
    assert told(steering, 1) == ()
    assert not (tmp_path / FILE).exists()  # nothing was said: nothing is written
    steering.say("  Brake earlier.\n")
    steering.say("Use the sum of both.")
    assert told(steering, 2) == ("Brake earlier.", "Use the sum of both.")
    assert [gone.text for gone in steering.withdraw(1)] == ["Brake earlier."]
    assert told(steering, 3) == ("Use the sum of both.",)
    assert [gone.number for gone in steering.withdraw()] == [2]
    assert told(steering, 4) == ()
    assert [comment.carried for comment in steering.read().comments] == [(2,), (2, 3)]


def test_a_comment_that_is_told_once_is_in_one_prompt(tmp_path: Path) -> None:
    steering = Steering(tmp_path)
    steering.say("Try it without the integral.", once=True)
    assert told(steering, 3) == ("Try it without the integral.",)
    assert told(steering, 3) == ("Try it without the integral.",)  # it was rendered, and never sent
    assert told(steering, 4) == ()


def test_a_prompt_that_was_answered_is_what_it_was_and_others_carry_what_was_said_since(tmp_path: Path) -> None:
    steering = Steering(tmp_path)
    steering.say("first")
    assert told(steering, 1) == ("first",)
    steering.withdraw()
    steering.say("second")
    assert told(steering, 1, answered=True) == ("first",)
    assert told(steering, 2, answered=True) == ()  # its prompt had been sent without it
    assert told(Steering(tmp_path), 1) == ("second",)  # it had never been sent
    assert told(steering, 1, answered=True) == ("second",)


def test_many_comments_in_many_prompts_are_read_at_once(tmp_path: Path) -> None:
    text = "comment {:030}"
    lines = [{"comment": {"text": text.format(i)}} for i in range(1, 301)]
    lines += [{"carried": {"attempt": i, "comments": list(range(300, -1, -1)) * 2}} for i in range(1, 301)]
    (tmp_path / FILE).write_text("".join(json.dumps(one) + "\n" for one in lines))
    said = Steering(tmp_path).read()
    assert said.comments[299].carried == tuple(range(1, 301))
    assert said.comments[0].carried == ()
    assert all(len(numbers) * len(text.format(1)) <= MOST_TOGETHER for numbers in said.carried.values())


def test_long_comments_that_stand_no_more_push_out_none_that_does(tmp_path: Path) -> None:
    steering = Steering(tmp_path)
    steering.say("Brake earlier.")
    for _ in range(MOST_TOGETHER // MOST_CHARACTERS + 1):
        steering.withdraw(steering.say("x" * MOST_CHARACTERS).number)
    assert told(steering, 1) == ("Brake earlier.",)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("  \n", "the comment is empty"), ("x" * (MOST_CHARACTERS + 1), "may have 2,000; shorten it")],
)
def test_a_comment_has_bounds(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Steering(tmp_path).say(text)


def test_what_stands_together_has_a_bound_also_in_a_file_from_elsewhere(tmp_path: Path) -> None:
    steering = Steering(tmp_path)
    count = MOST_TOGETHER // MOST_CHARACTERS
    for _ in range(count):
        steering.say("x" * MOST_CHARACTERS)
    with pytest.raises(UsageError, match="withdraw some first"):
        steering.say("one more")
    with open(tmp_path / FILE, "a") as file:
        for _ in range(10):
            file.write(json.dumps({"comment": {"text": "y" * 10 * MOST_CHARACTERS}}) + "\n")
    assert sum(map(len, told(steering, 1))) == MOST_TOGETHER


@pytest.mark.parametrize(
    "line",
    ['{"comment": {"text": 3}}', '{"carried": {"attempt": -1, "comments": []}}', '{"format": "policygen-comments/9"}'],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, line: str) -> None:
    (tmp_path / FILE).write_text(line + "\n")
    with pytest.raises(LogbookError, match=f"{FILE} (is damaged|was written by a later version)"):
        Steering(tmp_path).read()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / FILE).symlink_to(elsewhere)
    with pytest.raises(LogbookError, match="it is a link"):
        Steering(folder).say("hello")
    assert elsewhere.read_text() == ""


def test_nothing_to_withdraw_is_said(tmp_path: Path) -> None:
    steering = Steering(tmp_path)
    with pytest.raises(UsageError, match="no comment is active"):
        steering.withdraw()
    steering.say("a")
    with pytest.raises(UsageError, match="comment 7 is not active; active: 1"):
        steering.withdraw(7)


def test_a_paused_run_waits_until_it_is_let_go_on(tmp_path: Path) -> None:
    steering, heard = Steering(tmp_path), []
    steering.wait(heard.append)
    assert heard == []
    assert steering.pause()
    assert not steering.pause()
    waiting = threading.Event()

    def tell(paused: bool) -> None:
        heard.append(paused)
        waiting.set()

    thread = threading.Thread(target=steering.wait, args=(tell,))
    thread.start()
    assert waiting.wait(60)
    Steering(tmp_path).say("meanwhile")
    assert thread.is_alive()
    assert Steering(tmp_path).pause(False)
    thread.join(60)
    assert heard == [True, False]
