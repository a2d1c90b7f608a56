"""Policies as source code, with the results of numpy, NaN included: a subclass has the templates of its language.

A task may be untrusted. Its words only appear in identifiers of letters, digits and underscores after a prefix, or in
comments of one line that they cannot close.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from policygen.extensions.export.program import Program, table_data
from policygen.outgoing import in_columns
from policygen.policies.table import TablePolicy
from policygen.quantities.compiled import slot_of
from policygen.quantities.grid import Dimension
from policygen.quantities.text import format_number, slug
from policygen.quantities.tree import Call, Name, Node, Number, Previous, names_in
from policygen.tasks.task import KIND_WORDS, Task, output_slices

MANY_EDGES = 4  # with more edges, bins of whole numbers are computed by rounding
MOST_CHARACTERS = 50  # of an identifier without its prefix; C99 distinguishes identifiers by 63 characters
MOST_LINES = 200  # of a policy's text that a comment repeats
_SUM, _PRODUCT, _SIGN, _ATOM = 5, 6, 7, 9  # precedences; a higher one binds tighter
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_SPELLED = str.maketrans({"°": "deg", "µ": "u", "μ": "u", "Ω": "ohm", "−": "-", "–": "-", "×": "*", "·": "*"})


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of exported C."""

    float32: bool = False  # whether all arithmetic is in single precision
    # Reaction to an observation that is NaN or infinite: `hold` the last action, `zero`, or `fault` (no action). None:
    # as in policygen, where in an expression NaN counts as 0, and an infinity as a million with its sign; if it is
    # binned directly, NaN falls into the last bin.
    on_nan: Literal["hold", "zero", "fault"] | None = None


PLAIN = Options()


