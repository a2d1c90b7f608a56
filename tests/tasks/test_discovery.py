"""Tasks that are discovered from environments without a task file."""

from __future__ import annotations

import functools

import gymnasium as gym
import numpy as np
import pytest

from policygen.episodes.players import evaluate
from policygen.errors import TaskError
from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.quantities.tree import Number
from policygen.tasks import warmup
from policygen.tasks.draft import draft_of
from policygen.tasks.load import load_task, task_from_gym, task_of
from policygen.tasks.task import output_names

discovered = functools.cache(task_from_gym)


@pytest.mark.parametrize(
    ("gym_id", "names", "kind", "cells"),
    [
        ("CartPole-v1", ["obs0", "obs1", "obs2", "obs3"], "table", 625),
        ("MountainCar-v0", None, "table", 64),
        ("Taxi-v4", ["state"], "table", 500),
        ("Blackjack-v1", ["part0", "part1", "part2"], "table", 704),
        ("Pendulum-v1", None, "linear", 512),
        ("Hopper-v5", None, "linear", None),
    ],
)
def test_an_environment_nobody_described_becomes_a_usable_task(gym_id, names, kind, cells):
    task = discovered(gym_id)
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


class Sampled(gym.Env):
    """Observes whatever its space samples."""

    def __init__(self, space, actions=None):
        self.observation_space = space
        self.action_space = actions or gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def task_observing(space):
    return task_of(lambda: Sampled(space))


NUMBER = gym.spaces.Box(-1, 1, (1,))


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (gym.spaces.Dict({"mode": gym.spaces.Discrete(3, start=5), "x": NUMBER}), (3, 8)),
        (gym.spaces.Tuple((gym.spaces.Discrete(5_000), NUMBER)), (8, 8)),  # too many values for one bin each
        (gym.spaces.Box(-3, 4, (2,), np.int64), (8, 8)),
        (gym.spaces.MultiDiscrete([3, 3, 90, 90]), (3, 3, 8, 8)),
        (gym.spaces.MultiDiscrete([9] * 380), (2,) * 8),  # of what moves most
    ],
)
@pytest.mark.usefixtures("quickly_discovered")
def test_whole_numbers_get_one_bin_a_value_while_there_are_few(space, shape):
    task = task_observing(space)
    assert task.grid is not None
    assert task.grid.shape == shape
    observed = {observation.name: observation for observation in task.observations}
    for dimension in task.grid.dimensions:
        observation = observed[dimension.name]
        values = np.arange(observation.low, observation.high + 1) if observation.integer else ()
        if len(values) == len(dimension.edges) + 1:
            assert np.digitize(values, dimension.edges).tolist() == list(range(len(values)))


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((8, 8, 3), r"observes an image \(8 x 8"),
        ((10, 10), r"observes an image \(10 x 10"),
        ((0,), "observes 0 numbers; policygen is for small policies"),
        ((401,), "observes 401 numbers"),
    ],
)
def test_pictures_and_too_few_or_too_many_numbers_are_refused(shape, sentence):
    with pytest.raises(TaskError, match=sentence):
        task_observing(gym.spaces.Box(0, 1, shape))


class Unbounded(Sampled):
    """Takes any number."""

    def __init__(self):
        super().__init__(NUMBER, gym.spaces.Box(np.array([-np.inf, 2], np.float32), np.float32(np.inf)))


def test_bounds_that_an_action_does_not_have_are_assumed_and_can_be_stated(tmp_path):
    task = task_of(Unbounded)
    assert [(a.low, a.high) for a in task.actuators] == [(-1, 1), (2, 3)]
    assert "action0 goes from -1 to 1, because the environment gives it no bounds; state its `low`" in str(task.assumed)
    path = tmp_path / "own.toml"
    path.write_text(draft_of(task).replace("high = 3.0", "high = 50.0"))
    stated = load_task(str(path), trust=True)
    assert [(a.low, a.high) for a in stated.actuators] == [(-1, 1), (2, 50)]
    assert stated.assumed == ()


@pytest.mark.usefixtures("quickly_discovered")
def test_an_environment_where_nothing_moves_gets_a_linear_policy_and_no_grid():
    task = task_observing(gym.spaces.Box(3, 3, (1,)))
    assert (task.grid, task.default_policy) == (None, "linear")
    assert any("no observation changed" in sentence for sentence in task.assumed)


def test_a_slow_environment_is_looked_at_for_a_limited_time(monkeypatch):
    monkeypatch.setattr(warmup, "SECONDS", 0.0)
    with pytest.warns(UserWarning, match=r"^CartPole-v1 is slow: its bins come from only 2 steps .* a task file"):
        task = task_from_gym("CartPole-v1")
    assert task.grid is not None
    assert task.observations[0].seen.endswith("in only 2 steps")


def test_numbers_may_be_called_by_their_place():
    hopper = load_task("Hopper-v5")
    policy = parse("let x = 2*obs1\naction0 = -obs2\naction1 = x\naction2 = 0", hopper, "linear").policy
    named = parse("let x = 2*torso_angle\nthigh_torque = -thigh_angle\nleg_torque = x\nfoot_torque = 0", hopper).policy
    assert policy == named
    assert parse("action = 2*obs1", load_task("Pendulum-v1"), "linear").policy is not None
    own = parse("let obs1 = 3*obs0\naction = obs1", load_task("Pendulum-v1"), "linear").policy
    assert own is not None
    assert own.to_text() == "let obs1 = 3*x\ntorque = obs1"
