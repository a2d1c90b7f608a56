"""Pictures in files: their formats, what cannot be written, and what drawing leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from drawn import LAKE, a_policy, a_run

from policygen.errors import LogbookError, UsageError
from policygen.extensions.plots.curves import plot_runs
from policygen.extensions.plots.portraits import plot_policy


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_formats(tmp_path: Path, suffix: str, magic: bytes) -> None:
    folder = a_run(tmp_path, [0.1])
    path = tmp_path / f"curve.{suffix}"
    assert plot_runs([folder], path) == path
    first = path.read_bytes()
    assert first.startswith(magic)
    plot_runs([folder], path)
    assert path.read_bytes() == first
    assert plot_policy(a_policy(LAKE), tmp_path / f"policy.{suffix}").read_bytes().startswith(magic)
    assert not list(tmp_path.glob(".*"))


def test_an_unknown_suffix_names_the_known_ones(tmp_path: Path) -> None:
    for draw in (
        lambda path: plot_runs([a_run(tmp_path, [0.1])], path),
        lambda path: plot_policy(a_policy(LAKE), path),
    ):
        for name in ("curve.bmp", "curve"):
            with pytest.raises(UsageError, match=r"cannot write curve.*\.png, \.svg, \.pdf"):
                draw(tmp_path / name)
            assert not (tmp_path / name).exists()


def test_a_picture_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(LogbookError, match=r"the folder .*missing does not exist; make it or write elsewhere"):
        plot_policy(a_policy(LAKE), str(tmp_path / "missing" / "policy.png"))


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_costs_no_heavy_library() -> None:
    pictures = "policygen.extensions.plots.curves, policygen.extensions.plots.portraits"
    code = f"import sys, {pictures}; print([m for m in ('matplotlib', 'pandas', 'scipy') if m in sys.modules])"
    assert run_python(code) == "[]"


def test_a_run_loads_no_pandas_for_the_picture_at_its_end(tmp_path: Path) -> None:
    folder = a_run(tmp_path, [0.1])
    draw = f"from policygen.extensions.plots.curves import draw_within; draw_within(Path({str(folder)!r}))"
    drawn = f"import sys; from pathlib import Path; {draw}; print('pandas' in sys.modules)"
    assert run_python(drawn) == "False"
    assert (folder / "learning_curve.png").exists()


def test_drawing_leaves_no_global_state(tmp_path: Path) -> None:
    folder = a_run(tmp_path, [0.1])
    code = f"""
import sys
from pathlib import Path
import matplotlib
matplotlib.rcParams["axes.facecolor"] = "black"
from policygen.extensions.plots.curves import plot_runs, runs_figure
plot_runs([Path({str(folder)!r})], Path({str(tmp_path / "a.png")!r}))
drawn = runs_figure([Path({str(folder)!r})]).axes[0].get_facecolor()
print("matplotlib.pyplot" in sys.modules, matplotlib.rcParams["axes.facecolor"], drawn)
"""
    assert run_python(code) == "False black (1.0, 1.0, 1.0, 1.0)"
