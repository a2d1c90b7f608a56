from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
from support import ARM, PAIR

from policygen.errors import PolicyError
from policygen.tasks.records import checked, task_from_record, task_to_record
from policygen.tasks.spaces import Layout


def test_a_task_survives_its_saved_form():
    nested = replace(ARM, layout=Layout((None, Layout((None, None))), ("goal", 1)))
    for task in (nested, PAIR):
        record = json.loads(json.dumps(task_to_record(task)))
        assert task_from_record(record) == task


@dataclass(frozen=True)
class Part:
    size: int
    name: str = "part"


@dataclass(frozen=True)
class Whole:
    word: str
    number: float
    yes: bool
    choice: Literal["a", "b"]
    parts: tuple[Part, ...]
    pair: tuple[float, str] | None
    table: dict[str, tuple[int, ...]]
    anything: Any = None
    more: dict[str, str] = field(default_factory=dict)


GOOD: dict[str, Any] = {
    "word": "w",
    "number": 3,
    "yes": True,
    "choice": "b",
    "parts": [{"size": 2}, {"size": 3, "name": "x", "unknown": 1}],
    "pair": [1, "one"],
    "table": {"row": [1, 2]},
}


def test_a_record_is_read_with_its_defaults_and_nested_records():
    assert checked(Whole, GOOD, "bad") == Whole(
        "w", 3.0, True, "b", (Part(2), Part(3, "x")), (1.0, "one"), {"row": (1, 2)}
    )
    assert checked(Whole, {**GOOD, "pair": None, "anything": [1]}, "bad").anything == [1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"word": 1}, "`word`: input should be a valid string"),
        ({"number": "3"}, "`number`: input should be a valid number"),
        ({"number": True}, "`number`: input should be a valid number"),
        ({"number": 10**400}, "`number`: input should be a valid number"),
        ({"choice": "c"}, "`choice`: input should be 'a' or 'b'"),
        ({"choice": ["c"]}, "`choice`: input should be 'a' or 'b'"),
        ({"parts": {}}, "`parts`: input should be a valid list"),
        ({"parts": [{"size": 1}, {"size": 1.5}]}, "`parts.1.size`: input should be a valid integer"),
        ({"parts": [{}]}, "the key `parts.0.size` is missing"),
        ({"pair": [1]}, "`pair`: list should have 2 items, not 1"),
        ({"pair": [1, 2]}, "`pair.1`: input should be a valid string"),
        ({"table": {"row": [1, None]}}, "`table.row.1`: input should be a valid integer"),
        ({"yes": 1, "table": 2}, "`yes`: input should be true or false; `table`: input should be a valid dictionary"),
    ],
)
def test_each_key_that_holds_something_else_is_named(changes, sentence):
    with pytest.raises(PolicyError) as refusal:
        checked(Whole, {**GOOD, **changes}, "damaged whole")
    assert str(refusal.value) == f"damaged whole: {sentence}"


def test_what_is_no_mapping_or_lacks_keys_is_refused():
    with pytest.raises(PolicyError, match=r"^bad: input should be a valid dictionary$"):
        checked(Part, [1], "bad")
    with pytest.raises(PolicyError, match=r"^bad: the key `word` is missing; the key `number` is missing;"):
        checked(Whole, {}, "bad")
