"""C: no warning of a compiler, numpy's decisions, and a program that finds other ones."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from exporting import CAREFUL, CASES, EXPORTED, built, cases, compiled, flat, of_expressions, trying, written
from generators import trees
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import policygen
from policygen.extensions.export.formats import exported
from policygen.quantities.tree import Node

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc`")


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes=st.lists(trees(("x", "y"), exact=True, leaves=12), min_size=20, max_size=20))
def test_any_expression_compiles_without_a_warning_and_is_computed_alike(
    nodes: list[Node], tmp_path_factory: pytest.TempPathFactory
) -> None:
    policy = of_expressions(nodes)
    rows = trying(policy, 40, np.float64)
    ours = compiled(policy, tmp_path_factory.mktemp("c"), ("-O1", *CAREFUL))(rows)
    # Exponents of 2 are squares in C; all else is fixed by IEEE 754.
    assert np.isclose(ours, [policy.act_one(row) for row in rows], rtol=1e-6, atol=0).all()


@pytest.mark.parametrize(
    "name", cases("exported", "remembering", "mixed", "whole", "shipped, walker2d", "table, large")
)
def test_in_single_precision_nothing_is_double_and_decisions_are_nearly_numpy_s(name: str, tmp_path: Path) -> None:
    policy = CASES[name]()
    rows = trying(policy, 60)
    ours = compiled(policy, tmp_path, (*CAREFUL, "-Wno-float-equal", "-Wdouble-promotion"), float32=True)(rows)
    controller = policy.controller()
    theirs = [flat(controller(row)) if policy.remembers else policy.act_one(row) for row in rows]
    assert np.mean(np.isclose(ours, np.reshape(theirs, ours.shape), rtol=1e-4, atol=1e-4)) > 0.97
    assert "double" not in re.sub(r"/\*.*?\*/", "", exported(policy, "c", float32=True), flags=re.DOTALL)


@pytest.mark.parametrize("float32", [False, True])
@pytest.mark.parametrize("name", EXPORTED)
def test_a_folder_gets_source_header_and_a_program_that_compares_decisions(
    name: str, float32: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    policygen.export(written(EXPORTED[name], name), "c", folder, float32=float32)
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.c", f"{name}.h", f"{name}_test.c"]
    done = built(folder, name, *(["-Wdouble-promotion"] if float32 else []))
    assert (done.returncode, done.stdout.split()[0]) == (0, "0")
    assert int(done.stdout.split()[2]) > 3
    header = (folder / f"{name}.h").read_text()
    assert f"Exported by policygen {policygen.__version__} on " in header
    assert "#ifndef" in header
    code = (folder / f"{name}.c").read_text()
    if name == "frozenlake":
        wrong = re.sub(r"(pg_cells\[\d+\] = \{\n)(.*)\n", lambda found: found[1] + re.sub(r"\d+", "0", found[2]), code)
    else:
        wrong = code.replace("10.0", "-10.0").replace("--10.0", "10.0")
    assert wrong != code
    (folder / f"{name}.c").write_text(wrong)
    assert built(folder, name).returncode == 1  # the program notices other decisions
