"""The benchmark's parts, without a word about how fast this machine is."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from policygen import bench
from policygen.bench import Missing, Row
from policygen.cli import commands
from policygen.evaluate import episode_seeds
from policygen.language import parse
from policygen.rollout import Simulator
from policygen.tasks import Task

ROWS = [
    Row("a", 0.001, 0.01, "another", 10.0, 9.0, 11.0, "s", "at least 8 x faster", True),
    Row("b", 0.002, 0.001, "a third", 2.0, 1.5, 2.5, "s", "ours at most 1.6 x", False),
    Row("prompt", 8_900, 9_000, "9,000 characters", 0.99, 0.99, 0.99, "characters", "at most 9,000 characters", True),
    Row("plain", 1e-6, 2e-6, "no bar", 0.5, 0.4, 0.6),
    Missing("c", "it is not installed"),
]


def test_compared_takes_ratios_in_turn_and_says_whether_the_bar_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0, 4.0, 2.0, 4.0, 1.0, 3.0])
    monkeypatch.setattr(bench, "_timed", lambda call, times: next(seconds))
    row = bench.compared("x", int, int, "y", 3, least=2.5)
    assert (row.ours, row.theirs, row.ratio, row.low, row.high, row.met) == (1.0, 4.0, 3.0, 2.0, 4.0, True)
    seconds = iter([1.0, 4.0, 2.0, 4.0, 1.0, 3.0])
    row = bench.compared("x", int, int, "y", 3, most=0.3)
    assert (row.ratio, row.met) == (pytest.approx(1 / 3), False)
    seconds = iter([1.0, 4.0, 2.0, 4.0, 1.0, 3.0])
    assert bench.compared("x", int, int, "y", 3).met is None


def test_tables_say_every_row_and_why_one_is_missing() -> None:
    lines = bench.as_markdown(ROWS).splitlines()
    assert [line.count("|") for line in lines[2:]] == [9] * (2 + len(ROWS))
    assert "| a | 1 ms | another | 10 ms | 10 | 9 to 11 | at least 8 x faster | yes |" in lines
    assert "**no**" in lines[5]
    assert "8,900 characters" in lines[6]
    assert "it is not installed" in lines[8]
    read = list(csv.DictReader(io.StringIO(bench.as_csv(ROWS))))
    assert [row["what"] for row in read] == ["a", "b", "prompt", "plain"]
    assert float(read[0]["ours"]) == 0.001
    record = json.loads(bench.as_json(ROWS))
    assert len(record["rows"]) == len(ROWS)
    assert record["rows"][4] == {"name": "c", "why": "it is not installed"}


def test_results_are_a_table_a_file_of_figures_and_a_picture(tmp_path: Path) -> None:
    bench.write_results(ROWS, tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["speed.csv", "speed.md", "speed.png"]
    assert (tmp_path / "new" / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_more_is_better_in_the_picture_whatever_the_bar_says() -> None:
    assert bench._margin(ROWS[0]) == (10 / 8, 9 / 8, 11 / 8)
    assert bench._margin(ROWS[1]) == (1.6 / 2.0, 1.6 / 2.5, 1.6 / 1.5)
    assert bench._margin(ROWS[2])[0] == pytest.approx(1 / 0.99)


@pytest.mark.parametrize("name", ["_one_at_a_time", "_frozenlake", "_buffer"])
def test_a_section_measures_what_it_says(name: str) -> None:
    rows = list(getattr(bench, name)(1, True))
    assert rows
    for row in rows:
        assert isinstance(row, Row)
        assert row.low <= row.ratio <= row.high
        assert row.met is not None
        # The ratio is of the two amounts beside it, whichever way round.
        assert any(row.ratio == pytest.approx(r, rel=1e-6) for r in (row.ours / row.theirs, row.theirs / row.ours))


def test_an_extrapolated_row_keeps_its_ratio() -> None:
    row = bench._scaled(bench.compared("x", int, int, "y", 1, least=1), 50, 20, 40)
    assert row.ratio == pytest.approx(row.theirs / row.ours)


def test_a_plain_loop_returns_what_the_simulator_does() -> None:
    task: Task = bench.load_task("cartpole")
    policy = parse("left = 0\nright = angle", task).policy
    assert policy is not None
    seeds = episode_seeds(0, "bench", 5)
    with Simulator(task) as simulator:
        assert bench.plain_loop(task, policy, seeds) == [t.episode_return for t in simulator.play(policy, seeds)]


def test_compiled_kernels_look_up_what_the_policy_does() -> None:
    pytest.importorskip("numba")
    policy = bench._cartpole_table()
    rows = bench._observations(2_000)
    rows[:3] = np.array([np.nan, np.inf, -np.inf], np.float32)[:, None]
    for kernel in (bench._fused_kernel(policy), bench._literal_kernel(policy)):
        assert np.array_equal(kernel(rows), policy.act(rows))


def test_the_long_prompt_keeps_to_its_bar() -> None:
    assert bench.long_prompt_characters() <= 9_000


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
