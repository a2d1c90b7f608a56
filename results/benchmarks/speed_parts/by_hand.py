"""Policies as a programmer writes them by hand for speed: straight-line Python over floats, and numpy over columns.

No guard against NaN or infinities, functions of `math` as locals, constants in the code, a statement for each feature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from policygen.policies.linear import LinearPolicy
from policygen.quantities.tree import Call, Name, Node, Number, Previous, nodes_of

_COMMON = {
    **{name: f"({{0}} {name} {{1}})" for name in ("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "and", "or")},
    **{"neg": "(-{0})", "not": "(not {0})", "fixed": "{0}", "mod": "({0} % {1})", "^": "({0} ** {1})"},
    **{name: f"{name}({{0}})" for name in ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "abs", "floor", "atan")},
    "atan2": "atan2({0}, {1})",
}
_ROW = {
    **_COMMON,
    "where": "({1} if {0} else {2})",
    "clip": "({1} if (t := {0}) < {1} else {2} if t > {2} else t)",
    "min": "(t if (t := {0}) < (u := {1}) else u)",
    "max": "(t if (t := {0}) > (u := {1}) else u)",
    "sign": "(1.0 if (t := {0}) > 0.0 else -1.0 if t < 0.0 else 0.0)",
}
_COLUMNS = {
    **_COMMON,
    **{"and": "({0} & {1})", "or": "({0} | {1})", "not": "(~{0})", "where": "where({0}, {1}, {2})"},
    **{"clip": "minimum(maximum({0}, {1}), {2})", "min": "minimum({0}, {1})", "max": "maximum({0}, {1})"},
    "sign": "sign({0})",
}
_MATH = {name: getattr(math, name) for name in ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "floor", "atan")}
_MATH |= {"atan2": math.atan2, "abs": abs, "array": np.array, "float32": np.float32}
_NUMPY: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "floor", "abs", "sign")},
    **{name: getattr(np, name) for name in ("where", "minimum", "maximum", "stack", "float32", "int64", "argmax")},
    **{"atan": np.arctan, "atan2": np.arctan2},
}


def by_hand(policy: LinearPolicy) -> Callable[..., Any]:
    """Return the function from a row of floats, and the memory if there is one, to the action (and the next memory)."""
    outputs = [_text(node, _ROW) for _, node in policy.equations]
    decided = []
    for actuator, own in zip(policy.task.actuators, policy.task.output_slices, strict=True):
        if actuator.is_choice:
            scores = outputs[own]
            first = f"(0 if {scores[0]} >= {scores[1]} else 1)" if len(scores) == 2 else ""
            decided.append(first or f"(t := ({', '.join(scores)},)).index(max(t))")
        else:
            decided.append(_ROW["clip"].format(outputs[own.start], actuator.low, actuator.high))
    action = decided[0] if policy.task.action_space == "discrete" else f"array(({', '.join(decided)},), float32)"
    body = [f"{', '.join(map(_local, policy.task.columns))}, = row"]
    if policy.remembers:
        body.append(f"{', '.join(f'{_local(name)}_before' for name in policy.remembers)}, = memory")
        action += f", ({', '.join(map(_local, policy.remembers))},)"
    return _made(policy, body, action, _ROW, _MATH, "row, memory" if policy.remembers else "row")


def columns_by_hand(policy: LinearPolicy) -> Callable[..., Any]:
    """Return the function from rows, shape (n, d), to n actions, for a policy without memory and with numbers."""
    body = [f"{', '.join(map(_local, policy.task.columns))}, = rows.T"]
    bounds = [(actuator.low, actuator.high) for actuator in policy.task.actuators]
    texts = [_text(node, _COLUMNS) for _, node in policy.equations]
    outputs = [_COLUMNS["clip"].format(text, *limits) for text, limits in zip(texts, bounds, strict=True)]
    return _made(policy, body, f"stack(({', '.join(outputs)},), axis=1).astype(float32)", _COLUMNS, _NUMPY, "rows")


def start(policy: LinearPolicy) -> tuple[float, ...]:
    """Return the memory before the first step."""
    nodes = [node for _, node in (*policy.reader.needed, *policy.equations)]
    previous = [one for node in nodes for one in nodes_of(node) if isinstance(one, Previous)]
    starts = {one.name: one.start.value for one in previous if isinstance(one.start, Number)}
    return tuple(starts[name] for name in policy.remembers)


def _made(
    policy: LinearPolicy, body: list[str], action: str, words: Mapping[str, str], names: dict[str, Any], arguments: str
) -> Callable[..., Any]:
    body += [f"{_local(name)} = {_text(node, words)}" for name, node in policy.reader.needed]
    local = ", ".join(f"{name}={name}" for name in names)
    lines = [f"def act({arguments}, {local}):", *(f"    {line}" for line in body), f"    return {action}"]
    space = dict(names)
    exec("\n".join(lines), space)
    act: Callable[..., Any] = space["act"]
    return act


def _local(name: str) -> str:
    return f"q_{''.join(c if c.isalnum() else '_' for c in name)}"


def _text(node: Node, words: Mapping[str, str]) -> str:
    match node:
        case Number(value):
            return repr(value) if value >= 0.0 else f"({value!r})"
        case Name(name):
            return _local(name)
        case Previous(name):
            return f"{_local(name)}_before"
        case Call("^", (Name(name), Number(2.0))):
            return f"({_local(name)} * {_local(name)})"
        case Call(function, arguments):
            return words[function].format(*(_text(argument, words) for argument in arguments))
    raise AssertionError(node)
