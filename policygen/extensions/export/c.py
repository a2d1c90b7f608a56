"""Policies in C99: a file without allocation that needs only `math.h` and makes the same decisions as numpy.

With `float32` all types, constants and functions are of single precision, and no computation uses double.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.export.source import Source, short_name, template
from policygen.policies.policy import Policy
from policygen.quantities.program import Kind, bare

_TESTED_STEPS = 200  # of each episode
_TYPES = {"number": "double", "test": "int", "whole": "unsigned long"}
_UNSIGNED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned long"}  # by bytes
_DOUBLE = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)(?![\w.])")
_FUNCTION = re.compile(r"\b(atan2?|cos|exp|fabs|floor|fmod|log|pow|rint|sin|sqrt|tanh?)(?=\()")


def _single(value: float) -> str:
    """Write a constant in single precision."""
    with np.errstate(over="ignore"):
        text = str(np.float32(value)).replace("inf", "INFINITY")
    return text if "INF" in text else f"{text}{'' if '.' in text or 'e' in text else '.0'}f"


class PolicyInC(Source):
    """A policy as C99."""

    layout = "policy.c.j2"
    about = "C99; do not compile with -ffast-math: NaN must be detectable."
    helpers = "helpers.c"
    templates: ClassVar[Mapping[str, str]] = {
        **Source.templates,
        **{name: f"{name}({{0}})" for name in ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "floor", "atan")},
        **{"and": "({0} && {1})", "or": "({0} || {1})", "not": "(!{0})", "where": "({0} ? {1} : {2})"},
        **{"==": "pg_same({0}, {1})", "!=": "(!pg_same({0}, {1}))", "condition": "(!pg_same({0}, 0.0))"},
        **{"number": "({0} ? 1.0 : 0.0)", "real": "(double)({0})", "single": "(double)(float)({0})"},
        "/": "({0} / ({1} + 0.0))",  # zero has no sign in policies: + 0.0 turns -0.0 into 0.0
        **{"^": "pow({0} + 0.0, {1})", "atan2": "atan2({0} + 0.0, {1} + 0.0)", "abs": "fabs({0})"},
        "rint": "(rint({0}) + 0.0)",  # C rounds -0.2 to -0.0
        **{"observed": "observation[{0}]", "bin": "pg_bin({0}, {1}, {2})"},
        "code in byte": "(pg_cells[{0} / {1}] >> ({0} % {1} * {2})) & {3}",
        "highest": "pg_highest((const double[]){{{0}}}, {1})",
        **{"inf": "INFINITY", "-inf": "(-INFINITY)", "nan": "NAN"},
    }
    slot = "memory->{1}"
    brackets = ("{", "}")
    end = ";"

    def __init__(self, policy: Policy, facts: Sequence[str] = (), *, float32: bool = False) -> None:
        self.kind = "float" if policy.task.has_numbers else "int"  # of the parts of an action
        self.name, self.float32 = short_name(policy.task), float32
        super().__init__(policy, facts)

    def define(self, name: str, text: str, kind: Kind) -> str:
        """Define a local."""
        self.add(f"const {_TYPES[kind]} {name} = {bare(text)}")
        return name

    def constant(self, value: float) -> str:
        """Write an element of an array."""
        return str(value) if isinstance(value, int) else _single(value)

    def declaration(self, name: str, values: npt.NDArray[Any]) -> str:
        """Return the beginning of an array's definition."""
        kind = {"f": "float", "i": "int"}.get(values.dtype.kind) or _UNSIGNED[values.itemsize]
        return f"static const {kind} {name}{''.join(f'[{count}]' for count in values.shape)} ="

    def set_action(self, values: Sequence[str]) -> None:
        """Set the action, or its parts."""
        if self.discrete:
            self.add(f"const int action = (int)({bare(values[0])})")
        for k, value in enumerate(() if self.discrete else values):
            self.add(f"action[{k}] = {value if value.startswith('pg_actions') else f'({self.kind}){value}'}")

    def text(self, part: str = "file", **values: Any) -> str:
        """Write the policy: `part` is a self-contained `file`, a `header`, or the `source` that includes it."""
        return super().text(part=part, **values)

    def in_precision(self, code: str) -> str:
        """Rewrite types, constants and functions for single precision, if chosen; comments contain no decimals."""
        if not self.float32:
            return code
        code = _DOUBLE.sub(lambda found: _single(float(found[0])), re.sub(r"\bdouble\b", "float", code))
        return _FUNCTION.sub(r"\1f", code)


# What each file of a policy in C is, by the end of its name.
C_FILES = {".c": "the policy in C99", ".h": "its header", "_test.c": "a program that tests its decisions"}


def c_files(
    policy: Policy, facts: Sequence[str], episodes: Sequence[Trajectory], *, float32: bool = False
) -> dict[str, str]:
    """Return the files of a policy in C by name: source, header, and a program that tests the policy's decisions.

    The program compares them with the decisions in the first steps of the episodes. A number may differ by a share of
    its maximum absolute value, or of 1 if that is less than 1. In single precision, one decision in a hundred may
    differ (in a tie, or near one).
    """
    code, share = PolicyInC(policy, facts, float32=float32), 1e-4 if float32 else 1e-6
    sizes = [1.0 if a.is_choice else max(abs(a.low), abs(a.high), 1.0) for a in policy.task.actuators]
    steps = [min(episode.length, _TESTED_STEPS) for episode in episodes]
    rows = [
        np.column_stack([episode.observations[:n], episode.actions[:n]]).astype(np.float64)
        for episode, n in zip(episodes, steps, strict=True)
    ]
    test = template("test.c.j2").render(
        code=code,
        episodes=len(episodes),
        rows=[list(map(repr, row)) for row in np.concatenate(rows).tolist()],
        starts=[int(i == 0) for n in steps for i in range(n)],
        tolerances=[repr(share * size) for size in sizes],
        share=share,
    )
    texts = (code.text("source"), code.text("header"), test)
    return {f"{code.name}{end}": text for end, text in zip(C_FILES, texts, strict=True)}
