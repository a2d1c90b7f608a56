"""Expressions as text: parse and write arithmetic over named quantities.

Python's own parser reads the text. Its nodes are then converted to those of `policygen.quantities.tree`; only the kinds
on a whitelist are accepted. Python never evaluates the text, and its length and depth are checked first.
"""

from __future__ import annotations

import ast
import functools
import keyword
import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from policygen.errors import ExpressionError
from policygen.quantities.operations import (
    FUNCTION_NAMES,
    FUNCTIONS,
    HIGHEST_LEVEL,
    NEGATION_LEVEL,
    OPERATIONS,
    PHRASE,
    SYMBOLS,
    Operation,
)
from policygen.quantities.tree import NOTHING, Call, Contains, Name, Node, Number, Previous

MAX_CHARACTERS = 2_000
MAX_NODES = 400
MAX_DEPTH = 50

CONSTANTS = {"pi": math.pi}
_WIDEST = 1e29  # largest HIGH - LOW in `tune`; to the tuner, larger numbers mean "no limit"
_TUNE = ("START", "LOW", "HIGH")  # arguments of `tune`
_HOW_TUNE = "write three numbers, such as `tune(0, -0.2, 0.2)`"

# Unicode characters that people and models type instead of ASCII operators.
_SPELLINGS = str.maketrans(
    {"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "≤": "<=", "≥": ">=", "²": "^2", "³": "^3"}
)
_QUOTES = str.maketrans(dict.fromkeys("“”„", '"'))
# Python's keywords that have a meaning in expressions. All others may be names; a mark hides them from Python's parser.
WORDS = frozenset({"and", "or", "not", "if", "else", "in", "is", "True", "False", "None"})
_MARK = "\u029e"  # a letter that policy texts do not contain
_KEYWORD = re.compile(rf"\b({'|'.join(word for word in keyword.kwlist if word not in WORDS)})\b")
_LITERAL = re.compile(r"""("[^"\\]*"|'[^'\\]*')""")
_TOO_LARGE = f"the expression is too large; at most {MAX_NODES} terms, nested {MAX_DEPTH} deep: split it with `let`"
_GLUED = re.compile(r"(?<![\w.])(?:\d+\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?+[A-Za-z_]\w*")  # `2x`, also `0x1f`
NUMBER = re.compile(r"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
_HOW_CONTAINS = (
    'contains() takes the name of an observed text and a phrase in double quotes, such as `contains(text, "lamp")`: '
    "1 to 60 letters, digits, spaces and . , : ; ! ? ' ( ) / _ + -; upper and lower case are the same"
)


def parse_expression(text: str, names: Sequence[str], later: Sequence[str] = (), texts: Sequence[str] = ()) -> Node:
    """Parse an expression over the quantities `names`.

    Args:
        later: quantities that have no current value yet; only `prev(NAME)` may read them.
        texts: observed texts; only `contains(NAME, "PHRASE")` may read them.

    Raises:
        ExpressionError: the text is too long, too deeply nested or not arithmetic, or it has an unknown name.
    """
    _check_length_and_nesting(text)
    # Quoted phrases stay as they are.
    parts = _LITERAL.split(text.strip().translate(_QUOTES)) if texts else [text.strip()]
    parts[::2] = [part.translate(_SPELLINGS) for part in parts[::2]]
    unquoted = " ".join(parts[::2]) if len(parts) > 1 else parts[0]
    if not unquoted:
        raise ExpressionError("there is no expression; write for example `2*x + 0.5`")
    odd = next((c for c in unquoted if not (c.isascii() and (c.isprintable() or c in "\t "))), None)
    if odd is not None:
        raise ExpressionError(f"the character {odd!r} is not allowed; write names and operators in plain ASCII")
    if glued := _GLUED.search(unquoted):
        raise ExpressionError(f"`{_shortened(glued[0])}` is not a number; write a product with `*`, such as `2*x`")
    parts[::2] = [_KEYWORD.sub(rf"\1{_MARK}", part.replace("^", "**")) for part in parts[::2]]
    converter = _Converter(names, later, texts)
    try:
        tree = ast.parse("".join(parts), mode="eval").body
        for part in ast.walk(tree):
            if isinstance(part, ast.Name):
                part.id = part.id.removesuffix(_MARK)
        node = converter.convert(tree)
    except SyntaxError as error:
        raise ExpressionError(f"cannot read `{_shortened(text.strip(), 80)}` as arithmetic{_place(error)}") from None
    except (RecursionError, MemoryError, ValueError):
        raise ExpressionError(_TOO_LARGE) from None
    for unknown, known in ((converter.unknown, (*names, *texts)), (converter.unknown_in_prev, (*names, *later))):
        if unknown:
            raise ExpressionError(unknown_names(unknown, known))
    # A saved policy must parse again, so the text that `to_text` writes must stay within the limits, too.
    _check_size(node)
    _check_length_and_nesting(to_text(node))
    return node


def _check_length_and_nesting(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(
            f"the expression has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}: split it with `let`"
        )
    depth = deepest = 0
    for character in re.findall(r"[()\[\]{}]", text):
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        raise ExpressionError(f"parentheses are nested {deepest} deep; the limit is {MAX_DEPTH}")


def _check_size(root: Node) -> None:
    nodes = deepest = 0
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        nodes, deepest = nodes + 1, max(deepest, depth)
        if isinstance(node, Call):
            # The first argument of a sum or product is no level deeper, so that these may have many terms.
            first = depth + (OPERATIONS[node.function].groups != "left")
            waiting += [(argument, depth + 1 if i else first) for i, argument in enumerate(node.arguments)]
        elif isinstance(node, Previous):
            waiting.append((node.start, depth + 1))
    if nodes > MAX_NODES or deepest > MAX_DEPTH:
        raise ExpressionError(_TOO_LARGE)


def _place(error: SyntaxError) -> str:
    """Quote the text from where Python's parser stopped; empty if that was the end."""
    rest = (error.text or "")[max(0, (error.offset or 1) - 1) :].replace("**", "^").replace(_MARK, "").strip()
    return f" from `{_shortened(rest)}` on" if rest else ""


def _shortened(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


class _Converter:
    """A converter from Python's syntax tree to that of an expression; it refuses all that is not in the language."""

    def __init__(self, names: Sequence[str], later: Sequence[str], texts: Sequence[str]) -> None:
        self.names = names
        self.later = later
        self.texts = texts
        self.nodes = 0
        self.unknown: dict[str, None] = {}  # names that are no quantities; one message reports them all
        self.unknown_in_prev: dict[str, None] = {}  # the same in `prev(NAME)`

    def convert(self, tree: ast.expr) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES:  # nested chains of comparisons grow exponentially
            raise ExpressionError(_TOO_LARGE)
        match tree:
            case ast.Constant(value=literal):
                return _number(literal)
            case ast.Name(id=name):
                if name in self.names:
                    return Name(name)
                if name in CONSTANTS:
                    return Number(CONSTANTS[name])
                if name in self.texts:
                    remedy = f'write `contains({name}, "PHRASE")`, which is 1 or 0'
                    raise ExpressionError(f"`{name}` is a text, not a number; {remedy}")
                self.unknown[name] = None
                return Name(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.convert(operand)
                if not isinstance(inner, Number) or inner.limits is not None:
                    return Call("neg", (inner,))
                return Number(-inner.value)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.convert(operand)
            case ast.BinOp(op=ast.FloorDiv(), left=left, right=right):
                return Call("floor", (self._call(OPERATIONS["/"], (left, right)),))
            case ast.BinOp(op=op, left=left, right=right) if type(op) in SYMBOLS:
                return self._call(SYMBOLS[type(op)], (left, right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in SYMBOLS:
                return self._call(SYMBOLS[type(op)], (operand,))
            case ast.BoolOp(op=op, values=values):
                parts = map(self.convert, values)
                return functools.reduce(lambda a, b: Call(SYMBOLS[type(op)].name, (a, b)), parts)
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in SYMBOLS for op in ops):
                # `a < b < c` becomes `a < b and b < c`, in which b is converted twice.
                pairs = zip(ops, [left, *rights[:-1]], rights, strict=True)
                tests: list[Node] = [self._call(SYMBOLS[type(op)], (a, b)) for op, a, b in pairs]
                return functools.reduce(lambda a, b: Call("and", (a, b)), tests)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._call(OPERATIONS["where"], (test, body, orelse))
            # `prev(NAME, START)` is not a function: its first argument is a name.
            case ast.Call(func=ast.Name(id="prev"), args=arguments, keywords=[]):
                return self._previous(arguments)
            case ast.Call(func=ast.Name(id="next"), args=arguments, keywords=[]):
                return self._next(arguments)
            case ast.Call(func=ast.Name(id="tune"), args=arguments, keywords=keywords):
                return self._tuned([] if keywords else arguments)
            case ast.Call(func=ast.Name(id="contains"), args=arguments, keywords=[]) if self.texts:
                return self._contains(arguments)
            case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]):
                if function not in FUNCTIONS:
                    raise ExpressionError(unknown_name(function, FUNCTION_NAMES, what="function"))
                return self._call(FUNCTIONS[function], arguments)
        shown = _shortened(ast.unparse(tree).replace("**", "^").replace(_MARK, ""))
        if isinstance(tree, ast.Tuple) and all(isinstance(part, ast.Constant) for part in tree.elts):
            raise ExpressionError(f"`{shown}` is no number; write a decimal point, as in `0.5`")
        raise ExpressionError(
            f"`{shown}` is not arithmetic; allowed are numbers, names, + - * / ^, comparisons and the "
            f"functions {', '.join(FUNCTION_NAMES)}"
        )

    def _previous(self, arguments: Sequence[ast.expr]) -> Node:
        match arguments:
            case [ast.Name(id=name), *start] if len(start) <= 1:
                if name not in self.names and name not in self.later:
                    self.unknown_in_prev[name] = None
                return Previous(name, self.convert(start[0]) if start else NOTHING)
        raise ExpressionError(
            "prev() takes the name of one quantity and, optionally, its value before the first step, such as "
            "`prev(speed)` or `prev(speed, 1)`; to remember anything else, name it with `let` first"
        )

    def _tuned(self, arguments: Sequence[ast.expr]) -> Number:
        """Return START of `tune(START, LOW, HIGH)`, with its limits."""
        if len(arguments) != len(_TUNE):
            raise ExpressionError(f"tune() takes {', '.join(_TUNE)} in this order; {_HOW_TUNE}")
        found: list[float] = []
        for name, argument in zip(_TUNE, arguments, strict=True):
            number = self.convert(argument)
            if not isinstance(number, Number) or number.limits is not None:
                raise ExpressionError(f"{name} of tune() must be a plain number; {_HOW_TUNE}")
            found.append(number.value)
        start, low, high = found
        number = Number(start, (low, high))
        if not low <= start <= high or high - low > _WIDEST:
            problem = "START must lie between LOW and HIGH, which are at most 1e29 apart"
            raise ExpressionError(f"`{to_text(number)}`: {problem}; {_HOW_TUNE}")
        return number

    def _next(self, arguments: Sequence[ast.expr]) -> Name:
        """Return a value after the step; `names` has such values only for the reward of a plant."""
        known = [name[len("next(") : -1] for name in self.names if name.startswith("next(")]
        match arguments:
            case [ast.Name(id=name)] if name in known:
                return Name(next_of(name))
            case [ast.Name(id=name)] if known:
                raise ExpressionError(unknown_name(name, known, what="observation or feature"))
            case [ast.Name(id=name)]:
                name = _shortened(name)
                raise ExpressionError(
                    f"`next({name})` is allowed in `reward` only; write the right side of `next {name}` as a `let` and "
                    f"read that here (in `ends`, plain `{name}` is the value after the step)"
                )
        problem = "next() takes the name of one observation or feature"
        raise ExpressionError(f"{problem}; write for example `next(speed)`, in `reward`")

    def _contains(self, arguments: Sequence[ast.expr]) -> Node:
        match arguments:
            case [ast.Name(id=name), ast.Constant(value=str(phrase))] if PHRASE.fullmatch(phrase):
                if name in self.texts:
                    return Contains(name, phrase)
                raise ExpressionError(unknown_name(name, self.texts, what="text"))
        raise ExpressionError(_HOW_CONTAINS)

    def _call(self, operation: Operation, arguments: Sequence[ast.expr]) -> Node:
        fewest, most = operation.fewest, operation.most
        if not fewest <= len(arguments) <= most:
            expected = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise ExpressionError(f"{operation.name}() takes {expected} arguments, here it has {len(arguments)}")
        return Call(operation.name, tuple(map(self.convert, arguments)))


def _number(value: object) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError(f"`{_shortened(str(value))}` is not a number; write for example `0.5`")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ExpressionError("a number is too large; the largest is about 1e308")
    return Number(number)


def is_name(text: str) -> bool:
    """Whether `text` can name a quantity: up to 60 letters, digits and underscores, and not a reserved word."""
    return _NAME.fullmatch(text) is not None and text not in WORDS


def slug(text: object) -> str:
    """Convert `text` to a name for a quantity: lower case, at most 40 characters.

    If the result would not be a name (empty, digit first, reserved word), it gets the prefix `q_`.
    """
    name = re.sub(r"[^a-z0-9]+", "_", str(text).lower()).strip("_")[:40].strip("_")
    return name if is_name(name) else f"q_{name}"


def next_of(name: str) -> str:
    """Return the name of a quantity's value after the step."""
    return f"next({name})"


def unknown_name(name: str, known: Sequence[str], what: str = "name") -> str:
    """Return a one-sentence error message for a name not in `known`; it lists the most similar names first."""
    ordered = list(dict.fromkeys([*_nearest(name[:60], tuple(known), 3), *known]))
    more = f" and {len(ordered) - 24} more" if len(ordered) > 24 else ""
    return f"unknown {what} `{_shortened(name)}`; known: {', '.join(ordered[:24])}{more}"


def unknown_names(names: Iterable[str], known: Sequence[str]) -> str:
    """Return a one-sentence error message for unknown names, each with the most similar known name."""
    first, *others = names
    if not others:
        return unknown_name(first, known)
    near = ((name, _nearest(name[:60], tuple(known), 1)) for name in (first, *others[:7]))
    shown = [f"`{_shortened(name)}`" + (f" (did you mean {found[0]}?)" if found else "") for name, found in near]
    more = f" and {len(others) - 7} more" if len(others) > 7 else ""
    _, _, listed = unknown_name(first, known).partition("; ")
    return f"unknown names {', '.join(shown)}{more}; {listed}"


@functools.lru_cache(maxsize=256)  # a long reply repeats its unknown names
def _nearest(name: str, known: tuple[str, ...], most: int) -> list[str]:
    return get_close_matches(name, known, n=most, cutoff=0.5)


def format_number(value: float) -> str:
    """Return the shortest text that parses to the same double: `3`, `0.02`, `1e-07`."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def to_digits(value: float, digits: int) -> float:
    """Round a value to this many significant digits."""
    return float(f"{value:.{digits}g}")


def to_text(node: Node) -> str:
    """Write an expression in the policy language; `parse_expression` returns an equal tree."""
    return _text(node)[0]


def _text(node: Node) -> tuple[str, int]:
    """Return the text of a node and its precedence."""
    match node:
        case Number(math.pi, None):
            return "pi", HIGHEST_LEVEL
        case Number(value, None):
            return format_number(value), (HIGHEST_LEVEL if value >= 0 else NEGATION_LEVEL)
        case Number(value, (low, high)):
            return f"tune({', '.join(map(format_number, (value, low, high)))})", HIGHEST_LEVEL
        case Name(name):
            return name, HIGHEST_LEVEL
        case Previous(name, start):
            return f"prev({name}{'' if start == NOTHING else ', ' + to_text(start)})", HIGHEST_LEVEL
        case Contains(name, phrase):
            return f'contains({name}, "{phrase}")', HIGHEST_LEVEL
        case Call(function, (operand,)) if level := OPERATIONS[function].level:
            sign = function == "neg"
            return f"{'-' if sign else 'not '}{_wrapped(operand, level + sign)}", level
        case Call(function, (left, right)) if level := OPERATIONS[function].level:
            groups = OPERATIONS[function].groups
            left_level = level + (groups != "left")
            right_level = NEGATION_LEVEL if groups == "right" else level + 1  # `2^-1` needs no parentheses
            space = "" if function in "*/^" else " "
            return f"{_wrapped(left, left_level)}{space}{function}{space}{_wrapped(right, right_level)}", level
        case Call(function, arguments):
            return f"{function}({', '.join(map(to_text, arguments))})", HIGHEST_LEVEL
    raise AssertionError(node)


def _wrapped(node: Node, at_least: int) -> str:
    text, level = _text(node)
    return text if level >= at_least else f"({text})"
