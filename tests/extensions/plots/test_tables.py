"""Tables of runs: their rows, what is averaged, tidy tables, and the formats of files (`extensions.plots.reports`)."""

from __future__ import annotations

import csv
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import FAILED, LAKE, a_run, ended
from support import Line, attempts_of, summary_of

import policygen
from policygen.episodes.score import Score, score_of_returns
from policygen.errors import LogbookError, UsageError
from policygen.extensions.plots.tables import comparison, tidy, write_table
from policygen.runs.config import RunConfig
from policygen.runs.records import Summary, score_record


def finished(out: Path, seed: int, mean: float, **settings: Any) -> Path:
    """A finished run whose final score has this mean."""
    score: Score = score_of_returns(np.array([mean - 1, mean, mean + 1]), (1, 2, 3), "copies")
    folder = a_run(out / str(seed) / str(sorted(settings.items())), [mean], seed=seed, **settings)
    summary = {"task": "frozenlake", "llm": settings.get("llm", "builtin"), "policy_kind": "table", "seed": seed}
    spent = {"attempts": 1, "llm_calls": 0, "episodes": 40}
    (folder / "summary.json").write_text(json.dumps({**summary, **spent, "final": score_record(score)}))
    return folder


def rows_of(folders: list[Path], tmp_path: Path) -> list[list[str]]:
    table = write_table(folders, tmp_path / "runs.md").read_text()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_runs_come_by_seed_and_then_the_mean_of_their_group_with_an_interval_over_runs(tmp_path: Path) -> None:
    folders = [finished(tmp_path, seed, mean) for seed, mean in ((2, 5.0), (0, 1.0), (1, 3.0))]
    other = finished(tmp_path, 0, 9.0, refine="coordinate:300")
    rows = rows_of([*folders, folders[0] / ".", other], tmp_path)
    assert [(row[2], row[3], row[7]) for row in rows[:4]] == [
        ("table", "0", "1.0"),
        ("table", "1", "3.0"),
        ("table", "2", "5.0"),
        ("table, refine coordinate:300", "0", "9.0"),
    ]
    assert rows[4][0] == "**frozenlake**"
    assert rows[4][2:4] == ["table", "mean of 3 runs"]
    assert rows[4][7:9] == ["**3.0**", "1.0 to 5.0 over runs"]
    assert len(rows) == 5


def test_unfinished_runs_have_a_row_and_enter_no_mean(tmp_path: Path) -> None:
    folders = [a_run(tmp_path, [0.9], seed=1), finished(tmp_path, 0, 1.0), finished(tmp_path, 2, 3.0)]
    rows = rows_of(folders, tmp_path)
    assert [(row[3], row[7]) for row in rows] == [
        ("0", "1.0"),
        ("1", "unfinished"),
        ("2", "3.0"),
        ("mean of 2 runs, 1 unfinished left out", "**2.0**"),
    ]
    with pytest.raises(LogbookError, match="is not a finished run; finish it with: policygen resume"):
        comparison(folders[:1])


def test_runs_without_a_policy_are_counted_in_words(tmp_path: Path) -> None:
    folders = [ended(tmp_path, scores, seed=i) for i, scores in enumerate(([0.25], [FAILED], [0.75]))]
    rows = rows_of(folders, tmp_path)
    assert [row[7] for row in rows] == ["0.2500", "no policy", "0.7500", "**0.5000**"]
    assert rows[-1][3] == "mean of 2 runs, 1 without a policy left out"


# --- formats ---------------------------------------------------------------------------------------------------------

AWKWARD = replace(LAKE, name="my_lake & <co> 50%")


@pytest.fixture
def awkward(tmp_path: Path) -> list[Path]:
    """Two finished runs and an unfinished one, whose names need escaping."""
    settings: dict[str, Any] = {"task": AWKWARD, "llm": "compatible:a|b_*c*"}
    runs = [ended(tmp_path, [score], seed=seed, **settings) for seed, score in enumerate((0.25, 0.75))]
    return [*runs, a_run(tmp_path, [0.9], seed=2, **settings)]


