"""Actors, with memory and without, and episodes side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from played import CARTPOLE, CLUMSY, copies_of, policy_for
from support import discovered

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import STRENGTHS, HeldRandomActor, RandomActor
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task

SEEDS = episode_seeds(0, "recorded", 40)


def draws(actor: RandomActor, n: int) -> Any:
    return actor.begin(n).decide(np.zeros((n, 1)), np.arange(n))


def test_held_actions_become_weaker_from_the_third_episode_on_and_choices_do_not():
    torque = load_task("pendulum").actuators[0]
    actor = HeldRandomActor(load_task("pendulum"), 0)
    for strength in (*STRENGTHS, *STRENGTHS):
        actor.begin(1)
        drawn = np.array([actor.decide(np.zeros((1, 3)), np.arange(1)) for _ in range(400)])
        assert 0.5 * strength < np.abs(drawn).max() / torque.high <= strength * (1 + 1e-6)
        assert drawn.dtype == draws(RandomActor(load_task("pendulum"), 0), 1).dtype
    cart = HeldRandomActor(CARTPOLE, 0)
    for _ in range(5):
        cart.begin(1)
        assert {int(cart.decide(np.zeros((1, 4)), np.arange(1))[0]) for _ in range(400)} == {0, 1}


@pytest.mark.parametrize("name", ["cartpole", "frozenlake", "pendulum", "hopper"])
def test_random_actions_are_valid_seeded_and_use_the_whole_range(name):
    task = load_task(name)
    batch = draws(RandomActor(task, 5), 500)
    assert np.array_equal(batch, draws(RandomActor(task, 5), 500))
    assert not np.array_equal(batch, draws(RandomActor(task, 6), 500))
    env = make_env(task)
    assert all(env.action_space.contains(action) for action in batch)
    env.close()
    for column, actuator in zip(batch.reshape(500, -1).T, task.actuators, strict=True):
        if actuator.is_choice:
            assert set(column.tolist()) == set(range(len(actuator.labels)))
        else:
            assert column.min() < actuator.low + 0.02 * (actuator.high - actuator.low)
            assert column.max() > actuator.high - 0.02 * (actuator.high - actuator.low)


def test_a_seed_gives_the_episode_that_it_gave_when_this_was_written(monkeypatch):
    pendulum = replace(discovered("Pendulum-v1"), max_steps=50)
    with Simulator(CARTPOLE) as vector, copies_of(pendulum, monkeypatch) as copies:
        clumsy = [t.episode_return for t in vector.play(policy_for("cartpole", CLUMSY), SEEDS)]
        random = [t.episode_return for t in vector.play(RandomActor(CARTPOLE, 0), SEEDS)]
        swings = [t.episode_return for t in copies.play(RandomActor(pendulum, 0), SEEDS)]
    assert (clumsy[:6], sum(clumsy)) == ([55, 34, 39, 50, 36, 40], 1669)
    assert (random[:6], sum(random)) == ([17, 27, 13, 9, 84, 17], 931)
    assert swings[:3] == pytest.approx([-441.40877243562363, -402.8433579942426, -465.4942255510091], rel=1e-9)
    assert sum(swings) == pytest.approx(-13306.077896581999, rel=1e-9)
