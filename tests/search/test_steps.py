"""`--max-steps`, a budget of environment steps before the final score, and the count of every step in all processes."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from planted import PENDULUM
from searched import made, searched
from support import Line, Written, attempts_of, fenced, figure, page_of, the_run

from policygen.episodes import simulator as workers
from policygen.errors import UsageError
from policygen.extensions.plants import tuning as model
from policygen.runs.attempt import steps_played
from policygen.runs.config import effective_config, load_limits
from policygen.runs.logbook import Logbook
from policygen.search.prepare import with_step_limit
from policygen.search.resume import resume
from policygen.search.run import Run, start
from policygen.tasks.load import load_task
from policygen.tasks.task import Requirement, Task, read_perturbation

pytestmark = pytest.mark.usefixtures("workplace")
TINY = {"final_episodes": 2, "iterations": 2}


@pytest.mark.parametrize(
    ("task", "steps", "settings"),
    [
        ("cartpole", 2_000, {"policy": "linear", "refine": "model"}),
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
        ({"max_steps": 250}, "of up to 60 steps could exceed 250 steps (--max-steps)"),
        ({"max_steps": 5_000, "max_episodes": 4}, "would exceed 4 (--max-episodes)"),
        ({"max_steps": 250, "max_episodes": 900}, "of up to 60 steps could exceed 250 steps (--max-steps)"),
    ],
)
def test_the_reason_for_the_stop_names_the_limit_that_was_met(limits: dict[str, int], stopped: str) -> None:
    folder = made(PENDULUM, "results", **{**TINY, "iterations": 9, "episodes": 2, **limits})
    words = figure(folder, "stopped")
    assert stopped in words
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


def test_the_warm_up_takes_a_twentieth_of_the_steps() -> None:
    settings = {**TINY, "refine": "none", "policy": "linear"}
    first = attempts_of(made("inverted-pendulum", "results", max_steps=20_000, **settings))[0]
    assert first["counts"]["env_steps"] >= 1_000
    assert len(first["score"]["returns"]) > 20
    few = attempts_of(made("inverted-pendulum", "results", max_steps=20_000, **settings, warmup_episodes=3))[0]
    assert len(few["score"]["returns"]) == 3


def test_too_few_steps_are_refused_in_one_sentence() -> None:
    task = load_task("pendulum")
    with pytest.raises(UsageError) as refused:
        with_step_limit(task, effective_config(task, "pendulum", options={"max_steps": 799}))
    assert str(refused.value) == (
        "--max-steps 799 is too few for pendulum, whose episodes take up to 200 steps: "
        "use at least 800, enough for 4 episodes"
    )
    assert with_step_limit(task, effective_config(task, "pendulum", options={"max_steps": 800})).episodes == 2


@pytest.mark.parametrize(("name", "method"), [("acrobot", "model"), ("lunarlander", "auto")])
def test_auto_tunes_in_a_plant_where_few_numbers_are_observed(name: str, method: str) -> None:
    task = load_task(name)
    options = {"max_steps": 50_000, "policy": "linear", "refine": "auto"}
    assert with_step_limit(task, effective_config(task, name, options=options)).refine.method == method


def test_steps_are_counted_by_purpose(line: Line) -> None:
    settings = {"policy": "linear", "refine": "cma:48", "episodes": 2, "warmup_episodes": 3, "final_episodes": 2}
    folder = made(PENDULUM, "results", iterations=2, **settings)
    attempts = Logbook(folder).attempts()
    tuned = [int(re.findall(r"(\d+) episodes", attempt.tuned.refinement)[0]) for attempt in attempts[1:]]
    length = PENDULUM.max_steps  # of every episode
    spent = steps_played(attempts)
    assert (spent.random, spent.tuning) == (3 * length, sum(tuned) * length)
    assert spent.judging >= 2 * 2 * length
    assert spent.random + sum(tuned) * length + spent.judging == spent.total == attempts[-1].counts.env_steps
    parts = (
        f"{spent.random:,} with random actions, {spent.tuning:,} for tuning, {spent.judging:,} for evaluating policies"
    )
    assert f"# environment steps: {spent.total:,} before the final score ({parts})" in line("show", folder).out
    assert f"{spent.total:,} before the final score ({parts})" in unescape(page_of(folder))


# --- every step is counted -------------------------------------------------------------------------------------------


MODULE = """
import gymnasium as gym
import numpy as np


