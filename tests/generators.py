"""Random expressions, tables and linear policies for the property tests.

Strategies are made once and drawn from again: making one takes hypothesis longer than drawing from it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from policygen.policies.linear import LinearPolicy
from policygen.policies.table import Rule, TablePolicy
from policygen.quantities.codegen import compiled, row_function
from policygen.quantities.grid import Dimension, Grid
from policygen.quantities.operations import OPERATIONS
from policygen.quantities.program import Lowering
from policygen.quantities.text import parse_expression
from policygen.quantities.tree import Call, Name, Node, Number, names_in
from policygen.tasks.task import Task

BINARY = tuple(name for name, row in OPERATIONS.items() if row.level and row.fewest == 2)
# Operations that IEEE 754 or their definition fix to the last bit.
EXACT = ("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "and", "or", "neg", "not")
EXACT_FUNCTIONS = ("abs", "sign", "floor", "sqrt", "min", "max", "clip", "where", "mod")
NASTY = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 5e-324, 1e-300, -1e-300, 1e16, 1e300, -1e300)
NASTY += (1.7e308, -1.7e308, float("inf"), float("-inf"), float("nan"), 710.0, -746.0, 3.141592653589793)


def same(a: float, b: float, tolerance: float = 0.0) -> bool:
    """Whether two numbers are equal, or both NaN, or within the relative tolerance of each other."""
    if a == b or (a != a and b != b):
        return True
    return math.isfinite(a) and math.isfinite(b) and math.isclose(a, b, rel_tol=tolerance)


def of_row(node: Node, names: Sequence[str]) -> Callable[[Sequence[float]], float]:
    """An expression as a function of a row."""
    lowering = Lowering((), names)
    function = row_function(lowering.program([lowering.lower(node)]), [len(names)])
    return lambda row: function(list(row))[0]


def of_columns(node: Node, names: Sequence[str]) -> Callable[..., Any]:
    """An expression as a function of columns."""
    function = compiled([node], names)
    return lambda columns: function(columns)[0]


def both_forms(text: str, **quantities: float) -> float:
    """The value of an expression, computed as a batch and by itself."""
    names = list(quantities)
    node = parse_expression(text, names)
    scalar = of_row(node, names)(list(quantities.values()))
    with np.errstate(all="ignore"):
        batch = of_columns(node, names)([np.array([value]) for value in quantities.values()])
    assert same(float(np.ravel(batch)[0]), scalar, 1e-12)
    return scalar


@functools.cache
def numbers() -> st.SearchStrategy[float]:
    return st.one_of(
        st.integers(-20, 20).map(float),
        st.floats(allow_nan=False, allow_infinity=False),
        st.floats(-10, 10).map(lambda value: round(value, 2)),
    )


@functools.cache
def ranged() -> st.SearchStrategy[Number]:
    """Numbers in `tune(START, LOW, HIGH)`."""
    some = st.lists(st.floats(-1e20, 1e20), min_size=3, max_size=3).map(sorted)
    return some.map(lambda values: Number(values[1], (values[0], values[2])))


@functools.cache
def nasty_floats() -> st.SearchStrategy[float]:
    return st.one_of(st.sampled_from(NASTY), st.floats(-10, 10), st.floats())


@functools.cache
def trees(names: tuple[str, ...], *, exact: bool = False, leaves: int = 20) -> st.SearchStrategy[Node]:
    """Trees as `parse_expression` makes them: a negative constant is a number, never `neg` of one."""
    functions = {
        name: (row.fewest, row.most)
        for name, row in OPERATIONS.items()
        if row.level == 0 and (not exact or name in EXACT_FUNCTIONS)
    }
    binary = [name for name in BINARY if not exact or name in EXACT]

    def grown(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        @functools.cache
        def call(name: str) -> st.SearchStrategy[Node]:
            fewest, most = functions[name]
            arguments = st.lists(inner, min_size=fewest, max_size=min(most, 4)).map(tuple)
            return st.builds(Call, st.just(name), arguments)

        return st.one_of(
            st.builds(lambda f, a, b: Call(f, (a, b)), st.sampled_from(binary), inner, inner),
            inner.map(
                lambda node: (
                    Number(-node.value) if isinstance(node, Number) and not node.limits else Call("neg", (node,))
                )
            ),
            inner.map(lambda node: Call("not", (node,))),
            st.sampled_from(sorted(functions)).flatmap(call),
        )

    return st.recursive(
        st.one_of(st.builds(Name, st.sampled_from(names)), st.builds(Number, numbers()), ranged()),
        grown,
        max_leaves=leaves,
    )


@functools.cache
def dimensions(name: str, most: int = 6) -> st.SearchStrategy[Dimension]:
    edge = st.integers(-9_999, 9_999).map(lambda value: value / 100)  # most are no single-precision numbers
    return st.lists(edge, max_size=most, unique=True).map(lambda edges: Dimension(name, tuple(sorted(edges))))


@functools.cache
def grids(names: tuple[str, ...]) -> st.SearchStrategy[Grid]:
    chosen = st.lists(st.sampled_from(names), min_size=1, max_size=min(4, len(names)), unique=True)
    return chosen.flatmap(lambda some: st.tuples(*(dimensions(name, 4) for name in some)).map(Grid))


@functools.cache
def bins_of(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Some of so many bins."""
    return st.sets(st.integers(0, count - 1), min_size=1).map(lambda bins: tuple(sorted(bins)))


