"""Exported Structured Text: a parser of IEC 61131-3 accepts it, and its statements decide as numpy does.

The statements that blark parses are carried out here in IEEE 754 arithmetic, more strictly than by many compilers:
nothing is converted by itself, and a temporary variable is set before it is read.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exporting import CASES, cases, every_function, flat, hostile_table, trying, written
from support import PAIR

from policygen.episodes.players import Players
from policygen.extensions.export.formats import exported
from policygen.extensions.export.program import program_of
from policygen.policies.policy import Policy
from policygen.policies.rows import Rule
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension, Grid
from policygen.quantities.operations import OPERATIONS
from policygen.tasks.spaces import Observation

parse_source_code = pytest.importorskip("blark.parse").parse_source_code

TYPES = {"LREAL": float, "DINT": int, "BOOL": bool}
OPERATORS = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": np.divide, "AND": operator.and_},
    **{"OR": operator.or_, "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le},
    **{">": operator.gt, ">=": operator.ge},
}
FUNCTIONS = {
    "SEL": lambda test, no, yes: yes if test else no,
    "MAX": lambda *values: max(values),
    **{"ABS": np.abs, "SIN": np.sin, "COS": np.cos, "TAN": np.tan, "EXP": np.exp, "SQRT": np.sqrt, "LN": np.log},
    **{
        "ATAN": np.arctan,
        "EXPT": OPERATIONS["^"].scalar,
        "LREAL_TO_LINT": round,
        "LINT_TO_LREAL": float,
        "DINT_TO_LREAL": float,
    },
}


def plain(value: Any) -> Any:
    """The value as a Python number."""
    return value.item() if isinstance(value, np.generic) else value


@functools.cache
def parsed(text: str) -> Any:
    """A function or function block; the parser takes half a second for each thousand characters."""
    found = parse_source_code(text)
    assert found.exception is None, (text, found.exception)
    (item,) = found.transform().items
    return item


class Machine:
    """The only function block of a source file, and its memory."""

    def __init__(self, text: str) -> None:
        parts = re.split(r"^(?=FUNCTION)", text, flags=re.MULTILINE)[1:]
        self.units = {str(unit.name).upper(): unit for unit in map(parsed, parts)}
        (self.block,) = [unit for unit in self.units.values() if type(unit).__name__ == "FunctionBlock"]
        self.declared = {kind: self._variables(self.block, kind) for kind in ("Input", "Output", "", "Temporary")}
        names = [name for variables in self.declared.values() for name in variables]
        assert len(names) == len(set(names)), names
        self.memory = {name: kind(0) for name, kind in {**self.declared["Output"], **self.declared[""]}.items()}

    def _variables(self, unit: Any, kind: str) -> dict[str, type]:
        return {
            str(one.variable.name).upper(): TYPES[str(item.init.spec.type)]
            for group in unit.declarations
            if type(group).__name__ == f"{kind}{'Variable' if kind in ('', 'Temporary') else ''}Declarations"
            for item in group.items
            for one in item.variables
        }

    def __call__(self, **inputs: Any) -> list[float]:
        """Return the outputs for these inputs; those that are left out are 0."""
        inputs = {name.upper(): value for name, value in inputs.items()}
        assert inputs.keys() <= self.declared["Input"].keys()
        given = {name: inputs.get(name, kind(0)) for name, kind in self.declared["Input"].items()}
        types = {name: kind for variables in self.declared.values() for name, kind in variables.items()}
        with np.errstate(all="ignore"):
            scope = {**self.memory, **given}
            self._run(self.block.body, scope, types)
        self.memory = {name: scope[name] for name in self.memory}
        return [scope[name] for name in self.declared["Output"]]

    def _run(self, body: Any, scope: dict[str, Any], types: dict[str, type]) -> None:
        for node in body.statements:
            kind = type(node).__name__
            if kind == "AssignmentStatement":
                (target,) = node.variables
                name, value = str(target.name).upper(), self._value(node.expression, scope)
                assert type(value) is types[name], (name, value)
                scope[name] = value
                continue
            if kind == "IfStatement":
                parts = [(node.if_expression, node.statements)]
                parts += [(one.if_expression, one.statements) for one in node.else_ifs]
                found = next((body for test, body in parts if self._value(test, scope)), None)
            else:
                assert kind == "CaseStatement"
                at = self._value(node.expression, scope)
                found = next((one.statements for one in node.cases if self._matches(one, at)), None)
            found = found or (node.else_clause and node.else_clause.statements)
            if found:
                self._run(found, scope, types)

    def _matches(self, case: Any, value: int) -> bool:
        ranges = [(getattr(one, "start", one), getattr(one, "stop", one)) for one in case.matches]
        return any(int(first.value) <= value <= int(last.value) for first, last in ranges)

    def _value(self, node: Any, scope: dict[str, Any]) -> Any:
        match type(node).__name__:
            case "SimpleVariable":
                return scope[str(node.name).upper()]
            case "Real":
                return float(node.value)
            case "Integer":
                return int(node.value)
            case "Boolean":
                return str(node.value).upper() == "TRUE"
            case "ParenthesizedExpression":
                return self._value(node.expr, scope)
            case "UnaryOperation":
                value = self._value(node.expr, scope)
                assert isinstance(value, bool) == (str(node.op) == "NOT")
                return not value if isinstance(value, bool) else -value
            case "BinaryOperation":
                left, right = self._value(node.left, scope), self._value(node.right, scope)
                assert type(left) is type(right), node
                return plain(OPERATORS[str(node.op)](left, right))
            case "FunctionCall":
                name, values = str(node.name.name).upper(), [self._value(one.value, scope) for one in node.parameters]
                if name in FUNCTIONS:
                    return plain(FUNCTIONS[name](*values))
                types = self._variables(self.units[name], "Input")
                assert list(map(type, values)) == list(types.values()), node
                own = dict(zip(types, values, strict=True))
                self._run(self.units[name].body, own, {**types, name: float, "REST": float})
                return own[name]
        raise AssertionError(node)


def decide(policy: Policy) -> Callable[..., list[float]]:
    """A function from an observation, and whether an episode begins, to the outputs."""
    machine, program = Machine(exported(policy, "st")), program_of(policy)
    names = [name for name in machine.declared["Input"] if name != "RESET"]

    def step(row: Any, begins: bool) -> list[float]:
        reset = {"RESET": begins} if policy.remembers else {}
        return machine(**dict(zip(names, (float(row[i]) for i, _ in program.observed), strict=True)), **reset)

    return step


@pytest.mark.parametrize("name", [*cases("mixed", "whole", "remembering"), "one row"])
def test_decisions_are_numpy_s(name: str) -> None:
    policy = CASES[name]() if name in CASES else written("| row | action |\n| * | down |", "frozenlake")
    rows, step = trying(policy, 150, np.float64), decide(policy)
    for _ in range(2):  # the second episode begins with the memory of the first
        controller = policy.controller()
        theirs = [flat(controller(row)) if policy.remembers else policy.act_one(row) for row in rows]
        ours = [step(row, i == 0) for i, row in enumerate(rows)]
        assert np.allclose(ours, np.reshape(theirs, np.shape(ours)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["exported, cartpole", "shipped, pendulum-torque-estimator"])
def test_whole_episodes_are_decided_alike(name: str) -> None:
    policy = CASES[name]()
    step = decide(policy)
    with Players(policy.task) as players:
        for episode in players.play(policy, (300, 301)):
            ours = [step(row, i == 0) for i, row in enumerate(episode.observations[:-1])]
            theirs = np.reshape(episode.actions, np.shape(ours))
            assert np.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_every_function_has_numpy_s_manners() -> None:
    texts, policy = every_function()
    step = decide(policy)
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 2**-15, 3.0, 710.0, 1e10, np.inf, -np.inf, np.nan]
    for row in np.array([[x, y] for x in values for y in values]):
        ours, theirs = step(row, True), policy.act_one(row)
        for text, one, other in zip(texts, ours, theirs, strict=True):
            assert np.isclose(one, other, rtol=1e-6, atol=1e-15), (text, row)


def test_no_word_of_a_task_becomes_code_and_many_cells_are_listed_by_action() -> None:
    policy = hostile_table()
    text = exported(policy, "st")
    assert "CASE" in text
    assert text.isascii()
    assert text.count("(*") == text.count("*)")
    code = re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL)
    assert all(re.match(r"(q|b|u|policy)_", word) for word in re.findall(r"\w*evil\w*", code)), code
    rows, step = trying(policy, 100), decide(policy)
    assert np.array_equal([step(row, True) for row in rows], policy.act(rows))


def test_reserved_words_and_case_are_no_matter() -> None:
    names = ("action", "ACTION", "Step", "step_", "end_var", "by", "a__b", "_a_b", "reset", "9")
    grid = Grid(tuple(Dimension(name, (0.0,)) for name in names))
    task = replace(PAIR, name="Task", observations=tuple(map(Observation, names)), features=(), grid=grid)
    rules = (Rule(((1,),) * len(names), (1.0, 0.0)), Rule(((0, 1),) * len(names), (0.0, 1.0)))
    text = exported(TablePolicy(task, (), grid, rules), "st")
    assert parse_source_code(text).exception is None
    declared = re.findall(r"^    (\w+) :", text, flags=re.MULTILINE)
    assert len({name.lower() for name in declared}) == len(declared) == 2 * len(names) + 2
    assert not any("__" in name or name.endswith("_") for name in declared)
