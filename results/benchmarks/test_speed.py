"""The benchmark's parts, without a word about how fast this machine is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import speed
from speed_parts import acting, playing, running, sections
from speed_parts import rows as ratios
from speed_parts.rows import UNJUDGED, Missing, Row, within

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.policies.parse import parse
from policygen.tasks.load import load_task

ROW = Row("a", 0.002, 0.001, "another", 2.0, 1.5, 2.5, bar=within(1.6))
ROWS = [ROW, Missing("b", "it is not installed")]


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
    quick = list(sections.run_all(quick=True, sections=(playing.frozenlake,)))
    assert [row.met for row in quick if isinstance(row, Row)] == [None, None]
    assert all(isinstance(row, Row) and row.bar is not None for row in quick)
    text = ratios.as_markdown(quick)
    assert UNJUDGED in text
    assert text.count("| not judged |") == 2


def test_the_command_prints_rows_and_writes_only_full_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sections, "run_all", lambda quick: iter(ROWS))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    speed.main(["--quick", "--json", "--out", str(tmp_path / "a")])
    assert json.loads(capsys.readouterr().out)["rows"][0]["name"] == "a"
    assert not (tmp_path / "a").exists()
    assert speed.main(["--out", str(tmp_path / "b")]) == 1
    printed = capsys.readouterr()
    assert "**no**" in printed.out
    assert printed.err.count("missed: | a |") == 1
    monkeypatch.setattr(sections, "run_all", lambda quick: iter([replace(ROW, bar=within(2.5)), ROWS[1]]))
    assert speed.main(["--out", str(tmp_path / "b")]) == 0
    assert "missed" not in capsys.readouterr().err
    assert (tmp_path / "b" / "speed.csv").exists()


def test_compiled_kernels_look_up_what_the_policy_does() -> None:
    pytest.importorskip("numba")
    policy = acting.cartpole_table()
    rows = acting.some_observations(2_000)
    rows[:3] = np.array([np.nan, np.inf, -np.inf], np.float32)[:, None]
    for compiled_in in (True, False):
        assert np.array_equal(acting._fused_kernel(policy, compiled_in=compiled_in)(rows), policy.act(rows))


def test_rows_and_columns_are_named_for_what_was_timed() -> None:
    rows = [row for row in acting.lookup(1, True) if isinstance(row, Row)]
    assert [row.name for row in rows if row.against.startswith("np.digitize")] == ["act, 100,000 rows"]
    assert [row.name for row in rows if row.against.startswith("a dictionary")] == ["act, 100,000 rows"]


def test_a_plain_loop_returns_what_the_simulator_does() -> None:
    task = load_task("cartpole")
    policy = parse("left = 0\nright = angle", task).policy
    assert policy is not None
    seeds = episode_seeds(0, "bench", 5)
    with Simulator(task) as simulator:
        assert playing.plain_loop(task, policy, seeds) == [t.episode_return for t in simulator.play(policy, seeds)]


def test_the_long_prompt_keeps_within_the_bar() -> None:
    assert running.long_prompt_characters() <= 9_000
