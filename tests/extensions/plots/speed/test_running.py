"""The long prompt that is measured."""

from __future__ import annotations

from policygen.extensions.plots.speed import running


def test_the_long_prompt_keeps_within_the_bar() -> None:
    assert running.long_prompt_characters() <= 9_000
