"""Programs as Python source: a function of one row of plain floats, and a function of numpy columns.

Each source has a quick and a careful form. The quick one computes straight on and adds all values that have to be
finite; if the sum is not, or Python's arithmetic raises, the careful form computes the row again step by step. Both
give the same values. The source consists of generated names, keywords and operators only: constants, phrases, edges and
tables are bound by name, so no text from outside can reach `exec`, and policies of one structure share compiled code.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.quantities.grid import Grid
from policygen.quantities.operations import OPERATIONS
from policygen.quantities.program import INFINITE, Lowering, Program, Step, finite_number
from policygen.quantities.tree import Node, names_in, needed_by
from policygen.quantities.words import contains_batch, contains_scalar
from policygen.quantities.writer import Kind, Writer

Array = npt.NDArray[Any]
RowFunction = Callable[..., Any]
ColumnFunction = Callable[[Sequence[Array] | Array], tuple[Any, ...]]

_MOST_ADDED = 40  # values added in one statement


def finite(values: Array) -> Array:
    """Replace NaN by 0 and infinities by +-1e6, so that every state has a defined action.

    If all values are finite, the usual case, the array itself is returned.
    """
    if np.isfinite(values).all():
        return values
    return np.nan_to_num(values, nan=0.0, posinf=INFINITE, neginf=-INFINITE)


class _PythonWriter(Writer):
    """The statements of the quick or the careful form of a program in Python."""

    leave: ClassVar[str]  # leaves the quick form if `total` is not finite

    def __init__(self, program: Program, inputs: Sequence[str], *, careful: bool) -> None:
        self.careful = careful
        self.bound: list[Any] = []  # values of the names b0, b1, ...
        self._checked: list[str] = []  # names of the values that have to be finite
        super().__init__(program, inputs)
        for start in range(0, len(self._checked), _MOST_ADDED):
            some = " + ".join(self._checked[start : start + _MOST_ADDED])
            self.lines.append(f"total = {some}" if start == 0 else f"total += {some}")
        if self._checked:
            self.lines.append(self.leave)

    def bind(self, value: Any) -> str:
        """Return the name of a value from outside the source."""
        self.bound.append(value)
        return f"b{len(self.bound) - 1}"

    literal = bind

    def define(self, name: str, text: str, kind: Kind) -> str:
        """Add an assignment."""
        self.lines.append(f"{name} = {text}")
        return name

    def as_condition(self, number: str) -> str:
        """Return a number as a condition."""
        return f"({number} != 0.0)"

    def spelled(self, position: int, step: Step, values: Sequence[str]) -> str:
        """Spell the operations that rows and columns share, or leave them to `other`."""
        a = values[0]
        if step.op == "finite":
            if self.careful:
                return f"finite({a})"
            self._checked.append(a if a.isidentifier() else self.define(f"v{position}", a, "number"))
            return self._checked[-1]
        if step.op in ("==", "!="):
            return f"({a} {step.op} {values[1]})"
        if step.op == "equals":
            return f"({a} == {self.bind(step.data)})"
        if step.op == "single":
            return f"single({a})"
        return self.other(step, values)

    @abstractmethod
    def other(self, step: Step, values: Sequence[str]) -> str:
        """Spell an operation that differs between rows and columns."""


class _RowWriter(_PythonWriter):
    infix: ClassVar[dict[str, str]] = {"and": "and", "or": "or", "not": "not"}
    repeated = frozenset(("min", "max", "clip", "sign", "start", "highest", "limited"))
    leave = "if total - total != 0.0: return careful(*given)"

    def as_number(self, condition: str) -> str:
        return f"(1.0 if {condition} else 0.0)"

    def choose(self, condition: str, yes: str, no: str) -> str:
        return f"({yes} if {condition} else {no})"

    def other(self, step: Step, values: Sequence[str]) -> str:
        a = values[0]
        match step.op:
            case "contains":
                return f"contains(({', '.join(values)},), {self.bind(step.data)})"
            case "start":
                return f"({a} if {a} == {a} else {values[1]})"
            case "part":
                return f"float({a}[{self.bind(step.data)}])"
            case "look_up":
                grid, entries = self.program.tables[step.data]
                bins = []
                for value, dimension, stride in zip(values, grid.dimensions, grid.strides, strict=True):
                    if dimension.edges:
                        found = f"bisect({self.bind(dimension.rounded_edges)}, {value})"
                        bins.append(found if stride == 1 else f"{found} * {self.bind(stride)}")
                listed = entries.tolist() if entries.ndim == 1 else list(entries)
                return f"{self.bind(listed)}[{' + '.join(bins) or '0'}]"
            case "highest" if len(values) == 2:
                return f"(0 if {a} >= {values[1]} else 1)"
            case "highest":
                scores = f"({', '.join(values)},)"
                return f"{scores}.index(max({scores}))"
            case "limited":
                low, high, integer = step.data
                low, high = self.bind(low), self.bind(high)
                inside = f"({a} if {low} <= {a} <= {high} else {low} if {a} < {low} else {high})"
                return f"float(round({inside}))" if integer else inside
        if self.careful:
            return f"{_NAMES[step.op]}({', '.join(values)})"
        match step.op:
            case "/":
                return f"({a} / {values[1]})"
            case "mod":
                return f"({a} % {values[1]})"
            case "^":
                return f"pow({a} + 0.0, {values[1]})"
            case "atan2":
                return f"atan2({a} + 0.0, {values[1]} + 0.0)"
            case "floor":
                return f"float(floor({a}))"
            case "sign":
                return f"(1.0 if {a} > 0.0 else -1.0 if {a} < 0.0 else 0.0 if {a} == 0.0 else {a})"
            case "clip" if self._in_order(step):
                return f"({a} if {values[1]} <= {a} <= {values[2]} else clip({', '.join(values)}))"
            case "min" | "max" if len(values) == 2:
                sign, b = "<" if step.op == "min" else ">", values[1]
                return f"({a} if {a} {sign}= {b} else {b} if {b} {sign} {a} else {a} + {b})"
            case "min" | "max" | "clip":
                return f"{_NAMES[step.op]}({', '.join(values)})"
        return f"{step.op}({a})"

    def _in_order(self, step: Step) -> bool:
        low, high = (self.program.steps[i] for i in step.arguments[1:])
        return low.op == high.op == "number" and low.data <= high.data


class _ColumnWriter(_PythonWriter):
    infix: ClassVar[dict[str, str]] = {"and": "&", "or": "|", "not": "~"}
    repeated = frozenset(("start",))
    leave = "if not isfinite(total).all(): return careful(x)"

    def as_number(self, condition: str) -> str:
        return f"({condition} * 1.0)"

    def choose(self, condition: str, yes: str, no: str) -> str:
        return f"where({condition}, {yes}, {no})"

    def other(self, step: Step, values: Sequence[str]) -> str:
        a = values[0]
        match step.op:
            case "contains":
                return f"(contains(({', '.join(values)},), {self.bind(step.data)}) != 0.0)"
            case "start":
                return f"where({a} == {a}, {a}, {values[1]})"
            case "look_up":
                grid, entries = self.program.tables[step.data]
                return f"looked_up({self.bind(grid)}, {self.bind(entries)}, len(x[0]), {', '.join(values)})"
            case "part":
                return f"{a}[:, {self.bind(step.data)}].astype(float64)"
            case "highest" if len(values) == 2:
                return f"greater({values[1]}, {a}).astype(int64)"
            case "highest":
                return f"highest(({', '.join(values)},))"
            case "limited":
                low, high, integer = step.data
                inside = f"clip({a}, {self.bind(low)}, {self.bind(high)})"
                return f"(rint({inside}) + 0.0)" if integer else inside
            case "/":
                return f"({a} / ({values[1]} + 0.0))"
        return f"{_NAMES[step.op]}({', '.join(values)})"


_NAMES = {name: f"o{position}" for position, name in enumerate(OPERATIONS)}
_ROW_NAMES = {
    **{_NAMES[name]: operation.scalar for name, operation in OPERATIONS.items()},
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "floor", "atan")},
    **{"pow": math.pow, "atan2": math.atan2, "abs": abs, "float": float, "round": round, "max": max},
    **{"bisect": bisect_right, "finite": finite_number, "contains": contains_scalar, "clip": OPERATIONS["clip"].scalar},
    "single": lambda value: float(np.float32(value)),
    "array": np.array,
    "float32": np.float32,
    "int64": np.int64,
}


def _highest(scores: Sequence[Array]) -> Array:
    return np.asarray(np.argmax(np.stack(np.broadcast_arrays(*scores)), axis=0))


def _contains(columns: Sequence[Array], phrase: str) -> Array:
    return contains_batch(np.broadcast_arrays(*columns), phrase)


def _looked_up(grid: Grid, entries: Array, n: int, *values: Any) -> Array:
    columns = (np.asarray(value) for value in values)
    return grid.look_up(
        [column if column.shape == (n,) else np.broadcast_to(column, (n,)) for column in columns], entries
    )


_COLUMN_NAMES = {
    **{_NAMES[name]: operation.batch for name, operation in OPERATIONS.items()},
    **{"where": np.where, "isfinite": np.isfinite, "clip": np.clip, "rint": np.rint, "int64": np.int64},
    **{"greater": np.greater, "float64": np.float64, "looked_up": _looked_up},
    "finite": lambda values: finite(np.asarray(values, np.float64)),
    "contains": _contains,
    "highest": _highest,
    "single": lambda values: np.asarray(values, np.float32).astype(np.float64),
}


@functools.lru_cache(maxsize=512)
def _code(source: str) -> CodeType:
    return compile(source, "<program>", "exec")


def _function(body: list[str], arguments: str, bound: Sequence[Any], names: dict[str, Any]) -> Any:
    """Return the function with these statements, in which b0, b1, ... and, last, `careful` are the bound values."""
    outer = ", ".join([*(f"b{i}" for i in range(len(bound) - 1)), "careful"])
    lines = [f"def made({outer}):", f"    def function({arguments}):", *(f"        {line}" for line in body)]
    space = dict(names)
    exec(_code("\n".join([*lines, "    return function"])), space)
    return space["made"](*bound)


def row_function(
    program: Program, widths: Sequence[int], finish: Callable[[list[str]], str] | None = None
) -> RowFunction:
    """Return a function of one row of plain floats, given as one sequence for each of `widths`.

    It returns the results of the program as a tuple, or what the expression that `finish` returns for their texts is;
    this may use `array`, `float32` and `int64`. It raises ValueError or TypeError for rows of other lengths.
    """
    inputs = [f"q{i}" for i in range(sum(widths))]
    arguments = [f"x{i}" for i in range(len(widths))]
    unpacked, start = [], 0
    for argument, width in zip(arguments, widths, strict=True):
        some = inputs[start : start + width]
        unpacked.append(f"[{', '.join(some)}] = {argument}")
        start += width

    def form(*, careful: bool) -> Any:
        writer = _RowWriter(program, inputs, careful=careful)
        results = list(map(writer.number, program.results))
        returned = f"return {finish(results) if finish is not None else _tuple(results)}"
        lines = [*writer.lines, returned]
        if careful:
            body = [*unpacked, *lines]
        else:
            body = [*unpacked, "try:", *(f"    {line}" for line in lines)]
            body += ["except (ArithmeticError, ValueError):", f"    return careful({', '.join(arguments)})"]
            body = [line.replace("careful(*given)", f"careful({', '.join(arguments)})") for line in body]
        leave = None if careful else _when_needed(lambda: form(careful=True))
        return _function(body, ", ".join(arguments), [*writer.bound, leave], _ROW_NAMES)

    function: RowFunction = form(careful=False)
    return function


def column_function(program: Program) -> ColumnFunction:
    """Return a function of one float64 column of shape (n,) per input that returns the results; some may be numbers.

    Call it with numpy's warnings off (`np.errstate(all="ignore")`).
    """
    inputs = [f"x[{i}]" for i in range(len(program.inputs))]

    def form(*, careful: bool) -> Any:
        writer = _ColumnWriter(program, inputs, careful=careful)
        results = _tuple(list(map(writer.number, program.results)))  # this may add statements
        leave = None if careful else _when_needed(lambda: form(careful=True))
        return _function([*writer.lines, f"return {results}"], "x", [*writer.bound, leave], _COLUMN_NAMES)

    function: ColumnFunction = form(careful=False)
    return function


def compiled(
    nodes: Sequence[Node], names: Sequence[str], definitions: Mapping[str, Node] = MappingProxyType({})
) -> ColumnFunction:
    """Return a function of one float64 array per name that returns the values of some expressions over them.

    The arrays may have any shapes that broadcast. `prev(NAME)` reads the one named `slot_of(NAME)`.

    Args:
        definitions: further names that the expressions may read, each defined over those before it.
    """
    lowering = Lowering((), names)
    needed = needed_by(set().union(*map(names_in, nodes)), definitions, now=True)
    for name, node in definitions.items():
        if name in needed:
            lowering.named[name] = lowering.lower(node)
    return column_function(lowering.program(list(map(lowering.lower, nodes))))


def _tuple(texts: list[str]) -> str:
    return f"({' '.join(f'{text},' for text in texts)})"


def _when_needed(make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function that is made at its first call."""
    made: list[Callable[..., Any]] = []

    def function(*arguments: Any) -> Any:
        if not made:
            made.append(make())
        return made[0](*arguments)

    return function
