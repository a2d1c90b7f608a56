"""`--max-steps`: a budget of environment steps, which nothing but the final score exceeds."""

from __future__ import annotations

import pytest
from planted import PENDULUM
from searched import made
from support import attempts_of, summary_of

from policygen.errors import UsageError
from policygen.runs.config import effective_config
from policygen.search.prepare import within_steps
from policygen.search.refine import model
from policygen.search.resume import resume
from policygen.tasks.load import load_task

pytestmark = pytest.mark.usefixtures("workplace")
TINY = {"final_episodes": 2, "iterations": 2}


@pytest.mark.parametrize(
    ("task", "steps", "settings"),
    [
        ("cartpole", 2_000, {"policy": "linear", "refine": "model"}),
        ("cartpole", 2_000, {"policy": "table"}),
        ("pendulum", 800, {}),
        ("pendulum", 1_250, {"policy": "linear", "refine": "model", "warmup_episodes": 50}),
        ("pendulum", 4_000, {"policy": "linear", "refine": "cma:20"}),
        ("frozenlake", 400, {"refine": "coordinate:100"}),
    ],
)
@pytest.mark.parametrize("seed", [0])
def test_the_steps_are_never_exceeded(
    task: str, steps: int, settings: dict[str, object], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "INNER_EPISODES", 200)
    monkeypatch.setattr(model, "RESTARTS", 1)
    folder = made(task, "results", max_steps=steps, seed=seed, **TINY, **settings)
    assert 0 < summary_of(folder)["env_steps"] <= steps
    assert all(attempt["env_steps"] <= steps for attempt in attempts_of(folder))


@pytest.mark.parametrize(
    ("limits", "stopped"),
    [
        ({"max_steps": 250}, "fewer than 2 episodes of up to 60 steps take"),
        ({"max_steps": 5_000, "max_episodes": 4}, "would exceed 4 (--max-episodes)"),
        ({"max_steps": 250, "max_episodes": 900}, "fewer than 2 episodes of up to 60 steps take"),
    ],
)
def test_the_reason_for_the_stop_names_the_limit_that_was_met(limits: dict[str, int], stopped: str) -> None:
    folder = made(PENDULUM, "results", **{**TINY, "iterations": 9, "episodes": 2, **limits})
    summary = summary_of(folder)
    assert stopped in summary["stopped"]
    assert "None" not in summary["stopped"]
    assert ("(--max-steps)" in summary["stopped"]) == (stopped.startswith("fewer than 2 episodes"))
    assert summary["env_steps"] <= limits["max_steps"]
    assert summary["episodes"] <= limits.get("max_episodes", 900)


def test_first_data_take_a_twentieth_of_the_steps_however_short_episodes_are() -> None:
    settings = {**TINY, "refine": "none", "policy": "linear"}
    settings.pop("warmup_episodes", None)
    first = attempts_of(made("inverted-pendulum", "results", max_steps=20_000, **settings))[0]
    assert first["env_steps"] >= 1_000
    assert len(first["score"]["returns"]) > 20
    few = attempts_of(made("inverted-pendulum", "results", max_steps=20_000, **settings, warmup_episodes=3))[0]
    assert len(few["score"]["returns"]) == 3


def test_too_few_steps_are_refused_in_one_sentence() -> None:
    task = load_task("pendulum")
    with pytest.raises(UsageError) as refused:
        within_steps(task, effective_config(task, "pendulum", options={"max_steps": 799}))
    assert str(refused.value) == (
        "--max-steps 799 is too few for pendulum, whose episodes take up to 200 steps: "
        "allow at least 4 episodes, 800 steps"
    )
    assert within_steps(task, effective_config(task, "pendulum", options={"max_steps": 800})).episodes == 2


def test_a_finished_run_goes_on_with_more_steps() -> None:
    folder = made(PENDULUM, "results", **{**TINY, "iterations": 9, "episodes": 2, "max_steps": 250})
    before = summary_of(folder)
    more = resume(folder, assignments=["max_steps=500"])
    list(more.attempts())
    more.finish()
    after = summary_of(folder)
    assert before["env_steps"] < after["env_steps"] <= 500
    assert after["attempts"] > before["attempts"]
