"""Perturbed environments: what each perturbation does, what the seed decides, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from policygen.episodes.simulator import ParallelSimulator
from policygen.episodes.trajectory import RandomActor
from policygen.errors import TaskError, UsageError
from policygen.policies.parse import parse
from policygen.tasks import perturbed_env
from policygen.tasks.environments import fits, make_env
from policygen.tasks.load import load_task, task_from_file
from policygen.tasks.perturbed_env import spread_of
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.task import Perturbation, Task, read_perturbation
from policygen.tasks.taskfile import draft_of
from policygen.tasks.warmup import seeds_checked

ACTIONS = (1.5, -0.5, 0.05, 1.9, -1.2, 0.7)


def perturbed(*texts: str, name: str = "pendulum") -> Task:
    return replace(load_task(name), perturb=tuple(map(read_perturbation, texts)))


def states(env: gym.Env[Any, Any], actions: tuple[float, ...] = ACTIONS, seed: int = 1) -> np.ndarray:
    """The true states of a pendulum."""
    env.reset(seed=seed)
    found = []
    for action in actions:
        env.step(np.array([action], np.float32))
        found.append(np.array(env.unwrapped.state))
    return np.array(found)


@pytest.mark.parametrize(
    ("text", "applied"),
    [
        ("action_delay=2", (0, 0, 1.5, -0.5, 0.05, 1.9)),
        ("actuator_gain=0.5", (0.75, -0.25, 0.025, 0.95, -0.6, 0.35)),
        ("actuator_gain=1.5", (2, -0.75, 0.075, 2, -1.8, 1.05)),
    ],
)
def test_an_actuator_applies_another_action(text: str, applied: tuple[float, ...]) -> None:
    nominal = states(make_env(load_task("pendulum")), applied)
    assert states(make_env(perturbed(text))) == pytest.approx(nominal, abs=1e-6)


def test_a_delayed_choice_repeats_the_first_one() -> None:
    env, nominal = make_env(perturbed("action_delay=2", name="cartpole")), gym.make("CartPole-v1")
    env.reset(seed=3), nominal.reset(seed=3)
    for decided, applied in zip((1, 0, 0, 1, 0), (1, 1, 1, 0, 0), strict=True):
        assert env.step(decided)[0] == pytest.approx(nominal.step(applied)[0])


def test_sensors() -> None:
    spread = spread_of(gym.make("Pendulum-v1"))
    assert (spread > 0.3).all()

    def wrong(*texts: str, seed: int = 1) -> np.ndarray:
        env = make_env(perturbed(*texts))
        env.reset(seed=seed)
        found = []
        for _ in range(190):
            observed = env.step(np.array([0.3], np.float32))[0]
            theta, rate = env.unwrapped.state
            found.append((observed - [np.cos(theta), np.sin(theta), rate]) / spread)
        return np.array(found)

    noise = wrong("sensor_noise=0.1")
    assert noise.std(axis=0) == pytest.approx(0.1, rel=0.2)
    assert abs(noise.mean()) < 0.02
    biases = [wrong("sensor_bias=0.2", seed=seed) for seed in (1, 2, 3, 4)]
    assert np.abs(biases) == pytest.approx(0.2, abs=1e-3)
    assert all(np.ptp(bias, axis=0).max() < 1e-3 for bias in biases)
    assert len({tuple(np.sign(bias[0])) for bias in biases}) > 1
    assert wrong("sensor_noise.rate=2").std(axis=0) == pytest.approx([0, 0, 2 / spread[2]], rel=0.2, abs=1e-6)
    both = wrong("sensor_noise=0.1", "sensor_noise.rate=0")
    assert both.std(axis=0) == pytest.approx([0.1, 0.1, 0], rel=0.2, abs=1e-6)
    env = make_env(perturbed("sensor_dropout=0.3"))
    shown = [env.reset(seed=1)[0], *(env.step(np.array([2], np.float32))[0] for _ in range(190))]
    repeated = sum(np.array_equal(one, other) for one, other in itertools.pairwise(shown))
    assert 35 < repeated < 80


def test_rewards_remain_those_of_the_environment() -> None:
    env, nominal = make_env(perturbed("sensor_noise=0.5", "sensor_bias=1")), gym.make("Pendulum-v1")
    env.reset(seed=5), nominal.reset(seed=5)
    for action in ACTIONS:
        assert env.step(np.array([action]))[1] == pytest.approx(nominal.step(np.array([action], np.float32))[1])


def test_random_actions_before_the_start_count_for_no_limit() -> None:
    task = perturbed("random_start=30")
    first, *_ = make_env(task).reset(seed=1)
    assert np.abs(first - gym.make("Pendulum-v1").reset(seed=1)[0]).max() > 0.1
    with ParallelSimulator(task, 1) as players:
        assert [len(episode.rewards) for episode in players.play(RandomActor(task, 0), (1, 2))] == [200, 200]
    falling = perturbed("random_start=50", name="cartpole")  # far more than random actions survive
    with ParallelSimulator(falling, 1) as players:
        assert np.mean([len(episode.rewards) for episode in players.play(RandomActor(falling, 0), range(5))]) > 3


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("mass", lambda model: (model.body_mass, model.body_inertia)),
        ("friction", lambda model: (model.geom_friction,)),
        ("motor", lambda model: (model.actuator_gainprm,)),
    ],
)
def test_physics_are_multiplied_anew_in_each_episode(name: str, read: Callable[[Any], tuple[np.ndarray, ...]]) -> None:
    task = replace(load_task("hopper"), perturb=(Perturbation(name, 0.5, 1.5),))
    env, nominal = make_env(task), gym.make("Hopper-v5").unwrapped
    factors = []
    for seed in (1, 2, 3, 1):
        env.reset(seed=seed)
        for now, before in zip(read(env.unwrapped.model), read(nominal.model), strict=True):
            factor = float(np.abs(now).sum() / np.abs(before).sum())
            assert now == pytest.approx(before * factor)
        factors.append(factor)
    assert factors[0] == factors[3]
    assert len(set(factors[:3])) == 3
    assert all(0.5 <= factor <= 1.5 for factor in factors)
    if name == "mass":  # MuJoCo derives inverse masses, to which joints add an inertia of their own
        derived, before = (one.model.body_invweight0[1, 0] for one in (env.unwrapped, nominal))
        assert derived == pytest.approx(before / factors[-1], rel=0.05)


def test_arguments_of_the_environment() -> None:
    env = make_env(perturbed("kwargs.g=5..15"))
    drawn = [env.reset(seed=seed) and env.unwrapped.g for seed in (1, 2, 3, 1)]
    assert drawn[0] == drawn[3]
    assert len(set(drawn)) == 3
    assert all(5 <= g <= 15 for g in drawn)


def test_the_seed_of_an_episode_decides_whoever_plays_it() -> None:
    task = perturbed("sensor_noise=0..0.2", "action_delay=0..3", "actuator_gain=0.5..1.5")
    wider = replace(task, perturb=tuple(replace(one, high=one.high + 1) for one in task.perturb))
    actor = parse("torque = -1*rate - 5*sin", task, "linear").policy
    assert actor is not None

    def returns(played: Task, seeds: tuple[int, ...], jobs: int) -> list[float]:
        with ParallelSimulator(played, jobs) as players:
            players.isolated = jobs > 1  # in processes that keep their environments
            return [sum(episode.rewards) for episode in players.play(actor, seeds)]

    first = returns(task, (4, 5, 6), 1)
    assert len(set(first)) == 3
    assert returns(task, (6, 4), 1) == [first[2], first[0]]
    assert returns(task, (4, 5, 6), 2) == first
    assert returns(wider, (4, 5, 6), 2) != first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((f"action_delay{size}", "write NAME=SIZE or NAME=LOW..HIGH") for size in ("", "=two", "=1..2..3")),
        ("action_delay=1.5", "whole numbers"),
        ("action_delay=-1", "below 0"),
        ("sensor_noise=0.2..0.1", "not a range"),
        ("sensor_noise=1e999", "not a range"),
        ("sensor_dropout=1.2", "above 1"),
        ("wind=3", "there is no perturbation `wind`; known are sensor_noise, "),
        ("kwargs.a-b=3", "write NAME=SIZE"),
        ("mass.torso=3", "there is no perturbation `mass.torso`"),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_perturbation(text)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("frozenlake", "sensor_noise=0.1", "observations are arrays of numbers"),
        ("cartpole", "actuator_gain=0.9", "whose actions are arrays of numbers"),
        ("pendulum", "mass=1.1", "needs a MuJoCo environment"),
        ("pendulum", "kwargs.wind=3", "wind"),
        ("pendulum", "sensor_noise.torque=3", "there is no signal `torque`; known are cos, sin, rate"),
    ],
)
def test_a_perturbation_that_does_not_fit_is_refused(name: str, text: str, said: str) -> None:
    task = perturbed(text, name=name)
    with pytest.raises(TaskError, match=said):
        make_env(task)
    assert not fits(load_task(name), task.perturb[0])


def test_a_task_file_states_perturbations(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nabout = "x"\ngym_id = "Pendulum-v1"\n[perturb]\n'
        "action_delay = [0, 2]\nsensor_noise = 0.02\nkwargs.g = [9, 11]\n"
    )
    task = task_from_file(path)
    assert list(map(str, task.perturb)) == ["action_delay=0..2", "sensor_noise=0.02", "kwargs.g=9..11"]
    assert task_from_record(task_to_record(task)).perturb == task.perturb
    path.write_text(draft_of(task))
    assert task_from_file(path) == task
    for line, said in (
        ("action_delay = [1]", "`perturb.action_delay` is one number, or two"),
        ("action_delay = [2, 1]", "not a range"),
        ('action_delay = "much"', "perturb"),
        ("mass = [0.8, 1.2]", "needs a MuJoCo environment"),
    ):
        path.write_text(f'name = "mine"\nabout = "x"\ngym_id = "Pendulum-v1"\n[perturb]\n{line}\n')
        with pytest.raises(TaskError) as raised:
            task_from_file(path)
        assert said in str(raised.value), line


def test_measuring_the_spread_draws_no_actions_from_the_environment() -> None:
    perturbed_env._spreads.clear()
    assert not seeds_checked(perturbed("sensor_noise=0.1..0.2")).unseeded


class SetPoint(gym.Env):
    """Observes a random walk and a set-point, which changes between episodes only."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = self.np_random.normal(size=2)
        return self.at.astype(np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.at[0] += 2 * action - 1
        return self.at.astype(np.float32), 0.0, bool(self.np_random.random() < 0.1), False, {}


def test_a_number_that_is_constant_within_episodes_has_no_spread() -> None:
    spread = spread_of(SetPoint())
    assert spread[0] > 1
    assert spread[1] == 0
