"""Tidy tables: a row for each run or attempt, with every value of the published tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from support import Line, attempts_of, summary_of

import policygen
from policygen.extensions.plots.tables import comparison, tidy
from policygen.runs.config import RunConfig
from policygen.runs.records import Summary


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("tidy")
    options = {"iterations": 2, "episodes": 5, "warmup_episodes": 2, "final_episodes": 7, "fragility": False}
    return [policygen.run(task, seed=seed, out=out, **options).folder for task, seed in (("cartpole", 3), ("nim", 4))]


def test_a_run_is_a_row_with_its_settings_costs_and_score(runs: list[Path]) -> None:
    frame = policygen.data(*runs)
    assert frame["task"].tolist() == ["cartpole", "nim"]
    assert frame["seed"].tolist() == [3, 4]
    assert {*RunConfig.model_fields} <= {*frame.columns}
    summary = summary_of(runs[0])
    first = frame.iloc[0]
    assert (first["final_mean"], first["final_played"]) == (summary["final"]["mean"], 7)
    assert (first["repairs"], first["repair_requests"]) == (2, 0)  # the setting, and what the run did
    assert (first["iterations"], first["rounds"]) == (2, 2)
    assert first["search_episodes"] == summary["episodes"]
    apart = {"final", "perturbed", "perturbed_by", "shares", "assumed", "policy_kind", "iterations", "episodes"}
    assert {*Summary.__dataclass_fields__} - apart - {*frame.columns} == set()


def test_the_values_of_tables_follow_from_it(runs: list[Path]) -> None:
    table, frame = comparison(runs).set_index("task"), tidy(runs).set_index("task")
    names = {"final_score": "final_mean", "low": "final_low", "high": "final_high", "exact": "final_exact"}
    names |= {"attempts": "attempts", "llm_calls": "llm_calls", "search_episodes": "search_episodes", "seed": "seed"}
    for ours, theirs in names.items():
        for task in ("cartpole", "nim"):
            one, other = table.loc[task, ours], frame.loc[task, theirs]
            assert (pd.isna(one) and pd.isna(other)) or one == other, ours


def test_curves_have_a_row_for_each_attempt(runs: list[Path], tmp_path: Path, line: Line) -> None:
    path = tmp_path / "curves.csv"
    done = line("data", *runs, "--curves", "-o", path)
    assert done.code == 0
    frame = pd.read_csv(path)
    assert len(frame) == sum(len(attempts_of(run)) for run in runs)
    assert set(frame["kind"]) == {"random", "proposal"}
    last = frame[frame["task"] == "cartpole"].iloc[-1]
    assert last["episodes"] == summary_of(runs[0])["episodes"]


def test_an_unfinished_run_has_a_row_without_a_score(runs: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for path in runs[0].iterdir():
        if path.name != "summary.json":
            (folder / path.name).write_bytes(path.read_bytes())
    frame = tidy([runs[0], folder])
    assert frame["finished"].tolist() == [True, False]
    assert pd.isna(frame.loc[1, "final_mean"])


def test_bad_input_is_one_sentence(runs: list[Path], tmp_path: Path, line: Line) -> None:
    for arguments, words in (
        ((runs[0], "-o", tmp_path / "a.xls"), "end the name in .csv, .parquet"),
        ((tmp_path, "-o", tmp_path / "a.csv"), "is not a run folder"),
    ):
        done = line("data", *arguments)
        assert done.code == 2
        assert words in done.err
