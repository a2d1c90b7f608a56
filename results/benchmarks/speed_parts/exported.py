"""Speed and size of policies as C: nanoseconds per decision here, bytes on a microcontroller."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.extensions.export.formats import exported
from policygen.extensions.export.source import short_name
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.tasks.load import load_task
from speed_parts.acting import cartpole_table, some_observations
from speed_parts.rows import Missing, Row, absolute, compared, timed

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror")
CORTEX = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft", "-Os", "-ffunction-sections")

Decide = Callable[[npt.NDArray[np.float64]], npt.NDArray[Any]]


def compiled(policy: Policy, folder: Path, flags: Sequence[str] = ("-O2",)) -> Decide:
    """The exported policy, compiled: a function from contiguous observations (n, d) to n actions.

    A policy that remembers begins an episode with the first row, and the other rows are its next steps.

    Raises:
        subprocess.CalledProcessError: the compiler is not content.
    """
    task, name = policy.task, short_name(policy.task)
    memory = f"struct {name}_memory memory;" if policy.remembers else ""
    reset = f"{name}_reset(&memory);" if policy.remembers else ""
    arguments = f"observations + i * {len(task.observations)}" + (", &memory" if policy.remembers else "")
    kind = "float" if task.has_numbers else "int"
    many = len(task.actuators)
    call = f"actions[i] = {name}_act({arguments});"
    if task.action_space != "discrete":
        call = f"{name}_act({arguments}, actions + i * {many});"
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(
        exported(policy, "c")
        + f"void run(const double *observations, {kind} *actions, long n);\n"
        + f"void run(const double *observations, {kind} *actions, long n)\n"
        + f"{{\n    long i;\n    {memory}\n    {reset}\n    for (i = 0; i < n; ++i)\n        {call}\n}}\n"
    )
    line = ["cc", *STRICT, *flags, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
    subprocess.run(line, check=True, capture_output=True, text=True)
    run = ctypes.CDLL(str(library)).run
    run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
    run.restype = None
    dtype = np.float32 if kind == "float" else np.int32

    def decide(rows: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        actions = np.empty((len(rows), many), dtype)
        run(rows.ctypes.data, actions.ctypes.data, len(rows))
        return actions[:, 0] if task.action_space == "discrete" else actions

    return decide


def bytes_on_cortex(policy: Policy, folder: Path) -> tuple[int, int]:
    """Code and constants of the exported policy on an ARM Cortex-M4 without floating point, in bytes.

    Returns:
        The policy's own, and with what it needs of the C library.

    Raises:
        subprocess.CalledProcessError: the compiler is not content.
    """
    name = short_name(policy.task)
    source, alone, whole = folder / f"{name}.c", folder / "alone.o", folder / "whole.elf"
    source.write_text(exported(policy, "c"))
    cc = ["arm-none-eabi-gcc", *STRICT, *CORTEX]
    subprocess.run([*cc, "-c", str(source), "-o", str(alone)], check=True, capture_output=True, text=True)
    link = ["-nostartfiles", "--specs=nano.specs", "--specs=nosys.specs", "-Wl,--gc-sections"]
    link.append(f"-Wl,-e,{name}_act")
    subprocess.run([*cc, *link, str(source), "-o", str(whole), "-lm"], check=True, capture_output=True, text=True)
    sizes = []
    for file in (alone, whole):
        told = subprocess.run(["arm-none-eabi-size", str(file)], check=True, capture_output=True, text=True).stdout
        text, data, *_ = told.splitlines()[1].split()
        sizes.append(int(text) + int(data))
    return sizes[0], sizes[1]


def _policies() -> Iterator[tuple[str, Policy, int]]:
    """Yield each measured policy: its description, the policy, and how many numbers it observes."""
    yield "a table of 1,296 cells", cartpole_table(), 4
    task = load_task("cartpole")
    equations = "left = 0\nright = 10*angle + 2*spin + 0.4*position + 0.8*velocity"
    policy = parse(equations, task).policy
    assert policy is not None
    yield "equations of 4 terms", policy, 4


def exported_c(repeats: int, quick: bool) -> Iterator[Row | Missing]:
    """A decision of the exported C, beside numpy's for many rows at once; and how large it is on a microcontroller."""
    with tempfile.TemporaryDirectory() as folder:
        for what, policy, width in _policies():
            yield from _rows(what, policy, some_observations(100_000, width).astype(np.float64), Path(folder), repeats)


def _rows(
    what: str, policy: Policy, rows: npt.NDArray[np.float64], folder: Path, repeats: int
) -> Iterator[Row | Missing]:
    if shutil.which("cc") is None:
        yield Missing(f"exported C, {what}", "there is no C compiler `cc`")
    else:
        decide = compiled(policy, folder)
        one = [timed(lambda: decide(rows), 5) / len(rows) * 1e9 for _ in range(repeats)]
        yield absolute(f"exported C, one decision, {what}", one, 1_000.0, "a microsecond", unit="ns", bar="")
        yield compared(
            f"exported C, {len(rows):,} rows, {what}",
            lambda: decide(rows),
            lambda: policy.act(rows),
            "act, numpy",
            repeats=repeats,
        )
    if shutil.which("arm-none-eabi-gcc") is None:
        yield Missing(f"exported C on a Cortex-M4, {what}", "there is no cross compiler `arm-none-eabi-gcc`")
        return
    own, whole = bytes_on_cortex(policy, folder)
    yield absolute(
        f"exported C on a Cortex-M4, {what}", [float(own)], float(whole), "with the C library", unit="bytes", bar=""
    )
