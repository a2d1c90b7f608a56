from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support import ARM, PAIR, discovered

from policygen.tasks.load import load_task
from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.spaces import Layout

TASKS = [
    load_task("pendulum"),
    load_task("frozenlake"),
    discovered("CartPole-v1"),
    discovered("Pendulum-v1"),
    ARM,
    PAIR,
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_survives_its_saved_form(task):
    assert task_from_record(json.loads(json.dumps(task_to_record(task)))) == task


def test_how_observations_nest_is_saved_and_older_records_do_not_say():
    layout = Layout((None, Layout((None, None))), ("goal", 1))
    record = json.loads(json.dumps(task_to_record(replace(ARM, layout=layout))))
    assert task_from_record(record).layout == layout
    for key in ("layout", "inputs", "facts"):
        del record[key]
    assert task_from_record(record) == replace(ARM, inputs=(), facts=())
