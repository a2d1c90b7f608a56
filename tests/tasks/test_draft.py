"""Drafts of task files: a discovered task, written as a file, loads to an equal task."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from policygen.tasks.draft import draft_of
from policygen.tasks.load import load_task
from policygen.tasks.records import task_from_record, task_to_record

needs_mujoco = pytest.mark.skipif(find_spec("mujoco") is None, reason="needs mujoco")
needs_box2d = pytest.mark.skipif(find_spec("Box2D") is None, reason="needs box2d")


@pytest.mark.parametrize(
    "name",
    [
        *("Pendulum-v1", "Taxi-v4", "Blackjack-v1", "frozenlake"),
        pytest.param("LunarLander-v3", marks=needs_box2d),
        pytest.param("Ant-v5", marks=needs_mujoco),
    ],
)
@pytest.mark.usefixtures("quickly_discovered")
def test_a_draft_loads_to_an_equal_task(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task(name)
    path = tmp_path / "mine.toml"
    path.write_text(draft_of(task), encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # where MuJoCo may leave a log
    loaded = load_task(str(path))
    assert loaded == task
    assert dict(loaded.run) == dict(task.run)
    assert task_from_record(json.loads(json.dumps(task_to_record(task)))) == task
    assert all(f"# Assumed: {sentence}." in path.read_text(encoding="utf-8") for sentence in task.assumed)
