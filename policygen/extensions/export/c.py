"""Export to C99: one file without allocation, no library but `math.h`, the same decisions as numpy.

In single precision (`Options.float32`) all types, constants and functions are single: nothing is computed in double.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.export.arithmetic import Points
from policygen.extensions.export.program import Program
from policygen.extensions.export.source import PLAIN, Options, PolicyWithArrays, Source
from policygen.extensions.export.writing import comment_text, double
from policygen.quantities.compiled import INFINITE

_TESTED_STEPS = 200  # of each episode
# Difference allowed between a number and the one that was played, as a share of the largest magnitude within its limits
# (at least 1), and the reason; by `Options.float32`.
TOLERANCES = {
    False: (1e-6, "an action is rounded to 24 bits, 6e-8"),
    True: (1e-4, "numbers have 24 bits, 6e-8; 1,700 roundings may add up, or cancellation cost three digits"),
}
_DOUBLE = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)(?![\w.])")
_FUNCTION = re.compile(r"\b(atan2?|cos|exp|fabs|floor|fmod|log|pow|rint|sin|sqrt|tanh?)(?=\()")
_UNSIGNED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned long"}  # by bytes
_HELPERS = {
    "pg_min": """static double pg_min(double a, double b)
{
    return isnan(a) || a < b ? a : b;
}""",
    "pg_max": """static double pg_max(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}""",
    "pg_clip": """static double pg_clip(double x, double low, double high)
{
    return pg_min(pg_max(x, low), high);
}""",
    "pg_mod": """/* The remainder with the divisor's sign. */
static double pg_mod(double a, double b)
{
    double rest;
    if (!isfinite(a))
        return NAN;
    rest = fmod(a, b);
    return (rest < 0.0 && b >= 0.0) || (rest > 0.0 && b < 0.0) ? rest + b : rest;
}""",
    "pg_sign": """static double pg_sign(double x)
{
    return isnan(x) ? x : (double)((x > 0.0) - (x < 0.0));
}""",
    "pg_same": """static int pg_same(double a, double b)
{
    return a <= b && a >= b;
}""",
    "pg_where": """static double pg_where(int test, double yes, double no)
{
    return test ? yes : no;
}""",
    "pg_square": """static double pg_square(double x)
{
    return x * x;
}""",
    "pg_prev": """/* The remembered value, or the start if there is none yet (NAN). */
static double pg_prev(double before, double start)
{
    return isnan(before) ? start : before;
}""",
    "pg_finite": f"""/* NaN counts as 0, infinity as a million. */
static double pg_finite(double x)
{{
    if (isnan(x))
        return 0.0;
    if (isinf(x))
        return x > 0.0 ? {INFINITE!r} : {-INFINITE!r};
    return x;
}}""",
    "pg_bin": """/* The number of edges at or below x; all of them if x is NaN. */
