"""Base classes of exported source code: a subclass has the templates of its language."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from policygen.extensions.export.program import Program, table_data, text_lines
from policygen.extensions.export.writing import Writer, comment_text, double
from policygen.outgoing import in_columns
from policygen.policies.table import TablePolicy
from policygen.quantities.compiled import slot_of
from policygen.quantities.grid import Dimension
from policygen.quantities.text import format_number
from policygen.quantities.tree import Name, names_in
from policygen.tasks.task import KIND_WORDS, Task, output_slices

MANY_EDGES = 4  # with more edges, bins of whole numbers are computed by rounding
MOST_CHARACTERS = 50  # of an identifier without its prefix; C99 distinguishes identifiers by 63 characters


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of exported code."""

    float32: bool = False  # whether all arithmetic is in single precision
    # Reaction to an observation that is NaN or infinite: `hold` the last action, `zero`, or `fault` (no action). None:
    # as in policygen, where in an expression NaN counts as 0, and an infinity as a million with its sign; if it is
    # binned directly, NaN falls into the last bin.
    on_nan: Literal["hold", "zero", "fault"] | None = None


PLAIN = Options()


class Source(Writer, ABC):
    """A file of source code for a task.

    Names of constants and helpers begin with `pg_`; locals named after a word of the task begin with a letter and `_`.
    The task's own names only follow such a prefix, or stand in a comment.
    """

    about: ClassVar[str]  # the language and how to compile or call it, for the first line of the file
    helpers: ClassVar[dict[str, str]]  # definitions of `pg_` functions, each after those that it calls
    # Further templates are `observed` (index of the observation), `bin` (value, name of the edges, their number),
    # `highest` (scores, their number) and `single` (number to convert to single precision).
    templates: ClassVar[Mapping[str, str]] = {
        **Writer.templates,
        "mod": "pg_mod({0}, {1})",
        "sign": "pg_sign({0})",
        "min": "pg_min({0}, {1})",
        "max": "pg_max({0}, {1})",
        "clip": "pg_clip({0}, {1}, {2})",
        "prev": "pg_prev({0}, {1})",
        "square": "pg_square({0})",
        "finite": "pg_finite({0})",
        "integer_bin": "pg_whole({0}, {1})",  # whole number, last bin
    }
    integer_division: ClassVar[str]  # its operator
    slot: ClassVar[str]  # template of a remembered value; its arguments are index and identifier
    brackets: ClassVar[tuple[str, str]]  # around a list of constants
    types: ClassVar[tuple[str, str]] = ("", "")  # before the name of a new local: a number, a whole number
    becomes: ClassVar[str] = "="  # the assignment operator
    end: ClassVar[str] = ""  # of a statement

    def __init__(self, task: Task) -> None:
        self.task = task
        self.discrete = task.action_space == "discrete"  # one choice: a whole number and not an array
        self.data: list[str] = []  # lines of the constants
        self.body: list[str] = []  # lines of the functions
        self._taken: set[str] = set()  # identifiers in lower case: Structured Text ignores case

    def text(self) -> str:
        """Write one self-contained file; its first comment says how to call it."""
        return "\n".join([*self._lines(), ""])

    @abstractmethod
    def _lines(self) -> Iterator[str]:
        """Yield the lines of the file."""

    @abstractmethod
    def _literal(self, value: float) -> str:
        """Write a constant: a number in single precision, or an int."""

    def _identifier(self, prefix: str, name: str) -> str:
        """Return `PREFIX_NAME` with an underscore for other characters, and with a number if the name is taken."""
        # Structured Text forbids two underscores in a row.
        wanted = "_".join([prefix, *re.findall("[A-Za-z0-9]+", name[:MOST_CHARACTERS])])
        found, count = wanted, 1
        while found.lower() in self._taken:
            count += 1
            found = f"{wanted}_{count}"
        self._taken.add(found.lower())
        return found

    def _define(self, name: str, value: str, integer: bool = False) -> None:
        """Define a local: a number or, with `integer`, a whole number of at least 32 bits."""
        self._add(f"{self.types[integer]}{name} {self.becomes} {value}")

    def _add(self, statement: str) -> None:
        """Add a statement to the body."""
        self.body.append(f"    {statement}{self.end}")

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

    def _heading(self, what: str, usage: Sequence[str], lines: Sequence[str]) -> list[str]:
        """Return the lines of the first comment: what the code is, how to call it, and then `lines`."""
        seen = [
            (str(i), o.name, o.unit or "-", f"{o.low:g} to {o.high:g}") for i, o in enumerate(self.task.observations)
        ]
        actions = [(str(i), a.name, self._values_of(i)) for i, a in enumerate(self.task.actuators)]
        # No task's name in the first two lines: Python would take `coding: NAME` in them as the file's encoding (PEP
        # 263), and in another encoding a later comment could end early.
        words = [f"Written by policygen. {self.about}", ""]
        words += [f"{what} {self.task.name} ({self.task.gym_id}):", ""]
        words += [*(f"    {line}" for line in usage), ""]
        words += ["Observation:", *(f"  {line}" for line in in_columns(seen))]
        words += ["Action:", *(f"  {line}" for line in ([actions[0][2]] if self.discrete else in_columns(actions)))]
        return list(map(comment_text, [*words, "", *lines]))

    def _part(self, index: int) -> str:
        """Write part `index` of `action`, which a plant's step takes and a policy returns."""
        return "action" if self.discrete else f"action[{index}]"

    def _chosen(self, part: str, label: int | None) -> str:
        """Write a part of the action as a number; with a label, 1 if that label is chosen, else 0."""
        return self.call("number", part if label is None else f"{part} == {label}")

    def _values_of(self, index: int) -> str:
        """Describe the values of an actuator."""
        actuator = self.task.actuators[index]
        if actuator.is_choice:
            return ", ".join(f"{i} {label}" for i, label in enumerate(actuator.labels))
        named = "".join(f", {name} {format_number(value)}" for name, value in actuator.levels)
        unit = f" {actuator.unit}" if actuator.unit else ""
        prefix = "whole, " if self.task.limits.bounds[index][2] else ""
        return f"{prefix}{format_number(actuator.low)} to {format_number(actuator.high)}{unit}{named}"

    def _used_helpers(self) -> list[str]:
        """Return the definitions of all helpers that the code calls, in order, each followed by an empty line."""
        code, used = "\n".join([*self.data, *self.body]), list[str]()
        for name, definition in reversed(self.helpers.items()):
            if f"{name}(" in code:
                used.insert(0, f"{definition}\n")
                code += definition
        return used


