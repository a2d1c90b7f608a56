"""Read the equations of a text: a linear policy, and what is not part of one: objective, potential and plant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from policygen.errors import ExpressionError, PolicyError
from policygen.policies.features import depends_on
from policygen.policies.linear import LinearPolicy
from policygen.policies.lines import Problems
from policygen.policies.parts import ENDS, HIDDEN, NOTHING_FOUND, Parts, Reading, Scope, in_order_of_need
from policygen.policies.plant import NEXT, NOISE, START, Equations, Plant, read_start
from policygen.policies.shaping import OBJECTIVE, POTENTIAL, REWARD, Shaping
from policygen.quantities.text import next_of, parse_expression, to_text, unknown_name
from policygen.quantities.tree import Node, names_in, needed_by, read_by, remembered_in
from policygen.tasks.task import Task, decision_names, output_names


def read_equations(parts: Parts, scope: Scope, problems: Problems) -> Reading:
    """Make a linear policy from the equations of a text, or add their problems.

    An output without an equation keeps the incumbent's. The coverage is the share of outputs with an equation.
    """
    task, offered, inherited = scope.task, scope.offered, scope.inherited
    old = dict(scope.incumbent.equations) if isinstance(scope.incumbent, LinearPolicy) else {}
    outputs = output_names(task)
    written = parts.equations or _equations_from_params(parts, task, outputs, problems)
    used = read_by([*written.values(), *parts.lets.values()])
    revises = not written and depends_on(read_by(old.values()), parts.lets, inherited)
    for name, line in parts.bare.items():
        if name not in used and not (revises and name in inherited):
            problems.refuse(line, unknown_name(name, outputs, what="output"))
    if not written and not revises and not problems:
        numbers = task.quantity_names
        example = f"2*{numbers[0]} + 0.5" if numbers else f'contains({task.text_names[0]}, "word")'
        problems.add(
            None, NOTHING_FOUND, f"write an equation each for {', '.join(outputs)}: `{outputs[0]} = {example}`"
        )
    missing = [name for name in outputs if name not in written and name not in old]
    if missing and not problems:
        problems.add(None, f"there is no equation for {', '.join(missing)}", f"write `{missing[0]} = ...`")
    if problems:
        return Reading()
    equations = {name: written.get(name) or old[name] for name in outputs}
    needed = read_by(equations.values())
    lets = in_order_of_need(scope.features(parts.lets), needed, task, problems)
    kept = [old[name] for name in outputs if name not in written]
    kept += [node for name, node in lets if name not in parts.lets and name not in offered]
    if not problems and read_by(kept) & offered.keys():
        lets = in_order_of_need({**offered, **inherited, **parts.lets}, needed, task, problems)
    if problems:
        return Reading()
    return Reading(LinearPolicy(task, lets, tuple(equations.items())), len(written) / len(outputs))


def _equations_from_params(parts: Parts, task: Task, outputs: Sequence[str], problems: Problems) -> dict[str, Node]:
    """Read `params[i]: v` as a matrix of shape (d + 1, outputs), row by row, as ProPS does; the last row is bias."""
    names = task.observation_names
    values = parts.all_params((len(names) + 1) * len(outputs), "weight and bias", problems) if parts.params else None
    if values is None or problems:
        return {}
    matrix = np.array([stated.value for stated in values]).reshape(len(names) + 1, len(outputs))
    equations = {}
    for name, weights in zip(outputs, matrix.T.tolist(), strict=True):
        terms = [f"{weight!r}*{quantity}" for quantity, weight in zip(names, weights, strict=False)]
        text = " + ".join([*terms, repr(weights[-1])]).replace("+ -", "- ")
        try:
            equations[name] = parse_expression(text, names)
        except ExpressionError as error:
            problems.refuse(values[0].line, error)
            break  # an equation is too long; the others are as long
    return equations


# --- objective, potential and plant -----------------------------------------------------------------------------------

_ONLY_THE_STATE = "a potential depends only on the state: use quantities alone, and put the rest into an `objective`"


def read_shaping(parts: Parts, scope: Scope, problems: Problems, *, learner: bool) -> dict[str, Node]:
    """Return the expressions of a text's objective and potential by name; add problems for those that are refused.

    Args:
        learner: see `parse`.
    """
    task, features = scope.task, scope.features(parts.lets)
    quantities = list(dict.fromkeys([*task.quantity_names, *features]))
    decisions = list(decision_names(task))
    read: dict[str, Node] = {}
    for name, stated in parts.shaping.items():
        try:
            node = parse_expression(stated.value, [*quantities, *decisions, REWARD], texts=task.text_names)
        except ExpressionError as error:
            problems.refuse(stated.line, error)
            continue
        found, expected = _forbidden_value(name, node, quantities, features, learner=learner)
        if found:
            problems.add(stated.line, found, expected)
        else:
            read[name] = node
    return read


def _forbidden_value(
    name: str, node: Node, quantities: Sequence[str], features: Mapping[str, Node], *, learner: bool
) -> tuple[str, str]:
    """Return the problem and the remedy if an expression reads a value that it may not read; else two empty texts."""
    if name == POTENTIAL and (others := sorted(names_in(node) - set(quantities))):
        return f"the potential reads `{others[0]}`", _ONLY_THE_STATE
    if REWARD in remembered_in(node) and REWARD not in quantities:
        return f"`prev({REWARD})` is not remembered", f"use `{REWARD}`, the reward of this step"
    previous = _remembered(node, features)
    if previous and name == POTENTIAL:
        return f"the potential remembers `{previous}`", _ONLY_THE_STATE
    if previous and learner:
        return (
            f"the objective remembers `{previous}`",
            "a learner of table entries sees one step at a time: write it without `prev(...)`",
        )
    return "", ""


def _remembered(node: Node, features: Mapping[str, Node]) -> str:
    """Return a name whose previous value an expression, or a feature that it needs, reads; empty if there is none."""
    needed = needed_by(names_in(node), features, now=True) & features.keys()
    return min(remembered_in(node).union(*(remembered_in(features[name]) for name in needed)), default="")


def shaping_of(read: Mapping[str, Node], parts: Parts, scope: Scope, problems: Problems) -> Shaping | None:
    """Return the objective and potential with the features that they need; None if there are none or any problems."""
    if not read or problems:
        return None
    lets = in_order_of_need(scope.features(parts.lets), read_by(read.values()), scope.task, problems)
    if problems:
        return None
    texts = {name: to_text(node) for name, node in read.items()}
    return Shaping(
        tuple((name, to_text(node)) for name, node in lets), texts.get(OBJECTIVE, ""), texts.get(POTENTIAL, "")
    )


def only_shapes(parts: Parts, scope: Scope) -> bool:
    """Whether a text has an objective, potential or plant but no line of a policy, so that the incumbent stays."""
    if scope.incumbent is None or not (parts.shaping or parts.plant):
        return False
    if parts.equations or parts.rows or parts.header or parts.params or parts.bins:
        return False
    if parts.bare.keys() - read_by(parts.lets.values()):  # a misspelt output
        return False
    needed = dict(scope.incumbent.reader.needed)
    if parts.plant and not needed.keys() & parts.lets.keys():
        return True
    return all(needed.get(name, node) == node for name, node in parts.lets.items())


def read_plant(parts: Parts, scope: Scope, problems: Problems) -> Plant | None:
    """Return the plant in a text, with the features that it needs; None if there is none, or its problems are added."""
    if not parts.plant:
        return None
    task, before = scope.task, len(problems)
    if task.text_names:
        line = min(stated.line for stated in parts.plant.values())
        problems.add(line, "the environment is observed as text", "leave out `next`, `reward` and `ends`")
        return None
    features = {**dict(task.parsed_features), **scope.features(parts.lets), **parts.plant_lets}
    quantities = list(dict.fromkeys([*task.observation_names, *features]))
    hidden = tuple(name for word, name in parts.plant if word == HIDDEN)
    known = [*quantities, *decision_names(task), *hidden]
    nodes: dict[str, Node] = {}
    noise: dict[str, float] = {}
    starts: dict[str, str] = {}
    for (word, name), stated in parts.plant.items():
        if word == HIDDEN:
            if stated.value:
                expected = f"write `hidden {name}` alone, and `start {name} = ...` on another line"
                problems.add(stated.line, f"`hidden {name}` has a right-hand side", expected)
            continue
        states = (*task.observation_names, *(hidden if word != NOISE else ()))
        if name and name not in states:
            problems.refuse(stated.line, unknown_name(name, states, what="observation"))
            continue
        try:
            if word == START:
                read_start(stated.value)
                starts[name] = stated.value.strip()
            elif word == NOISE:
                noise[name] = _deviation(stated.value)
            else:
                after = [*map(next_of, quantities), ENDS] if word == REWARD else []
                node = parse_expression(stated.value, [*quantities, *hidden] if word == ENDS else [*known, *after])
                nodes[f"{word} {name}".strip()] = node
        except ExpressionError as error:
            problems.refuse(stated.line, error)
    if len(problems) > before:
        return None
    own = {name: node for name, node in features.items() if name not in dict(task.parsed_features)}
    read = (name.removeprefix("next(").removesuffix(")") for name in read_by(nodes.values()))
    needed = in_order_of_need(own, (name for name in read if name in own), task, problems)
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
        tuple(noise.items()),
        hidden,
    )
    try:
        Equations(task, plant)
    except PolicyError as error:
        problems.add(None, str(error), "define each quantity before the lines that need it, and none by itself")
        return None
    return plant


def _deviation(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if 0 <= value < float("inf"):
        return value
    raise ExpressionError(f"`{text[:40]}` is not a standard deviation; write a number that is not negative")
