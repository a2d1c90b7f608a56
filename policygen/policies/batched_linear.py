"""Linear policies that differ in their constants alone, deciding side by side: what a numerical search plays.

A policy asked about few rows spends its time between numpy's calls. Here one call serves all policies: the constants in
which they differ are columns, as observations are. Every row gets the action that its own policy gives it, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.policies.features import Columns
from policygen.policies.linear import LinearPolicy
from policygen.quantities.compiled import compile_batch, finite
from policygen.quantities.tree import Call, Name, Node, Number, negated

Array = npt.NDArray[np.float64]


class Unlike(Exception):
    """The policies differ in more than constants."""


class BatchedLinear:
    """Decides for several linear policies at once, each with `each` episodes of its own.

    Episodes 0 to `each` - 1 are the first policy's, the next `each` the second's, and so on.

    Raises:
        Unlike: the policies differ in more than constants, or there is something else among them.
    """

    def __init__(self, policies: Sequence[Any], each: int) -> None:
        # One that takes up episodes as somebody else remembers something of them.
        if not all(type(policy) is LinearPolicy and policy.begin(1) is policy for policy in policies):
            raise Unlike
        self._first: LinearPolicy = policies[0]
        self._each = each
        self._rows: npt.NDArray[np.integer[Any]] | None = None
        values: list[tuple[float, ...]] = []
        needed = {name for name, _ in self._first.reader.needed}
        if any({name for name, _ in policy.reader.needed} != needed for policy in policies):
            raise Unlike
        features = [
            (names[0], _lifted(list(map(_sums, nodes)), values) if names[0] in needed else None)
            for names, nodes in _in_turn([policy.reader.features for policy in policies])
        ]
        terms = [
            _lifted(list(map(_sums, nodes)), values) for nodes in _same_length([policy.terms for policy in policies])
        ]
        names = [*self._first.task.columns, *(f"#{i}" for i in range(len(values)))]
        self._features = []
        for name, node in features:
            self._features.append(None if node is None else compile_batch(node, names))
            names.append(name)
        self._terms = [compile_batch(term, names) for term in terms]
        self._constants = np.array(values).reshape(len(values), len(policies))
        self._weights = np.stack([policy.weights for policy in policies], axis=1)  # (terms, policies, outputs)
        self._bias = np.stack([policy.bias for policy in policies])

    def decide(self, observations: Columns, rows: npt.NDArray[np.integer[Any]], /) -> npt.NDArray[Any]:
        """Actions for observations of shape (k, d) of the episodes `rows`."""
        if rows is not self._rows:  # each row's constants, until other rows are asked about
            self._rows, owner = rows, np.asarray(rows) // self._each
            self._own = self._constants[:, owner], self._weights[:, owner], self._bias[owner]
        constants, weights, bias = self._own
        n = len(observations)
        columns = [*np.asarray(observations).T.astype(np.float64, order="C"), *constants]
        with np.errstate(all="ignore"):
            for function in self._features:
                value = np.zeros(1) if function is None else finite(np.asarray(function(columns)))
                columns.append(value if function is None else np.ascontiguousarray(np.broadcast_to(value, (n,))))
            terms = [np.broadcast_to(np.asarray(function(columns)), (n,)) for function in self._terms]
            result = _weighed(terms, weights, bias)
            # A term that is not finite spoils its row whatever its weight: then, and only then, it shows.
            if not np.isfinite(result).all():
                result = finite(_weighed(list(map(finite, terms)), weights, bias))
        return self._first.chosen(result)


def _weighed(terms: Sequence[Array], weights: Array, bias: Array) -> Array:
    """The outputs, shape (n, outputs), added up in the order in which a single policy does it."""
    result = bias.copy()
    for term, weight in zip(terms, weights, strict=True):
        result += term[:, None] * weight
    return result


def _same_length(several: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    if len({len(one) for one in several}) > 1:
        raise Unlike
    return list(zip(*several, strict=True))


def _in_turn(several: Sequence[Sequence[tuple[str, Node]]]) -> list[tuple[tuple[str, ...], tuple[Node, ...]]]:
    """The names and nodes of each definition in turn.

    Raises:
        Unlike: they do not define the same names.
    """
    pairs = [tuple(zip(*definitions, strict=True)) for definitions in _same_length(several)]
    if any(len(set(names)) > 1 for names, _ in pairs):
        raise Unlike
    return pairs  # type: ignore[return-value]


def _sums(node: Node) -> Node:
    """The expression with `a - 2*b` as `a + -2*b`, the same to the bit: a tuned constant may change its sign."""
    if not isinstance(node, Call):
        return node
    arguments = tuple(map(_sums, node.arguments))
    if node.function == "-" and (flipped := negated(arguments[1])) is not None:
        return Call("+", (arguments[0], flipped))
    return Call(node.function, arguments)


def _lifted(nodes: Sequence[Node], values: list[tuple[float, ...]]) -> Node:
    """The expression that the nodes share, with the numbers in which they differ as names of columns of `values`.

    Raises:
        Unlike: they differ in more than numbers.
    """
    first = nodes[0]
    if all(node == first for node in nodes):
        return first
    if all(isinstance(node, Number) for node in nodes):
        values.append(tuple(node.value for node in nodes if isinstance(node, Number)))
        return Name(f"#{len(values) - 1}")
    calls = [node for node in nodes if isinstance(node, Call)]
    if len(calls) < len(nodes) or len({call.function for call in calls}) > 1:
        raise Unlike
    arguments = _same_length([call.arguments for call in calls])
    return Call(calls[0].function, tuple(_lifted(argument, values) for argument in arguments))
