"""The progress of a run: plain lines in a pipe, a panel in a terminal, and after Ctrl-C the command that resumes it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from chat_server import ChatServer, Scripted
from drawn import LAKE, a_policy
from forks import Fork
from support import (
    ALWAYS_LEFT,
    FALLING,
    LEANING,
    NO_POLICY,
    command,
    environment,
    figure,
    in_a_process,
    sentences,
    the_run,
    transcript_of,
)

from policygen.episodes.score import score_of_returns
from policygen.progress import attempt_line
from policygen.runs.attempt import Attempt, Costs, Played, Standing, Tuned, saved
from policygen.runs.facts import attempt_facts

pytestmark = pytest.mark.usefixtures("workplace")

SCORES = "```\nleft = -5*angle - spin\nright = 0\n```"
RUN = (
    "run",
    "cartpole",
    "--episodes",
    5,
    "--set",
    "final_episodes=5",
    "--repairs",
    0,
    "--no-fragility",
    "--llm",
    "compatible:m",
)


class Patient(ChatServer):
    """Answers request number `until` only once `go` is set."""

    def __init__(self, script: list[Scripted | str], until: int) -> None:
        super().__init__(script)
        self.until = until
        self.waiting, self.go = threading.Event(), threading.Event()

    def _next(self) -> Scripted:
        if self._played + 1 == self.until:
            self.waiting.set()
            self.go.wait(60)
            self.until = 0
        return super()._next()


def eventually(what: Callable[[], bool]) -> bool:
    for _ in range(1200):
        if what():
            return True
        time.sleep(0.05)
    return False


# --- a pipe ----------------------------------------------------------------------------------------------------------


def test_in_a_pipe_every_attempt_is_one_plain_line(tmp_path: Path) -> None:
    with ChatServer([LEANING, NO_POLICY, ALWAYS_LEFT, FALLING]) as server:
        done = in_a_process(*RUN, "--iterations", 4, "--base-url", server.openai_url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    first, *attempts = done.stdout.split("\n\n")[0].splitlines()
    assert first == "cartpole (CartPole-v1), policy: table, proposals from compatible:m"
    assert [line.split()[0] for line in attempts] == ["0/4", "1/4", "2/4", "3/4", "4/4"]
    assert "random actions: " in attempts[0]
    # One number stands for the policy, and the others say what they are.
    assert re.search(
        r"  1/4  new best: [\d.]+ on 5 held-out episodes \(search score [\d.]+ over 5 episodes\)  \(", attempts[1]
    )
    assert "no policy: no policy was found" in attempts[2]
    assert "(worse by " in attempts[3]
    assert attempts[4].endswith("[so far 4 requests, 8,000 tokens in, 400 tokens out, unknown USD]")
    assert "stopped: all 4 iterations are done" in done.stdout


# --- a terminal ------------------------------------------------------------------------------------------------------


class Terminal:
    """A real terminal with a command in it."""

    def __init__(self, socket: Path, cwd: Path) -> None:
        self.socket, self.cwd = socket, cwd

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self.socket), "-f", "/dev/null", *arguments],
            capture_output=True,
            text=True,
            env={k: v for k, v in environment(TERM="xterm-256color").items() if k != "COLUMNS"},
            timeout=30,
        )
        return done.stdout

    def start(self, *arguments: object) -> None:
        line = f"trap : INT; {shlex.join(command(*arguments))}; echo ended with $?; cat"
        self.tmux("new-session", "-d", "-x", "110", "-y", "30", "-c", str(self.cwd), f"sh -c {shlex.quote(line)}")

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    @property
    def cursor_is_visible(self) -> bool:
        return self.tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    one = Terminal(tmp_path / "t", tmp_path)
    yield one
    one.tmux("kill-server")


def test_a_terminal_shows_a_live_panel_and_is_left_clean(terminal: Terminal, tmp_path: Path) -> None:
    with Patient([LEANING, ALWAYS_LEFT, FALLING, NO_POLICY], until=3) as server:
        terminal.start(*RUN, "--iterations", 4, "--base-url", server.openai_url)
        assert server.waiting.wait(60)
        waits = re.compile(r"^now +waiting for .*^model +compatible:m: 3 requests", re.MULTILINE | re.DOTALL)
        assert eventually(lambda: waits.search(terminal.screen) is not None)
        panel = terminal.screen
        assert re.search(r"^best +attempt 1: [\d.]+ \[", panel, re.MULTILINE)
        assert re.search(r"^last +2/4  [\d.]+ ", panel, re.MULTILINE)
        assert re.search(r"^now +waiting for compatible:m since [\d:]{8}, until [\d:]{8} \(\d min", panel, re.MULTILINE)
        assert re.search(r"^model +compatible:m: 3 requests, 4,000 tokens in, 200 tokens out, ", panel, re.MULTILINE)
        assert re.search(r"^time +\d+ s, about .* left$", panel, re.MULTILINE)
        assert re.search(r"^done +━+╺━+$", panel, re.MULTILINE)
        assert len(re.findall(r"^(?:done|best|last|model|time) ", panel, re.MULTILINE)) == 5  # one panel, not many
        assert not terminal.cursor_is_visible
        server.go.set()
        assert eventually(lambda: "ended with 0" in terminal.screen)
    screen = terminal.screen
    assert terminal.cursor_is_visible
    assert screen.count("new best: ") >= 2
    after = screen.split("final score: ")[1]
    assert "stopped: all 4 iterations are done" in after
    assert "time " not in after
    assert re.search(r"^best +attempt 3: ", screen, re.MULTILINE)
    assert figure(the_run(tmp_path / "results"), "requests") == 4


def test_a_terminal_tells_of_tuning_and_retries_and_ctrl_c_gives_the_way_to_go_on(
    terminal: Terminal, tmp_path: Path
) -> None:
    again = Scripted(status=429, error="slow down", retry_after=120)
    with ChatServer([SCORES, again]) as server:
        linear = ("--policy", "linear", "--refine", "cma:2400", "--iterations", 2, "--set", "stop_at=501")
        terminal.start(*RUN, *linear, "--base-url", server.openai_url)
        moving = r"^now +tuning attempt 1: [\d,]+ of 2,400 episodes, mean [\d.]+ now, at most about .+ left"
        assert eventually(lambda: re.search(moving, terminal.screen, re.MULTILINE) is not None)
        waiting = r"^now +waiting 120 s for compatible:m, until [\d:]{8}: .*429: slow down"
        assert eventually(lambda: re.search(waiting, terminal.screen, re.MULTILINE) is not None)
        assert len(re.findall("^now ", terminal.screen, re.MULTILINE)) == 1
        terminal.tmux("send-keys", "C-c")
        assert eventually(lambda: "ended with 130" in terminal.screen)
    screen = terminal.screen.replace("\n", "")
    assert f"Nothing is lost; continue with: policygen resume results/{the_run(tmp_path / 'results').name}" in screen
    assert "Traceback" not in screen
    assert terminal.cursor_is_visible


def test_an_interrupt_is_one_sentence_exit_130_and_the_request_stays_counted(tmp_path: Path) -> None:
    with Patient([LEANING, Scripted(status=500), FALLING], until=2) as server:
        arguments = command(*RUN, "--iterations", 2, "--base-url", server.openai_url)
        errors = tmp_path / "errors"
        process = Fork(arguments[1:], tmp_path, environment(), (os.devnull, os.devnull, errors))
        assert server.waiting.wait(60)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        server.go.set()
        folder = the_run(tmp_path / "results")
        hint = f"Interrupted. Nothing is lost; continue with: policygen resume results/{folder.name}"
        assert sentences(errors.read_text()) == [hint]
        assert transcript_of(folder)[-1]["error"] == "interrupted"
        assert eventually(lambda: server._played == 2)
        done = in_a_process("resume", folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("continuing after attempt 1\n")
    assert figure(folder, "requests") == 3


def test_scores_beside_each_other_stand_on_the_same_episodes() -> None:
    """A close comparison prolonged the tuned policy's score from 2 episodes to 4; its first score has 2."""
    seeds, returns = (1, 2, 3, 4), np.array([-20.0, -18.0, -2.0, -4.0])
    attempt = Attempt(
        3,
        saved(a_policy(LAKE)),
        score_of_returns(returns, seeds, "vector"),
        Played((5, 5), (True, True)),
        verdict="undecided",
        tuned=Tuned("cma", saved(a_policy(LAKE)), score_of_returns(np.array([-21.0, -23.0]), seeds[:2], "vector")),
    )
    silent = SimpleNamespace(llm_calls=0, ledger=SimpleNamespace(cached=0), config=SimpleNamespace(iterations=4))
    assert "-19 [-31.71, -6.294] over 2 episodes (-22 before tuning)" in attempt_line(silent, attempt)
    best = replace(attempt, accepted=True, standing=Standing(-11.0, 4, -12.0, 9))
    assert "-12 on 9 held-out episodes (search score -19 over 2 episodes; -22 before tuning)" in attempt_line(
        silent, best
    )
    row = {one.name: one for one in attempt_facts(attempt, Costs())}
    assert (row["proposed"].value, row["score"].value) == (-22.0, -19.0)
    assert row["score"].basis == "mean return over 2 episodes, 95% interval"
