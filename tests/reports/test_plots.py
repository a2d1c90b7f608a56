"""Pictures in files: their formats, what cannot be drawn or written, and what drawing leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from drawn import LAKE, a_policy, a_run

from policygen.errors import LogbookError, UsageError
from policygen.reports.plots import plot_policy, plot_runs
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook


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
            with pytest.raises(UsageError, match=r"cannot draw into curve.*\.png, \.svg, \.pdf"):
                draw(tmp_path / name)
            assert not (tmp_path / name).exists()


def test_an_unknown_x_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"`dollars`.*attempt, calls, episodes, env_steps, tokens, wall_seconds"):
        plot_runs([a_run(tmp_path, [0.1])], tmp_path / "a.png", x="dollars")


def test_nothing_to_plot(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run folders"):
        plot_runs([], tmp_path / "a.png")
    with pytest.raises(LogbookError, match="nowhere is not a run folder"):
        plot_runs([tmp_path / "nowhere"], tmp_path / "a.png")
    folder = Logbook.create(tmp_path, LAKE, RunConfig(task="frozenlake")).folder
    with pytest.raises(LogbookError, match=f"{folder.name} has no attempts yet"):
        plot_runs([folder], tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_runs_that_spent_nothing_of_x_say_what_they_spent(tmp_path: Path) -> None:
    folder = a_run(tmp_path, [0.1])
    log = folder / "attempts.jsonl"
    records = [
        json.loads(line) | {"tokens_in": 0, "tokens_out": 0, "calls": 0} for line in log.read_text().splitlines()
    ]
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(
        UsageError, match="spent no tokens; plot over one of attempt, episodes, env_steps, wall_seconds"
    ):
        plot_runs([folder], tmp_path / "a.png", x="tokens")


def test_a_picture_that_cannot_be_written_is_an_error_and_keeps_the_old_one(tmp_path: Path) -> None:
    with pytest.raises(LogbookError, match="cannot write"):
        plot_policy(a_policy(LAKE), tmp_path / "missing" / "policy.png")


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_costs_no_heavy_library() -> None:
    code = (
        "import sys, policygen.reports.plots; print([m for m in ('matplotlib', 'pandas', 'scipy') if m in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_drawing_leaves_no_global_state(tmp_path: Path) -> None:
    folder = a_run(tmp_path, [0.1])
    code = f"""
import sys
from pathlib import Path
import matplotlib
matplotlib.rcParams["axes.facecolor"] = "black"
from policygen.reports.curves import runs_figure
from policygen.reports.plots import plot_runs
plot_runs([Path({str(folder)!r})], Path({str(tmp_path / "a.png")!r}))
drawn = runs_figure([Path({str(folder)!r})]).axes[0].get_facecolor()
print("matplotlib.pyplot" in sys.modules, matplotlib.rcParams["axes.facecolor"], drawn)
"""
    assert run_python(code) == "False black (1.0, 1.0, 1.0, 1.0)"
