"""Policies as source code: one generator of files, with templates for each language.

A task may be untrusted. Its words only appear in identifiers (as letters, digits and underscores after a prefix) and in
comments that they cannot end.
"""

from __future__ import annotations

import functools
import math
import re
import textwrap
import unicodedata
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jinja2
import numpy as np
import numpy.typing as npt

from policygen.errors import PolicyError
from policygen.outgoing import in_columns
from policygen.policies.policy import Policy
from policygen.quantities.grid import Dimension
from policygen.quantities.program import COMMON, Kind, Step, Writer, bare
from policygen.quantities.text import format_number, slug
from policygen.tasks.task import KIND_WORDS, Task

MANY_EDGES = 4  # with more edges than this, bins of whole numbers are computed by rounding
MOST_CHARACTERS = 50  # of an identifier without its prefix; C99 distinguishes identifiers by 63 characters
MOST_LINES = 200  # of the policy's text in a comment
_SPELLED = str.maketrans({"°": "deg", "µ": "u", "μ": "u", "Ω": "ohm", "−": "-", "–": "-", "×": "*", "·": "*"})


class Source(Writer):
    """A policy as a file of source code.

    Names of constants and helpers begin with `pg_`, those of local variables with `q_` (observations), `d_` (features,
    outputs) or `m_` (memory), those of inputs and outputs of a function block with `in_` and `out_`. The task's names
    appear only after such a prefix, or in comments.

    Raises:
        PolicyError: the policy reads texts, or is of another kind than tables and equations.
    """

    about: ClassVar[str]  # the language, and how to compile or call it, for the first line of the file
    layout: ClassVar[str]  # template of the file, whose variable `code` is this object
    helpers: ClassVar[str]  # file with the definitions of `pg_` functions, each after those that it calls
    # For each operation; and, with these arguments: `observed` (index of the observation), `bin` (value, name of the
    # edges, their number), `integer bin` (value, last bin), `cell` (index of a cell), `code in byte` (index of a cell,
    # codes per byte, bits per code, mask), `part` (code of an action, position in it), `real` (a whole number, to
    # convert), `set` (name, value), and the constants `inf`, `-inf` and `nan`.
    templates: ClassVar[Mapping[str, str]] = {
        **COMMON,
        **{name: f"pg_{name}({{0}})" for name in ("sign", "finite")},
        **{name: f"pg_{name}({{0}}, {{1}})" for name in ("mod", "min", "max", "start")},
        **{"clip": "pg_clip({0}, {1}, {2})", "limited": "pg_clip({0}, {1}, {2})", "integer bin": "pg_whole({0}, {1})"},
        **{"part": "pg_actions[{0}][{1}]", "cell": "pg_cells[{0}]", "set": "{0} = {1}", "equals": "({0} == {1})"},
    }
    fewest_bits: ClassVar[int] = 1  # minimum number of bits per cell of a table
    slot: ClassVar[str]  # template of a remembered value; its arguments are index and identifier
    brackets: ClassVar[tuple[str, str]]  # around a list of constants
    end: ClassVar[str] = ""  # the end of a statement

    def __init__(self, policy: Policy, facts: Sequence[str] = ()) -> None:
        """Write the body of the policy's function; `facts` are sentences for the first comment."""
        if policy.kind not in ("table", "linear"):
            raise PolicyError(f"a policy of kind `{policy.kind}` cannot be exported; tables and equations can")
        if policy.task.texts:
            raise PolicyError("a policy that reads texts cannot be exported; use `policy.controller()` in Python")
        self.policy, self.task, self.facts, program = policy, policy.task, facts, policy.program
        self.discrete = self.task.action_space == "discrete"  # the action is a whole number, not an array
        self.data: list[str] = []  # lines of the constants
        self._taken: set[str] = set()  # identifiers
        self.memory = [self.slot.format(i, self.identifier("m", n)) for i, n in enumerate(policy.remembers)]
        users: dict[int, set[str]] = {}
        for step in program.steps:
            for i in step.arguments:
                users.setdefault(i, set()).add(step.op)
        kept = program.results[policy.decision_parts :]
        self.observed = [i for i in range(self.task.width) if i in users or i in kept]
        inputs = [self.observe(i) if i in self.observed else "" for i in range(self.task.width)]
        names = {position: self.identifier("d", name) for position, name in program.names.items()}
        raw = []
        for i, name in enumerate(self.task.columns):
            if i in self.observed and users.get(i) == {"finite"} and i not in kept:
                names[program.steps.index(Step("finite", (i,)))] = self.identifier("q", name)
            elif i in self.observed and not inputs[i].isidentifier():
                raw.append((self.identifier("q", name), inputs[i]))
                inputs[i] = raw[-1][0]
        self.lines = []
        super().__init__(program, [*inputs, *self.memory], names, raw)
        decided = list(map(self.number, program.results[: policy.decision_parts]))
        if policy.finds_whole_action and not self.discrete:
            decided = [self.call("part", decided[0], str(k)) for k in range(len(self.task.actuators))]
        following = [self._remembered(i, position) for i, position in enumerate(kept)]
        self.set_action(decided)
        for slot, text in zip(self.memory, following, strict=True):
            self.add(self.call("set", slot, text))

    def _remembered(self, index: int, position: int) -> str:
        """Return the name of a memory's next value, which is computed before any memory changes."""
        text = self.number(position)
        if self.program.steps[position].op in ("highest", "look_up"):
            text = self.call("real", text)
        return text if text.isidentifier() else self.define(f"next_{index}", text, "number")

    def text(self, **values: Any) -> str:
        """Write the file; its first comment says how to call it."""
        return template(self.layout).render(code=self, **values)

    @abstractmethod
    def set_action(self, values: Sequence[str]) -> None:
        """Set the action to these values, one for each actuator."""

    @abstractmethod
    def declaration(self, name: str, values: npt.NDArray[Any]) -> str:
        """Return the beginning of an array's definition."""

    def constant(self, value: float) -> str:
        """Write an element of an array of constants: a number of single precision, or an int."""
        return repr(value)

    def literal(self, value: float) -> str:
        """Write a constant."""
        return repr(float(value)) if math.isfinite(value) else self.templates[str(value)]

    def observe(self, index: int) -> str:
        """Return the text of an observed number."""
        return self.call("observed", str(index))

    def operation_text(self, position: int, step: Step, values: Sequence[str]) -> str:
        """Write an operation by its template."""
        match step.op:
            case "min" | "max":
                first = values[0]
                for other in values[1:]:
                    first = self.call(step.op, first, other)
                return first
            case "limited":
                low, high, integer = step.data
                inside = self.call("limited", values[0], self.literal(low), self.literal(high))
                return self.call("rint", inside) if integer else inside
            case "highest":
                return self.highest(values)
            case "equals":
                return self.call("equals", values[0], str(step.data))
            case "part":
                part = self.call("part", values[0], str(step.data))
                return self.call("real", part) if self.program.table[1].dtype.kind == "i" else part
            case "/" if (divisor := self.program.steps[step.arguments[1]]).op == "number" and divisor.data:
                return f"({values[0]} / {values[1]})"
            case "look_up":
                return self._look_up(values, *self.program.table)
        return self.call(step.op, *values)

    def highest(self, values: Sequence[str]) -> str:
        """Write the index of the largest value (of equals, the first)."""
        return self.call("highest", ", ".join(values), str(len(values)))

    # --- statements

    def identifier(self, prefix: str, name: str) -> str:
        """Return `PREFIX_NAME`, with underscores for special characters, and a number if the name is taken."""
        wanted = "_".join([prefix, *re.findall("[A-Za-z0-9]+", name[:MOST_CHARACTERS])])
        found, count = wanted, 1
        while found.lower() in self._taken:  # not every language is case-sensitive
            count += 1
            found = f"{wanted}_{count}"
        self._taken.add(found.lower())
        return found

    def define(self, name: str, text: str, kind: Kind) -> str:
        """Define a local variable."""
        self.add(self.call("set", name, bare(text)))
        return name

    def add(self, statement: str) -> None:
        """Add a statement to the body."""
        self.lines += self.wrapped(statement)

    def wrapped(self, statement: str) -> list[str]:
        """Return the lines of a statement: one line in a language whose statements have no end mark."""
        width = 110 if self.end else 10**9
        wrapper = textwrap.TextWrapper(width, "    ", "        ", break_long_words=False, break_on_hyphens=False)
        return wrapper.wrap(f"{statement}{self.end}")

    def _add_array(self, name: str, values: npt.NDArray[Any]) -> None:
        """Add an array of constants, of one or two dimensions, to the data."""
        start, end = self.brackets
        if values.ndim == 1:
            items = list(map(self.constant, values.tolist()))
            lines = [", ".join(items[i : i + 8]) for i in range(0, len(items), 8)]
        else:
            lines = [self.row(", ".join(map(self.constant, row))) for row in values.tolist()]
        lines = [f"    {line}," for line in lines]
        if self.fewest_bits > 1:  # Structured Text allows no comma at the end
            lines[-1] = lines[-1].removesuffix(",")
        self.data += [f"{self.declaration(name, values)} {start}", *lines, f"{end}{self.end}", ""]

    def row(self, numbers: str) -> str:
        """Write a row of an array of constants."""
        return f"{self.brackets[0]}{numbers},{self.brackets[1]}"

    def used_helpers(self) -> list[str]:
        """Return the definitions of all helpers that the code calls, in order, each with an empty line after it."""
        code, used = "\n".join([*self.data, *self.lines]), list[str]()
        text = Path(__file__).with_name(self.helpers).read_text(encoding="utf-8")
        for definition in reversed(text.rstrip("\n").split("\n\n")):
            name = re.search(r"\bpg_\w+", definition)
            if name and re.search(rf"\b{name[0]}\(", code):
                used.insert(0, f"{definition}\n")
                code += definition
        return used

    def _look_up(self, values: Sequence[str], grid: Any, entries: npt.NDArray[Any]) -> str:
        """Write the look-up in a table: bins, cell, and the code of the action (of a single choice, the label's)."""
        codes, kinds = entries.astype(np.int64), len(self.task.actuators[0].labels)
        if not self.discrete:
            actions, codes = np.unique(entries, axis=0, return_inverse=True)
            codes, kinds = codes.reshape(-1), len(actions)
        bits = next(bits for bits in (1, 2, 4, 8, 16, 32) if bits >= self.fewest_bits and kinds <= 2**bits)
        cell, *bins = (self._bin(d, value) for d, value in zip(grid.dimensions, values, strict=True))
        for text, size in zip(bins, grid.shape[1:], strict=True):  # the last dimension is the fastest
            cell = f"({cell}) * {size} + ({text})"
        self.define("cell", cell, "whole")
        packed = codes.astype(f"<u{max(1, bits // 8)}")
        if bits < 8:  # several to a byte, the first in the lowest bits
            packed = np.packbits(codes[:, None] >> np.arange(bits) & 1, bitorder="little")
        self._add_array("pg_cells", packed)
        code = self.call("cell", "cell", str(bits))
        if bits < 8:
            code = self.call("code in byte", "cell", *map(str, (8 // bits, bits, 2**bits - 1)))
        if not self.discrete:
            self._add_array("pg_actions", actions)
        return self.define("code", code, "whole")

    def _bin(self, dimension: Dimension, value: str) -> str:
        last = len(dimension.edges)
        if not last:
            return "0"
        if dimension.has_integer_bins and last > MANY_EDGES:
            return self.call("integer bin", value, str(last))
        return self.bin(dimension, value)

    def bin(self, dimension: Dimension, value: str) -> str:
        """Write the number of edges at or below a value (NaN: all); add the edges to the data."""
        name = self.identifier("pg_edges", dimension.name)
        self._add_array(name, np.array(dimension.rounded_edges))
        return self.call("bin", value, name, str(len(dimension.edges)))

    # --- comments

    def heading(self, usage: str) -> list[str]:
        """Return the lines of the first comment: how to call the code, the facts, and the policy's text."""
        seen = [
            (str(i), o.name, o.unit or "-", f"{o.low:g} to {o.high:g}") for i, o in enumerate(self.task.observations)
        ]
        actions = [(str(i), a.name, self.values_of(i)) for i, a in enumerate(self.task.actuators)]
        # The first two lines do not name the task: Python reads `coding: NAME` there as the file's encoding (PEP 263),
        # and in another encoding a later comment could end early.
        words = [f"Written by policygen. {self.about}", ""]
        words += [f"A policy ({KIND_WORDS[self.policy.kind]}) for {self.task.name} ({self.task.gym_id}):", ""]
        words += [*(f"    {line}" for line in usage.splitlines()), ""]
        seconds = self.task.step_seconds
        every = f"{format_number(seconds)} s" if seconds else "step of the environment, whose length is not known"
        words += [f"Sample time: one call every {every}.", ""]
        words += ["Observation:", *(f"  {line}" for line in in_columns(seen))]
        words += ["Action:", *(f"  {line}" for line in ([actions[0][2]] if self.discrete else in_columns(actions)))]
        lines = self.policy.to_text(whole=True).splitlines()
        if len(lines) > MOST_LINES:
            lines[MOST_LINES:] = [f"... and {len(lines) - MOST_LINES} more rows"]
        words += ["", *self.facts, *([""] if self.facts else []), "The policy itself:", "", *lines]
        return list(map(comment_text, words))

    def values_of(self, index: int) -> str:
        """Describe the values of an actuator."""
        actuator = self.task.actuators[index]
        if actuator.is_choice:
            return ", ".join(f"{i} {label}" for i, label in enumerate(actuator.labels))
        named = "".join(f", {name} {format_number(value)}" for name, value in actuator.levels)
        unit = f" {actuator.unit}" if actuator.unit else ""
        prefix = "whole, " if self.task.limits.bounds[index][2] else ""
        return f"{prefix}{format_number(actuator.low)} to {format_number(actuator.high)}{unit}{named}"


@functools.cache
def template(name: str) -> jinja2.Template:
    """Return a template of this folder; `comment_text` is a filter in it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["comment_text"] = comment_text
    return environment.get_template(name)


def short_name(task: Task) -> str:
    """Return a short name for files and functions: letters, digits and underscores."""
    return slug(plain_ascii(task.name))[:24].strip("_")


def plain_ascii(text: str) -> str:
    """Convert `text` to one line of printable ASCII: `m/s²` becomes `m/s2`, and unknown characters become `_`."""
    spelled = unicodedata.normalize("NFKD", text.translate(_SPELLED))
    spelled = "".join(c for c in spelled if not unicodedata.combining(c))
    return re.sub(r"[^ -~]", "_", re.sub(r"\s", " ", spelled))


def comment_text(text: str) -> str:
    """Make `text` safe for comments in every language: it cannot end a comment or begin a new line."""
    quiet = plain_ascii(text).replace("\\", "_")
    # Separate characters that could begin or end a comment, and remove trigraphs.
    quiet = re.sub(r"\?+", "?", quiet)
    return re.sub(r"\*(?=[/)])|[/(](?=\*)", lambda found: found[0] + " ", quiet)
