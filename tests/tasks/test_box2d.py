"""Facts of Box2D worlds."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest

from policygen.tasks.box2d import world_facts

pytest.importorskip("Box2D")


def test_the_walkers_reward_is_the_formula_that_is_told():
    env = gym.make("BipedalWalker-v3")
    (line,) = (one for one in world_facts(env, ["a"] * 24, ["b"] * 4) if one.startswith("Reward"))
    forward, lean, effort = map(float, re.findall(r"(-?[\d.]+) x", line.replace("- ", "-")))
    hull = env.reset(seed=5) and env.unwrapped.hull  # type: ignore[attr-defined]
    env.action_space.seed(5)
    for _ in range(30):
        x, angle, action = hull.position.x, abs(hull.angle), env.action_space.sample()
        _, reward, terminated, _, _ = env.step(action)
        assert not terminated
        expected = forward * (hull.position.x - x) + lean * (abs(hull.angle) - angle) + effort * abs(action).sum()
        assert reward == pytest.approx(expected, abs=2e-3)


def test_a_hinge_turns_the_way_that_is_told():
    env = gym.make("BipedalWalker-v3")
    assert "a positive angle moves legs[1] towards +x" in world_facts(env, ["a"] * 24, ["b"] * 4)[1]
    env.reset(seed=0)
    hinge = env.unwrapped.joints[1]  # type: ignore[attr-defined]
    thigh, shin = hinge.bodyA, hinge.bodyB
    before, angle = thigh.GetLocalPoint(shin.worldCenter)[0], hinge.angle
    for _ in range(3):
        env.step(np.array([0, 1, 0, 0], np.float32))
    moved = thigh.GetLocalPoint(shin.worldCenter)[0] - before
    assert (hinge.angle - angle) * moved > 0


def test_the_landers_engines_push_the_way_that_is_told():
    env = gym.make("LunarLander-v3", continuous=True)
    text = "\n".join(world_facts(env, ["x", "y", "vx", "vy", "angle", "spin", "leg1", "leg2"], ["main", "side"]))
    scales = dict(re.findall(r"(\w+) = ([\d.]+) lander \w speed", text))
    (side,) = re.findall(r"side = 1, 0.5, -1 changes in a step lander x speed by ([\d.]+), 0, (-[\d.]+) m/s", text)
    env.reset(seed=0)
    still, *_ = env.step(np.zeros(2, np.float32))
    env.reset(seed=0)
    pushed, *_ = env.step(np.array([0, 1], np.float32))
    assert (pushed[2] - still[2]) / float(scales["vx"]) == pytest.approx(float(side[0]), rel=0.05)
    assert "leg1 =" not in text
