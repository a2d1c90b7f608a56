"""What the tests of exported policies share: policies of many kinds, observations that try them, names that attack."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from support import ARM, CHECKOUT, PAIR

from policygen.extensions.export.formats import exported
from policygen.extensions.export.source import short_name
from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.table import Rule, TablePolicy
from policygen.quantities.grid import Dimension, Grid, integer_dimension
from policygen.quantities.text import parse_expression
from policygen.quantities.tree import Call, Node, Number
from policygen.tasks.actions import ActionLayout
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Actuator, Observation
from policygen.tasks.task import Task

SHIPPED = {
    "cliffwalking-slippery": "CliffWalking-v1",
    "frozenlake8x8": "FrozenLake8x8-v1",
    "halfcheetah": "HalfCheetah-v5",
    "lunarlander": "LunarLander-v3",
    "pendulum-torque-estimator": "pendulum-torque",
    "pendulum-torque-integral": "pendulum-torque",
    "pendulum-torque-memoryless": "pendulum-torque",
    "taxi": "Taxi-v4",
    "walker2d": "Walker2d-v5",
}
REMEMBERING = {
    "equations": "let sum = clip(prev(sum, x) + 0.1*prev(y, 2), -3, 3)\n"
    "let mode = where(sum > 0, 1 - prev(mode), 0.5)\n"
    "gear_low = sum\ngear_high = mode*x + prev(gear_low)\ngear_reverse = -sum + prev(gear)\n"
    "horn_0 = y\nhorn_1 = prev(horn_1, 0.3)",
    "a table": "let count = mod(prev(count, -1) + 1, 3)\nlet last = prev(gear, 1) + prev(horn)\n"
    "bins count: 0.5, 1.5\nbins last: 0.5, 1.5, 2.5\nbins x: -1, 0, 1\n| count | last | x | gear | horn |\n"
    "| 0 | 0-1 | * | high | 1 |\n| 1 | * | 0-2 | reverse | 0 |\n| * | 3 | 2 | high | 0 |\n| * | * | * | low | 1 |",
}

VALVES = Task(
    name="valves",
    gym_id="Valves-v0",
    observations=(Observation("x"), Observation("y")),
    actuators=(
        Actuator("flow", (), -1.0, 2.0),
        Actuator("gear", ("low", "high", "off")),
        Actuator("heat", (), 0.0, 0.3),
    ),
    action_space="mixed",
    max_steps=50,
    grid=Grid((Dimension("x", (0.0,)), Dimension("y", (-1.0, 1.0)))),
)
MIXED = {
    "equations": "let last = prev(gear_high) + prev(flow, 0.5)\nflow = x - 0.5*last\ngear_low = y\ngear_high = x\n"
    "gear_off = 0.2*x*y\nheat = 0.1*y + 0.05",
    "a table": "| x | y | flow | gear | heat |\n| 0 | 0-1 | 1.7 | high | 0.1 |\n| 0 | * | -0.3 | off | 0.25 |\n"
    "| * | * | 0 | low | 0 |",
}

# A heater in 256 steps, and a valve beside it that is played as it is decided.
WHOLE = Task(
    name="whole",
    gym_id="Whole-v0",
    observations=(Observation("x"), Observation("y")),
    actuators=(Actuator("heat", (), 0.0, 255.0), Actuator("valve", (), -1.0, 1.0)),
    action_space="box",
    action_layout=ActionLayout(
        "parts", parts=(ActionLayout("array", "uint8", (1,)), ActionLayout("array", "float32", (1,)))
    ),
    max_steps=50,
    grid=Grid((Dimension("x", (0.0,)),)),
)
WHOLE_TEXTS = {
    "equations": "heat = 0.7*prev(heat, 3.2) + 30*x + 0.5\nvalve = 0.1*prev(heat) - y",
    "a table": "let last = prev(heat, 7)\nbins last: 6.9, 7.2, 9.6\n| last | x | heat | valve |\n"
    "| 0 | * | 7.4 | 0.5 |\n| 1 | 0 | 9.5 | -0.5 |\n| 1 | 1 | 9.4 | 0 |\n| 2 | * | 6.5 | 0.25 |\n| * | * | 6.6 | 1 |",
}


@functools.cache
def shipped(name: str) -> Policy:
    """A policy of results/policies."""
    text = (CHECKOUT / "results" / "policies" / f"{name}.txt").read_text(encoding="utf-8")
    return written(text, SHIPPED[name])


def written(text: str, task: Task | str) -> Policy:
    parsed = parse(text, load_task(task) if isinstance(task, str) else task)
    assert parsed.policy is not None, parsed.problems
    return parsed.policy


def random_table(task: Task, grid: Grid, seed: int = 0) -> TablePolicy:
    """A table whose cells have nothing to do with each other: a row for each of them but the last action's."""
    rng = np.random.default_rng(seed)
    columns = [
        rng.integers(0, len(a.labels), grid.size)
        if a.is_choice
        else rng.uniform(a.low, a.high, 50)[rng.integers(0, 50, grid.size)]
        for a in task.actuators
    ]
    dense = np.stack(columns, axis=1)
    bins = grid.bins_of(np.arange(grid.size)).tolist()
    rules = tuple(
        Rule(tuple((b,) for b in row), tuple(action)) for row, action in zip(bins, dense.tolist(), strict=True)
    )
    return TablePolicy(task, (), grid, rules)


