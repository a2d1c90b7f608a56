"""Prompts describe the plant in which policies are tuned, and only then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from searched import POLE, attempts_of, searched, texts
from support import Written, fenced

from policygen.extensions.plants import tuning as model
from policygen.extensions.plants.plant import AHEAD, FITTED_PLANT, Plant, PlantRecord, PredictionError, plant_view
from policygen.extensions.plants.plant import PLANT as STATED
from policygen.policies.parse import parse
from policygen.prompts.render import render_prompt
from policygen.runs.attempt import Attempt
from policygen.runs.config import RunConfig, effective_config
from policygen.runs.state import Context
from policygen.search.loop import new_search
from policygen.tasks.spaces import Actuator, Observation
from policygen.tasks.task import Task

pytestmark = pytest.mark.usefixtures("workplace")

HEATER = Task(
    name="heater",
    gym_id="Heater-v0",
    observations=(Observation("temperature"), Observation("drift")),
    actuators=(Actuator("power", (), 0.0, 1.0),),
    action_space="box",
    max_steps=50,
)
FITTED = PlantRecord(
    "let push = 0.39*right - 0.195\nnext velocity = velocity + push\nnext spin = spin - 1.5*push\nreward = 1",
    330,
    (PredictionError("velocity", 0.02, 0.05), PredictionError("spin", 0.12, 0.47)),
)
PLANT = (
    "let push = 10*right - 10*left",
    "next position = position + fixed(0.02)*velocity",
    "next velocity = velocity + 0.02*push",
    "next angle = angle + fixed(0.02)*spin",
    "next spin = spin + 0.3*angle - 0.03*push",
)


def untuned(kind: str = "linear", **settings: Any) -> tuple[Context, RunConfig]:
    """A search that tunes in a plant, before its first attempt."""
    return searched("cartpole", kind, iterations=1, refine="model", **settings)


def after(context: Context, *attempts: Attempt) -> Context:
    """Return the context with more attempts, numbered in order."""
    numbered = [replace(attempt, number=k) for k, attempt in enumerate(attempts, len(context.attempts))]
    return replace(context, attempts=(*context.attempts, *numbered))


def words(context: Context, config: RunConfig) -> tuple[str, str]:
    system, request = texts(render_prompt(context, config))
    return " ".join(system.split()), " ".join(request.split())


STARTS = " ".join(f"start {name} = uniform(-0.05, 0.05)" for name in ("position", "velocity", "angle", "spin"))


def test_the_first_prompt_states_the_language_and_what_the_task_says_of_the_plant() -> None:
    context, config = untuned()
    system, request = words(context, config)
    for line in ("next NAME = EXPRESSION", "reward = EXPRESSION", "ends = EXPRESSION", "hidden NAME"):
        assert f"`{line}`" in system
    assert "left, right (1 if taken, else 0); all names are values before the step" in system
    assert (
        f"## The plant so far ``` {STARTS} reward = 1 ends = abs(position) > 2.4 or abs(angle) > 0.2095 ``` Not fitted"
        in (request)
    )
    assert "then write it, and the plant beside it." in request


def test_the_example_of_a_plant_can_be_read() -> None:
    system, _ = texts(render_prompt(*untuned()))
    policy, plant = system.split("```\n")[-4:-1:2]
    parsed = parse(f"```\n{policy}{plant}```", HEATER)
    assert parsed.problems == ()
    assert parsed.policy is not None
    assert [name for name, _ in parsed.notes["plant"].next] == ["temperature", "drift"]


def test_a_later_prompt_shows_the_fitted_plant_and_how_well_it_predicts() -> None:
    context, config = untuned()
    context = after(context, Attempt(1, None, None, notes={FITTED_PLANT.key: FITTED}), Attempt(2, None, None))
    view = plant_view(context)
    assert view["regressed"] == ("next velocity", "next spin")  # the reward is the task's
    assert [error.name for error in view["errors"]] == ["spin", "velocity"]
    _, request = words(context, config)
    assert f"``` {' '.join(FITTED.text.split())} ``` Fitted to the 330 steps played." in request
    assert f"one step / {AHEAD} steps ahead" in request
    assert "spin 0.12 / 0.47, velocity 0.02 / 0.05." in request
    assert "Correct the lines with large errors" in request
    good = replace(FITTED, errors=(PredictionError("spin", 0.001, None),))
    _, request = words(after(context, Attempt(3, None, None, notes={FITTED_PLANT.key: good})), config)
    assert "spin 0.001 / -." in request
    assert "It predicts well: leave it and improve the policy." in request


def test_a_plant_written_after_the_last_fit_is_shown_as_written() -> None:
    context, config = untuned()
    first, second = Plant(next=(("angle", "angle + spin"),)), Plant(next=(("spin", "spin - 2*right"),))
    fitted = Attempt(1, None, None, notes={STATED.key: first, FITTED_PLANT.key: FITTED})
    context = after(context, fitted, Attempt(2, None, None, notes={STATED.key: second}))
    _, request = words(context, config)
    assert f"``` next angle = angle + spin next spin = spin - 2*right {STARTS} reward = 1 ends" in request
    assert "Not fitted to data yet." in request


def test_a_reply_holds_a_policy_with_a_plant_or_a_plant_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "INNER_EPISODES", 480)
    monkeypatch.setattr(model, "MOST_ROUNDS", 1)
    options = {"policy": "linear", "episodes": 2, "warmup_episodes": 4, "refine": "model", "iterations": 2}
    config = effective_config(POLE, POLE.name, options=options)
    search = new_search(POLE)
    replies = [fenced(*PLANT, "left = 0", "right = 2*angle"), fenced("next velocity = velocity + 0.39*right - 0.195")]
    first, second = list(attempts_of(search, config, Written(replies)))[-2:]
    assert STATED.of(first) is not None
    assert not first.problems
    assert not second.problems
    assert dict(STATED.of(second).next) == {"velocity": "velocity + 0.39*right - 0.195"}
    assert second.proposed is not None
    account = FITTED_PLANT.of(second)
    _, request = texts(render_prompt(search.context(config), config))
    assert account.text in request
    assert "push" in account.text  # of the line that stayed
    assert "No reply has stated" not in request
