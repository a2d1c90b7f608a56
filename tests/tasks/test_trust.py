"""A file from elsewhere imports no module and names no path, unless the user vouches for it or names the module."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import CHECKOUT, Line, in_a_process

import policygen
from policygen.errors import TaskError
from policygen.policies.parse import parse
from policygen.tasks.load import load_task
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.trust import check_names, vouched

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


def test_commands_run_no_code_of_a_strangers_file_and_say_how_to(
    canary: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = canary.parent
    path = f"{CHECKOUT}:{folder}"
    saved_policy(folder, gym_id="strange_module:Strange-v0")
    monkeypatch.syspath_prepend(str(folder))
    for command in (["run", "envs/strange.toml"], ["eval", "best.json"]):
        refused = line(*command)
        assert refused.code != 0
        assert "names the module `strange_module`" in refused.err
        assert "--trust" in refused.err
        assert "Traceback" not in refused.err
        assert not canary.exists()
    said = in_a_process("eval", "best.json", "--episodes", 2, "--trust", cwd=folder, PYTHONPATH=path)
    assert said.returncode == 0, said.stderr
    assert canary.exists()


@pytest.mark.usefixtures("canary")
def test_a_task_file_is_read_once_it_is_vouched_for_or_its_module_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("strange", "envs/strange.toml"):
        with pytest.raises(TaskError, match="names the module `strange_module`"):
            load_task(name)
    assert "strange_module" not in sys.modules
    assert load_task("strange", trust=True).gym_id == "strange_module:Strange-v0"
    assert load_task("strange").stranger == ""  # the user's program has imported it
    monkeypatch.delitem(sys.modules, "strange_module")


@pytest.mark.parametrize(
    "kwargs",
    [
        {"xml_file": "/etc/passwd"},
        {"xml_file": "~/x.xml"},
        {"xml_file": "../x.xml"},
        {"xml_file": "./../x.xml"},
        {"xml_file": "assets/../../x.xml"},
        {"files": ["a", {"b": "/tmp/x"}]},
        {"url": "http://elsewhere/x"},
        {"env_id": "evil:Env-v0"},
        {"env_id": "evil.inner:Env"},
        {"xml_file": "C:\\x.xml"},
        {"x": "a\0b/c"},
    ],
)
def test_arguments_name_no_module_and_no_path_elsewhere(kwargs: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="--trust"):
        check_names("CartPole-v1", kwargs, "x.toml", tmp_path)


def test_plain_arguments_and_paths_inside_the_files_folder_are_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inside").mkdir()
    check_names("ns/Env-v0", {"a": 1, "map_name": "4x4", "desc": ["SF", "FG"], "x": "ant.xml"}, "x", None)
    check_names("CartPole-v1", {"xml_file": "./inside/x.xml"}, "x", tmp_path / "inside")
    (tmp_path / "inside" / "link.xml").symlink_to("/etc/hosts")
    with pytest.raises(TaskError, match="names a file elsewhere"):
        check_names("CartPole-v1", {"xml_file": "./inside/link.xml"}, "x", tmp_path / "inside")


def test_a_saved_task_is_a_strangers_until_it_is_vouched_for(tmp_path: Path) -> None:
    task = task_from_record(task_to_record(replace(load_task("cartpole"), kwargs=(("xml_file", "/etc/hosts"),))))
    with pytest.raises(TaskError, match="names a file elsewhere"):
        policygen.score(replace(policygen.Policy.load(saved_policy(tmp_path)), task=task), episodes=2)
    assert vouched(task).stranger == ""
    assert vouched(task) == task
    # What needs no vouching plays without it.
    assert policygen.score(policygen.Policy.load(saved_policy(tmp_path)), episodes=2).episodes == 2
