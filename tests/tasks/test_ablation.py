"""`--ablate knowledge` withholds names, prose and features from what the model is told."""

from __future__ import annotations

import pytest

from policygen.search.preview import preview
from policygen.tasks.load import load_task
from policygen.tasks.task import without_knowledge


@pytest.mark.parametrize(("task", "secret"), [("cartpole", "angle"), ("frozenlake", "ice")])
def test_the_prompt_of_an_ablated_task_does_not_give_it_away(task: str, secret: str) -> None:
    told = "".join(m.content for m in preview(task, None, (), {}).prompt.messages)
    withheld = "".join(m.content for m in preview(task, None, (), {"ablate": "knowledge"}).prompt.messages)
    assert secret in told
    assert secret not in withheld
    assert task not in withheld
    assert "x0" in withheld


def test_an_integer_state_keeps_a_bin_for_each_value() -> None:
    assert without_knowledge(load_task("frozenlake")).grid.shape == (16,)  # type: ignore[union-attr]
