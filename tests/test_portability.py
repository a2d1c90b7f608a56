"""Windows: system calls that it lacks (`make lint` finds their uses with mypy), and outputs without most characters."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support import command, environment, the_run

from policygen import portable
from policygen.errors import LogbookError
from policygen.files import write_atomically
from policygen.tasks.faults import Watchdog


def test_without_what_windows_lacks_all_cores_are_used_and_no_step_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert portable.usable_cores() == os.cpu_count()
    monkeypatch.setattr("policygen.tasks.faults.ALARM", 0)
    with Watchdog(0.01, lambda: 0) as watchdog:
        assert not watchdog._active


def test_a_file_that_another_program_has_open_is_replaced_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace, refusals = tmp_path / "a.json", os.replace, iter([True, True])

    def refused_at_first(source: Path, target: Path) -> None:
        if next(refusals, False):
            raise PermissionError(13, "Access is denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refused_at_first)
    with pytest.raises(LogbookError, match=r"cannot write .*Access is denied"):  # elsewhere it is refused for good
        write_atomically(path, "new")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(portable, "_PAUSES", (0, 0))
    write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "new"


def test_an_output_of_few_characters_shows_escapes_for_the_others(tmp_path: Path) -> None:
    def said(*words: object) -> str:
        narrow = environment(PYTHONIOENCODING="cp1252", PYTHONUTF8="0")
        done = subprocess.run(command(*words), cwd=tmp_path, env=narrow, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode("cp1252")

    start = tmp_path / "start.txt"
    start.write_text("left = 0  # θ ≤ ½\nright = 10*angle + 2*spin\n", encoding="utf-8")
    quick = ("--iterations", 1, "--episodes", 4, "--set", "final_episodes=4", "--policy", "equations")
    assert r"results: \u03b8/cartpole-" in said("run", "cartpole", "--start", start, *quick, "-o", "θ")
    folder = the_run(tmp_path / "θ")
    assert r"left = 0  # \u03b8 \u2264 ½" in said("show", folder)
    assert not [path for path in (folder, *folder.rglob("*")) if re.search(r'[<>:"\\|?*]|[ .]$', path.name)]
