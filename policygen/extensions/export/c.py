"""Policies in C99: one file without allocation, no library but `math.h`, the same decisions as numpy.

In single precision (`Options.float32`) all types, constants and functions are single: nothing is computed in double.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.export.source import Source, comment_text, double, short_name
from policygen.policies.policy import Policy
from policygen.quantities.spelling import column_function
from policygen.quantities.writer import Kind, bare
from policygen.tasks.task import Task

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
        self.real = "float" if options.float32 else "double"
        self.holds = options.on_nan == "hold"
        self.has_memory = bool(self.memory) or self.holds
        # The values of the actuators that are closest to zero; for a choice, the index of its first label.
        zeros = [0 if a.is_choice else min(max(0.0, a.low), a.high) for a in self.task.actuators]
        self.fallback = [str(zero) if isinstance(zero, int) else single(zero) for zero in zeros]
        self.reset = f"void {self.name}_reset(struct {self.name}_memory *memory)"
        self.decide = self._head("int" if self.discrete else "void", "act", bool(self.memory), not self.discrete)
        self.entry = self._head("int", "step", self.has_memory, True) if options.on_nan else self.decide

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

    def _head(self, returned: str, name: str, has_memory: bool, has_action: bool) -> str:
        """Write the head of a function."""
        arguments = [f"const {self.real} observation[{len(self.task.observations)}]"]
        arguments += [f"struct {self.name}_memory *memory"] * has_memory
        arguments += [f"{self.kind} action[{len(self.task.actuators)}]"] * has_action
        return f"{returned} {self.name}_{name}({', '.join(arguments)})"

    def file(self) -> Iterator[str]:
        """Yield the lines of a single file."""
        yield from self._usage()
        yield from ("#include <math.h>", "", *self._constants(), *self._declarations(), "", *self._definitions())

    def source(self) -> str:
        """Return the text of the .c file, which includes the header."""
        included = [f'#include "{self.name}.h"', "#include <math.h>", ""]
        return "\n".join([*included, *self._constants(), *self._definitions(), ""])

    def header(self) -> str:
        """Return the text of the header: how to call the policy, its structure and its functions."""
        guard = f"{self.name.upper()}_H"
        begun = [f"#ifndef {guard}", f"#define {guard}", "#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
        closed = ["", "#ifdef __cplusplus", "}", "#endif", f"#endif /* {guard} */", ""]
        return "\n".join([*self._usage(), *begun, *self._declarations(), *closed])

    def test_program(self, episodes: Sequence[Trajectory], allowed: int) -> str:
        """Return a program that compares the decisions of the exported policy with those in some episodes.

        Its exit code is 0 if at most `allowed` decisions differ.
        """
        name, width = self.name, len(self.task.observations)
        parts, steps = len(self.task.actuators), [tested_steps(episode) for episode in episodes]
        rows = np.concatenate([np.hstack(step) for step in steps]).tolist()
        starts = [int(i == 0) for seen, _ in steps for i in range(len(seen))]
        passed = ", &memory" if self.has_memory else ""
        call = f"{name}_act(rows[i]{passed}{'' if self.discrete else ', action'})"
        call = f"action[0] = {call}" if self.discrete else call
        broken: list[str] = []
        if self.options.on_nan:
            call = f"wrong += {name}_step(rows[i]{passed}, action) != 0"
            for index in self.observed[:1]:
                broken = [f"    rows[0][{index}] = NAN;", f"    wrong += {name}_step(rows[0]{passed}, action) != 1;"]
        tolerances = _tolerances(self.task, float32=self.options.float32)
        code = [
            "/* Observations, and then the decision that was played. */",
            f"static {'' if self.options.on_nan else 'const '}double rows[{len(rows)}][{width + parts}] = {{",
            *("    {" + ", ".join(map(double, row)) + "}," for row in rows),
            "};",
            f"static const unsigned char starts[{len(rows)}] = {{",
            *(f"    {', '.join(map(str, starts[i : i + 30]))}," for i in range(0, len(starts), 30)),
            "};",
            f"static const double tolerance[{parts}] = {{{', '.join(map(double, tolerances))}}};",
            "",
            "int main(void)",
            "{",
            "    unsigned long i, k, wrong = 0;",
            *([f"    struct {name}_memory memory;"] if self.has_memory else []),
            f"    {self.kind} action[{parts}];",
            f"    for (i = 0; i < {len(rows)}; ++i) {{",
            *([f"        if (starts[i])\n            {name}_reset(&memory);"] if self.has_memory else []),
            f"        {call};",
            f"        for (k = 0; k < {parts}; ++k)",
            f"            wrong += fabs((double)action[k] - rows[i][{width} + k]) > tolerance[k];",
            "    }",
            *broken,
            "    (void)starts;",
            f'    printf("%lu of {len(rows) * parts} decisions differ\\n", wrong);',
            f"    return wrong > {allowed};",
            "}",
            "",
        ]
        share, reason = TOLERANCES[self.options.float32]
        heading = [
            f"/* Decisions in {len(episodes)} episodes of {comment_text(self.task.name)}.",
            f" * A number may differ by {share:g} of its largest size, or of 1 if that is less: {reason}.",
            f" * {allowed} decisions are expected to differ: they are ties, or nearly." if allowed else " *",
            f" * cc {name}_test.c {name}.c -lm */",
            f'#include "{name}.h"',
            "#include <math.h>",
            "#include <stdio.h>",
            "",
        ]
        return "\n".join([*heading, *self._in_own_precision(code)])

    def _in_own_precision(self, code: Iterable[str]) -> list[str]:
        return list(map(in_single, code) if self.options.float32 else code)

    def _usage(self) -> list[str]:
        """Return the first comment."""
        usage = [f"{self.entry};"]
        if self.options.on_nan:
            zero = ", ".join(
                f"{a.name} {a.labels[0] if a.is_choice else value.removesuffix('f')}"
                for a, value in zip(self.task.actuators, self.fallback, strict=True)
            )
            then = {
                "hold": f"Then the last action is held ({zero} if there is none),",
                "zero": f"Then the action is zero, as near as limits allow, or the first choice ({zero}),",
                "fault": "Then the action is left as it is,",
            }[self.options.on_nan]
            usage.append("It returns 0; 1 if an observation that the policy reads is NaN or infinite.")
            usage += [then, "and no value is remembered.", ""]
        if self.has_memory:
            usage += [f"{self.reset};", "", "There is one memory for each controlled system; reset it at every start."]
        return ["/*", *(f" * {line}".rstrip() for line in self.heading(usage)), " */"]

    def _constants(self) -> list[str]:
        return self._in_own_precision([*self.used_helpers(), *self.data])

    def _declarations(self) -> Iterator[str]:
        if self.has_memory:
            yield f"struct {self.name}_memory {{"
            for slot, name in zip(self.memory, self.policy.remembers, strict=True):
                yield f"    {self.real} {slot.removeprefix('memory->')}; /* {comment_text(name)} */"
            if self.holds:
                yield f"    {self.kind} held[{len(self.fallback)}]; /* the last action */"
            yield f"}};\n\n{self.reset};"
        yield f"{self.entry};"

    def _definitions(self) -> Iterator[str]:
        held = [f"memory->held[{k}]" for k in range(len(self.fallback))] if self.holds else []
        if self.has_memory:
            yield f"{self.reset}\n{{"
            yield from (f"    {slot} = NAN;" for slot in self.memory)
            yield from (f"    {slot} = {value};" for slot, value in zip(held, self.fallback, strict=False))
            yield "}\n"
        yield f"{'static ' if self.options.on_nan else ''}{self.decide}\n{{"
        yield from self._in_own_precision(self.lines)
        if not self.observed:
            yield "    (void)observation;"
        yield "    return action;\n}" if self.discrete else "}"
        if not self.options.on_nan:
            return
        # The function to call checks that observations are finite, and only then decides.
        known = " && ".join(f"isfinite(observation[{i}])" for i in self.observed) or "1"
        yield from ("", self.entry, "{", *self.wrapped(f"const int known = {known}"), "    if (!known) {")
        unknown = {"hold": held, "zero": self.fallback, "fault": []}[self.options.on_nan]
        yield from (f"        action[{k}] = {value};" for k, value in enumerate(unknown))
        yield "        return 1;\n    }"
        act = f"{self.name}_act(observation{', memory' if self.memory else ''}"
        yield f"    action[0] = {act});" if self.discrete else f"    {act}, action);"
        yield from (f"    {slot} = action[{k}];" for k, slot in enumerate(held))
        yield "    return 0;\n}"


def tested_steps(episode: Trajectory) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return the observations (n, d) and actions (n, m) of the tested steps of an episode, which are its first ones."""
    steps = min(episode.length, _TESTED_STEPS)
    actions = np.asarray(episode.actions[:steps], np.float64).reshape(steps, -1)
    return episode.observations[:steps].astype(np.float64), actions


