"""The preview of a prompt: the first one of a task, and the next one of a run."""

from __future__ import annotations

from typing import Any

import pytest
from support import LEANING, Written

import policygen
from policygen.errors import UsageError
from policygen.search.resume import preview

pytestmark = pytest.mark.usefixtures("workplace")

QUICK: dict[str, Any] = {"episodes": 4, "final_episodes": 4, "warmup_episodes": 4}


def test_the_first_prompt_is_the_one_a_run_asks() -> None:
    provider = Written([LEANING])
    policygen.run("cartpole", llm=provider, iterations=1, **QUICK)
    shown, _ = preview("cartpole", None, (), {**QUICK, "iterations": 1})
    assert shown.messages == provider.prompts[0].messages


def test_the_next_prompt_of_a_run_is_the_one_it_asks() -> None:
    provider = Written([LEANING, LEANING])
    policygen.run("cartpole", llm=provider, iterations=2, **QUICK, out="whole")
    folder = policygen.run("cartpole", llm=Written([LEANING]), iterations=1, **QUICK).folder
    shown, _ = preview(str(folder), None, (), {"iterations": 2})
    assert shown.messages == provider.prompts[1].messages


def test_a_run_that_knew_names_is_not_shown_without_them() -> None:
    folder = policygen.run("frozenlake", iterations=1, **QUICK).folder
    with pytest.raises(UsageError, match="preview the task itself to see another --ablate"):
        preview(str(folder), None, (), {"ablate": "knowledge"})
