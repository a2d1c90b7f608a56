"""`--cache` and `policygen cache`: the same command again asks nobody, and says so."""

from __future__ import annotations

from pathlib import Path

from chat_server import ChatServer
from support import ALWAYS_DOWN, ALWAYS_RIGHT, in_a_process, sentences

RUN = ("run", "frozenlake", "--episodes", 4, "--set", "final_episodes=4", "--iterations", 2, "--llm", "compatible:m")


def test_the_same_command_again_costs_nothing_and_says_so(tmp_path: Path) -> None:
    with ChatServer([ALWAYS_DOWN, ALWAYS_RIGHT]) as server:
        arguments = (*RUN, "--base-url", server.openai_url, "--cache", "answers")
        first = in_a_process(*arguments, cwd=tmp_path)
        again = in_a_process(*arguments, cwd=tmp_path)
        assert len(server.chats) == 2
    assert "cache" not in first.stdout
    assert "  [0 calls, 2 from the cache, 0 tokens, $0.0000]" in again.stdout
    assert "2 answers came from the cache and cost nothing; 0 requests were sent" in again.stdout
    held = in_a_process("cache", "answers", cwd=tmp_path)
    assert held.stdout.splitlines()[0].startswith("2 answers in answers/replies.sqlite, ")
    assert held.stdout.splitlines()[1] == "  compatible:m: 2, cost unknown"
    (tmp_path / "answers" / "replies.sqlite").write_bytes(b"rubbish" * 999)
    broken = in_a_process(*arguments, cwd=tmp_path)
    assert broken.returncode == 2
    (sentence,) = sentences(broken.stderr)
    assert sentence.startswith("Error: --cache answers: answers/replies.sqlite cannot be used (file is not a database)")
    assert "freed" in in_a_process("cache", "answers", "--clear", cwd=tmp_path).stdout
    assert list((tmp_path / "answers").iterdir()) == []
    assert len(list((tmp_path / "results").iterdir())) == 2


def test_the_runs_of_a_sweep_share_a_cache(tmp_path: Path) -> None:
    sweep = ("sweep", "frozenlake", "--llm", "compatible:m", "--seeds", "5,6", "--set", "iterations=1")
    quick = ("--set", "episodes=4", "--set", "final_episodes=4", "--cache", "answers")
    with ChatServer([ALWAYS_DOWN, ALWAYS_RIGHT]) as server:
        for out in ("one", "two"):
            done = in_a_process(*sweep, *quick, "--base-url", server.openai_url, "--out", out, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        assert len(server.chats) == 2
