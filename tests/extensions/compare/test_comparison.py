"""Comparisons: of made-up results with known answers, and of real runs and sweeps through the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from chat_server import ChatServer
from PIL import Image
from scipy import stats
from support import ALWAYS_DOWN, Line, figure
from sweeping import swept

import policygen
from policygen.episodes.requirements import Violations
from policygen.errors import LogbookError
from policygen.extensions.compare.comparison import Comparison, Result, holm
from policygen.extensions.compare.contenders import read_scores
from policygen.extensions.plots.style import save
from policygen.extensions.sweeps.plan import PublishedColumn

pytestmark = pytest.mark.usefixtures("workplace")


def results(task: str, name: str, scores: list[float], first_seed: int | None = 100, rail: int = 0) -> list[Result]:
    """Runs of a contender with these scores; in `rail` of 10 episodes each the requirement `rail` is violated."""
    spent = np.array([20.0, 60.0, 100.0])
    seeds = [None if first_seed is None else first_seed + i for i in range(len(scores))]
    costs = {"episodes": 100.0, "env_steps": 900.0, "calls": 5.0, "usd": 0.5, "seconds": 12.0}
    violations = (Violations("rail", True, 0.1, rail, 10),)
    return [
        Result(
            *(task, name, score, seed),
            (spent, np.array([0.0, score / 2, score])),
            costs,
            violations,
        )
        for score, seed in zip(scores, seeds, strict=True)
    ]


def comparison_of(*parts: list[Result], published: tuple[PublishedColumn, ...] = ()) -> Comparison:
    return Comparison([result for part in parts for result in part], published)


def test_contenders_are_compared_over_the_seeds_that_both_have() -> None:
    a = results("t", "A", [10, 50, 30, 20, 0, 5, 9, 10, 44, 70])
    b = results("t", "B", [41, 82, 60, 52, 30, 36, 41, 40, 75, 102])
    for parts in ((a, b[::-1]), (b, a)):
        comparison = comparison_of(*parts)
        (one,) = comparison.leads
        assert (one.first.contender, one.second.contender, one.seeds) == ("B", "A", 10)
        assert one.gain == pytest.approx(31.1)  # of differences 30 to 32, whatever the spread between seeds
        theirs = stats.ttest_rel([run.score for run in b], [run.score for run in a])
        assert one.p == pytest.approx(theirs.pvalue)
        assert one.interval == pytest.approx(theirs.confidence_interval())
        sentence = r"On t B is better than A by 31\.1 \[30\.\d+, 31\.\d+\] \(p = \de-1\d, 10 seeds\)\."
        assert re.fullmatch(sentence, comparison.sentence)
        assert comparison.table["difference"].dropna().tolist() == pytest.approx([-31.1])
        assert (comparison.table["difference_low"] < comparison.table["difference_high"]).sum() == 1


def test_only_shared_seeds_are_paired_and_without_any_nothing_is_tested() -> None:
    (one,) = comparison_of(results("t", "A", [1, 2, 3]), results("t", "B", [7, 9, 9], 101)).leads
    assert (one.seeds, one.gain) == (2, pytest.approx(((7 - 2) + (9 - 3)) / 2))
    unpaired = comparison_of(results("t", "A", [1, 2, 3]), results("t", "B", [4, 5, 6], None))
    (one,) = unpaired.leads
    assert (one.seeds, one.gain, one.p) == (0, 3.0, None)
    assert unpaired.sentence == "On t B is not significantly better than A by 3 (not paired)."
    single = comparison_of(results("t", "A", [1]), results("t", "B", [4]))
    assert single.sentence == "On t B is not significantly better than A by 3 (1 seed)."
    level = comparison_of(results("t", "A", [500] * 5), results("t", "B", [500] * 5))
    assert level.sentence == "On t A is level with B."


def test_equal_gains_have_a_sign_test() -> None:
    for n, p in ((2, 0.5), (5, 2 / 2**5), (6, 2 / 2**6)):
        comparison = comparison_of(results("t", "A", [1.0] * n), results("t", "B", [2.0] * n))
        (one,) = comparison.leads
        assert one.p == p
        assert one.is_sure == (n == 6)


def test_requirements_come_before_scores_and_nobody_who_violates_them_is_praised() -> None:
    calm, wild = results("t", "calm", [1.0] * 6, rail=1), results("t", "wild", [90.0] * 6, rail=4)
    comparison = comparison_of(wild, calm)
    assert comparison.sentence == (
        "calm: rail violated in 10% of episodes. "
        "On t calm is better than wild, which violates requirements (rail violated in 40% of episodes, 10% allowed)."
    )
    assert comparison.table["requirements"].tolist() == [
        "rail violated in 40% of episodes, 10% allowed",
        "rail violated in 10% of episodes",  # no more than is allowed
    ]
    worse = comparison_of(wild, results("t", "wilder", [99.0] * 6, rail=9))
    assert worse.sentence.startswith("No contender meets the hard requirements on t (wild: rail violated in 40% of")
    assert "better" not in worse.sentence
    several = comparison_of(wild, calm, results("u", "wild", [9.0], rail=9), results("u", "calm", [1.0], rail=8))
    assert (
        several.sentence == "Of 2 tasks, calm is the best, but violates requirements on 1 (t); "
        "none meets the hard requirements on 1 (u)."
    )


def test_many_comparisons_are_corrected_together_and_tasks_are_counted() -> None:
    rng = np.random.default_rng(3)
    base = rng.normal(50, 3, 10)
    gains = {"A": 0, "B": 0.2, "C": 9}
    parts = [results("t", name, (base + gain + rng.normal(0, 1, 10)).tolist()) for name, gain in gains.items()]
    comparison = comparison_of(*parts)
    a, b, c = (one.scores for one in sorted(comparison.entries["t"], key=lambda one: one.contender))
    assert sorted(one.p for one in comparison.leads if one.p is not None) == pytest.approx(
        sorted(holm([stats.ttest_rel(*pair).pvalue for pair in ((a, b), (a, c), (b, c))]))
    )
    assert re.match(r"On t C is better than B by .* and A by ", comparison.sentence)
    both = comparison_of(*parts, *(results("u", name, [gain, 2]) for name, gain in gains.items()))
    assert both.sentence == "Of 2 tasks, C is the best on 1 (t); C is ahead, but not significantly, on 1 (u)."
    level = comparison_of(*(results(task, name, [7, 7]) for task in "tu" for name in "AB"))
    assert level.sentence == "Of 2 tasks, all are tied on 2 (t, u)."
    alone = comparison_of(results("t", "A", [1, 2]), results("u", "A", [3]))
    assert alone.sentence == "Each of the 2 tasks has only one contender; sweep a second one to compare."
    assert comparison_of(results("t", "A", [5])).sentence == "A scores 5 on t; 1 seed."


def test_published_rows_stand_beside_ours() -> None:
    published = (
        PublishedColumn(name="they", source="a paper", runs=10, scores={"sure": (90.0, 2.0)}),
        PublishedColumn(name="others", source="a page", runs=None, scores={"sure": (10.0, None)}),
    )
    text = str(comparison_of(results("sure", "A", [95, 97, 96, 94, 95, 96, 97, 95]), published=published))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[0:1] == "|"]
    assert cells[2][:4] == ["sure", "A", "8", "95.62 ± 1.061"]
    assert cells[3][:6] == ["sure", "they", "10", "90 ± 2", "", "-5.625"]
    assert cells[4][:6] == ["sure", "others", "", "10", "", "-85.62"]
    assert "- they: a paper" in text


def test_every_format_holds_the_figures_and_no_name_is_a_formula_or_a_command(tmp_path: Path) -> None:
    comparison = comparison_of(
        results("t_1", "A & B <c>", [1, 2, 4] * 2), results("t_1", "D|e", [25, 26, 29] * 2),
        published=(PublishedColumn(name="they", source="100% of a_paper", runs=None, scores={"t_1": (3.0, 1.0)}),),
    )  # fmt: skip
    for name in ("c.md", "c.tex"):
        assert comparison.write(Path(name)) == [Path(name)]
    assert comparison.write(Path("c.csv")) == [Path("c.csv"), Path("c-runs.csv")]
    latex = Path("c.tex").read_text()
    for part in (r"\toprule", r"t\_1 & A \& B", r"2.333 $\pm$ 1.366", "% mean return: mean ± standard deviation"):
        assert part in latex, part
    assert r"D\|e" in Path("c.md").read_text()
    frame = pd.read_csv("c.csv")
    assert frame["mean"].tolist() == pytest.approx([7 / 3, 80 / 3, 3.0])
    assert frame["difference"].tolist()[::2] == pytest.approx([-73 / 3, 3 - 80 / 3])
    runs = pd.read_csv("c-runs.csv")
    assert runs[["seed", "score"]].to_numpy().tolist()[:3] == [[100, 1], [101, 2], [102, 4]]

    evil = "=cmd|'/C calc'!A0\n\\input|evil ^^5cinput"
    hostile = comparison_of(results(evil, evil, [1, 2, 4]), results(evil, "+B", [5, 6, 9]), results("[9cm]", "+B", [1]))
    hostile.write(Path("c.csv"))
    hostile.write(Path("c.tex"))
    for name in ("c.csv", "c-runs.csv"):
        for cells in pd.read_csv(name).select_dtypes(exclude="number").to_numpy().tolist():
            assert not [cell for cell in cells if str(cell).startswith(("=", "+", "@"))], name
    obeyed = [one for one in Path("c.tex").read_text().splitlines() if not one.startswith("%")]
    assert not [one for one in obeyed if "\\input" in one or "^^" in one or one.startswith("[")]


@pytest.mark.parametrize(("tasks", "height"), [(15, 12.3), (1, 5.3)])
def test_a_figure_fits_its_page_and_has_a_panel_for_each_task(tasks: int, height: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"mountaincar-continuous-{i}" for i in range(tasks)]
    contenders = ("builtin (no language model)", "openai:gpt-5-mini, refine auto")
    parts = [results(name, who, rng.normal(10.0, 1, 5).tolist()) for name in names for who in contenders]
    published = (PublishedColumn(name="ProPS+", source="a page", runs=10, scores=dict.fromkeys(names, (5.0, None))),)
    figure = comparison_of(*parts, published=published).figure()
    assert len(figure.axes) == tasks
    assert figure.get_size_inches()[1] <= height
    assert "openai:gpt-5-mini, refine auto (5 runs)" in [text.get_text() for text in figure.legends[0].get_texts()]
    save(figure, tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as image:
        assert image.width == pytest.approx((11 if tasks > 1 else 8) * 150, abs=1)


def test_p_values_are_corrected_by_holms_method() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


# --- real runs -------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"episodes": 4, "warmup_episodes": 4, "final_episodes": 5, "jobs": 1}


def test_runs_sweeps_and_a_training_in_one_comparison(line: Line, tmp_path: Path) -> None:
    settings = (*(f"{name}={value}" for name, value in SMALL.items()), "iterations=1")
    swept("quick", seeds=(100, 101, 102), settings=settings)
    longer = [policygen.run("nim", iterations=4, seed=seed, **SMALL).folder for seed in (100, 101, 102)]
    Path("ppo.csv").write_text('#{"t_start": 0, "env_id": "CartPole-v1"}\nr,l,t\n100,2,3\n300,2,4\n')
    sources = ["swept", *map(str, longer), "PPO:cartpole=ppo.csv"]
    assert {"PPO", "PPO (published)"} <= {*read_scores(sources, suite="props15").table["contender"]}
    comparison = read_scores(sources)
    assert comparison.tasks == ["cartpole", "frozenlake", "nim"]
    assert comparison.contenders == ["iterations=1", "iterations=4", "PPO"]
    assert [one.scores for one in comparison.entries["cartpole"] if one.contender == "PPO"] == [[200.0]]
    assert "PPO: mean of the last 2 training episodes" in comparison.notes()
    done = line("compare", *sources, "-o", "c.md", "-o", "c.png", "-o", "c.csv")
    assert done.code == 0, done.err
    assert {"c.md", "c.png", "c.csv", "c-runs.csv"} <= {path.name for path in tmp_path.iterdir()}
    assert done.out.splitlines()[-1] == comparison.sentence
    assert re.search(r"scores \S+ \[.*\] on nim; 3 seeds\.$", line("compare", *longer).out.strip())


def test_by_a_setting_pools_the_others_and_says_so() -> None:
    variants = [{"iterations": iterations, "grid": grid} for iterations in (1, 2) for grid in ("free", "fixed")]
    folders = [str(policygen.run("frozenlake", seed=100, **variant, **SMALL).folder) for variant in variants]
    compared = read_scores(folders, by="grid", suite="props15")
    assert compared.contenders == ["grid=free", "grid=fixed"]
    assert "averaged over runs that differ in iterations, because of --by grid" in compared.notes()
    rows = compared.table.set_index("contender")
    assert rows.loc["ProPS", ["mean", "std", "runs"]].tolist() == [0.57, 0.17, 10]
    assert read_scores(folders, by="task").contenders == ["all runs"]
    assert len(read_scores(folders).contenders) == 4


def test_unfinished_runs_are_left_out_and_counted_and_scores_that_cannot_be_added_are_a_sentence() -> None:
    whole, other = (policygen.run("nim", iterations=1, seed=seed, **SMALL).folder for seed in (100, 101))
    (other / "summary.json").unlink()
    compared = read_scores([str(whole), str(other)])
    assert len(compared.results) == 1
    assert "1 run left out, because unfinished" in compared.notes()
    with pytest.raises(LogbookError, match="no run is finished"):
        read_scores([str(other)])
    summary = json.loads((whole / "summary.json").read_text())
    summary["final"]["mean"] = 1e308
    (whole / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(LogbookError, match=r"has a score beyond 1e\+100, which cannot be compared"):
        read_scores([str(whole)])


def test_a_price_that_is_unknown_is_not_zero(line: Line) -> None:
    with ChatServer([ALWAYS_DOWN] * 2) as server:
        asked = {"llm": "compatible:m", "base_url": server.openai_url, "iterations": 2}
        folder = policygen.run("frozenlake", seed=5, **SMALL, **asked).folder
    comparison = policygen.compare(folder)
    (row,) = comparison.table.to_dict("records")
    assert (row["calls"], row["episodes"]) == (2, figure(folder, "episodes"))
    assert pd.isna(row["usd"])
