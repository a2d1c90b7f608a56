"""Interval arithmetic for the expression language, rounded outward.

Bounds are single-precision numbers, and hold for results in single and in double precision.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from policygen.extensions.export.arithmetic import Arithmetic
from policygen.quantities.compiled import INFINITE
from policygen.quantities.operations import OPERATIONS
from policygen.quantities.tree import Call, Previous


@dataclass(frozen=True, slots=True)
class Interval:
    """All numbers from `low` to `high`, which may be infinite; with `nan` also NaN."""

    low: float
    high: float
    nan: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high or (self.nan and value != value)


EVERYTHING = Interval(-math.inf, math.inf, nan=True)
EMPTY = Interval(math.inf, -math.inf)  # no value has been remembered yet
QUARTER = math.pi / 2
_LARGE = 1e6  # angles beyond are too coarse in single precision to find the turns of a sine
_LIBRARY = 4  # units in the last place by which a function of a mathematical library may be wrong
_INEXACT = {"^", "sin", "cos", "tan", "tanh", "exp", "log", "atan", "atan2"}
_EXACT = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}  # with fractions
_RANGES = {"sin": (-1.0, 1.0), "cos": (-1.0, 1.0), "tanh": (-1.0, 1.0)}


def enclosing(values: Sequence[float], steps: int = 0) -> Interval:
    """Return the smallest interval with single-precision bounds around some values; NaN alone counts as 0 and NaN.

    Args:
        steps: single-precision numbers by which both bounds move outward. A bound of 0 stays, and none passes 0.
    """
    known = [value for value in values if value == value] or [0.0]
    nan = any(value != value for value in values)
    return Interval(_rounded(min(known), -math.inf, steps), _rounded(max(known), math.inf, steps), nan)


def _rounded(value: float, towards: float, steps: int) -> float:
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(value)
        moves = steps + (float(single) > value if towards < 0 else float(single) < value)
        for _ in range(moves if value else 0):
            single = np.nextafter(single, np.float32(towards))
    return float(single) if float(single) * value >= 0 else 0.0


def hull(*parts: Interval) -> Interval:
    """Return the smallest interval around several."""
    return Interval(min(x.low for x in parts), max(x.high for x in parts), any(x.nan for x in parts))


# A rule returns breakpoints of the arguments: between them, the ends and 0 the operation is monotone. If it is not, the
# rule returns the interval of the result. Operations without a rule have no breakpoints.
Rule = Callable[..., Sequence[float] | Interval]


def _powered(base: Interval, power: Interval) -> Sequence[float] | Interval:
    whole = power.low == power.high and power.low % 1 == 0
    steady = base.low >= 0 or (whole and (power.low >= 0 or 0.0 not in base))
    return () if steady else EVERYTHING


def _remainder(a: Interval, b: Interval) -> Sequence[float] | Interval:
    infinite = any(map(math.isinf, (a.low, a.high, b.low, b.high)))
    return EVERYTHING if infinite or 0.0 in b else enclosing([b.low, b.high, 0.0])


def _wave(x: Interval) -> Sequence[float] | Interval:
    if max(-x.low, x.high) > _LARGE:
        return Interval(-1.0, 1.0, nan=math.inf in (-x.low, x.high))
    first = math.floor(x.low / QUARTER)
    return [(first + k) * QUARTER for k in range(7)]  # more than a turn


RULES: dict[str, Rule] = {
    "/": lambda a, b: EVERYTHING if 0.0 in b else (),
    "^": _powered,
    "mod": _remainder,
    "sin": _wave,
    "cos": _wave,
    "tan": lambda x: () if x.low > -QUARTER and x.high < QUARTER else EVERYTHING,
    "atan2": lambda y, x: enclosing([-math.pi, math.pi], _LIBRARY) if 0.0 in y and x.low <= 0 else (),
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), lambda a, b: (a.low, a.high, b.low, b.high)),
}


def result(operation: str, *arguments: Interval) -> Interval:
    """Return an interval that holds every value of an operation on members of the intervals."""
    if len(arguments) > 2 and operation in ("min", "max"):
        return functools.reduce(functools.partial(result, operation), arguments)
    turns = RULES[operation](*arguments) if operation in RULES else ()
    if isinstance(turns, Interval):
        return Interval(turns.low, turns.high, turns.nan or any(x.nan for x in arguments))
    tried = [
        {x.low, x.high, *(t for t in (0.0, *turns) if t in x)} | ({math.nan} if x.nan else set()) for x in arguments
    ]
    values = []
    for some in itertools.product(*tried):
        value = OPERATIONS[operation].scalar(*some)
        values.append(value)
        if operation in _EXACT and value and all(map(math.isfinite, (value, *some))):
            exact = _EXACT[operation](*map(Fraction, some))
            values += [math.nextafter(value, math.inf if exact > value else -math.inf)] * (exact != value)
    found = enclosing(values, _LIBRARY if operation in _INEXACT else 0)
    least, most = _RANGES.get(operation, (-math.inf, math.inf))
    return Interval(max(found.low, least), min(found.high, most), found.nan)


class Intervals(Arithmetic[Interval]):
    """Interval arithmetic."""

    def number(self, value: float) -> Interval:
        """Return the interval around a constant in both precisions."""
        return enclosing([value])

    def applied(self, node: Call | Previous, arguments: Sequence[Interval]) -> Interval:
        """Return an interval that holds every result."""
        return hull(*arguments) if isinstance(node, Previous) else result(node.function, *arguments)

    def finite(self, value: Interval) -> Interval:
        """Return an interval of finite numbers: NaN is 0, an infinity a million with its sign."""
        parts = [value, *[Interval(0.0, 0.0)] * value.nan]
        parts += [Interval(INFINITE, INFINITE)] * (value.high == math.inf)
        parts += [Interval(-INFINITE, -INFINITE)] * (value.low == -math.inf)
        found = hull(*parts)
        return Interval(max(found.low, -sys.float_info.max), min(found.high, sys.float_info.max))