static unsigned long pg_bin(double x, const float *edges, unsigned long count)
{
    unsigned long first = 0, last = count;
    while (first < last) {
        const unsigned long middle = (first + last) / 2;
        if (x < (double)edges[middle])
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}""",
    "pg_whole": """/* The nearest of the whole numbers 0 to last; last if x is NaN. */
static unsigned long pg_whole(double x, unsigned long last)
{
    if (x < 0.5)
        return 0;
    return x < (double)last - 0.5 ? (unsigned long)(x + 0.5) : last;
}""",
    "pg_highest": """/* The index of the highest score; on a tie, the first. */
static int pg_highest(const double *scores, int count)
{
    int best = 0, i;
    for (i = 1; i < count; ++i) {
        if (scores[i] > scores[best])
            best = i;
    }
    return best;
}""",
}


def in_single(code: str) -> str:
    """Rewrite types, constants and functions of `math.h` for single precision; comments must hold no decimals."""
    code = _DOUBLE.sub(lambda found: constant(float(found[0])), re.sub(r"\bdouble\b", "float", code))
    return _FUNCTION.sub(r"\1f", code)


def constant(value: float) -> str:
    """Write a float constant."""
    with np.errstate(over="ignore"):
        text = str(np.float32(value))
    if "inf" in text:
        return text.replace("inf", "INFINITY")
    return f"{text}{'' if '.' in text or 'e' in text else '.0'}f"


class C(Source):
    """The templates of C99."""

    about = "C99; do not compile with -ffast-math: NaN must be detectable."
    both = "{0} && {1}"
    either = "{0} || {1}"
    no = "!({0})"
    as_number = "(double)({0})"
    choice = "pg_where({0}, {1}, {2})"
    nonzero = "!pg_same({0}, 0.0)"
    compared: ClassVar[Mapping[str, str]] = {**Source.compared, "==": "pg_same({0}, {1})", "!=": "!pg_same({0}, {1})"}
    functions: ClassVar[Mapping[str, str]] = {
        **Source.functions,
        "/": "{0} / ({1} + 0.0)",  # there is no negative zero
        "^": "pow({0} + 0.0, {1})",
        "atan2": "atan2({0} + 0.0, {1} + 0.0)",
        "abs": "fabs({0})",
        "rint": "(rint({0}) + 0.0)",  # there is no negative zero
        **{name: f"{name}({{0}})" for name in ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "floor", "atan")},
        "observed": "observation[{0}]",
        "bin": "pg_bin({0}, {1}, {2})",
        "highest": "pg_highest((const double[]){{{0}}}, {1})",
        "single": "(float){0}",
    }
    helpers = _HELPERS
    integer_division = "/"
    slot = "memory->{1}"
    brackets = ("{", "}")
    types = ("const double ", "const unsigned long ")
    end = ";"

    def add(self, statement: str) -> None:
        """Add a statement, over several lines if it is long."""
        self.body += self.wrapped(statement)

    def wrapped(self, statement: str) -> list[str]:
        """Return the lines of a statement."""
        return textwrap.wrap(
            f"{statement};",
            110,
            initial_indent="    ",
            subsequent_indent="        ",
            break_long_words=False,
            break_on_hyphens=False,
        )

    def fill(self, name: str, values: Sequence[str]) -> None:
        """Set the elements of the array `name`."""
        for k, value in enumerate(values):
            self.add(f"{name}[{k}] = {value}")

    def declaration(self, name: str, values: npt.NDArray[Any]) -> str:
        """Declare a constant array."""
        kind = {"f": "float", "i": "int"}.get(values.dtype.kind) or _UNSIGNED[values.itemsize]
        return f"static const {kind} {name}{''.join(f'[{count}]' for count in values.shape)}"

    def literal(self, value: float) -> str:
        """Write a float or an integer."""
        return str(value) if isinstance(value, int) else constant(value)


def tested_steps(episode: Trajectory) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return the observations (n, d) and actions (n, m) of the steps that are tested: the first of an episode."""
    steps = min(episode.length, _TESTED_STEPS)
    return episode.observations[:steps].astype(np.float64), np.asarray(episode.actions[:steps], np.float64).reshape(
        steps, -1
    )


class PolicyInC(PolicyWithArrays, C):
    """A policy as C99."""

    def __init__(self, program: Program, facts: Sequence[str] = (), options: Options = PLAIN) -> None:
        super().__init__(program, facts, options)
        self.real = "float" if options.float32 else "double"
        self.fallback = [self._at_zero(k) for k in range(len(self.task.actuators))]
        self.holds = options.on_nan == "hold"
        self.name, self.has_memory = program.name, bool(self.memory) or self.holds
        if options.float32:
            self.body = list(map(in_single, self.body))

    def lines(self) -> Iterator[str]:
        """Yield the lines of one file that needs no header."""
        yield from self._comment()
        yield from ("#include <math.h>", "", *self.used_helpers(), *self.data, *self._declarations(), "")
        yield from self._definitions()

    def source(self) -> str:
        """Return the text of the .c file, which includes the header."""
        lines = [f'#include "{self.name}.h"', "#include <math.h>", "", *self.used_helpers(), *self.data]
        return "\n".join([*lines, *self._definitions(), ""])

    def header(self) -> str:
        """Return the text of the header: how to call the policy, its structure and its functions."""
        guard = f"{self.name.upper()}_H"
        wrapped = ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
        closed = ["", "#ifdef __cplusplus", "}", "#endif", f"#endif /* {guard} */", ""]
        return "\n".join(
            [*self._comment(), f"#ifndef {guard}", f"#define {guard}", *wrapped, *self._declarations(), *closed]
        )

    def test_program(self, episodes: Sequence[Trajectory]) -> str:
        """Return a program that compares the decisions of the exported policy with those in some episodes.

        Its exit code is 0 if at most as many differ as single precision changes.
        """
        name, width = self.name, len(self.task.observations)
        parts, steps = len(self.task.actuators), [tested_steps(episode) for episode in episodes]
        rows = [
            [*one, *other]
            for seen, actions in steps
            for one, other in zip(seen.tolist(), actions.tolist(), strict=True)
        ]
        starts = [int(i == 0) for seen, _ in steps for i in range(len(seen))]
        allowed = self.differing_in_single(episodes) if self.options.float32 else 0
        passed = ", &memory" if self.has_memory else ""
        call = f"{name}_act(rows[i]{passed}{'' if self.discrete else ', action'})"
        call = f"action[0] = {call}" if self.discrete else call
        call = f"wrong += {name}_step(rows[i]{passed}, action) != 0" if self.options.on_nan else call
        broken: list[str] = []
        if self.options.on_nan and self.program.observed:
            broken = [f"    rows[0][{self.program.observed[0][0]}] = NAN;"]
            broken.append(f"    wrong += {name}_step(rows[0]{passed}, action) != 1;")
        code = [
            "/* Observations, and then the decision that was played. */",
            f"static {'' if self.options.on_nan else 'const '}double rows[{len(rows)}][{width + parts}] = {{",
            *("    {" + ", ".join(map(double, row)) + "}," for row in rows),
            "};",
            f"static const unsigned char starts[{len(rows)}] = {{",
            *(f"    {', '.join(map(str, starts[i : i + 30]))}," for i in range(0, len(starts), 30)),
            "};",
            f"static const double tolerance[{parts}] = {{{', '.join(map(double, self._tolerance()))}}};",
            "",
            "int main(void)",
            "{",
            "    unsigned long i, k, wrong = 0;",
            *([f"    struct {name}_memory memory;"] if self.has_memory else []),
            f"    {self._kind} action[{parts}];",
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
        expected = f" * {allowed} decisions are expected to differ: they are ties, or nearly." if allowed else " *"
        return "\n".join(
            [
                f"/* Decisions in {len(episodes)} episodes of {comment_text(self.task.name)}.",
                f" * A number may differ by {share:g} of its largest size, or of 1 if that is less: {reason}.",
                expected,
                f" * cc {name}_test.c {name}.c -lm */",
                f'#include "{name}.h"',
                "#include <math.h>",
                "#include <stdio.h>",
                "",
                self._in_own_precision("\n".join(code)),
            ]
        )

    def differing_in_single(self, episodes: Sequence[Trajectory]) -> int:
        """Count the tested decisions that single precision changes."""
        single, wrong = Points(np.float32), 0
        for episode in episodes:
            memory: list[npt.NDArray[Any]] = []
            for row, played in zip(*tested_steps(episode), strict=True):
                values = single.read(self.program, row[None], memory)
                action = single.decided(self.program, values, 1)
                memory = single.remembered(self.program, values, action)
                wrong += int((np.abs(np.ravel(action) - played) > self._tolerance()).sum())
        return wrong

    def _tolerance(self) -> list[float]:
        """Return for each actuator the largest difference that the test allows."""
        share, _ = TOLERANCES[self.options.float32]
        return [share * (1.0 if a.is_choice else max(abs(a.low), abs(a.high), 1.0)) for a in self.task.actuators]

    def _in_own_precision(self, code: str) -> str:
        return in_single(code) if self.options.float32 else code

    def _at_zero(self, index: int) -> str:
        """Write the value of an actuator that is closest to zero; for a choice, the index of its first label."""
        actuator = self.task.actuators[index]
        value = self.literal(0 if actuator.is_choice else min(max(0.0, actuator.low), actuator.high))
        return f"(float){value}" if self.task.has_numbers and actuator.is_choice else value

    def used_helpers(self) -> list[str]:
        """Return the definitions of all helpers that the code calls, in order."""
        return list(map(self._in_own_precision, super().used_helpers()))

    @property
    def _reset(self) -> str:
        return f"void {self.name}_reset(struct {self.name}_memory *memory)"

    def _comment(self) -> Iterator[str]:
        usage = [f"{self._entry()};"]
        if self.options.on_nan:
            usage += [*self._about_status(), ""]
        if self.has_memory:
            usage += [f"{self._reset};", "", "There is one memory for each controlled system; reset it at every start."]
        yield "/*"
        yield from (f" * {line}".rstrip() for line in self.policy_heading(usage))
        yield " */"

    def _declarations(self) -> Iterator[str]:
        if self.has_memory:
            yield f"struct {self.name}_memory {{"
            for slot, name in zip(self.memory, self.policy.remembers, strict=True):
                yield f"    {self.real} {slot.removeprefix('memory->')}; /* {comment_text(name)} */"
            if self.holds:
                yield f"    {self._kind} held[{len(self.fallback)}]; /* the last action */"
            yield f"}};\n\n{self._reset};"
        yield f"{self._entry()};"

    def _definitions(self) -> Iterator[str]:
        if self.has_memory:
            yield f"{self._reset}\n{{"
            yield from (f"    {slot} = NAN;" for slot in self.memory)
            if self.holds:
                yield from (f"    memory->held[{k}] = {value};" for k, value in enumerate(self.fallback))
            yield "}\n"
        yield f"{'static ' if self.options.on_nan else ''}{self._prototype()}\n{{"
        yield from self.body
        words = Counter(re.findall(r"\w+", "\n".join(self.body)))
        unused = [name for name in self.names.values() if words[name] == 1]  # declared but never read
        yield from (f"    (void){name};" for name in (unused if words["observation"] else ["observation"]))
        yield "    return action;\n}" if self.discrete else "}"
        if self.options.on_nan:
            yield from self._guard()

    def _guard(self) -> Iterator[str]:
        """Yield the function that checks that observations are finite, and only then decides."""
        parts = range(len(self.fallback))
        memory = ", memory" if self.memory else ""
        known = " && ".join(f"isfinite(observation[{i}])" for i, _ in self.program.observed) or "1"
        yield from ("", self._entry(), "{", *self.wrapped(f"const int known = {known}"))
        held = [f"memory->held[{k}]" for k in parts]
        unknown = {"hold": held, "zero": self.fallback}.get(self.options.on_nan or "", [])
        yield "    if (!known) {"
        yield from (f"        action[{k}] = {value};" for k, value in enumerate(unknown))
        yield "        return 1;\n    }"
        act = f"{self.name}_act(observation{memory}"
        yield f"    action[0] = {act});" if self.discrete else f"    {act}, action);"
        if self.holds:
            yield from (f"    memory->held[{k}] = action[{k}];" for k in parts)
        yield "    return 0;\n}"

    def _about_status(self) -> Iterator[str]:
        """Yield sentences that describe what the function does if an observation is not finite."""
        zero = ", ".join(
            f"{a.name} {a.labels[0] if a.is_choice else value.removesuffix('f')}"
            for a, value in zip(self.task.actuators, self.fallback, strict=True)
        )
        yield "It returns 0; 1 if an observation that the policy reads is NaN or infinite."
        if self.holds:
            yield f"Then the last action is held ({zero} if there is none),"
        elif self.options.on_nan == "zero":
            yield f"Then the action is zero, as near as limits allow, or the first choice ({zero}),"
        else:
            yield "Then the action is left as it is,"
        yield "and no value is remembered."

    @property
    def _kind(self) -> str:
        return "float" if self.task.has_numbers else "int"

    def _entry(self) -> str:
        """Write the head of the function to call."""
        return self._head("int", "step", self.has_memory, True) if self.options.on_nan else self._prototype()

    def _prototype(self) -> str:
        """Write the head of the function that decides."""
        return self._head("int" if self.discrete else "void", "act", bool(self.memory), not self.discrete)

    def _head(self, returned: str, name: str, has_memory: bool, has_action: bool) -> str:
        arguments = [f"const {self.real} observation[{len(self.task.observations)}]"]
        arguments += [f"struct {self.name}_memory *memory"] * has_memory
        arguments += [f"{self._kind} action[{len(self.task.actuators)}]"] * has_action
        return f"{returned} {self.name}_{name}({', '.join(arguments)})"

    def set_action(self, values: Sequence[str]) -> None:
        """Define the action that is returned, or fill in the array."""
        if self.discrete:
            self.add(f"const int action = (int){values[0]}")
            return
        whole = [self.task.has_numbers and actuator.is_choice for actuator in self.task.actuators]
        self.fill("action", [f"(float){value}" if cast else value for value, cast in zip(values, whole, strict=True)])

    def chosen(self, part: str, label: int | None) -> str:
        """Write a part of the action as a number; with a label, whether it is chosen."""
        if label is None or not self.task.has_numbers:
            return super().chosen(part, label)
        return self.as_number.format(self.compared["=="].format(f"(double){part}", double(label)))

    def find_row(self, bins: Sequence[str], count: int) -> None:
        """Write a loop that compares the bins with each row; the last row matches any bins."""
        self.body += [
            f"    const unsigned long bins[{len(bins)}] = {{",
            *(f"        {text}," for text in bins),
            "    };",
            "    unsigned long row, i, code;",
            f"    for (row = 0; row + 1 < {count}; ++row) {{",
            f"        for (i = 0; i < {len(bins)}; ++i) {{",
            "            if (bins[i] < pg_rows[row][2 * i] || bins[i] > pg_rows[row][2 * i + 1])",
            "                break;",
            "        }",
            f"        if (i == {len(bins)})",
            "            break;",
            "    }",
            f"    code = pg_rows[row][{2 * len(bins)}];",
        ]