class Ticking(gym.Env):
    observation_space = gym.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    fails = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 6 + int(self.np_random.integers(3))
        self.state = self.np_random.normal(size=2)
        return self.state.astype(np.float32), {}

    def step(self, action):
        TICKS.write(b".")
        self.left -= 1
        self.state = np.clip(0.9 * self.state + 0.1 * float(action[0]), -9, 9)
        if self.fails and float(action[0]) == 1.0:
            raise RuntimeError("it broke")
        return self.state.astype(np.float32), -float(abs(self.state).sum()), self.left == 0, False, {}


class Failing(Ticking):
    fails = True


gym.register("Ticking-v0", Ticking, max_episode_steps=8)
gym.register("Failing-v0", Failing, max_episode_steps=8)
"""


@pytest.fixture(scope="module")
def ticking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: worker processes outlive a test."""
    folder = tmp_path_factory.mktemp("counted")
    (folder / "ticking.py").write_text(f"TICKS = open({str(folder / 'ticks')!r}, 'ab', buffering=0)\n{MODULE}")
    return folder


@pytest.fixture
def ticks(ticking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ticking))
    monkeypatch.setenv("PYTHONPATH", str(ticking), prepend=os.pathsep)
    (ticking / "ticks").write_bytes(b"")
    monkeypatch.setattr(workers, "SECONDS_WORTH_SHARING", -1.0)
    monkeypatch.setattr(workers, "SECONDS_WORTH_STARTING", -1.0)
    return ticking / "ticks"


def begun(perturbed: str, required: bool, name: str | Task = "ticking:Ticking-v0", **settings: Any) -> Run:
    task = name if isinstance(name, Task) else load_task(name, **load_limits(None, (), settings))
    perturb = tuple(read_perturbation(text) for text in perturbed.split())
    requirements = (Requirement("small", always="abs(obs0) < 0.9"),) if required else ()
    task = replace(task, perturb=perturb, requirements=requirements)
    options = {"policy": "linear", "episodes": 4, "warmup_episodes": 3, "final_episodes": 2, **settings}
    return start(task, effective_config(task, "t", options=options), Path("results"))


@pytest.mark.parametrize(
    ("perturbed", "required", "name", "jobs"),
    [
        ("", False, "ticking:Ticking-v0", 2),
        ("random_start=3..6", True, "ticking:Ticking-v0", 1),
        ("sensor_noise=0.1 random_start=2", False, "ticking:Ticking-v0", 2),
        ("", False, "ticking:Failing-v0", 1),
        ("", False, "ticking:Failing-v0", 2),
    ],
)
def test_the_count_is_the_number_of_calls(ticks: Path, perturbed: str, required: bool, name: str, jobs: int) -> None:
    run = begun(perturbed, required, name, iterations=3, jobs=jobs, refine="cma:120")
    attempts = list(run.attempts())
    assert run.ledger.env_steps == attempts[-1].counts.env_steps == ticks.stat().st_size
    assert run.ledger.env_steps > run.task.steps_taken > 5_000


def test_the_episodes_that_choose_the_sample_size_are_counted(ticks: Path) -> None:
    task = load_task("ticking:Ticking-v0")
    before = ticks.stat().st_size
    run = start(task, effective_config(task, "t", options={"policy": "linear"}), Path("results"))
    assert run.ledger.env_steps - task.steps_taken == ticks.stat().st_size - before >= 20 * 6
    run.logbook.release()


