"""Pictures in files: their formats, what cannot be written, and what drawing leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from drawn import LAKE, a_policy, a_run

from policygen.extensions.plots.actions import plot_policy
from policygen.extensions.plots.curves import plot_runs


def test_formats(tmp_path: Path) -> None:
    run = a_run(tmp_path, [0.1])
    for suffix, magic in (("PNG", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        path = plot_policy(a_policy(LAKE), tmp_path / f"policy.{suffix}")
        first = path.read_bytes()
        assert first.startswith(magic)
        assert plot_policy(a_policy(LAKE), path).read_bytes() == first
    pdf = (tmp_path / "policy.pdf").read_bytes()
    assert b"/CIDFontType2" in pdf  # a TrueType font, as journals ask for
    assert b"/Type3" not in pdf
    assert plot_runs(str(run), str(tmp_path / "curve.svg")).read_bytes().startswith(b"<?xml")
    assert not list(tmp_path.glob(".*"))


DRAWING = """
import sys
from pathlib import Path
from policygen.extensions.plots import actions, curves
def loaded(*names): return [name for name in names if name in sys.modules]
print(loaded("matplotlib", "pandas", "scipy"))
folder = Path(sys.argv[1])
curves.plot_runs(folder, folder / "learning_curve.png")
print(loaded("pandas", "matplotlib.pyplot"))
import matplotlib
matplotlib.rcParams["axes.facecolor"] = "black"
drawn = curves.runs_figure([folder]).axes[0].get_facecolor()
print(matplotlib.rcParams["axes.facecolor"], drawn)
"""


@pytest.mark.parametrize("backend", ["module://missing.backend", "unknown"])
def test_pictures_need_no_back_end_load_libraries_late_and_leave_no_state(tmp_path: Path, backend: str) -> None:
    folder = a_run(tmp_path, [0.1])
    command, environment = [sys.executable, "-c", DRAWING, folder], {**os.environ, "MPLBACKEND": backend}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    at_import, at_the_end_of_a_run, *colours = done.stdout.splitlines()
    assert at_import == "[]"
    assert at_the_end_of_a_run == "[]"  # a run waits for the picture at its end, but not for pandas
    assert colours == ["black (1.0, 1.0, 1.0, 1.0)"]
    assert (folder / "learning_curve.png").exists()
