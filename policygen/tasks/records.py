"""Conversion of tasks and grids to JSON values, and of JSON values to dataclasses, checked against type hints.

A program that acts with a saved policy should import little more than numpy, so this is not done by pydantic. msgspec
would be fast enough, but it reports only the first problem, and allows no two dataclasses in a union.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from policygen.errors import PolicyError, UsageError
from policygen.quantities.grid import Dimension, Grid
from policygen.quantities.operations import columns_for
from policygen.tasks.actions import check_layout
from policygen.tasks.spaces import MOST_CHARACTERS, leaves
from policygen.tasks.task import Task, perturbation

T = TypeVar("T")
_PLAIN: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a valid string"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a valid integer"),
    float: ((int, float), "a valid number"),
    NoneType: ((NoneType,), "null"),
}
_LARGEST = 2**63  # integers beyond this are no size, step or index

# The keys of a saved task, in their order.
_KEYS = (
    *("name", "gym_id", "kwargs", "action_space", "max_steps", "discount", "solved", "optimum", "step_seconds"),
    *("observations", "derived", "seen", "texts", "actuators", "unseeded", "features", "reward", "ends", "starts"),
    *("requirements", "perturb", "about", "hints", "documentation", "facts", "heights", "inputs", "layout"),
    *("action_layout", "grid"),
)
# A record has these keys only if their value is not empty.
_IF_STATED = {
    *("texts", "unseeded", "reward", "ends", "starts", "requirements", "perturb", "action_layout", "step_seconds"),
    *("derived", "seen", "documentation", "heights"),
}


def checked(kind: type[T], value: Any, what: str) -> T:
    """Convert `value` to the dataclass `kind`, ignoring unknown keys.

    Fields may be str, bool, int, float, None, literals, tuples, dictionaries with str keys, dataclasses, `Any`, and
    unions of these. A list becomes a tuple, or a dataclass whose fields it holds in order, null for a default; a
    dictionary may also become a tuple of pairs.

    Args:
        what: the beginning of the error message, such as "damaged policy".

    Raises:
        PolicyError: `value` does not fit; the message names every missing or wrong key.
    """
    problems: list[str] = []
    record = _read(kind, value, (), problems)
    if problems:
        raise PolicyError(f"{what}: {'; '.join(problems)}")
    return record  # type: ignore[no-any-return]


def _read(hint: Any, value: Any, where: tuple[str, ...], problems: list[str]) -> Any:
    """Convert a value to the type `hint`; if it does not fit, add a sentence with its key to `problems`."""

    def refuse(expected: str) -> None:
        problems.append(f"`{'.'.join(where)}`: {expected}" if where else expected)

    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if hint in _PLAIN:
        types, expected = _PLAIN[hint]
        fits = isinstance(value, types) and isinstance(value, bool) == (hint is bool)
        if not fits or (isinstance(value, int) and abs(value) > _LARGEST):
            return refuse(f"input should be {expected}")
        return float(value) if hint is float else value
    if origin is Literal:
        return value if value in arguments else refuse(f"input should be {' or '.join(map(repr, arguments))}")
    if origin is UnionType:  # the first type that fits; if none does, the problems with the first one count
        tried: list[list[str]] = [[] for _ in arguments]
        for option, found in zip(arguments, tried, strict=True):
            read = _read(option, value, where, found)
            if not found:
                return read
        return problems.extend(tried[0])
    if origin is tuple:
        if isinstance(value, dict) and get_origin(arguments[0]) is tuple:
            value = list(value.items())
        if not isinstance(value, list | tuple):
            return refuse("input should be a valid list")
        hints = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(value) != len(hints):
            return refuse(f"list should have {len(hints)} items, not {len(value)}")
        parts = zip(hints, value, strict=True)
        return tuple(_read(part, item, (*where, str(i)), problems) for i, (part, item) in enumerate(parts))
    if origin is dict and isinstance(value, dict):
        return {key: _read(arguments[1], item, (*where, str(key)), problems) for key, item in value.items()}
    if where and origin is None and isinstance(value, list):
        value = {name: item for (name, *_), item in zip(_fields(hint), value, strict=False) if item is not None}
    if not isinstance(value, dict):
        return refuse("input should be a valid dictionary")
    given = {}
    for name, own_hint, needed in _fields(hint):
        if name in value:
            given[name] = _read(own_hint, value[name], (*where, name), problems)
        elif needed:
            problems.append(f"the key `{'.'.join((*where, name))}` is missing")
    return None if problems else hint(**given)


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Return name, type and whether it is required, for each field."""
    hints = get_type_hints(kind)
    return tuple(
        (field.name, hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    )


def task_to_record(task: Task) -> dict[str, Any]:
    """Convert a task to JSON values, without what only the run that loaded it needs."""
    # Numbers become floats, so that 0 and 0.0 in a task file give equal records.
    other_forms = {
        "kwargs": dict(task.kwargs),
        "discount": float(task.discount),
        "solved": float(task.solved) if task.solved is not None else None,
        "optimum": [float(task.optimum.value), task.optimum.source] if task.optimum else None,
        "observations": [
            [o.name, o.unit, o.about, *(float(b) if math.isfinite(b) else None for b in (o.low, o.high)), o.integer]
            for o in task.observations
        ],
        "derived": {o.name: o.derived for o in task.observations if o.derived},
        "seen": {o.name: o.seen for o in task.observations if o.seen},
        "texts": list(map(asdict, task.texts)),
        "actuators": [
            {
                "name": a.name,
                "about": a.about,
                **({"unit": a.unit} if a.unit else {}),
                **({"labels": list(a.labels)} if a.is_choice else {"low": float(a.low), "high": float(a.high)}),
                **({} if a.is_choice else {"levels": {name: float(value) for name, value in a.levels}}),
            }
            for a in task.actuators
        ],
        "features": dict(task.features),
        "requirements": list(map(asdict, task.requirements)),
        "perturb": [{k: v for k, v in asdict(one).items() if k != "spread" or v} for one in task.perturb],
        "heights": list(map(asdict, task.heights)),
        "layout": asdict(task.layout) if task.layout is not None else None,
        "action_layout": asdict(task.action_layout) if task.action_layout is not None else None,
        "grid": grid_to_record(task.grid) if task.grid else None,
    }
    record = {key: other_forms[key] if key in other_forms else getattr(task, key) for key in _KEYS}
    return {key: value for key, value in record.items() if value or key not in _IF_STATED}


@dataclass(frozen=True, slots=True)
class _SeparateParts:
    """The parts of a task that its record holds under separate keys, or in another form."""

    derived: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    grid: dict[str, tuple[float, ...]] | None = None


def task_from_record(record: Mapping[str, Any]) -> Task:
    """Read a record that `task_to_record` wrote; raise PolicyError, which names the key, if it is damaged."""
    apart = checked(_SeparateParts, record, "damaged task")
    # In a run folder, a task also has its assumptions and the number of steps taken to load it.
    saved = {*_KEYS, "assumed", "steps_taken"} - {"grid"}
    task = checked(Task, {key: value for key, value in record.items() if key in saved}, "damaged task")
    for name, items in (("observations", task.observations + task.texts), ("actuators", task.actuators)):
        if not items:
            raise PolicyError(f"damaged task: `{name}`: list should have at least 1 item")
    texts_laid_out = [part.columns for part, _ in leaves(task.layout) if part is not None]
    room = range(1, columns_for(MOST_CHARACTERS, 4) + 1)
    if texts_laid_out != [t.columns for t in task.texts] or any(columns not in room for columns in texts_laid_out):
        raise PolicyError("damaged task: its texts do not fit its layout")
    if task.max_steps < 1:
        raise PolicyError("damaged task: `max_steps`: input should be greater than 0")
    choices = [actuator.is_choice for actuator in task.actuators]
    kinds = {"box": (False, False), "mixed": (True, False)}
    if (any(choices), all(choices)) != kinds.get(task.action_space, (True, True)):
        raise PolicyError(f"damaged task: its actuators do not fit the action space `{task.action_space}`")
    if task.action_layout is not None:
        check_layout(task.action_layout, len(task.actuators))
    return replace(
        task,
        observations=tuple(
            replace(o, derived=apart.derived.get(o.name, ""), seen=apart.seen.get(o.name, ""))
            for o in task.observations
        ),
        perturb=tuple(perturbation(one.name, one.low, one.high, one.spread) for one in task.perturb),
        untrusted="the saved task",
        grid=grid_from_record(apart.grid) if apart.grid else None,
    )


def grid_to_record(grid: Grid) -> dict[str, list[float]]:
    """Convert a grid to JSON values: the edges of each dimension, in order."""
    return {dimension.name: [float(edge) for edge in dimension.edges] for dimension in grid.dimensions}


def grid_from_record(record: Mapping[str, Sequence[float]]) -> Grid:
    """Read a record that `grid_to_record` wrote; raise PolicyError if it is not a grid."""
    try:
        return Grid(tuple(Dimension(name, tuple(edges)) for name, edges in record.items()))
    except UsageError as error:
        raise PolicyError(f"damaged grid: {error}") from None
