"""Policies in plain Python: one file, standard library only, the same decisions as numpy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy.typing as npt

from policygen.extensions.export.source import Source, comment_text, double
from policygen.quantities.program import INFINITE
from policygen.quantities.writer import Kind, bare

_HELPERS = {
    "pg_safe": '''def pg_safe(function, x, above=math.nan):
    """NaN where a function is undefined, `above` where its result is too large."""
    try:
        return function(x)
    except ValueError:
        return math.nan
    except OverflowError:
        return above''',
    "pg_log": """def pg_log(x):
    return math.log(x) if x > 0.0 else -math.inf if x == 0.0 else math.nan""",
    "pg_floor": """def pg_floor(x):
    return float(math.floor(x)) if math.isfinite(x) else x""",
    "pg_divide": """def pg_divide(a, b):
    if b != 0.0:
        return a / b
    return math.nan if a == 0.0 or a != a else math.copysign(math.inf, a)""",
    "pg_power": """def pg_power(a, b):
    try:
        return math.pow(a + 0.0, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return math.inf if a == 0.0 else math.nan""",
    "pg_mod": '''def pg_mod(a, b):
    """The remainder with the divisor's sign."""
    return a % b if b != 0.0 and math.isfinite(a) else math.nan''',
    "pg_sign": """def pg_sign(x):
    return x if x != x else float((x > 0) - (x < 0))""",
    "pg_min": """def pg_min(a, b):
    return a if a != a or a < b else b""",
    "pg_max": """def pg_max(a, b):
    return a if a != a or a > b else b""",
    "pg_clip": """def pg_clip(x, low, high):
    return pg_min(pg_max(x, low), high)""",
    "pg_start": '''def pg_start(before, start):
    """The remembered value, or the start if there is none yet."""
    return start if before != before else before''',
    "pg_finite": f'''def pg_finite(x):
    """NaN counts as 0, infinity as a million."""
    return x if math.isfinite(x) else 0.0 if x != x else math.copysign({INFINITE!r}, x)''',
    "pg_single": '''def pg_single(x):
    """Round to single precision, as actions are."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)''',
    "pg_whole": '''def pg_whole(x, last):
    """The nearest of the whole numbers 0 to last; last if x is NaN."""
    return 0 if x < 0.5 else int(x + 0.5) if x < last - 0.5 else last''',
    "pg_highest": '''def pg_highest(*scores):
    """The index of the highest score; on a tie, the first."""
    return scores.index(max(scores))''',
}


class PolicyInPython(Source):
    """A policy as plain Python."""

    about = "This is plain Python that needs nothing but its standard library."
    templates: ClassVar[Mapping[str, str]] = {
        **Source.templates,
        "==": "({0} == {1})",
        "!=": "({0} != {1})",
        "number": "float({0})",
        "/": "pg_divide({0}, {1})",
        "^": "pg_power({0}, {1})",
        "atan2": "math.atan2({0} + 0.0, {1} + 0.0)",
        "abs": "abs({0})",
        "rint": "float(round({0}))",
        "exp": "pg_safe(math.exp, {0}, math.inf)",
        "log": "pg_log({0})",
        "floor": "pg_floor({0})",
        "tanh": "math.tanh({0})",
        "atan": "math.atan({0})",
        **{name: f"pg_safe(math.{name}, {{0}})" for name in ("sin", "cos", "tan", "sqrt")},
        "observed": "float(observation[{0}])",
        "bin": "bisect.bisect_right({1}, {0})",
        "highest": "pg_highest({0})",
        "single": "pg_single({0})",
    }
    helpers = _HELPERS
    infix: ClassVar[dict[str, str]] = {"and": "and", "or": "or", "not": "not"}
    integer_division = "//"
    slot = "memory[{0}]"
    brackets = ("(", ")")

    def define(self, name: str, text: str, kind: Kind) -> str:
        """Define a local."""
        self.add(f"{name} = {bare(text)}")
        return name

    def literal(self, value: float) -> str:
        """Write a constant."""
        return (
            double(value)
            if math.isfinite(value)
            else {math.inf: "math.inf", -math.inf: "-math.inf"}.get(value, "math.nan")
        )

    def as_number(self, condition: str) -> str:
        """Return a condition as a number."""
        return f"float({condition})"

    def as_condition(self, number: str) -> str:
        """Return a number as a condition."""
        return f"({number} != 0.0)"

    def choose(self, condition: str, yes: str, no: str) -> str:
        """Write `where`."""
        return f"({yes} if {condition} else {no})"

    def _add_array(self, name: str, values: npt.NDArray[Any]) -> None:
        if values.dtype.kind != "u" or values.ndim > 1:
            super()._add_array(name, values)
            return
        packed = values.tobytes().hex()  # a tuple would be long: these are the cells of a table, perhaps a million
        lines = [repr(packed[i : i + 100]) for i in range(0, len(packed), 100)]
        read = f'{name} = struct.unpack("<{len(values)}{values.dtype.char}", bytes.fromhex('
        self.data += [read, *(f"    {line}" for line in lines), "))", ""]

    def _single(self, value: float) -> str:
        return f'float("{value}")' if value in (float("inf"), float("-inf")) else repr(value)

    def _file(self) -> Iterator[str]:
        memory = ", memory" if self.memory else ""
        usage = ["memory = start()  # whenever the system starts anew"] if self.memory else []
        usage.append(f"action = act(observation{memory})" + ("" if self.discrete else "  # a tuple"))
        code = [*self.data, *(f"\n{helper}" for helper in self._used_helpers())]
        if self.memory:
            names = comment_text(", ".join(self.policy.remembers))
            code += ["\ndef start():", f"    # {names}", f"    return [math.nan] * {len(self.memory)}\n"]
        code += [f"\ndef act(observation{memory}):", *self.lines, "    return action"]
        yield from (*(f"# {line}".rstrip() for line in self._heading(usage)), "")
        text = "\n".join(code)
        yield from (f"import {module}" for module in ("bisect", "math", "struct") if f"{module}." in text)
        yield from ("", *code)

    def _set_action(self, values: Sequence[str]) -> None:
        if not self.discrete:
            parts = range(len(self.task.actuators))
            numbers = [not actuator.is_choice for actuator in self.task.actuators]
            if self.policy.kind == "table":
                values = [self.call("part", values[0], str(k)) for k in parts]
            else:
                values = [self.call("single", value) if n else value for n, value in zip(numbers, values, strict=True)]
        self.define("action", values[0] if self.discrete else f"({', '.join(values)},)", "whole")
