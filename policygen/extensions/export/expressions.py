"""Expressions in another language: syntax trees -> text that computes what numpy does, NaN and infinities included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policygen.quantities.compiled import slot_of
from policygen.quantities.tree import Call, Name, Node, Number, Previous

SUM, PRODUCT, SIGN, WHOLE = 5, 6, 7, 9  # how closely a text binds
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_TESTS = (*_COMPARISONS, "and", "or", "not")


@dataclass(frozen=True)
class Language:
    """How a language writes what it has in common with others.

    Attributes:
        both, either, no: `and`, `or` and `not` of tests.
        number_of_test: a test as the number 1 or 0.
        choice: of a test and two values.
        functions: operations by their names, each as a text with a place for every argument, which stands alone there;
            the divisor of a quotient is part of a sum.
        folded: operations of two arguments that take more of them one after the other.
        helpers: definitions by the names that texts above mention.
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
    """Writes expressions; `names` has the text for every quantity, and for `prev(NAME)` that of its memory."""

    language: Language
    names: Mapping[str, str]
    used: set[str] = field(default_factory=set)

    def write(self, node: Node, at_least: int = SUM) -> str:
        """The value of an expression, in parentheses if it binds less closely than `at_least`."""
        text, level = self._value(node)
        return text if level >= at_least else f"({text})"

    def call(self, function: str, *arguments: str) -> str:
        """A function of the language, applied to texts that stand alone."""
        if function in self.language.folded and len(arguments) > 2:
            first, *rest = arguments[:-1]
            return self.call(function, self.call(function, first, *rest), arguments[-1])
        return self.helped(self.language.functions[function].format(*arguments))

    def helped(self, text: str) -> str:
        """The text; the helpers it mentions are noted."""
        self.used.update(name for name in self.language.helpers if f"{name}(" in text)
        return text

    def definitions(self) -> list[str]:
        """The helpers that were needed, those first that others need."""
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
        """Whether an expression is not 0; NaN is not."""
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
        """A test as a part of another one, which `inside` says where it is the same and comes first."""
        joined = isinstance(node, Call) and node.function in {"and", "or"} - {inside}
        return f"({self._test(node)})" if joined else self._test(node)


def _bare(node: Node) -> Node:
    """The node without `fixed`."""
    while isinstance(node, Call) and node.function == "fixed":
        (node,) = node.arguments
    return node


def number(value: float) -> str:
    """A double in C and in Python: the shortest text that reads back as the same."""
    return repr(float(value))


def weighted_sum(weights: Sequence[tuple[float, str]], constant: float) -> str:
    """`-10.0 * a + b - 0.5`, added up from the left."""
    parts = [(weight, name if abs(weight) == 1 else f"{number(abs(weight))} * {name}") for weight, name in weights]
    parts += [(constant, number(abs(constant)))] if constant != 0 or not parts else []
    text = ""
    for size, part in parts:
        sign = "-" if size < 0 else "+"
        text += f" {sign} {part}" if text else f"{'-' if size < 0 else ''}{part}"
    return text
