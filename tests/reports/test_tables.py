from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import a_run

from policygen.episodes.score import Score, score_of_returns
from policygen.errors import LogbookError
from policygen.reports.tables import comparison
from policygen.search.run import score_record


def finished(out: Path, seed: int, mean: float, **settings: Any) -> Path:
    """A finished run whose final score has this mean."""
    score: Score = score_of_returns(np.array([mean - 1, mean, mean + 1]), (1, 2, 3), "copies")
    folder = a_run(out / str(seed) / str(sorted(settings.items())), [mean], seed=seed, **settings)
    summary = {"task": "frozenlake", "llm": settings.get("llm", "builtin"), "policy_kind": "table", "seed": seed}
    spent = {"attempts": 1, "llm_calls": 0, "episodes": 40}
    (folder / "summary.json").write_text(json.dumps({**summary, **spent, "final": score_record(score)}))
    return folder


def rows_of(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_runs_come_by_seed_and_then_their_mean_with_an_interval_over_runs(tmp_path: Path) -> None:
    rows = rows_of(comparison([finished(tmp_path, seed, mean) for seed, mean in ((2, 5.0), (0, 1.0), (1, 3.0))]))
    assert [(row[3], row[7]) for row in rows[:3]] == [("0", "1.0"), ("1", "3.0"), ("2", "5.0")]
    interval = score_of_returns(np.array([1.0, 3.0, 5.0]), (), "runs").ci95
    assert interval is not None
    assert rows[3][0] == "**frozenlake**"
    assert rows[3][3] == "mean of 3 runs"
    assert rows[3][7:9] == ["**3.0**", f"{interval[0]:.1f} to {interval[1]:.1f} over runs"]
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ablate": "knowledge"}, "table, ablate knowledge"),
        ({"refine": "coordinate:300"}, "table, refine coordinate:300"),
        ({"template": "mine", "example": "old/run"}, "table, template mine, example old/run"),
        ({"grid": "fixed"}, "table, grid fixed"),
    ],
)
def test_runs_with_other_settings_are_told_apart_and_never_averaged(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    folders = [finished(tmp_path, seed, 1.0) for seed in (0, 1)] + [finished(tmp_path, 0, 9.0, **settings)]
    rows = rows_of(comparison(folders))
    assert sorted(row[2] for row in rows) == ["table"] * 3 + [words]
    assert rows[-1][3:8:4] == ["mean of 2 runs", "**1.0**"]


def test_budgets_and_processes_do_not_tell_runs_apart(tmp_path: Path) -> None:
    folders = [finished(tmp_path, 0, 1.0, jobs=1), finished(tmp_path, 1, 3.0, max_calls=7)]
    assert rows_of(comparison(folders))[-1][3] == "mean of 2 runs"


def test_unfinished_runs_are_left_out_by_name(tmp_path: Path) -> None:
    started = a_run(tmp_path, [0.1])
    assert f"Left out, because unfinished: {started.name}." in comparison([started, finished(tmp_path, 0, 1.0)])
    with pytest.raises(LogbookError, match="is not a finished run; finish it with: policygen resume"):
        comparison([started])
