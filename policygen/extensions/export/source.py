"""Policies as source code: each language writes the steps of `Policy.program` with its own templates.

A task may be untrusted. Its words only appear in identifiers of letters, digits and underscores after a prefix, or in
comments of one line that they cannot close.
"""

from __future__ import annotations

import re
import unicodedata
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.outgoing import in_columns
from policygen.policies.policy import Policy
from policygen.quantities.grid import Dimension
from policygen.quantities.program import Step
from policygen.quantities.text import format_number, slug
from policygen.quantities.writer import Writer, bare
from policygen.tasks.task import KIND_WORDS, Task

MANY_EDGES = 4  # with more edges, bins of whole numbers are computed by rounding
MOST_CHARACTERS = 50  # of an identifier without its prefix; C99 distinguishes identifiers by 63 characters
MOST_LINES = 200  # of a policy's text that a comment repeats
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


class Source(Writer):
    """A policy as a file of source code.

    Names of constants and helpers begin with `pg_`, those of locals with `q_` (observations), `d_` (features, outputs)
    or `m_` (memory). The task's own names only follow such a prefix, or stand in a comment.

    Raises:
        PolicyError: the policy reads texts, or is of another kind than tables and equations.
    """

    about: ClassVar[str]  # the language and how to compile or call it, for the first line of the file
    helpers: ClassVar[dict[str, str]]  # definitions of `pg_` functions, each after those that it calls
    # The text of operations by name, with a placeholder for each argument; those that take one more are `observed`
    # (index of the observation), `bin` (value, name of the edges, their number), `integer_bin` (value, last bin),
    # `highest` (scores, their number), `single` and `part` (code of an action, position in it).
    templates: ClassVar[Mapping[str, str]] = {
        **{name: f"pg_{name}({{0}})" for name in ("sign", "finite")},
        **{name: f"pg_{name}({{0}}, {{1}})" for name in ("mod", "min", "max", "start")},
        "clip": "pg_clip({0}, {1}, {2})",
        "integer_bin": "pg_whole({0}, {1})",
        "part": "pg_actions[{0}][{1}]",
    }
    integer_division: ClassVar[str]  # its operator
    slot: ClassVar[str]  # template of a remembered value; its arguments are index and identifier
    brackets: ClassVar[tuple[str, str]]  # around a list of constants
    end: ClassVar[str] = ""  # of a statement

    def __init__(self, policy: Policy, facts: Sequence[str] = ()) -> None:
        """Write the body of the function that decides; `facts` are sentences for the first comment."""
        if policy.kind not in ("table", "linear"):
            raise PolicyError(f"a policy of kind `{policy.kind}` cannot be exported; tables and equations can")
        if policy.task.texts:
            raise PolicyError("a policy that reads texts cannot be exported; use `policy.controller()` in Python")
        self.policy, self.task, self.facts, program = policy, policy.task, facts, policy.program
        self.discrete = self.task.action_space == "discrete"  # one choice: a whole number and not an array
        self.data: list[str] = []  # lines of the constants
        self._taken: set[str] = set()  # identifiers
        self.memory = [self.slot.format(i, self._identifier("m", n)) for i, n in enumerate(policy.remembers)]
        users: dict[int, set[str]] = {}
        for step in program.steps:
            for i in step.arguments:
                users.setdefault(i, set()).add(step.op)
        kept = program.results[policy.decision_parts :]
        self.observed = [i for i in range(self.task.width) if i in users or i in kept]
        names = {position: self._identifier("d", name) for position, name in program.names.items()}
        inputs, raw = [], []
        for i, name in enumerate(self.task.columns):
            inputs.append(self.call("observed", str(i)))
            if i in self.observed and (users.get(i) != {"finite"} or i in kept):
                raw.append((self._identifier("q", name), inputs[i]))
                inputs[i] = raw[-1][0]
            elif i in self.observed:
                names[program.steps.index(Step("finite", (i,)))] = self._identifier("q", name)
        self.lines = []
        super().__init__(program, [*inputs, *self.memory], names, [(n, text) for n, text in raw])
        results = list(map(self._result, range(len(program.results))))
        self._set_action(results[: policy.decision_parts])
        for slot, text in zip(self.memory, results[policy.decision_parts :], strict=True):
            self.add(f"{slot} = {text}")

    def _result(self, index: int) -> str:
        """Return the text of a result; what is remembered gets a name first, as it may read the memory."""
        position, remembered = self.program.results[index], index >= self.policy.decision_parts
        if not remembered:
            return self.number(position)
        text = self.number(position)
        if self.program.steps[position].op in ("highest", "look_up"):
            text = self.call("number", text)
        return text if text.isidentifier() else self.define(f"next_{index}", text, "number")

    def text(self) -> str:
        """Write one self-contained file; its first comment says how to call it."""
        return "\n".join([*self._file(), ""])

    @abstractmethod
    def _file(self) -> Iterator[str]:
        """Yield the lines of the file."""

    @abstractmethod
    def _single(self, value: float) -> str:
        """Write a constant in single precision, or an int."""

    @abstractmethod
    def _set_action(self, values: Sequence[str]) -> None:
        """Set the action to these values: one for each actuator, or the code of the action of a table."""

    def call(self, operation: str, *arguments: str) -> str:
        """Write an operation; an argument between commas or brackets needs no parentheses of its own."""
        template = self.templates[operation]
        texts = [
            bare(text) if re.search(rf"[(,\[] ?\{{{i}\}}[),\]]", template) else text for i, text in enumerate(arguments)
        ]
        return template.format(*texts)

    def spelled(self, position: int, step: Step, values: Sequence[str]) -> str:
        """Spell an operation by its template."""
        match step.op:
            case "min" | "max":
                first = values[0]
                for other in values[1:]:
                    first = self.call(step.op, first, other)
                return first
            case "limited":
                low, high, integer = step.data
                inside = self.call("clip", values[0], self.literal(low), self.literal(high))
                return self.call("rint", inside) if integer else inside
            case "highest":
                return self.call("highest", ", ".join(values), str(len(values)))
            case "equals":
                return f"({values[0]} == {step.data})"
            case "part":
                return self.call("number", self.call("part", values[0], str(step.data)))
            case "/" if (divisor := self.program.steps[step.arguments[1]]).op == "number" and divisor.data:
                return f"({values[0]} / {values[1]})"
            case "look_up":
                return self._look_up(values, *self.program.tables[step.data])
        return self.call(step.op, *values)

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

    def add(self, statement: str) -> None:
        """Add a statement to the body."""
        self.lines.append(f"    {statement}{self.end}")

    def _declaration(self, name: str, values: npt.NDArray[Any]) -> str:
        """Return the left side of an array's definition."""
        return name

    def _add_array(self, name: str, values: npt.NDArray[Any]) -> None:
        """Add an array of constants to the data: a list of numbers, or of rows of numbers."""
        start, end = self.brackets
        if values.ndim == 1:
            items = list(map(self._single, values.tolist()))
            lines = [", ".join(items[i : i + 8]) for i in range(0, len(items), 8)]
        else:
            lines = [f"{start}{', '.join(map(self._single, row))},{end}" for row in values.tolist()]
        self.data += [f"{self._declaration(name, values)} = {start}", *(f"    {line}," for line in lines)]
        self.data += [f"{end}{self.end}", ""]

    def _used_helpers(self) -> list[str]:
        """Return the definitions of all helpers that the code calls, in order, each followed by an empty line."""
        code, used = "\n".join([*self.data, *self.lines]), list[str]()
        for name, definition in reversed(self.helpers.items()):
            if f"{name}(" in code:
                used.insert(0, f"{definition}\n")
                code += definition
        return used

    def _look_up(self, values: Sequence[str], grid: Any, entries: npt.NDArray[Any]) -> str:
        """Write the look-up in a table: bins, cell, and the code of the action, which is a label's for one choice."""
        data = table_data(entries, len(self.task.actuators[0].labels) if self.discrete else None)
        cell, *bins = (self._bin(d, value) for d, value in zip(grid.dimensions, values, strict=True))
        for text, size in zip(bins, grid.shape[1:], strict=True):  # the last dimension is the fastest
            cell = f"({cell}) * {size} + {text}"
        self.define("cell", cell, "whole")
        self._add_array("pg_cells", data.packed)
        each, code = max(1, 8 // data.bits), "pg_cells[cell]"
        if each > 1:
            shift = f"cell % {each} * {data.bits}"
            code = f"(pg_cells[cell {self.integer_division} {each}] >> ({shift})) & {2**data.bits - 1}"
        if data.actions is not None:
            self._add_array("pg_actions", data.actions)
        return self.define("code", code, "whole")

    def _bin(self, dimension: Dimension, value: str) -> str:
        """Write the bin of a value, and add its edges to the data."""
        last = len(dimension.edges)
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


@dataclass(frozen=True)
class TableData:
    """The compact data of a table: an action code for each cell, and the actions."""

    codes: npt.NDArray[np.int64]  # of each cell's action, shape (cells,); for one choice the index of its label
    actions: npt.NDArray[Any] | None  # shape (kinds, actuators), int64 or float32; None for one choice
    bits: int  # size of a code: 1, 2, 4, 8, 16 or 32

    @property
    def packed(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The codes of all cells, several to a byte if they fit, the first in the lowest bits."""
        if self.bits >= 8:
            return self.codes.astype(f"<u{self.bits // 8}")
        return np.packbits(self.codes[:, None] >> np.arange(self.bits) & 1, bitorder="little")


def table_data(entries: npt.NDArray[Any], labels: int | None) -> TableData:
    """Return the data of a table; `labels` is the number of labels of its only choice, if it is one."""
    actions, codes, kinds = None, entries.astype(np.int64), labels or 0
    if labels is None:
        actions, codes = np.unique(entries, axis=0, return_inverse=True)
        codes, kinds = codes.reshape(-1), len(actions)
    return TableData(codes, actions, next(bits for bits in (1, 2, 4, 8, 16, 32) if kinds <= 2**bits))


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
