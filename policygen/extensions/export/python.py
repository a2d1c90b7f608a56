"""Policies in plain Python: one file, standard library only, the same decisions as numpy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy.typing as npt

from policygen.extensions.export.source import Source, comment_text


class PolicyInPython(Source):
    """A policy as plain Python."""

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
        """Return the left side of a tuple's definition."""
        return f"{name} ="

    def constant(self, value: float) -> str:
        """Write a constant of a tuple."""
        return f'float("{value}")' if value in (float("inf"), float("-inf")) else repr(value)

    def _add_array(self, name: str, values: npt.NDArray[Any]) -> None:
        if values.dtype.kind != "u":
            super()._add_array(name, values)
            return
        packed = values.tobytes().hex()  # a tuple would be long: these are the cells of a table, perhaps a million
        lines = [repr(packed[i : i + 100]) for i in range(0, len(packed), 100)]
        read = f'{name} = struct.unpack("<{len(values)}{values.dtype.char}", bytes.fromhex('
        self.data += [read, *(f"    {line}" for line in lines), "))", ""]

    def file(self) -> Iterator[str]:
        """Yield the lines of the file."""
        memory = ", memory" if self.memory else ""
        usage = ["memory = start()  # whenever the system starts anew"] if self.memory else []
        usage.append(f"action = act(observation{memory})" + ("" if self.discrete else "  # a tuple"))
        code = [*self.data, *(f"\n{helper}" for helper in self.used_helpers())]
        if self.memory:
            names = comment_text(", ".join(self.policy.remembers))
            code += ["\ndef start():", f"    # {names}", f"    return [math.nan] * {len(self.memory)}\n"]
        code += [f"\ndef act(observation{memory}):", *self.lines, "    return action"]
        yield from (*(f"# {line}".rstrip() for line in self.heading(usage)), "")
        text = "\n".join(code)
        yield from (f"import {module}" for module in ("bisect", "math", "struct") if f"{module}." in text)
        yield from ("", *code)

    def set_action(self, values: Sequence[str]) -> None:
        """Set the action: a number for one choice, else a tuple."""
        numbers = [not a.is_choice and not self.policy.finds_whole_action for a in self.task.actuators]
        values = [self.call("single", value) if n else value for n, value in zip(numbers, values, strict=True)]
        self.define("action", values[0] if self.discrete else f"({', '.join(values)},)", "whole")
