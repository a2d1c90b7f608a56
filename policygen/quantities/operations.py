"""The operators and functions of expressions, one row each in a table for parsing, writing and computing.

The two implementations in a row agree up to rounding and follow IEEE 754: NaN outside the domain, infinity beyond the
range. Zero has no sign: -0.0 counts as 0 where the difference would show (1/x, x^-1, atan2).

Observed texts are stored as columns of numbers, each of which holds three bytes of UTF-8. So they are sent and saved
like other observations, exact even in single precision, and numpy evaluates `contains(NAME, "phrase")` for many rows in
one call.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Scalar = Callable[..., float]
BYTES = 3  # bytes per column: integers below 2**24 are exact in single precision
PHRASE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 .,:;!?'()/_+-]{0,58}[A-Za-z0-9.,:!?')+-])?")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator or a function."""

    name: str  # its symbol or word in syntax trees and, except for `neg`, in text
    fewest: int  # minimum and maximum number of arguments
    most: int
    batch: Callable[..., Any]  # implementation for float64 arrays that broadcast
    scalar: Scalar  # implementation for plain floats
    _: KW_ONLY
    level: int = 0  # precedence of an operator, 1 the lowest; 0 for a function, which is written with parentheses
    # Associativity of an operator: `a - b - c` groups from the left, `a^b^c` from the right, `a < b < c` not at all.
    groups: Literal["left", "right", "not"] = "not"
    syntax: type[ast.AST] | None = None  # node type of Python's parser, if the operation has a symbol
    aliases: tuple[str, ...] = ()  # other function names that people and models use


NEGATION_LEVEL, HIGHEST_LEVEL = 7, 9  # of `-x`, and of terms that never need parentheses


