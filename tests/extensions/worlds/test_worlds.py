"""Our environments: Gymnasium's own checks, returns of known policies, the pendulum.

It tests `extensions.worlds.finite`, `extensions.worlds.navigation`, `extensions.worlds.pong` and
`extensions.worlds.pendulum`.
"""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from policygen.episodes.vector import VectorCopies
from policygen.extensions import worlds

assert worlds
ROOMS = ["SimpleDoorKey", "KeyInBox", "RandomBoxKey", "ColoredDoorKey"]
NAMES = ["Nim", "Maze", "Navigation", "Pong", "Adventure", "PendulumTorque", "WhenToAsk", *ROOMS]


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_finds_nothing_to_criticise(name):
    mode = "rgb_array" if name in ("WhenToAsk", *ROOMS) else None
    env = gym.make(f"policygen/{name}-v0", **({"render_mode": mode} if mode else {}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # As of Gymnasium's own pendulum: it would rather have actions between -1 and 1.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized.*")
        check_env(env.unwrapped, skip_render_check=mode is None)
    env.close()


def test_misuse_of_dynamics_is_refused():
    env = gym.make("policygen/Pong-v0").unwrapped
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(gym.error.InvalidAction, match="there is no action 9"):
        env.step(9)


# --- returns of named policies, measured elsewhere on the published environments --------------------------------------


def linear_returns(name, weights, episodes):
    """Returns and lengths of a linear policy, `weights` of shape (6, 3) or one such matrix an episode; bias last."""
    env = gym.make(f"policygen/{name}-v0")
    copies = VectorCopies(env, env.spec.max_episode_steps)
    observations = copies.begin(range(episodes))
    weights = np.broadcast_to(weights, (episodes, 6, 3))
    returns, lengths, live = np.zeros(episodes), np.zeros(episodes, int), np.ones(episodes, bool)
    while live.any() and lengths.max() < env.spec.max_episode_steps:
        scores = np.einsum("ni,nij->nj", observations, weights[:, :-1]) + weights[:, -1]
        observations, rewards, ended, *_ = copies.step(scores.argmax(axis=1))
        returns += rewards * live
        lengths += live
        live &= ~ended
    return returns, lengths


def test_a_paddle_that_follows_the_ball_never_misses():
    weights = np.zeros((6, 3))
    weights[0, :2], weights[2, :2] = (1, -1), (-1, 1)
    returns, lengths = linear_returns("Pong", weights, 300)
    assert set(returns) == {3.0}
    assert set(lengths) == {1000}


def test_random_pong_policies_score_as_the_published_ones():
    weights = np.round(np.random.default_rng(0).normal(0, 3, (1_200, 6, 3)), 1)  # as ProPS draws them
    returns, _ = linear_returns("Pong", weights, 1_200)
    shares = np.bincount(returns.astype(int), minlength=4) / len(returns)
    assert shares == pytest.approx([0.843, 0.127, 0.018, 0.012], abs=0.03)
    assert returns.mean() == pytest.approx(0.199, abs=0.06)


def test_the_best_known_linear_driver():
    """-2.1 ... -5.8 of 3,000 published episodes: mean 3,987 +- 17, 95% survive, survivors 4,200; deviation 950."""
    text = "-2.1 -2.2 0.8 2.7 -3.9 4.4 1.1 -1.4 0.6 -0.9 2.8 -5.3 1.1 5.4 0.2 0.7 -5.4 -5.8"
    returns, lengths = linear_returns("Navigation", np.reshape([float(w) for w in text.split()], (6, 3)), 200)
    assert returns.mean() == pytest.approx(3_987, abs=150)
    assert (lengths == 1000).mean() == pytest.approx(0.95, abs=0.04)
    assert returns[lengths == 1000].mean() == pytest.approx(4_200, abs=40)


# --- Gymnasium's pendulum but for the load and the noise --------------------------------------------------------------


def pendulum(**arguments):
    return gym.make("policygen/PendulumTorque-v0", disable_env_checker=True, **arguments)


def test_without_load_and_noise_it_is_gymnasiums_pendulum_to_the_last_bit():
    ours, theirs = pendulum(most_load=0.0, noise=0.0), gym.make("Pendulum-v1", disable_env_checker=True)
    assert np.array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    for push in np.random.default_rng(0).uniform(-3, 3, (200, 1)):  # in double precision, as the load makes ours
        mine, yours = ours.step(push), theirs.step(push)
        assert np.array_equal(mine[0], yours[0])
        assert mine[1:] == (float(yours[1]), *yours[2:])


def test_the_load_is_the_torque_that_keeps_the_rod_from_resting_upright():
    env = pendulum(noise=0.0).unwrapped
    for seed in range(60):
        env.reset(seed=seed)
        load = env.state[2]
        assert abs(load) < 1.5
        env.state[:2] = 0.0
        env.step(np.array([-load]))
        assert np.allclose(env.state, [0.0, 0.0, load])  # held for ever, whatever the load
        env.step(np.array([0.0]))
        assert env.state[1] == pytest.approx(3 * load * 0.05)
