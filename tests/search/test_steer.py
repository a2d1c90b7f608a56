"""Comments and pauses during a run: its prompts, its messages, and resuming."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from support import ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE, Written, transcript_of

import policygen
from policygen import cli
from policygen.errors import UsageError
from policygen.llm.messages import Prompt, Reply
from policygen.runs.listeners import Activity, Listener, RunView
from policygen.runs.steering import Steering
from policygen.search.resume import resume
from policygen.search.run import carry_out
from policygen.search.steer import pause, why_comment_has_no_effect

WORDS = "Keep away from row 3: the ice is thin there."
REPLIES = (ALWAYS_DOWN, ALWAYS_RIGHT, BEST_LAKE, ALWAYS_DOWN)


class Saying(Written):
    """A provider that gives these replies in order; before each, a function may comment, pause or interrupt."""

    def __init__(self, texts: Any, before: dict[int, Any], folder: list[Path]) -> None:
        super().__init__(texts)
        self.before, self.folder = before, folder

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        reply = super().complete(prompt, max_output_tokens)
        act = self.before.get(len(self.prompts))
        if act is not None:
            act(Steering(self.folder[0]))
        return reply


class Where(Listener):
    """A listener that records the folder and the activities of the run."""

    def __init__(self) -> None:
        self.folder: list[Path] = []
        self.said: list[str] = []

    def started(self, run: RunView) -> None:
        self.folder.append(run.folder)

    def doing(self, activity: Activity | None) -> None:
        if isinstance(activity, str):
            self.said.append(activity)


def a_run(out: Path, before: dict[int, Any], **settings: Any) -> tuple[Saying, Where, Path]:
    where = Where()
    provider = Saying(REPLIES, before, where.folder)
    result = policygen.run(
        "frozenlake", llm=provider, out=out, listeners=[where], iterations=4, stop_at=0.99, **settings
    )
    return provider, where, result.folder


def carrying(provider: Written, words: str = WORDS) -> list[int]:
    """Return the numbers, from 1, of the prompts with these words."""
    return [i for i, prompt in enumerate(provider.prompts, start=1) if words in prompt.messages[-1].content]


def test_the_model_is_told_from_the_next_prompt_on(tmp_path: Path) -> None:
    provider, where, folder = a_run(tmp_path, {2: lambda steering: steering.say(WORDS)})
    assert carrying(provider) == [3, 4]
    assert "## From the user" in provider.prompts[3].messages[-1].content
    before = provider.prompts[1].messages[-1].content
    assert "From the user" not in before
    assert "\n\n\n\n" not in before
    assert where.said == []
    assert Steering(folder).read().carried == {3: (1,), 4: (1,)}


def test_once_and_withdrawn(tmp_path: Path) -> None:
    def both(steering: Steering) -> None:
        steering.say("only now", once=True)
        steering.say(WORDS)

    provider, _, _ = a_run(tmp_path, {1: both, 2: lambda steering: steering.withdraw(2)})
    assert (carrying(provider), carrying(provider, "only now")) == ([2], [2])


def test_a_template_that_shows_no_comments_is_named(tmp_path: Path, workplace: Path) -> None:
    (workplace / "templates").mkdir()
    (workplace / "templates" / "mine.j2").write_text("Row and column decide. Attempt {{ number }}.\n")
    _, where, _ = a_run(tmp_path, {1: lambda steering: steering.say(WORDS)}, template="mine")
    assert where.said[0].startswith("template mine does not show comments; add a line to it: ")


def test_a_paused_run_waits_before_its_next_prompt_and_goes_on(tmp_path: Path) -> None:
    class Continuing(Where):
        def doing(self, activity: Activity | None) -> None:
            super().doing(activity)
            if self.said[-1:] and self.said[-1].startswith("paused"):
                asked.append(len(provider.prompts))
                Steering(self.folder[0]).pause(False)

    asked: list[int] = []
    where = Continuing()
    provider = Saying(REPLIES, {2: lambda steering: steering.pause()}, where.folder)
    result = policygen.run("frozenlake", llm=provider, out=tmp_path, listeners=[where], iterations=4, stop_at=0.99)
    assert asked == [2]
    assert where.said == [f"paused; continue with: policygen continue {result.folder}", "continuing"]
    assert len(provider.prompts) == 4


class PowerFailure(BaseException):
    """An exception that policygen does not catch."""


def test_a_resumed_run_tells_what_it_told_before_and_what_was_said_since(tmp_path: Path) -> None:
    """The run is interrupted after its second reply, which is recorded; the user comments before it is resumed."""
    whole, _, _ = a_run(tmp_path / "whole", {1: lambda s: s.say(WORDS), 2: lambda s: s.say("later")})

    where = Where()
    provider = Saying(REPLIES, {1: lambda s: s.say(WORDS)}, where.folder)
    folder = policygen.run(
        "frozenlake", llm=provider, out=tmp_path / "cut", listeners=[where], iterations=2, stop_at=0.99
    ).folder
    # As a crash leaves it: the second reply is there, its attempt is not.
    lines = (folder / "attempts.jsonl").read_text().splitlines(keepends=True)
    (folder / "attempts.jsonl").write_text("".join(lines[:2]))
    (folder / "summary.json").unlink()
    Steering(folder).say("later")
    again = Written(REPLIES[2:])
    carry_out(resume(folder, again, ["iterations=4"]))
    assert carrying(again) == [1, 2]
    assert carrying(again, "- later\n") == [1, 2]
    assert [p.messages for p in again.prompts] == [p.messages for p in whole.prompts[2:]]
    assert Steering(folder).read().carried == {2: (1,), 3: (1, 2), 4: (1, 2)}


def test_a_paused_run_that_is_resumed_goes_on(tmp_path: Path) -> None:
    def stop(steering: Steering) -> None:
        raise PowerFailure

    where = Where()
    with pytest.raises(PowerFailure):
        policygen.run("frozenlake", llm=Saying(REPLIES, {2: stop}, where.folder), out=tmp_path, listeners=[where])
    (folder,) = where.folder
    Steering(folder).pause()
    run = resume(folder, Written(REPLIES))
    assert not Steering(folder).read().paused
    run.logbook.release()


def broken_off(out: Path, **settings: Any) -> Path:
    """Return the folder of a run that crashed while its last prompt waited for its reply."""

    def stop(steering: Steering) -> None:
        raise PowerFailure

    where = Where()
    provider = Saying(REPLIES, {2: stop}, where.folder)
    with pytest.raises(PowerFailure):
        policygen.run("frozenlake", llm=provider, out=out, listeners=[where], iterations=2, stop_at=0.99, **settings)
    return where.folder[0]


def test_once_the_last_prompt_is_sent_nothing_is_promised(tmp_path: Path) -> None:
    answers: list[str] = []

    def ask(steering: Steering) -> None:
        folder = steering.path.parent
        answers.append(why_comment_has_no_effect(folder))
        try:
            pause(folder)
        except UsageError as error:
            answers.append(str(error))
        else:
            pause(folder, False)

    a_run(tmp_path, {3: ask, 4: ask})
    assert answers[0] == ""
    assert answers[1].startswith("the prompts of all 4 iterations are sent: none will carry a comment; after the run")
    assert answers[2].startswith("the prompts of all 4 iterations are sent: there is no prompt left to wait for; ")
    assert len(answers) == 3


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, folder = a_run(tmp_path, {})
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it

    def said(*words: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["policygen", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        heard = capsys.readouterr()
        assert ended.value.code == code, heard.err
        return heard.out + heard.err

    assert "no prompt will carry a comment" in said("comment", str(folder), WORDS, code=2)
    assert not (folder / "comments.jsonl").exists()
    assert f"there is nothing to continue; extend it with: policygen resume {folder} --iterations 8" in said(
        "continue", str(folder), code=2
    )
    (folder / "summary.json").unlink()
    folder = broken_off(tmp_path / "broken")
    assert said("comment", str(folder), WORDS) == "comment 1: the next prompt carries it, and those after it\n"
    assert WORDS in said("prompt", str(folder))
    assert said("comment", str(folder)) == f"1. {WORDS}  (not in a prompt yet)\n"
    assert said("comment", str(folder), "--withdraw") == f"withdrawn: 1. {WORDS}\n"
    assert "nothing to withdraw" in said("comment", str(folder), "--withdraw", "1", code=2)
    assert said("pause", str(folder)) == "the run will pause before its next prompt\n"
    assert said("continue", str(folder)) == "the run continues\n"
    assert "is not a run folder" in said("pause", str(tmp_path), code=2)


def test_a_comment_that_no_prompt_would_carry_is_refused_in_a_sentence(tmp_path: Path, workplace: Path) -> None:
    _, _, folder = a_run(tmp_path / "finished", {})
    assert why_comment_has_no_effect(folder).endswith(f"extend it first: policygen resume {folder} --iterations 8")
    (folder / "summary.json").unlink()
    assert why_comment_has_no_effect(folder).startswith(
        "the prompts of all 4 iterations are sent: none will carry a comment; "
    )
    assert why_comment_has_no_effect(broken_off(tmp_path / "broken")) == ""
    replay = policygen.run("frozenlake", llm=f"replay:{folder}", iterations=1, out=tmp_path / "replay").folder
    builtin = policygen.run("frozenlake", iterations=1, out=tmp_path / "builtin").folder
    for name, silent in (("replay", replay), ("builtin", builtin)):
        assert why_comment_has_no_effect(silent) == f"{name} reads no prompts: a comment has no effect on this run"
    (workplace / "templates").mkdir()
    (workplace / "templates" / "mine.j2").write_text("Row and column decide.\n")
    folder = broken_off(tmp_path / "mine", template="mine")
    missing = 'template mine does not show comments; add a line to it: {% include "_comments.j2" %}'
    assert why_comment_has_no_effect(folder) == missing
    (workplace / "templates" / "mine.j2").unlink()  # the run was begun elsewhere
    assert why_comment_has_no_effect(folder) == missing
    (workplace / "templates" / "mine.j2").write_text('Row and column decide.\n{% include "_comments.j2" %}\n')
    assert why_comment_has_no_effect(folder) == ""


def test_what_is_said_is_in_the_transcript_and_no_key_is_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-abcdefgh12345678")
    _, _, folder = a_run(tmp_path, {1: lambda s: s.say("my key is sk-proj-abcdefgh12345678")})
    assert "my key is ***" in transcript_of(folder)[1]["messages"][-1]["content"]
    said = [json.loads(line) for line in (folder / "comments.jsonl").read_text().splitlines()]
    assert said[0] == {"format": "policygen-comments/1", "comment": {"text": "my key is ***", "once": False}}
