"""A draft -> the features and equations of a linear policy, or what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from policygen.errors import ExpressionError
from policygen.policies.features import Lets, rests_on
from policygen.policies.lines import NOTHING_FOUND, Draft
from policygen.policies.revision import Revision, complete_params, read_by, used_features
from policygen.quantities.text import parse_expression, unknown_name
from policygen.quantities.tree import Node
from policygen.tasks.task import Task, output_names

Equations = tuple[tuple[str, Node], ...]


def read_equations(
    draft: Draft, revision: Revision, old: Mapping[str, Node]
) -> tuple[tuple[Lets, Equations] | None, float]:
    """The features and equations that a draft says, or None where it has problems; and their coverage.

    Args:
        old: the incumbent's equations, which stay where the draft has none.
    """
    task, offered, inherited = revision.task, revision.offered, revision.inherited
    outputs = output_names(task)
    if draft.params and not draft.equations:
        _equations_from_params(draft, task, outputs)
    used = read_by([*draft.equations.values(), *draft.lets.values()]) | draft.besides
    revises = not draft.equations and rests_on(read_by(old.values()), draft.lets, inherited)
    for name, number in draft.bare.items():
        if name not in used and not (revises and name in inherited):
            found, _, expected = unknown_name(name, outputs, what="output").partition("; ")
            draft.problem(number, found, expected)
    if not draft.equations and not revises and not draft.problems:
        draft.problem(
            None,
            NOTHING_FOUND,
            f"write an equation each for {', '.join(outputs)}: `{outputs[0]} = {_example(task)}`",
        )
    missing = [name for name in outputs if name not in draft.equations and name not in old]
    if missing and not draft.problems:
        draft.problem(None, f"there is no equation for {', '.join(missing)}", f"write `{missing[0]} = ...`")
    if draft.problems:
        return None, 0.0
    equations = {name: draft.equations.get(name) or old[name] for name in outputs}
    needed = read_by(equations.values())
    lets = used_features({**inherited, **offered, **draft.lets}, needed, draft)
    kept = [old[name] for name in outputs if name not in draft.equations]
    kept += [node for name, node in lets if name not in draft.lets and name not in offered]
    if not draft.problems and read_by(kept) & offered.keys():
        lets = used_features({**offered, **inherited, **draft.lets}, needed, draft)
    if draft.problems:
        return None, 0.0
    return (lets, tuple(equations.items())), len(draft.equations) / len(outputs)


def _example(task: Task) -> str:
    """An expression that the task's policies may have."""
    if task.quantity_names:
        return f"2*{task.quantity_names[0]} + 0.5"
    return f'contains({task.text_names[0]}, "word")'


def _equations_from_params(draft: Draft, task: Task, outputs: Sequence[str]) -> None:
    """`params[i]: v`, row-major over the (n + 1) x m matrix whose last row is the bias (the form ProPS prompts for)."""
    names = task.observation_names
    values = complete_params(draft, (len(names) + 1) * len(outputs), "weight and bias")
    if values is None or draft.problems:
        return
    matrix = np.array([value for _, value in values]).reshape(len(names) + 1, len(outputs))
    for name, weights in zip(outputs, matrix.T.tolist(), strict=True):
        terms = [f"{weight!r}*{quantity}" for quantity, weight in zip(names, weights, strict=False)]
        text = " + ".join([*terms, repr(weights[-1])]).replace("+ -", "- ")
        try:
            draft.equations[name] = parse_expression(text, names)
        except ExpressionError as error:
            found, _, expected = str(error).partition("; ")
            draft.problem(values[0][0], found, expected)
            return  # the other outputs are as long
