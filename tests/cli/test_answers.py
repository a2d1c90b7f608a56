"""`--cache`: the same command again asks nobody, and says so."""

from __future__ import annotations

from chat_server import ChatServer
from support import ALWAYS_DOWN, ALWAYS_RIGHT, Line

RUN = ("run", "frozenlake", "--episodes", 4, "--set", "final_episodes=4", "--iterations", 2, "--llm", "compatible:m")


def test_the_same_command_again_costs_nothing_and_says_so(line: Line) -> None:
    with ChatServer([ALWAYS_DOWN, ALWAYS_RIGHT]) as server:
        arguments = (*RUN, "--base-url", server.openai_url, "--cache", "answers")
        first = line(*arguments)
        again = line(*arguments)
        assert len(server.chats) == 2
    assert "cache" not in first.out
    idle = line("run", "frozenlake", "--iterations", 1, "--cache", "answers", "--out", "idle")
    assert "  --cache has no effect: builtin asks no model\n" in idle.out
    assert "  [so far 0 requests, 2 replies from the cache, 0 tokens in, 0 tokens out, 0 USD]" in again.out
    assert "replies from the cache: 2 at no cost" in again.out


def test_the_runs_of_a_sweep_share_a_cache(line: Line) -> None:
    sweep = ("sweep", "frozenlake", "--llm", "compatible:m", "--seeds", "5,6", "--set", "iterations=1")
    quick = ("--set", "episodes=4", "--set", "final_episodes=4", "--cache", "answers")
    with ChatServer([ALWAYS_DOWN, ALWAYS_RIGHT]) as server:
        for out in ("one", "two"):
            done = line(*sweep, *quick, "--base-url", server.openai_url, "--out", out)
            assert done.code == 0, done.err
        assert len(server.chats) == 2
