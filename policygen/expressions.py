"""Safe arithmetic over named arrays: text -> syntax tree -> numpy function, and back to text.

An expression is parsed by Python's own parser, copied node by node through a whitelist into the small tree below, and
compiled to closures over numpy. Nothing is ever evaluated by the interpreter, and size and depth are bounded first.

Two compiled forms agree to rounding: `batch` over columns of a million rows, `scalar` over one row of plain floats.
Zero has no sign: -0.0 is 0 wherever the difference would show (1/x, x^-1, atan2).
Values that are not finite never leave an expression's feature: see `finite`.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import ExpressionError

Array = npt.NDArray[Any]
BatchFunction = Callable[[Sequence[Array]], Array]
ScalarFunction = Callable[[Sequence[float]], float]

MAX_CHARACTERS = 2_000
MAX_NODES = 400
MAX_DEPTH = 50
INFINITE = 1e6  # what an infinity becomes when a feature is used, with its sign

CONSTANTS = {"pi": math.pi}


@dataclass(frozen=True, slots=True)
class Number:
    """A literal constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """A quantity: an observation or an earlier feature."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function and its arguments; operators carry their symbol as name, `neg` is unary minus."""

    function: str
    arguments: tuple[Node, ...]


Node = Number | Name | Call


# --- text -> tree ----------------------------------------------------------------------------------------------------

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "^",
    ast.Mod: "mod",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
# What people and models type for operators that ASCII spells otherwise.
_SPELLINGS = str.maketrans(
    {"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "≤": "<=", "≥": ">=", "²": "^2", "³": "^3"}
)
# A long sum or conjunction groups to the left; it is bounded by its terms, not by its depth.
_GROUPS_LEFT = ("+", "-", "and", "or")
_TOO_LARGE = f"the expression is too large; at most {MAX_NODES} terms, nested {MAX_DEPTH} deep: split it with `let`"
# name -> (fewest, most) arguments
# `fixed(x)` is x: it keeps the numbers inside from a numerical search.
FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(
        ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "abs", "sign", "floor", "atan", "fixed"), (1, 1)
    ),
    **dict.fromkeys(("atan2", "mod"), (2, 2)),
    **dict.fromkeys(("clip", "where"), (3, 3)),
    **dict.fromkeys(("min", "max"), (2, 8)),
}
_GLUED = re.compile(r"(?<![\w.])(?:\d+\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?+[A-Za-z_]\w*")  # `2x`, also `0x1f`
_ALIASES = {"arctan2": "atan2", "arctan": "atan", "fabs": "abs", "pow": "^", "if": "where", "ln": "log"}


def parse_expression(text: str, names: Sequence[str]) -> Node:
    """Read `text` as an expression over the quantities `names`.

    Raises:
        ExpressionError: the text is too long, too deep, not arithmetic, or names something unknown.
    """
    _check_length(text)
    source = text.strip().translate(_SPELLINGS)
    if not source:
        raise ExpressionError("there is no expression; write for example `2*x + 0.5`")
    odd = next((c for c in source if not (c.isascii() and (c.isprintable() or c in "\t "))), None)
    if odd is not None:
        raise ExpressionError(f"the character {odd!r} is not allowed; write names and operators in plain ASCII")
    if glued := _GLUED.search(source):
        raise ExpressionError(f"`{_shown(glued[0])}` is not a number; write a product with `*`, such as `2*x`")
    _check_length(source)
    try:
        tree = ast.parse(source.replace("^", "**"), mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"cannot read `{_shown(text.strip(), 80)}` as arithmetic ({error.msg})") from None
    except (RecursionError, MemoryError, ValueError):
        raise ExpressionError("the expression is too large to read; split it with `let`") from None
    converter = _Converter(names)
    node = converter.convert(tree, 0)
    if converter.unknown:
        raise ExpressionError(unknown_names(converter.unknown, names))
    # A saved policy must read back: what the text stands for keeps the same bounds as the text.
    _check_size(node)
    _check_length(to_text(node))
    return node


