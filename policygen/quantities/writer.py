"""The statements that compute a program, in a language that a subclass spells by a table of templates."""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from policygen.quantities.program import TESTS, Program, Step

Kind = Literal["number", "test", "whole"]

_DEEPEST = 8  # nested operations of one statement: parsers have limits
_LOGIC = ("and", "or", "not")
# Operations that most languages spell alike.
COMMON = {
    **{name: f"({{0}} {name} {{1}})" for name in ("+", "-", "*", "<", "<=", ">", ">=", "==", "!=", "and", "or")},
    **{"neg": "(-{0})", "not": "(not {0})", "condition": "({0} != 0.0)"},
}


class Writer(ABC):
    """A writer of the statements of a program, one step after another.

    A step that is used once is written inside the step that uses it. `TESTS` are written as conditions, and converted
    where a number is needed.

    Attributes:
        templates: the text of each operation, with `{0}`, `{1}`, ... for its arguments; conditions for `and`, `or`,
            `not` and the first argument of `where`. `number` converts a condition to a number, `condition` a number
            to a condition (NaN is not 0).
        lines: the statements so far.
        names: the names of steps, by position; a step with a name gets a statement of its own.

    Args:
        before: names and texts of values that are defined first.
    """

    templates: ClassVar[Mapping[str, str]]
    # The arguments of these operations are written more than once, so they have to be names.
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
        """Return the text of a step's value as a condition: whether it is not 0."""
        return self._conditions.get(position) or self.call("condition", self.number(position))

    def _write(self, position: int, step: Step) -> None:
        kind: Kind = "test" if step.op in TESTS else "whole" if step.op in ("highest", "look_up") else "number"
        conditions = len(step.arguments) if step.op in _LOGIC else 1 if step.op == "where" else 0
        values = [*map(self.condition, step.arguments[:conditions]), *map(self.number, step.arguments[conditions:])]
        text = self.spelled(position, step, values)
        self._depth[position] = 1 + max((self._depth.get(i, 0) for i in step.arguments), default=0)
        is_text = text.isidentifier()
        if not is_text and (position in self.names or self._uses[position] > 1 or self._depth[position] > _DEEPEST):
            text = self.define(self.names.get(position, f"v{position}"), text, kind)
            self._depth[position] = 0
        (self._conditions if kind == "test" else self._numbers)[position] = text

    def spelled(self, position: int, step: Step, values: Sequence[str]) -> str:
        """Return the text of an operation with these arguments."""
        return self.call(step.op, *values)

    def call(self, operation: str, *arguments: str) -> str:
        """Fill in a template; an argument between commas or brackets needs no parentheses of its own."""
        template = self.templates[operation]
        enclosed = _enclosed(template)
        return template.format(*(bare(text) if i in enclosed else text for i, text in enumerate(arguments)))

    @abstractmethod
    def literal(self, value: float) -> str:
        """Return the text of a constant."""

    @abstractmethod
    def define(self, name: str, text: str, kind: Kind) -> str:
        """Add the statement that gives a value a name; return the name."""


@functools.cache
def _enclosed(template: str) -> frozenset[int]:
    """Return the numbers of the arguments that stand between commas or brackets wherever they occur."""
    numbers = set(map(int, re.findall(r"\{(\d)\}", template)))
    enclosed = re.compile(r"(?<=[(,\[])\s?\{(\d)\}(?=[),\]])")
    free = set(map(int, re.findall(r"\{(\d)\}", enclosed.sub("", template))))
    return frozenset(numbers - free)


def bare(text: str) -> str:
    """Return a text without parentheses around the whole of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]
