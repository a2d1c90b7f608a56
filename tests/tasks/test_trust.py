"""A file from elsewhere imports no module and names no path, unless the user vouches for it or names the module."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import tomli_w
from support import Line

import policygen
from policygen.errors import TaskError
from policygen.policies.parse import parse
from policygen.tasks.environments import make_env
from policygen.tasks.load import load_task
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.trust import check_names

MODULE = """
import pathlib, gymnasium
pathlib.Path({canary!r}).write_text("ran")
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
gymnasium.register("Strange-v0", CartPoleEnv, max_episode_steps=20)
"""
FILE = 'name = "strange"\ngym_id = "strange_module:Strange-v0"\n'


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that exists once the stranger's module has run."""
    path = tmp_path / "canary"
    (tmp_path / "strange_module.py").write_text(MODULE.format(canary=str(path)))
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "strange.toml").write_text(FILE)
    return path


def saved_policy(folder: Path, **changes: Any) -> Path:
    task = load_task("cartpole")
    policy = parse("left = 0\nright = angle", task, "linear").policy
    assert policy is not None
    record = policy.to_record()
    record["task"] |= changes
    (folder / "best.json").write_text(json.dumps(record))
    return folder / "best.json"


def test_no_code_of_a_strangers_file_runs_until_it_is_vouched_for(
    canary: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = canary.parent
    saved_policy(folder, gym_id="strange_module:Strange-v0")
    monkeypatch.syspath_prepend(str(folder))
    for command in (["run", "envs/strange.toml"], ["eval", "best.json"]):
        refused = line(*command)
        assert refused.code != 0
        assert "names the module `strange_module`" in refused.err
        assert "--trust" in refused.err
        assert "Traceback" not in refused.err
        assert not canary.exists()
    said = line("eval", "best.json", "--episodes", 2, "--trust")
    assert said.code == 0, said.err
    assert canary.exists()
    assert load_task("strange", trust=True).gym_id == "strange_module:Strange-v0"
    with pytest.raises(TaskError, match="names the module `strange_module`"):
        load_task("strange")  # that it has been imported vouches for nothing
    del sys.modules["strange_module"], gym.registry["Strange-v0"]


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        *(
            ({"xml": path}, "names a file, which may hold anything; .*--trust")
            for path in (*r"/etc/passwd ~/x ../x .x ./x.xml a/../../x C:\x ant.xml .".split(), "ANT.MJB ")  # noqa: SIM905
        ),
        *(({"x": text}, "--trust") for text in ("http://elsewhere/x", "evil:Env-v0", "evil.inner:Env", "a\0b/c")),
        ({"files": ["a", {"b": "/tmp/x"}]}, "--trust"),
    ],
)
def test_arguments_name_no_module_file_or_address(kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        check_names("CartPole-v1", kwargs, "x.toml")


@pytest.mark.parametrize("name", ["./robot.xml", "robot.xml", "pipe.xml"])
def test_a_model_beside_a_task_file_is_not_opened(name: str, workplace: Path) -> None:
    folder = workplace / "envs"
    folder.mkdir(exist_ok=True)
    (folder / "robot.xml").write_text('<mujoco><include file="/etc/hosts"/></mujoco>')
    os.mkfifo(folder / "pipe.xml")
    (folder / "robot.toml").write_text(f'name = "robot"\ngym_id = "Ant-v5"\n[kwargs]\nxml_file = "{name}"\n')
    with pytest.raises(TaskError, match=r"robot.toml: the argument .* names a file.*--trust"):
        load_task(str(folder / "robot.toml"))


COMMANDS = (
    *("tasks", "tasks hostile", "tasks envs/hostile.toml", "run hostile", "prompt hostile", "prompt RUN"),
    *("eval RUN", "eval best.json", "show RUN", "plot RUN", "report RUN", "film RUN", "simplify RUN"),
    *("export best.json --to c", "sweep hostile --out again", "resume RUN"),
)


@pytest.fixture
def registered() -> Iterator[None]:
    """Registrations that a module imported for another purpose could have made."""
    wrapper = gym.envs.registration.WrapperSpec("Shell", "os:system", {"command": "touch marker"})
    gym.register("Registered-v0", "os:system", kwargs={"command": "touch marker"})
    gym.register("Wrapped-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv", additional_wrappers=(wrapper,))
    yield
    del gym.registry["Registered-v0"], gym.registry["Wrapped-v0"]
    gym.registry.pop("system", None)


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("runs")
    found = policygen.run("cartpole", policy="linear", iterations=1, episodes=2, final_episodes=2, out=folder).folder
    return Path(found)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("gym_id", ["os:system", "policygen.llm:connect", "Registered-v0", "Registered", "Wrapped-v0"])
def test_ids_of_imported_modules_are_refused(gym_id: str) -> None:
    with pytest.raises(TaskError, match=re.escape(gym_id)) as refusal:
        check_names(gym_id, {}, "x.toml")
    assert ("--trust" in str(refusal.value)) is (gym_id != "os:system")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("gym_id", ["os:system", "Registered"])
def test_no_command_runs_what_a_file_names_of_modules_that_are_imported(
    gym_id: str, a_run: Path, workplace: Path, line: Line
) -> None:
    shell = {"command": "touch marker"} if ":" in gym_id else {}
    (workplace / "envs").mkdir()
    kwargs = f"kwargs = {{ {', '.join(f'{k} = {v!r}' for k, v in shell.items())} }}\n"
    (workplace / "envs" / "hostile.toml").write_text(f'name = "hostile"\ngym_id = "{gym_id}"\n{kwargs}')
    run = shutil.copytree(a_run, workplace / "RUN")
    (run / "summary.json").unlink()
    record = json.loads((run / "task.json").read_text()) | {"gym_id": gym_id, "kwargs": shell}
    (run / "task.json").write_text(json.dumps(record))
    best = json.loads((run / "best.json").read_text())
    for path in (run / "best.json", workplace / "best.json"):
        path.write_text(json.dumps(best | {"task": record}))
    for command in COMMANDS:
        said = line(*command.split())
        assert not (workplace / "marker").exists(), command
        assert "Traceback" not in said.err
        if command.startswith(("run", "eval", "sweep", "resume", "prompt", "simplify", "film", "tasks h")):
            assert said.code != 0, command
            assert f"`{gym_id}`" in said.err or gym_id in said.err, said.err
            assert ("--trust" in said.err) is (gym_id != "os:system"), said.err


@pytest.mark.usefixtures("registered")
@pytest.mark.usefixtures("quickly_discovered")
def test_what_is_typed_or_vouched_for_still_is_an_environment_and_nothing_else(workplace: Path, line: Line) -> None:
    (workplace / "lodgings.py").write_text(
        "from gymnasium.envs.classic_control.cartpole import CartPoleEnv as Room\n"
        "class NoRoom: pass\n"
        "def make_room(): return Room()\n"
        "def make_none(): return 3\n"
    )
    for name in ("os:system", "subprocess:getoutput", "lodgings:NoRoom", "lodgings:make_none"):
        said = line("tasks", name)
        assert said.code != 0
        assert "environment" in said.err
        assert len(said.err.strip().splitlines()) == 1
        assert not (workplace / "marker").exists()
    assert line("tasks", "lodgings:Room").code == line("tasks", "lodgings:make_room").code == 0
    # What the user's own program registered, and names itself.
    gym.register("OwnRoom-v0", "lodgings:Room", max_episode_steps=20)
    try:
        assert load_task("OwnRoom-v0").max_steps == 20
        saved = task_from_record(task_to_record(load_task("OwnRoom-v0")))
        with pytest.raises(TaskError, match=r"OwnRoom-v0, which the module `lodgings` makes.*trust=True"):
            make_env(saved)
        make_env(saved.trusted()).close()
    finally:
        for name in ("OwnRoom-v0", "Room", "make_room", "make_none"):
            gym.registry.pop(name, None)
        sys.modules.pop("lodgings")


@pytest.mark.parametrize("kwargs", [{"command": "touch marker"}, {"id": "x"}])
def test_arguments_of_a_file_are_those_that_the_constructor_takes(kwargs: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    for gym_id in ("CartPole-v1", "CartPole", "FrozenLake-v1", "policygen/Nim-v0"):
        path.write_text(f'name = "mine"\ngym_id = "{gym_id}"\n{tomli_w.dumps({"kwargs": kwargs})}')
        with pytest.raises(TaskError, match=rf"{gym_id} does not take these kwargs .*{next(iter(kwargs))}"):
            load_task(str(path))
    with pytest.raises(TaskError, match="`desc` is not a number, a text, or a list or table of these"):
        check_names("FrozenLake-v1", {"desc": datetime.date(2000, 1, 1)}, "x.toml")


def test_plain_arguments_are_fine() -> None:
    lake = {"map_name": "4x4", "desc": ["SF", "FG"], "is_slippery": False, "render_mode": None}
    check_names("FrozenLake-v1", lake, "x")
    pytest.importorskip("mujoco")
    check_names("Ant-v5", {"healthy_reward": 0.5, "width": 20, "camera_name": "track v1.2"}, "x")  # of its base class


def test_a_saved_task_is_a_strangers_until_it_is_vouched_for(tmp_path: Path) -> None:
    saved = policygen.Policy.load(saved_policy(tmp_path))
    assert policygen.score(saved, episodes=2).episodes == 2  # it names nothing that needs vouching
    task = task_from_record(task_to_record(replace(load_task("cartpole"), kwargs=(("xml_file", "/etc/hosts"),))))
    with pytest.raises(TaskError, match="names a file, which may hold anything"):
        policygen.score(replace(saved, task=task), episodes=2)
    assert task.trusted().untrusted == ""
    assert task.trusted() == task


@pytest.mark.usefixtures("quickly_discovered")
def test_a_refusal_prints_the_command_that_trusts_the_run(line: Line, workplace: Path) -> None:
    source = (
        "import gymnasium as gym\nclass Own(gym.Env):\n"
        "    observation_space = gym.spaces.Box(-1, 1, (1,))\n    action_space = gym.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n        return self.observation_space.sample(), 1.0, False, True, {}\n"
    )
    (workplace / "own_module.py").write_text(source)
    short = ("--iterations", 1, "--set", "final_episodes=2", "--policy", "equations", "--jobs", 1)
    assert line("run", "own_module:Own", *short).code == 0
    refused = line("eval", "latest", "--episodes", 5)
    assert refused.code == 2
    assert refused.err.strip().endswith("as the task: policygen eval latest --episodes 5 --trust")
    assert line("eval", "latest", "--episodes", 5, "--trust").code == 0
