"""Verbatim replies of a chat model to rendered prompts go on being read, and go on scoring what they scored."""

from __future__ import annotations

from pathlib import Path

import pytest

import policygen
from policygen.policies.parse import parse
from policygen.tasks.load import load_task

REPLIES = Path(__file__).parents[1] / "data" / "replies"


@pytest.mark.parametrize(
    ("file", "task", "at_least"),
    [("model_cartpole_lean.md", "cartpole", 475.0), ("model_frozenlake_first.md", "frozenlake", 0.74)],
)
def test_a_real_reply_is_read_and_solves_its_task(file: str, task: str, at_least: float) -> None:
    parsed = parse((REPLIES / file).read_text(encoding="utf-8"), load_task(task))
    assert parsed.problems == ()
    assert parsed.policy is not None
    assert policygen.score(parsed.policy, episodes=50, seed=3).mean >= at_least


@pytest.mark.parametrize(("name", "at_least"), [("hopper", 1_400.0), ("bipedalwalker", -60.0)])
def test_a_published_structure_is_read_and_walks_before_any_tuning(name: str, at_least: float) -> None:
    pytest.importorskip("mujoco" if name == "hopper" else "Box2D")
    reply = Path(__file__).parents[2] / "results" / "structures" / name / "reply-001.md"
    parsed = parse(reply.read_text(encoding="utf-8"), load_task(name))
    assert parsed.problems == ()
    assert parsed.policy is not None
    assert policygen.score(parsed.policy, episodes=8, seed=3).mean >= at_least
