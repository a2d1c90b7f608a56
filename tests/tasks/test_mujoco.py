"""Facts about MuJoCo models, compared with the model files."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from support import facts_of

from policygen.tasks import facts as reading
from policygen.tasks import mujoco
from policygen.tasks.facts import simulator_facts

pytestmark = [
    pytest.mark.skipif(find_spec("mujoco") is None, reason="needs mujoco"),
    pytest.mark.usefixtures("workplace"),
]


def test_the_hopper_is_described_as_its_model_file_has_it():
    facts = facts_of("Hopper-v5", "hip_torque", "knee_torque", "ankle_torque")
    text = "\n".join(facts)
    assert "One step lasts 0.008 s (4 x 0.002 s of simulation)." in facts
    assert "Bodies that can collide: torso with leg, torso with foot, thigh with foot." in facts
    assert (
        "hip_torque drives hinge thigh_joint: axis -y, positive moves thigh towards +x, range -2.618 to 0 rad, "
        "at (0, 0, 1.05) m." in facts
    )
    for part in (
        "gravity (0, 0, -9.81) m/s^2",
        "torque = 200 N m x action, action -1 to 1, damping 1 N m s/rad, armature 1 kg m^2",
        "starts at height 1.25 m",
        "turns about +y (rooty; positive takes z towards x)",
        "sliding friction coefficient 1, but 2 for foot",
        "capsule of radius 0.06 m and length 0.39 m along x, centre (0.065, 0, 0.1).",
    ):
        assert part in text
    assert "One step lasts 0.02 s (10 x 0.002 s of simulation)." in facts_of("Hopper-v5", frame_skip=10)


def test_positive_is_the_way_the_simulator_turns():
    env = gym.make("Hopper-v5")
    base: Any = env.unwrapped
    env.reset(seed=0)
    position = base.init_qpos.copy()
    position[3] = -0.3  # the hip: positive is said to move the thigh towards +x
    base.set_state(position, base.init_qvel)
    assert base.data.body("leg").xpos[0] < -0.05
    position = base.init_qpos.copy()
    position[2] = 0.3  # rooty: positive is said to take z towards x
    base.set_state(position, base.init_qvel)
    assert base.data.body("torso").xmat.reshape(3, 3)[0, 2] > 0.2
    env.close()


def test_forces_fluids_springs_and_passive_joints_are_told():
    for name, *parts in (
        (
            "InvertedDoublePendulum",
            "action[0] drives slide slider: force = 500 N x action, action -1 to 1, damping 0.05 N s/m",
            "No actuator drives hinge hinge2: axis +y, positive moves pole2 towards +x, at (0, 0, 0.6) m",
        ),
        ("Swimmer", "fluid of density 4000 kg/m^3 and viscosity 0.1 Pa s"),
        (
            "HalfCheetah",
            "action[1] drives hinge bshin: torque = 90 N m x action, damping 4.5 N m s/rad, spring 180 N m/rad",
            "at (-0.5, 0, 0.7) m",  # where joints are, too
            "No two bodies collide with each other.",
        ),
        (
            "Pusher",
            "along +x (obj_slidex, -0.193 in this pose, damping 0.5 N s/m, armature 0.04 kg)",  # only contact moves it
            "Bodies that can collide: r_wrist_roll_link with object.",
        ),
        ("Humanoid", "(Shortened: ", "action[5] drives hinge right_hip_y: torque = 300 N m x action"),
    ):
        facts = facts_of(f"{name}-v5")
        assert all(part in "\n".join(facts) for part in parts), facts
        assert sum(map(len, facts)) <= reading.MOST_CHARACTERS
        assert all(fact.endswith((".", ".)")) and "\n" not in fact and "nan" not in fact for fact in facts)


ODD = """
<mujoco>
  <option gravity="0 0 -9.81"><flag gravity="disable"/></option>
  <worldbody>
    <body name="arm" pos="0 0 1">
      <joint name="shoulder" type="ball"/>
      <geom type="box" size="0.1 0.2 0.3"/>
      <body pos="0 0 -0.5">
        <joint name="wrist" type="hinge" axis="0 1 0"/>
        <geom type="ellipsoid" size="0.1 0.1 0.2"/>
        <site name="tip"/>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="cord"><joint joint="wrist" coef="1"/></fixed></tendon>
  <actuator>
    <position joint="wrist" kp="7"/>
    <motor tendon="cord" gear="3"/>
    <motor site="tip"/>
  </actuator>
</mujoco>
"""


class Odd(gym.Env):
    """A model with a ball joint, nameless parts, a servo, a tendon; its action is not what drives the actuators."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        import mujoco

        self.model = mujoco.MjModel.from_xml_string(ODD)
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}


def test_an_odd_model_is_described_without_claiming_what_an_action_is():
    text = "\n".join(simulator_facts(Odd(), ["push"]))
    for part in (
        "no gravity",
        "box 0.2 x 0.4 x 0.6 m",
        "No actuator drives ball shoulder.",
        "control[0] drives hinge wrist: not a plain motor but a servo that holds a position with 7 N m a unit",
        "control[1] acts on tendon cord: force = 3 N x control",
        "control[2] acts on site tip",
    ):
        assert part in text
    assert "action" not in text
    assert "push" not in text


def test_all_contacts_of_a_falling_humanoid_are_among_the_pairs_that_can_collide(monkeypatch):
    monkeypatch.setattr(mujoco, "MOST_COLLISIONS", 1_000)
    env = gym.make("Humanoid-v5")
    (line,) = (line for line in mujoco.model_facts(env, (), 0) if line.startswith("Bodies that can collide: "))
    told = line.removeprefix("Bodies that can collide: ").rstrip(".").split(", ")
    base = env.unwrapped
    env.action_space.seed(0)
    touched = set()
    for seed in range(4):
        env.reset(seed=seed)
        for _ in range(60):
            env.step(env.action_space.sample())
            for contact in base.data.contact[: base.data.ncon]:
                bodies = sorted(int(base.model.geom_bodyid[geom]) for geom in (contact.geom1, contact.geom2))
                touched |= {" with ".join(base.model.body(body).name for body in bodies)} if bodies[0] else set()
    assert touched
    assert touched <= set(told)
    assert "torso with head" not in told
