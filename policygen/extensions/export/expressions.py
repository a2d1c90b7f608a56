"""Expressions in other languages: syntax trees become text with numpy's results, NaN and infinities included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policygen.quantities.compiled import slot_of
from policygen.quantities.tree import Call, Name, Node, Number, Previous

SUM, PRODUCT, SIGN, WHOLE = 5, 6, 7, 9  # precedence of a text
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_TESTS = (*_COMPARISONS, "and", "or", "not")


@dataclass(frozen=True)
class Language:
    """Templates of a language for operations that many languages share.

    Attributes:
        both, either, no: `and`, `or` and `not` of tests.
        number_of_test: a test as the number 1 or 0.
        choice: a conditional expression of a test and two values.
        functions: templates of operations by name, with a placeholder for each argument; arguments need no parentheses
            there, and the divisor of a quotient stands in a sum.
        folded: operations of two arguments that are nested for more arguments.
        helpers: definitions, by the names used in the templates above.
    """

    both: str
    either: str
    no: str
    number_of_test: str
    choice: str
    functions: Mapping[str, str]
    folded: tuple[str, ...]
    helpers: Mapping[str, str]


@dataclass(frozen=True)
class Writer:
    """Writes expressions; `names` has the text of every quantity, and of the memory behind each `prev(NAME)`."""

    language: Language
    names: Mapping[str, str]
    used: set[str] = field(default_factory=set)

    def write(self, node: Node, at_least: int = SUM) -> str:
        """Write the value of an expression, in parentheses if its precedence is below `at_least`."""
        text, level = self._value(node)
        return text if level >= at_least else f"({text})"

    def call(self, function: str, *arguments: str) -> str:
        """Write a call of a function of the language; the arguments need no parentheses."""
        if function in self.language.folded and len(arguments) > 2:
            first, *rest = arguments[:-1]
            return self.call(function, self.call(function, first, *rest), arguments[-1])
        return self.helped(self.language.functions[function].format(*arguments))

    def helped(self, text: str) -> str:
        """Return the text, and note the helpers in it."""
        self.used.update(name for name in self.language.helpers if f"{name}(" in text)
        return text

    def definitions(self) -> list[str]:
        """Return the definitions of all noted helpers, in order of dependence."""
        waiting, needed = list(self.used), set(self.used)
        while waiting:
            source = self.language.helpers[waiting.pop()]
            further = {name for name in self.language.helpers if f"{name}(" in source} - needed
            needed |= further
            waiting += further
        return [source for name, source in self.language.helpers.items() if name in needed]

    def _value(self, node: Node) -> tuple[str, int]:
        match node:
            case Number(value):
                return number(value), SIGN if value < 0 or number(value)[0] == "-" else WHOLE
            case Name(name):
                return self.names[name], WHOLE
            case Previous(name, start):
                return self.call("prev", self.names[slot_of(name)], self.write(start)), WHOLE
            case Call("fixed", (inner,)):
                return self._value(inner)
            case Call("+" | "-" as sign, (left, right)):
                return f"{self.write(left, SUM)} {sign} {self.write(right, PRODUCT)}", SUM
            case Call("*", (left, right)):
                return f"{self.write(left, PRODUCT)} * {self.write(right, SIGN)}", PRODUCT
            case Call("/", (left, right)):
                divisor = _bare(right)
                if isinstance(divisor, Number) and divisor.value != 0:
                    return f"{self.write(left, PRODUCT)} / {self.write(divisor, SIGN)}", PRODUCT
                return self.call("/", self.write(left, PRODUCT), self.write(right)), PRODUCT
            case Call("neg", (inner,)):
                return f"-{self.write(inner, WHOLE)}", SIGN
            case Call("^", (base, Number(2.0))):
                return self.call("square", self.write(base)), WHOLE
            case Call("where", (test, yes, no)):
                return self.language.choice.format(self._test(test), self.write(yes), self.write(no)), WHOLE
            case Call(function, _) if function in _TESTS:
                return self.language.number_of_test.format(self._test(node)), WHOLE
            case Call(function, arguments):
                return self.call(function, *map(self.write, arguments)), WHOLE
        raise AssertionError(node)

    def _test(self, node: Node) -> str:
        """Write a test that an expression is not 0; NaN passes."""
        match node:
            case Call("and" | "or" as function, (left, right)):
                join = self.language.both if function == "and" else self.language.either
                return join.format(self._alone(left, function), self._alone(right, ""))
            case Call("not", (inner,)):
                return self.language.no.format(self._test(inner))
            case Call(function, (left, right)) if function in _COMPARISONS:
                return f"{self.write(left)} {function} {self.write(right)}"
        return f"{self.write(node)} != 0.0"

    def _alone(self, node: Node, inside: str) -> str:
        """Write a test as part of another one, in parentheses if its operator is not `inside`."""
        joined = isinstance(node, Call) and node.function in {"and", "or"} - {inside}
        return f"({self._test(node)})" if joined else self._test(node)


def _bare(node: Node) -> Node:
    """Return the node without `fixed`."""
    while isinstance(node, Call) and node.function == "fixed":
        (node,) = node.arguments
    return node


def number(value: float) -> str:
    """Format a double for C and Python: the shortest text that reads back as the same number."""
    return repr(float(value))


def weighted_sum(weights: Sequence[tuple[float, str]], constant: float) -> str:
    """Write a weighted sum, `-10.0 * a + b - 0.5`, added from the left."""
    parts = [(weight, name if abs(weight) == 1 else f"{number(abs(weight))} * {name}") for weight, name in weights]
    parts += [(constant, number(abs(constant)))] if constant != 0 or not parts else []
    text = ""
    for size, part in parts:
        sign = "-" if size < 0 else "+"
        text += f" {sign} {part}" if text else f"{'-' if size < 0 else ''}{part}"
    return text
