"""Every call of an environment's `step` before the final score is counted, in whatever process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policygen.episodes import players as workers
from policygen.errors import UsageError
from policygen.runs.attempt import Attempt
from policygen.runs.config import effective_config, load_limits
from policygen.search.resume import resume
from policygen.search.run import Run, start
from policygen.tasks.load import load_task
from policygen.tasks.task import Requirement, read_perturbation

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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: worker processes outlive a test."""
    folder = tmp_path_factory.mktemp("counted")
    (folder / "ticking.py").write_text(f"TICKS = open({str(folder / 'ticks')!r}, 'ab', buffering=0)\n{MODULE}")
    return folder


@pytest.fixture
def ticks(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    (folder / "ticks").write_bytes(b"")
    monkeypatch.setattr(workers, "SECONDS_WORTH_SHARING", -1.0)
    monkeypatch.setattr(workers, "SECONDS_WORTH_STARTING", -1.0)
    return folder / "ticks"


def begun(perturbed: str, required: bool, name: str = "ticking:Ticking-v0", **settings: Any) -> Run:
    task = load_task(name, **load_limits(None, (), settings))
    perturb = tuple(read_perturbation(text) for text in perturbed.split())
    requirements = (Requirement("small", always="abs(obs0) < 0.9"),) if required else ()
    task = replace(task, perturb=perturb, requirements=requirements)
    options = {"policy": "linear", "episodes": 4, "warmup_episodes": 3, "final_episodes": 2, **settings}
    return start(task, effective_config(task, "t", options=options), Path("results"))


def searched(run: Run) -> list[Attempt]:
    return list(run.attempts())


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
    attempts = searched(run)
    assert run.ledger.env_steps == attempts[-1].counts.env_steps == ticks.stat().st_size
    assert run.ledger.env_steps > run.task.steps_taken > 5_000


def test_the_count_depends_on_no_number_of_processes(ticks: Path) -> None:
    perturbed = "random_start=3..6 sensor_noise=0.1"
    one, two = (searched(begun(perturbed, False, iterations=2, jobs=jobs)) for jobs in (1, 2))
    assert [attempt.counts.env_steps for attempt in one] == [attempt.counts.env_steps for attempt in two]


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
    searched(run)
    assert ticks.stat().st_size == run.ledger.env_steps <= 700
    assert "--max-steps" in run.search.stopped


def test_a_limit_that_the_spread_of_observations_exceeds_is_refused_before_a_step_is_taken(ticks: Path) -> None:
    with pytest.raises(UsageError, match=r"allow at least 4 episodes, besides 1,0\d\d steps before them"):
        begun("sensor_noise=0.1", False, max_steps=900)
    assert ticks.stat().st_size <= 90


def test_a_resumed_run_measures_no_spread_again(ticks: Path) -> None:
    begun("sensor_noise=0.1", False, iterations=2, seed=1).logbook.release()  # what this process knows saves no step
    whole = [one.counts.env_steps for one in searched(begun("sensor_noise=0.1", False, iterations=2, seed=1))]
    run = begun("sensor_noise=0.1", False, iterations=2, seed=1)
    attempts = run.attempts()
    next(attempts)
    attempts.close()
    run.break_off()
    assert [one.counts.env_steps for one in searched(resume(run.folder, trust=True))] == whole[1:]
