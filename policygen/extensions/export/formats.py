"""Exported policies as text: `exported`, and the export to plain Python; C and Structured Text have own modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy.typing as npt

from policygen.errors import UsageError
from policygen.extensions.export.c import PolicyInC
from policygen.extensions.export.source import Source
from policygen.extensions.export.st import PolicyInST
from policygen.policies.policy import Policy

LANGUAGES = {"c": "C99", "python": "Python", "st": "Structured Text"}
FORMATS = tuple(LANGUAGES)


def exported(policy: Policy, to: str, facts: Sequence[str] = (), *, float32: bool = False) -> str:
    """Return the policy as text in the format `to`, one of `FORMATS`.

    Args:
        facts: sentences about the policy's origin and score, for the first comment.
        float32: whether C code computes in single precision.

    Raises:
        UsageError: the format is unknown, or `float32` is not for it.
        PolicyError: this kind of policy cannot be exported.
    """
    if to not in FORMATS:
        raise UsageError(f"a policy can be exported to {', '.join(FORMATS)}, not to `{to}`")
    if to == "c":
        return PolicyInC(policy, facts, float32=float32).text()
    if float32:
        raise UsageError(f"--float32 is for policies exported to c, not to {to}: leave it out")
    return (PolicyInST if to == "st" else PolicyInPython)(policy, facts).text()


class PolicyInPython(Source):
    """A policy as plain Python."""

    layout = "policy.py.j2"
    about = "This is plain Python that needs nothing but its standard library."
    helpers = "helpers.py.txt"
    templates: ClassVar[Mapping[str, str]] = {
        **Source.templates,
        **{name: f"pg_safe(math.{name}, {{0}})" for name in ("sin", "cos", "tan", "sqrt")},
        **{name: f"pg_{name}({{0}})" for name in ("log", "floor", "single")},
        **{"where": "({1} if {0} else {2})", "number": "float({0})", "real": "float({0})", "abs": "abs({0})"},
        **{"/": "pg_divide({0}, {1})", "^": "pg_power({0}, {1})", "atan2": "math.atan2({0} + 0.0, {1} + 0.0)"},
        **{"rint": "float(round({0}))", "tanh": "math.tanh({0})", "atan": "math.atan({0})"},
        **{"exp": "pg_safe(math.exp, {0}, math.inf)", "highest": "pg_highest({0})"},
        **{"observed": "float(observation[{0}])", "bin": "bisect.bisect_right({1}, {0})"},
        "code in byte": "(pg_cells[{0} // {1}] >> ({0} % {1} * {2})) & {3}",
        **{"inf": "math.inf", "-inf": "-math.inf", "nan": "math.nan"},
    }
    slot = "memory[{0}]"
    brackets = ("(", ")")

    def declaration(self, name: str, values: npt.NDArray[Any]) -> str:
        """Return the beginning of a tuple's definition."""
        return f"{name} ="

    def constant(self, value: float) -> str:
        """Write a constant of a tuple."""
        return f'float("{value}")' if value in (float("inf"), float("-inf")) else repr(value)

    def set_action(self, values: Sequence[str]) -> None:
        """Set the action: a number for a single choice, else a tuple."""
        numbers = [not a.is_choice and not self.policy.finds_whole_action for a in self.task.actuators]
        values = [self.call("single", value) if n else value for n, value in zip(numbers, values, strict=True)]
        self.define("action", values[0] if self.discrete else f"({', '.join(values)},)", "whole")