def test_latex_is_latex_with_its_special_characters_escaped(awkward: list[Path], tmp_path: Path) -> None:
    text = write_table(awkward, str(tmp_path / "runs.tex")).read_text()
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    assert len(body) == 1 + 3 + 1
    assert all(len(re.findall(r"(?<!\\)&", line)) == 6 for line in body)  # three columns are the same in all rows
    assert not re.search(r"(?<!\\)[_%#$]", "\n".join(body))
    assert r"All rows: my\_lake \& \textless{}co\textgreater{} 50\%, compatible:a|b\_*c*, table." in text
    assert "of a mean of runs over these runs (bootstrap)" in text
    assert body[1].startswith("0 &")
    assert r"\bfseries 0.5000" in body[-1]
    assert "|" not in text.replace("a|b", "")


def test_latex_names_models_without_their_providers_and_says_so(tmp_path: Path) -> None:
    runs = [finished(tmp_path, 0, -1.5), finished(tmp_path, 0, 2.0, llm="compatible:m", refine="coordinate:300")]
    text = write_table(runs, tmp_path / "runs.tex").read_text()
    assert re.search(r"^builtin & table & 0 & .* & \$-\$1\.5 & ", text, re.MULTILINE)
    assert re.search(r"^m & table, refine coordinate:300 & 0 & ", text, re.MULTILINE)
    assert "All rows: frozenlake. builtin: builtin (no language model); m: compatible:m." in text


def test_csv_is_numbers_that_a_program_reads(awkward: list[Path], tmp_path: Path) -> None:
    path = write_table(awkward, tmp_path / "runs.csv")
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["what"] for row in rows] == ["run", "run", "unfinished run", "mean of 2 runs, 1 unfinished left out"]
    assert [row["final_score"] for row in rows] == ["0.25", "0.75", "", "0.5"]
    assert {row["task"] for row in rows} == {AWKWARD.name}
    assert [row["seed"] for row in rows] == ["0", "1", "2", ""]


def test_special_characters_are_escaped_and_another_suffix_names_the_known_ones(
    awkward: list[Path], tmp_path: Path
) -> None:
    page = write_table(awkward, tmp_path / "runs.HTML").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert html.escape(AWKWARD.name) in page
    assert "<co>" not in page
    assert page.count("<tr>") == 1 + 3 + 1
    lines = write_table(awkward, tmp_path / "runs.md").read_text().splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {11}
    assert r"| my_lake & \<co> 50% | compatible:a\|b_\*c\* | table | 0 |" in lines[2]
    for name in ("runs.xlsx", "runs"):
        with pytest.raises(UsageError, match=r"cannot write runs.*: end the name in \.md, \.csv, \.tex, \.html"):
            write_table([tmp_path / "nowhere"], tmp_path / name)


# --- tidy tables -----------------------------------------------------------------------------------------------------


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
    assert tidy([folder]).columns.tolist() == frame.columns.tolist()


def test_a_baseline_has_columns_of_its_own_and_its_setting_stays(tmp_path: Path) -> None:
    (tmp_path / "rule.txt").write_text("left = 0\nright = angle")
    small = {"iterations": 1, "episodes": 4, "warmup_episodes": 2, "final_episodes": 10, "out": tmp_path, "jobs": 1}
    runs = [policygen.run("cartpole", baseline=str(tmp_path / "rule.txt"), score="cvar:0.5", **small).folder]
    runs.append(policygen.run("cartpole", **small).folder)
    (first, second), final = tidy(runs).to_dict("records"), summary_of(runs[0])["final"]
    assert first["baseline"] == str(tmp_path / "rule.txt")
    assert first["baseline_gain"] == pytest.approx(first["final_score"] - first["baseline_score"])
    # The score is what the interval encloses: here the mean of the worse half.
    assert first["final_score"] == final["aggregated"][1]
    assert first["final_low"] <= first["final_score"] < first["final_mean"] == final["mean"]
    assert pd.isna(second["baseline_score"])
    assert second["final_score"] == second["final_mean"]


def test_bad_input_is_one_sentence(runs: list[Path], tmp_path: Path, line: Line) -> None:
    for arguments, words in (
        ((runs[0], "-o", tmp_path / "a.xls"), "end the name in .csv, .parquet"),
        ((tmp_path, "-o", tmp_path / "a.csv"), "is not a run folder"),
    ):
        done = line("data", *arguments)
        assert done.code == 2
        assert words in done.err
