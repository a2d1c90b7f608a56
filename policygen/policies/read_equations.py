"""Read the equations of a text as a linear policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policygen.errors import ExpressionError
from policygen.policies.features import depends_on
from policygen.policies.linear import LinearPolicy
from policygen.policies.parts import NOTHING_FOUND, Parts
from policygen.quantities.text import parse_expression, unknown_name
from policygen.quantities.tree import Node, read_by
from policygen.tasks.task import output_names


def read_equations(parts: Parts) -> LinearPolicy | None:
    """Make a linear policy from the equations of a text, or add their problems.

    An output without an equation keeps the incumbent's.
    """
    task, problems = parts.task, parts.problems
    old = dict(parts.incumbent.equations) if isinstance(parts.incumbent, LinearPolicy) else {}
    outputs = output_names(task)
    written = parts.equations or _equations_from_params(parts, outputs)
    used = read_by([*written.values(), *parts.lets.values()])
    changes = parts.rewrites()
    revises = bool(not written and (changes or depends_on(read_by(old.values()), parts.lets, parts.inherited)))
    for name, line in parts.bare.items():
        if name not in used and not (revises and name in parts.inherited):
            problems.refuse(line, unknown_name(name, outputs, what="output"))
    if parts.rows and parts.in_block:
        problems.add(parts.rows[0].line, "a table's row stands beside equations", "leave the rows out of the block")
    if not written and not revises and not problems:
        numbers = task.quantity_names
        example = f"2*{numbers[0]} + 0.5" if numbers else f'contains({task.text_names[0]}, "word")'
        expected = f"write an equation each for {', '.join(outputs)}: `{outputs[0]} = {example}`"
        problems.add(None, NOTHING_FOUND, expected)
    missing = [name for name in outputs if name not in written and name not in old]
    if missing and not problems:
        problems.add(None, f"there is no equation for {', '.join(missing)}", f"write `{missing[0]} = ...`")
    if problems:
        return None
    equations = {name: written.get(name) or old[name] for name in outputs}
    for name, rewrite, stated in changes:
        try:
            equations[name] = rewrite(equations[name], stated.value)
        except ExpressionError as error:
            problems.refuse(stated.line, error)
    lets = parts.in_order_of_need(parts.features, read_by(equations.values()))
    if problems:
        return None
    return LinearPolicy(task, lets, tuple(equations.items()))


def _equations_from_params(parts: Parts, outputs: Sequence[str]) -> dict[str, Node]:
    """Read `params[i]: v` as a matrix of shape (d + 1, outputs), row by row, as ProPS does; the last row is bias."""
    names = parts.task.observation_names
    values = parts.all_params((len(names) + 1) * len(outputs), "weight and bias") if parts.params else None
    if values is None or parts.problems:
        return {}
    matrix = np.array([stated.value for stated in values]).reshape(len(names) + 1, len(outputs))
    equations = {}
    for name, weights in zip(outputs, matrix.T.tolist(), strict=True):
        terms = [f"{weight!r}*{quantity}" for quantity, weight in zip(names, weights, strict=False)]
        text = " + ".join([*terms, repr(weights[-1])]).replace("+ -", "- ")
        try:
            equations[name] = parse_expression(text, names)
        except ExpressionError as error:
            parts.problems.refuse(values[0].line, error)
            break  # an equation is too long; the others are as long
    return equations
