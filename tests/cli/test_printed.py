"""Commands that the program prints can be pasted: they are collected from what it says, and carried out."""

from __future__ import annotations

import re
import shlex
import sys
from html import unescape
from pathlib import Path

import pytest
from chat_server import ChatServer
from support import ALWAYS_DOWN, Line, Said, fenced

from policygen.cli import commands

ROOM = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Room(gym.Env):
    observation_space = spaces.Discrete(16)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return int(self.np_random.integers(16)), {}

    def step(self, action):
        self.steps += 1
        return int(self.np_random.integers(16)), float(action), False, self.steps >= 3, {}
"""
SMALL = ("--iterations", 1, "--set", "episodes=2", "--set", "final_episodes=2", "--set", "jobs=1")
FINAL = [word for name in ("policy=table", "iterations=1", "seed=0", "episodes=2") for word in ("--set", name)]
NAMES = "|".join(sorted(commands.commands))


def printed(text: str) -> list[list[str]]:
    """The commands in what was printed, as words without `policygen`; a sentence may go on after one."""
    rests = re.split(rf"(?<![\w/.-])policygen (?=(?:{NAMES}) )", text)[1:]
    return [shlex.split(re.split(r"[\n`;<)]|, (?:or|then|to) | and name it", rest)[0]) for rest in rests]


@pytest.fixture
def typed(line: Line) -> Line:
    """A command in this process, which has not imported the user's module, as the next process has not."""

    def said(*words: object) -> Said:
        sys.modules.pop("rooms", None)
        return line(*words)

    return said


@pytest.mark.usefixtures("quickly_discovered")
@pytest.mark.parametrize("own", [False, True], ids=["shipped", "own"])
def test_every_command_that_is_printed_can_be_pasted(own: bool, typed: Line) -> None:
    done: list[list[str]] = []

    def paste(text: str) -> None:
        for words in printed(text):
            if words not in done:
                done.append(words)
                said = typed(*words)
                lacks_key = "OPENAI_API_KEY" in said.err and any(word.startswith("openai:") for word in words)
                assert said.code == 0 or lacks_key, (words, said)

    Path("rooms.py").write_text(ROOM)
    reply = fenced("| state | action |", "| --- | --- |", "| * | 1 |") if own else ALWAYS_DOWN
    task = ("my room.toml", "--trust") if own else ("frozenlake",)
    if own:
        assert typed("new", "rooms:Room", "-o", "my room.toml").out.count("'my room.toml' --trust") == 2
    with ChatServer([reply] * 60) as server:
        asking = ("--llm", "compatible:m", "--base-url", server.openai_url)
        assert typed("run", *task, *SMALL, *asking, "--out", "my runs").code == 0
        (run,) = Path("my runs").iterdir()
        assert typed("report", run).code == 0
        paste(unescape(Path("report.html").read_text()))
        assert [words[:2] for words in done] == [["run", task[0]]] * 2
        assert f"replay:{run}" in done[1]
        paste(typed("resume", run).err)
        paste(typed("sweep", *task, *SMALL, *asking, "--seeds", 2, "--max-calls", 2, "--out", "my sweep").out)
        assert [words[0] for words in done[2:]] == ["show", "resume", "compare"]
