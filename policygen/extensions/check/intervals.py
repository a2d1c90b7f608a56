"""Interval arithmetic for the expression language, rounded outward.

Bounds are single-precision numbers. They hold for results in single and in double precision.
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


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers from `low` to `high`, which may be infinite; with `nan`, NaN as well."""

    low: float
    high: float
    nan: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high or (self.nan and value != value)


EVERYTHING = Interval(-math.inf, math.inf, nan=True)
EMPTY = Interval(math.inf, -math.inf)  # no value has been remembered yet
QUARTER = math.pi / 2  # of a turn
_LARGE = 1e6  # in single precision, larger angles are too coarse to find the turning points of a sine
_LIBRARY = 4  # a function of a mathematical library may err by this many units in the last place
_INEXACT = {"^", "sin", "cos", "tan", "tanh", "exp", "log", "atan", "atan2"}
_EXACT = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}  # with fractions
_RANGES = {"sin": (-1.0, 1.0), "cos": (-1.0, 1.0), "tanh": (-1.0, 1.0)}


def enclosing(values: Sequence[float], steps: int = 0) -> Interval:
    """Return the smallest interval with single-precision bounds around some values; if all are NaN, around 0 and NaN.

    Args:
        steps: both bounds move outward by this many single-precision numbers. A bound of 0 stays, and none passes 0.
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


# A rule returns breakpoints: between neighbours among them, 0 and the ends of the arguments, the operation is monotone.
# `()` means that 0 and the ends are enough, as for an operation without a rule. A rule that knows no breakpoints of the
# operation returns the interval of its result instead.
Rule = Callable[..., Sequence[float] | Interval]


def _power_rule(base: Interval, power: Interval) -> Sequence[float] | Interval:
    whole = power.low == power.high and power.low % 1 == 0
    monotone = base.low >= 0 or (whole and (power.low >= 0 or 0.0 not in base))
    return () if monotone else EVERYTHING


def _mod_rule(a: Interval, b: Interval) -> Sequence[float] | Interval:
    infinite = any(map(math.isinf, (a.low, a.high, b.low, b.high)))
    return EVERYTHING if infinite or 0.0 in b else enclosing([b.low, b.high, 0.0])


def _wave_rule(x: Interval) -> Sequence[float] | Interval:
    if max(-x.low, x.high) > _LARGE:
        return Interval(-1.0, 1.0, nan=math.inf in (-x.low, x.high))
    first = math.floor(x.low / QUARTER)
    return [(first + k) * QUARTER for k in range(7)]  # more than a turn


RULES: dict[str, Rule] = {
    "prev": hull,
    "/": lambda a, b: EVERYTHING if 0.0 in b else (),
    "^": _power_rule,
    "mod": _mod_rule,
    "sin": _wave_rule,
    "cos": _wave_rule,
    "tan": lambda x: () if x.low > -QUARTER and x.high < QUARTER else EVERYTHING,
    "atan2": lambda y, x: enclosing([-math.pi, math.pi], _LIBRARY) if 0.0 in y and x.low <= 0 else (),
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), lambda a, b: (a.low, a.high, b.low, b.high)),
}


def result(operation: str, *arguments: Interval) -> Interval:
    """Return an interval that contains every value of an operation on members of the intervals."""
    if len(arguments) > 2 and operation in ("min", "max"):
        return functools.reduce(functools.partial(result, operation), arguments)
    breakpoints = RULES[operation](*arguments) if operation in RULES else ()
    if isinstance(breakpoints, Interval):
        return Interval(breakpoints.low, breakpoints.high, breakpoints.nan or any(x.nan for x in arguments))
    tried = [
        {x.low, x.high, *(b for b in (0.0, *breakpoints) if b in x)} | ({math.nan} if x.nan else set())
        for x in arguments
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


def finite(value: Interval) -> Interval:
    """Return the interval after NaN is replaced by 0, and an infinity by a million with its sign."""
    parts = [value, *[Interval(0.0, 0.0)] * value.nan]
    parts += [Interval(INFINITE, INFINITE)] * (value.high == math.inf)
    parts += [Interval(-INFINITE, -INFINITE)] * (value.low == -math.inf)
    found = hull(*parts)
    return Interval(max(found.low, -sys.float_info.max), min(found.high, sys.float_info.max))


INTERVALS = Arithmetic(lambda number: enclosing([number]), result, finite)