class PolicySource(Source):
    """A policy as source code.

    The names of locals begin with `q_` (observations), `d_` (definitions), `t_` (terms) or `o_` (outputs). `facts` are
    sentences about the policy's origin and score, for the first comment.
    """

    def __init__(self, program: Program, facts: Sequence[str] = (), options: Options = PLAIN) -> None:
        super().__init__(program.policy.task)
        self.facts, self.options = facts, options
        self.program, self.policy = program, program.policy
        self.memory = [self.slot.format(i, self._identifier("m", n)) for i, n in enumerate(self.policy.remembers)]
        self.names: dict[str, str] = {
            **{name: self._identifier("q", name) for _, name in program.observed},
            **{name: self._identifier("d", name) for name, _ in program.definitions},
            **dict(zip(map(slot_of, self.policy.remembers), self.memory, strict=True)),
        }
        for index, name in program.observed:
            self._observe(index, self.names[name])
        for name, node in program.definitions:
            self._define(self.names[name], self.call("finite", self.write(node)))
        if isinstance(self.policy, TablePolicy):
            self._look_up(self.policy)
        else:
            self._set_action(self._decided())
        for slot, kept in zip(self.memory, program.remembered_values, strict=True):
            own = (
                self.names[kept.name] if kept.actuator is None else self._chosen(self._part(kept.actuator), kept.label)
            )
            self._add(f"{slot} {self.becomes} {own}")

    @abstractmethod
    def _set_action(self, values: Sequence[str]) -> None:
        """Set the action to these values, one for each actuator."""

    @abstractmethod
    def _look_up(self, policy: TablePolicy) -> None:
        """Write the lookup in a table: bins, cell or row, action."""

    def _observe(self, index: int, name: str) -> None:
        """Define the local `name` of an observation."""
        self._define(name, self.call("observed", str(index)))

    def _highest(self, scores: Sequence[str]) -> str:
        """Write the index of the highest score; on a tie, the first."""
        return self.call("highest", ", ".join(scores), str(len(scores)))

    def _policy_heading(self, usage: Sequence[str]) -> list[str]:
        """Return the lines of the first comment: how to call the code, and the policy's own text."""
        lines = [*self.facts, *([""] if self.facts else []), "The policy itself:", "", *text_lines(self.program)]
        return self._heading(f"A policy ({KIND_WORDS[self.policy.kind]}) for", usage, lines)

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
                values.append(self._highest(outputs[part]))
                continue
            clipped = self.call("clip", outputs[part.start], double(low), double(high))
            values.append(self.call("single", self.call("rint", clipped) if is_integer else clipped))
        return values


class PolicyWithArrays(PolicySource):
    """A policy as source code in a language with arrays of constants, which hold its table."""

    @abstractmethod
    def _find_row(self, bins: Sequence[str], count: int) -> None:
        """Define `code` by the first of the `count` rows of `pg_rows` that matches these bins; the last matches any."""

    def _look_up(self, policy: TablePolicy) -> None:
        cells = table_data(policy)
        bins = list(map(self._bin, policy.grid.dimensions))
        if cells.rows is not None:
            self._add_array("pg_rows", cells.rows)
            self._find_row(bins, len(cells.rows))
        else:
            self._define("cell", number_of_cell(bins, policy.grid.shape), integer=True)
            self._add_array("pg_cells", cells.packed)
            each, code = max(1, 8 // cells.bits), "pg_cells[cell]"
            if each > 1:
                shift = f"cell % {each} * {cells.bits}"
                code = f"(pg_cells[cell {self.integer_division} {each}] >> ({shift})) & {2**cells.bits - 1}"
            self._define("code", code, integer=True)
        if cells.actions is None:
            self._set_action(["code"])
            return
        self._add_array("pg_actions", cells.actions)
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


def number_of_cell(bins: Sequence[str], shape: Sequence[int]) -> str:
    """Write the number of the cell with these bins; the last dimension is the fastest."""
    cell = bins[0]
    for text, size in zip(bins[1:], shape[1:], strict=True):
        cell = f"({cell}) * {size} + {text}"
    return cell
