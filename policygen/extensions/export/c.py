"""Export to C99: one file without allocation, no library but `math.h`, the same decisions as numpy."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.export.expressions import number
from policygen.extensions.export.source import PolicySource, Source
from policygen.extensions.export.words import remark
from policygen.quantities.compiled import INFINITE

_TESTED_STEPS = 200  # of an episode
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
    "pg_highest": """/* The index of the highest score; if several, the first. */
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


class C(Source):
    """The templates of C99."""

    about = "C99; do not compile with -ffast-math: NaN must be detectable."
    both = "{0} && {1}"
    either = "{0} || {1}"
    no = "!({0})"
    as_number = "(double)({0})"
    choice = "pg_where({0}, {1}, {2})"
    nonzero = "!pg_same({0}, 0.0)"
    compared: ClassVar[Mapping[str, str]] = {
        **Source.compared,
        "==": "pg_same({0}, {1})",
        "!=": "!pg_same({0}, {1})",
    }
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
        self.body += textwrap.wrap(
            f"{statement};",
            110,
            initial_indent="    ",
            subsequent_indent="        ",
            break_long_words=False,
            break_on_hyphens=False,
        )

    def fill(self, name: str, values: Sequence[str]) -> None:
        """Set the elements of the array, which is an argument."""
        for k, value in enumerate(values):
            self.add(f"{name}[{k}] = {value}")

    def declaration(self, name: str, values: npt.NDArray[Any]) -> str:
        """Declare a constant array."""
        kind = {"f": "float", "i": "int"}.get(values.dtype.kind) or _UNSIGNED[values.itemsize]
        return f"static const {kind} {name}{''.join(f'[{count}]' for count in values.shape)}"

    def literal(self, value: float) -> str:
        """Write a float or an integer."""
        if isinstance(value, int):
            return str(value)
        text = str(np.float32(value))
        if "inf" in text:
            return text.replace("inf", "INFINITY")
        return f"{text}{'' if '.' in text or 'e' in text else '.0'}f"