def _check_length(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(
            f"the expression has {len(text):,} characters; the most is {MAX_CHARACTERS:,}: split it with `let`"
        )
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        raise ExpressionError(f"parentheses are nested {deepest} deep; the most is {MAX_DEPTH}")


def _check_size(root: Node) -> None:
    nodes = deepest = 0
    open_nodes = [(root, 0)]
    while open_nodes:
        node, depth = open_nodes.pop()
        nodes, deepest = nodes + 1, max(deepest, depth)
        if isinstance(node, Call):
            first = depth + (node.function not in _GROUPS_LEFT)
            open_nodes += [(argument, depth + 1 if i else first) for i, argument in enumerate(node.arguments)]
    if nodes > MAX_NODES or deepest > MAX_DEPTH:
        raise ExpressionError(_TOO_LARGE)


def _shown(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


class _Converter:
    """Copies Python's syntax tree into ours, refusing every node that is not in the language."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.nodes = 0
        self.unknown: list[str] = []  # all of them, to be reported at once

    def convert(self, tree: ast.expr, depth: int) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ExpressionError(_TOO_LARGE)
        match tree:
            case ast.Constant(value=literal):
                return self._number(literal)
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=literal)):
                return Number(-self._number(literal).value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.convert(operand, depth + 1)
                return Number(-inner.value) if isinstance(inner, Number) else Call("neg", (inner,))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.convert(operand, depth + 1)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Call("not", (self.convert(operand, depth + 1),))
            case ast.BinOp(op=ast.FloorDiv(), left=left, right=right):
                pair = (self.convert(left, depth + 1), self.convert(right, depth + 1))
                return Call("floor", (Call("/", pair),))
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
                symbol = _BINARY[type(op)]
                left_depth = depth + (symbol not in _GROUPS_LEFT)
                return Call(symbol, (self.convert(left, left_depth), self.convert(right, depth + 1)))
            case ast.BoolOp(op=op, values=values):
                word = "and" if isinstance(op, ast.And) else "or"
                result = self.convert(values[0], depth)
                for value in values[1:]:
                    result = Call(word, (result, self.convert(value, depth + 1)))
                return result
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARE for op in ops):
                # `a < b < c` says b twice, so b is counted twice: nested chains would grow without bound.
                pairs = [
                    Call(_COMPARE[type(op)], (self.convert(a, depth + 1), self.convert(b, depth + 1)))
                    for op, a, b in zip(ops, [left, *rights[:-1]], rights, strict=True)
                ]
                chained: Node = pairs[0]
                for pair_ in pairs[1:]:
                    chained = Call("and", (chained, pair_))
                return chained
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return Call("where", tuple(self.convert(part, depth + 1) for part in (test, body, orelse)))
            case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]):
                return self._call(function, arguments, depth)
        raise ExpressionError(
            f"`{type(tree).__name__}` is not arithmetic; allowed are numbers, names, + - * / ^, comparisons and the "
            f"functions {', '.join(sorted(FUNCTIONS))}"
        )

    def _number(self, value: object) -> Number:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ExpressionError(f"`{_shown(str(value))}` is not a number; write for example `0.5`")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ExpressionError("a number is too large; the largest is about 1e308")
        return Number(number)

    def _name(self, name: str) -> Node:
        if name in self.names:
            return Name(name)
        if name in CONSTANTS:
            return Number(CONSTANTS[name])
        if name not in self.unknown:
            self.unknown.append(name)
        return Name(name)

    def _call(self, function: str, arguments: list[ast.expr], depth: int) -> Node:
        function = _ALIASES.get(function, function)
        if function == "^" and len(arguments) == 2:
            return Call("^", tuple(self.convert(argument, depth + 1) for argument in arguments))
        if function not in FUNCTIONS:
            raise ExpressionError(unknown_name(function, sorted(FUNCTIONS), what="function"))
        fewest, most = FUNCTIONS[function]
        if not fewest <= len(arguments) <= most:
            expected = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise ExpressionError(f"{function}() takes {expected} arguments, here it has {len(arguments)}")
        return Call(function, tuple(self.convert(argument, depth + 1) for argument in arguments))


def unknown_name(name: str, known: Sequence[str], what: str = "name") -> str:
    """One sentence for a name that is not in `known`, the nearest known names first."""
    nearest = difflib.get_close_matches(name[:60], known, n=3, cutoff=0.5)
    others = [other for other in known if other not in nearest]
    listed = nearest + others[: 24 - len(nearest)]
    more = f" and {len(known) - len(listed)} more" if len(known) > len(listed) else ""
    return f"unknown {what} `{_shown(name)}`; known are {', '.join(listed)}{more}"


def unknown_names(names: Sequence[str], known: Sequence[str]) -> str:
    """One sentence for one or several unknown names, each with the nearest known one."""
    if len(names) == 1:
        return unknown_name(names[0], known)
    shown = []
    for name in names[:8]:
        near = difflib.get_close_matches(name[:60], known, n=1, cutoff=0.5)
        shown.append(f"`{_shown(name)}`" + (f" (did you mean {near[0]}?)" if near else ""))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    _, _, listed = unknown_name(names[0], known).partition("; ")
    return f"unknown names {', '.join(shown)}{more}; {listed}"


# --- tree -> numpy, tree -> plain floats -----------------------------------------------------------------------------


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


# --- tree -> text ----------------------------------------------------------------------------------------------------

_PRECEDENCE = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/"), 6),
    "neg": 7,
    "^": 8,
}
_ATOM = 9


def format_number(value: float) -> str:
    """The shortest text that reads back as the same double: `3`, `0.02`, `1e-07`."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def to_text(node: Node) -> str:
    """The expression in the policy language; `parse_expression` reads it back to an equal tree."""
    return _text(node)[0]


def _text(node: Node) -> tuple[str, int]:
    match node:
        case Number(value):
            return format_number(value), (_ATOM if value >= 0 else _PRECEDENCE["neg"])
        case Name(name):
            return name, _ATOM
        case Call("neg" | "not" as function, (operand,)):
            level = _PRECEDENCE[function]
            inner = _wrapped(operand, level + (function == "neg"))
            return (f"-{inner}" if function == "neg" else f"not {inner}"), level
        case Call(function, (left, right)) if function in _PRECEDENCE:
            level = _PRECEDENCE[function]
            # `^` groups to the right, comparisons do not group at all, the others group to the left.
            left_level = level + (function == "^" or level == 4)
            right_level = level + (function != "^")
            if function == "^":
                right_level = _PRECEDENCE["neg"]
            space = "" if function in "*/^" else " "
            return f"{_wrapped(left, left_level)}{space}{function}{space}{_wrapped(right, right_level)}", level
        case Call(function, arguments):
            return f"{function}({', '.join(to_text(argument) for argument in arguments)})", _ATOM
    raise AssertionError(node)


def _wrapped(node: Node, at_least: int) -> str:
    text, level = _text(node)
    return text if level >= at_least else f"({text})"


# --- what a linear policy and a numerical search ask of a tree -------------------------------------------------------


def names_in(node: Node) -> frozenset[str]:
    """The quantities an expression reads."""
    match node:
        case Name(name):
            return frozenset((name,))
        case Call(_, arguments):
            return frozenset().union(*(names_in(argument) for argument in arguments))
    return frozenset()


@cache
def linear_terms(node: Node) -> Mapping[Node | None, float]:
    """The expression as a sum of coefficient times term; the key None holds the constant.

    A term is a quantity, or a whole non-linear sub-expression that a linear policy lifts into a feature:
    `3*(lean - 0.02) - tanh(rate)` gives {lean: 3, None: -0.06, tanh(rate): -1}.
    """
    match node:
        case Number(value):
            return {None: value}
        case Call("neg", (operand,)):
            return _scaled(linear_terms(operand), -1.0)
        case Call("+", (left, right)):
            return _summed(linear_terms(left), linear_terms(right))
        case Call("-", (left, right)):
            return _summed(linear_terms(left), _scaled(linear_terms(right), -1.0))
        case Call("*", (left, right)):
            for one, other in ((left, right), (right, left)):
                terms = linear_terms(one)
                if not terms.keys() - {None}:
                    return _scaled(linear_terms(other), terms.get(None, 0.0))
        case Call("/", (left, right)):
            terms = linear_terms(right)
            if not terms.keys() - {None} and terms.get(None, 0.0) != 0.0:
                return _scaled(linear_terms(left), 1.0 / terms[None])
    return {node: 1.0}


def _scaled(terms: Mapping[Node | None, float], factor: float) -> dict[Node | None, float]:
    return {term: factor * coefficient for term, coefficient in terms.items()}


def _summed(left: Mapping[Node | None, float], right: Mapping[Node | None, float]) -> dict[Node | None, float]:
    total = dict(left)
    for term, coefficient in right.items():
        total[term] = total.get(term, 0.0) + coefficient
    return total


def constants(node: Node) -> tuple[float, ...]:
    """The numbers of an expression that a numerical search may change, from left to right.

    Exponents are structure, not size, and stay as they are, as does what stands in `fixed(...)`.
    """
    match node:
        case Number(value):
            return (value,)
        case Call("fixed", _):
            return ()
        case Call("^", (base, _)):
            return constants(base)
        case Call(_, arguments):
            return tuple(value for argument in arguments for value in constants(argument))
    return ()


def with_constants(node: Node, values: Iterator[float]) -> Node:
    """The expression with its `constants` replaced, taken from `values` in the same order."""
    match node:
        case Number():
            return Number(next(values))
        case Call("fixed", _):
            return node
        case Call("^" as function, (base, exponent)):
            return Call(function, (with_constants(base, values), exponent))
        case Call(function, arguments):
            return Call(function, tuple(with_constants(argument, values) for argument in arguments))
    return node
