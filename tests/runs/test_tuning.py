"""The limits of tuning, as the search keeps them and prompts state them."""

from __future__ import annotations

import dataclasses

import pytest
from searched import searched, texts
from support import Written

import policygen
from policygen.prompts.render import render_prompt
from policygen.runs.config import effective_config
from policygen.runs.tuning import FIRST_STEP, LEAST_SHARE, constants_for, episodes_of_tuning, method_for, tuning_limits

LAW = "left = 0 - 1*velocity\nnone = 0 - 10\nright = 3*velocity - 0.2*energy + 0.01"


def test_what_is_left_is_divided_over_the_proposals_to_come() -> None:
    task = policygen.load_task("mountaincar")
    config = effective_config(
        task, "mountaincar", options={"refine": "auto", "iterations": 4, "max_episodes": 3_000, "episodes": 10}
    )
    assert episodes_of_tuning(1, config, 3_000) == 3_000 // 5 - 40
    assert episodes_of_tuning(4, config, 3_000) == 3_000 // 2 - 40
    assert episodes_of_tuning(4, config, LEAST_SHARE) == 0
    tuning = tuning_limits(1, task, "linear", config, 0)
    assert (tuning.method, tuning.left, tuning.episodes) == ("cma", 3_000, (3_000 - 10) // 5 - 40)
    assert constants_for(500) == 25


def test_each_kind_of_policy_has_its_method() -> None:
    task = policygen.load_task("cartpole")
    config = effective_config(task, "cartpole", options={"refine": "auto:500"})
    table, linear = (tuning_limits(1, task, kind, config, 0) for kind in ("table", "linear"))
    assert (table.method, linear.method) == ("coordinate", "cma")
    assert method_for("cma", choices=True) == "cma"
    coordinate = effective_config(task, "cartpole", options={"refine": "coordinate"})
    assert tuning_limits(1, task, "linear", coordinate, 0) is None
    assert tuning_limits(1, task, "table", effective_config(task, "cartpole"), 0) is None
    for name in ("q", "policy-iteration"):
        learning = effective_config(task, "cartpole", options={"refine": name})
        assert getattr(tuning_limits(1, task, "table", learning, 0), "method", None) == name
        assert tuning_limits(1, task, "linear", learning, 0) is None


@pytest.mark.usefixtures("workplace")
def test_the_prompt_says_what_tuning_may_do_and_that_is_what_it_does() -> None:
    context, config = searched("mountaincar", "linear", Written([LAW, LAW]), iterations=2, refine="auto:96", episodes=4)
    limited = config.model_copy(update={"max_episodes": 1_000})
    context = dataclasses.replace(context, tuning=tuning_limits(2, context.task, "linear", limited, 200))
    words = " ".join(texts(render_prompt(context, config))[1].split("## Tuning")[1].split())
    assert "it may play 96 episodes of the 800 left to the run" in words
    assert "in generations of 12 or more candidates, each on 1 to 4 episodes: enough for about" in words
    step = (
        f"{100 * FIRST_STEP:.0f}% of its value, or of its range in `tune`; half of that if the policy, as you write it"
    )
    assert f"A constant's first step is about {step}" in words
    assert f"about {constants_for(96)} constants" in words
    assert "96 episodes" in context.attempts[1].tuned.refinement
