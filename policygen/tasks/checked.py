"""Conversion of JSON values to dataclasses, checked against type hints; one message names every problem.

A program that acts with a saved policy should import little more than numpy; importing pydantic would double its
start-up time. msgspec costs about 15 ms, but it reports only the first problem, names neither the keys of mappings nor
the allowed literals, and allows no two dataclasses in a union.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from policygen.errors import PolicyError

T = TypeVar("T")
_PLAIN: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a valid string"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a valid integer"),
    float: ((int, float), "a valid number"),
    NoneType: ((NoneType,), "null"),
}
_LARGEST = 2**63  # integers beyond this are no size, step or index


def checked(kind: type[T], value: Any, what: str) -> T:
    """Convert `value` to the dataclass `kind`; unknown keys are ignored.

    Fields may be str, bool, int, float, None, literals, tuples, dictionaries with str keys, dataclasses, `Any`, and
    unions of these. A list becomes a tuple.

    Args:
        what: the beginning of the message, such as "damaged policy".

    Raises:
        PolicyError: `value` is not such a record; the message names every missing or wrong key.
    """
    problems: list[str] = []
    record = _read(kind, value, (), problems)
    if problems:
        raise PolicyError(f"{what}: {'; '.join(problems)}")
    return record  # type: ignore[no-any-return]


def _read(hint: Any, value: Any, where: tuple[str, ...], problems: list[str]) -> Any:
    """Convert a value to the type `hint`; if it does not fit, add a sentence with its place to `problems`."""

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
        if not isinstance(value, list | tuple):
            return refuse("input should be a valid list")
        hints = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(value) != len(hints):
            return refuse(f"list should have {len(hints)} items, not {len(value)}")
        parts = zip(hints, value, strict=True)
        return tuple(_read(part, item, (*where, str(i)), problems) for i, (part, item) in enumerate(parts))
    if not isinstance(value, dict):
        return refuse("input should be a valid dictionary")
    if origin is dict:
        return {key: _read(arguments[1], item, (*where, str(key)), problems) for key, item in value.items()}
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
