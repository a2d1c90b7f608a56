"""Export to Structured Text (IEC 61131-3): a function block, and functions that make it decide as numpy does.

Only `mod` may differ: by one divisor, if the dividend is a multiple of the divisor up to rounding. Actions are not
rounded to single precision.
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np

from policygen.extensions.export.program import Program, consecutive, interval_rows, short_name, table_data
from policygen.extensions.export.source import PolicySource, number_of_cell
from policygen.extensions.export.writing import comment_text, double
from policygen.policies.table import TablePolicy
from policygen.quantities.compiled import INFINITE
from policygen.quantities.grid import Dimension

_SHORT_REAL = re.compile(r"(?<![\w.])(\d+)(?=e[+-]?\d)")  # 1e-05, which is not a number in Structured Text
_MOST_CONDITIONS = 200  # rows of a table; with more, it is written as a CASE over its cells
_PI, _MOST = math.pi, sys.float_info.max


def _function(name: str, inputs: str, *lines: str) -> str:
    """Write a function that returns a number; `rest` is a local of it if the lines use it."""
    rest = "VAR\n    rest : LREAL;\nEND_VAR\n" if "rest" in "".join(lines) else ""
    body = "\n".join(f"    {line}" for line in lines)
    return f"FUNCTION {name} : LREAL\nVAR_INPUT\n    {inputs} : LREAL;\nEND_VAR\n{rest}{body}\nEND_FUNCTION"


# SEL(test, a, b) is a if the test is false, and b if it is true; only NaN differs from itself.
_HELPERS = {
    "pg_min": ("a, b", "pg_min := SEL(a <> a OR a < b, b, a);"),
    "pg_max": ("a, b", "pg_max := SEL(a <> a OR a > b, b, a);"),
    "pg_clip": ("a, b, c", "pg_clip := pg_min(pg_max(a, b), c);"),
    "pg_floor": (
        "a",
        "pg_floor := a;",
        "IF ABS(a) < 4503599627370496.0 THEN",
        "    rest := LINT_TO_LREAL(LREAL_TO_LINT(a));",
        "    pg_floor := rest - SEL(rest > a, 0.0, 1.0);",
        "END_IF;",
    ),
    "pg_mod": (
        "a, b",
        "rest := SEL(ABS(a) < ABS(b), a - b * pg_floor(a / b), a);",
        "pg_mod := rest + SEL(rest < 0.0 AND b > 0.0 OR rest > 0.0 AND b < 0.0, 0.0, b);",
    ),
    "pg_rint": (
        "a",
        "rest := pg_floor(a);",
        "pg_rint := rest + SEL(a - rest > 0.5 OR a - rest = 0.5 AND pg_mod(rest, 2.0) = 1.0, 0.0, 1.0);",
    ),
    "pg_sign": ("a", "pg_sign := SEL(a > 0.0, SEL(a < 0.0, a, -1.0), 1.0);"),
    "pg_tanh": (
        "a",
        "rest := EXP(-2.0 * ABS(a));",
        "pg_tanh := SEL(ABS(a) < 0.0001, pg_sign(a) * (1.0 - rest) / (1.0 + rest), a - a * a * a / 3.0);",
    ),
    "pg_atan2": (
        "a, b",
        "rest := SEL(ABS(a) = ABS(b), a / b, pg_sign(a) * pg_sign(b));",
        f"rest := ATAN(rest) + SEL(b < 0.0, 0.0, SEL(a < 0.0, {_PI!r}, -{_PI!r}));",
        f"pg_atan2 := SEL(b = 0.0, rest, pg_sign(a) * {_PI / 2!r});",
    ),
    "pg_square": ("a", "pg_square := a * a;"),
    "pg_prev": ("known : BOOL;\n    a, b", "pg_prev := SEL(known AND a = a, b, a);"),
    "pg_finite": ("a", f"pg_finite := SEL(a <> a, SEL(ABS(a) > {_MOST!r}, a, pg_sign(a) * {INFINITE!r}), 0.0);"),
}


class PolicyInST(PolicySource):
    """A policy as a function block.

    Names begin with `q_` (inputs), `u_` (outputs), `m_` (remembered values) or `b_` (bins); for further locals see
    `PolicySource`.
    """

    about = "Structured Text (IEC 61131-3), for IEEE 754 arithmetic that returns NaN and infinity without a fault."
    templates: ClassVar[Mapping[str, str]] = {
        **PolicySource.templates,
        "and": "{0} AND {1}",
        "or": "{0} OR {1}",
        "not": "NOT ({0})",
        "==": "{0} = {1}",
        "!=": "{0} <> {1}",
        "nonzero": "{0} <> 0.0",
        "number": "SEL({0}, 0.0, 1.0)",
        "where": "SEL({0}, {2}, {1})",
        **{name: f"{name.upper()}({{0}})" for name in ("abs", "sin", "cos", "tan", "exp", "sqrt", "atan")},
        **{name: f"pg_{name}({{0}})" for name in ("floor", "rint", "tanh")},
        "/": "{0} / ({1} + 0.0)",  # + 0.0 makes a negative zero positive
        "^": "EXPT({0} + 0.0, {1})",
        "atan2": "pg_atan2({0} + 0.0, {1} + 0.0)",
        "log": "LN({0})",
        "prev": "pg_prev(pg_known, {0}, {1})",
        "single": "{0}",
    }
    helpers: ClassVar[dict[str, str]] = {name: _function(name, *lines) for name, lines in _HELPERS.items()}
    becomes, end, slot = ":=", ";", "{1}"

    def __init__(self, program: Program, facts: Sequence[str]) -> None:
        self.declared: dict[str, list[str]] = {"VAR_INPUT": [], "VAR_OUTPUT": [], "VAR": [], "VAR_TEMP": []}
        if program.policy.remembers:
            self._declare("VAR_INPUT", "RESET", "BOOL", "nothing is remembered in this step")
            self._declare("VAR", "pg_known", "BOOL", "whether the remembered values are of the step before")
        super().__init__(program, facts)
        for slot, name in zip(self.memory, self.policy.remembers, strict=True):
            self._declare("VAR", slot, "LREAL", name)
        self.name = self._identifier("policy", short_name(self.task))

    def _lines(self) -> Iterator[str]:
        inputs = [line.partition(" ")[0] for line in self.declared["VAR_INPUT"]]
        usage = [f"controller : {self.name};", "", f"controller({', '.join(f'{name} := ...' for name in inputs)});"]
        usage += [f"... := controller.{name};" for name in self.outputs]
        usage += ["", "One controller for each controlled system; functions pg_... are the same in every export."]
        if self.memory:
            usage.append("Call it once in each step; set RESET in the first step after a start.")
        yield from ("(*", *(f"  {line}".rstrip() for line in self._policy_heading(usage)), "*)")
        yield from (*self._used_helpers(), f"FUNCTION_BLOCK {self.name}")
        for section, declarations in self.declared.items():
            if declarations:
                yield from (section, *(f"    {line}" for line in declarations), "END_VAR")
        if self.memory:
            yield from ("    IF RESET THEN", "        pg_known := FALSE;", "    END_IF;")
        yield from self.body
        yield from [*(["    pg_known := TRUE;"] if self.memory else []), "END_FUNCTION_BLOCK"]

    def _declare(self, section: str, name: str, kind: str, note: str = "") -> None:
        """Declare a variable, with a comment."""
        self.declared[section].append(f"{name} : {kind};{f' (* {comment_text(note)} *)' if note else ''}")

    def _define(self, name: str, value: str, integer: bool = False) -> None:
        self._declare("VAR_TEMP", name, "DINT" if integer else "LREAL")
        self._add(f"{name} := {value}")

    def _add(self, statement: str, depth: int = 1) -> None:
        self._write(f"{statement};", depth)

    def _write(self, text: str, depth: int = 1) -> None:
        """Add a text to the body, over several lines if it is long."""
        text, indent = _SHORT_REAL.sub(r"\1.0", text), "    " * depth
        self.body += textwrap.wrap(text, 110, initial_indent=indent, subsequent_indent=f"{indent}    ")

    def _observe(self, index: int, name: str) -> None:
        observation = self.task.observations[index]
        self._declare("VAR_INPUT", name, "LREAL", f"{observation.name}, {observation.unit or '-'}")

    @cached_property
    def outputs(self) -> list[str]:
        """The names of the outputs, one for each actuator; that of a choice holds the index of the label."""
        names = [self._identifier("u", actuator.name) for actuator in self.task.actuators]
        for i, (name, actuator) in enumerate(zip(names, self.task.actuators, strict=True)):
            self._declare("VAR_OUTPUT", name, "DINT" if actuator.is_choice else "LREAL", self._values_of(i))
        return names

    def _part(self, index: int) -> str:
        return self.outputs[index]

    def _chosen(self, part: str, label: int | None) -> str:
        if label is not None:
            return self.call("number", f"{part} = {label}")
        return f"DINT_TO_LREAL({part})" if self.task.actuators[self.outputs.index(part)].is_choice else part

    def _highest(self, scores: Sequence[str]) -> str:
        chosen, most = "0", scores[0]
        for k, score in enumerate(scores[1:], start=1):
            chosen = f"SEL({score} > {most}, {chosen}, {k})"
            most = f"MAX({', '.join(scores[: k + 1])})"
        return chosen

    def _set_action(self, values: Sequence[str], depth: int = 1) -> None:
        for output, value in zip(self.outputs, values, strict=True):
            self._add(f"{output} := {value}", depth)

    def _literal(self, value: float) -> str:
        return str(value) if isinstance(value, int) else str(np.float32(value))

    def _look_up(self, policy: TablePolicy) -> None:
        """Write the lookup in a table: bins, then conditions for the rows or, if they are many, the cells by action."""
        cells, dimensions = table_data(policy), policy.grid.dimensions
        choices = [actuator.is_choice for actuator in self.task.actuators]
        bins, rows = list(map(self._bin, dimensions)), interval_rows(policy, cells.codes)
        kinds = [[code] for code in range(cells.codes.max() + 1)] if cells.actions is None else cells.actions.tolist()
        actions = [[self._literal(int(v) if c else v) for v, c in zip(kind, choices, strict=True)] for kind in kinds]
        if len(rows) > _MOST_CONDITIONS:
            self._write(f"CASE {number_of_cell(bins, policy.grid.shape)} OF")
            for code in np.unique(cells.codes).tolist():
                ranges = consecutive(np.flatnonzero(cells.codes == code).tolist())
                self._write(f"{', '.join(f'{a}..{b}' if a < b else f'{a}' for a, b in ranges)}:", 2)
                self._set_action(actions[code], 3)
            self._add("END_CASE")
            return
        for i, (*box, code) in enumerate(rows):
            boxes = zip(bins, dimensions, box[::2], box[1::2], strict=True)
            tests = [test for name, d, first, last in boxes for test in _within(name, first, last, d.bins)]
            if i + 1 < len(rows):
                self._write(f"{'ELSIF' if i else 'IF'} {' AND '.join(tests) or 'TRUE'} THEN")
            elif i:
                self._write("ELSE")
            self._set_action(actions[code], 2)
        if len(rows) > 1:
            self._add("END_IF")

    def _bin(self, dimension: Dimension) -> str:
        """Define a local with the bin of a quantity, the last one for NaN; return its name."""
        if not dimension.rounded_edges:
            return "0"
        name, value = self._identifier("b", dimension.name), self.names[dimension.name]
        self._declare("VAR_TEMP", name, "DINT")
        for k, cut in enumerate(dimension.rounded_edges):
            self._write(f"{'ELSIF' if k else 'IF'} {value} < {double(cut)} THEN")
            self._add(f"{name} := {k}", 2)
        self._write("ELSE")
        self._add(f"{name} := {len(dimension.rounded_edges)}", 2)
        self._add("END_IF")
        return name


def _within(name: str, first: int, last: int, bins: int) -> list[str]:
    """Write the tests that a bin is in the range `first` to `last`; none if it always is."""
    if first == last and bins > 1:
        return [f"{name} = {first}"]
    return [f"{name} >= {first}"] * (first > 0) + [f"{name} <= {last}"] * (last + 1 < bins)
