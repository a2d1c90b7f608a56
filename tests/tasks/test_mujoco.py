"""Facts that are read from MuJoCo models, for tasks whose file has none."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import pytest

from policygen.tasks.mujoco import MOST_CHARACTERS, model_facts

pytest.importorskip("mujoco")


def test_joints_ranges_gears_and_masses_are_read_from_the_model() -> None:
    env = gym.make("Hopper-v5")
    facts = model_facts(env, ("hip", "knee", "ankle"))
    env.close()
    assert facts[0] == "One step lasts 0.008 s (4 x 0.002 s of simulation)."
    assert (
        "hip drives the hinge joint thigh_joint of body thigh about axis (0, -1, 0), from -2.618 to 0 rad, damping 1; "
        "force (N) or torque (N m) = 200 x its input." in facts
    )
    assert "No actuator drives the hinge joint rooty of body torso about axis (0, 1, 0)." in facts
    assert facts[-1].startswith("Masses in kg: torso 3.665, thigh 4.058, ")


def test_an_action_that_is_not_the_actuators_input_is_said_to_be_control() -> None:
    env = gym.wrappers.RescaleAction(gym.make("Pusher-v5"), -1, 1)
    assert any(fact.startswith("control[0] drives") for fact in model_facts(env, [f"a{i}" for i in range(7)]))
    env.close()


def test_many_facts_are_cut_and_an_unreadable_model_has_none() -> None:
    env = gym.make("Humanoid-v5")
    facts = model_facts(env, [f"{'a' * 300}{i}" for i in range(17)])
    assert sum(map(len, facts)) < MOST_CHARACTERS + 100
    assert "more facts of the model are left out" in facts[-1]
    env.unwrapped.model = SimpleNamespace(opt=SimpleNamespace(timestep=0.01), nbody=1, actuator_gear=())
    assert model_facts(env, []) == ()
    env.close()
    assert model_facts(gym.make("CartPole-v1"), []) == ()
