"""Limits on the text and values that rendering a template may make: counted, measured, and estimated in advance.

No value may be larger than `LARGEST`, so that no expression fills the memory. All values that a rendering makes and all
turns of its loops count towards `MOST`, which does not depend on the machine. A limit of `SECONDS` of processor time
catches the work that is not counted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from string import Formatter
from typing import Any

import jinja2

LARGEST = 2_000_000  # characters or items of one value, including items of items
MOST = 5_000_000  # characters, items and turns of loops of one rendering
SECONDS = 3.0  # processor time of one rendering
CALL = 50  # a call or a filter counts as this many turns of a loop
TEMPLATE = 500  # an included template counts as this many
LONGEST_NUMBER = 330  # most characters of a formatted float, without its decimals
WIDEST = 10_000  # most characters to which a format may pad
MOST_BITS = 65_536  # most bits of a whole number
_SINGLE = frozenset([float, bool, type(None)])  # values that count 1


class TooCostly(jinja2.TemplateRuntimeError):
    """A template that would run for ever or fill the memory."""


@dataclass
class _Allowance:
    """The rest of a rendering's allowance: items left to make, and the processor time at which it ends."""

    left: int
    until: float
    checks: int = 0


_allowance: ContextVar[_Allowance] = ContextVar("allowance of the rendering")


def rendering() -> bool:
    """Whether a template is being rendered, rather than read or compiled."""
    return _allowance.get(None) is not None


def spend(amount: int) -> None:
    """Count made characters or items, or turns of a loop, in the present rendering.

    Raises:
        TooCostly: the allowance is used up.
        LookupError: nothing is being rendered.
    """
    allowance = _allowance.get()
    allowance.left -= amount
    if allowance.left < 0:
        raise TooCostly(f"the template makes more than {MOST:,} characters, items and turns of loops; let it do less")
    allowance.checks += 1
    if allowance.checks % 64 == 0 and time.thread_time() > allowance.until:
        raise TooCostly(f"the template takes more than {SECONDS:g} seconds; let it do less")


@contextmanager
def limited() -> Iterator[None]:
    """Limit the templates rendered in this context; outside of it, the environment renders nothing."""
    token = _allowance.set(_Allowance(MOST, time.thread_time() + SECONDS))
    try:
        yield
    finally:
        _allowance.reset(token)


def size(value: Any) -> int:
    """Return the number of characters and items of a value, repeated ones included.

    Floats, and objects other than texts, whole numbers and collections, count 1.

    Raises TooCostly if there are more than LARGEST.
    """
    total, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        total += 1
        if type(item) in _SINGLE:
            continue
        if isinstance(item, str | range):
            total += len(item)
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, int):
            total += item.bit_length() // 4
        if total + len(waiting) > LARGEST:
            no_larger(total + len(waiting))
    return total


def no_larger(estimate: float) -> None:
    """Refuse a value that would be larger than `LARGEST`."""
    if estimate > LARGEST:
        raise TooCostly(f"the template makes a value of more than {LARGEST:,} characters or items; let it make less")


def made(value: Any) -> Any:
    """Count and return a value that a template has just made; an iterator becomes a list."""
    kind = type(value)
    if kind in _SINGLE:
        spend(1)
        return value
    if kind is str:
        no_larger(1 + len(value))
        spend(1 + len(value))
        return value
    if isinstance(value, Iterator):
        kept = []
        for item in value:
            spend(1)
            kept.append(item)
        value = kept
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise TooCostly("the template makes a whole number that is too large")
    spend(size(value))
    return value


def concatenated(parts: Iterable[Any]) -> str:
    """Join texts like `"".join`; stop as soon as the result is too large."""
    kept, total = [], 0
    for text in map(str, parts):
        total += len(text)
        no_larger(total)
        spend(1 + len(text))
        kept.append(text)
    return "".join(kept)


class Turns:
    """The items of a loop; each turn is counted."""

    def __init__(self, items: Any) -> None:
        spend(1)
        self._items = items if hasattr(items, "__len__") else list(items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            spend(1)
            yield item


# --- sizes estimated before a value is made --------------------------------------------------------------------------

# Filters and methods whose result may be as long as the product of the sizes of two arguments.
_MULTIPLYING = frozenset(["indent", "join", "replace", "round"])
# Filters and methods whose result grows by a number argument, but is not multiplied by it.
_PADDING = frozenset(["batch", "center", "ljust", "rjust", "slice", "wordwrap", "zfill"])


def check_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call of a filter, or of a method with its object first, whose result would be too large."""
    if name in ("lines", "table"):
        rows, names = args[0], kwargs.get("names", args[1] if len(args) > 1 else ())
        no_larger(len(rows) * len(names))
        no_larger(sum(size(row[name]) for row in rows for name in names if type(row[name]) is not float))
    elif name == "format":
        check_operation("%", str(args[0]), [*args[1:], kwargs])
    elif name == "sum" and not all(isinstance(start, int | float) for start in (*args[2:], kwargs.get("start", 0))):
        raise TooCostly("only numbers can be summed")
    elif name in _MULTIPLYING or name in _PADDING:
        values = [*args, *kwargs.values()]
        if name == "indent":  # each line grows
            values[0] = str(values[0]).split("\n")
        numbers = [abs(value) for value in values[1:] if isinstance(value, int)]
        sizes = [size(value) for value in values if not isinstance(value, int)]
        lengths = [len(value) for value in values if hasattr(value, "__len__")] if name in ("join", "indent") else sizes
        *_, second, first = sorted([1, 1, *lengths, *(numbers if name in _MULTIPLYING else ())])
        no_larger(sum(sizes) + sum(numbers) + first * second)


def check_operation(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose result would be too large."""
    whole = isinstance(left, int) and isinstance(right, int)
    match operator:
        case "*" if not whole:
            value, times = (right, left) if isinstance(left, int) else (left, right)
            no_larger(size(value) * (abs(times) if isinstance(times, int) else 1))
        case "**" if whole and left.bit_length() * abs(right) > MOST_BITS:
            raise TooCostly("the template makes a whole number that is too large")
        case "%" if isinstance(left, str):
            if re.search(r"%[^a-zA-Z%]*\*", left):
                raise TooCostly("a width of `*` in a format is not allowed here; write the number")
            _check_format(left, left, left.count("%"), right)


def check_format(text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a `text.format(*args, **kwargs)` that would be too long."""
    specifications = [specification or "" for _, _, specification, _ in Formatter().parse(text)]
    if any("{" in specification for specification in specifications):
        raise TooCostly("a format within a format is not allowed here; write the number")
    _check_format(text, " ".join(specifications), len(specifications), [*args, kwargs])


def _check_format(text: str, specifications: str, fields: int, values: Any) -> None:
    widths = [int(digits) if len(digits) < 10 else WIDEST + 1 for digits in re.findall(r"\d+", specifications)]
    if max(widths, default=0) > WIDEST:
        raise TooCostly(f"a width in a format is at most {WIDEST:,}")
    no_larger(len(text) + sum(widths) + fields * (LONGEST_NUMBER + size(values)))
