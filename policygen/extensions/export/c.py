"""Policies in C99: one file without allocation, no library but `math.h`, the same decisions as numpy.

In single precision (`Options.float32`) all types, constants and functions are single: nothing is computed in double.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.export.source import Source, rendered, short_name
from policygen.policies.policy import Policy
from policygen.quantities.spelling import column_function
from policygen.quantities.writer import Kind, bare

_TESTED_STEPS = 200  # of each episode
# By `Options.float32`: the largest difference that the test allows between a number and the one that was played, and
# the reason. It is a share of the limit with the larger absolute value, or of 1 if that is less than 1.
TOLERANCES = {
    False: (1e-6, "an action is rounded to 24 bits, 6e-8"),
    True: (1e-4, "numbers have 24 bits, 6e-8; 1,700 roundings may add up, or cancellation cost three digits"),
}
_DOUBLE = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)(?![\w.])")
_FUNCTION = re.compile(r"\b(atan2?|cos|exp|fabs|floor|fmod|log|pow|rint|sin|sqrt|tanh?)(?=\()")
_TYPES = {"number": "double", "test": "int", "whole": "unsigned long"}
_UNSIGNED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned long"}  # by bytes


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of exported C."""

    float32: bool = False  # whether all arithmetic is in single precision
    # Reaction to an observation that is NaN or infinite: `hold` the last action, `zero`, or `fault` (no action). None:
    # as in policygen, where in an expression NaN counts as 0, and an infinity as a million with its sign; if it is
    # binned directly, NaN falls into the last bin.
    on_nan: Literal["hold", "zero", "fault"] | None = None


PLAIN = Options()


def in_single(code: str) -> str:
    """Rewrite types, constants and functions of `math.h` for single precision; comments must hold no decimals."""
    code = _DOUBLE.sub(lambda found: single(float(found[0])), re.sub(r"\bdouble\b", "float", code))
    return _FUNCTION.sub(r"\1f", code)


def single(value: float) -> str:
    """Write a constant in single precision."""
    with np.errstate(over="ignore"):
        text = str(np.float32(value))
    if "inf" in text:
        return text.replace("inf", "INFINITY")
    return f"{text}{'' if '.' in text or 'e' in text else '.0'}f"


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

    def __init__(self, policy: Policy, facts: Sequence[str] = (), options: Options = PLAIN) -> None:
        self.kind = "float" if policy.task.has_numbers else "int"  # of the parts of an action
        super().__init__(policy, facts)
        self.options, self.name = options, short_name(self.task)
        # The values of the actuators that are closest to zero; for a choice, the index of its first label.
        zeros = [0 if a.is_choice else min(max(0.0, a.low), a.high) for a in self.task.actuators]
        self.fallback = [str(zero) if isinstance(zero, int) else single(zero) for zero in zeros]

    def define(self, name: str, text: str, kind: Kind) -> str:
        """Define a local."""
        self.add(f"const {_TYPES[kind]} {name} = {bare(text)}")
        return name

    def constant(self, value: float) -> str:
        """Write a constant of an array."""
        return str(value) if isinstance(value, int) else single(value)

    def declaration(self, name: str, values: npt.NDArray[Any]) -> str:
        """Return the left side of an array's definition."""
        kind = {"f": "float", "i": "int"}.get(values.dtype.kind) or _UNSIGNED[values.itemsize]
        return f"static const {kind} {name}{''.join(f'[{count}]' for count in values.shape)} ="

    def set_action(self, values: Sequence[str]) -> None:
        """Set the action."""
        if self.discrete:
            self.add(f"const int action = (int)({bare(values[0])})")
        for k, value in enumerate(() if self.discrete else values):
            self.add(f"action[{k}] = {value if value.startswith('pg_actions') else f'({self.kind}){value}'}")

    def text(self, part: str = "file", **values: Any) -> str:
        """Write one self-contained file; or the `source` that includes the `header`, or that header."""
        return super().text(part=part, **values)

    def in_precision(self, code: Iterable[str]) -> list[str]:
        """Return code in the precision of the options."""
        return list(map(in_single, code) if self.options.float32 else code)


def in_single_precision(policy: Policy, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the actions, shape (n, m), of an episode with observations (n, d), all arithmetic in single precision."""
    step, parts, decided = column_function(policy.program, np.float32), policy.decision_parts, []
    memory = np.full((len(policy.remembers), 1), np.nan, np.float32)
    for row in rows.astype(np.float32):
        with np.errstate(all="ignore"):
            results = step([*row[:, None], *memory])
        decided.append(np.ravel(policy.as_actions(results[:parts], 1)))
        memory = np.array([np.ravel(value)[:1] for value in results[parts:]], np.float32)
    return np.array(decided)


def c_files(
    policy: Policy, facts: Sequence[str], episodes: Sequence[Trajectory], options: Options
) -> tuple[dict[str, str], str]:
    """Return the files of a policy in C by name (source, header, test program), and a warning or an empty text.

    The test program compares its decisions with those in the first steps of the episodes. The header states how many of
    them single precision changes; if any, the warning says it, too, and the program allows for as many.
    """
    share, reason = TOLERANCES[options.float32]
    tolerances = [share * (1.0 if a.is_choice else max(abs(a.low), abs(a.high), 1.0)) for a in policy.task.actuators]
    observed = [episode.observations[:_TESTED_STEPS][: episode.length].astype(np.float64) for episode in episodes]
    played = [
        np.asarray(episode.actions[: len(rows)], np.float64).reshape(len(rows), -1)
        for episode, rows in zip(episodes, observed, strict=True)
    ]
    changed, warning = 0, ""
    if options.float32:
        single_actions = np.concatenate([in_single_precision(policy, rows) for rows in observed])
        differ = np.abs(single_actions - np.concatenate(played)) > tolerances
        changed = int(differ.sum())
        words = f"In single precision {changed} of {differ.size} decisions in {len(episodes)} episodes differ."
        facts, warning = [*facts, words], f"{words} The test program allows for them." if changed else ""
    code = PolicyInC(policy, facts, options)
    test = rendered(
        "test.c.j2",
        code=code,
        episodes=len(episodes),
        rows=[list(map(repr, row)) for row in np.hstack([*map(np.concatenate, (observed, played))]).tolist()],
        starts=[int(i == 0) for rows in observed for i in range(len(rows))],
        tolerances=list(map(repr, tolerances)),
        share=share,
        reason=reason,
        allowed=changed,
    )
    texts = {".c": code.text("source"), ".h": code.text("header"), "_test.c": test}
    return {f"{code.name}{end}": text for end, text in texts.items()}, warning
