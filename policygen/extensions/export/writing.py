"""Expressions in other languages, with the results of numpy, NaN included; safe names and comments.

A task may be untrusted. Its words only appear in identifiers of letters, digits and underscores after a prefix, or in
comments of one line that they cannot close.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import ClassVar

from policygen.quantities.compiled import slot_of
from policygen.quantities.tree import Call, Name, Node, Number, Previous

SUM, PRODUCT, SIGN, ATOM = 5, 6, 7, 9  # precedences; a higher one binds tighter
MOST_CHARACTERS = 50  # of an identifier without its prefix; C99 distinguishes identifiers by 63 characters
_SPELLED = str.maketrans({"°": "deg", "µ": "u", "μ": "u", "Ω": "ohm", "−": "-", "–": "-", "×": "*", "·": "*"})


class Writer:
    """Writes expressions in a language; a subclass has the templates of its language.

    Attributes:
        names: the text of every quantity and, by `slot_of(NAME)`, of every remembered value.
        both, either, no: templates of `and`, `or` and `not`, for tests.
        nonzero: template of the test that a value is not 0.
        compared: templates of comparisons, for tests.
        as_number: template that converts a test, or a whole number, to a number.
        choice: template of a conditional expression with a test and two values.
        functions: templates of operations by name, with a placeholder for each argument. Arguments are inserted without
            parentheses, except that the dividend of `/` has them if it is a sum.
    """

    names: Mapping[str, str]
    both: ClassVar[str]
    either: ClassVar[str]
    no: ClassVar[str]
    nonzero: ClassVar[str] = "{0} != 0.0"
    compared: ClassVar[Mapping[str, str]] = {s: f"{{0}} {s} {{1}}" for s in ("<", "<=", ">", ">=", "==", "!=")}
    as_number: ClassVar[str]
    choice: ClassVar[str]
    functions: ClassVar[Mapping[str, str]]

    def write(self, node: Node, at_least: int = SUM) -> str:
        """Write the value of an expression, in parentheses if its precedence is below `at_least`."""
        text, level = self.value(node)
        return text if level >= at_least else f"({text})"

    def call(self, function: str, *arguments: str) -> str:
        """Write a call of a function of the language; the arguments need no parentheses."""
        return self.functions[function].format(*arguments)

    def value(self, node: Node) -> tuple[str, int]:
        """Write an expression; return the text and its precedence."""
        match node:
            case Number(value):
                return double(value), SIGN if value < 0 or double(value)[0] == "-" else ATOM
            case Name(name):
                return self.names[name], ATOM
            case Previous(name, start):
                return self.call("prev", self.names[slot_of(name)], self.write(start)), ATOM
            case Call("fixed", (inner,)):
                return self.value(inner)
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
                return f"-{self.write(inner, ATOM)}", SIGN
            case Call("^", (base, Number(2.0))):
                return self.call("square", self.write(base)), ATOM
            case Call("where", (test, yes, no)):
                return self.choice.format(self._test(test), self.write(yes), self.write(no)), ATOM
            case Call(function, _) if function in self.compared or function in ("and", "or", "not"):
                return self.as_number.format(self._test(node)), ATOM
            case Call("min" | "max" as function, (*first, last)) if len(first) > 1:
                return self.call(function, self.write(Call(function, tuple(first))), self.write(last)), ATOM
            case Call(function, arguments):
                return self.call(function, *map(self.write, arguments)), ATOM
        raise AssertionError(node)

    def _test(self, node: Node) -> str:
        """Write a test that an expression is not 0; NaN passes."""
        match node:
            case Call("and" | "or" as function, (left, right)):
                join = self.both if function == "and" else self.either
                return join.format(self._part(left, function), self._part(right, ""))
            case Call("not", (inner,)):
                return self.no.format(self._test(inner))
            case Call(function, (left, right)) if function in self.compared:
                return self.compared[function].format(self.write(left), self.write(right))
        return self.nonzero.format(self.write(node))

    def _part(self, node: Node, inside: str) -> str:
        """Write a test as part of another one, in parentheses if its operator is not `inside`."""
        joined = isinstance(node, Call) and node.function in {"and", "or"} - {inside}
        return f"({self._test(node)})" if joined else self._test(node)


def _bare(node: Node) -> Node:
    """Return the expression inside `fixed`; any other node as it is."""
    while isinstance(node, Call) and node.function == "fixed":
        (node,) = node.arguments
    return node


def double(value: float) -> str:
    """Format a double for C and Python: the shortest text that reads back as the same number."""
    return repr(float(value))


def weighted_sum(weights: Sequence[tuple[float, str]], constant: float) -> str:
    """Write a weighted sum such as `-10.0 * a + b - 0.5`."""
    parts = [(weight, name if abs(weight) == 1 else f"{double(abs(weight))} * {name}") for weight, name in weights]
    parts += [(constant, double(abs(constant)))] if constant != 0 or not parts else []
    text = ""
    for size, part in parts:
        sign = "-" if size < 0 else "+"
        text += f" {sign} {part}" if text else f"{'-' if size < 0 else ''}{part}"
    return text


# --- names and comments ----------------------------------------------------------------------------------------------


class Identifiers:
    """Creates unique identifiers."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, prefix: str, name: str) -> str:
        """Return `PREFIX_NAME` with an underscore for other characters, and with a number if the name is taken.

        Structured Text ignores case and forbids two underscores in a row.
        """
        wanted = "_".join([prefix, *re.findall("[A-Za-z0-9]+", name[:MOST_CHARACTERS])])
        found, count = wanted, 1
        while found.lower() in self._taken:
            count += 1
            found = f"{wanted}_{count}"
        self._taken.add(found.lower())
        return found


def plain_ascii(text: str) -> str:
    """Convert `text` to one line of printable ASCII: `m/s²` becomes `m/s2`, an unknown character `_`."""
    spelled = unicodedata.normalize("NFKD", text.translate(_SPELLED))
    spelled = "".join(c for c in spelled if not unicodedata.combining(c))
    return re.sub(r"[^ -~]", "_", re.sub(r"\s", " ", spelled))


def comment_text(text: str) -> str:
    """Return `text` made safe for comments in C, Python and Structured Text: it ends no comment and adds no line."""
    quiet = plain_ascii(text).replace("\\", "_")
    # Characters that could close a comment are separated, and trigraphs removed.
    quiet = re.sub(r"\?+", "?", quiet)
    return re.sub(r"\*(?=[/)])|[/(](?=\*)", lambda found: found[0] + " ", quiet)
