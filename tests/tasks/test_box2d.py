"""Facts of Box2D worlds."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest
from support import discovered

from policygen.tasks.box2d import has_world, world_facts
from policygen.tasks.load import load_task

pytest.importorskip("Box2D")


def test_the_walkers_motors_limits_and_scales_are_those_that_its_task_file_states():
    task = load_task("bipedalwalker")
    env = gym.make("BipedalWalker-v3")
    said = world_facts(env, task.observation_names, [a.name for a in task.actuators])
    text = "\n".join(said)
    hull = next(body for body in env.unwrapped.world.bodies if body == env.unwrapped.hull)  # type: ignore[attr-defined]
    assert f"hull {hull.mass:.3g} kg" in said[0]
    assert "gravity (0, -10)" in said[0]
    assert "joints[0] between hull and legs[0], -0.8 to 1.1 rad, a positive angle moves legs[0] towards +x;" in said[1]
    assert "lean_rate = 0.04 hull spin, vx = 0.12 hull x speed, vz = 0.08 hull y speed, hip1 = joints[0] angle" in text
    assert "knee2 = joints[3] angle + 1" in text
    assert "lidar" not in text  # rays are heights only where the ground is flat
    first = task.actuators[0].name
    assert (
        f"{first} = 1, 0.5, -1 sets the motor of joints[0] to 4, 4, -4 rad/s, "
        "the motor of joints[0] to a torque of at most 80, 40, 80 N m." in said
    )
    stated = {o.name: o.about for o in task.observations}
    for name, factor in re.findall(r"(\w+) = ([\d.]+) hull", text):
        assert stated[name].startswith(f"{factor} times")


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


def test_a_discovered_lander_is_told_its_world_before_its_constants():
    facts = discovered("LunarLander-v3").facts
    assert [fact.split()[0] for fact in facts[1:4]] == ["Bodies:", "Hinges:", "Observations"]
    assert re.search(r"fire_main_engine changes in a step lander .*y speed by 0\.", "\n".join(facts))
    assert not any(fact.startswith("Reward") for fact in facts)  # it is no weighted sum
    assert facts[-1].startswith("Constants of the simulator: ")
    assert not has_world(gym.make("CartPole-v1"))


def test_a_car_that_is_seen_in_pictures_still_has_masses():
    said = world_facts(gym.make("CarRacing-v3"), (), ("steer", "gas", "brake"))
    assert said[0].startswith("Bodies: car.hull 7.06 kg, car.wheels[0] 0.0605 kg")
    assert any(line.startswith("gas = 1, 0.5, 0 changes in a step car.hull ") for line in said)
