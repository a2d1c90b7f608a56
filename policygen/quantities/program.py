"""Programs: expressions lowered to an ordered list of steps, from which code in any language is generated.

`text` parses expressions to trees, this module lowers trees to a program, and a subclass of `Writer` generates code
from it: a Python function of one row or of columns (`codegen`), C, or Structured Text. Equal subterms become one step.
Terms of a sum are added in the order of the text.
"""

from __future__ import annotations

import functools
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from policygen.quantities.operations import OPERATIONS, column_of
from policygen.quantities.tree import Call, Contains, Name, Node, Number, Previous, previous_of

INFINITE = 1e6  # replaces infinite values of features and outputs, with the same sign
TESTS = frozenset(
    ("<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "equals", "contains")
)  # steps whose values are 0 or 1
_FINITE = TESTS | {"finite", "highest"}  # steps whose values are always finite
Kind = Literal["number", "test", "whole"]
_DEEPEST = 8  # most nested operations in one statement, because parsers have limits
_LOGIC = ("and", "or", "not")
# Operations that most languages write in the same way.
COMMON = {
    **{name: f"({{0}} {name} {{1}})" for name in ("+", "-", "*", "<", "<=", ">", ">=", "==", "!=", "and", "or")},
    **{"neg": "(-{0})", "not": "(not {0})", "condition": "({0} != 0.0)"},
}


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
            `look_up`: the entry of the program's table for binned values;
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
        inputs: names of the numbers in a row: observations, remembered values and constants.
        results: positions of the steps whose values are wanted.
        names: names of features and outputs, by the position of their step, for code that people read.
        table: the grid and the entries, shape (cells, ...), of the table that `look_up` reads, if there is one.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    names: dict[int, str] = field(default_factory=dict)
    table: Any = None


class Lowering:
    """A builder of programs that lowers trees to steps; later expressions may read the values named earlier.

    Args:
        observed: names of the first numbers of a row. Expressions read NaN among them as 0 and infinities as +-1e6.
        others: names of the other numbers: remembered values, called `previous_of(NAME)`, and constants.
    """

    def __init__(self, observed: Sequence[str], others: Sequence[str] = ()) -> None:
        self._inputs = (*observed, *others)
        self._steps: list[Step] = []
        self._known: dict[Step, int] = {}
        self.table: Any = None  # see `Program`
        self._labels: dict[int, str] = {}
        self.inputs = {name: self.add("input", data=position) for position, name in enumerate(self._inputs)}
        self.named = {name: self.add("finite", self.inputs[name]) for name in observed}
        self.named |= {name: self.inputs[name] for name in others}

    def define(self, name: str, node: Node) -> int:
        """Lower a feature, whose value is made finite, and let later expressions read it by its name."""
        self.named[name] = self.output(name, node)
        return self.named[name]

    def output(self, name: str, node: Node) -> int:
        """Lower an output, whose value is made finite; no other expression reads it by its name."""
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
                return self.add("start", self.named[previous_of(name)], self.lower(start))
            case Contains(name, phrase):
                own = (column_of(name, i) for i in range(len(self._inputs)))
                columns = [self.inputs[column] for column in own if column in self.inputs]
                return self.add("contains", *columns, data=phrase)
            case Call("fixed", (inner,)):
                return self.lower(inner)
            # Common powers become operations that round in the same way in every language.
            case Call("^", (base, Number(0.5))):
                return self.add("sqrt", self.lower(base))
            case Call("^", (base, Number(2.0 | 3.0 as exponent))):
                square = self.add("*", *[self.lower(base)] * 2)
                return square if exponent == 2.0 else self.add("*", square, self.lower(base))
            case Call(function, arguments):
                return self.add(function, *map(self.lower, arguments))
        raise AssertionError(node)

    def look_up(self, values: Sequence[int], grid: Any, entries: Any) -> int:
        """Add the step that looks up a table's entry for one value per dimension of its grid; return its position."""
        self.table = grid, entries
        unread = self.add("number", data=0.0)  # in place of a value that has a single bin
        read = (value if d.edges else unread for value, d in zip(values, grid.dimensions, strict=True))
        return self.add("look_up", *read)

    def add(self, op: str, *arguments: int, data: Any = None) -> int:
        """Add a step, unless an equal one exists, and return its position; operations on constants are evaluated."""
        step = Step(op, arguments, data)
        if arguments and all(self._steps[i].op == "number" for i in arguments):
            if op in OPERATIONS:
                step = Step("number", (), OPERATIONS[op].scalar(*(self._steps[i].data for i in arguments)))
            elif op == "finite":
                step = Step("number", (), finite_number(self._steps[arguments[0]].data))
        if op == "finite" and self._steps[arguments[0]].op in _FINITE:
            return arguments[0]
        # NaN does not equal itself, so each NaN would otherwise become a step of its own.
        key = Step("number", (), "nan") if step.data != step.data else step
        if key not in self._known:
            self._known[key] = len(self._steps)
            self._steps.append(step)
        return self._known[key]

    def program(self, results: Sequence[int]) -> Program:
        """Return the program with all inputs and the steps that these results need."""
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
        return Program(self._inputs, tuple(steps), tuple(new[i] for i in results), names, self.table)


def finite_number(value: float) -> float:
    """Return a finite number unchanged, 0 for NaN, and +-1e6 for infinities."""
    if value - value == 0.0:  # false for NaN and infinities
        return value
    return 0.0 if value != value else math.copysign(INFINITE, value)


class Writer(ABC):
    """A generator of code from a program, one statement after another.

    A step that is used once is written inside the step that uses it. `TESTS` are written as conditions, which are
    converted where a number is needed.

    Attributes:
        templates: the text of each operation, with `{0}`, `{1}`, ... for its arguments; conditions for `and`, `or`,
            `not` and the first argument of `where`. `number` converts a condition to a number, `condition` a number
            to a condition (NaN is not 0).
        lines: the statements written so far.
        names: the names of steps, by position; a step with a name gets a statement of its own.

    Args:
        before: the names and texts of values to be defined first.
    """

    templates: ClassVar[Mapping[str, str]]
    # These operations repeat their arguments in the text, so the arguments have to be names.
    repeated: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        program: Program,
        inputs: Sequence[str],
        names: dict[int, str] | None = None,
        before: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.program, self.names = program, names or {}
        self.lines: list[str] = []
        self._numbers: dict[int, str] = {}  # texts of steps by position
        self._conditions: dict[int, str] = {}  # the same as conditions
        self._depth: dict[int, int] = {}
        self._uses = Counter(i for step in program.steps for i in step.arguments)
        self._uses.update(program.results)
        self._uses.update(i for step in program.steps if step.op in self.repeated for i in step.arguments)
        for name, text in before:
            self.define(name, text, "number")
        for position, step in enumerate(program.steps):
            if step.op == "input":
                self._numbers[position] = inputs[step.data]
            elif step.op == "number":
                self._numbers[position] = self.literal(step.data)
            else:
                self._write(position, step)

    def number(self, position: int) -> str:
        """Return the text of a step's value as a number."""
        if position not in self._numbers:
            text = self.call("number", self._conditions[position])
            self._numbers[position] = self.define(f"n{position}", text, "number")
        return self._numbers[position]

    def condition(self, position: int) -> str:
        """Return the text of the condition that a step's value is not 0."""
        return self._conditions.get(position) or self.call("condition", self.number(position))

    def _write(self, position: int, step: Step) -> None:
        kind: Kind = "test" if step.op in TESTS else "whole" if step.op in ("highest", "look_up") else "number"
        conditions = len(step.arguments) if step.op in _LOGIC else 1 if step.op == "where" else 0
        values = [*map(self.condition, step.arguments[:conditions]), *map(self.number, step.arguments[conditions:])]
        text = self.operation_text(position, step, values)
        self._depth[position] = 1 + max((self._depth.get(i, 0) for i in step.arguments), default=0)
        is_text = text.isidentifier()
        if not is_text and (position in self.names or self._uses[position] > 1 or self._depth[position] > _DEEPEST):
            text = self.define(self.names.get(position, f"v{position}"), text, kind)
            self._depth[position] = 0
        (self._conditions if kind == "test" else self._numbers)[position] = text

    def operation_text(self, position: int, step: Step, values: Sequence[str]) -> str:
        """Return the text of an operation with these texts as arguments."""
        return self.call(step.op, *values)

    def call(self, operation: str, *arguments: str) -> str:
        """Fill in a template; arguments between commas or brackets lose their outer parentheses."""
        template = self.templates[operation]
        enclosed = _enclosed(template)
        return template.format(*(bare(text) if i in enclosed else text for i, text in enumerate(arguments)))

    @abstractmethod
    def literal(self, value: float) -> str:
        """Return the text of a constant."""

    @abstractmethod
    def define(self, name: str, text: str, kind: Kind) -> str:
        """Add a statement that assigns a value to a name; return the name."""


@functools.cache
def _enclosed(template: str) -> frozenset[int]:
    """Return the indices of the arguments that always stand between commas or brackets in a template."""
    numbers = set(map(int, re.findall(r"\{(\d)\}", template)))
    enclosed = re.compile(r"(?<=[(,\[])\s?\{(\d)\}(?=[),\]])")
    free = set(map(int, re.findall(r"\{(\d)\}", enclosed.sub("", template))))
    return frozenset(numbers - free)


def bare(text: str) -> str:
    """Return a text without the parentheses that enclose all of it, if there are any."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]
