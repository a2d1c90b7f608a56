"""The benchmark's parts, without a word about how fast this machine is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from policygen.cli import commands
from policygen.extensions.plots.speed import acting, bench, exported, playing
from policygen.extensions.plots.speed import rows as ratios
from policygen.extensions.plots.speed.rows import UNJUDGED, Missing, Row, within

ROWS = [
    Row("a", 0.002, 0.001, "another", 2.0, 1.5, 2.5, bar=within(1.6)),
    Missing("b", "it is not installed"),
]


@pytest.mark.parametrize("section", [acting.one_at_a_time, playing.frozenlake, playing.buffer])
def test_a_section_measures_what_it_says(section: Callable[[int, bool], Iterator[Row | Missing]]) -> None:
    rows = list(section(1, True))
    assert rows
    for row in rows:
        assert isinstance(row, Row)
        assert row.low <= row.ratio <= row.high
        assert row.met is not None
        # The ratio is of the two amounts beside it, whichever way round.
        assert any(row.ratio == pytest.approx(r, rel=1e-6) for r in (row.ours / row.theirs, row.theirs / row.ours))


def test_quick_work_is_not_judged_by_the_bars_of_a_full_run() -> None:
    quick = list(bench.run_all(quick=True, sections=(playing.frozenlake,)))
    assert [row.met for row in quick if isinstance(row, Row)] == [None, None]
    assert all(isinstance(row, Row) and row.bar is not None for row in quick)
    text = ratios.as_markdown(quick)
    assert UNJUDGED in text
    assert text.count("| not judged |") == 2


def test_the_command_prints_rows_and_writes_only_full_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "run_all", lambda quick: iter(ROWS))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    runner = CliRunner()
    quick = runner.invoke(commands, ["bench", "--quick", "--json", "--out", str(tmp_path / "a")])
    assert quick.exit_code == 0, quick.output
    assert json.loads(quick.stdout)["rows"][0]["name"] == "a"
    assert not (tmp_path / "a").exists()
    full = runner.invoke(commands, ["bench", "--out", str(tmp_path / "b")])
    assert full.exit_code == 0, full.output
    assert "**no**" in full.stdout
    assert (tmp_path / "b" / "speed.csv").exists()


def test_exported_c_is_measured_or_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(shutil, "which", lambda name: None)
        rows = list(exported.exported_c(1, True))
    assert [row.why for row in rows if isinstance(row, Missing)] == [
        "there is no C compiler `cc`",
        "there is no cross compiler `arm-none-eabi-gcc`",
    ] * 2
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler `cc`")
    measured = [row for row in exported.exported_c(1, True) if isinstance(row, Row)]
    assert {"ns", "s"} <= {row.unit for row in measured}
