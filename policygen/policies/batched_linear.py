"""Joint decisions of several linear policies that differ only in constants, as in a numerical search.

For few rows the fixed cost of numpy's calls dominates. Here one call serves all policies: the constants in which they
differ are columns, like observations. Each row gets the action of its own policy, equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.policies.features import Columns
from policygen.policies.linear import LinearPolicy, weighted_sum
from policygen.quantities.compiled import compile_batch, finite
from policygen.quantities.tree import Call, Name, Node, Number, negated


class DifferentStructure(Exception):
    """The policies differ in more than constants."""


class BatchedLinear:
    """A decider of the episodes of several linear policies.

    Args:
        policies: policies that differ only in constants.
        each: number of episodes per policy: the first `each` episodes are the first policy's, and so on.

    Raises:
        DifferentStructure: the policies differ in more than constants, have memory, or are not all linear.
    """

    def __init__(self, policies: Sequence[Any], each: int) -> None:
        # A policy with memory needs its own decider.
        if not all(type(policy) is LinearPolicy and policy.begin(1) is policy for policy in policies):
            raise DifferentStructure
        self._first: LinearPolicy = policies[0]
        self._each = each
        self._rows: npt.NDArray[np.integer[Any]] | None = None
        if len({(*dict(p.reader.features), len(p.terms), frozenset(dict(p.reader.needed))) for p in policies}) > 1:
            raise DifferentStructure
        needed = dict(self._first.reader.needed)
        values: list[tuple[float, ...]] = []
        features = [
            _shared_node([_with_sums(node) for _, node in same], values) if same[0][0] in needed else None
            for same in zip(*(policy.reader.features for policy in policies), strict=True)
        ]
        all_terms = zip(*(policy.terms for policy in policies), strict=True)
        terms = [_shared_node(list(map(_with_sums, same)), values) for same in all_terms]
        names = [*self._first.task.columns, *(f"#{i}" for i in range(len(values)))]
        names += dict(self._first.reader.features)
        self._features = [None if node is None else compile_batch(node, names) for node in features]
        self._terms = [compile_batch(term, names) for term in terms]
        self._constants = np.array(values).reshape(len(values), len(policies))
        self._weights = np.stack([policy.weights for policy in policies], axis=1)  # (terms, policies, outputs)
        self._bias = np.stack([policy.bias for policy in policies])

    def decide(self, observations: Columns, rows: npt.NDArray[np.integer[Any]], /) -> npt.NDArray[Any]:
        """Return the actions in the episodes `rows`, shape (k,), for their observations, shape (k, d)."""
        if rows is not self._rows:  # the constants of each row are cached until the rows change
            self._rows, owner = rows, np.asarray(rows) // self._each
            self._own = self._constants[:, owner], self._weights[:, owner], self._bias[owner]
        constants, weights, bias = self._own
        n = len(observations)
        columns = [*np.asarray(observations).T.astype(np.float64, order="C"), *constants]
        with np.errstate(all="ignore"):
            for function in self._features:
                value = (
                    np.zeros(1) if function is None else np.broadcast_to(finite(np.asarray(function(columns))), (n,))
                )
                columns.append(np.ascontiguousarray(value))
            terms = [np.broadcast_to(np.asarray(function(columns)), (n,)) for function in self._terms]
            result = weighted_sum(terms, weights, bias)
            # A term that is not finite affects its row with any weight, even 0; only then is the slower sum needed.
            if not np.isfinite(result).all():
                result = finite(weighted_sum(map(finite, terms), weights, bias))
        return self._first.chosen(result)


def _with_sums(node: Node) -> Node:
    """Rewrite `a - 2*b` as `a + -2*b`, because a tuned constant may change its sign; the value is the same."""
    if not isinstance(node, Call):
        return node
    arguments = tuple(map(_with_sums, node.arguments))
    if node.function == "-" and (flipped := negated(arguments[1])) is not None:
        return Call("+", (arguments[0], flipped))
    return Call(node.function, arguments)


def _shared_node(nodes: Sequence[Node], values: list[tuple[float, ...]]) -> Node:
    """Return one expression for all nodes, with a name `#i` for numbers that differ; add these to `values`."""
    first = nodes[0]
    if all(node == first for node in nodes):
        return first
    if all(isinstance(node, Number) for node in nodes):
        values.append(tuple(node.value for node in nodes if isinstance(node, Number)))
        return Name(f"#{len(values) - 1}")
    calls = [node for node in nodes if isinstance(node, Call)]
    if len(calls) < len(nodes) or len({(call.function, len(call.arguments)) for call in calls}) > 1:
        raise DifferentStructure
    arguments = zip(*(call.arguments for call in calls), strict=True)
    return Call(calls[0].function, tuple(_shared_node(argument, values) for argument in arguments))
