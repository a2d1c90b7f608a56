"""Proved ranges of a policy's outputs: its program, computed with intervals in place of numbers.

Arithmetic rounds monotonically, so the results for the ends of intervals bound all results in between. Functions of
libm are widened by eight units in the last place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import UsageError
from policygen.policies.policy import Policy
from policygen.quantities.operations import OPERATIONS
from policygen.quantities.program import TESTS, Program, Step, finite_number
from policygen.quantities.tree import previous_of

QUARTER_TURN = math.pi / 2  # rad
_INEXACT = frozenset(("^", "sin", "cos", "tan", "tanh", "exp", "log", "atan", "atan2"))
_RANGES = {"sin": (-1.0, 1.0), "cos": (-1.0, 1.0), "tanh": (-1.0, 1.0), "exp": (0.0, math.inf)}
_MOST_ROUNDS, _NARROWINGS = 60, 40  # for widening the bounds of remembered values, and for tightening them


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers from `low` to `high`, which may be infinite; with `nan`, also NaN."""

    low: float
    high: float
    nan: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high or (self.nan and value != value)

    def __str__(self) -> str:
        return f"{self.low:.6g} to {self.high:.6g}"


EVERYTHING = Interval(-math.inf, math.inf, nan=True)
NOTHING_YET = Interval(math.inf, -math.inf, nan=True)  # of a remembered value at the first step


def hull(*parts: Interval) -> Interval:
    """Return the smallest interval that contains several."""
    return Interval(min(x.low for x in parts), max(x.high for x in parts), any(x.nan for x in parts))


def around(values: Sequence[float]) -> Interval:
    """Return the smallest interval that contains some values; if all are NaN, 0 and NaN."""
    known = [value for value in values if value == value] or [0.0]
    return Interval(min(known), max(known), len(known) < len(values) or values[0] != values[0])


def _turning_points(operation: str, x: Sequence[Interval]) -> Sequence[float] | Interval:
    """Return the turning points of an operation besides 0 and the ends of its arguments; or its whole interval."""
    match operation:
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return (x[0].low, x[0].high, x[1].low, x[1].high)
        case "sin" | "cos" if max(-x[0].low, x[0].high) < 1e6:
            return [(math.floor(x[0].low / QUARTER_TURN) + k) * QUARTER_TURN for k in range(7)]  # more than a full turn
        case "sin" | "cos":
            return Interval(-1.0, 1.0, nan=math.inf in (-x[0].low, x[0].high))
        case "atan2" if x[0].low <= 0 <= x[0].high and x[1].low <= 0:
            return Interval(-3.2, 3.2)
        case "tan" if x[0].low <= -1.57 or x[0].high >= 1.57:
            return EVERYTHING
        case "^":
            whole = x[1].low == x[1].high and x[1].low % 1 == 0
            return () if x[0].low > 0 or (whole and (x[1].low >= 0 or 0.0 not in x[0])) else EVERYTHING
        case "/" | "mod" if x[1].low <= 0.0 <= x[1].high:
            return EVERYTHING
        case "mod":
            known = all(map(math.isfinite, (x[0].low, x[0].high, x[1].low, x[1].high)))
            return around([x[1].low, x[1].high, 0.0]) if known else EVERYTHING
    return ()


def result(operation: str, *arguments: Interval) -> Interval:
    """Return an interval that contains every value of an operation on members of the intervals."""
    if operation == "where":
        test, *branches = arguments
        taken = [test.low != 0.0 or test.high != 0.0 or test.nan, 0.0 in test]
        return hull(*(branch for branch, possible in zip(branches, taken, strict=True) if possible))
    if len(arguments) > 2 and operation in ("min", "max"):
        return result(operation, result(operation, *arguments[:-1]), arguments[-1])
    points = _turning_points(operation, arguments)
    if isinstance(points, Interval):
        return Interval(points.low, points.high, points.nan or any(x.nan for x in arguments))
    tried = [
        {x.low, x.high, *(p for p in (0.0, *points) if x.low <= p <= x.high)} | ({math.nan} if x.nan else set())
        for x in arguments
    ]
    found = around([float(OPERATIONS[operation].scalar(*some)) for some in itertools.product(*tried)])
    low, high = found.low, found.high
    for _ in range(8 if operation in _INEXACT else 0):
        low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
    least, most = _RANGES.get(operation, (-math.inf, math.inf))
    return Interval(max(low, least), min(high, most), found.nan)


def intervals(program: Program, inputs: Mapping[str, Interval]) -> list[Any]:
    """Return the interval of every step; for a table of numbers, the entries that can be reached."""
    values: list[Any] = []
    for step in program.steps:
        values.append(_value(program, step, [values[i] for i in step.arguments], inputs))
    return values


def _column(actions: npt.NDArray[Any], index: int) -> Interval:
    """Return the interval of one column of actions, shape (n, parts)."""
    return around([float(actions[:, index].min()), float(actions[:, index].max())])


