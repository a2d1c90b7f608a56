"""Limits on the text and values that rendering a template may make: counted, measured, and estimated in advance.

No value is larger than `LARGEST`, so that neither one expression nor one that builds on another fills the memory. All
that a rendering makes, and every turn of a loop, counts towards `MOST`, which does not depend on the machine; `SECONDS`
of the processor end what counting misses.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from string import Formatter
from typing import Any

import jinja2

LARGEST = 2_000_000  # characters or items of one value, items of items included
MOST = 5_000_000  # characters, items and turns of loops of one rendering
SECONDS = 3.0  # of the processor, for one rendering
CALL = 50  # what a call or a filter counts, in turns of a loop
TEMPLATE = 500  # what another template counts
LONGEST_NUMBER = 330  # characters of a float that a format writes out, before its precision
WIDEST = 10_000  # of a number or text that a format pads
MOST_BITS = 65_536  # of a whole number
_SINGLE = frozenset([float, bool, type(None)])  # these count 1


class TooMuch(jinja2.TemplateRuntimeError):
    """A template that would run for ever or fill the memory."""


class _Allowance:
    """The rest of a rendering's allowance: items left to make, and the processor time at which it ends."""

    def __init__(self) -> None:
        self.left = MOST
        self.asked = 0
        self.until = time.thread_time() + SECONDS

    def spend(self, amount: int) -> None:
        """Count something made, or a turn of a loop."""
        self.left -= amount
        if self.left < 0:
            raise TooMuch(f"the template makes more than {MOST:,} characters, items and turns of loops; let it do less")
        self.asked += 1
        if self.asked % 64 == 0 and time.thread_time() > self.until:
            raise TooMuch(f"the template takes more than {SECONDS:g} seconds; let it do less")


_allowance: ContextVar[_Allowance] = ContextVar("allowance of the rendering")


def rendering() -> bool:
    """Whether a template is being rendered, rather than read or compiled."""
    return _allowance.get(None) is not None


def spend(amount: int) -> None:
    """Count something made, or turns of a loop, in the present rendering.

    Raises:
        TooMuch: that was too much.
        LookupError: nothing is being rendered.
    """
    _allowance.get().spend(amount)


@contextmanager
def limited() -> Iterator[None]:
    """Within it, what templates do is limited; outside of it the environment renders nothing."""
    token = _allowance.set(_Allowance())
    try:
        yield
    finally:
        _allowance.reset(token)


def size(value: Any) -> int:
    """Characters and items of a value, as often as it would be written out; views and floats count 1.

    Raises:
        TooMuch: there are more than LARGEST.
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
    """Refuse what would be larger than a value may be."""
    if estimate > LARGEST:
        raise TooMuch(f"the template makes a value of more than {LARGEST:,} characters or items; let it make less")


def made(value: Any) -> Any:
    """A value that a template has just made, counted; what is lazy is made now."""
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
        raise TooMuch("the template makes a whole number that is too large")
    spend(size(value))
    return value


def concatenated(parts: Iterable[Any]) -> str:
    """`"".join` that stops in time."""
    kept, total = [], 0
    for part in parts:
        text = str(part)
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


# --- what may be large, estimated before it is made ------------------------------------------------------------------


def _formatted(value: Any, *args: Any, **kwargs: Any) -> int:
    """The length of `value % args` at most; widths may be numbers of the text only."""
    text = str(value)
    if re.search(r"%[^a-zA-Z%]*\*", text):
        raise TooMuch("a width of `*` in a format is not allowed here; write the number")
    return _padded(text) + len(text) + text.count("%") * (LONGEST_NUMBER + size([*args, kwargs]))


def _padded(text: str) -> int:
    """The sum of the widths in a format.

    Raises:
        TooMuch: one is more than WIDEST.
    """
    widths = [int(digits) if len(digits) < 10 else WIDEST + 1 for digits in re.findall(r"\d+", text)]
    if widths and max(widths) > WIDEST:
        raise TooMuch(f"a width in a format is at most {WIDEST:,}")
    return sum(widths)


# Their parameters are those of the filters.
def _batched(value: Any, linecount: int, fill_with: Any = None) -> int:
    return len(value) + int(linecount)


def _sliced(value: Any, slices: int, fill_with: Any = None) -> int:
    return int(slices)


def _joined(value: Any, d: Any = "", attribute: Any = None) -> int:
    return size(list(value)) + len(value) * len(str(d))


def _replaced(s: Any, old: Any, new: Any, count: int | None = None) -> int:
    return len(str(s)) + str(s).count(str(old)) * len(str(new))


def _as_wide(value: Any, width: Any = 80, fill: Any = " ") -> int:
    return max(len(str(value)), int(width))


def _indented(s: Any, width: Any = 4, first: bool = False, blank: bool = False) -> int:
    return len(str(s)) + (str(s).count("\n") + 1) * (len(width) if isinstance(width, str) else abs(int(width)))


def _wrapped(
    s: Any, width: int = 79, break_long_words: bool = True, wrapstring: Any = None, break_on_hyphens: bool = True
) -> int:
    return len(str(s)) * (1 + len(str(wrapstring or " ")))


def _rounded(value: Any, precision: int = 0, method: str = "common") -> int:
    return 10_000 * abs(int(precision))  # 10 to the power of it is computed


def _listed(rows: Any, names: Sequence[Any], digits: int = 3) -> int:
    cells = len(rows) * len(names)
    no_larger(cells)
    return cells + sum(size(row[name]) for row in rows for name in names if type(row[name]) is not float)


def _summed(iterable: Any, attribute: Any = None, start: Any = 0) -> int:
    if not isinstance(start, int | float):
        raise TooMuch("only numbers can be summed")
    return 0


FILTER_ESTIMATES: dict[str, Callable[..., int]] = {
    "batch": _batched,
    "center": _as_wide,
    "format": _formatted,
    "indent": _indented,
    "join": _joined,
    "lines": _listed,
    "replace": _replaced,
    "round": _rounded,
    "slice": _sliced,
    "sum": _summed,
    "table": _listed,
    "wordwrap": _wrapped,
}
METHOD_ESTIMATES: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _as_wide),
    "join": lambda separator, items: _joined(list(items), separator),
    "replace": _replaced,
}


def check_operation(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose result would be too large."""
    whole = isinstance(left, int) and isinstance(right, int)
    match operator:
        case "+" if isinstance(left, str | list | tuple):
            no_larger(size(left) + size(right))
        case "*" if not whole:
            value, times = (right, left) if isinstance(left, int) else (left, right)
            no_larger(size(value) * (abs(times) if isinstance(times, int) else 1))
        case "**" if whole and left.bit_length() * abs(right) > MOST_BITS:
            raise TooMuch("the template makes a whole number that is too large")
        case "%" if isinstance(left, str):
            no_larger(_formatted(left, right))


def check_format(text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a `text.format(*args, **kwargs)` that would be too long."""
    specifications = [specification or "" for _, _, specification, _ in Formatter().parse(text)]
    if any("{" in specification for specification in specifications):
        raise TooMuch("a format within a format is not allowed here; write the number")
    longest = LONGEST_NUMBER + size([*args, kwargs])
    no_larger(sum(map(_padded, specifications)) + len(text) + len(specifications) * longest)
