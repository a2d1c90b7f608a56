"""Exported Structured Text decides as numpy does: carried out here, in Python.

Statements are translated word by word: names that are not declared, and conversions that are not written, raise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from exporting import CASES, every_function, flat, trying, written

from policygen.extensions.export.formats import exported
from policygen.extensions.export.st import PolicyInST
from policygen.policies.policy import Policy
from policygen.quantities.operations import OPERATIONS

Decide = Callable[[Any], Any]  # the first row begins an episode, the others are its next steps
TYPES = {"LREAL": np.float64, "DINT": int, "BOOL": bool, "USINT": int, "UINT": int, "UDINT": int}


def of(operation: str) -> Any:
    return OPERATIONS[operation].scalar


FUNCTIONS = {
    "SEL": lambda test, no, yes: yes if test else no,
    "MAX": lambda *values: max(values),
    **{"LREAL_TO_REAL": lambda x: float(np.float32(x)), "REAL_TO_LREAL": np.float64, "EXPT": of("^"), "LN": of("log")},
    **{name: getattr(math, name.lower(), None) or of(name.lower()) for name in ("ABS", "ATAN")},
    **{name: of(name.lower()) for name in ("SIN", "COS", "TAN", "EXP", "SQRT")},
    **{f"LREAL_TO_{kind}": lambda value: round(value) for kind in ("LINT", "DINT")},
    **{f"{kind}_TO_LREAL": float for kind in ("LINT", "DINT")},
    **{f"{kind}_TO_DINT": int for kind in ("USINT", "UINT", "UDINT", "BOOL")},
    **{"real": np.float64, "np": np, "TRUE": True},
}
OPERATORS = {":=": "=", "=": "==", "<>": "!=", "AND": "and", "OR": "or", "NOT": "not"}


def in_python(text: str) -> str:
    """Rewrite expressions and statements in Python, word by word."""
    text = re.sub(r":=|<>|<=|>=|=|\b(?:AND|OR|NOT)\b", lambda found: OPERATORS.get(found[0], found[0]), text)
    return re.sub(r"(?<![\w.])\d+\.\d+(?:e[+-]?\d+)?", r"real(\g<0>)", text)  # numpy's divide by zero


def parts_of(text: str) -> tuple[dict[str, list[tuple[str, str, str]]], list[str]]:
    """Return the variables by section (name, type, value), and the lines of the body."""
    variables: dict[str, list[tuple[str, str, str]]] = {}
    for section, lines in re.findall(r"^(VAR\w*)\n(.*?)^END_VAR", text, re.DOTALL | re.MULTILINE):
        found = re.findall(r"(?m)^ *([\w, ]+) : (\w+(?:\[[^\]]*\] OF \w+)?)(?: := (\[[^\]]*\]))?;", lines)
        variables[section] = [(name.strip(), kind, value) for names, kind, value in found for name in names.split(",")]
    body = text[text.rindex("END_VAR") + 7 :]
    statements = re.split(r";\n|(?<=THEN)\n|(?<=DO)\n|(?<=ELSE)\n", body)
    return variables, [statement for statement in statements if statement.strip()]


def function(text: str, scope: dict[str, Any]) -> None:
    """Define a function of a source file."""
    (name, kind), (variables, body) = re.search(r"FUNCTION (\w+) : (\w+)", text).groups(), parts_of(text)  # type: ignore[union-attr]
    lines = [f"def {name}({', '.join(one for one, *_ in variables['VAR_INPUT'])}):"]
    for statement in body:
        indent, words = " " * (len(statement.strip("\n")) - len(statement.strip())), " ".join(statement.split())
        if words.startswith("END_"):
            continue
        words = re.sub(r"^(IF|WHILE) (.*) (?:THEN|DO)$", lambda f: f"{f[1].lower()} {in_python(f[2])}:", words)
        words = "else:" if words == "ELSE" else words if words.endswith(":") else in_python(words)
        lines.append(f"{indent}{words}".replace(f"{name} =", "result ="))
    exec("\n".join([*lines, f"    return {'real' if kind == 'LREAL' else 'int'}(result)"]), scope)


def carried_out(policy: Policy) -> Decide:
    """Return the function block, carried out in Python."""
    code = re.sub(r"\(\*.*?\*\)", "", exported(policy, "st"), flags=re.DOTALL)
    scope: dict[str, Any] = dict(FUNCTIONS)
    *functions, block = re.split(r"^(?=FUNCTION)", code, flags=re.MULTILINE)[1:]
    for one in functions:
        function(one, scope)
    variables, body = parts_of(block.replace("END_FUNCTION_BLOCK", ""))
    names = [name for section in variables.values() for name, *_ in section]
    assert len({name.lower() for name in names}) == len(names)
    types: dict[str, Any] = {name: TYPES.get(kind) for section in variables.values() for name, kind, _ in section}
    statements = []
    for statement in body:
        target, _, value = " ".join(statement.split()).partition(" := ")
        assert target in types
        statements.append((target, compile(in_python(value), target, "eval")))
    for name, kind, value in variables.get("VAR", ()):
        scope[name] = np.array(eval(value)) if value else TYPES[kind](0)
        if name == "pg_actions":
            scope[name] = scope[name].reshape([int(n) + 1 for n in re.findall(r"\.\.(\d+)", kind)])
    given = [name for name, *_ in variables.get("VAR_INPUT", ()) if name != "RESET"]

    observed = PolicyInST(policy).observed

    def step(row: Any, begins: bool) -> list[float]:
        scope.update(zip(given, (np.float64(row[i]) for i in observed), strict=True), RESET=begins)
        for target, value in statements:
            with np.errstate(all="ignore"):
                found = eval(value, scope)
            assert isinstance(found, float if types[target] is np.float64 else types[target] | np.integer | np.bool_), (
                target
            )
            scope[target] = types[target](found)
        return [scope[name] for name, *_ in variables["VAR_OUTPUT"]]

    return lambda rows: [step(row, i == 0) for i, row in enumerate(rows)]


@pytest.mark.parametrize("name", list(CASES))
def test_decisions_are_numpy_s(name: str) -> None:
    policy = CASES[name]()
    rows, decide = trying(policy, 150, np.float32).astype(np.float64), carried_out(policy)
    for _ in range(2):  # the second episode begins with the memory of the first
        controller = policy.controller()
        theirs = [flat(controller(row)) if policy.remembers else policy.act_one(row) for row in rows]
        ours = decide(rows)
        assert np.allclose(ours, np.reshape(theirs, np.shape(ours)), rtol=1e-5, atol=1e-5)


def test_every_function_has_numpy_s_manners() -> None:
    texts, policy = every_function()
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 2**-15, 3.0, 710.0, 1e10, np.inf, -np.inf, np.nan]
    rows = np.array([[x, y] for x in values for y in values])
    for row, ours in zip(rows, carried_out(policy)(rows), strict=True):
        for text, one, other in zip(texts, ours, policy.act_one(row), strict=True):
            assert np.isclose(one, other, rtol=1e-6, atol=1e-14), (text, row)


def test_numbers_beyond_single_precision_are_written_exactly() -> None:
    policy = written("torque = clip(1e300*sin*1e-300 + 5e-324*1e300*cos + 1.7e308*rate*0 + 1/3, -2, 2)", "pendulum")
    rows = trying(policy, 50, np.float64)
    assert np.ravel(carried_out(policy)(rows)).tolist() == [float(policy.act_one(row)[0]) for row in rows]
