"""Exported C, Python and JSON: each decides as numpy does, over many kinds of policies.

It tests `extensions.export.json_format` and `extensions.export.python`.
"""

from __future__ import annotations

import ast
import functools
import json
import math
import shutil
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from exporting import CASES, cases, flat, trying
from generators import linear_policies
from generators import tables as random_tables
from hypothesis import given, settings
from hypothesis import strategies as st
from speed_parts.exported import compiled
from support import ARM, PAIR

from policygen.extensions.export.formats import exported
from policygen.policies.policy import Policy
from policygen.quantities.operations import OPERATIONS

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc`")
Rows = npt.NDArray[np.float64]
Decide = Callable[[Rows], Any]  # the first row begins an episode, the others are its next steps


def by_c(policy: Policy, folder: Path) -> Decide:
    return compiled(policy, folder, ("-O0", "-pedantic"))


def by_python(policy: Policy, folder: Path | None = None) -> Decide:
    text = exported(policy, "python")
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {alias.name for node in imports for alias in node.names} <= {"bisect", "math", "struct"}
    module: dict[str, Any] = {}
    exec(compile(text, "exported", "exec"), module)
    memory = [module["start"]()] if policy.remembers else []
    return lambda rows: np.array([module["act"](row.tolist(), *memory) for row in rows])


def by_json(policy: Policy, folder: Path | None = None) -> Decide:
    reader = Reader(policy)
    return lambda rows: np.array([reader.act(row.tolist()) for row in rows])


class Reader:
    """Carries out an exported policy by what the file says, as another program would."""

    def __init__(self, policy: Policy) -> None:
        self.record = json.loads(exported(policy, "json"))
        self.before: dict[str, float] = {}

    def value(self, tree: Any) -> float:
        if isinstance(tree, str):
            return self.now[tree]
        if not isinstance(tree, list):
            return float(tree)
        if tree[0] == "prev":
            return self.before[tree[1]] if tree[1] in self.before else self.value(tree[2])
        return float(OPERATIONS[tree[0]].scalar(*map(self.value, tree[1:])))

    def finite(self, value: float) -> float:
        return value if math.isfinite(value) else 0.0 if math.isnan(value) else math.copysign(1e6, value)

    def act(self, observation: list[float]) -> list[float]:
        record = self.record
        self.now = dict(zip((o["name"] for o in record["observation"]), observation, strict=True))
        for definition in record["definitions"]:
            self.now[definition["name"]] = self.finite(self.value(definition["tree"]))
        action = self.table() if record["kind"] == "table" else self.linear()
        after = {}
        for part in record["remembered"]:
            chosen = action[part["action"]] if "action" in part else self.now[part["name"]]
            after[part["name"]] = float(chosen == part["is"]) if "is" in part else chosen
        self.before = {name: value for name, value in after.items() if not math.isnan(value)}
        return action

    def table(self) -> list[float]:
        cell = 0
        for dimension in self.record["dimensions"]:
            edges = dimension["edges"]
            cell = cell * (len(edges) + 1) + bisect_right(edges, self.now[dimension["name"]])
        for count, code in self.record["codes"]:
            if cell < count:
                return list(self.record["actions"][code])
            cell -= count
        raise AssertionError(cell)

    def linear(self) -> list[float]:
        terms = [self.finite(self.value(tree)) for tree in self.record["terms"]]
        totals = [
            self.finite(sum(weight * terms[i] for weight, i in output["weights"]) + output["constant"])
            for output in self.record["outputs"]
        ]
        chosen = []
        for part in self.record["action"]["parts"]:
            own = [totals.pop(0) for _ in part.get("labels", [None])]
            if "labels" in part:
                chosen.append(float(own.index(max(own))))
            else:
                value = min(max(own[0], part["low"]), part["high"])
                chosen.append(float(round(value)) if part.get("whole") else value)
        return chosen


BY = [
    pytest.param(by_c, marks=needs_cc, id="c"),
    pytest.param(by_python, id="python"),
    pytest.param(by_json, id="json"),
]


def numpy_s(policy: Policy, rows: npt.NDArray[np.floating]) -> Any:
    """The actions of the policy itself, as an episode if it remembers."""
    controller = policy.controller()
    return np.array([flat(controller(row)) if policy.remembers else policy.act_one(row) for row in rows])


@functools.cache
def expected(name: str) -> tuple[Policy, npt.NDArray[np.floating], Any]:
    """A policy, observations, and its actions."""
    policy = CASES[name]()
    # A controller, and so each policy with memory, sees single precision.
    rows = trying(policy, 300, np.float32 if policy.remembers else np.float64).astype(np.float64)
    return policy, rows, numpy_s(policy, rows)


MANY = cases("table", "equations", "shipped, cliff", "shipped, frozen", "shipped, taxi", "shipped, pendulum-torque-mem")


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("exported")])
def test_decisions_are_numpy_s(name: str, by: Callable[[Policy, Path], Decide], tmp_path: Path) -> None:
    policy, rows, theirs = expected(name)
    decide = by(policy, tmp_path)
    ours = np.reshape(decide(rows), theirs.shape)
    # A sine of C may differ in its last bit; JSON is carried out here in double precision.
    if by is by_json or (by is by_c and name.startswith(("shipped", "equations"))):
        assert np.allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    else:
        assert np.array_equal(ours, theirs)
    if by is by_c and name in MANY:
        assert_thousands_agree(policy, decide)


def assert_thousands_agree(policy: Policy, decide: Decide) -> None:
    for dtype in (np.float32, np.float64) if policy.kind == "table" else (np.float64,):
        rows = trying(policy, 20_000, dtype)
        ours, theirs = decide(rows.astype(np.float64)), policy.act(rows)
        assert float(np.mean(ours == theirs)) >= (1.0 if policy.kind == "table" else 0.9999)
        if policy.task.action_space == "box":
            assert np.abs(ours - theirs).max() <= 1e-6


@settings(max_examples=25, deadline=None)
@given(policy=st.one_of(random_tables(ARM), random_tables(PAIR), linear_policies(PAIR), linear_policies(ARM)))
def test_any_policy_in_python(policy: Policy) -> None:
    rows = trying(policy, 20, np.float64)
    assert np.allclose(by_python(policy)(rows), numpy_s(policy, rows), rtol=1e-6, atol=1e-6)
