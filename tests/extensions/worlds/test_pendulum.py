"""The pendulum under an unknown load: Gymnasium's pendulum but for the load and the noise."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from policygen.extensions import worlds

assert worlds
ID = "policygen/PendulumTorque-v0"


def made(**arguments):
    return gym.make(ID, disable_env_checker=True, **arguments)


def test_without_load_and_noise_it_is_gymnasiums_pendulum_to_the_last_bit():
    ours, theirs = made(most_load=0.0, noise=0.0), gym.make("Pendulum-v1", disable_env_checker=True)
    assert np.array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    for push in np.random.default_rng(0).uniform(-3, 3, (200, 1)):  # in double precision, as the load makes ours
        mine, yours = ours.step(push), theirs.step(push)
        assert np.array_equal(mine[0], yours[0])
        assert mine[1:] == (float(yours[1]), *yours[2:])


def test_the_load_is_the_torque_that_keeps_the_rod_from_resting_upright():
    env = made(noise=0.0).unwrapped
    loads = []
    for seed in range(60):
        env.reset(seed=seed)
        load = env.state[2]
        env.state[:2] = 0.0
        env.step(np.array([-load]))
        assert np.allclose(env.state, [0.0, 0.0, load])  # held for ever, whatever the load
        env.step(np.array([0.0]))
        assert env.state[1] == pytest.approx(3 * load * 0.05)
        loads.append(load)
    assert -1.5 < min(loads) < -1.2
    assert 1.2 < max(loads) < 1.5


def test_readings_have_the_noise_that_is_asked_for():
    env = made(most_load=0.0, noise=0.2).unwrapped
    env.reset(seed=0)
    errors = []
    for _ in range(400):
        seen, *_ = env.step(np.zeros(1))
        angle, rate, _ = env.state
        errors.append(seen - [np.cos(angle), np.sin(angle), rate])
    assert np.std(errors, axis=0) == pytest.approx(0.2, rel=0.15)
    assert np.mean(errors, axis=0) == pytest.approx(0.0, abs=0.05)


def test_misuse_is_refused():
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        made().unwrapped.step(np.zeros(1))
    with pytest.raises(ValueError, match=r"most_load is 2; the motor holds loads from 0 to less than 2"):
        made(most_load=2.0)
    with pytest.raises(ValueError, match="noise is -1"):
        made(noise=-1)
    with pytest.raises(gym.error.UnsupportedMode, match="no render mode"):
        made().unwrapped.__class__(render_mode="film")
