"""Exported Python: without numpy it decides as numpy does."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exporting import (
    EQUATIONS,
    MIXED,
    REMEMBERING,
    TABLES,
    VALVES,
    WHOLE,
    WHOLE_TEXTS,
    flat,
    hostile_task,
    random_table,
    shipped,
    tables,
    trying,
    written,
)
from generators import linear_policies
from generators import tables as random_tables
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ARM, PAIR

from policygen.extensions.export.formats import exported
from policygen.files import write_atomically
from policygen.policies.policy import Policy
from policygen.quantities.grid import Dimension, Grid
from policygen.tasks.spaces import Actuator, Observation


def module_of(policy: Policy) -> dict[str, Any]:
    """What the exported file defines."""
    text = exported(policy, "python")
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import)]
    imported = {alias.name for node in imports for alias in node.names}
    assert imported <= {"bisect", "math", "struct"}
    names: dict[str, Any] = {}
    exec(compile(text, "exported", "exec"), names)
    return names


def assert_alike(policy: Policy, count: int) -> None:
    module, rows = module_of(policy), trying(policy, count, np.float64)
    if policy.remembers:
        controller, memory = policy.controller(), module["start"]()
        ours = [module["act"](row.tolist(), memory) for row in rows]
        theirs = [flat(controller(row)) for row in rows]
    else:
        ours = [module["act"](row.tolist()) for row in rows]
        theirs = [policy.act_one(row) for row in rows]
    assert np.array_equal(np.array(ours), np.array(theirs))


@pytest.mark.parametrize("name", MIXED)
def test_choices_beside_numbers(name: str) -> None:
    assert_alike(written(MIXED[name], VALVES), 500)


@pytest.mark.parametrize("name", WHOLE_TEXTS)
def test_whole_numbers_are_rounded_and_remembered_so(name: str) -> None:
    policy = written(WHOLE_TEXTS[name], WHOLE)
    rows, memory = trying(policy, 500, np.float64), policy.start(1)
    actions = np.concatenate([policy.act(row[None], memory) for row in rows])
    assert len(np.unique(actions[:, 0])) > 2
    assert np.array_equal(actions[:, 0], np.rint(actions[:, 0]))
    assert not np.array_equal(actions[:, 1], np.rint(actions[:, 1]))
    assert_alike(policy, 500)


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str) -> None:
    assert_alike(tables()[name], 500)


@pytest.mark.parametrize("name", ["taxi", "lunarlander", "pendulum-torque-estimator", "walker2d", "frozenlake8x8"])
def test_shipped_policies(name: str) -> None:
    assert_alike(shipped(name), 300)


@pytest.mark.parametrize("name", EQUATIONS)
def test_equations(name: str) -> None:
    assert_alike(written(EQUATIONS[name], name), 1_000)


@pytest.mark.parametrize("name", REMEMBERING)
def test_memory(name: str) -> None:
    assert_alike(written(REMEMBERING[name], PAIR), 1_000)


@settings(max_examples=20, deadline=None)
@given(policy=st.one_of(random_tables(ARM), random_tables(PAIR), linear_policies(PAIR)))
def test_any_policy(policy: Policy) -> None:
    assert_alike(policy, 20)


@settings(max_examples=10, deadline=None)
@given(policy=linear_policies(ARM))
def test_any_equations(policy: Policy) -> None:
    module, rows = module_of(policy), trying(policy, 20, np.float64)
    ours = np.array([module["act"](row.tolist()) for row in rows])
    assert np.allclose(ours, [policy.act_one(row) for row in rows], rtol=1e-6, atol=1e-6)


def test_whatever_a_task_calls_its_things_no_word_of_it_becomes_code() -> None:
    task = hostile_task()
    assert task.grid is not None
    policy = random_table(task, task.grid)
    assert_alike(policy, 300)
    names = {node.id for node in ast.walk(ast.parse(exported(policy, "python"))) if isinstance(node, ast.Name)}
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
