"""Saved tasks: what is written is read again, and each damage is named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support import ARM, PAIR

from policygen.errors import PolicyError
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.spaces import Layout
from policygen.tasks.task import Optimum

NESTED = replace(ARM, layout=Layout((None, Layout((None, None))), ("goal", 1)), optimum=Optimum(3, "x"), unseeded=True)
KINDS = "'discrete' or 'multidiscrete' or 'box' or 'mixed'"


@pytest.mark.parametrize("task", [NESTED, PAIR], ids=lambda task: task.name)
def test_a_task_survives_its_saved_form(task):
    record = json.loads(json.dumps(task_to_record(task)))
    assert task_from_record(record | {"unknown": 1}) == task


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": 1}, "`name`: input should be a valid string"),
        *(({"discount": value}, "`discount`: input should be a valid number") for value in ("3", True, 10**400)),
        ({"max_steps": 1.5}, "`max_steps`: input should be a valid integer"),
        *(({"action_space": kind}, f"`action_space`: input should be {KINDS}") for kind in ("c", ["box"])),
        ({"hints": {}}, "`hints`: input should be a valid list"),
        ({"actuators": [{}]}, "the key `actuators.0.name` is missing"),
        (
            {"actuators": [{"name": "a", "levels": {"x": None}}]},
            "`actuators.0.levels.0.1`: input should be a valid number",
        ),
        ({"optimum": [1]}, "the key `optimum.source` is missing"),
        ({"optimum": [1, 2]}, "`optimum.source`: input should be a valid string"),
        ({"starts": [["x"]]}, "`starts.0`: list should have 2 items, not 1"),
        ({"grid": {"x": [1, None]}}, "`grid.x.1`: input should be a valid number"),
        ({"grid": 2}, "`grid`: input should be a valid dictionary"),
        (
            {"layout": 2, "unseeded": 1},
            "`layout`: input should be a valid dictionary; `unseeded`: input should be true or false",
        ),
        ({"name": None, "gym_id": None}, "the key `name` is missing; the key `gym_id` is missing"),
    ],
)
def test_each_key_that_holds_something_else_or_is_missing_is_named(changes: dict[str, Any], sentence: str) -> None:
    record = {
        key: value for key, value in (task_to_record(ARM) | changes).items() if key not in changes or value is not None
    }
    with pytest.raises(PolicyError) as refusal:
        task_from_record(record)
    assert sorted(str(refusal.value).removeprefix("damaged task: ").split("; ")) == sorted(sentence.split("; "))


def test_what_is_no_mapping_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"^damaged task: input should be a valid dictionary$"):
        task_from_record([1])  # type: ignore[arg-type]
