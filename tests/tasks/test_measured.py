"""What random actions show of an environment is kept for a day, and measured again after a change."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from policygen.tasks import load, measured, warmup
from policygen.tasks.load import load_task

SOURCE = """
import gymnasium as gym
import numpy as np

class Tank(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, size=1.0):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0, False, self.steps == 30, {}
"""
COUNTED = ("warm_up", "find_limit")

pytestmark = pytest.mark.usefixtures("quickly_discovered")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A module `kept_tank`, an empty cache, and a list that gets a name for each measurement."""
    monkeypatch.delenv(measured.OFF)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "kept_tank.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "kept_tank", raising=False)
    calls: list[str] = []
    for name in COUNTED:
        real = getattr(warmup, name)

        def counted(*arguments: object, name: str = name, real: object = real) -> object:
            calls.append(name)
            return real(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(load, name, counted)
    return calls


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache").rglob("*.npz"))


def test_a_second_command_plays_nothing_and_finds_the_same_task(played: list[str], tmp_path: Path) -> None:
    first = load_task("kept_tank:Tank")
    assert sorted(played) == sorted(COUNTED)
    (kept,) = files(tmp_path)
    second = load_task("kept_tank:Tank")
    assert sorted(played) == sorted(COUNTED)
    assert first.steps_taken > 0 == second.steps_taken
    assert replace(second, steps_taken=first.steps_taken) == first
    assert first.max_steps == 30
    assert kept.stat().st_size < 100_000


def test_arguments_sources_and_a_day_make_it_measure_again(played: list[str], tmp_path: Path) -> None:
    load_task("kept_tank:Tank")
    load.task_from_gym("kept_tank:Tank", kwargs={"size": 2.0})
    assert played.count("warm_up") == 2
    source = tmp_path / "kept_tank.py"
    os.utime(source, (time.time() + 5, time.time() + 5))
    load_task("kept_tank:Tank")
    assert played.count("warm_up") == 3
    for path in files(tmp_path):
        os.utime(path, (time.time() - 2 * measured.SECONDS_KEPT,) * 2)
    load_task("kept_tank:Tank")
    assert played.count("warm_up") == 4
    assert len(files(tmp_path)) == 1  # the old ones are gone


def test_with_a_limit_of_steps_or_the_variable_nothing_is_kept(
    played: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_task("kept_tank:Tank", max_steps=2_000)
    monkeypatch.setenv(measured.OFF, "1")
    load_task("kept_tank:Tank")
    assert played.count("warm_up") == 2
    assert not files(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut"])
def test_a_file_of_something_else_is_made_anew(content: bytes, played: list[str], tmp_path: Path) -> None:
    task = load_task("kept_tank:Tank")
    (kept,) = files(tmp_path)
    kept.write_bytes(content)
    assert load_task("kept_tank:Tank") == task
    assert played.count("warm_up") == 2
    assert measured.read_measurements(kept, 2) is not None
    assert measured.read_measurements(kept, 3) is None  # another number of columns


def test_objects_in_a_file_are_not_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    path = tmp_path / "trap.npz"
    np.savez(path, rows=np.array([Trap()], object), episodes=np.zeros(1), ended=np.zeros((0, 2)), numbers=np.zeros(3))
    assert measured.read_measurements(path, 1) is None
    assert not (tmp_path / "sprung").exists()


def test_a_folder_that_cannot_be_written_loses_nothing(
    played: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert load_task("kept_tank:Tank").max_steps == 30
    assert load_task("kept_tank:Tank").max_steps == 30
    assert played.count("warm_up") == 2
    assert capsys.readouterr() == ("", "")
