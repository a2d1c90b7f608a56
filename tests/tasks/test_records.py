from __future__ import annotations

import json
from dataclasses import replace

from support import ARM, PAIR

from policygen.tasks.records import task_from_record, task_to_record
from policygen.tasks.spaces import Layout


def test_a_task_survives_its_saved_form():
    nested = replace(ARM, layout=Layout((None, Layout((None, None))), ("goal", 1)))
    for task in (nested, PAIR):
        record = json.loads(json.dumps(task_to_record(task)))
        assert task_from_record(record) == task
