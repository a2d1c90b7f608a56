"""C in single precision and with a reaction to NaN: no warning, numpy's decisions, and the status that is promised."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exporting import CAREFUL, CASES, EXPORTED, built, cases, of_expressions, trying, written
from generators import trees
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import Line

import policygen
from policygen.extensions.export.c import PLAIN, Options, PolicyInC, in_single_precision
from policygen.extensions.export.formats import exported
from policygen.extensions.export.source import short_name
from policygen.policies.policy import Policy
from policygen.quantities.tree import Node

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc`")
SINGLE = Options(float32=True)


def library(policy: Policy, folder: Path, options: Options) -> ctypes.CDLL:
    """The exported code, compiled without a warning."""
    folder.mkdir(exist_ok=True)
    source, made = folder / "policy.c", folder / "policy.so"
    source.write_text(exported(policy, "c", (), options))
    flags = ["-O1", *CAREFUL, *(["-Wdouble-promotion"] if options.float32 else [])]
    line = ["cc", *flags, "-Wno-missing-prototypes", "-shared", "-fPIC", str(source), "-o", str(made), "-lm"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(made))


class Stepping:
    """One episode of the exported code: its actions and statuses, one observation after the other."""

    def __init__(self, policy: Policy, folder: Path, options: Options) -> None:
        name, self.options, self.task = short_name(policy.task), options, policy.task
        code = library(policy, folder, options)
        self.call = getattr(code, f"{name}_step" if options.on_nan else f"{name}_act")
        self.memory = ctypes.create_string_buffer(4096) if hasattr(code, f"{name}_reset") else None
        if self.memory is not None:
            getattr(code, f"{name}_reset")(self.memory)
        self.real = np.float32 if options.float32 else np.float64
        self.action = np.full(len(self.task.actuators), 77, np.float32 if self.task.has_numbers else np.int32)

    def __call__(self, row: Sequence[float]) -> tuple[int, list[float]]:
        """Return the status and the action."""
        observation = np.array(row, self.real)
        passed = [observation.ctypes.data_as(ctypes.c_void_p)]
        passed += [ctypes.cast(self.memory, ctypes.c_void_p)] if self.memory is not None else []
        returns = self.task.action_space == "discrete" and not self.options.on_nan
        passed += [] if returns else [self.action.ctypes.data_as(ctypes.c_void_p)]
        result = self.call(*passed)
        return (0, [float(result)]) if returns else (result, self.action.tolist())


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes=st.lists(trees(("x", "y"), exact=True, leaves=12), min_size=20, max_size=20))
@pytest.mark.parametrize("options", [PLAIN, SINGLE], ids=["double", "single"])
def test_any_expression_compiles_without_a_warning_and_is_computed_alike(
    options: Options, nodes: list[Node], tmp_path_factory: pytest.TempPathFactory
) -> None:
    policy = of_expressions(nodes)
    rows = trying(policy, 40, np.float32 if options.float32 else np.float64)
    step = Stepping(policy, tmp_path_factory.mktemp("c"), options)
    ours = np.array([step(row)[1] for row in rows])
    theirs = in_single_precision(policy, rows) if options.float32 else np.array([policy.act_one(row) for row in rows])
    # Exponents of 2 are squares in C; all else is fixed by IEEE 754.
    assert np.isclose(ours, theirs, rtol=1e-5 if options.float32 else 1e-6, atol=1e-37 * options.float32).all()


@pytest.mark.parametrize(
    "name", cases("exported", "remembering", "mixed", "whole", "shipped, walker2d", "table, large")
)
def test_decisions_in_single_precision_are_numpy_s(name: str, tmp_path: Path) -> None:
    policy = CASES[name]()
    rows = trying(policy, 60)
    step = Stepping(policy, tmp_path, SINGLE)
    ours = np.array([step(row)[1] for row in rows])
    assert np.allclose(ours, in_single_precision(policy, rows), rtol=1e-5, atol=1e-5)
    code = re.sub(r"/\*.*?\*/", "", exported(policy, "c", (), SINGLE), flags=re.DOTALL)
    assert "double" not in code


@pytest.mark.parametrize(
    ("name", "float32"),
    [
        ("exported, cartpole", False),
        ("remembering, a table", False),
        ("remembering, equations", True),
        ("mixed, equations", False),
    ],
)
def test_an_observation_that_is_no_number_is_met_as_promised(name: str, float32: bool, tmp_path: Path) -> None:
    policy = CASES[name]()
    index = PolicyInC(policy).observed[0]
    rows = trying(policy, 60)
    rows = rows[np.isfinite(rows).all(axis=1)][:6]
    plain = Stepping(policy, tmp_path / "plain", Options(float32))
    expected = [plain(row)[1] for row in rows]
    zero = [0.0 if a.is_choice else min(max(0.0, a.low), a.high) for a in policy.task.actuators]
    for on_nan in ("hold", "zero", "fault"):
        step = Stepping(policy, tmp_path / on_nan, Options(float32, on_nan))
        bad = rows[0].copy()
        for at_first, value in ((True, np.nan), (False, np.inf), (False, -np.inf)):
            bad[index] = value
            status, action = step(bad)
            assert status == 1
            before = zero if at_first else expected[2]
            left = [77.0] * len(zero) if at_first else expected[2]
            assert action == pytest.approx({"hold": before, "zero": zero, "fault": left}[on_nan], abs=1e-6), on_nan
            if at_first:  # the steps after it are those of an episode without it
                assert [step(row) for row in rows[:3]] == [(0, one) for one in expected[:3]]
        assert [step(row) for row in rows[3:]] == [(0, one) for one in expected[3:]]


@pytest.mark.parametrize(
    ("name", "float32", "on_nan"),
    [
        *((name, False, None) for name in EXPORTED),
        ("cartpole", True, "hold"),
        ("pendulum", True, "zero"),
        ("frozenlake", True, "fault"),
    ],
)
def test_a_folder_gets_source_header_and_a_program_that_compares_decisions(
    name: str, float32: bool, on_nan: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    policygen.export(written(EXPORTED[name], name), "c", folder, float32=float32, on_nan=on_nan)
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.c", f"{name}.h", f"{name}_test.c"]
    done = built(folder, name, *(["-Wdouble-promotion"] if float32 else []))
    assert (done.returncode, done.stdout.split()[0]) == (0, "0")
    assert int(done.stdout.split()[2]) > 3
    header = (folder / f"{name}.h").read_text()
    assert f"Exported by policygen {policygen.__version__} on " in header
    assert "#ifndef" in header
    assert bool(re.search(r"In single precision 0 of \d+ decisions in 3 episodes differ\.", header)) is float32
    code = (folder / f"{name}.c").read_text()
    if on_nan:
        wrong = re.sub(r"const int known =.*?;", "const int known = 1;", code, flags=re.DOTALL)
    elif name == "frozenlake":
        wrong = re.sub(r"(pg_cells\[\d+\] = \{\n)(.*)\n", lambda found: found[1] + re.sub(r"\d+", "0", found[2]), code)
    else:
        wrong = code.replace("10.0 *", "-10.0 *").replace("--10.0", "10.0")
    assert wrong != code
    (folder / f"{name}.c").write_text(wrong)
    assert built(folder, name).returncode == 1  # the program notices other decisions, and a NaN that is not found


def test_decisions_that_single_precision_changes_are_counted_and_allowed_for(tmp_path: Path) -> None:
    # 1e8 swallows the angle in single precision.
    policy = written("let far = angle + spin + 1e8\nleft = 0\nright = far - 1e8", "cartpole")
    with pytest.warns(UserWarning, match=r"In single precision [1-9]\d* of \d+ decisions in 3 episodes differ"):
        policygen.export(policy, "c", tmp_path / "c", float32=True)
    done = built(tmp_path / "c", "cartpole", "-Wdouble-promotion")
    assert done.returncode == 0
    assert int(done.stdout.split()[0]) > 0
    assert "are expected to differ" in (tmp_path / "c" / "cartpole_test.c").read_text()


def test_options_that_do_not_apply_are_one_sentence(line: Line, tmp_path: Path) -> None:
    written(EXPORTED["cartpole"], "cartpole").save(tmp_path / "best.json")
    for words, said in (
        (("--to", "python", "--float32"), "--float32 is for policies exported to c"),
        (("--to", "st", "--on-nan", "hold"), "--on-nan is for policies exported to c"),
        (("--to", "c", "--on-nan", "guess"), "'guess' is not one of"),
    ):
        refused = line("export", tmp_path / "best.json", *words)
        assert refused.code == 2
        assert said in refused.err
        assert "Traceback" not in refused.err
