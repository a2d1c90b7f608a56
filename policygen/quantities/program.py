"""Programs: expressions lowered to an ordered list of steps, which every evaluator spells out in its own language.

Text becomes a tree (`text`), trees become a program here, and a program becomes a function of one row or of columns
(`spelling`), C, or another language. Equal subterms are one step. Sums are added in the order of the text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from policygen.quantities.operations import OPERATIONS
from policygen.quantities.tree import Call, Contains, Name, Node, Number, Previous
from policygen.quantities.words import column_of

INFINITE = 1e6  # replaces an infinite value of a feature or an output, with its sign
TESTS = frozenset(("<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "equals", "contains"))  # steps that are 0 or 1


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a program.

    Attributes:
        op: an operation of `policygen.quantities.operations`, or one of
            `input`: a number of the row, `data` is its position;
            `number`: the constant `data`;
            `finite`: its argument with NaN as 0 and infinities as +-1e6;
            `start`: its first argument, a remembered value, or the second one if that is NaN (the first step);
            `contains`: whether the text in its columns contains the phrase `data`;
            `look_up`: the entry of a table for binned values, `data` is the table's position in `Program.tables`;
            `part`: number `data` of the action that `look_up` found;
            `highest`: the position of its largest argument, on a tie the first;
            `limited`: its argument within `data` = (low, high, whether it is rounded to an integer);
            `single`: its argument rounded to single precision;
            `equals`: whether a choice is the label number `data`.
        arguments: positions of earlier steps.
    """

    op: str
    arguments: tuple[int, ...] = ()
    data: Any = None


@dataclass(frozen=True, slots=True)
class Program:
    """Steps in an order in which each can be computed.

    Attributes:
        inputs: names of the numbers of a row; it may hold observations, remembered values and constants.
        results: positions of the steps whose values are wanted.
        names: names of features and outputs by the position of their steps, for code that people read.
        tables: the grid and the entries, shape (cells, ...), of each table that `look_up` reads.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    names: dict[int, str] = field(default_factory=dict)
    tables: tuple[Any, ...] = ()


def slot_of(name: str) -> str:
    """Return the name of a quantity's value one step earlier; the value is NaN at the first step."""
    return f"prev({name})"


class Lowering:
    """The lowering of trees to steps, in which named values may be read by later expressions.

    Args:
        observed: names of the first numbers of a row. Expressions read NaN among them as 0, and infinities as +-1e6.
        others: names of the further numbers: remembered values, called `slot_of(NAME)`, and constants.
    """

    def __init__(self, observed: Sequence[str], others: Sequence[str] = ()) -> None:
        self._inputs = (*observed, *others)
        self._steps: list[Step] = []
        self._known: dict[Step, int] = {}
        self._tables: list[Any] = []
        self._labels: dict[int, str] = {}
        self.inputs = {name: self.add("input", data=position) for position, name in enumerate(self._inputs)}
        self.named = {name: self.add("finite", self.inputs[name]) for name in observed}
        self.named |= {name: self.inputs[name] for name in others}

    def define(self, name: str, node: Node) -> int:
        """Lower a feature, whose value is made finite, and let later expressions read it by its name."""
        self.named[name] = self.output(name, node)
        return self.named[name]

    def output(self, name: str, node: Node) -> int:
        """Lower an expression whose value is made finite and which no other expression reads by this name."""
        position = self.add("finite", self.lower(node))
        self._labels.setdefault(position, name)
        return position

    def lower(self, node: Node) -> int:
        """Return the position of the step that computes an expression."""
        match node:
            case Number(value):
                return self.add("number", data=float(value))
            case Name(name):
                return self.named[name]
            case Previous(name, start):
                return self.add("start", self.named[slot_of(name)], self.lower(start))
            case Contains(name, phrase):
                own = (column_of(name, i) for i in range(len(self._inputs)))
                columns = [self.inputs[column] for column in own if column in self.inputs]
                return self.add("contains", *columns, data=phrase)
            case Call("fixed", (inner,)):
                return self.lower(inner)
            case Call("^", (base, Number(exponent))) if exponent in (0.5, 2.0, 3.0):
                return self._power(self.lower(base), exponent)
            case Call(function, arguments):
                return self.add(function, *map(self.lower, arguments))
        raise AssertionError(node)

    def _power(self, base: int, exponent: float) -> int:
        """Lower a common power to operations that round in the same way in every language."""
        if exponent == 0.5:
            return self.add("sqrt", base)
        square = self.add("*", base, base)
        return square if exponent == 2.0 else self.add("*", square, base)

    def look_up(self, values: Sequence[int], grid: Any, entries: Any) -> int:
        """Return the step that finds the entry of a table for one value per dimension of its grid."""
        self._tables.append((grid, entries))
        unread = self.add("number", data=0.0)  # in place of a value that has a single bin
        read = (value if d.edges else unread for value, d in zip(values, grid.dimensions, strict=True))
        return self.add("look_up", *read, data=len(self._tables) - 1)

    def is_table(self, position: int) -> bool:
        """Whether a step looks up a table."""
        return self._steps[position].op == "look_up"

    def add(self, op: str, *arguments: int, data: Any = None) -> int:
        """Return the position of a step, which is new unless an equal one exists; operations on constants are done."""
        step = Step(op, arguments, data)
        if arguments and all(self._steps[i].op == "number" for i in arguments):
            if op in OPERATIONS:
                step = Step("number", (), OPERATIONS[op].scalar(*(self._steps[i].data for i in arguments)))
            elif op == "finite":
                step = Step("number", (), finite_number(self._steps[arguments[0]].data))
        if op == "finite" and self._is_finite(arguments[0]):
            return arguments[0]
        # NaN does not equal itself: without this, each NaN would be a step of its own.
        key = Step("number", (), "nan") if step.data != step.data else step
        if key not in self._known:
            self._known[key] = len(self._steps)
            self._steps.append(step)
        return self._known[key]

    def _is_finite(self, position: int) -> bool:
        step = self._steps[position]
        return (
            step.op in TESTS or step.op in ("finite", "highest") or (step.op == "number" and math.isfinite(step.data))
        )

    def program(self, results: Sequence[int]) -> Program:
        """Return a program of the steps that these results need, and of all inputs."""
        needed, waiting = set(range(len(self._inputs))), list(results)
        while waiting:
            if (position := waiting.pop()) not in needed:
                needed.add(position)
                waiting += self._steps[position].arguments
        kept = sorted(needed)
        new = {old: position for position, old in enumerate(kept)}
        steps = []
        for old in kept:
            step = self._steps[old]
            steps.append(Step(step.op, tuple(new[i] for i in step.arguments), step.data))
        names = {new[i]: name for i, name in self._labels.items() if i in new}
        return Program(self._inputs, tuple(steps), tuple(new[i] for i in results), names, tuple(self._tables))


def finite_number(value: float) -> float:
    """Return the number itself if it is finite, 0 for NaN, and +-1e6 for infinities."""
    if value - value == 0.0:  # false for NaN and infinities
        return value
    return 0.0 if value != value else math.copysign(INFINITE, value)
