"""Notes: registered by one call, checked when they are read back; tests/runs/test_facts.py has one of a whole run."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from typing import Any

import pytest

from policygen.errors import PolicyError
from policygen.runs.attempt import Attempt
from policygen.runs.facts import note_facts
from policygen.runs.notes import NOTES, Note, made_notes, notes_from_record, notes_to_record


@dataclass(frozen=True)
class Noted:
    """A record with notes."""

    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Swing:
    """A value of a note that is a record of its own."""

    widest: float
    steps: tuple[int, ...] = ()


@pytest.fixture(autouse=True)
def _unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the notes that a test registers."""
    monkeypatch.setattr(NOTES, "_entries", dict(NOTES.items()))


def test_a_note_that_cannot_be_made_is_left_out_with_a_warning() -> None:
    Note("broken", int, make=lambda policy, trajectories: 1 // 0)
    Note("without", int, make=lambda policy, trajectories: None)
    Note("four", int, make=lambda policy, trajectories: 4)
    with pytest.warns(UserWarning, match="`broken` is left out because computing it failed: integer division"):
        found = made_notes(None, [])
    assert found == {"four": 4}


def test_notes_are_checked_when_they_are_read_back() -> None:
    swing = Note("swing", Swing, words=lambda one: f"{one.widest:g}", heading="widest swing")
    notes = {"swing": Swing(float("inf"), (1, 2))}
    record = json.loads(json.dumps(notes_to_record(notes)))
    assert notes_from_record(record) == notes
    assert [one[1:3] for one in note_facts(Attempt(1, None, None, notes=notes))] == [("widest swing", "inf")]
    record["swing"]["steps"] = ["one"]
    with pytest.raises(PolicyError, match="note `swing`: `steps"):
        notes_from_record(record)
    assert swing.of(Noted()) is None


def test_a_note_that_is_registered_after_reading_is_kept_and_read_on_demand() -> None:
    record = {"late": {"widest": 2, "steps": [3]}}
    noted = Noted(notes_from_record(record))
    assert notes_to_record(noted.notes) == record
    late: Note[Swing] = Note("late", f"{__name__}:Swing")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert late.of(noted) == Swing(2.0, (3,))
