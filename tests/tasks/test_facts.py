"""What is read from real simulators, against figures from their model files and sources; and where it is told."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from policygen.prompts.templates import render_template
from policygen.reports.describe import describe_task
from policygen.search.preview import preview
from policygen.tasks import facts as reading
from policygen.tasks.ablation import without_knowledge
from policygen.tasks.facts import has_model, simulator_facts
from policygen.tasks.load import load_task
from policygen.tasks.taskfile import task_from_file

needs_mujoco = pytest.mark.skipif(find_spec("mujoco") is None, reason="needs mujoco")
needs_box2d = pytest.mark.skipif(find_spec("Box2D") is None, reason="needs box2d")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """MuJoCo writes warnings about older model files into the working directory."""
    monkeypatch.chdir(tmp_path)


def facts_of(gym_id: str, *actions: str, **kwargs: Any) -> tuple[str, ...]:
    env = gym.make(gym_id, **kwargs)
    try:
        return simulator_facts(env, actions)
    finally:
        env.close()


def constants_of(gym_id: str) -> dict[str, str]:
    facts = facts_of(gym_id)
    assert len(facts) == 1
    return dict(re.findall(r"(\w+) = (\[.*?\]|[^,\s]+?)(?:, |\.$)", facts[0]))


# --- MuJoCo ----------------------------------------------------------------------------------------------------------


@needs_mujoco
def test_the_hopper_is_described_as_its_model_file_has_it():
    facts = facts_of("Hopper-v5", "hip_torque", "knee_torque", "ankle_torque")
    text = "\n".join(facts)
    assert "One step lasts 0.008 s (4 x 0.002 s of simulation)." in facts
    assert "gravity (0, 0, -9.81) m/s^2" in text
    assert "torque = 200 N m x action, action -1 to 1, damping 1 N m s/rad, armature 1 kg m^2" in text
    assert (
        "hip_torque drives hinge thigh_joint: axis -y, positive moves thigh towards +x, range -2.618 to 0 rad, "
        "at (0, 0, 1.05) m." in facts
    )
    assert any(fact.startswith("ankle_torque drives") and "range -0.7854 to 0.7854 rad" in fact for fact in facts)
    assert "starts at height 1.25 m" in text
    assert "turns about +y (rooty; positive takes z towards x)" in text
    assert "sliding friction coefficient 1, but 2 for foot" in text
    assert "capsule of radius 0.06 m and length 0.39 m along x, centre (0.065, 0, 0.1)." in text


@needs_mujoco
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


@needs_mujoco
def test_the_total_mass_and_those_of_the_bodies_agree_with_the_model():
    env = gym.make("Reacher-v5")
    model: Any = env.unwrapped.model  # type: ignore[attr-defined]
    text = "\n".join(simulator_facts(env))
    env.close()
    assert f"total mass {model.body_mass.sum():.4g} kg" in text
    assert f"Body fingertip: {model.body('fingertip').mass[0]:.4g} kg, sphere of radius 0.01 m" in text


@needs_mujoco
def test_the_reacher_has_its_links_gears_and_the_one_limit():
    facts = facts_of("Reacher-v5")
    text = "\n".join(facts)
    assert "One step lasts 0.02 s" in text
    assert "torque = 200 N m x action" in text
    assert text.count("length 0.1 m along x") == 2
    assert "action[1] drives hinge joint1: axis +z, positive moves body1 towards +y, range -3 to 3 rad" in text
    (shoulder,) = [fact for fact in facts if fact.startswith("action[0]")]
    assert "range" not in shoulder
    assert "Floor" not in text  # its plane touches nothing


@needs_mujoco
def test_forces_fluids_springs_and_passive_joints_are_told():
    double = "\n".join(facts_of("InvertedDoublePendulum-v5"))
    assert "action[0] drives slide slider: force = 500 N x action, action -1 to 1, damping 0.05 N s/m" in double
    assert "No actuator drives hinge hinge2: axis +y, positive moves pole2 towards +x, at (0, 0, 0.6) m" in double
    assert "fluid of density 4000 kg/m^3 and viscosity 0.1 Pa s" in "\n".join(facts_of("Swimmer-v5"))
    cheetah = "\n".join(facts_of("HalfCheetah-v5"))
    assert (
        "action[1] drives hinge bshin: torque = 90 N m x action, damping 4.5 N m s/rad, spring 180 N m/rad" in cheetah
    )
    assert "(Shortened: positions are left out.)" in cheetah


@needs_mujoco
def test_the_time_step_is_that_of_the_task():
    assert "One step lasts 0.02 s (10 x 0.002 s of simulation)." in facts_of("Hopper-v5", frame_skip=10)


@needs_mujoco
@pytest.mark.parametrize(
    "gym_id",
    [
        "Hopper-v5",
        "Reacher-v5",
        "Swimmer-v5",
        "Walker2d-v5",
        "InvertedDoublePendulum-v5",
        "HalfCheetah-v5",
        "Ant-v5",
        "Humanoid-v5",
        "Pusher-v5",
    ],
)
def test_facts_are_short_whole_sentences_and_the_same_every_time(gym_id):
    facts = facts_of(gym_id)
    assert len(facts) >= 5
    assert sum(map(len, facts)) <= reading.MOST_CHARACTERS
    assert all(fact.endswith((".", ".)")) and "\n" not in fact and "nan" not in fact for fact in facts)
    assert facts == facts_of(gym_id)


@needs_mujoco
def test_a_long_description_says_that_it_was_shortened():
    facts = facts_of("Humanoid-v5")
    assert facts[-1].startswith("(Shortened: ")
    assert any(fact.startswith("action[5] drives hinge right_hip_y: torque = 300 N m x action") for fact in facts)


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


@needs_mujoco
def test_an_odd_model_is_described_without_claiming_what_an_action_is():
    text = "\n".join(simulator_facts(Odd(), ["push"]))
    assert "no gravity" in text
    assert "box 0.2 x 0.4 x 0.6 m" in text
    assert "No actuator drives ball shoulder." in text
    assert (
        "control[0] drives hinge wrist: not a plain motor but a servo that holds a position with 7 N m a unit" in text
    )
    assert "control[1] acts on tendon cord: force = 3 N x control" in text
    assert "control[2] acts on site tip" in text
    assert "action" not in text
    assert "push" not in text


# --- other simulators ------------------------------------------------------------------------------------------------


def test_constants_are_read_and_state_is_not():
    cartpole = constants_of("CartPole-v1")
    assert cartpole["gravity"] == "9.8"
    assert (cartpole["masscart"], cartpole["masspole"], cartpole["length"]) == ("1", "0.1", "0.5")
    assert (cartpole["force_mag"], cartpole["tau"], cartpole["x_threshold"]) == ("10", "0.02", "2.4")
    assert not any("screen" in name or "steps" in name or "render" in name for name in cartpole)
    acrobot = constants_of("Acrobot-v1")
    assert (acrobot["LINK_LENGTH_1"], acrobot["LINK_MASS_2"], acrobot["dt"]) == ("1", "1", "0.2")
    assert acrobot["AVAIL_TORQUE"] == "[-1, 0, 1]"
    assert "SCREEN_DIM" not in acrobot
    assert constants_of("Pendulum-v1")["max_torque"] == "2"


@needs_box2d
def test_box2d_constants_come_from_the_module():
    walker = constants_of("BipedalWalker-v3")
    assert (walker["MOTORS_TORQUE"], walker["SPEED_HIP"], walker["FPS"], walker["SCALE"]) == ("80", "4", "50", "30")
    assert not any("VIEWPORT" in name for name in walker)
    assert constants_of("LunarLander-v3")["gravity"] == "-10"


LIMIT = 7
_HIDDEN = 3
SCREEN_WIDTH = 600


class Counting(gym.Env):
    """Constants of the class, the module and the instance among state of every kind."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)
    WIDTH = 1.5
    lively = 3  # of the class until an episode changes it

    def __init__(self) -> None:
        self.mass = np.float32(2)
        self.steps = 0
        self.episodes = 0
        self.flag = True
        self.endless = float("inf")
        self.names = ["a"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.episodes += 1
        self.start = float(self.np_random.random())
        self.level = 4
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.lively = self.steps
        return np.zeros(1, np.float32), 0.0, self.steps > 5, False, {}


class Broken(Counting):
    """Fails when stepped."""

    def step(self, action):
        raise RuntimeError("out of order")


def test_what_an_episode_changes_is_not_a_constant():
    assert simulator_facts(Counting()) == ("Constants of the simulator: LIMIT = 7, WIDTH = 1.5, mass = 2, level = 4.",)


def test_a_simulator_that_fails_has_no_facts():
    assert simulator_facts(Broken()) == ()


def test_many_constants_are_shortened():
    env = Counting()
    for i in range(300):
        setattr(env, f"constant_{i}", i)
    (line,) = simulator_facts(env)
    assert len(line) <= reading.MOST_CHARACTERS
    assert "(shortened: " in line


# --- tasks and prompts -----------------------------------------------------------------------------------------------


def prompt_of(task: str, **options: Any) -> str:
    return "".join(message.content for message in preview(task, None, (), options).prompt.messages)


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_a_described_task_without_a_model_gets_none():
    assert load_task("cartpole").facts == ()
    assert "Facts of the simulator" not in prompt_of("cartpole")


def test_sentences_of_the_task_file_come_first(tmp_path):
    stated = 'name = "mine"\ngym_id = "CartPole-v1"\nfacts = ["The rail is oiled."]\n'
    assert task_from_file(written(tmp_path, stated + 'about = "A pole."')).facts == ("The rail is oiled.",)
    undescribed = task_from_file(written(tmp_path, stated)).facts
    assert undescribed[0] == "The rail is oiled."
    assert undescribed[1].startswith("Constants of the simulator: gravity = 9.8, ")


@needs_mujoco
def test_a_described_task_with_a_model_is_told_what_the_model_says_in_its_own_words():
    task = load_task("hopper")
    assert any(fact.startswith("hip_torque drives hinge thigh_joint") for fact in task.facts)
    prompt = prompt_of("hopper")
    assert "Facts of the simulator:\n- One step lasts 0.008 s" in prompt
    assert all(f"- {fact}\n" in prompt for fact in task.facts)
    assert "fact: One step lasts 0.008 s" in describe_task("hopper")


def test_facts_are_withheld_with_the_rest_of_the_knowledge():
    assert without_knowledge(load_task("CartPole-v1")).facts == ()
    assert "masspole = 0.1" in prompt_of("CartPole-v1")
    withheld = prompt_of("CartPole-v1", ablate="knowledge")
    assert "masspole" not in withheld
    assert "Facts" not in withheld


def test_a_template_shows_as_many_facts_as_there_is_room_for(tmp_path, monkeypatch):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "few.j2").write_text("{{ facts | within(room) | join('/') }}")
    monkeypatch.chdir(tmp_path)
    facts = ["abc", "defgh", "ij"]
    shown = {room: render_template("few", {"facts": facts, "room": room}).strip() for room in (10, 8, 5, 2)}
    assert shown == {10: "abc/defgh/ij", 8: "abc/defgh", 5: "abc/de ...", 2: "ab ..."}


@pytest.mark.parametrize(
    ("gym_id", "reward", "ending"),
    [
        ("MountainCar-v0", "-1 for each timestep", "greater than or equal to 0.5"),
        ("Acrobot-v1", "reward of -1", "-cos(theta1) - cos(theta2 + theta1) > 1.0"),
        pytest.param("Walker2d-v5", "`ctrl_cost_weight`", "`healthy_z_range`", marks=needs_mujoco),
        pytest.param("Ant-v5", "`ctrl_cost_weight`", "`healthy_z_range`", marks=needs_mujoco),
        pytest.param("Reacher-v5", "reward_distance", "50 timesteps", marks=needs_mujoco),
        pytest.param("BipedalWalker-v3", "it gets -100", "hull gets in contact with the ground", marks=needs_box2d),
    ],
)
def test_a_discovered_task_tells_the_reward_and_the_ending(gym_id, reward, ending):
    about = load_task(gym_id).about
    assert reward in about
    assert ending in about
    assert len(about) <= 6_000


def test_an_environment_with_a_model_is_told_from_one_without():
    env = gym.make("CartPole-v1")
    assert not has_model(env)
    env.close()
