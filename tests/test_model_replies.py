"""Verbatim replies of a chat model to rendered prompts go on being read, and go on scoring what they scored."""

from __future__ import annotations

from pathlib import Path

import pytest

import policygen
from policygen.discovery import load_task
from policygen.language import parse

REPLIES = Path(__file__).parent / "data" / "replies"


@pytest.mark.parametrize(
    ("file", "task", "at_least"),
    [("model_cartpole_lean.md", "cartpole", 475.0), ("model_frozenlake_first.md", "frozenlake", 0.74)],
)
def test_a_real_reply_is_read_and_solves_its_task(file: str, task: str, at_least: float) -> None:
    parsed = parse((REPLIES / file).read_text(encoding="utf-8"), load_task(task))
    assert parsed.problems == ()
    assert parsed.policy is not None
    assert policygen.score(parsed.policy, episodes=50, seed=3).mean >= at_least
