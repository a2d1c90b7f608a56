"""Read the plant that the parts of a text state."""

from __future__ import annotations

from policygen.errors import ExpressionError, PolicyError
from policygen.policies.lines import Problems
from policygen.policies.parts import ENDS, HIDDEN, Parts, Scope, in_order_of_need
from policygen.policies.plant import NEXT, NOISE, START, Equations, Plant, read_start
from policygen.policies.shaping import REWARD
from policygen.quantities.text import next_of, parse_expression, to_text, unknown_name
from policygen.quantities.tree import Node, read_by
from policygen.tasks.task import decision_names


def read_plant(parts: Parts, scope: Scope, problems: Problems) -> Plant | None:
    """Return the plant that a text states, with the features it needs; None if it states none, or has problems."""
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
                found = f"`hidden {name}` has a right-hand side"
                problems.add(
                    stated.line, found, f"write `hidden {name}` alone, and `start {name} = ...` on another line"
                )
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
    plant = Plant(
        tuple((name, to_text(node)) for name, node in needed),
        tuple((line.removeprefix(f"{NEXT} "), to_text(node)) for line, node in nodes.items() if line.startswith(NEXT)),
        to_text(nodes[REWARD]) if REWARD in nodes else "",
        to_text(nodes[ENDS]) if ENDS in nodes else "",
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
    raise ExpressionError(f"`{text[:40]}` is no standard deviation; write a number that is not negative")