def _truth(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a test on arrays so that it returns 0.0 or 1.0."""
    return lambda *values: np.asarray(function(*values), dtype=np.float64)


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Extend a function of two arguments to any number of them."""
    return lambda *values: functools.reduce(function, values)


def _guarded(function: Callable[[float], float], above: float = math.nan) -> Scalar:
    """Wrap `function` to behave like numpy: NaN outside the domain, `above` on overflow."""

    def guarded(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.nan
        except OverflowError:
            return above

    return guarded


def _divide(a: float, b: float) -> float:
    if b != 0.0:
        return a / b
    return math.nan if a == 0.0 or a != a else math.copysign(math.inf, a)


def _array_power(a: Any, b: Any) -> Any:
    return np.power(np.add(a, 0.0), b)


def _power(a: float, b: float) -> float:
    try:
        return math.pow(a + 0.0, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return math.inf if a == 0.0 else math.nan


def _array_angle(y: Any, x: Any) -> Any:
    return np.arctan2(np.add(y, 0.0), np.add(x, 0.0))


def _log(x: float) -> float:
    if x > 0.0:
        return math.log(x)
    return -math.inf if x == 0.0 else math.nan


def _unless_nan(function: Callable[..., float]) -> Scalar:
    """Extend `min` or `max` so that NaN among its arguments gives NaN."""

    def extended(*values: float) -> float:
        for value in values:
            if value != value:
                return math.nan
        return function(values)

    return extended


_smallest, _largest = _unless_nan(min), _unless_nan(max)


def _clip(x: float, low: float, high: float) -> float:
    return x if low <= x <= high else _smallest(_largest(x, low), high)


def _test(name: str, syntax: type[ast.AST], batch: Any, scalar: Any, *, level: int = 4, **more: Any) -> Operation:
    return Operation(name, 2, 2, _truth(batch), lambda a, b: float(scalar(a, b)), level=level, syntax=syntax, **more)


ROWS = (
    _test("or", ast.Or, np.logical_or, lambda a, b: a != 0 or b != 0, level=1, groups="left"),
    _test("and", ast.And, np.logical_and, lambda a, b: a != 0 and b != 0, level=2, groups="left"),
    Operation("not", 1, 1, _truth(np.logical_not), lambda a: float(a == 0), level=3, syntax=ast.Not),
    _test("<", ast.Lt, np.less, operator.lt),
    _test("<=", ast.LtE, np.less_equal, operator.le),
    _test(">", ast.Gt, np.greater, operator.gt),
    _test(">=", ast.GtE, np.greater_equal, operator.ge),
    _test("==", ast.Eq, np.equal, operator.eq),
    _test("!=", ast.NotEq, np.not_equal, operator.ne),
    Operation("+", 2, 2, np.add, operator.add, level=5, groups="left", syntax=ast.Add),
    Operation("-", 2, 2, np.subtract, operator.sub, level=5, groups="left", syntax=ast.Sub),
    Operation("*", 2, 2, np.multiply, operator.mul, level=6, groups="left", syntax=ast.Mult),
    Operation("/", 2, 2, lambda a, b: np.divide(a, np.add(b, 0.0)), _divide, level=6, groups="left", syntax=ast.Div),
    Operation("neg", 1, 1, np.negative, operator.neg, level=NEGATION_LEVEL, syntax=ast.USub),
    Operation("^", 2, 2, _array_power, _power, level=8, groups="right", syntax=ast.Pow, aliases=("pow",)),
    Operation("mod", 2, 2, np.mod, lambda a, b: a % b if b != 0.0 and math.isfinite(a) else math.nan, syntax=ast.Mod),
    Operation("sin", 1, 1, np.sin, _guarded(math.sin)),
    Operation("cos", 1, 1, np.cos, _guarded(math.cos)),
    Operation("tan", 1, 1, np.tan, _guarded(math.tan)),
    Operation("tanh", 1, 1, np.tanh, math.tanh),
    Operation("exp", 1, 1, np.exp, _guarded(math.exp, above=math.inf)),
    Operation("log", 1, 1, np.log, _log, aliases=("ln",)),
    Operation("sqrt", 1, 1, np.sqrt, _guarded(math.sqrt)),
    Operation("abs", 1, 1, np.abs, abs, aliases=("fabs",)),
    Operation("sign", 1, 1, np.sign, lambda a: math.nan if a != a else float((a > 0) - (a < 0))),
    Operation("floor", 1, 1, np.floor, lambda a: float(math.floor(a)) if math.isfinite(a) else a),
    Operation("atan", 1, 1, np.arctan, math.atan, aliases=("arctan",)),
    Operation("atan2", 2, 2, _array_angle, lambda y, x: math.atan2(y + 0.0, x + 0.0), aliases=("arctan2",)),
    Operation("min", 2, 8, _fold(np.minimum), _smallest),
    Operation("max", 2, 8, _fold(np.maximum), _largest),
    Operation("clip", 3, 3, lambda x, low, high: np.minimum(np.maximum(x, low), high), _clip),
    Operation("where", 3, 3, np.where, lambda test, yes, no: yes if test != 0 else no),
    # Returns its argument; tuning leaves the numbers in it unchanged.
    Operation("fixed", 1, 1, lambda x: x, lambda x: x),
)

OPERATIONS = {row.name: row for row in ROWS}
# Operations written with parentheses: functions by name, and all operations by alias.
FUNCTIONS = {name: row for row in ROWS for name in ((row.name,) * (row.level == 0) + row.aliases)}
SYMBOLS = {row.syntax: row for row in ROWS if row.syntax is not None}
FUNCTION_NAMES = sorted(row.name for row in ROWS if row.level == 0)


# --- observed texts --------------------------------------------------------------------------------------------------


def column_of(name: str, index: int) -> str:
    """Return the name of a text's column: `text[0]`; expressions cannot contain it, so none reads the column."""
    return f"{name}[{index}]"


def columns_for(characters: int, bytes_each: int) -> int:
    """Return the number of columns for a text of this many characters, of at most `bytes_each` bytes each."""
    return -(-characters * bytes_each // BYTES)


def encoded(text: str, columns: int) -> npt.NDArray[np.float64]:
    """Encode a text as a row of `columns` numbers, padded with zeros.

    Raises:
        TypeError, ValueError: `text` is not a string; it has more bytes than the columns hold.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a text, but the observation holds a {type(text).__name__}")
    data = text.encode("utf-8", "replace")
    if len(data) > BYTES * columns:
        raise ValueError(f"a text has {len(data):,} bytes; the observation space has room for {BYTES * columns:,}")
    triples = np.frombuffer(data.ljust(BYTES * columns, b"\0"), np.uint8).reshape(columns, BYTES)
    return np.asarray(triples @ np.array([65536.0, 256.0, 1.0]), np.float64)


def decoded(row: npt.ArrayLike) -> str:
    """Return the text of a row written by `encoded`."""
    return _bytes(row).rstrip(b"\0").decode("utf-8", "replace")


def contains_batch(columns: Sequence[npt.NDArray[Any]], phrase: str) -> npt.NDArray[np.float64]:
    """Return whether each of n texts contains the phrase, as 1 or 0, ignoring case; the columns have shape (n,)."""
    table = np.ascontiguousarray(np.stack(columns, axis=1), dtype=">u4")  # (n, columns), the highest byte is 0
    data = np.ascontiguousarray(table.view(np.uint8).reshape(len(table), len(columns), 4)[:, :, 1:])
    texts = data.reshape(len(table), -1).view(f"S{BYTES * len(columns)}").reshape(len(table))
    return np.asarray(np.strings.find(np.strings.lower(texts), phrase.lower().encode()) >= 0, np.float64)


def contains_scalar(row: Sequence[float], phrase: str) -> float:
    """Apply `contains_batch` to one text, given as plain floats."""
    return float(phrase.lower().encode() in _bytes(row).lower())


def _bytes(row: npt.ArrayLike) -> bytes:
    with np.errstate(invalid="ignore"):  # a row with NaN is not a text and contains no phrase
        table = np.asarray(row).astype(">u4")
    return table.view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()
