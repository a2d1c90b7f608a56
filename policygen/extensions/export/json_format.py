"""Export to JSON for any language: trees instead of text, edges as exact numbers."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import astuple
from typing import Any

from policygen.extensions.export.program import Program, table_data
from policygen.policies.linear import LinearPolicy
from policygen.policies.table import TablePolicy
from policygen.quantities.compiled import INFINITE
from policygen.quantities.text import to_text
from policygen.quantities.tree import Call, Name, Node, Number, Previous
from policygen.tasks.spaces import Actuator

FORMAT = "policygen-portable/1"
_RULES = (
    "A step: take the observation; compute the definitions in order; decide; remember.",
    "A tree is a number, the name of a quantity, or a list of an operation and its arguments. `prev` NAME START is the "
    "value of NAME at the previous step; at the first step it is START.",
    f"For a definition, a term or an output, NaN counts as 0, and an infinite value as {INFINITE:g} with its sign.",
    "Tests are 1 or 0; NaN counts as true. mod has the divisor's sign; min and max of NaN are NaN; there is no -0.",
    "A bin is the number of edges at or below a value, all of them for NaN. Cells are numbered with the last dimension "
    "the fastest; `codes` gives runs of cells: how many, and the index in `actions`.",
    "An output of a choice is a score: the first label with the highest score is taken. Numbers are clipped to limits; "
    "if `whole`, they are rounded to the nearest whole number, a half to the even one.",
)


def as_json(program: Program) -> str:
    """Return the policy as one JSON object, which explains its own format."""
    policy, task = program.policy, program.policy.task
    bounds = zip(task.actuators, task.limits.bounds, strict=True)
    record = {
        "format": FORMAT,
        "how_to_read": list(_RULES),
        "task": {"name": task.name, "gym_id": task.gym_id},
        "observation": [
            {"name": o.name, "unit": o.unit, "low": _limit(o.low), "high": _limit(o.high)} for o in task.observations
        ],
        "action": {"space": task.action_space, "parts": [_part(actuator, whole) for actuator, (_, _, whole) in bounds]},
        "definitions": [
            {"name": name, "text": to_text(node), "tree": _tree(node)} for name, node in program.definitions
        ],
        "remembered": [
            {
                key: value
                for key, value in zip(("name", "action", "is"), astuple(kept), strict=True)
                if value is not None
            }
            for kept in program.remembered_values
        ],
        "text": policy.to_text(whole=True).splitlines(),
        **(_table(policy) if isinstance(policy, TablePolicy) else _equations(policy)),
    }
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_spread(value)}" for key, value in record.items()) + "\n}\n"


def _part(actuator: Actuator, whole: bool) -> dict[str, Any]:
    if actuator.is_choice:
        return {"name": actuator.name, "labels": list(actuator.labels)}
    limits = {"name": actuator.name, "unit": actuator.unit, "low": actuator.low, "high": actuator.high}
    return limits | ({"whole": True} if whole else {})


def _spread(value: Any) -> str:
    """Format a list of lists or objects with one item per line, other values on one line."""
    if not isinstance(value, list) or all(isinstance(item, int | float) for item in value):
        return json.dumps(value)
    return "[" + ",".join(f"\n  {json.dumps(item)}" for item in value) + "]"


def _table(policy: TablePolicy) -> dict[str, Any]:
    cells = table_data(policy)
    choices = [[i] for i in range(len(policy.task.actuators[0].labels))]
    return {
        "kind": "table",
        "dimensions": [{"name": d.name, "edges": list(d.rounded_edges)} for d in policy.grid.dimensions],
        "actions": choices if cells.actions is None else cells.actions.tolist(),
        "codes": [[len(list(group)), code] for code, group in itertools.groupby(cells.codes.tolist())],
    }


def _equations(policy: LinearPolicy) -> dict[str, Any]:
    columns = zip(policy.equations, policy.weights.T.tolist(), policy.bias.tolist(), strict=True)
    return {
        "kind": "linear",
        "terms": [_tree(term) for term in policy.terms],
        "outputs": [
            {"name": name, "weights": [[weight, i] for i, weight in enumerate(weights) if weight], "constant": constant}
            for (name, _), weights, constant in columns
        ],
    }


def _limit(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _tree(node: Node) -> Any:
    """Convert an expression to nested lists."""
    match node:
        case Number(value):
            return value
        case Name(name):
            return name
        case Previous(name, start):
            return ["prev", name, _tree(start)]
        case Call("fixed", (inner,)):
            return _tree(inner)
        case Call(function, arguments):
            return [function, *map(_tree, arguments)]
    raise AssertionError(node)
