"""Objectives and potentials that replies write for tuning: `objective = EXPRESSION`, `potential = EXPRESSION`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policygen.errors import ExpressionError
from policygen.policies.lines import STATEMENTS, Line, Statement
from policygen.policies.parts import Parts
from policygen.policies.shaping import OBJECTIVE, POTENTIAL, REWARD, Shaping
from policygen.prompts.sections import Section, add_section
from policygen.quantities.text import parse_expression, to_text
from policygen.quantities.tree import Node, names_in, needed_by, read_by, remembered_in
from policygen.runs.config import RunConfig
from policygen.runs.state import Context
from policygen.tasks.task import decision_names

_ONLY_THE_STATE = "a potential depends only on the state: use quantities alone, and put the rest into an `objective`"


def read_objective(parts: Parts, lines: Mapping[tuple[str, str], Line]) -> Shaping | None:
    """Return the objective and potential with the features that they need; None if there are any problems."""
    task, problems, features = parts.task, parts.problems, parts.features
    quantities = list(dict.fromkeys([*task.quantity_names, *features]))
    read: dict[str, Node] = {}
    for (name, _), line in lines.items():
        try:
            node = parse_expression(line.text, [*quantities, *decision_names(task), REWARD], texts=task.text_names)
        except ExpressionError as error:
            problems.refuse(line.line, error)
            continue
        needed = needed_by(names_in(node), features, now=True) & features.keys()
        remembered = remembered_in(node).union(*(remembered_in(features[feature]) for feature in needed))
        previous, others = min(remembered, default=""), sorted(names_in(node) - set(quantities))
        if name == POTENTIAL and others:
            problems.add(line.line, f"the potential reads `{others[0]}`", _ONLY_THE_STATE)
        elif REWARD in remembered_in(node) and REWARD not in quantities:
            expected = f"use `{REWARD}`, the reward of this step"
            problems.add(line.line, f"`prev({REWARD})` is not remembered", expected)
        elif previous and name == POTENTIAL:
            problems.add(line.line, f"the potential remembers `{previous}`", _ONLY_THE_STATE)
        elif previous and parts.learner:
            expected = "a learner of table entries sees one step at a time: write it without `prev(...)`"
            problems.add(line.line, f"the objective remembers `{previous}`", expected)
        else:
            read[name] = node
    for name in read_by(read.values()):
        parts.bare.pop(name, None)  # a feature, not a misspelt output
    if not read or problems:
        return None
    lets = parts.in_order_of_need(features, read_by(read.values()))
    defined = tuple((name, to_text(node)) for name, node in lets)
    texts = {name: to_text(node) for name, node in read.items()}
    return Shaping(defined, texts.get(OBJECTIVE, ""), texts.get(POTENTIAL, ""))


def _shown(context: Context, config: RunConfig) -> list[dict[str, Any]]:
    from policygen.extensions.objectives.prompts import objective_views  # start-up time

    return objective_views(context) if config.shape else []


STATEMENTS.add("objective", Statement(names=(OBJECTIVE, POTENTIAL), read=read_objective))
add_section(Section("objectives", _shown, "after_history"))
add_section(Section("shaping", lambda context, config: config.shape, "after_language"))
