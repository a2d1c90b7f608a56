"""Read the equations of a text: a linear policy, and what is not part of one: objective, potential and plant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policygen.errors import ExpressionError, PolicyError
from policygen.policies.features import depends_on
from policygen.policies.linear import LinearPolicy
from policygen.policies.parts import ENDS, HIDDEN, NOTHING_FOUND, Parts
from policygen.policies.plant import NEXT, START, Equations, Plant, read_start
from policygen.policies.shaping import OBJECTIVE, POTENTIAL, REWARD, Shaping
from policygen.quantities.text import next_of, parse_expression, to_text, unknown_name
from policygen.quantities.tree import Node, names_in, needed_by, read_by, remembered_in
from policygen.tasks.task import decision_names, output_names


def read_equations(parts: Parts) -> LinearPolicy | None:
    """Make a linear policy from the equations of a text, or add their problems.

    An output without an equation keeps the incumbent's. The coverage is the share of outputs with an equation.
    """
    task, problems = parts.task, parts.problems
    old = dict(parts.incumbent.equations) if isinstance(parts.incumbent, LinearPolicy) else {}
    outputs = output_names(task)
    written = parts.equations or _equations_from_params(parts, outputs)
    used = read_by([*written.values(), *parts.lets.values()])
    revises = not written and depends_on(read_by(old.values()), parts.lets, parts.inherited)
    for name, line in parts.bare.items():
        if name not in used and not (revises and name in parts.inherited):
            problems.refuse(line, unknown_name(name, outputs, what="output"))
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
    lets = parts.in_order_of_need(parts.features, read_by(equations.values()))
    if problems:
        return None
    parts.coverage = len(written) / len(outputs)
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


# --- objective, potential and plant -----------------------------------------------------------------------------------

_ONLY_THE_STATE = "a potential depends only on the state: use quantities alone, and put the rest into an `objective`"


def read_shaping(parts: Parts, *, learner: bool) -> Shaping | None:
    """Return the objective and potential with the features that they need; None if there are none or any problems.

    Args:
        learner: see `parse`.
    """
    task, problems, features = parts.task, parts.problems, parts.features
    quantities = list(dict.fromkeys([*task.quantity_names, *features]))
    read: dict[str, Node] = {}
    for name, line in parts.shaping.items():
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
        elif previous and learner:
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


def only_shapes(parts: Parts) -> bool:
    """Whether a text has an objective, potential or plant but no line of a policy, so that the incumbent stays."""
    if parts.incumbent is None or not (parts.shaping or parts.plant):
        return False
    if parts.equations or parts.rows or parts.header or parts.params or parts.bins:
        return False
    if parts.bare.keys() - read_by(parts.lets.values()):  # a misspelt output
        return False
    needed = dict(parts.incumbent.reader.needed)
    if parts.plant and not needed.keys() & parts.lets.keys():
        return True
    return all(needed.get(name, node) == node for name, node in parts.lets.items())


def read_plant(parts: Parts) -> Plant | None:
    """Return the plant in a text, with the features that it needs; None if there is none, or if it adds problems."""
    if not parts.plant:
        return None
    task, problems, before = parts.task, parts.problems, len(parts.problems)
    if task.text_names:
        line = min(stated.line for stated in parts.plant.values())
        problems.add(line, "the environment is observed as text", "leave out `next`, `reward` and `ends`")
        return None
    features = {**dict(task.parsed_features), **parts.features, **parts.plant_lets}
    quantities = list(dict.fromkeys([*task.observation_names, *features]))
    hidden = tuple(name for word, name in parts.plant if word == HIDDEN)
    nodes: dict[str, Node] = {}
    starts: dict[str, str] = {}
    for (word, name), stated in parts.plant.items():
        if word == HIDDEN:
            if stated.text:
                expected = f"write `hidden {name}` alone, and `start {name} = ...` on another line"
                problems.add(stated.line, f"`hidden {name}` has a right-hand side", expected)
            continue
        states = (*task.observation_names, *hidden)
        if name and name not in states:
            problems.refuse(stated.line, unknown_name(name, states, what="observation"))
            continue
        try:
            if word == START:
                read_start(stated.text)
                starts[name] = stated.text.strip()
            else:
                decided = decision_names(task) if word != ENDS else ()
                after = [*map(next_of, quantities), ENDS] if word == REWARD else []
                node = parse_expression(stated.text, [*quantities, *decided, *hidden, *after])
                nodes[f"{word} {name}".strip()] = node
        except ExpressionError as error:
            problems.refuse(stated.line, error)
    if len(problems) > before:
        return None
    own = {name: node for name, node in features.items() if name not in dict(task.parsed_features)}
    read = (name.removeprefix("next(").removesuffix(")") for name in read_by(nodes.values()))
    needed = parts.in_order_of_need(own, (name for name in read if name in own))
    for name in (name for name, _ in needed if name in decision_names(task)):
        problems.add(None, f"`let {name}`: `{name}` is the action of the step in a plant", "choose another name")
    if len(problems) > before:
        return None
    texts = {line: to_text(node) for line, node in nodes.items()}
    plant = Plant(
        tuple((name, to_text(node)) for name, node in needed),
        tuple((line.removeprefix(f"{NEXT} "), text) for line, text in texts.items() if line.startswith(NEXT)),
        texts.get(REWARD, ""),
        texts.get(ENDS, ""),
        tuple(starts.items()),
        hidden,
    )
    try:
        Equations(task, plant)
    except PolicyError as error:
        problems.add(None, str(error), "define each quantity before the lines that need it, and none by itself")
        return None
    for name, _ in needed:
        parts.bare.pop(name, None)  # a feature, not a misspelt output
    return plant
