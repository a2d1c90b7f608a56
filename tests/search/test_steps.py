"""`--max-steps`: a budget of environment steps before the final score."""

from __future__ import annotations

import re
from html import unescape

import pytest
from planted import PENDULUM
from searched import made, searched
from support import Line, Written, attempts_of, fenced, figure, page_of

from policygen.errors import UsageError
from policygen.extensions.plants import tuning as model
from policygen.runs.attempt import steps_played
from policygen.runs.config import effective_config
from policygen.runs.logbook import Logbook
from policygen.search.prepare import within_steps
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
def test_the_steps_are_never_exceeded(
    task: str, steps: int, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "INNER_EPISODES", 200)
    folder = made(task, "results", max_steps=steps, **TINY, **settings)
    assert 0 < figure(folder, "environment steps") <= steps
    assert all(attempt["counts"]["env_steps"] <= steps for attempt in attempts_of(folder))


@pytest.mark.parametrize(
    ("limits", "stopped"),
    [
        ({"max_steps": 250}, "too few for 2 episodes of up to 60 steps"),
        ({"max_steps": 5_000, "max_episodes": 4}, "would exceed 4 (--max-episodes)"),
        ({"max_steps": 250, "max_episodes": 900}, "too few for 2 episodes of up to 60 steps"),
    ],
)
def test_the_reason_for_the_stop_names_the_limit_that_was_met(limits: dict[str, int], stopped: str) -> None:
    folder = made(PENDULUM, "results", **{**TINY, "iterations": 9, "episodes": 2, **limits})
    words = figure(folder, "stopped")
    assert stopped in words
    assert "None" not in words
    assert ("(--max-steps)" in words) == (stopped.startswith("too few for 2 episodes"))
    assert figure(folder, "environment steps") <= limits["max_steps"]
    assert figure(folder, "episodes") <= limits.get("max_episodes", 900)


def test_a_close_comparison_goes_on_while_single_episodes_are_affordable() -> None:
    """The run can afford three more episodes of full length, too few at once; these last 40 steps."""
    proposals = [fenced("right = angle", "left = 0"), fenced("right = angle + 0.03", "left = 0")]
    limits = {"max_steps": 2_000, "episodes": 2, "seed": 3}
    context, _ = searched("cartpole", "linear", Written(proposals), iterations=2, **limits)
    last = context.attempts[-1]
    assert last.accepted
    assert last.comparison.paired_episodes == 8
    assert last.counts.env_steps < 2_000


def test_first_data_take_a_twentieth_of_the_steps_however_short_episodes_are() -> None:
    settings = {**TINY, "refine": "none", "policy": "linear"}
    first = attempts_of(made("inverted-pendulum", "results", max_steps=20_000, **settings))[0]
    assert first["counts"]["env_steps"] >= 1_000
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


@pytest.mark.parametrize(("name", "method"), [("acrobot", "model"), ("lunarlander", "auto")])
def test_auto_tunes_in_a_plant_where_few_numbers_are_observed(name: str, method: str) -> None:
    task = load_task(name)
    options = {"max_steps": 50_000, "policy": "linear", "refine": "auto"}
    assert within_steps(task, effective_config(task, name, options=options)).refine.method == method


def test_a_finished_run_goes_on_with_more_steps() -> None:
    folder = made(PENDULUM, "results", **{**TINY, "iterations": 9, "episodes": 2, "max_steps": 250})
    before = [figure(folder, name) for name in ("environment steps", "attempts")]
    more = resume(folder, changes={"max_steps": 500})
    list(more.attempts())
    more.finish()
    after = [figure(folder, name) for name in ("environment steps", "attempts")]
    assert before[0] < after[0] <= 500
    assert after[1] > before[1]


def test_steps_are_told_by_their_purpose(line: Line) -> None:
    settings = {"policy": "linear", "refine": "cma:48", "episodes": 2, "warmup_episodes": 3, "final_episodes": 2}
    folder = made(PENDULUM, "results", iterations=2, **settings)
    attempts = Logbook(folder).attempts()
    tuned = [int(re.findall(r"(\d+) episodes", attempt.tuned.refinement)[0]) for attempt in attempts[1:]]
    length = PENDULUM.max_steps  # of every episode
    spent = steps_played(attempts)
    assert (spent.random, spent.tuning) == (3 * length, sum(tuned) * length)
    assert spent.judging >= 2 * 2 * length
    assert spent.random + sum(tuned) * length + spent.judging == spent.total == attempts[-1].counts.env_steps
    parts = f"{spent.random:,} with random actions, {spent.tuning:,} for tuning, {spent.judging:,} for judging policies"
    assert f"# environment steps: {spent.total:,} before the final score ({parts})" in line("show", folder).out
    assert f"{spent.total:,} before the final score ({parts})" in unescape(page_of(folder))
