from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from policygen.episodes.evaluate import evaluate
from policygen.errors import TaskError
from policygen.policies.linear import LinearPolicy
from policygen.policies.table import TablePolicy
from policygen.quantities.tree import Number
from policygen.tasks import discovery
from policygen.tasks.load import load_task
from policygen.tasks.task import output_names


@pytest.mark.parametrize(
    ("gym_id", "names", "kind", "cells"),
    [
        ("CartPole-v1", ["cart_position", "cart_velocity", "pole_angle", "pole_angular_velocity"], "table", 625),
        ("Acrobot-v1", None, "table", 729),
        ("MountainCar-v0", None, "table", 64),
        ("Taxi-v4", ["state"], "table", 500),
        ("Blackjack-v1", ["part0", "part1", "part2"], "table", 704),
        ("Pendulum-v1", None, "linear", 512),
        ("Hopper-v5", None, "linear", None),
    ],
)
def test_an_environment_nobody_described_becomes_a_usable_task(gym_id, names, kind, cells):
    task = load_task(gym_id)
    assert task.gym_id == gym_id
    assert task.assumed
    assert all(sentence and "\n" not in sentence for sentence in task.assumed)
    assert names is None or list(task.observation_names) == names
    assert len(set(task.observation_names)) == len(task.observations)
    assert task.default_policy == kind
    assert task.grid is not None
    assert task.grid.size <= 1_000
    assert cells is None or task.grid.size == cells
    assert set(task.grid.names) <= set(task.observation_names)
    rng = np.random.default_rng(0)
    options = [range(len(a.labels)) if a.is_choice else (a.low, a.high) for a in task.actuators]
    dense = np.stack([rng.choice(list(some), size=task.grid.size) for some in options], axis=1)
    score = evaluate(TablePolicy.from_actions(task, dense), (1, 2))
    assert np.isfinite(score.mean)
    if kind == "linear":
        zero = LinearPolicy(task, (), tuple((name, Number(0.0)) for name in output_names(task)))
        assert np.isfinite(evaluate(zero, (1, 2)).mean)


def test_what_was_assumed_names_the_bins_the_names_and_the_limit():
    sentences = " / ".join(load_task("CartPole-v1").assumed)
    assert "named after the environment's documentation: cart_position" in sentences
    assert "actions are named by number" in sentences
    assert "bins lie at quantiles of 5,000 steps" in sentences
    blackjack = " / ".join(load_task("Blackjack-v1").assumed)
    assert "episodes are cut at 1000 steps" in blackjack
    assert "one table row per state (704 cells)" in blackjack
    hopper = load_task("Hopper-v5")
    assert any(sentence.startswith("a table looks at") for sentence in hopper.assumed)
    assert len(hopper.observations) == 11


def test_discovery_is_the_same_every_time():
    assert load_task("Acrobot-v1") == load_task("Acrobot-v1")


class Sampled(gym.Env):
    """Observes whatever its space samples."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.fixture
def task_observing():
    """A task for an environment that observes a given space."""

    def loaded(space):
        gym.register("policygen-tests/Sampled-v0", Sampled, kwargs={"space": space}, max_episode_steps=50)
        return load_task("policygen-tests/Sampled-v0")

    yield loaded
    gym.registry.pop("policygen-tests/Sampled-v0", None)


NUMBER = gym.spaces.Box(-1, 1, (1,))


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (gym.spaces.Dict({"mode": gym.spaces.Discrete(3), "x": NUMBER}), (3, 8)),
        (gym.spaces.Dict({"mode": gym.spaces.Discrete(3, start=5), "x": NUMBER}), (3, 8)),
        (gym.spaces.Tuple((NUMBER, gym.spaces.Discrete(100))), (8, 100)),
        (gym.spaces.Tuple((gym.spaces.MultiDiscrete([3, 5]), NUMBER, NUMBER)), (3, 5, 7, 7)),
        (gym.spaces.Tuple((gym.spaces.Discrete(5_000), NUMBER)), (8, 8)),  # too many values for one bin each
        (gym.spaces.Box(-3, 4, (2,), np.int64), (8, 8)),
        (gym.spaces.MultiDiscrete([3, 3, 90, 90]), (3, 3, 8, 8)),
    ],
)
def test_whole_numbers_get_one_bin_a_value_while_there_are_few(task_observing, space, shape):
    task = task_observing(space)
    assert task.grid is not None
    assert task.grid.shape == shape
    for observation, dimension in zip(task.observations, task.grid.dimensions, strict=True):
        values = np.arange(observation.low, observation.high + 1) if observation.integer else ()
        if len(values) == len(dimension.edges) + 1:
            assert np.digitize(values, dimension.edges).tolist() == list(range(len(values)))


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(0, 255, (8, 8, 3), np.uint8),
        gym.spaces.Box(0, 1, (8, 8, 3), np.float32),
        gym.spaces.MultiDiscrete([9] * 380),
        gym.spaces.MultiBinary(300),
    ],
    ids=["bytes", "floats", "choices", "bits"],
)
def test_small_pictures_get_a_table_of_what_moves_most(task_observing, space):
    task = task_observing(space)
    assert len(task.observations) == np.prod(space.shape)
    assert task.grid is not None
    assert (len(task.grid.dimensions), task.grid.size) == (8, 256)


def test_an_environment_that_observes_nothing_is_refused(task_observing):
    with pytest.raises(TaskError, match="observes 0 numbers"):
        task_observing(gym.spaces.Box(0, 1, (0,)))


class Wide(gym.Env):
    """401 numbers, none of which moves."""

    observation_space = gym.spaces.Box(-1, 1, (401,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        return np.zeros(self.observation_space.shape, np.float32), 0.0, False, False, {}


class Still(Wide):
    """A single number that never moves."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)


@pytest.fixture
def registered():
    gym.register("policygen-tests/Wide-v0", Wide)
    gym.register("policygen-tests/Still-v0", Still)
    yield
    gym.registry.pop("policygen-tests/Wide-v0")
    gym.registry.pop("policygen-tests/Still-v0")


def test_too_many_observed_numbers_are_refused(registered):
    with pytest.raises(TaskError, match=r"observes 401 numbers; policygen is for small policies"):
        load_task("policygen-tests/Wide-v0")


def test_an_environment_where_nothing_moves_gets_a_linear_policy_and_no_grid(registered):
    task = load_task("policygen-tests/Still-v0")
    assert task.grid is None
    assert task.default_policy == "linear"
    assert any("nothing observed changed" in sentence for sentence in task.assumed)


def test_a_slow_environment_is_looked_at_for_a_limited_time(monkeypatch):
    monkeypatch.setattr(discovery, "WARM_UP_SECONDS", 0.0)
    with pytest.warns(UserWarning, match=r"^CartPole-v1 is slow: its bins come from 2 steps .* a task file"):
        task = load_task("CartPole-v1")
    assert task.grid is not None
