"""The syntax tree of an expression: its nodes, the quantities it reads, its constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Number:
    """A literal constant."""

    value: float
    limits: tuple[float, float] | None = None  # the range that tuning keeps to, as in `tune(START, LOW, HIGH)`


NOTHING = Number(0.0)  # the `start` of `prev(NAME)`


@dataclass(frozen=True, slots=True)
class Name:
    """A quantity: an observation or an earlier feature."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function with its arguments; operators are named by their symbols, unary minus is `neg`."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Previous:
    """The value of a quantity at the previous step; at the first step, the value of `start`."""

    name: str
    start: Node


@dataclass(frozen=True, slots=True)
class Contains:
    """A test of whether an observed text contains a phrase, ignoring case; its value is 1 or 0."""

    name: str
    phrase: str


Node = Number | Name | Call | Previous | Contains
Lets = tuple[tuple[str, Node], ...]  # features: the name and definition of each
PREFIX = "n_"  # starts the names of standardised quantities, which `builtin` defines


def previous_of(name: str) -> str:
    """Return the name of a quantity's value at the previous step; the value is NaN at the first step."""
    return f"prev({name})"


def nodes_of(root: Node) -> Iterator[Node]:
    """Yield the nodes of an expression in no particular order."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Call):
            waiting += node.arguments
        elif isinstance(node, Previous):
            waiting.append(node.start)


def names_in(node: Node) -> frozenset[str]:
    """Return the names of the quantities whose current values an expression reads."""
    return frozenset(part.name for part in nodes_of(node) if isinstance(part, Name))


def remembered_in(node: Node) -> frozenset[str]:
    """Return the names of the quantities whose previous values an expression reads."""
    return frozenset(part.name for part in nodes_of(node) if isinstance(part, Previous))


def read_by(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of the quantities whose current or previous values these expressions read."""
    return frozenset(part.name for node in nodes for part in nodes_of(node) if isinstance(part, Name | Previous))


def needed_by(wanted: Iterable[str], definitions: Mapping[str, Node], *, now: bool = False) -> set[str]:
    """Return the wanted names and those that their definitions depend on; with `now`, only through current values."""
    found, waiting = set[str](), list(wanted)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            if (node := definitions.get(name)) is not None:
                waiting += names_in(node) if now else read_by([node])
    return found


def with_numbers(
    node: Node, new: Callable[[Number, int], Node], kept: Collection[float] = (), free: bool = True, sign: int = 1
) -> Node:
    """Return the expression with each number that tuning may change replaced, from left to right.

    Tuning may change numbers in `tune(...)`, and all others except exponents, those in `fixed(...)`, and those in
    `kept`.

    Args:
        new: returns the replacement, given a number and the sign of its term: -1 for 0.5 in `3*x - 0.5*y`.
        free: whether plain numbers are replaced, too, not only those in `tune(...)`.
    """
    match node:
        case Number(value, None):
            return new(node, sign) if free and value not in kept else node
        case Number(_, (low, high)):
            return new(node, sign) if low < high else node
        case Previous(name, start):
            return Previous(name, with_numbers(start, new, kept, free)) if start != NOTHING else node
        case Call(function, (first, *others)):
            free = free and function != "fixed"
            own = {"neg": -sign, "*": sign, "/": sign}.get(function, 1)
            other = -1 if function == "-" else 1
            rest = (with_numbers(one, new, kept, free and function != "^", other) for one in others)
            return Call(function, (with_numbers(first, new, kept, free, own), *rest))
    return node


def _numbers(node: Node, kept: Collection[float]) -> list[tuple[Number, int]]:
    """Return the numbers that `with_numbers` replaces, each with the sign of its term."""
    found: list[tuple[Number, int]] = []

    def noted(number: Number, sign: int) -> Number:
        found.append((number, sign))
        return number

    with_numbers(node, noted, kept)
    return found


def constants(node: Node, kept: Collection[float] = ()) -> tuple[float, ...]:
    """Return the numbers of an expression that tuning may change, from left to right; see `with_numbers`."""
    return tuple(number.value for number, _ in _numbers(node, kept))


def limits(node: Node, kept: Collection[float] = ()) -> tuple[tuple[float, float], ...]:
    """Return the range (low, high) of each of the `constants`; without `tune(...)` it is infinite."""
    return tuple(number.limits or (-math.inf, math.inf) for number, _ in _numbers(node, kept))


def signed_constants(node: Node) -> tuple[float, ...]:
    """Return the `constants` with the signs of their terms: -0.5 in `3*x - 0.5*y`; those in `tune(...)` as written."""
    return tuple(number.value * (sign if number.limits is None else 1) for number, sign in _numbers(node, ()))


def with_constants(node: Node, values: Iterator[float], kept: Collection[float] = ()) -> Node:
    """Return the expression with its `constants` replaced by `values`, in order; each is clipped to its range."""

    def new(old: Number, _: int) -> Number:
        low, high = old.limits or (-math.inf, math.inf)
        return Number(min(max(next(values), low), high), old.limits)

    return with_numbers(node, new, kept)


def with_plain_signs(node: Node) -> Node:
    """Rewrite `- -0.5*x` as `+ 0.5*x` and `+ -0.5*x` as `- 0.5*x`; numbers in `tune(...)` keep their signs."""
    if not isinstance(node, Call) or node.function == "fixed":
        return node
    arguments = tuple(map(with_plain_signs, node.arguments))
    if node.function in ("+", "-") and (flipped := _without_minus(arguments[1])) is not None:
        return Call("-" if node.function == "+" else "+", (arguments[0], flipped))
    if node.function == "neg" and (flipped := _without_minus(arguments[0])) is not None:
        return flipped
    return Call(node.function, arguments)


def _without_minus(node: Node) -> Node | None:
    """Return the expression times -1 if its first factor is a negative number; else None."""
    first = node
    while isinstance(first, Call) and first.function in ("*", "/"):
        first = first.arguments[0]
    return negated(node) if isinstance(first, Number) and first.value < 0 else None


def negated(node: Node) -> Node | None:
    """Return the expression times -1 if its first factor is a plain number or has a minus sign; else None."""
    match node:
        case Number(value, None):
            return Number(-value)
        case Call("neg", (inner,)):
            return inner
        case Call("*" | "/" as function, (first, other)) if (flipped := negated(first)) is not None:
            return Call(function, (flipped, other))
    return None


def substitute(node: Node, values: Mapping[str, Node]) -> Node:
    """Return the expression with an expression substituted for the current value of each quantity in `values`."""
    match node:
        case Name(name):
            return values.get(name, node)
        case Call(function, arguments):
            return Call(function, tuple(substitute(argument, values) for argument in arguments))
        case Previous(name, start):
            return Previous(name, substitute(start, values))
    return node


def is_standardised(name: str, node: Node) -> bool:
    """Whether a feature is `n_NAME = (NAME - number)/number`, as `builtin` standardises a quantity."""
    match node:
        case Call("/", (Call("-" | "+", (Name(quantity), Number(_, None))), Number(_, None))):
            return name == PREFIX + quantity
    return False