class PolicyInC(PolicySource, C):
    """A policy as C99."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of one file with everything."""
        yield from self._comment()
        yield from ("#include <math.h>", "")
        yield from (f"{helper}\n" for helper in self.used_helpers())
        yield from self.data
        yield from self._declarations()
        yield from ("", *self._definitions())

    def source(self) -> str:
        """Write the .c file that includes `header`."""
        lines = [f'#include "{self.program.name}.h"', "#include <math.h>", ""]
        lines += [f"{helper}\n" for helper in self.used_helpers()]
        return "\n".join([*lines, *self.data, *self._definitions(), ""])

    def header(self) -> str:
        """Write a header file: how to call the policy, its structure and its functions."""
        guard = f"{self.program.name.upper()}_H"
        wrapped = ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
        closed = ["", "#ifdef __cplusplus", "}", "#endif", f"#endif /* {guard} */", ""]
        return "\n".join(
            [*self._comment(), f"#ifndef {guard}", f"#define {guard}", *wrapped, *self._declarations(), *closed]
        )

    def test_program(self, episodes: Sequence[Trajectory]) -> str:
        """Write a program that compares the decisions of the exported policy with those in some episodes.

        Its exit code is 0 if all are alike: choices equal, numbers within a millionth of their range.
        """
        name, width = self.program.name, len(self.task.observations)
        parts = 1 if self.returns_one else len(self.task.actuators)
        rows, starts = [], []
        for episode in episodes:
            steps = min(episode.length, _TESTED_STEPS)
            starts += [1] + [0] * (steps - 1)
            seen = episode.observations[:steps].astype(np.float64)
            done = np.asarray(episode.actions[:steps], np.float64).reshape(steps, parts)
            rows += [[*one, *other] for one, other in zip(seen.tolist(), done.tolist(), strict=True)]
        ranges = [max(abs(a.low), abs(a.high), 1.0) if not a.is_choice else 1.0 for a in self.task.actuators]
        memory = [f"    struct {name}_memory memory;"] if self.memory else []
        kind = "float" if self.task.has_numbers else "int"
        passed = ", &memory" if self.memory else ""
        call = (
            f"        decided[0] = (double){name}_act(rows[i]{passed});"
            if self.returns_one
            else f"        {name}_act(rows[i]{passed}, action);"
        )
        return "\n".join(
            [
                f"/* Decisions in {len(episodes)} episodes of {remark(self.task.name)}.",
                f" * cc {name}_test.c {name}.c -lm */",
                f'#include "{name}.h"',
                "#include <math.h>",
                "#include <stdio.h>",
                "",
                "/* Observations, and then the decision that was played. */",
                f"static const double rows[{len(rows)}][{width + parts}] = {{",
                *("    {" + ", ".join(map(number, row)) + "}," for row in rows),
                "};",
                f"static const unsigned char starts[{len(rows)}] = {{",
                *(f"    {', '.join(map(str, starts[i : i + 30]))}," for i in range(0, len(starts), 30)),
                "};",
                f"static const double ranges[{parts}] = {{{', '.join(map(number, ranges[:parts]))}}};",
                "",
                "int main(void)",
                "{",
                "    unsigned long i, k, wrong = 0;",
                *memory,
                f"    for (i = 0; i < {len(rows)}; ++i) {{",
                f"        double decided[{parts}];",
                *([] if self.returns_one else [f"        {kind} action[{parts}];"]),
                *([f"        if (starts[i])\n            {name}_reset(&memory);"] if self.memory else []),
                call,
                f"        for (k = 0; k < {parts}; ++k) {{",
                *([] if self.returns_one else ["            decided[k] = (double)action[k];"]),
                f"            wrong += fabs(decided[k] - rows[i][{width} + k]) > 1e-6 * ranges[k];",
                "        }",
                "    }",
                "    (void)starts;",
                f'    printf("%lu of {len(rows) * parts} decisions differ\\n", wrong);',
                "    return wrong != 0;",
                "}",
                "",
            ]
        )

    @property
    def _reset(self) -> str:
        return f"void {self.program.name}_reset(struct {self.program.name}_memory *memory)"

    def _comment(self) -> Iterator[str]:
        usage = [f"{self._prototype()};"]
        if self.memory:
            usage += [f"{self._reset};", "", "There is one memory for each controlled system; reset it at every start."]
        yield "/*"
        yield from (f" * {line}".rstrip() for line in self.policy_heading(usage))
        yield " */"

    def _declarations(self) -> Iterator[str]:
        if self.memory:
            yield f"struct {self.program.name}_memory {{"
            for slot, name in zip(self.memory, self.policy.remembers, strict=True):
                yield f"    double {slot.removeprefix('memory->')}; /* {remark(name)} */"
            yield f"}};\n\n{self._reset};"
        yield f"{self._prototype()};"

    def _definitions(self) -> Iterator[str]:
        act, reset = self._prototype(), self._reset
        if self.memory:
            yield f"{reset}\n{{"
            yield from (f"    {slot} = NAN;" for slot in self.memory)
            yield "}\n"
        yield f"{act}\n{{"
        yield from self.body
        words = Counter(re.findall(r"\w+", "\n".join(self.body)))
        unused = [name for name in self.names.values() if words[name] == 1]  # declared but never read
        yield from (f"    (void){name};" for name in (unused if words["observation"] else ["observation"]))
        yield "    return action;\n}" if self.returns_one else "}"

    def _prototype(self) -> str:
        arguments = [f"const double observation[{len(self.task.observations)}]"]
        if self.memory:
            arguments.append(f"struct {self.program.name}_memory *memory")
        if not self.returns_one:
            arguments.append(f"{'float' if self.task.has_numbers else 'int'} action[{len(self.task.actuators)}]")
        return f"{'int' if self.returns_one else 'void'} {self.program.name}_act({', '.join(arguments)})"

    def set_action(self, values: Sequence[str]) -> None:
        """Define the action that is returned, or fill in the array."""
        if self.returns_one:
            self.add(f"const int action = (int){values[0]}")
            return
        self.fill("action", values)

    def find_row(self, bins: Sequence[str], rows: int) -> None:
        """Compare the bins with one row after the other; the last row matches any bins."""
        self.body += [
            f"    const unsigned long bins[{len(bins)}] = {{",
            *(f"        {text}," for text in bins),
            "    };",
            "    unsigned long row, i, code;",
            f"    for (row = 0; row + 1 < {rows}; ++row) {{",
            f"        for (i = 0; i < {len(bins)}; ++i) {{",
            "            if (bins[i] < pg_rows[row][2 * i] || bins[i] > pg_rows[row][2 * i + 1])",
            "                break;",
            "        }",
            f"        if (i == {len(bins)})",
            "            break;",
            "    }",
            f"    code = pg_rows[row][{2 * len(bins)}];",
        ]