@pytest.mark.parametrize("jobs", [1, 2])
def test_loading_and_searching_together_exceed_no_limit(ticks: Path, jobs: int) -> None:
    run = begun("random_start=3..6", False, iterations=9, jobs=jobs, max_steps=700, refine="cma:60", patience=9)
    assert 0 < run.task.steps_taken <= 70
    list(run.attempts())
    assert ticks.stat().st_size == run.ledger.env_steps <= 700
    assert "--max-steps" in run.search.stopped


def test_a_limit_that_the_spread_of_observations_exceeds_is_refused_before_a_step_is_taken(ticks: Path) -> None:
    with pytest.raises(UsageError, match=r"enough for 4 episodes, besides 1,0\d\d steps before them"):
        begun("sensor_noise=0.1", False, max_steps=900)
    assert ticks.stat().st_size <= 90


def test_a_resumed_run_measures_no_spread_again(ticks: Path) -> None:
    story: dict[str, Any] = {"name": load_task("ticking:Ticking-v0"), "iterations": 2, "seed": 1, "jobs": 1}
    begun("sensor_noise=0.1", False, **story).logbook.release()  # what this process knows saves no step
    whole = [one.counts.env_steps for one in list(begun("sensor_noise=0.1", False, **story).attempts())]
    run = begun("sensor_noise=0.1", False, **story)
    attempts = run.attempts()
    next(attempts)
    attempts.close()
    run.break_off()
    assert [one.counts.env_steps for one in list(resume(run.folder, trust=True).attempts())] == whole[1:]


# --- real lengths -----------------------------------------------------------------------------------------------------


class Ten(gym.Env[Any, Any]):
    """Every episode ends after ten steps, which the environment states nowhere."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, **options: Any) -> Any:
        super().reset(seed=seed)
        self.x, self.steps = self.np_random.uniform(-0.5, 0.5), 0
        return np.array([self.x, 0], np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.x = float(np.clip(self.x + 0.2 * float(action[0]) + self.np_random.normal(0, 0.05), -1, 1))
        return np.array([self.x, self.steps / 10], np.float32), -(self.x**2), self.steps >= 10, False, {}


gym.register("policygen-tests/Ten-v0", Ten)


def test_a_limit_of_steps_counts_episodes_as_long_as_they_are(line: Line) -> None:
    """A thousand steps are assumed of an episode; ten are played."""
    done = line("run", "policygen-tests/Ten-v0", "--max-steps", 8_000, "--refine", "cma", "--jobs", 1)
    assert done.code == 0, done.err
    allowed = (
        r"about 6\d\d episodes of 10 steps, as random ones take, allow 20 proposals with 20 episodes a score; 1 can"
    )
    assert re.search(allowed, done.out)
    assert "the run ends after 3 attempts without a new best (--patience); the best policy is not scored" in done.out
    folder = the_run(Path("results"))
    config = Logbook(folder).config()
    assert (config.episodes, config.patience) == (20, 3)
    assert any(attempt.tuned.refinement.startswith("cma over") for attempt in Logbook(folder).attempts()[1:])
    assert 4_000 < figure(folder, "environment steps") <= 8_000


def test_longer_episodes_than_expected_never_exceed_the_steps_and_lose_no_attempt() -> None:
    """The first policy of these lives fifty times as long as random actions do."""
    texts = ["right = angle", "right = angle + 0.03", "right = 2 * angle - 0.01"]
    proposals = [fenced(text, "left = 0") for text in texts]
    for steps in (3_000, 6_000, 9_000):
        settings = {"episodes": 4, "refine": "cma", "patience": 9, "iterations": 3, "max_steps": steps}
        context, _ = searched("cartpole", "linear", Written(proposals), **settings)
        assert all(attempt.counts.env_steps <= steps for attempt in context.attempts)
        assert context.best is not None
        assert sum(attempt.number > 0 for attempt in context.attempts) > 0
