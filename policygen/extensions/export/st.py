"""Policies in Structured Text (IEC 61131-3): a function block, and functions that make it decide as numpy does.

The functions of the standard library round as numpy's do; `tanh` and `atan2` are composed of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.extensions.export.source import Source, comment_text, short_name
from policygen.policies.policy import Policy
from policygen.quantities.grid import Dimension
from policygen.quantities.program import Kind, Step

_TYPES = {"number": "LREAL", "test": "BOOL", "whole": "DINT"}
_WHOLE = {8: "USINT", 16: "UINT", 32: "UDINT"}  # by bits
_FACTOR = 2.0**64  # compilers accept only literals in the range of single precision


class PolicyInST(Source):
    """A policy as a function block."""

    layout = "policy.st.j2"
    about = "Structured Text (IEC 61131-3), for IEEE 754 arithmetic that returns NaN and infinity without a fault."
    helpers = "helpers.st"
    templates: ClassVar[Mapping[str, str]] = {
        **Source.templates,
        **{name: f"{name.upper()}({{0}})" for name in ("abs", "sin", "cos", "tan", "exp", "sqrt", "atan")},
        **{name: f"pg_{name}({{0}})" for name in ("floor", "rint", "tanh")},
        **{"and": "({0} AND {1})", "or": "({0} OR {1})", "not": "(NOT {0})", "where": "SEL({0}, {2}, {1})"},
        **{"==": "({0} = {1})", "!=": "({0} <> {1})", "condition": "({0} <> 0.0)", "equals": "({0} = {1})"},
        **{"number": "SEL({0}, 0.0, 1.0)", "real": "DINT_TO_LREAL({0})", "set": "{0} := {1}"},
        **{"/": "({0} / ({1} + 0.0))", "^": "EXPT({0} + 0.0, {1})", "log": "LN({0})"},  # + 0.0: zero has no sign
        **{"atan2": "pg_atan2({0} + 0.0, {1} + 0.0)", "single": "REAL_TO_LREAL(LREAL_TO_REAL({0}))"},
        **{"start": "SEL(pg_known AND ({0} = {0}), {1}, {0})", "part": "pg_actions[{0}, {1}]"},
        # There are no literals for infinity and NaN.
        **{"inf": "(1.0 / pg_zero)", "-inf": "(-1.0 / pg_zero)", "nan": "(pg_zero / pg_zero)"},
    }
    repeated = frozenset(("start", "highest", "look_up"))
    fewest_bits = 8
    slot = "{1}"
    brackets = ("[", "]")
    end = ";"

    def __init__(self, policy: Policy, facts: Sequence[str] = ()) -> None:
        self.inputs: list[str] = []
        self.declared: dict[str, list[str]] = {"VAR_INPUT": [], "VAR_OUTPUT": [], "VAR": [], "VAR_TEMP": []}
        if policy.remembers:
            self._declare("VAR_INPUT", "RESET", "BOOL", "whether nothing is remembered in this step")
            self._declare("VAR", "pg_known", "BOOL", "whether the remembered values are of the step before")
        self.outputs: list[str] = []
        super().__init__(policy, facts)
        for slot, name in zip(self.memory, self.policy.remembers, strict=True):
            self._declare("VAR", slot, "LREAL", name)
        if "pg_zero" in "".join(self.lines):
            self._declare("VAR", "pg_zero", "LREAL", "stays 0")
        self.name = self.identifier("policy", short_name(self.task))

    def _declare(self, section: str, name: str, kind: str, note: str = "") -> None:
        self.declared[section].append(f"{name} : {kind};{f' (* {comment_text(note)} *)' if note else ''}")

    def observe(self, index: int) -> str:
        """Declare an input; return its name."""
        seen = self.task.observations[index]
        self.inputs.append(self.identifier("in", seen.name))
        self._declare("VAR_INPUT", self.inputs[-1], "LREAL", f"{seen.name}, {seen.unit or '-'}")
        return self.inputs[-1]

    def literal(self, value: float) -> str:
        """Write a constant; factors of 2^64 bring it into the range of single precision without rounding."""
        if not np.isfinite(value):
            return self.templates[str(value)]
        factors = ""
        while abs(value) > 1e30 or 0.0 < abs(value) < 1e-30:
            up = abs(value) > 1.0
            factor = _FACTOR if up else 1 / _FACTOR
            value, factors = value / factor, f"{factors} * {factor!r}"
        return _real(value) if not factors and value >= 0 else f"({_real(value)}{factors})"

    def operation_text(self, position: int, step: Step, values: Sequence[str]) -> str:
        """Write an operation; compilers refuse to divide by a constant zero."""
        if step.op == "/" and (divisor := self.program.steps[step.arguments[1]]).op == "number" and divisor.data == 0.0:
            return f"({values[0]} / pg_zero)"
        return super().operation_text(position, step, values)

    def define(self, name: str, text: str, kind: Kind) -> str:
        """Define a temporary variable."""
        self._declare("VAR_TEMP", name, _TYPES[kind])
        return super().define(name, text, kind)

    def declaration(self, name: str, values: npt.NDArray[Any]) -> str:
        """Return the beginning of an array's declaration."""
        kind = {"f": "LREAL", "i": "DINT"}.get(values.dtype.kind) or _WHOLE[8 * values.itemsize]
        return f"{name} : ARRAY[{', '.join(f'0..{count - 1}' for count in values.shape)}] OF {kind} :="

    def constant(self, value: float) -> str:
        """Write an element of an array."""
        return str(value) if isinstance(value, int) else _real(value)

    def row(self, numbers: str) -> str:
        """Write a row of an array; rows are not nested."""
        return numbers

    def call(self, operation: str, *arguments: str) -> str:
        """Fill in a template."""
        if operation == "cell":
            return f"{_WHOLE[int(arguments[1])]}_TO_DINT(pg_cells[{arguments[0]}])"
        return super().call(operation, *arguments)

    def bin(self, dimension: Dimension, value: str) -> str:
        """Count the edges that a value is not below; NaN is not below any."""
        return " + ".join(f"BOOL_TO_DINT(NOT ({value} < {self.literal(edge)}))" for edge in dimension.rounded_edges)

    def highest(self, values: Sequence[str]) -> str:
        """Write the index of the largest value (of equals, the first)."""
        position = "0"
        for k, value in enumerate(values[1:], start=1):
            most = values[0] if k == 1 else f"MAX({', '.join(values[:k])})"
            position = f"SEL({value} > {most}, {position}, {k})"
        return position

    def set_action(self, values: Sequence[str]) -> None:
        """Set the outputs, one for each actuator; the output for a choice is the label's index."""
        for i, (value, actuator) in enumerate(zip(values, self.task.actuators, strict=True)):
            self.outputs.append(self.identifier("out", actuator.name))
            self._declare("VAR_OUTPUT", self.outputs[-1], "DINT" if actuator.is_choice else "LREAL", self.values_of(i))
            whole = self.policy.finds_whole_action and actuator.is_choice and self.task.has_numbers
            value = f"LREAL_TO_DINT({value})" if whole else value
            self.add(self.call("set", self.outputs[-1], value if actuator.is_choice else self.call("single", value)))


def _real(value: float) -> str:
    """Write a number with a decimal point, even before an exponent."""
    text = repr(float(value))
    return text if "." in text else text.replace("e", ".0e")
