"""Expressions in other languages, with the results of numpy, NaN included; safe comments.

A task may be untrusted. Its words only appear in identifiers of letters, digits and underscores after a prefix, or in
comments of one line that they cannot close.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import ClassVar

from policygen.quantities.compiled import slot_of
from policygen.quantities.tree import Call, Name, Node, Number, Previous

SUM, PRODUCT, SIGN, ATOM = 5, 6, 7, 9  # precedences; a higher one binds tighter
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_SPELLED = str.maketrans({"°": "deg", "µ": "u", "μ": "u", "Ω": "ohm", "−": "-", "–": "-", "×": "*", "·": "*"})


class Writer:
    """Writes expressions in a language; a subclass has the templates of its language.

    Attributes:
        names: the text of every quantity and, by `slot_of(NAME)`, of every remembered value.
        templates: the text of operations by name, with a placeholder for each argument. Arguments are inserted without
            parentheses, except that the dividend of `/` has them if it is a sum. `and`, `or`, `not`, comparisons and
            the first argument of `where` are tests; `nonzero` tests that a value is not 0, and `number` converts a
            test, or a whole number, to a number.
    """

    names: Mapping[str, str]
    templates: ClassVar[Mapping[str, str]] = {
        "nonzero": "{0} != 0.0",
        **{symbol: f"{{0}} {symbol} {{1}}" for symbol in COMPARISONS},
    }

    def write(self, node: Node, at_least: int = SUM) -> str:
        """Write the value of an expression, in parentheses if its precedence is below `at_least`."""
        text, level = self._value(node)
        return text if level >= at_least else f"({text})"

    def call(self, operation: str, *arguments: str) -> str:
        """Write an operation; the arguments need no parentheses."""
        return self.templates[operation].format(*arguments)

    def _value(self, node: Node) -> tuple[str, int]:
        """Write an expression; return the text and its precedence."""
        match node:
            case Number(value):
                return double(value), SIGN if double(value)[0] == "-" else ATOM
            case Name(name):
                return self.names[name], ATOM
            case Previous(name, start):
                return self.call("prev", self.names[slot_of(name)], self.write(start)), ATOM
            case Call("fixed", (inner,)):
                return self._value(inner)
            case Call("+" | "-" as sign, (left, right)):
                return f"{self.write(left, SUM)} {sign} {self.write(right, PRODUCT)}", SUM
            case Call("*", (left, right)):
                return f"{self.write(left, PRODUCT)} * {self.write(right, SIGN)}", PRODUCT
            case Call("/", (left, (Number(value) as divisor) | Call("fixed", (Number(value) as divisor,)))) if (
                value != 0
            ):
                return f"{self.write(left, PRODUCT)} / {self.write(divisor, SIGN)}", PRODUCT
            case Call("/", (left, right)):
                return self.call("/", self.write(left, PRODUCT), self.write(right)), PRODUCT
            case Call("neg", (inner,)):
                return f"-{self.write(inner, ATOM)}", SIGN
            case Call("^", (base, Number(2.0))):
                return self.call("square", self.write(base)), ATOM
            case Call("where", (test, yes, no)):
                return self.call("where", self._test(test), self.write(yes), self.write(no)), ATOM
            case Call("and" | "or" | "not" | "<" | "<=" | ">" | ">=" | "==" | "!="):
                return self.call("number", self._test(node)), ATOM
            case Call("min" | "max" as function, (*first, last)) if len(first) > 1:
                return self.call(function, self.write(Call(function, tuple(first))), self.write(last)), ATOM
            case Call(function, arguments):
                return self.call(function, *map(self.write, arguments)), ATOM
        raise AssertionError(node)

    def _test(self, node: Node) -> str:
        """Write a test that an expression is not 0; NaN passes."""
        match node:
            case Call("and" | "or" as function, (left, right)):
                return self.call(function, self._operand(left, function), self._operand(right, ""))
            case Call("not", (inner,)):
                return self.call("not", self._test(inner))
            case Call(function, arguments) if function in COMPARISONS:
                return self.call(function, *map(self.write, arguments))
        return self.call("nonzero", self.write(node))

    def _operand(self, node: Node, inside: str) -> str:
        """Write a test as an operand of `and` or `or`, in parentheses if its operator is not `inside`."""
        joined = isinstance(node, Call) and node.function in {"and", "or"} - {inside}
        return f"({self._test(node)})" if joined else self._test(node)


def double(value: float) -> str:
    """Format a double for C and Python: the shortest text that reads back as the same number."""
    return repr(float(value))


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
