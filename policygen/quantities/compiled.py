"""Compile expressions to functions over numpy columns, or over one row of plain floats.

Both forms agree to rounding. `finite` replaces values of a feature that are not finite.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from operator import is_not, itemgetter, mul
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.quantities.operations import OPERATIONS
from policygen.quantities.tree import Call, Contains, Name, Node, Number, Previous, names_in
from policygen.quantities.words import column_of, contains_batch, contains_scalar

Array = npt.NDArray[Any]
BatchFunction = Callable[[Sequence[Array]], Array]
ScalarFunction = Callable[[Sequence[float]], float]
LONG_SUM = 8  # terms from which a sum is computed as one product of two arrays
MOST_FACTORS = 50  # the factors of longer products stay in their order: such products nest too deeply
INFINITE = 1e6  # replaces an infinite value of a feature, with its sign


def slot_of(name: str) -> str:
    """Return the name of a quantity's value one step earlier; the value is NaN at the first step."""
    return f"prev({name})"


def compile_batch(node: Node, names: Sequence[str]) -> BatchFunction:
    """Compile to a function of float64 columns, one per name and each of shape (n,), that returns a float64 array.

    The result broadcasts to shape (n,): an expression without names gives a scalar array. `prev(NAME)` reads the column
    named `slot_of(NAME)`.
    """
    return _compiled(node, tuple(names), batch=True)


def compile_scalar(node: Node, names: Sequence[str]) -> ScalarFunction:
    """Compile to a function of one row of plain floats; it is far faster than a batch of one row."""
    return _compiled(node, tuple(names), batch=False)


def compile_together(
    nodes: Sequence[Node], names: Sequence[str], definitions: Mapping[str, Node] = MappingProxyType({})
) -> Callable[..., list[Array]]:
    """Compile several expressions to one function of columns, which computes each common part once.

    The function returns one result per expression. Its columns are those of `compile_batch`, but may have any shapes
    that broadcast. If none has two dimensions, it is faster with their length as its second argument.

    Names `#...` stand for numbers that are fitted. They become the last factors of products: `#1*x*y^2` and `#2*x*y^2`
    then share `x*y*y`, and a long sum of such products takes a few operations on arrays that hold all its terms.

    Args:
        definitions: further names that the expressions may read, each defined over those before it.
    """
    places: dict[Node, int] = {Name(name): index for index, name in enumerate(names)}
    steps: list[tuple[Callable[..., Any], tuple[int, ...], bool]] = []

    def place_of(node: Node) -> int:
        node = _numbers_last(node)
        if node not in places:
            is_long = len(terms := _weighted_terms(node)) >= LONG_SUM
            function, parts = _weighted_sum(terms) if is_long else _shared_step(node)
            arguments = tuple(map(place_of, parts))
            places[node] = len(names) + len(steps)
            steps.append((function, arguments, is_long))
        return places[node]

    needed = set().union(*map(names_in, nodes)) - set(names)
    for name, node in reversed(list(definitions.items())):
        needed |= names_in(node) if name in needed else set()
    for name, node in definitions.items():
        if name in needed:
            places[Name(name)] = place_of(node)
    wanted = [place_of(node) for node in nodes]

    def computed(columns: Sequence[Array], n: int | None = None) -> list[Array]:
        values = list(columns)
        if n is None:
            arrays = [column for column in values if isinstance(column, np.ndarray)]
            n = None if any(array.ndim > 1 for array in arrays) else max((array.size for array in arrays), default=1)
        for function, arguments, is_long in steps:
            some = [values[i] for i in arguments]
            values.append(function(some, n) if is_long else function(*some))
        return [values[i] for i in wanted]

    return computed


def _numbers_last(node: Node) -> Node:
    """Return a product with fitted numbers last and powers of quantities as products; other expressions unchanged."""
    factors = _factors(node)
    if len(factors) > MOST_FACTORS:
        return node
    return functools.reduce(lambda left, right: Call("*", (left, right)), sorted(factors, key=_is_fitted))


def _factors(node: Node) -> list[Node]:
    match node:
        case Call("*", (left, right)):
            return _factors(left) + _factors(right)
        case Call("^", (Name() as base, Number(2.0 | 3.0 as exponent))):
            return [base] * int(exponent)
    return [node]


def _is_fitted(node: Node) -> bool:
    return isinstance(node, Name) and node.name.startswith("#")


def _weighted_terms(node: Node) -> list[tuple[int, Node, Node]]:
    """Split a sum into terms (sign, expression, weight); the weight is the term's fitted number, or 1 without one."""
    match node:
        case Call("+", (left, right)):
            return [*_weighted_terms(left), *_weighted_terms(right)]
        case Call("-", (left, right)):
            return [*_weighted_terms(left), *((-sign, term, weight) for sign, term, weight in _weighted_terms(right))]
    match _numbers_last(node):
        case Call("*", (term, Name() as weight)) if _is_fitted(weight):
            return [(1, term, weight)]
    return [(1, node, Number(1.0))]


