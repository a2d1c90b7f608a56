"""Exported Python: no word of a task becomes code, nor declares an encoding in which it would."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from exporting import hostile_task, random_table

from policygen.extensions.export.formats import exported
from policygen.files import write_atomically
from policygen.quantities.grid import Dimension, Grid
from policygen.tasks.spaces import Actuator, Observation


def test_whatever_a_task_calls_its_things_no_word_of_it_becomes_code() -> None:
    task = hostile_task()
    assert task.grid is not None
    tree = ast.parse(exported(random_table(task, task.grid), "python"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not {name for name in names if "evil" in name and not name.startswith(("q_", "pg_edges_"))}


def test_no_name_declares_an_encoding_in_which_a_comment_is_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = Grid((Dimension("x", (0.0,)),))
    evil = "+AAo-open('marker', 'w').close()+AAo-+ACM-"  # line ends and a comment in UTF-7
    for before in ("coding:utf-7 ", "\\\n# -*- coding: utf-7 -*-\n", "vim: set fileencoding=utf-7 :"):
        gears = (Actuator("gear", ("low", evil)), Actuator("horn", ("0", "1")))
        task = replace(hostile_task(), name=before + evil, observations=(Observation("x"),), actuators=gears, grid=None)
        file = tmp_path / "policy.py"
        write_atomically(file, exported(random_table(task, grid), "python"))
        subprocess.run([sys.executable, file], cwd=tmp_path, check=False, timeout=60)
        assert [path.name for path in tmp_path.iterdir()] == ["policy.py"]
        exec(compile(file.read_bytes(), "exported", "exec"), {})
        assert [path.name for path in tmp_path.iterdir()] == ["policy.py"]
        heading = file.read_bytes().splitlines()[:2]
        assert not any(b"coding" in line for line in heading), heading
