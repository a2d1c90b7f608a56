"""The files on Gymnasium's environments: they are up to date, complete, and found by id."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from policygen.episodes.evidence import heights_of
from policygen.errors import TaskError
from policygen.tasks.environments import make, make_env
from policygen.tasks.faults import close
from policygen.tasks.load import load_task, task_from_file, task_of
from policygen.tasks.task import DEFAULT_MAX_STEPS

ENVS = Path(__file__).parents[2] / "envs"
FILES = sorted((ENVS / "gymnasium").glob("*.toml")) + [
    p for p in sorted(ENVS.glob("*.toml")) if "[harvested]" in p.read_text()
]
HARVESTED = ("classic_control", "toy_text", "box2d", "mujoco")


def needs(path: Path) -> None:
    entry = str(gym.registry[tomllib.loads(path.read_text())["gym_id"]].entry_point)
    for package, module in (("mujoco", "mujoco"), ("box2d", "Box2D")):
        if package in entry and find_spec(module) is None:
            pytest.skip(f"needs {module}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_what_the_installed_gymnasium_says(path: Path) -> None:
    needs(path)
    stated = tomllib.loads(path.read_text(encoding="utf-8"))
    env = make(stated["gym_id"], stated.get("kwargs", {}))
    harvested = stated["harvested"]
    now = {
        "observation_space": " ".join(str(env.observation_space).split()),
        "action_space": " ".join(str(env.action_space).split()),
        "max_steps": (env.spec and env.spec.max_episode_steps) or DEFAULT_MAX_STEPS,
        "step_seconds": getattr(env.unwrapped, "dt", getattr(env.unwrapped, "tau", None)),
    }
    close(env)
    then = {key: value for key, value in {**stated, **harvested}.items() if key in now}
    changed = [f"{key} was {then[key]}, is {now[key]}" for key in then if then[key] != now[key]]
    since = f"{stated['gym_id']} has changed since Gymnasium {harvested['gymnasium']}"
    assert not changed, f"{since}: {'; '.join(changed)}; run envs/harvest.py"
    if path.parent.name == "gymnasium":
        assert {key for key, value in now.items() if value is not None} == {*then}


def test_every_id_that_can_be_played_has_a_file() -> None:
    newest = {
        gym_id
        for gym_id, spec in gym.registry.items()
        if str(spec.entry_point).startswith(tuple(f"gymnasium.envs.{name}" for name in HARVESTED))
        and ("mujoco" not in str(spec.entry_point) or spec.version == 5)
    }
    newest -= {"CarRacing-v3"}  # pixels
    assert {path.stem for path in FILES if path.parent.name == "gymnasium"} == newest


def test_an_id_is_the_harvested_task_and_a_name_the_one_written_by_hand() -> None:
    pytest.importorskip("mujoco")
    by_id, by_hand = load_task("Walker2d-v5"), load_task("walker2d")
    assert by_id.observation_names[:3] == ("torso_z", "torso_angle", "thigh_angle")
    assert by_hand.observation_names[:3] == ("height", "lean", "hip1")
    assert by_id.actuators[0].name == "thigh_torque"
    assert (by_id.documentation, by_hand.documentation) == ("", "")
    for task in (by_id, by_hand):
        assert any(fact.startswith(f"|{task.actuators[0].name}|thigh_joint|") for fact in task.facts)
        assert any(fact.startswith("Each actuated joint is a hinge: ") and "axis -y" in fact for fact in task.facts)


def test_an_environment_object_of_gymnasium_is_known_unless_it_is_wrapped_or_has_arguments() -> None:
    known = task_of(gym.make("CartPole-v1", max_episode_steps=60))
    assert (known.observation_names[0], known.max_steps, known.gym_id) == ("cart_position", 60, "given/CartPoleEnv")
    wrapped = gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda reward: 2 * reward)
    for env in (wrapped, gym.make("CartPole-v1", sutton_barto_reward=True)):
        assert task_of(env).observation_names[0] == "obs0"


def test_the_script_writes_the_files_that_ship_and_begins_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    spec = importlib.util.spec_from_file_location("harvest", ENVS / "harvest.py")
    assert spec is not None
    harvest = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "harvest", harvest)
    spec.loader.exec_module(harvest)
    paths = [ENVS / "gymnasium" / f"{name}.toml" for name in ("FrozenLake-v1", "Humanoid-v5")] + [ENVS / "hopper.toml"]
    if find_spec("Box2D") is not None:
        paths.append(ENVS / "gymnasium" / "LunarLander-v3.toml")
    for path in paths:
        assert harvest.updated(path) == path.read_text(encoding="utf-8")
    monkeypatch.setattr(harvest, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["harvest.py", "Hopper-v5"])
    harvest.main()
    begun = task_from_file(tmp_path / "Hopper-v5.toml")
    assert "The default duration of an episode is 1000 timesteps." in begun.about
    assert "One step lasts 0.008 s (4 x 0.002 s of simulation)." in begun.facts
    assert begun.heights == load_task("Hopper-v5").heights


@pytest.mark.parametrize(
    ("name", "feet"),
    [
        ("halfcheetah", ["bfoot_height", "ffoot_height"]),
        ("walker2d", ["foot_height", "foot_left_height"]),
        ("ant", ["body4_height", "body7_height", "body10_height", "body13_height"]),
        ("Humanoid-v5", None),
    ],
)
def test_a_foot_is_at_the_floor_where_the_simulator_has_a_contact(name: str, feet: list[str] | None) -> None:
    mujoco = pytest.importorskip("mujoco")
    task = load_task(name)
    heights = heights_of(task)
    assert heights is not None
    env = make_env(task)
    env.action_space.seed(0)
    base: Any = env.unwrapped
    ids = [base.model.body(one.body).id for one in task.heights]
    observations, distances = [env.reset(seed=0)[0]], []
    while True:
        mujoco.mj_forward(base.model, base.data)  # contacts are otherwise those of the last step's beginning
        nearest = dict.fromkeys(ids, np.inf)
        for contact in base.data.contact:
            for geom in contact.geom:
                if (body := int(base.model.geom_bodyid[geom])) in nearest:
                    nearest[body] = min(nearest[body], contact.dist)
        distances.append(list(nearest.values()))
        observation, _, terminated, *_ = env.step(env.action_space.sample())
        if terminated or len(observations) == 60:
            break
        observations.append(observation)
    env.close()
    found = heights(np.asarray(observations, np.float32))
    assert feet is None or list(found) == feet
    above, distance = np.stack(list(found.values()), axis=1), np.array(distances)
    met = np.isfinite(distance)
    assert met.any() or name == "Humanoid-v5"
    assert above[met] == pytest.approx(distance[met], abs=1e-4)
    assert (above[~met] > 0).all()


def test_a_height_of_a_body_that_is_not_there_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    path = tmp_path / "mine.toml"
    text = (
        'name = "mine"\ngym_id = "ID"\nabout = "x"\n[[heights]]\nname = "h"\nbody = "wing"\nspheres = [[0, 0, 0, 1]]\n'
    )
    for gym_id, problem in (("Hopper-v5", "the model has no body 'wing'"), ("CartPole-v1", "needs a MuJoCo model")):
        path.write_text(text.replace("ID", gym_id))
        with pytest.raises(TaskError, match=problem):
            task_from_file(path)
