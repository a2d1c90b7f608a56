"""A plant as a Gymnasium environment: of a run, and of equations written for the test."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit
from searched import made

import policygen
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import RandomActor
from policygen.errors import LogbookError, PolicyError, TaskError, UsageError
from policygen.plants.record import PlantRecord, equations_of
from policygen.plants.simulate import PlantEnv
from policygen.policies.plant import Equations
from policygen.runs.reading import kept_episodes
from policygen.tasks.trust import check_id

CARTPOLE = policygen.load_task("cartpole")
PENDULUM = policygen.load_task("pendulum")
# Gymnasium's own equations of the pole, simplified; `right` is 1 where that is chosen.
POLE = """
let push = 20*right - 10
next position = position + 0.02*velocity
next velocity = velocity + 0.02*push
next angle = angle + 0.02*spin
next spin = spin + 0.02*(15*sin(angle) - 1.5*push)
reward = 1
ends = abs(angle) > 0.2095 or abs(position) > 2.4
start angle = uniform(0.01, 0.02)
noise position = 0.001
"""


def pole(text: str = POLE) -> PlantEnv:
    with Simulator(CARTPOLE) as simulator:
        episodes = simulator.play(RandomActor(CARTPOLE, 0), range(20))
    return PlantEnv(equations_of(PlantRecord(text, 1), CARTPOLE), episodes)


# What Gymnasium advises against is Pendulum's own space of actions, -2 to 2.
@pytest.mark.filterwarnings("error", "ignore:.*symmetric and normalized")
def test_the_plant_of_a_run_is_a_gymnasium_environment(plant_run: Path) -> None:
    env = policygen.plant(plant_run)
    check_env(env.unwrapped)
    with policygen.make_env("pendulum") as real:
        assert (env.observation_space, env.action_space) == (real.observation_space, real.action_space)
    assert gym.make("policygen.api:policygen/Plant-v0", run=plant_run).observation_space == env.observation_space


@pytest.mark.filterwarnings("error", "ignore:.*symmetric and normalized", "ignore:.*is -?infinity")
def test_the_plant_of_a_pole_is_one_too() -> None:
    env = pole()
    env.spec = gym.envs.registration.EnvSpec("policygen-tests/Pole-v0", entry_point=pole)
    check_env(env)
    with policygen.make_env("cartpole") as real:
        assert (env.observation_space, env.action_space) == (real.observation_space, real.action_space)
    starts = np.array([env.reset(seed=seed)[0] for seed in range(50)])
    assert ((starts[:, 2] >= 0.01) & (starts[:, 2] <= 0.02)).all()


def test_a_run_s_plant_moves_as_the_environment_does(plant_run: Path) -> None:
    made, episodes = policygen.plant(plant_run).unwrapped, kept_episodes(plant_run)
    assert isinstance(made, PlantEnv)
    equations, episode = made.plant.equations, episodes[-1]
    assert equations.plant.starts == (("rate", "uniform(-1, 1)"),)
    seen_starts = replace(equations.plant, starts=())
    env = TimeLimit(PlantEnv(Equations(equations.task, seen_starts), episodes), 200)
    first, _ = env.reset(seed=1)
    assert any(np.array_equal(first, seen.observations[0]) for seen in kept_episodes(plant_run))
    while not np.array_equal(first, episode.observations[0]):
        first, _ = env.reset()
    steps = [env.step(action) for action in episode.actions]
    # Later the pendulum stands upright, where errors grow without feedback.
    assert np.abs(np.array([step[0] for step in steps[:40]]) - episode.observations[1:41]).max() < 0.01
    assert [step[1] for step in steps[:40]] == pytest.approx(episode.rewards[:40], abs=0.01)
    assert [step[3] for step in steps] == [False] * 199 + [True], "truncated at the task's limit"
    assert not any(step[2] for step in steps)


@pytest.mark.parametrize("law", ["velocity*1e30 + 1e30", "velocity/0 - velocity/0", "log(0 - 1 - velocity^2)"])
def test_what_leaves_the_data_or_breaks_down_ends_the_episode(law: str) -> None:
    env = pole(POLE.replace("velocity + 0.02*push", law))
    env.reset(seed=0)
    steps = [env.step(0), env.step(0)]
    assert any(step[2] for step in steps)
    assert all(env.observation_space.contains(step[0]) and np.isfinite(step[1]) for step in steps)


def test_actions_are_clipped_or_refused(plant_run: Path) -> None:
    env = pole()
    with pytest.raises(UsageError, match=r"call reset\(\)"):
        env.step(1)
    env.reset()
    with pytest.raises(UsageError, match=r"7 is not in the action space Discrete\(2\)"):
        env.step(7)
    one, other = policygen.plant(plant_run).unwrapped, policygen.plant(plant_run).unwrapped
    one.reset(seed=0), other.reset(seed=0)
    assert np.array_equal(one.step(np.float32([9.0]))[0], other.step(np.float32([2.0]))[0])


def test_a_damaged_or_missing_plant_is_refused_and_runs_no_code(plant_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(plant_run, tmp_path / "run")
    log = folder / "attempts.jsonl"
    log.write_text(log.read_text().replace("next rate = later_rate", "next rate = __import__('os').abort()"))
    with pytest.raises(PolicyError, match="damaged plant"):
        policygen.plant(folder)
    (folder / "episodes.npz").unlink()
    shutil.copy(plant_run / "attempts.jsonl", log)
    with pytest.raises(PolicyError, match="without any real episode"):
        policygen.plant(folder)
    (folder / "episodes.npz").write_bytes(b"PK")
    with pytest.raises(LogbookError, match="damaged"):
        policygen.plant(folder)
    with pytest.raises(PolicyError, match="damaged plant"):
        equations_of(PlantRecord("next nothing = 1", 1), PENDULUM)
    with pytest.raises(PolicyError, match=r"has no plant: .*--refine model"):
        policygen.plant(made("frozenlake", tmp_path, iterations=1))
    with pytest.raises(TaskError, match="untrusted file may only name"):
        check_id("policygen/Plant-v0", "task.toml")
