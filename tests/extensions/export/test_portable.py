"""Exported JSON: what it says of itself suffices to act."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from typing import Any

import numpy as np
import pytest
from exporting import (
    EQUATIONS,
    REMEMBERING,
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
from support import PAIR

from policygen.extensions.export.formats import exported
from policygen.policies.policy import Policy
from policygen.quantities.operations import OPERATIONS


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
        parts = self.record["action"]["parts"]
        if self.record["action"]["space"] == "box":
            clipped = [min(max(v, p["low"]), p["high"]) for v, p in zip(totals, parts, strict=True)]
            return [float(round(v)) if p.get("whole") else v for v, p in zip(clipped, parts, strict=True)]
        chosen = []
        for part in parts:
            scores, totals = totals[: len(part["labels"])], totals[len(part["labels"]) :]
            chosen.append(float(scores.index(max(scores))))
        return chosen


def assert_alike(policy: Policy, count: int = 200) -> None:
    reader, controller = Reader(policy), policy.controller()
    for row in trying(policy, count, np.float64):
        theirs = flat(controller(row)) if policy.remembers else policy.act_one(row)
        assert np.allclose(reader.act(row.tolist()), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["cartpole", "few rows", "many numbers", "several choices", "whole numbers"])
def test_tables(name: str) -> None:
    assert_alike(tables()[name])


@pytest.mark.parametrize("name", WHOLE_TEXTS)
def test_whole_numbers(name: str) -> None:
    assert_alike(written(WHOLE_TEXTS[name], WHOLE))


@pytest.mark.parametrize("name", ["taxi", "lunarlander", "pendulum-torque-estimator"])
def test_shipped_policies(name: str) -> None:
    assert_alike(shipped(name))


@pytest.mark.parametrize("name", EQUATIONS)
def test_equations(name: str) -> None:
    assert_alike(written(EQUATIONS[name], name))


@pytest.mark.parametrize("name", REMEMBERING)
def test_memory(name: str) -> None:
    assert_alike(written(REMEMBERING[name], PAIR))


def test_names_are_kept_as_they_are() -> None:
    task = hostile_task()
    assert task.grid is not None
    text = exported(random_table(task, task.grid), "json")
    assert json.loads(text)["task"]["name"] == task.name
    assert text.isascii()
