"""Read the plant in a text."""

from __future__ import annotations

from collections.abc import Mapping

from policygen.errors import ExpressionError, PolicyError
from policygen.extensions.plants.equations import ENDS, HIDDEN, NEXT, REWARD, START, Equations, Plant, read_start
from policygen.extensions.plants.fit import work_of_fit
from policygen.policies.parts import Parts
from policygen.policies.statements import Line
from policygen.quantities.text import next_of, parse_expression, to_text, unknown_name
from policygen.quantities.tree import Node, read_by
from policygen.tasks.task import decision_names

MOST_HIDDEN = 8  # hidden states: the time of a fit grows with the square of their number
MOST_WORK = 20_000  # of a fit, see `work_of_fit`: some seconds


def read_plant(parts: Parts, lines: Mapping[tuple[str, str], Line]) -> Plant | None:
    """Return the plant in a text, with the features that it needs; None if it adds problems."""
    task, problems, before = parts.task, parts.problems, len(parts.problems)
    if task.text_names:
        line = min(stated.line for stated in lines.values())
        problems.add(line, "the environment is observed as text", "leave out `next`, `reward` and `ends`")
        return None
    features = {**dict(task.parsed_features), **parts.features, **parts.private["plant"]}
    quantities = list(dict.fromkeys([*task.observation_names, *features]))
    hidden = tuple(name for word, name in lines if word == HIDDEN)
    if len(hidden) > MOST_HIDDEN:
        found = f"the plant has {len(hidden):,} hidden states"
        problems.add(lines[HIDDEN, hidden[MOST_HIDDEN]].line, found, f"write at most {MOST_HIDDEN}")
    nodes: dict[str, Node] = {}
    starts: dict[str, str] = {}
    for (word, name), stated in lines.items():
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
        equations = Equations(task, plant)
    except PolicyError as error:
        problems.add(None, str(error), "define each quantity before the lines that need it, and none by itself")
        return None
    if (work := work_of_fit(equations)) > MOST_WORK:
        found = f"a fit of the plant's {len(equations.values):,} numbers takes {work / MOST_WORK:.1f} times too long"
        problems.add(None, found, "write shorter lines with fewer numbers, or keep some as they are with `fixed(...)`")
        return None
    for name, _ in needed:
        parts.bare.pop(name, None)  # a feature, not a misspelt output
    return plant