@st.composite
def lets(draw: Any, task: Task, most: int = 3) -> tuple[tuple[str, Node], ...]:
    known = task.quantity_names
    defined: list[tuple[str, Node]] = []
    for i in range(draw(st.integers(0, most))):
        defined.append((f"f{i}", draw(trees(known, leaves=6))))
        known = (*known, f"f{i}")
    return tuple(defined)


@st.composite
def actions(draw: Any, task: Task) -> tuple[float, ...]:
    values = []
    for actuator in task.actuators:
        if actuator.is_choice:
            values.append(float(draw(st.integers(0, len(actuator.labels) - 1))))
        else:
            named = [st.sampled_from([value for _, value in actuator.levels])] if actuator.levels else []
            values.append(draw(st.one_of(st.floats(actuator.low, actuator.high), *named)) + 0.0)
    return tuple(values)


@st.composite
def tables(draw: Any, task: Task, *, own_grid: bool = True) -> TablePolicy:
    """A table that covers its grid; its features are those that the grid needs, each after what it needs."""
    defined = draw(lets(task)) if own_grid else ()
    names = (*task.quantity_names, *(name for name, _ in defined))
    grid = draw(grids(names)) if own_grid or task.grid is None else task.grid
    rules: dict[tuple[tuple[int, ...], ...], Rule] = {}
    covered = np.zeros(grid.shape, np.bool_)
    for _ in range(draw(st.integers(0, 5))):
        bins = tuple(draw(bins_of(n)) for n in grid.shape)
        if not covered[np.ix_(*bins)].all():
            covered[np.ix_(*bins)] = True
            rules[bins] = Rule(bins, draw(actions(task)))
    if not covered.all():
        everything = tuple(tuple(range(n)) for n in grid.shape)
        rules[everything] = Rule(everything, draw(actions(task)))
    return TablePolicy(task, needed(defined, grid.names), grid, tuple(rules.values()))


@st.composite
def linear_policies(draw: Any, task: Task) -> LinearPolicy:
    defined = draw(lets(task))
    names = (*task.quantity_names, *(name for name, _ in defined))
    equations = tuple((name, draw(trees(names, leaves=8))) for name in task.output_names)
    wanted = frozenset().union(*(names_in(node) for _, node in equations))
    return LinearPolicy(task, needed(defined, wanted), equations)


def needed(defined: tuple[tuple[str, Node], ...], wanted: Any) -> tuple[tuple[str, Node], ...]:
    """The features that `wanted` reads, in the order a reader defines them (needed ones first, by name)."""
    nodes = dict(defined)
    ordered: dict[str, Node] = {}

    def visit(name: str) -> None:
        if name in nodes and name not in ordered:
            for used in sorted(names_in(nodes[name])):
                visit(used)
            ordered[name] = nodes[name]

    for name in sorted(wanted):
        visit(name)
    return tuple(ordered.items())
