"""Code generation: programs as Python functions of one row of floats, or of numpy columns.

Each function has a quick and a careful form. The quick form computes without checks and adds up all values that must be
finite; if the sum is not finite, or Python's arithmetic raises, the careful form computes the row again and checks each
value. Both give the same results. The source contains only generated names, keywords and operators. Constants, phrases,
edges and tables are bound by name, so no text from outside reaches `exec`, and policies of one structure share compiled
code.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.quantities.grid import Grid
from policygen.quantities.operations import OPERATIONS, contains_batch, contains_scalar
from policygen.quantities.program import COMMON, INFINITE, Kind, Lowering, Program, Step, Writer, finite_number
from policygen.quantities.tree import Node, names_in, needed_by

Array = npt.NDArray[Any]
RowFunction = Callable[..., Any]
ColumnFunction = Callable[[Sequence[Array] | Array], tuple[Any, ...]]

_MOST_ADDED = 40  # most values added in one statement


def finite(values: Array) -> Array:
    """Replace NaN by 0 and infinities by +-1e6, so that every state has a defined action.

    If all values are finite, which is usual, the array itself is returned.
    """
    if np.isfinite(values).all():
        return values
    return np.nan_to_num(values, nan=0.0, posinf=INFINITE, neginf=-INFINITE)


class _PythonWriter(Writer):
    """A generator of the quick or the careful form of a program in Python."""

    leave: ClassVar[str]  # leaves the quick form if `total` is not finite

    def __init__(self, program: Program, inputs: Sequence[str], *, careful: bool) -> None:
        self.careful = careful
        self.bound: list[Any] = []  # values of the names b0, b1, ...
        self._covered = _covered(program)
        self._checked: list[str] = []  # names of the values that must be finite
        super().__init__(program, inputs)
        self.results = list(map(self.number, program.results))
        for start in range(0, len(self._checked), _MOST_ADDED):
            some = " + ".join(self._checked[start : start + _MOST_ADDED])
            self.lines.append(f"total = {some}" if start == 0 else f"total += {some}")
        if self._checked:
            self.lines.append(self.leave)

    def bind(self, value: Any) -> str:
        """Return a name for a value that must not stand in the source."""
        self.bound.append(value)
        return f"b{len(self.bound) - 1}"

    def literal(self, value: float) -> str:
        """Bind a constant."""
        return self.bind(float(value))

    def define(self, name: str, text: str, kind: Kind) -> str:
        """Add an assignment."""
        self.lines.append(f"{name} = {text}")
        return name

    def operation_text(self, position: int, step: Step, values: Sequence[str]) -> str:
        """Return the text of an operation; some have data or differ between the two forms."""
        a = values[0]
        match step.op:
            case "finite" if not self.careful:
                if position in self._covered:
                    return a
                self._checked.append(a if a.isidentifier() else self.define(f"v{position}", a, "number"))
                return self._checked[-1]
            case "contains":
                return self.call("contains", ", ".join(values), self.bind(step.data))
            case "equals" | "part":
                return self.call(step.op, a, self.bind(step.data))
            case "highest" if len(values) > 2:
                return self.call("highest of many", ", ".join(values))
            case "limited":
                low, high, integer = step.data
                inside = self.call("limited", a, self.bind(float(low)), self.bind(float(high)))
                return self.call("rint", inside) if integer else inside
            case "look_up":
                return self.look_up(values, *self.program.table)
        if self.is_plain(step):
            return self.call(step.op, *values)
        return f"{_NAMES[step.op]}({', '.join(values)})"

    def is_plain(self, step: Step) -> bool:
        """Whether an operation is written with a template, not as a call of its function in `OPERATIONS`."""
        return step.op in self.templates

    @abstractmethod
    def look_up(self, values: Sequence[str], grid: Grid, entries: Array) -> str:
        """Return the text of the look-up in a table."""


# How many leading arguments make the result not finite (or Python raise) if one of them is not finite; None: all.
_PROPAGATES = {
    **dict.fromkeys(("+", "-", "*", "neg", "abs", "sqrt", "sin", "cos", "tan", "floor", "single", "finite")),
    **dict.fromkeys(("/", "mod"), 1),
}


def _covered(program: Program) -> frozenset[int]:
    """Return the steps whose values must be finite if the arguments of later `finite` steps are."""
    covered: set[int] = set()
    for position, step in reversed(list(enumerate(program.steps))):
        if step.op == "finite" or (step.op in _PROPAGATES and position in covered):
            covered.update(step.arguments[: _PROPAGATES[step.op]])
    return frozenset(covered)


_IN_BOTH_FORMS = COMMON.keys() | {"where", "start", "finite", "single", "highest"}  # the same in both forms of a row
_ROW = {
    **COMMON,
    **{name: f"{name}({{0}})" for name in ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "abs", "atan")},
    **{"number": "(1.0 if {0} else 0.0)", "where": "({1} if {0} else {2})", "start": "({0} if {0} == {0} else {1})"},
    **{"finite": "finite({0})", "single": "single({0})", "equals": "({0} == {1})", "part": "float({0}[{1}])"},
    **{"contains": "contains(({0},), {1})", "highest": "(0 if {0} >= {1} else 1)"},
    "highest of many": "({0},).index(max(({0},)))",
    **dict.fromkeys(("limited", "clip"), "({1} if {0} < {1} else {2} if {0} > {2} else {0})"),
    "rint": "float(round({0}))",
    **{"/": "({0} / {1})", "mod": "({0} % {1})", "^": "pow({0} + 0.0, {1})", "atan2": "atan2({0} + 0.0, {1} + 0.0)"},
    "floor": "float(floor({0}))",
    "sign": "(1.0 if {0} > 0.0 else -1.0 if {0} < 0.0 else 0.0 if {0} == 0.0 else {0})",
    "min": "({0} if {0} <= {1} else {1} if {1} < {0} else {0} + {1})",
    "max": "({0} if {0} >= {1} else {1} if {1} > {0} else {0} + {1})",
}


class _RowWriter(_PythonWriter):
    templates = _ROW
    repeated = frozenset(("min", "max", "clip", "sign", "start", "highest", "limited"))
    leave = "if total - total != 0.0: raise ArithmeticError"

    def is_plain(self, step: Step) -> bool:
        if self.careful:
            return step.op in _IN_BOTH_FORMS
        if step.op == "clip":
            low, high = (self.program.steps[i] for i in step.arguments[1:])
            return low.op == high.op == "number" and bool(low.data <= high.data)
        return step.op not in ("min", "max") or len(step.arguments) == 2

    def look_up(self, values: Sequence[str], grid: Grid, entries: Array) -> str:
        bins = []
        for value, dimension, stride in zip(values, grid.dimensions, grid.strides, strict=True):
            if dimension.edges:
                found = f"bisect({self.bind(dimension.rounded_edges)}, {value})"
                bins.append(found if stride == 1 else f"{found} * {self.bind(stride)}")
        listed = entries.tolist() if entries.ndim == 1 else list(entries)
        return f"{self.bind(listed)}[{' + '.join(bins) or '0'}]"


class _ColumnWriter(_PythonWriter):
    templates: ClassVar[Mapping[str, str]] = {
        **COMMON,
        **{"and": "({0} & {1})", "or": "({0} | {1})", "not": "(~{0})", "number": "as_real({0})"},
        **{"where": "where({0}, {1}, {2})", "start": "where({0} == {0}, {0}, {1})", "/": "({0} / ({1} + 0.0))"},
        **{"finite": "finite({0})", "single": "single({0})", "equals": "({0} == {1})"},
        **{"contains": "(contains(({0},), {1}) != 0.0)", "part": "{0}[:, {1}].astype(real)"},
        **{"highest": "greater({1}, {0}).astype(int64)", "highest of many": "highest(({0},))"},
        **{"limited": "clip({0}, {1}, {2})", "rint": "(rint({0}) + 0.0)"},
    }
    repeated = frozenset(("start",))
    leave = "if not isfinite(vdot(total, total)): return careful()(x)"  # for few rows three times as fast as `all`

    def look_up(self, values: Sequence[str], grid: Grid, entries: Array) -> str:
        return f"looked_up({self.bind(grid)}, {self.bind(entries)}, len(x[0]), {', '.join(values)})"


_NAMES = {name: f"o{position}" for position, name in enumerate(OPERATIONS)}
_ROW_NAMES = {
    **{_NAMES[name]: operation.scalar for name, operation in OPERATIONS.items()},
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "floor", "atan")},
    **{"pow": math.pow, "atan2": math.atan2, "abs": abs, "float": float, "round": round, "max": max},
    **{"bisect": bisect_right, "finite": finite_number, "contains": contains_scalar},
    **{"array": np.array, "float32": np.float32, "int64": np.int64, "single": lambda value: float(np.float32(value))},
}


def _highest(scores: Sequence[Array]) -> Array:
    best, chosen = scores[0], np.zeros((), np.int64)
    for position, score in enumerate(scores[1:], 1):
        chosen = np.maximum(chosen, (score > best) * np.int64(position))
        best = np.maximum(best, score) if position < len(scores) - 1 else best
    return np.asarray(chosen)


def _contains(columns: Sequence[Array], phrase: str) -> Array:
    return contains_batch(np.broadcast_arrays(*columns), phrase)


def _looked_up(grid: Grid, entries: Array, n: int, *values: Any) -> Array:
    columns = (np.asarray(value) for value in values)
    return grid.look_up(
        [column if column.shape == (n,) else np.broadcast_to(column, (n,)) for column in columns], entries
    )


_COLUMN_NAMES = {
    **{_NAMES[name]: operation.batch for name, operation in OPERATIONS.items()},
    **{"where": np.where, "vdot": np.vdot, "isfinite": math.isfinite, "clip": np.clip, "rint": np.rint},
    **{"greater": np.greater, "int64": np.int64, "real": np.float64},
    **{"looked_up": _looked_up, "contains": _contains, "highest": _highest},
    "as_real": lambda values: np.asarray(values, np.float64),
    "finite": lambda values: finite(np.asarray(values, np.float64)),
    "single": lambda values: np.asarray(values, np.float32).astype(np.float64),
}


@functools.lru_cache(maxsize=512)
def _code(source: str) -> CodeType:
    return compile(source, "<program>", "exec")


def _function(body: list[str], arguments: str, bound: Sequence[Any], names: dict[str, Any]) -> Any:
    """Return a function with this body, in which b0, b1, ... and, for the last value, `careful` are bound."""
    outer = ", ".join([*(f"b{i}" for i in range(len(bound) - 1)), "careful"])
    lines = [f"def made({outer}):", f"    def function({arguments}):", *(f"        {line}" for line in body)]
    space = dict(names)
    exec(_code("\n".join([*lines, "    return function"])), space)
    return space["made"](*bound)


def row_function(
    program: Program,
    widths: Sequence[int],
    finish: Callable[[list[str]], list[str]] | None = None,
    *,
    careful: bool = False,
) -> RowFunction:
    """Return a function of one row of plain floats, given as one sequence for each of `widths`.

    It returns the results of the program as a tuple, or ends with the statements that `finish` makes from the texts of
    the results; these may use `array`, `float32`, `int64` and the arguments `x0`, `x1`, ... For rows of other lengths
    it raises ValueError or TypeError.
    """
    inputs = [f"q{i}" for i in range(sum(widths))]
    arguments = ", ".join(f"x{i}" for i in range(len(widths)))
    waiting = iter(inputs)
    body = [f"[{', '.join(itertools.islice(waiting, width))}] = x{i}" for i, width in enumerate(widths)]
    writer = _RowWriter(program, inputs, careful=careful)
    lines = [*writer.lines, *(finish(writer.results) if finish is not None else [f"return {_tuple(writer.results)}"])]
    if careful:
        body += lines
    else:
        body += ["try:", *(f"    {line}" for line in lines)]
        body += ["except (ArithmeticError, ValueError):", f"    return careful()({arguments})"]
    leave = functools.cache(lambda: row_function(program, widths, finish, careful=True))
    function: RowFunction = _function(body, arguments, [*writer.bound, leave], _ROW_NAMES)
    return function


def column_function(program: Program, *, careful: bool = False) -> ColumnFunction:
    """Return a function from one column of shape (n,) per input to the results, of which some may be numbers.

    Call it with numpy's warnings off (`np.errstate(all="ignore")`).
    """
    inputs = [f"x[{i}]" for i in range(len(program.inputs))]
    writer = _ColumnWriter(program, inputs, careful=careful)
    leave = functools.cache(lambda: column_function(program, careful=True))
    body = [*writer.lines, f"return {_tuple(writer.results)}"]
    function: ColumnFunction = _function(body, "x", [*writer.bound, leave], _COLUMN_NAMES)
    return function


def compiled(
    nodes: Sequence[Node], names: Sequence[str], definitions: Mapping[str, Node] = MappingProxyType({})
) -> ColumnFunction:
    """Return a function from one float64 array per name to the values of these expressions.

    The arrays may have any shapes that broadcast. `prev(NAME)` reads the array named `previous_of(NAME)`.

    Args:
        definitions: more names that the expressions may read, each defined in terms of those before it.
    """
    lowering = Lowering((), names)
    needed = needed_by(set().union(*map(names_in, nodes)), definitions, now=True)
    for name, node in definitions.items():
        if name in needed:
            lowering.named[name] = lowering.lower(node)
    return column_function(lowering.program(list(map(lowering.lower, nodes))))


def _tuple(texts: list[str]) -> str:
    return f"({' '.join(f'{text},' for text in texts)})"
