"""Conversion of a draft to a linear policy, and of its objective and potential; the draft collects the problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from policygen.errors import ExpressionError
from policygen.policies.features import rests_on
from policygen.policies.linear import LinearPolicy
from policygen.policies.lines import NOTHING_FOUND, Draft
from policygen.policies.shaping import OBJECTIVE, POTENTIAL, REWARD, Shaping
from policygen.quantities.text import parse_expression, to_text, unknown_name
from policygen.quantities.tree import Node, names_in, read_by, remembered_in
from policygen.tasks.task import Task, decision_names, output_names


def read_equations(draft: Draft) -> tuple[LinearPolicy | None, float]:
    """Return the policy of a draft, or None if it has problems, and the share of outputs that the draft defines.

    Outputs without an equation in the draft keep the incumbent's.
    """
    task, offered, inherited = draft.task, draft.offered, draft.inherited
    old = dict(draft.incumbent.equations) if isinstance(draft.incumbent, LinearPolicy) else {}
    outputs = output_names(task)
    if draft.params and not draft.equations:
        _equations_from_params(draft, outputs)
    used = read_by([*draft.equations.values(), *draft.lets.values()]) | draft.besides
    revises = not draft.equations and rests_on(read_by(old.values()), draft.lets, inherited)
    for name, number in draft.bare.items():
        if name not in used and not (revises and name in inherited):
            draft.refuse(number, unknown_name(name, outputs, what="output"))
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
    lets = draft.used(draft.features, needed)
    kept = [old[name] for name in outputs if name not in draft.equations]
    kept += [node for name, node in lets if name not in draft.lets and name not in offered]
    if not draft.problems and read_by(kept) & offered.keys():
        lets = draft.used({**offered, **inherited, **draft.lets}, needed)
    if draft.problems:
        return None, 0.0
    return LinearPolicy(task, lets, tuple(equations.items())), len(draft.equations) / len(outputs)


def _example(task: Task) -> str:
    """Return an example of an expression for the task."""
    if task.quantity_names:
        return f"2*{task.quantity_names[0]} + 0.5"
    return f'contains({task.text_names[0]}, "word")'


def _equations_from_params(draft: Draft, outputs: Sequence[str]) -> None:
    """Read the form of ProPS, `params[i]: v`: row-major, shape (n + 1, m), the last row is the bias."""
    names = draft.task.observation_names
    values = draft.all_params((len(names) + 1) * len(outputs), "weight and bias")
    if values is None or draft.problems:
        return
    matrix = np.array([value for _, value in values]).reshape(len(names) + 1, len(outputs))
    for name, weights in zip(outputs, matrix.T.tolist(), strict=True):
        terms = [f"{weight!r}*{quantity}" for quantity, weight in zip(names, weights, strict=False)]
        text = " + ".join([*terms, repr(weights[-1])]).replace("+ -", "- ")
        try:
            draft.equations[name] = parse_expression(text, names)
        except ExpressionError as error:
            draft.refuse(values[0][0], error)
            return  # the other outputs would have the same problem


# --- beside a policy --------------------------------------------------------------------------------------------------

_OF_THE_STATE = "a potential depends only on the state: use quantities alone, and put the rest into an `objective`"


def read_shaping(draft: Draft, *, learner: bool) -> dict[str, Node]:
    """Return the readable expressions of a draft's objective and potential; the draft gets the problems.

    Args:
        learner: whether a learner uses them, which sees one step at a time: the objective may then not use memory.
    """
    task, features = draft.task, draft.features
    quantities = list(dict.fromkeys([*task.quantity_names, *features]))
    actions = list(decision_names(task))
    read: dict[str, Node] = {}
    for name, (number, text) in draft.shaping.items():
        try:
            node = parse_expression(text, [*quantities, *actions, REWARD], texts=task.text_names)
        except ExpressionError as error:
            draft.refuse(number, error)
            continue
        found, expected = _misplaced(name, node, quantities, features, learner=learner)
        if found:
            draft.problem(number, found, expected)
        else:
            read[name] = node
    draft.besides = read_by(read.values())
    return read


def _misplaced(
    name: str, node: Node, quantities: Sequence[str], features: Mapping[str, Node], *, learner: bool
) -> tuple[str, str]:
    """Return the problem if an expression reads a forbidden value, and the remedy; usually two empty texts."""
    if name == POTENTIAL and (others := sorted(names_in(node) - set(quantities))):
        return f"the potential reads `{others[0]}`", _OF_THE_STATE
    if REWARD in remembered_in(node) and REWARD not in quantities:
        return f"`prev({REWARD})` is not remembered", f"use `{REWARD}`, the reward of this step"
    recalled = _remembered(node, features)
    if recalled and name == POTENTIAL:
        return f"the potential remembers `{recalled}`", _OF_THE_STATE
    if recalled and learner:
        return (
            f"the objective remembers `{recalled}`",
            "a learner of table entries sees one step at a time: write it without `prev(...)`",
        )
    return "", ""


def _remembered(node: Node, features: Mapping[str, Node]) -> str:
    """Return a name whose previous value an expression, or a feature that it needs, reads; usually empty."""
    seen, waiting = set[str](), [node]
    while waiting:
        one = waiting.pop()
        if recalled := remembered_in(one):
            return min(recalled)
        new = (names_in(one) & features.keys()) - seen
        seen |= new
        waiting += [features[name] for name in new]
    return ""


def shaping_of(read: Mapping[str, Node], draft: Draft) -> Shaping | None:
    """Return the shaping with the features that it needs; None without expressions, or if features are circular."""
    if not read or draft.problems:
        return None
    lets = draft.used(draft.features, read_by(read.values()))
    if draft.problems:
        return None
    texts = {name: to_text(node) for name, node in read.items()}
    return Shaping(
        tuple((name, to_text(node)) for name, node in lets), texts.get(OBJECTIVE, ""), texts.get(POTENTIAL, "")
    )


def only_shapes(draft: Draft) -> bool:
    """Whether a text holds an objective or potential but no policy, so that the unchanged incumbent is tuned again."""
    if draft.incumbent is None or not draft.shaping:
        return False
    if draft.equations or draft.rows or draft.header or draft.params or draft.bins:
        return False
    needed = dict(draft.incumbent.reader.needed)
    return all(needed.get(name, node) == node for name, node in draft.lets.items())