@functools.cache
def tables() -> dict[str, TablePolicy]:
    """Tables of every kind: choices and numbers, dense and few rows, whole numbers, large ones."""
    cartpole = load_task("cartpole")
    wide = Grid(tuple(Dimension(n, tuple(np.linspace(-3, 3, 24).tolist())) for n in cartpole.observation_names[:3]))
    counts = replace(PAIR, grid=Grid((integer_dimension("x", 300), integer_dimension("y", 30))))
    half = tuple(tuple(range(n)) for n in wide.shape)
    some = tuple(tuple(sorted({0, 3, 4, 5, n - 1, n // 2})) for n in wide.shape)
    few = (Rule(some, (1.0,)), Rule(((1,), half[1], (2, 3)), (0.0,)), Rule(half, (1.0,)))
    alone = Grid((Dimension("angle", ()), Dimension("spin", (0.0,))))
    plane = Grid((Dimension("x", tuple(np.arange(-100, 99).tolist())), Dimension("y", tuple(np.arange(0, 1, 0.02)))))
    return {
        "large": random_table(cartpole, wide),
        "few rows": TablePolicy(cartpole, (), wide, few),
        "one row": TablePolicy(cartpole, (), wide, (Rule(half, (1.0,)),)),
        "no edges": random_table(cartpole, alone),
        "many numbers": random_table(ARM, plane),
        "several choices": random_table(PAIR, PAIR.grid or alone),
        "counts": random_table(counts, counts.grid or alone),
    }


def trying(policy: Policy, count: int, dtype: type[np.floating] = np.float32) -> npt.NDArray[np.floating]:
    """Observations around and beyond the limits, at edges and beside them, infinite ones, and what is no number."""
    rng = np.random.default_rng(1)
    task = policy.task
    edges: dict[str, list[float]] = {}
    if isinstance(policy, TablePolicy):
        edges = {d.name: list(d.rounded_edges) for d in policy.grid.dimensions}
    columns = []
    for o in task.observations:
        low, high = max(o.low, -5.0), min(o.high, 5.0) if o.high < 20 else min(o.high, 400.0)
        column = rng.uniform(low - 0.2 * (high - low), high + 0.2 * (high - low), count)
        at = np.array([*edges.get(o.name, ()), 0.0, low, high], np.float32)
        near = np.concatenate([at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf))])
        special = np.concatenate([near, [np.inf, -np.inf, np.nan, 1e30, -1e30, -0.0]])
        where = rng.random(count) < 0.3
        column[where] = rng.choice(special, int(where.sum()))
        whole = rng.random(count) < 0.5 if o.integer else np.zeros(count, np.bool_)
        column[whole] = np.rint(column[whole])
        columns.append(column)
    with np.errstate(over="ignore"):
        return np.stack(columns, axis=1).astype(dtype)


def flat(action: Any) -> Any:
    """An action of several parts as one row."""
    return np.hstack(action) if isinstance(action, tuple) else action


EVIL = (
    '*/ int evil(void){} /* "evil" \\ ??/ \n#define evil 1\r\n\x1b[31m\u202e $(evil) `evil` \\evil{} %evil \'\'\' """ é'
)


# Every word of this task is an attack on the language that it is exported to.
HOSTILE = replace(
    PAIR,
    name=EVIL,
    gym_id=EVIL,
    observations=(
        Observation(EVIL, EVIL, EVIL),
        Observation("int", "m\\\n#error evil"),
        Observation("NAN"),
        *(Observation(f"{EVIL}{c}") for c in "/*?"),
    ),
    actuators=(Actuator(EVIL, (EVIL, "*/", "??/")), Actuator("a\n\"'", ("0", "\\"))),
    features=(),
    grid=Grid(tuple(Dimension(name, (0.0, 1.0)) for name in (EVIL, "int", "NAN", f"{EVIL}/", f"{EVIL}*"))),
)


STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-Wpedantic")
CAREFUL = (*STRICT, "-Wconversion", "-Wfloat-equal", "-Wshadow")
EXPORTED = {
    "cartpole": "let error = angle + 0.1*position\nlet sum = clip(prev(sum) + error, -1, 1)\n"
    "let lean = where(angle > 0.1, angle^3, tanh(3*angle))/(1.5 + abs(spin))\nleft = -lean + mod(position, 0.7)\n"
    "right = 10.0*angle + 3*spin + 0.1*sum + where(angle == 0.1, where(spin > 0, 1, 2), 0)",
    "pendulum": "torque = clip(-10*sin - 2*rate, -1.5, 4) + 0.3*(cos < 0 and not rate > 1) + exp(9*rate)*1e-9",
    "frozenlake": "| row | column | action |\n|-|-|-|\n| 0 | * | right |\n| 1-2 | 0 | down |\n| * | * | left |",
}


def hostile_table() -> TablePolicy:
    return random_table(HOSTILE, HOSTILE.grid or Grid(()))


CASES: dict[str, Callable[[], Policy]] = {
    **{f"table, {name}": lambda name=name: tables()[name] for name in tables()},
    **{f"shipped, {name}": lambda name=name: shipped(name) for name in SHIPPED},
    **{f"mixed, {name}": lambda text=text: written(text, VALVES) for name, text in MIXED.items()},
    **{f"whole, {name}": lambda text=text: written(text, WHOLE) for name, text in WHOLE_TEXTS.items()},
    **{f"remembering, {name}": lambda text=text: written(text, PAIR) for name, text in REMEMBERING.items()},
    **{f"exported, {name}": lambda text=text, name=name: written(text, name) for name, text in EXPORTED.items()},
    "hostile words": hostile_table,
}


def cases(*kinds: str) -> list[str]:
    """The names of cases that begin with one of these words."""
    return [name for name in CASES if name.startswith(kinds)]


def of_expressions(nodes: list[Node]) -> LinearPolicy:
    """A policy with an output of great range for each expression."""
    actuators = tuple(Actuator(f"u{i}", low=-3e38, high=3e38) for i in range(len(nodes)))
    task = replace(PAIR, actuators=actuators, action_space="box")
    return LinearPolicy(task, (), tuple((a.name, node) for a, node in zip(actuators, nodes, strict=True)))


def every_function() -> tuple[list[str], LinearPolicy]:
    """Expressions with every operation, and a policy with an output for each of them."""
    texts = ["x^y", "x^-1", "x^0.5", "(-x)^3", "mod(x, y)", "sin(x)", "cos(x)", "tan(x)", "tanh(x)", "exp(x)", "log(x)"]
    texts += ["sqrt(x)", "abs(x)", "sign(x)", "floor(x)", "atan(x)", "atan2(x, y)", "atan2(-x*0, y)", "min(x, y, 1, 0)"]
    texts += ["max(x, y, -1)", "clip(x, y, 1)", "where(x, y, 2)", "1/(x*-0.0)", "x/y", "x/0", "x/4", "not x or y"]
    texts += ["x == y", "x != y"]
    texts += ["-x*-1e-5 - (x - -2)", "(x or y) and y", "x and y or not x", "abs(x - (y - x))", "abs(x/(y/x))"]
    return texts, of_expressions([Call("*", (Number(1.0), parse_expression(text, ("x", "y")))) for text in texts])


def built(folder: Path, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Compile the files of a folder and run the program."""
    sources = [str(folder / f"{name}.c"), str(folder / f"{name}_test.c")]
    line = ["cc", *CAREFUL, *flags, *sources, "-lm", "-o", str(folder / "tested")]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return subprocess.run([str(folder / "tested")], capture_output=True, text=True)


Decide = Callable[[npt.NDArray[np.float64]], npt.NDArray[Any]]


def compiled(policy: Policy, folder: Path, flags: Sequence[str] = ("-O2",), *, float32: bool = False) -> Decide:
    """The exported policy, compiled: from contiguous observations (n, d), the steps of an episode, to n actions."""
    task, name = policy.task, short_name(policy.task)
    memory = f"struct {name}_memory memory;" if policy.remembers else ""
    reset = f"{name}_reset(&memory);" if policy.remembers else ""
    arguments = f"observations + i * {len(task.observations)}" + (", &memory" if policy.remembers else "")
    kind, real = "float" if task.has_numbers else "int", "float" if float32 else "double"
    many = len(task.actuators)
    call = f"actions[i] = {name}_act({arguments});"
    if task.action_space != "discrete":
        call = f"{name}_act({arguments}, actions + i * {many});"
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(
        exported(policy, "c", float32=float32)
        + f"void run(const {real} *observations, {kind} *actions, long n);\n"
        + f"void run(const {real} *observations, {kind} *actions, long n)\n"
        + f"{{\n    long i;\n    {memory}\n    {reset}\n    for (i = 0; i < n; ++i)\n        {call}\n}}\n"
    )
    line = ["cc", *STRICT, *flags, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
    subprocess.run(line, check=True, capture_output=True, text=True)
    run = ctypes.CDLL(str(library)).run
    run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
    run.restype = None
    dtype = np.float32 if kind == "float" else np.int32

    def decide(rows: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        rows, actions = rows.astype(np.float32 if float32 else np.float64), np.empty((len(rows), many), dtype)
        run(rows.ctypes.data, actions.ctypes.data, len(rows))
        return actions[:, 0] if task.action_space == "discrete" else actions

    return decide
