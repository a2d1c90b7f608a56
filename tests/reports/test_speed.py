"""The benchmark's parts, without a word about how fast this machine is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from policygen.cli import commands
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.policies.parse import parse
from policygen.reports.speed import acting, bench, playing, running
from policygen.reports.speed.rows import Missing, Row
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

ROWS = [
    Row("a", 0.002, 0.001, "another", 2.0, 1.5, 2.5, "s", "ours at most 1.6 x", False),
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


def test_a_plain_loop_returns_what_the_simulator_does() -> None:
    task: Task = load_task("cartpole")
    policy = parse("left = 0\nright = angle", task).policy
    assert policy is not None
    seeds = episode_seeds(0, "bench", 5)
    with Simulator(task) as simulator:
        assert playing.plain_loop(task, policy, seeds) == [t.episode_return for t in simulator.play(policy, seeds)]


def test_compiled_kernels_look_up_what_the_policy_does() -> None:
    pytest.importorskip("numba")
    policy = acting._cartpole_table()
    rows = acting._observations(2_000)
    rows[:3] = np.array([np.nan, np.inf, -np.inf], np.float32)[:, None]
    for kernel in (acting._fused_kernel(policy), acting._literal_kernel(policy)):
        assert np.array_equal(kernel(rows), policy.act(rows))


def test_the_long_prompt_keeps_to_its_bar() -> None:
    assert running.long_prompt_characters() <= 9_000


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
