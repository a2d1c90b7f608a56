"""`--refine model`: tuning inside a fitted plant, with plants that are right and plants that are wrong."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import ChatServer
from planted import EXACT, PENDULUM, SWINGS, episode, plant, played, policy
from searched import made
from support import attempts_of, fenced, figure, outcome

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.page.render import own_episodes
from policygen.extensions.plants import tuning as model
from policygen.extensions.plants.equations import Equations
from policygen.extensions.plants.fit import Transitions, fit_plant
from policygen.extensions.plants.plant import FITTED_PLANT, PLANT, Plant
from policygen.extensions.plants.tuning import _PlantSearch, tune_in_plant
from policygen.policies.policy import Policy
from policygen.prompts.render import render_prompt
from policygen.runs.attempt import Attempt, best_of
from policygen.runs.config import effective_config
from policygen.runs.logbook import Logbook
from policygen.search.refine.tunable import Refined, Trials
from policygen.search.resume import load_run, resume
from policygen.search.run import start
from policygen.tasks.load import load_task

pytestmark = pytest.mark.usefixtures("workplace", "small")
BUDGET: dict[str, Any] = {
    "policy": "linear",
    "refine": "model",
    "max_steps": 24 * 60,
    "final_episodes": 2,
    "iterations": 1,
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("INNER_EPISODES", 200), ("MOST_ROUNDS", 2), ("COMPARED", 4)):
        monkeypatch.setattr(model, name, value)


def no_returns(*_: Any) -> Any:
    raise AssertionError("no candidate plays the environment")


def tuned_in_plant(
    start: Policy, seen: Sequence[Trajectory], episodes: int = 5, plant: Plant | None = None
) -> tuple[Refined, list[int]]:
    """The result, and the seeds of the real episodes."""
    watched = list[int]()

    def watch(one: Policy, seeds: Sequence[int]) -> list[Trajectory]:
        watched.extend(seeds)
        return played(start.task, seeds, one)

    def seeds(first: int, count: int) -> range:
        return range(50 + first, 50 + first + count)

    noted = Attempt(1, None, None, notes={PLANT.key: plant} if plant is not None else {})
    refined = tune_in_plant(start, Trials(no_returns, seeds, episodes, watch=watch, seen=seen, attempts=[noted]), 3)
    assert refined is not None
    return refined, watched


@pytest.mark.parametrize("stated", [EXACT, ""], ids=["stated", "identified"])
def test_it_tunes_in_the_plant_and_plays_few_real_episodes(stated: str) -> None:
    refined, watched = tuned_in_plant(
        policy(SWINGS), played(PENDULUM, (1, 2)), plant=plant(EXACT) if stated else Plant()
    )
    fitted = refined.notes[FITTED_PLANT.key]
    assert refined.method == "model"
    assert refined.episodes == len(watched) == len(refined.watched) <= 2
    assert fitted.steps == 60 * (2 + len(watched))
    assert "next rate" in fitted.text
    assert "reward" in fitted.text
    assert max(error for _, error, _ in fitted.errors) < (1e-3 if stated else 0.02)


WRONG = {
    "signs turned": "next rate = rate - 0.15*torque - 0.75*sin\nreward = atan2(sin, cos)^2 + 0.1*rate^2",
    "exploding": "next rate = exp(exp(100 + rate))\nnext cos = cos*1e300*rate\nreward = 1e308*rate*1e308",
    "a fortune": "next rate = fixed(0)\nreward = fixed(1e30)",
    "starts nowhere": "start rate = normal(0, 1e300)",
}


WRONG_TASKS = ({"reward": "10*rate^2"}, {"reward": "1/0"}, {"ends": "rate > -100"})


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("lines", "of_task"), [*((text, {}) for text in WRONG.values()), *(("", w) for w in WRONG_TASKS)]
)
def test_a_wrong_plant_of_a_reply_or_of_the_task_file_is_harmless(lines: str, of_task: dict[str, Any]) -> None:
    with ChatServer([fenced(SWINGS, *lines.split("\n"))]) as server:
        task = replace(PENDULUM, **of_task)
        folder = made(task, "wrong", llm="compatible:m", base_url=server.openai_url, **BUDGET)
    assert figure(folder, "environment steps") <= BUDGET["max_steps"]
    attempt = attempts_of(folder)[1]
    assert ("plant" in attempt["notes"]) is bool(lines)
    assert "given up" not in attempt["tuned"]["refinement"]
    # Played on the same seeds, which the run plays in any case: what is kept is never worse than what was proposed.
    seeds = attempt["score"]["seeds"]
    untuned = [one.episode_return for one in played(PENDULUM, seeds, policy(SWINGS))]
    assert sum(attempt["score"]["returns"]) >= sum(untuned) - 1e-3


def test_a_run_broken_off_after_any_attempt_ends_as_if_it_had_not_been() -> None:
    settings = {**BUDGET, "max_steps": 12 * 60, "iterations": 2, "seed": 2}
    begun = start(PENDULUM, effective_config(PENDULUM, "pendulum", options=settings), Path("whole"))
    folders = []
    for attempt in begun.attempts():
        folders.append(Path("cut") / str(attempt.number) / begun.folder.name)
        shutil.copytree(begun.folder, folders[-1], ignore=shutil.ignore_patterns("*.lock"))
    begun.finish()
    whole = begun.folder
    assert len(folders) > 2
    assert any("fitted_plant" in attempt["notes"] for attempt in attempts_of(whole))
    # Ended after the episodes were saved and before the attempt was.
    torn = Path("torn") / whole.name
    shutil.copytree(folders[0], torn)
    shutil.copy(folders[1] / "episodes.npz", torn)
    for folder in (folders[1], torn):
        resumed = resume(folder)
        list(resumed.attempts())
        resumed.finish()
        assert outcome(folder) == outcome(whole), folder


@pytest.mark.parametrize(
    ("task", "reward", "sought"),
    [
        ("mountaincar-continuous", "100*ends - 0.1*force^2", True),  # paid at the end
        ("mountaincar-continuous", "-1", True),  # each step costs, and the end ends that
        ("mountaincar-continuous", "-1 - 100*ends", False),  # a crash
        ("cartpole", "1", False),  # each step pays
    ],
)
def test_an_end_is_sought_where_the_reward_asks_for_it(task: str, reward: str, sought: bool) -> None:
    one = load_task(task)
    seen = played(replace(one, max_steps=40), (1, 2))
    data = Transitions.of(one, seen)
    if task == "mountaincar-continuous":
        data = replace(data, rewards=data.rewards - 1e-3)
    fitted = fit_plant(Equations(one, Plant(reward=reward, ends=one.ends)), data, np.random.default_rng(0))
    assert fitted.seeks_end == sought


def test_an_episode_that_misses_the_end_is_worth_less_than_one_that_reaches_it_and_more_when_it_came_nearer() -> None:
    one = load_task("mountaincar-continuous")
    data = Transitions.of(one, played(replace(one, max_steps=40), (1, 2)))
    data = replace(data, rewards=data.rewards - 1e-3)
    fitted = fit_plant(Equations(one, Plant(reward=one.reward, ends=one.ends)), data, np.random.default_rng(0))
    inside = _PlantSearch(fitted, Trials(no_returns, range, 0), 0)
    idle, near, there = (
        episode([[-0.5, 0.0], [place, 0.0]], [[0.0]], [paid])
        for place, paid in ((-0.5, 0.0), (0.3, -5.0), (0.46, -9.0))
    )
    assert inside._value(idle) < inside._value(near) < inside._value(there) == there.episode_return


def test_episodes_that_tuning_watched_are_not_shown_as_those_of_the_policy(plant_run: Path) -> None:
    best, buffer = best_of(Logbook(plant_run).attempts()), Logbook(plant_run).buffer()
    assert best is not None
    kept = own_episodes(plant_run, best)
    assert len(kept) == len(best.played) < len(buffer.of_attempt(best.number))
    assert [one.episode_return for one in kept] == list(best.returns)
    config = Logbook(plant_run).config()
    text = render_prompt(load_run(plant_run).search.context(config), config).messages[-1].content
    worst = text[text.index("\n## Best episode") - 3_000 : text.index("\n## Best episode")]
    returns = [float(one) for one in re.findall(r"(?m)^(?:Next worst: )?Return (-[\d.]+),", worst)]
    assert returns
    assert all(any(one == pytest.approx(value, rel=1e-3) for value in best.returns) for one in returns)
