"""Returns of named policies, computed and measured elsewhere on the published environments."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from policygen.episodes.vector import VectorCopies
from policygen.extensions import worlds

assert worlds


def values(env, sweeps=20):
    """The best expected return from each state within so many steps."""
    table = env.unwrapped.P
    found = dict.fromkeys(table, 0.0)
    for _ in range(sweeps):
        found = {
            state: max(
                sum(p * (reward + found[after] * (not ended)) for p, after, reward, ended in outcomes)
                for outcomes in actions.values()
            )
            for state, actions in table.items()
        }
    return found


def linear_returns(name, weights, episodes):
    """Returns and lengths of a linear policy, `weights` of shape (6, 3) or one such matrix an episode; bias last."""
    env = gym.make(f"policygen/{name}-v0")
    copies = VectorCopies(env, range(episodes))
    observations = copies.first
    weights = np.broadcast_to(weights, (episodes, 6, 3))
    returns, lengths, live = np.zeros(episodes), np.zeros(episodes, int), np.ones(episodes, bool)
    while live.any() and lengths.max() < env.spec.max_episode_steps:
        scores = np.einsum("ni,nij->nj", observations, weights[:, :-1]) + weights[:, -1]
        observations, rewards, ended, *_ = copies.step(scores.argmax(axis=1))
        returns += rewards * live
        lengths += live
        live &= ~ended
    return returns, lengths


def test_nim_and_the_maze_have_their_optimal_values():
    expected = {sticks: -1.0 if sticks % 4 == 1 else 1.0 for sticks in range(1, 11)}
    assert values(gym.make("policygen/Nim-v0")) == pytest.approx({0: 0.0, **expected})
    squares = [0.966667, 0.955556, 0.944444, 0.977778, 0.922222, 0.933333, 0.988889, 1.0, 0.0]
    assert list(values(gym.make("policygen/Maze-v0")).values()) == pytest.approx(squares, abs=1e-6)
    env = gym.make("policygen/Nim-v0", published_actions=True)
    expected = [0, -1, 1, 1, -1, -1, 1 / 3, 1 / 3, -1, -1, -1 / 9]
    assert list(values(env).values()) == pytest.approx(expected)
    assert env.unwrapped.P[10][0] == [(1.0, 10, -1.0, True)]  # to take none loses at once


def test_the_opponent_draws_each_reply_of_a_lost_game_with_its_probability():
    env = gym.make("policygen/Nim-v0")
    left = []
    for seed in range(600):
        env.reset(seed=seed)
        left.append(env.step(0)[0])  # nine sticks for the opponent: it has lost and takes any number
    assert sorted(set(left)) == [6, 7, 8]
    assert min(np.bincount(left)[6:]) > 160  # 200 expected, standard deviation 12


def test_the_way_through_the_maze():
    env = gym.make("policygen/Maze-v0", max_episode_steps=4)
    env.reset(seed=0)
    squares, rewards, ended, *_ = zip(*(env.step(action) for action in (1, 1, 2, 2)), strict=True)
    assert squares == (3, 6, 7, 8)
    assert sum(rewards) == pytest.approx(29 / 30)
    assert ended[-1]  # the goal counts on the last step, too


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
