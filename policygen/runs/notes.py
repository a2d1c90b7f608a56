"""The notes of attempts: values that abilities record about an attempt, each under a key of its own.

A note is registered by making a `Note`, in the module of the ability that writes it; CONTRIBUTING.md has an example.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from policygen.episodes.requirements import Violations
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicyError, explain
from policygen.policies.policy import Policy
from policygen.policies.shaping import Measure, Shaping
from policygen.quantities.codegen import compiled
from policygen.registry import Registry, resolved
from policygen.tasks.task import Task

T = TypeVar("T")
Make = Callable[[Policy | None, Sequence[Trajectory]], T | None]


NOTES: Registry[Note[Any]] = Registry("note")
"""All notes by key."""


@dataclass(frozen=True)
class Note(Generic[T]):
    """A kind of note. Making one registers it; UsageError if another has its key.

    Attributes:
        key: its name in `Attempt.notes` and in attempts.jsonl.
        kind: the type of its values, which pydantic checks when they are read back; or the address `MODULE:NAME` of
            the type, if importing it takes long.
        make: called once for each scored attempt, with its policy (None: random actions) and the episodes of its score;
            returns the value, or None for no note. None if the ability writes the note itself.
        heading: its name on the terminal, on pages and in comparisons; without one they do not show it.
        words: returns the text that is shown for a value.
        number: returns a value as a number, for averages and trackers; None if it has none.
        check: raises PolicyError if a value that is read back does not fit the task.
    """

    key: str
    kind: type[T] | str
    make: Make[T] | None = None
    heading: str = ""
    words: Callable[[T], str] = str
    number: Callable[[T], float] | None = None
    check: Callable[[Task, T], object] | None = None

    def __post_init__(self) -> None:
        NOTES.add(self.key, self)

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(resolved(self.kind))

    def of(self, attempt: Any) -> T | None:
        """Return the note of an attempt; None without one.

        Raises PolicyError for a damaged value that was read before the note was registered.
        """
        value = attempt.notes.get(self.key)
        return self.read(value) if value is not None else None

    def read(self, record: Any, task: Task | None = None) -> T:
        """Return a value, converted from its saved form if necessary; raise PolicyError if it is damaged."""
        try:
            value = self._adapter.validate_python(record)
        except ValidationError as error:
            raise PolicyError(f"note `{self.key}`: {explain(error)}") from None
        if self.check is not None and task is not None:
            self.check(task, value)
        return value


def made_notes(policy: Policy | None, trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Call `make` of every note; one that fails is left out, with a UserWarning."""
    found: dict[str, Any] = {}
    for one in NOTES.values():
        if one.make is None:
            continue
        try:
            value = one.make(policy, trajectories)
        except Exception as error:
            what = " ".join(str(error).split())[:300] or type(error).__name__
            warnings.warn(f"the note `{one.key}` is left out because computing it failed: {what}", stacklevel=2)
        else:
            found |= {one.key: value} if value is not None else {}
    return found


def notes_to_record(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return notes as JSON values."""
    found: dict[str, Any] = to_jsonable_python(dict(notes), inf_nan_mode="constants")
    return found


def notes_from_record(record: Mapping[str, Any], task: Task | None = None) -> dict[str, Any]:
    """Read notes that `notes_to_record` wrote, and keep unregistered ones unread; raise PolicyError for damage."""
    return {key: NOTES[key].read(value, task) if key in NOTES else value for key, value in record.items()}


# --- the notes of the kernel -----------------------------------------------------------------------------------------

# The first sentence of the reply outside the policy.
IDEA = Note("idea", str)
# The budget that was used up before the attempt was repaired or scored, as a sentence; the run then ends.
STOPPED = Note("stopped", str)
# Number of the earlier attempt with the same policy, whose score is used.
REPEATS = Note("repeats", int)
# The objective and the potential that guided an attempt's tuning.
SHAPING = Note("objective", Shaping, words=Shaping.to_text, check=Measure)
# How often the scored episodes violated each requirement of the task.
VIOLATIONS = Note("violations", tuple[Violations, ...])


def notes_of_episodes(attempt: Any) -> dict[str, Any]:
    """Return the notes that were made from an attempt's scored episodes, not from its reply."""
    made = {VIOLATIONS.key, *(key for key, note in NOTES.items() if note.make is not None)}
    return {key: value for key, value in attempt.notes.items() if key in made}


def violations_of(attempt: Any) -> tuple[Violations, ...]:
    """Return how often an attempt's scored episodes violated each requirement."""
    return VIOLATIONS.of(attempt) or ()


MOST_UNDEFINED = 6  # names listed
Shares = tuple[tuple[str, float], ...]


def undefined_shares(policy: Policy | None, trajectories: Sequence[Trajectory]) -> Shares | None:
    """Return the features and outputs that were not finite, each with the share of steps; None without any."""
    formulas = [*policy.reader.needed, *policy.formulas()] if policy is not None else []
    steps = sum(t.length for t in trajectories)
    if policy is None or not formulas or not steps:
        return None
    along = policy.reader.along(*((t.observations[:-1], t.actions) for t in trajectories))
    columns = [column.astype(np.float64) for column in along]
    with np.errstate(all="ignore"):
        values = compiled([node for _, node in formulas], policy.reader.names)(columns)
    shares = ((name, float(np.mean(~np.isfinite(v)))) for (name, _), v in zip(formulas, values, strict=True))
    return tuple((name, share) for name, share in shares if share > 0) or None


def undefined_words(shares: Shares) -> str:
    """Describe `undefined_shares` in words."""
    found = [f"`{name}` in {100 * share:.3g}% of the steps" for name, share in shares]
    more = f", and {len(found) - MOST_UNDEFINED} more" if len(found) > MOST_UNDEFINED else ""
    return f"{', '.join(found[:MOST_UNDEFINED])}{more}"


UNDEFINED = Note(
    "undefined",
    Shares,
    make=undefined_shares,
    heading="values without a finite number",
    words=undefined_words,
    number=len,
)
# Number of scored episodes in which the environment reported that its simulation diverged.
UNSTABLE = Note("unstable", int, make=lambda _, trajectories: sum(t.unstable for t in trajectories) or None)