def _weighted_sum(terms: Sequence[tuple[int, Node, Node]]) -> tuple[Callable[..., Any], Sequence[Node]]:
    """Return a function that computes a long sum, and the nodes whose values it takes: all factors, then the weights.

    Its second argument is the length of the columns, None if some have two dimensions. Columns of equal length are
    multiplied and summed for all terms together, with far fewer calls than term by term. The weights do not change
    during an episode, so they are stacked once.
    """
    signs = np.array([sign for sign, _, _ in terms], np.float64)
    products = [some if len(some := _factors(term)) <= MOST_FACTORS else [term] for _, term, _ in terms]
    factors = list(dict.fromkeys(factor for some in products for factor in some))
    places = [[factors.index(factor) for factor in some] for some in products]
    count = len(factors)
    # Row `count` of the columns holds ones; it fills up short products.
    rows = np.array(list(itertools.zip_longest(*places, fillvalue=count)))
    cached: list[Any] = [None, None]  # the weights of the last call; the same times the signs, shape (terms, n)

    def computed(values: Sequence[Any], n: int | None) -> Any:
        weights = values[count:]
        if n is None:
            multiplied = (functools.reduce(mul, [values[i] for i in some]) for some in places)
            return sum(s * term * weight for s, term, weight in zip(signs.tolist(), multiplied, weights, strict=True))
        columns = np.ones((count + 1, n))
        for row, value in zip(columns, values[:count], strict=False):
            row[:] = value
        stacked = columns[rows[0]]
        for some in rows[1:]:
            stacked *= columns[some]
        if cached[0] is None or cached[1].shape[1] != n or any(map(is_not, cached[0], weights)):
            stacked_weights = np.empty((len(signs), n))
            for row, value in zip(stacked_weights, weights, strict=True):
                row[:] = value
            cached[:] = weights, stacked_weights * signs[:, None]
        return np.einsum("kn,kn->n", stacked, cached[1])

    return computed, [*factors, *(weight for _, _, weight in terms)]


def _shared_step(node: Node) -> tuple[Callable[..., Any], Sequence[Node]]:
    """Return the function that computes a node from its parts, and the parts."""
    match node:
        case Number(value):
            constant = np.asarray(value, np.float64)
            return (lambda: constant), ()
        case Previous(name, start):
            return (lambda before, first: np.where(np.isnan(before), first, before)), (Name(slot_of(name)), start)
        case Call("^", (base, Number(2.0))):
            return (lambda value: value * value), (base,)
        case Call("^", (base, Number(3.0))):
            return (lambda value: value * value * value), (base,)
        case Call(function, arguments):
            return OPERATIONS[function].batch, arguments
    raise AssertionError(node)


def _compiled(node: Node, names: tuple[str, ...], *, batch: bool) -> Callable[[Sequence[Any]], Any]:
    """Compile to a function of one value per name: a column or a plain float."""
    match node:
        case Number(value):
            constant = np.asarray(value, np.float64) if batch else float(value)
            return lambda values: constant
        case Name(name):
            return itemgetter(names.index(name))
        case Previous(name, start):
            index, first = names.index(slot_of(name)), _compiled(start, names, batch=batch)

            def previous_of_columns(columns: Sequence[Array]) -> Array:
                unknown = np.isnan(before := columns[index])
                return np.where(unknown, first(columns), before) if unknown.any() else before

            def previous_of_row(row: Sequence[Any]) -> Any:
                before = row[index]
                return before if before == before else first(row)

            return previous_of_columns if batch else previous_of_row
        case Contains(name, phrase):
            found, begin = contains_batch if batch else contains_scalar, names.index(column_of(name, 0))
            own = {column_of(name, i) for i in range(len(names))}
            where = slice(begin, begin + len(own.intersection(names)))  # the columns of a text are side by side
            return lambda values: found(values[where], phrase)
        case Call("fixed", (inner,)):
            return _compiled(inner, names, batch=batch)
        case Call(function, arguments):
            operation = OPERATIONS[function].batch if batch else OPERATIONS[function].scalar
            parts = [_compiled(argument, names, batch=batch) for argument in arguments]
            if len(parts) == 1:
                only = parts[0]
                return lambda values: operation(only(values))
            if len(parts) == 2:
                left, right = parts
                return lambda values: operation(left(values), right(values))
            return lambda values: operation(*[part(values) for part in parts])
    raise AssertionError(node)


def finite(values: Array) -> Array:
    """Replace NaN by 0 and infinities by +-1e6, so that every state has a defined action.

    If all values are finite, the usual case, the array itself is returned.
    """
    if np.isfinite(values).all():
        return values
    return np.nan_to_num(values, nan=0.0, posinf=INFINITE, neginf=-INFINITE)


def finite_scalar(value: float) -> float:
    """Apply `finite` to one plain float."""
    if value - value == 0.0:  # false for NaN and infinities
        return value
    return 0.0 if value != value else math.copysign(INFINITE, value)