class Source(ABC):
    """A policy as a file of source code.

    Names of constants and helpers begin with `pg_`, those of locals with `q_` (observations), `d_` (definitions), `t_`
    (terms), `o_` (outputs) or `m_` (memory). The task's own names only follow such a prefix, or stand in a comment.

    Attributes:
        names: the text of every quantity and, by `slot_of(NAME)`, of every remembered value.
    """

    about: ClassVar[str]  # the language and how to compile or call it, for the first line of the file
    helpers: ClassVar[dict[str, str]]  # definitions of `pg_` functions, each after those that it calls
    # The text of operations by name, with a placeholder for each argument. Arguments are inserted without parentheses,
    # except that the dividend of `/` has them if it is a sum. `and`, `or`, `not`, comparisons and the first argument of
    # `where` are tests; `nonzero` tests that a value is not 0, and `number` converts a test, or a whole number, to a
    # number. Further templates are `observed` (index of the observation), `bin` (value, name of the edges, their
    # number), `integer_bin` (whole number, last bin), `highest` (scores, their number) and `single` (number to convert
    # to single precision).
    templates: ClassVar[Mapping[str, str]] = {
        "nonzero": "{0} != 0.0",
        **{symbol: f"{{0}} {symbol} {{1}}" for symbol in _COMPARISONS},
        "mod": "pg_mod({0}, {1})",
        "sign": "pg_sign({0})",
        "min": "pg_min({0}, {1})",
        "max": "pg_max({0}, {1})",
        "clip": "pg_clip({0}, {1}, {2})",
        "prev": "pg_prev({0}, {1})",
        "square": "pg_square({0})",
        "finite": "pg_finite({0})",
        "integer_bin": "pg_whole({0}, {1})",
    }
    integer_division: ClassVar[str]  # its operator
    slot: ClassVar[str]  # template of a remembered value; its arguments are index and identifier
    brackets: ClassVar[tuple[str, str]]  # around a list of constants
    types: ClassVar[tuple[str, str]] = ("", "")  # before the name of a new local: a number, a whole number
    end: ClassVar[str] = ""  # of a statement

    def __init__(self, program: Program, facts: Sequence[str] = ()) -> None:
        """Write the body of the function that decides; `facts` are sentences for the first comment."""
        self.program, self.policy, self.task, self.facts = program, program.policy, program.policy.task, facts
        self.discrete = self.task.action_space == "discrete"  # one choice: a whole number and not an array
        self.data: list[str] = []  # lines of the constants
        self.body: list[str] = []  # lines of the function
        self._taken: set[str] = set()  # identifiers
        self.memory = [self.slot.format(i, self._identifier("m", n)) for i, n in enumerate(self.policy.remembers)]
        self.names: dict[str, str] = {
            **{name: self._identifier("q", name) for _, name in program.observed},
            **{name: self._identifier("d", name) for name, _ in program.definitions},
            **dict(zip(map(slot_of, self.policy.remembers), self.memory, strict=True)),
        }
        for index, name in program.observed:
            self._define(self.names[name], self.call("observed", str(index)))
        for name, node in program.definitions:
            self._define(self.names[name], self.call("finite", self.write(node)))
        if isinstance(self.policy, TablePolicy):
            self._look_up(self.policy)
        else:
            self._set_action(self._decided())
        for slot, kept in zip(self.memory, program.remembered_values, strict=True):
            own = self.names[kept.name] if kept.actuator is None else self._chosen(kept.actuator, kept.label)
            self._add(f"{slot} = {own}")

    def text(self) -> str:
        """Write one self-contained file; its first comment says how to call it."""
        return "\n".join([*self._lines(), ""])

    @abstractmethod
    def _lines(self) -> Iterator[str]:
        """Yield the lines of the file."""

    @abstractmethod
    def _literal(self, value: float) -> str:
        """Write a constant: a number in single precision, or an int."""

    @abstractmethod
    def _set_action(self, values: Sequence[str]) -> None:
        """Set the action to these values, one for each actuator."""

    # --- expressions

    def write(self, node: Node, at_least: int = _SUM) -> str:
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
                return double(value), _SIGN if double(value)[0] == "-" else _ATOM
            case Name(name):
                return self.names[name], _ATOM
            case Previous(name, start):
                return self.call("prev", self.names[slot_of(name)], self.write(start)), _ATOM
            case Call("fixed", (inner,)):
                return self._value(inner)
            case Call("+" | "-" as sign, (left, right)):
                return f"{self.write(left, _SUM)} {sign} {self.write(right, _PRODUCT)}", _SUM
            case Call("*", (left, right)):
                return f"{self.write(left, _PRODUCT)} * {self.write(right, _SIGN)}", _PRODUCT
            case Call("/", (left, (Number(value) as divisor) | Call("fixed", (Number(value) as divisor,)))) if (
                value != 0
            ):
                return f"{self.write(left, _PRODUCT)} / {self.write(divisor, _SIGN)}", _PRODUCT
            case Call("/", (left, right)):
                return self.call("/", self.write(left, _PRODUCT), self.write(right)), _PRODUCT
            case Call("neg", (inner,)):
                return f"-{self.write(inner, _ATOM)}", _SIGN
            case Call("^", (base, Number(2.0))):
                return self.call("square", self.write(base)), _ATOM
            case Call("where", (test, yes, no)):
                return self.call("where", self._test(test), self.write(yes), self.write(no)), _ATOM
            case Call("and" | "or" | "not" | "<" | "<=" | ">" | ">=" | "==" | "!="):
                return self.call("number", self._test(node)), _ATOM
            case Call("min" | "max" as function, (*first, last)) if len(first) > 1:
                return self.call(function, self.write(Call(function, tuple(first))), self.write(last)), _ATOM
            case Call(function, arguments):
                return self.call(function, *map(self.write, arguments)), _ATOM
        raise AssertionError(node)

    def _test(self, node: Node) -> str:
        """Write a test that an expression is not 0; NaN passes."""
        match node:
            case Call("and" | "or" as function, (left, right)):
                return self.call(function, self._operand(left, function), self._operand(right, ""))
            case Call("not", (inner,)):
                return self.call("not", self._test(inner))
            case Call(function, arguments) if function in _COMPARISONS:
                return self.call(function, *map(self.write, arguments))
        return self.call("nonzero", self.write(node))

    def _operand(self, node: Node, inside: str) -> str:
        """Write a test as an operand of `and` or `or`, in parentheses if its operator is not `inside`."""
        joined = isinstance(node, Call) and node.function in {"and", "or"} - {inside}
        return f"({self._test(node)})" if joined else self._test(node)

    # --- statements

    def _identifier(self, prefix: str, name: str) -> str:
        """Return `PREFIX_NAME` with an underscore for other characters, and with a number if the name is taken."""
        wanted = "_".join([prefix, *re.findall("[A-Za-z0-9]+", name[:MOST_CHARACTERS])])
        found, count = wanted, 1
        while found in self._taken:
            count += 1
            found = f"{wanted}_{count}"
        self._taken.add(found)
        return found

    def _add(self, statement: str) -> None:
        """Add a statement to the body."""
        self.body.append(f"    {statement}{self.end}")

    def _define(self, name: str, value: str, integer: bool = False) -> None:
        """Define a local: a number or, with `integer`, a whole number of at least 32 bits."""
        self._add(f"{self.types[integer]}{name} = {value}")

    def _declaration(self, name: str, values: npt.NDArray[Any]) -> str:
        """Return the left side of an array's definition."""
        return name

    def _add_array(self, name: str, values: npt.NDArray[Any]) -> None:
        """Add an array of constants to the data: a list of numbers, or of rows of numbers."""
        start, end = self.brackets
        if values.ndim == 1:
            items = list(map(self._literal, values.tolist()))
            lines = [", ".join(items[i : i + 8]) for i in range(0, len(items), 8)]
        else:
            lines = [f"{start}{', '.join(map(self._literal, row))},{end}" for row in values.tolist()]
        self.data += [f"{self._declaration(name, values)} = {start}", *(f"    {line}," for line in lines)]
        self.data += [f"{end}{self.end}", ""]

    def _used_helpers(self) -> list[str]:
        """Return the definitions of all helpers that the code calls, in order, each followed by an empty line."""
        code, used = "\n".join([*self.data, *self.body]), list[str]()
        for name, definition in reversed(self.helpers.items()):
            if f"{name}(" in code:
                used.insert(0, f"{definition}\n")
                code += definition
        return used

    def _chosen(self, index: int, label: int | None) -> str:
        """Write part `index` of the action as a number; with a label, 1 if that label is chosen, else 0."""
        part = "action" if self.discrete else f"action[{index}]"
        return self.call("number", part if label is None else f"{part} == {label}")

    def _decided(self) -> list[str]:
        """Write terms and outputs of equations; return actuator values within `policygen.tasks.actions.Limits`."""
        read = frozenset().union(*(names_in(node) for _, node in self.program.outputs))
        for i, (name, node) in enumerate(self.program.terms):
            if isinstance(node, Name) and node.name in dict(self.program.definitions):
                self.names[name] = self.names[node.name]  # it was made finite when it was defined
            elif name in read:
                self.names[name] = self._identifier("t", node.name if isinstance(node, Name) else str(i + 1))
                self._define(self.names[name], self.call("finite", self.write(node)))
        outputs: list[str] = []
        for name, node in self.program.outputs:
            outputs.append(self._identifier("o", name.removeprefix("output ")))
            self._define(outputs[-1], self.call("finite", self.write(node)))
        values = []
        parts = zip(self.task.actuators, output_slices(self.task), self.task.limits.bounds, strict=True)
        for actuator, part, (low, high, is_integer) in parts:
            if actuator.is_choice:
                values.append(self.call("highest", ", ".join(outputs[part]), str(len(outputs[part]))))
                continue
            clipped = self.call("clip", outputs[part.start], double(low), double(high))
            values.append(self.call("single", self.call("rint", clipped) if is_integer else clipped))
        return values

    def _look_up(self, policy: TablePolicy) -> None:
        """Write the lookup in a table: bins, cell, action."""
        data, shape = table_data(policy), policy.grid.shape
        cell, *bins = map(self._bin, policy.grid.dimensions)
        for text, size in zip(bins, shape[1:], strict=True):  # the last dimension is the fastest
            cell = f"({cell}) * {size} + {text}"
        self._define("cell", cell, integer=True)
        self._add_array("pg_cells", data.packed)
        each, code = max(1, 8 // data.bits), "pg_cells[cell]"
        if each > 1:
            shift = f"cell % {each} * {data.bits}"
            code = f"(pg_cells[cell {self.integer_division} {each}] >> ({shift})) & {2**data.bits - 1}"
        self._define("code", code, integer=True)
        if data.actions is None:
            self._set_action(["code"])
            return
        self._add_array("pg_actions", data.actions)
        self._set_action([f"pg_actions[code][{k}]" for k in range(len(self.task.actuators))])

    def _bin(self, dimension: Dimension) -> str:
        """Write the bin of a quantity, and add its edges to the data."""
        value, last = self.names[dimension.name], len(dimension.edges)
        if not last:
            return "0"
        if dimension.has_integer_bins and last > MANY_EDGES:
            return self.call("integer_bin", value, str(last))
        name = self._identifier("pg_edges", dimension.name)
        self._add_array(name, np.array(dimension.rounded_edges))
        return self.call("bin", value, name, str(last))

    # --- comments

    def _heading(self, usage: Sequence[str]) -> list[str]:
        """Return the lines of the first comment: how to call the code, the facts, and the policy's own text."""
        seen = [
            (str(i), o.name, o.unit or "-", f"{o.low:g} to {o.high:g}") for i, o in enumerate(self.task.observations)
        ]
        actions = [(str(i), a.name, self._values_of(i)) for i, a in enumerate(self.task.actuators)]
        # No task's name in the first two lines: Python would take `coding: NAME` in them as the file's encoding (PEP
        # 263), and in another encoding a later comment could end early.
        words = [f"Written by policygen. {self.about}", ""]
        words += [f"A policy ({KIND_WORDS[self.policy.kind]}) for {self.task.name} ({self.task.gym_id}):", ""]
        words += [*(f"    {line}" for line in usage), ""]
        words += ["Observation:", *(f"  {line}" for line in in_columns(seen))]
        words += ["Action:", *(f"  {line}" for line in ([actions[0][2]] if self.discrete else in_columns(actions)))]
        lines = self.policy.to_text(whole=True).splitlines()
        if len(lines) > MOST_LINES:
            lines[MOST_LINES:] = [f"... and {len(lines) - MOST_LINES} more rows"]
        words += ["", *self.facts, *([""] if self.facts else []), "The policy itself:", "", *lines]
        return list(map(comment_text, words))

    def _values_of(self, index: int) -> str:
        """Describe the values of an actuator."""
        actuator = self.task.actuators[index]
        if actuator.is_choice:
            return ", ".join(f"{i} {label}" for i, label in enumerate(actuator.labels))
        named = "".join(f", {name} {format_number(value)}" for name, value in actuator.levels)
        unit = f" {actuator.unit}" if actuator.unit else ""
        prefix = "whole, " if self.task.limits.bounds[index][2] else ""
        return f"{prefix}{format_number(actuator.low)} to {format_number(actuator.high)}{unit}{named}"


def short_name(task: Task) -> str:
    """Return a short name for files and functions, of letters, digits and underscores."""
    return slug(plain_ascii(task.name))[:24].strip("_")


def double(value: float) -> str:
    """Format a double for C and Python: the shortest text that reads back as the same number."""
    return repr(float(value))


def plain_ascii(text: str) -> str:
    """Convert `text` to one line of printable ASCII: `m/s²` becomes `m/s2`, an unknown character `_`."""
    spelled = unicodedata.normalize("NFKD", text.translate(_SPELLED))
    spelled = "".join(c for c in spelled if not unicodedata.combining(c))
    return re.sub(r"[^ -~]", "_", re.sub(r"\s", " ", spelled))


def comment_text(text: str) -> str:
    """Return `text` made safe for comments in C and Python: it ends no comment and adds no line."""
    quiet = plain_ascii(text).replace("\\", "_")
    # Characters that could close a comment are separated, and trigraphs removed.
    quiet = re.sub(r"\?+", "?", quiet)
    return re.sub(r"\*(?=/)|/(?=\*)", lambda found: found[0] + " ", quiet)
