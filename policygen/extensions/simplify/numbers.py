"""Simplification of expressions and numbers: remove superfluous terms, parts and digits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import numpy as np

from policygen.errors import PolicygenError
from policygen.extensions.export.program import weighted_sum
from policygen.extensions.simplify.contest import Contest
from policygen.policies.features import Lets
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.rows import Rule
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension, Grid
from policygen.quantities.text import to_digits
from policygen.quantities.tree import NOTHING, Call, Node, Number, Previous, constants, with_constants, with_plain_signs

MOST_DIGITS, FEWEST_DIGITS = 4, 2  # significant digits; fewer than two are not tried: 1.5 is as readable as 2
P = TypeVar("P", bound=Policy)


def simplify_numbers(contest: Contest[Policy]) -> None:
    """Remove parts of expressions, then digits; accepted candidates become the contest's current policy."""
    for candidate in relative_scores(contest.current):
        sizes = [sum(node_size(node) for _, node in named_nodes(policy)) for policy in (candidate, contest.current)]
        if sizes[0] < sizes[1]:
            contest.accept_unless_worse(candidate)
    tried: set[tuple[str, Node]] = set()
    contest.accept_while_any(lambda policy: _with_parts(contest, policy, tried))
    _drop_digits(contest)


def named_nodes(policy: Policy) -> Lets:
    """Return the expressions of a policy: its features, and its equations if it has any."""
    return (*policy.lets, *policy.formulas())


def with_nodes(policy: Policy, nodes: Sequence[Node]) -> Policy:
    """Return the policy with other expressions in the same places, without features that are no longer used."""
    named = tuple((name, node) for (name, _), node in zip(named_nodes(policy), nodes, strict=True))
    count = len(policy.lets)
    changed: Policy = replace(policy, lets=named[:count])
    if isinstance(changed, LinearPolicy):
        changed = replace(changed, equations=named[count:])
    return without_idle_lets(changed)


def without_idle_lets(policy: P) -> P:
    """Return the policy without features that it does not read."""
    needed = {name for name, _ in policy.reader.needed}
    return replace(policy, lets=tuple((name, node) for name, node in policy.lets if name in needed))


def node_size(node: Node) -> int:
    """Count the names, numbers and operations of an expression."""
    match node:
        case Call("fixed", (inner,)):
            return node_size(inner)
        case Call(_, arguments):
            return 1 + sum(map(node_size, arguments))
        case Previous(_, start) if start != NOTHING:
            return 1 + node_size(start)
    return 1


def relative_scores(policy: Policy) -> Iterator[Policy]:
    """Yield equivalent policies: the score of one label is subtracted from all scores, so its own becomes 0."""
    if not isinstance(policy, LinearPolicy) or policy.task.action_space != "discrete":
        return
    for k in range(len(policy.equations)):
        weights = (policy.weights - policy.weights[:, k : k + 1]).T.tolist()
        columns = zip(weights, (policy.bias - policy.bias[k]).tolist(), strict=True)
        sums = [weighted_sum(zip(policy.terms, column, strict=True), bias) for column, bias in columns]
        yield with_nodes(policy, [*(node for _, node in policy.lets), *sums])


# --- parts -----------------------------------------------------------------------------------------------------------


def _with_parts(contest: Contest[Policy], policy: Policy, tried: set[tuple[str, Node]]) -> Iterator[Policy]:
    """Yield the policy with one expression replaced by a smaller one not yet `tried` there, largest saving first."""
    named = named_nodes(policy)
    options = [(i, less) for i, (_, node) in enumerate(named) for less in smaller(node)]
    for i, less in sorted(options, key=lambda option: node_size(option[1]) - node_size(named[option[0]][1])):
        if (named[i][0], less) in tried or contest.exhausted:
            continue
        tried.add((named[i][0], less))
        with suppress(PolicygenError):  # without this quantity the policy is invalid
            yield with_nodes(policy, [less if k == i else node for k, (_, node) in enumerate(named)])


# The arguments that may stand in the place of an operation.
_KEPT_ARGUMENTS: dict[str, tuple[int, ...]] = {
    "where": (1, 2),
    **dict.fromkeys(("+", "and", "or", "min", "max"), (0, 1)),
    **dict.fromkeys(("-", "/", "clip", "^", "tanh", "abs", "sqrt", "floor", "atan", "not"), (0,)),
}


def smaller(node: Node) -> Iterator[Node]:
    """Yield smaller expressions: one part is replaced by one of its arguments, or by 0."""
    match node:
        case Call("*", arguments):
            yield from (part for part in arguments if not isinstance(part, Number))
        case Call("min" | "max" as function, arguments) if len(arguments) > 2:
            yield from (Call(function, arguments[:i] + arguments[i + 1 :]) for i in range(len(arguments)))
        case Call(function, arguments):
            yield from (arguments[i] for i in _KEPT_ARGUMENTS.get(function, ()))
        case Previous(name, start) if start != NOTHING:
            yield Previous(name, NOTHING)
    match node:
        case Call("-", (_, Number(value, None))):
            yield Number(-value)
        case Call("-", (_, right)):
            yield Call("neg", (right,))
        case Number() | Call("fixed"):
            return
    yield Number(0.0)
    if isinstance(node, Call):
        for i, argument in enumerate(node.arguments):
            for less in smaller(argument):
                if less != Number(0.0):  # leaving out the term is smaller than adding 0, and a product with 0 is 0
                    yield Call(node.function, (*node.arguments[:i], less, *node.arguments[i + 1 :]))


# --- digits ----------------------------------------------------------------------------------------------------------


def _drop_digits(contest: Contest[Policy]) -> None:
    """Round all numbers together to as few digits as possible, then each number to two."""
    for digits in range(MOST_DIGITS, FEWEST_DIGITS - 1, -1):
        rounded = with_digits(contest.current, digits)
        if rounded is None or (rounded != contest.current and not contest.accept_unless_worse(rounded)):
            break
    numbers: list[float] = []

    def noted(value: float) -> float:
        numbers.append(value)
        return value

    _with_numbers(contest.current, noted)
    for i in range(len(numbers)):
        rounded = with_digits(contest.current, FEWEST_DIGITS, only=i)
        if rounded is not None and rounded != contest.current:
            contest.accept_unless_worse(rounded)


def with_digits(policy: Policy, digits: int, only: int | None = None) -> Policy | None:
    """Return the policy with at most `digits` significant digits (in number `only`, or in all); None if invalid."""
    place = itertools.count()

    def rounded(value: float) -> float:
        return to_digits(value, digits) if only in (None, next(place)) and np.isfinite(value) else value

    try:
        return _with_numbers(policy, rounded)
    except PolicygenError:  # equal edges, or an action out of range
        return None


def _with_numbers(policy: Policy, change: Callable[[float], float]) -> Policy:
    """Apply `change` to the numbers that may be rounded: in expressions, edges of its own grid, table actions."""
    nodes = [with_plain_signs(with_constants(node, map(change, constants(node)))) for _, node in named_nodes(policy)]
    changed = with_nodes(policy, nodes)
    if not isinstance(changed, TablePolicy):
        return changed
    grid, rules = changed.grid, changed.rules
    if grid != policy.task.grid:
        grid = Grid(tuple(Dimension(d.name, tuple(map(change, d.edges))) for d in grid.dimensions))
    if policy.task.has_numbers:
        is_number = [not actuator.is_choice for actuator in policy.task.actuators]
        rules = tuple(
            Rule(rule.bins, tuple(change(v) if number else v for v, number in zip(rule.action, is_number, strict=True)))
            for rule in rules
        )
    return replace(changed, grid=grid, rules=rules)
