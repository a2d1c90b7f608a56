"""An interrupted run ends like an uninterrupted one, and repeats no answered request; a finished one goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from attacks import amount
from chat_server import ChatServer, Scripted
from forks import Fork
from searched import POLE, made
from support import (
    ALWAYS_DOWN,
    ALWAYS_LEFT,
    ALWAYS_RIGHT,
    BEST_LAKE,
    FALLING,
    LEANING,
    MALFORMED_LAKE,
    NO_POLICY,
    Line,
    Written,
    attempts_of,
    fenced,
    figure,
    lines_of,
    outcome,
    start_process,
    the_run,
    timeless,
    transcript_of,
)

import policygen
from policygen.episodes.buffer import ReplayBuffer
from policygen.errors import PolicygenError, UsageError
from policygen.runs.config import read_assignment
from policygen.runs.logbook import Logbook
from policygen.search.resume import load_run, resume
from policygen.search.run import carry_out
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")


def finish(folder: Path) -> None:
    """Continue a run in this process to its end."""
    carry_out(resume(folder))


# --- every moment between two writes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """A run to interrupt: its task and settings, and the model's replies (none: `builtin`)."""

    task: str | Task
    script: tuple[Scripted | str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


FEW = {"episodes": 5, "warmup_episodes": 5, "final_episodes": 5}
BUSY = Scripted(status=503, retry_after=0)
STORIES = {
    "repairs": Story(
        "frozenlake",
        (
            ALWAYS_RIGHT,
            MALFORMED_LAKE,
            ALWAYS_DOWN,
            *[NO_POLICY] * 3,
            BUSY,
            Scripted(ALWAYS_RIGHT, tokens_in=7, tokens_out=3, reasoning="hm"),
            BEST_LAKE,
        ),
        {"iterations": 6, "prices": (0.1, 0.7), "jobs": 1},
    ),
    "calls": Story(
        "frozenlake",
        (ALWAYS_RIGHT, MALFORMED_LAKE, ALWAYS_DOWN, ALWAYS_RIGHT, *[NO_POLICY] * 3, ALWAYS_DOWN, BEST_LAKE),
        {"iterations": 9, "max_calls": 8},
    ),
    "continued": Story(
        "frozenlake",
        (ALWAYS_RIGHT, MALFORMED_LAKE, ALWAYS_DOWN, ALWAYS_DOWN, ALWAYS_RIGHT),
        {"iterations": 4, "conversation": "continued"},
    ),
    "tokens": Story(
        "frozenlake",
        (Scripted(ALWAYS_DOWN, tokens_in=150, tokens_out=10),) * 4,
        {"iterations": 3, "max_tokens": 5000},
    ),
    "budget": Story(
        POLE,
        (ALWAYS_LEFT, LEANING, FALLING, ALWAYS_LEFT, FALLING),
        {"iterations": 6, "episodes": 5, "max_episodes": 37, "final_episodes": 5},
    ),
    # Prompts show a policy as it was written, also after tuning and after it was saved.
    "commented": Story(
        POLE,
        (
            fenced(
                "# lean", "let zip = (0.50*spin) - (0.5*position)  # fast", "", "right = (2*zip) + angle", "left = 0"
            ),
            fenced("right = 1.0*zip + (angle*3)", "# cart", "let cart = (velocity) + 0.1*zip", "left = 0.2*cart"),
            fenced("let zip = 0.5*spin - 0.5*position", "left = 0", "right = 2*zip + angle  # said before"),
        ),
        {"policy": "linear", "iterations": 3, "refine": "cma:30", **FEW},
    ),
    "leftover": Story(
        POLE,
        (fenced("left = 0", "right = 0.1*angle - 0.05*position"), fenced("left = 0", "right = angle - 0.3*position")),
        {"policy": "linear", "iterations": 2, "refine": "cma:200", "max_episodes": 1_200, "stop_at": 1e9, **FEW},
    ),
    "started": Story(
        POLE,
        (),
        {"policy": "linear", "start": "right = 1*angle\nleft = 0", "refine": "cma:100", "iterations": 2, **FEW},
    ),
    "table": Story(POLE, (), {"iterations": 4, "seed": 3, **FEW}),
    "noisy": Story("Blackjack-v1", (), {"iterations": 1, "final_episodes": 5}),
    "memory": Story(POLE, (), {"policy": "linear", "memory": True, "iterations": 4, "refine": "cma:30", **FEW}),
}


def moments(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield the numbers of lines of the transcript and of the attempts after each write of a finished run."""
    asked = [line["attempt"] for line in transcript_of(folder)]
    scored = [line["number"] for line in attempts_of(folder)]
    yield 0, 0
    yield 0, 1
    for attempt in range(1, max(scored) + 1):
        before, after = (sum(number <= last for number in asked) for last in (attempt - 1, attempt))
        for lines in range(before + 1, after + 1):
            yield lines, attempt
        yield after, attempt + 1


def broken_off(whole: Path, there: Path, lines: int, attempts: int, torn: bool) -> None:
    """Copy `whole` as it was with these numbers of lines; `torn` adds the first half of the next ones."""
    there.mkdir(parents=True)
    for name in ("config.toml", "task.json", "templates.json"):
        shutil.copy(whole / name, there)
    for name, count in (("transcript.jsonl", lines), ("attempts.jsonl", attempts)):
        written = (whole / name).read_bytes().split(b"\n")
        answers = [i for i, line in enumerate(written, start=1) if b'"sent": {' not in line[:80]]
        count = answers[count - 1] if count else 0
        text = b"".join(line + b"\n" for line in written[:count])
        if torn:
            text += written[count][: len(written[count]) // 2]
        if text:
            (there / name).write_bytes(text)


@pytest.mark.parametrize("name", STORIES)
def test_a_run_broken_off_after_any_write_ends_as_if_it_had_not_been(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policygen.llm.retry._usual_wait", lambda tries: 0.0)
    story = STORIES[name]
    with ChatServer(story.script) as server:
        told: dict[str, Any] = {"llm": "compatible:m", "base_url": server.openai_url} if story.script else {}
        whole = made(story.task, "results", **told, **story.settings)
        asked = [(chat.body["messages"], chat.body.get("max_tokens")) for chat in server.chats]
        answered = transcript_of(whole)
        requests = [sum(line["requests"] for line in answered[:k]) for k in range(len(answered) + 1)]
        for torn in (False, True):
            for lines, attempts in list(moments(whole))[torn :: amount(16, 2) if torn else amount(8, 1)]:
                folder = tmp_path / "interrupted" / f"{lines}-{attempts}-{torn}" / whole.name
                broken_off(whole, folder, lines, attempts, torn)
                server.requests.clear()
                server._played = requests[lines]
                finish(folder)
                where = f"after {lines} lines and {attempts} attempts{', torn' if torn else ''}"
                assert outcome(folder) == outcome(whole), where
                assert timeless(transcript_of(folder)) == timeless(transcript_of(whole)), where
                # Exactly what the interrupted run had not asked is asked, in the same words.
                again = [(chat.body["messages"], chat.body.get("max_tokens")) for chat in server.chats]
                assert again == asked[requests[lines] :], where


# --- real processes, really killed -----------------------------------------------------------------------------------


class Deadly(ChatServer):
    """A server that kills the client instead of sending the answers with the numbers in `deadly`."""

    deadly: set[int]
    client: Fork

    def _next(self) -> Scripted:
        if self._played in self.deadly:
            self.deadly.discard(self._played)
            self.client.kill()
            self.client.wait()
            return Scripted(status=500)
        return super()._next()


def test_a_client_killed_while_it_waits_asks_only_the_unanswered_request_again(tmp_path: Path) -> None:
    script = [ALWAYS_RIGHT, MALFORMED_LAKE, ALWAYS_DOWN, ALWAYS_RIGHT, ALWAYS_DOWN, NO_POLICY, BEST_LAKE, ALWAYS_DOWN]
    settings = ("--iterations", 6, "--llm", "compatible:m")
    with ChatServer(script) as server:
        told: dict[str, Any] = {"llm": "compatible:m", "base_url": server.openai_url}
        whole = made("frozenlake", "whole", iterations=6, **told)
        asked = [chat.body["messages"] for chat in server.chats]
    with Deadly(script) as server:
        server.deadly = {2, 5}
        arguments = ["run", "frozenlake", *settings, "--base-url", server.openai_url, "--out", "cut"]
        for _ in range(3):
            server.client = start_process(*arguments, cwd=tmp_path)
            server.client.wait()
            arguments = ["resume", the_run(tmp_path / "cut")]
        assert server.client.returncode == 0
        again = [chat.body["messages"] for chat in server.chats]
    assert again == [*asked[:3], *asked[2:6], *asked[5:]]
    mine = the_run(tmp_path / "cut")
    # What was sent and never answered is counted as well.
    assert Logbook(mine).summary().spent.requests == Logbook(whole).summary().spent.requests + 2
    assert [a["score"] for a in attempts_of(mine)] == [a["score"] for a in attempts_of(whole)]
    assert outcome(mine)["best"] == outcome(whole)["best"]


# --- what may be missing or in the way -------------------------------------------------------------------------------


def interrupted(keep: int = 3, **settings: Any) -> tuple[Path, Path]:
    """Return a whole run, and a copy of it that was interrupted after `keep` attempts."""
    whole = made(POLE, "results", **{"iterations": 4, **FEW, **settings})
    folder = Path("interrupted") / whole.name
    broken_off(whole, folder, keep, keep + 1, torn=False)
    return whole, folder


def test_a_replay_buffer_that_had_to_forget_is_brought_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplayBuffer.__init__, "__defaults__", (1000,))
    whole, folder = interrupted()
    begun = resume(folder)
    list(begun.attempts())
    mine, theirs = begun.search.buffer, load_run(whole).search.buffer
    assert [(e.attempt, e.trajectory.seed) for e in mine] == [(e.attempt, e.trajectory.seed) for e in theirs]
    begun.finish()
    assert outcome(folder) == outcome(whole)


def test_requests_that_failed_stay_counted_however_often_a_run_is_resumed() -> None:
    script = [ALWAYS_DOWN, Scripted(status=401), Scripted(status=401), ALWAYS_RIGHT, Scripted(status=401), BEST_LAKE]
    with ChatServer(script) as server:
        settings: dict[str, Any] = {"llm": "compatible:m", "base_url": server.openai_url, "max_calls": 6}
        with pytest.raises(PolicygenError):
            policygen.run("frozenlake", iterations=3, **settings)
        folder = the_run(Path("results"))
        for _ in range(2):
            with pytest.raises(PolicygenError):
                finish(folder)
        finish(folder)
    assert figure(folder, "requests") == 6
    assert [a["requests"]["calls"] for a in attempts_of(folder)] == [0, 1, 3, 2]
    assert sum(line["requests"] for line in transcript_of(folder)) == 6


def test_an_interrupted_replay_goes_on_where_it_was() -> None:
    with ChatServer([ALWAYS_RIGHT, MALFORMED_LAKE, ALWAYS_DOWN, BEST_LAKE]) as server:
        first = made("frozenlake", "results", iterations=3, llm="compatible:m", base_url=server.openai_url)
    whole = made("frozenlake", "replayed", iterations=3, llm=f"replay:{first}")
    for lines, attempts in ((1, 2), (2, 2), (3, 3)):
        folder = Path("interrupted") / f"{lines}" / whole.name
        broken_off(whole, folder, lines, attempts, torn=False)
        finish(folder)
        assert outcome(folder) == outcome(whole)


def test_a_run_whose_server_is_gone_is_not_touched_by_resume() -> None:
    with ChatServer([ALWAYS_RIGHT, Scripted(status=401)]) as server, pytest.raises(PolicygenError):
        policygen.run("frozenlake", iterations=3, llm="compatible:m", base_url=server.openai_url)
    folder = the_run(Path("results"))
    before = lines_of(folder / "attempts.jsonl")
    with pytest.raises(PolicygenError, match="no server answers"):
        finish(folder)
    assert lines_of(folder / "attempts.jsonl") == before


def test_a_run_whose_prompt_outgrew_its_tokens_goes_on_with_more(line: Line, tmp_path: Path) -> None:
    chat = tmp_path / "chat"
    chat.mkdir()
    lets = [f"let f{i} = f{i - 1} + sin({i + 1}*spin - position)^2/7" for i in range(1, 60)]
    long = fenced("let f0 = 2*angle", *lets, "left = 0", "right = f59 + angle - 30")
    for number, reply in enumerate((long, fenced("left = 0\nright = angle + 0.1*spin")), 1):
        (chat / f"reply-00{number}.md").write_text(reply)
    size = ("--iterations", 2, "--policy", "linear", "--set", "episodes=4", "--set", "final_episodes=4")
    started = line("run", "cartpole", "--llm", "manual:chat", "--set", "prompt_tokens=1200", *size, "--out", "runs")
    folder = the_run(tmp_path / "runs")
    assert started.code == 2
    assert "raise --prompt-tokens N" in started.err
    assert f"continue with: policygen resume runs/{folder.name} --trust" in started.err
    done = line("resume", folder, "--trust", "--set", "prompt_tokens=9000")
    assert done.code == 0, done.err
    assert [attempt["number"] for attempt in attempts_of(folder)] == [0, 1, 2]
    assert load_run(folder).config.prompt_tokens == 9_000


# --- finished runs that go on ----------------------------------------------------------------------------------------


def finished(folder: Path, *assignments: str) -> Path:
    """Continue a run to its end, and return its folder."""
    carry_out(resume(folder, changes=dict(map(read_assignment, assignments))))
    return folder


SMALL: dict[str, Any] = {"jobs": 1, "episodes": 4, "warmup_episodes": 4, "final_episodes": 5}
LINEAR: dict[str, Any] = {**SMALL, "policy": "linear", "seed": 3}
SWING = replace(load_task("pendulum"), max_steps=60)
REPLIES = [ALWAYS_DOWN, NO_POLICY, MALFORMED_LAKE, ALWAYS_RIGHT, BEST_LAKE, ALWAYS_DOWN]
BUDGETS: dict[str, tuple[str | Task, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "iterations": ("frozenlake", SMALL, {"iterations": 2}, {"iterations": 4}),
    "calls": ("frozenlake", {**SMALL, "iterations": 9}, {"max_calls": 3}, {"max_calls": 6}),
    "patience": ("frozenlake", {**SMALL, "iterations": 4}, {"patience": 1}, {"patience": 3}),
    "tuned": (SWING, {**LINEAR, "refine": "cma:30"}, {"iterations": 2}, {"iterations": 4}),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_finished_run_goes_on_from_where_it_stands(name: str) -> None:
    """Where no attempt depends on the budgets, the outcome is that of a run with the larger ones."""
    task, settings, less, more = BUDGETS[name]
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


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("iterations=2", "--set iterations=2: the run has 3 and cannot get less"),
        ("max_calls=9", "--set max_calls=9: the run has no such limit, and cannot get one"),
        ("refine=cma", "--set refine: a resumed run can only change prompt_tokens, .* or increase iterations, "),
        ("iterations=many", "iterations"),
    ],
)
def test_changes_that_are_not_possible_are_refused_in_a_sentence(assignment: str, sentence: str) -> None:
    folder = made("frozenlake", "runs", iterations=3, **SMALL)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UsageError, match=sentence) as caught:
        resume(folder, changes=dict([read_assignment(assignment)]))
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_command_takes_budgets_as_options(line: Line) -> None:
    folder = made("frozenlake", "runs", iterations=1, **SMALL)
    copy = Path(shutil.copytree(folder, "copy"))
    done = line("resume", folder, "--iterations", 3)
    assert done.code == 0, done.err
    assert done.out.startswith("continuing after attempt 1\n")
    assert "stopped: all 3 iterations are done" in done.out
    assert outcome(finished(copy, "iterations=3")) == outcome(folder)
    with pytest.raises(PolicygenError, match=r"is finished; see it .* or go on with more, as in: .* --iterations 6"):
        resume(folder)