def changed_by_single(policy: Policy, episodes: Sequence[Trajectory]) -> int:
    """Count the tested decisions that single precision changes."""
    tolerances = _tolerances(policy.task, float32=True)
    pairs = [(in_single_precision(policy, rows), played) for rows, played in map(tested_steps, episodes)]
    return sum(int((np.abs(actions - played) > tolerances).sum()) for actions, played in pairs)


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


def _tolerances(task: Task, *, float32: bool) -> list[float]:
    """Return for each actuator the largest difference that the test allows."""
    share, _ = TOLERANCES[float32]
    return [share * (1.0 if a.is_choice else max(abs(a.low), abs(a.high), 1.0)) for a in task.actuators]


def c_files(
    policy: Policy, facts: Sequence[str], episodes: Sequence[Trajectory], options: Options
) -> tuple[dict[str, str], str]:
    """Return the files of a policy in C by name (source, header, test program), and a warning or an empty text.

    The header states how many decisions in the episodes single precision changes; if any, the warning says it, too.
    """
    changed, warning = 0, ""
    if options.float32:
        changed = changed_by_single(policy, episodes)
        count = sum(actions.size for _, actions in map(tested_steps, episodes))
        facts = [*facts, f"In single precision {changed} of {count} decisions in {len(episodes)} episodes differ."]
        warning = f"{facts[-1]} The test program allows for them." if changed else ""
    code = PolicyInC(policy, facts, options)
    texts = {".c": code.source(), ".h": code.header(), "_test.c": code.test_program(episodes, changed)}
    return {f"{code.name}{end}": text for end, text in texts.items()}, warning