def _value(program: Program, step: Step, x: Sequence[Any], inputs: Mapping[str, Interval]) -> Any:
    match step.op:
        case "input":
            return inputs[program.inputs[step.data]]
        case "number":
            return around([step.data])
        case "finite":
            ends = [finite_number(x[0].low), finite_number(x[0].high), *([0.0] if x[0].nan else [])]
            ends += [math.nextafter(e, 0.0) for e in (x[0].low, x[0].high) if math.isinf(e)]
            return around(ends)
        case "start":
            known = [] if x[0].low > x[0].high else [Interval(x[0].low, x[0].high)]
            return hull(*known, *([x[1]] if x[0].nan else []))
        case "single":
            with np.errstate(over="ignore"):
                return Interval(float(np.float32(x[0].low)), float(np.float32(x[0].high)), x[0].nan)
        case "limited":
            low, high, integer = step.data
            ends = [min(max(end, low), high) for end in (x[0].low, x[0].high)]
            return around([float(round(end)) for end in ends] if integer else ends)
        case "highest":
            least = max(score.low for score in x)
            return around([float(i) for i, score in enumerate(x) if score.high >= least])
        case "look_up":
            grid, entries = program.table
            bins = []
            for value, dimension in zip(x, grid.dimensions, strict=True):
                first, last = (np.searchsorted(dimension.rounded_edges, e, "right") for e in (value.low, value.high))
                bins.append(range(first, len(dimension.edges) + 1 if value.nan else last + 1))
            cells = np.zeros(1, np.int64)
            for own, stride in zip(bins, grid.strides, strict=True):
                cells = (cells[:, None] + np.array(own) * stride).ravel()
            found = entries[cells]
            return around([float(found.min()), float(found.max())]) if entries.ndim == 1 else found
        case "part":
            return _column(x[0], step.data)
        case "equals" | "contains":
            return Interval(0.0, float(step.op == "contains" or float(step.data) in x[0]))
    return result(step.op, *x)


def report(policy: Policy, ranges: Mapping[str, Interval]) -> list[str]:
    """Describe the result of `check`, a line for each fact; the arguments and errors are those of `check`."""
    remembered, steps = check(policy, ranges)
    program, chosen = policy.program, policy.finds_whole_action or policy.task.action_space == "discrete"
    outputs = {name: steps[position] for position, name in program.names.items()}
    said = [f"{name}: {x}" for name, x in [*ranges.items(), *remembered.items()]]
    said.append("")
    for k, actuator in enumerate(policy.task.actuators):
        x = steps[program.results[0]] if chosen else outputs.get(actuator.name)
        if x is None:  # a choice beside numbers: its labels have outputs of their own
            continue
        x = x if isinstance(x, Interval) else _column(x, k)
        leaves = not actuator.is_choice and (x.low < actuator.low or x.high > actuator.high)
        limits = f"; it can exceed its limits, {actuator.low:g} to {actuator.high:g}, and is then clipped"
        said.append(f"{actuator.name}: {x}{limits * leaves}")
    tests = [(step.op, x) for step, x in zip(program.steps, steps, strict=True) if step.op in TESTS]
    constant = [op for op, x in tests if x.low == x.high and not x.nan]
    if constant:
        said.append(f"conditions that never change: {len(constant)} ({', '.join(sorted(set(constant)))})")
    return said


def check(policy: Policy, ranges: Mapping[str, Interval]) -> tuple[dict[str, Interval], list[Any]]:
    """Return proved ranges of remembered values and of each step (see `intervals`), for observations within `ranges`.

    Raises:
        UsageError: `ranges` lacks an observation.
    """
    program = policy.program
    if missing := [name for name in policy.task.columns if name not in ranges]:
        raise UsageError(f"no range is known for {', '.join(missing)}")
    slots = list(map(previous_of, policy.remembers))
    memory = dict.fromkeys(slots, NOTHING_YET)

    def after(known: Mapping[str, Interval]) -> dict[str, Interval]:
        values = intervals(program, {**ranges, **known})
        found = [values[i] for i in program.results[policy.decision_parts :]]
        return {slot: hull(NOTHING_YET, x) for slot, x in zip(slots, found, strict=True)}

    for rounds in range(_MOST_ROUNDS):
        grown = {slot: hull(memory[slot], x) for slot, x in after(memory).items()}
        if grown == memory:
            break
        memory = {s: x if rounds < 3 else _widened(memory[s], x, rounds) for s, x in grown.items()}
    else:
        memory = dict.fromkeys(slots, EVERYTHING)
    for _ in range(_NARROWINGS if slots else 0):  # bounds after a step are bounds before the next
        memory = after(memory)
    return memory, intervals(program, {**ranges, **memory})


def _widened(before: Interval, x: Interval, rounds: int) -> Interval:
    """Double each bound that still grows; after many rounds, make it infinite."""
    factor = 2.0 if rounds < 40 else math.inf
    low = x.low if x.low == before.low else min(factor * x.low, 0.0) if x.low else 0.0
    high = x.high if x.high == before.high else max(factor * x.high, 0.0) if x.high else 0.0
    return Interval(low, high, x.nan)
