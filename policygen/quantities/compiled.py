"""Expressions compiled: tree -> a function over numpy columns, or over one row of plain floats.

Both forms agree to rounding. Zero has no sign: -0.0 is 0 wherever the difference would show (1/x, x^-1, atan2).
Values that are not finite never leave a feature: see `finite`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.quantities.tree import Call, Name, Node, Number

Array = npt.NDArray[Any]
BatchFunction = Callable[[Sequence[Array]], Array]
ScalarFunction = Callable[[Sequence[float]], float]
INFINITE = 1e6  # what an infinity becomes when a feature is used, with its sign


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def folded(first: Any, *rest: Any) -> Any:
        for value in rest:
            first = function(first, value)
        return first

    return folded


def _as_float(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: np.asarray(function(*values), dtype=np.float64)


_BATCH: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": lambda a, b: np.divide(a, np.add(b, 0.0)),
    "^": lambda a, b: np.power(np.add(a, 0.0), b),
    "mod": np.mod,
    "neg": np.negative,
    "<": _as_float(np.less),
    "<=": _as_float(np.less_equal),
    ">": _as_float(np.greater),
    ">=": _as_float(np.greater_equal),
    "==": _as_float(np.equal),
    "!=": _as_float(np.not_equal),
    "and": _as_float(np.logical_and),
    "or": _as_float(np.logical_or),
    "not": _as_float(np.logical_not),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "atan": np.arctan,
    "atan2": lambda y, x: np.arctan2(np.add(y, 0.0), np.add(x, 0.0)),
    "min": _fold(np.minimum),
    "max": _fold(np.maximum),
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "where": lambda test, yes, no: np.where(np.asarray(test) != 0, yes, no),
}


def compile_batch(node: Node, names: Sequence[str]) -> BatchFunction:
    """A function of a sequence of float64 columns, one per name and each of shape (n,), to a float64 array.

    The result broadcasts against (n,): an expression without names gives a scalar array.
    """
    match node:
        case Number(value):
            constant: Array = np.asarray(value, np.float64)
            return lambda columns: constant
        case Name(name):
            index = list(names).index(name)
            return lambda columns: columns[index]
        case Call("fixed", (inner,)):
            return compile_batch(inner, names)
        case Call(function, arguments):
            operation = _BATCH[function]
            parts = [compile_batch(argument, names) for argument in arguments]
            if len(parts) == 1:
                only = parts[0]
                return lambda columns: operation(only(columns))
            if len(parts) == 2:
                left, right = parts
                return lambda columns: operation(left(columns), right(columns))
            return lambda columns: operation(*[part(columns) for part in parts])
    raise AssertionError(node)


def _divide(a: float, b: float) -> float:
    if b != 0.0:
        return a / b
    return math.nan if a == 0.0 or a != a else math.copysign(math.inf, a)


def _mod(a: float, b: float) -> float:
    return a % b if b != 0.0 and math.isfinite(a) else math.nan


def _power(a: float, b: float) -> float:
    try:
        return math.pow(a + 0.0, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return math.inf if a == 0.0 else math.nan


def _guard(function: Callable[[float], float], overflow: float = math.nan) -> Callable[[float], float]:
    """`function` with numpy's manners: NaN outside the domain, `overflow` above the range."""

    def guarded(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.nan
        except OverflowError:
            return overflow

    return guarded


def _log(x: float) -> float:
    if x > 0.0:
        return math.log(x)
    return -math.inf if x == 0.0 else math.nan


def _scalar_min(*values: float) -> float:
    return math.nan if any(value != value for value in values) else min(values)


def _scalar_max(*values: float) -> float:
    return math.nan if any(value != value for value in values) else max(values)


_SCALAR: dict[str, Callable[..., float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "^": _power,
    "mod": _mod,
    "neg": lambda a: -a,
    "<": lambda a, b: float(a < b),
    "<=": lambda a, b: float(a <= b),
    ">": lambda a, b: float(a > b),
    ">=": lambda a, b: float(a >= b),
    "==": lambda a, b: float(a == b),
    "!=": lambda a, b: float(a != b),
    "and": lambda a, b: float(a != 0 and b != 0),
    "or": lambda a, b: float(a != 0 or b != 0),
    "not": lambda a: float(a == 0),
    "sin": _guard(math.sin),
    "cos": _guard(math.cos),
    "tan": _guard(math.tan),
    "tanh": math.tanh,
    "exp": _guard(math.exp, overflow=math.inf),
    "log": _log,
    "sqrt": _guard(math.sqrt),
    "abs": abs,
    "sign": lambda a: math.nan if a != a else float((a > 0) - (a < 0)),
    "floor": lambda a: float(math.floor(a)) if math.isfinite(a) else a,
    "atan": math.atan,
    "atan2": lambda y, x: math.atan2(y + 0.0, x + 0.0),
    "min": _scalar_min,
    "max": _scalar_max,
    "clip": lambda x, low, high: _scalar_min(_scalar_max(x, low), high),
    "where": lambda test, yes, no: yes if test != 0 else no,
}


def compile_scalar(node: Node, names: Sequence[str]) -> ScalarFunction:
    """The same expression as `compile_batch`, over one row of plain floats: far faster than a one-row batch."""
    match node:
        case Number(value):
            return lambda row: value
        case Name(name):
            index = list(names).index(name)
            return lambda row: row[index]
        case Call("fixed", (inner,)):
            return compile_scalar(inner, names)
        case Call(function, arguments):
            operation = _SCALAR[function]
            parts = [compile_scalar(argument, names) for argument in arguments]
            if len(parts) == 1:
                only = parts[0]
                return lambda row: operation(only(row))
            if len(parts) == 2:
                left, right = parts
                return lambda row: operation(left(row), right(row))
            return lambda row: operation(*[part(row) for part in parts])
    raise AssertionError(node)


def finite(values: Array) -> Array:
    """`values` with NaN as 0 and infinities as +-1e6, so that every state has a defined action."""
    return np.nan_to_num(values, nan=0.0, posinf=INFINITE, neginf=-INFINITE)


def finite_scalar(value: float) -> float:
    """`finite` for one plain float."""
    if value - value == 0.0:  # false for NaN and infinities
        return value
    return 0.0 if value != value else math.copysign(INFINITE, value)
