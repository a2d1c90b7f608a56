"""Exported C and Python: each decides as numpy does, over many kinds of policies."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from exporting import CASES, cases, compiled, flat, trying
from generators import linear_policies
from generators import tables as random_tables
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ARM, PAIR

from policygen.extensions.export.formats import exported
from policygen.policies.policy import Policy

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc`")
Rows = npt.NDArray[np.float64]
Decide = Callable[[Rows], Any]  # the first row begins an episode, the others are its next steps


def by_python(policy: Policy, folder: Path | None = None) -> Decide:
    text = exported(policy, "python")
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {alias.name for node in imports for alias in node.names} <= {"bisect", "math", "struct"}
    module: dict[str, Any] = {}
    exec(compile(text, "exported", "exec"), module)
    memory = [module["start"]()] if policy.remembers else []
    return lambda rows: np.array([module["act"](row.tolist(), *memory) for row in rows])


def numpy_s(policy: Policy, rows: npt.NDArray[np.floating]) -> Any:
    """The actions of the policy itself, as an episode if it remembers."""
    controller = policy.controller()
    return np.array([flat(controller(row)) if policy.remembers else policy.act_one(row) for row in rows])


MANY = cases("table", "shipped, cliff", "shipped, frozen", "shipped, taxi", "shipped, pendulum-torque-mem")


@pytest.mark.parametrize("by", [pytest.param(compiled, marks=needs_cc, id="c"), pytest.param(by_python, id="python")])
@pytest.mark.parametrize("name", CASES)
def test_decisions_are_numpy_s(name: str, by: Callable[[Policy, Path], Decide], tmp_path: Path) -> None:
    policy = CASES[name]()
    # A controller, and so each policy with memory, sees single precision.
    rows = trying(policy, 300, np.float32 if policy.remembers else np.float64).astype(np.float64)
    theirs, decide = numpy_s(policy, rows), by(policy, tmp_path)
    ours = np.reshape(decide(rows), theirs.shape)
    if by is compiled and name.startswith(("shipped", "exported")):  # a sine of C may differ in its last bit
        assert np.allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    else:
        assert np.array_equal(ours, theirs)
    if by is compiled and name in MANY:
        exact = policy.kind == "table"
        for dtype in (np.float32, np.float64) if exact else (np.float64,):
            rows = trying(policy, 20_000, dtype)
            ours, theirs = decide(rows.astype(np.float64)), policy.act(rows)
            assert float(np.mean(ours == theirs)) >= (1.0 if exact else 0.9999)
            assert policy.task.action_space != "box" or np.abs(ours - theirs).max() <= 1e-6


@settings(max_examples=25, deadline=None)
@given(policy=st.one_of(random_tables(ARM), random_tables(PAIR), linear_policies(PAIR), linear_policies(ARM)))
def test_any_policy_in_python(policy: Policy) -> None:
    rows = trying(policy, 20, np.float64)
    assert np.allclose(by_python(policy)(rows), numpy_s(policy, rows), rtol=1e-6, atol=1e-6)
