"""Comparisons: of made-up results with known answers, and of real runs and sweeps through the command line."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from chat_server import ChatServer
from matplotlib.text import Text
from PIL import Image
from support import Line, sentences
from sweeping import swept

import policygen
from policygen.errors import LogbookError
from policygen.extensions.compare.comparison import Pair, normalised_scores, pairs_of, rows_of
from policygen.extensions.compare.contenders import ComparedScores, read_scores
from policygen.extensions.compare.figure import comparison_figure
from policygen.extensions.compare.reports import as_markdown
from policygen.extensions.compare.results import Result
from policygen.extensions.compare.tables import report_of, write_report
from policygen.extensions.compare.words import number, verdict
from policygen.extensions.plots.style import save
from policygen.extensions.sweeps.suites import PublishedColumn
from policygen.search.resume import load_run

pytestmark = pytest.mark.usefixtures("workplace")


def results(task: str, name: str, scores: list[float], first_seed: int | None = 100) -> list[Result]:
    """Runs of a contender with these scores."""
    curve = np.array([20.0, 60.0, 100.0])
    spent = {"episodes": curve, "calls": curve / 20, "seconds": curve / 10, "usd": curve / 1000}
    seeds = [None if first_seed is None else first_seed + i for i in range(len(scores))]
    return [
        Result(task, name, score, seed, spent, np.array([0.0, score / 2, score]), 0.0, 100.0, 5.0, 1000.0, 0.5, 12.0)
        for score, seed in zip(scores, seeds, strict=True)
    ]


def compared_scores_of(*parts: list[Result], published: tuple[PublishedColumn, ...] = ()) -> ComparedScores:
    return ComparedScores(tuple(result for part in parts for result in part), published)


def duel(a: list[float], b: list[float], first_seed: int | None = 100) -> tuple[ComparedScores, Pair]:
    """The comparison of A's and B's scores on the task t; B's seeds begin with `first_seed`."""
    compared = compared_scores_of(results("t", "A", a), results("t", "B", b, first_seed))
    (pair,) = pairs_of(compared)
    return compared, pair


def test_a_pair_is_compared_over_the_seeds_that_both_have() -> None:
    a = results("t", "A", [10, 50, 30, 20, 0, 5, 9, 10, 44, 70])
    b = results("t", "B", [41, 82, 60, 52, 30, 36, 41, 40, 75, 102])
    (pair,) = pairs_of(compared_scores_of(a, b[::-1]))
    assert pair.gain == pytest.approx(31.1)  # of differences 30 to 32, whatever the spread between seeds
    assert 30 < pair.interval[0] < 31.1 < pair.interval[1] < 32
    assert (pair.seeds, pair.p, pair.more) == (10, 2 / 2**10, 0)
    assert 0.5 < pair.better < 1  # among all runs, whatever their seeds
    for compared in (compared_scores_of(a, b), compared_scores_of(b, a)):
        sentence = r"B is better than A by 31\.10 \[30\.\d+, 31\.\d+\] on t; 10 seeds each\."
        assert re.fullmatch(sentence, verdict(compared, pairs_of(compared)))


def test_only_shared_seeds_are_paired_and_without_any_runs_are_not() -> None:
    _, pair = duel([1, 2, 3], [7, 9, 9], 101)
    assert (pair.seeds, pair.gain) == (2, pytest.approx(((7 - 2) + (9 - 3)) / 2))
    _, pair = duel([1, 2, 3], [4, 5, 6], None)
    assert (pair.seeds, pair.runs, pair.gain) == (0, (3, 3), 3.0)
    assert pair.p == pytest.approx(0.1, abs=0.02)  # two of the twenty ways to divide six runs


def test_an_open_question_says_how_many_more_seeds_would_settle_it() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(50, 5, 8)
    compared, pair = duel(a.tolist(), (a + rng.normal(2, 6, 8)).tolist())
    assert pair.corrected > 0.05
    assert pair.more > 0
    assert re.search(f"is open.* about {pair.more} more seeds each would settle it", verdict(compared, [pair]))
    compared, noisy = duel([0] * 4, [10, -9, 10, -9.5])  # a guess at many seeds is no number
    assert "4 seeds each, more than 100 more seeds each would settle it." in verdict(compared, [noisy])


def test_so_few_seeds_can_settle_nothing_and_the_sentence_says_so() -> None:
    compared, pair = duel([10, 20, 30], [20, 30.5, 40])
    assert (pair.p, pair.more, pair.fewest) == (0.25, 3, 6)  # 2/2^6 is the first below 0.05
    assert "about 3 more seeds each would settle it (this test needs at least 6 seeds)" in (verdict(compared, [pair]))
    _, unpaired = duel([10, 20, 30], [100, 110, 120], None)
    assert (unpaired.seeds, unpaired.more, unpaired.fewest) == (0, 1, 4)
    assert "about 1 more seed each would settle it (this test needs at least 4 seeds" in verdict(compared, [unpaired])
    three = pairs_of(compared_scores_of(*(results("t", name, [10, 20, 30 + i]) for i, name in enumerate("ABC"))))
    assert {pair.fewest for pair in three} == {7}  # three tests share the level, and 2/2^7 is below a third of it


def test_nothing_is_bold_where_nothing_is_compared() -> None:
    five, six = (duel([*range(runs)], [*range(1, runs + 1)])[0] for runs in (5, 6))
    for compared, bold, narrow in (
        (compared_scores_of(results("t", "A", [10, 20, 30])), set(), True),
        (five, set(), False),  # five pairs settle nothing
        (six, {(0, 2)}, False),
    ):
        report = report_of(compared)
        assert report.sections[0].bold == bold
        assert ("Intervals from fewer than 5 runs are too narrow." in report.notes) is narrow


def test_contenders_that_score_the_same_are_level() -> None:
    compared, pair = duel([5, 5], [5], None)
    assert verdict(compared, [pair]) == "A and B are level on t; 2 and 1 runs, not paired."
    compared, pair = duel([500] * 5, [500] * 5)
    assert verdict(compared, [pair]) == "A and B are level on t; 5 seeds each."


def test_several_tasks_are_compared_in_points_and_count_the_same() -> None:
    compared = compared_scores_of(
        results("one", "A", [10] * 3), results("one", "B", [20] * 3),
        results("two", "A", [50] * 4), results("two", "B", [80] * 4),
    )  # fmt: skip
    assert [pair.gain for pair in pairs_of(compared) if pair.tasks == 2] == [20.0]
    assert normalised_scores(compared, "two", "A").tolist() == [50.0] * 4
    report = report_of(compared)
    assert "20.00 [20.00, 20.00] (normalised) on these 2 tasks" in report.sentence
    assert report.sections[1].rows == (("A", "30.00 [30.00, 30.00]"), ("B", "50.00 [50.00, 50.00]"))


def test_many_comparisons_are_corrected_together_and_the_best_is_named() -> None:
    rng = np.random.default_rng(3)
    base = rng.normal(50, 3, 10)
    gains = {"A": 0, "B": 0.2, "C": 9}
    parts = (results("t", name, (base + gain + rng.normal(0, 1, 10)).tolist()) for name, gain in gains.items())
    compared = compared_scores_of(*parts)
    pairs = pairs_of(compared)
    surest = min(pairs, key=lambda pair: pair.p)
    assert (len(pairs), surest.corrected) == (3, pytest.approx(3 * surest.p))
    best = "C has the highest mean of 3 on t, significantly above A and B; 10 seeds each."
    assert verdict(compared, pairs).startswith(best)


def test_published_columns_stand_beside_ours_and_a_test_says_what_is_above_them() -> None:
    published = (
        PublishedColumn("they", "a paper", 10, {"noisy": (90.0, 30.0), "lower": (99.0, 1.0), "sure": (90.0, 2.0)}),
        PublishedColumn("others", "a page", None, {"few": (90.0, None), "sure": (10.0, None), "level": (100.0, None)}),
    )
    compared = compared_scores_of(
        results("sure", "A", [95, 97, 96, 94, 95, 96, 97, 95]), results("noisy", "A", [95.0, 97.0] * 4),
        results("few", "A", [100, 100]), results("lower", "A", [95, 97]), results("level", "A", [100, 100]),
        published=published,
    )  # fmt: skip
    assert verdict(compared, []) == (
        "A is significantly above all published columns on 1 of 5 tasks, highest, but not significantly, on 2 "
        "(noisy, few), level with the best on 1 (level), below the best on 1 (lower)."
    )
    report = report_of(compared)
    assert report.sections[0].bold == {(0, 1)}
    text = as_markdown(report)
    assert re.search(r"\| sure \| \*\*95\.62 ± 1\.061 \[9.*\]\*\* \| 90\.00 ± 2\.000 \| 10\.00 \|", text)
    assert "| level | 100.0 ± 0.000 [100.0, 100.0] |  | 100.0 |" in text
    assert "- they: a paper." in text


def test_costs_are_means_and_what_is_not_known_is_not_made_up() -> None:
    a = results("t", "A", [1, 2])
    (row,) = rows_of(compared_scores_of(a))
    assert (row.calls, row.tokens, row.usd, row.episodes, row.seconds) == (5.0, 1000.0, 0.5, 100.0, 12.0)
    (row,) = rows_of(compared_scores_of([Result("t", "A", 1.0, 1), *a[1:]]))
    assert (row.usd, row.runs) == (None, 2)


def test_every_format_holds_the_figures_and_no_name_is_a_formula_or_a_command(tmp_path: Path) -> None:
    compared = compared_scores_of(
        results("t_1", "A & B <c>", [1, 2, 4] * 2), results("t_1", "D|e", [25, 26, 29] * 2),
        published=(PublishedColumn("they", "100% of a_paper", None, {"t_1": (3.0, 1.0)}),),
    )  # fmt: skip
    for name in ("c.md", "c.tex", "c.html", "c.csv"):
        write_report(compared, Path(name))
    latex = Path("c.tex").read_text()
    for part in (
        r"\caption{Scores: mean $\pm$ standard deviation over 6 runs [95\% bootstrap interval of the mean].",
        *(r"\label{tab:scores}", r"\begin{tabular}{lrrr}", r"\end{table*}"),
        *(r"\bfseries", r"2.333 $\pm$ 1.366", r"A \& B"),
    ):
        assert part in latex, part
    page = Path("c.html").read_text()
    assert "A &amp; B &lt;c&gt;" in page
    assert "<script" not in page
    assert r"D\|e" in Path("c.md").read_text()
    frame = pd.read_csv("c.csv")
    assert frame["mean"].tolist() == pytest.approx([7 / 3, 80 / 3, 3.0])
    assert frame["published"].tolist() == [False, False, True]
    runs = pd.read_csv("c-runs.csv")
    assert runs[["seed", "score"]].to_numpy().tolist()[:3] == [[100, 1], [101, 2], [102, 4]]
    assert pd.read_csv("c-pairs.csv")["gain"].tolist() == pytest.approx([73 / 3])

    evil = "=cmd|'/C calc'!A0\n\\input|evil ^^5cinput"
    scores = results(evil, evil, [1, 2, 4]), results(evil, "+B", [5, 6, 9]), results("[9cm]", "+B", [1])
    for name in ("c.csv", "c.tex"):
        write_report(compared_scores_of(*scores), Path(name))
    for name in ("c.csv", "c-pairs.csv"):
        for cells in pd.read_csv(name).select_dtypes(exclude="number").to_numpy().tolist():
            assert not [cell for cell in cells if str(cell).startswith(("=", "+", "@"))], name
    obeyed = [one for one in Path("c.tex").read_text().splitlines() if not one.startswith("%")]
    assert not [one for one in obeyed if "\\input" in one or "^^" in one or one.startswith("[")]


def test_latex_has_short_names_and_its_captions_say_what_they_and_the_numbers_mean(tmp_path: Path) -> None:
    names = (
        "compatible:qwen3@https://host.example/v1, equations, refine cma:7900",
        "builtin (no language model), table policy, refine none",
    )
    parts = [results(task, name, [-1, 2, -4]) for task in ("t", "u") for name in names]
    (path,) = write_report(replace(compared_scores_of(*parts), notes=("all runs: iterations 3",)), tmp_path / "c.tex")
    obeyed = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("%"))
    assert obeyed.isascii()  # no package reads every sign
    assert "task & qwen3 & builtin \\\\" in obeyed
    assert "$-$1.000 $\\pm$ 3.000" in obeyed  # a minus sign, no hyphen
    first, *others = re.findall(r"\\caption\{(.*)\}$", obeyed, re.MULTILINE)
    assert "qwen3: compatible:qwen3@ADDRESS, equations, refine cma:7900; builtin: builtin (no language " in first
    assert "All runs: iterations 3. qwen3: " in first
    assert len(others) == 3
    assert all(words.endswith(r"Names as in Table~\ref{tab:scores}.") for words in others)
    assert "stratified by task" in obeyed
    assert "permutation tests, Holm-corrected" in others[-1]
    (path,) = write_report(compared_scores_of(results("t", "A", [1.0, 2.0])), tmp_path / "alone.tex")
    assert r"\end{table}" in path.read_text()  # it fits one column


def test_numbers_have_the_digits_that_they_deserve() -> None:
    assert list(map(number, (9359.94, 347.96, -0.0001, -63.022))) == ["9,360", "348.0", "0.000", "-63.02"]


@pytest.mark.parametrize(("tasks", "columns", "height"), [(15, 2, 10.2), (4, 1, 7.9), (1, 1, 2.5)])
def test_a_figure_fits_its_page_and_no_text_covers_another(tasks: int, columns: int, height: float) -> None:
    rng = np.random.default_rng(0)
    names = [f"mountaincar-continuous-{i}" for i in range(tasks)]
    parts = [
        results(name, who, rng.normal(10.0 ** (i % 5), 1, 5).tolist())
        for i, name in enumerate(names)
        for who in ("builtin (no language model)", "openai:gpt-5-mini, refine auto")
    ]
    published = (PublishedColumn("ProPS+", "a page", 10, dict.fromkeys(names, (5.0, None))),)
    figure = comparison_figure(compared_scores_of(*parts, published=published), columns=columns)
    wide, high = figure.get_size_inches()
    assert wide == {1: 3.5, 2: 7.16}[columns]
    assert high <= height
    assert len(figure.axes) == tasks + (2 if tasks > 1 else 0)
    figure.draw_without_rendering()
    texts: list[Text] = [text for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            start, end = sorted(axis.get_view_interval())
            texts += [tick.label1 for tick in axis.get_major_ticks() if start <= tick.get_loc() <= end]
    boxes = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
    shrunk = [box.shrunk(0.97, 0.9) for box in boxes]
    assert not [(one, other) for one, other in itertools.combinations(shrunk, 2) if one.overlaps(other)]


@pytest.mark.parametrize(("first", "said"), [(-1000.0, ["curves begin at -1,000"]), (100.0, [])])
def test_a_panel_that_leaves_out_where_curves_begin_says_so(first: float, said: list[str]) -> None:
    (run,) = results("t", "A", [100.0])
    curve = np.array([first, *[100.0] * 99])
    run = replace(run, spent={"episodes": np.arange(1.0, 101.0)}, curve=curve)
    assert [text.get_text() for text in comparison_figure(compared_scores_of([run])).axes[0].texts] == said


def test_a_contender_that_ended_early_goes_on_to_the_end_dashed() -> None:
    early, late = results("t", "A", [10, 10, 10]), results("t", "B", [20, 20, 20])
    late = [replace(run, spent={"episodes": run.spent["episodes"] * 2}) for run in late]
    axes = comparison_figure(compared_scores_of(early, late)).axes[0]
    ways = [np.array([line.get_xdata(), line.get_ydata()], float).round(6).tolist() for line in axes.get_lines()]
    assert [[100.0, 200.0], [10.0, 10.0]] in ways
    assert axes.get_ylabel() == "best mean return\nper episode"


def test_a_training_is_named_as_one_and_axes_have_short_names(tmp_path: Path) -> None:
    names = ("openai:m, refine none", "builtin (no language model), refine q")
    parts = [results(task, name, [1, 2, 4]) for task in ("t", "u") for name in names]
    training = replace(results("t", "PPO", [3], None)[0], meaning="mean of the last 100 training episodes")
    said = comparison_figure(compared_scores_of(*parts, [training])).legends[0].get_texts()
    assert "PPO (n = 1; mean of the last 100 training episodes)" in [text.get_text() for text in said]
    figure = comparison_figure(compared_scores_of(*parts))
    assert [label.get_text() for label in figure.axes[-1].get_yticklabels()] == ["m", "builtin"]
    save(figure, tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as image:
        assert image.width == pytest.approx(7.16 * 300, abs=1)  # as journals ask for


# --- real runs -------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"episodes": 4, "warmup_episodes": 4, "final_episodes": 5, "jobs": 1}


def test_runs_sweeps_and_other_programs_runs_in_one_comparison(line: Line, tmp_path: Path) -> None:
    settings = (*(f"{name}={value}" for name, value in SMALL.items()), "iterations=1")
    swept("quick", seeds=(100, 101, 102), settings=settings)
    longer = [policygen.run("nim", iterations=4, seed=seed, **SMALL).folder for seed in (100, 101, 102)]
    Path("ppo.csv").write_text('#{"t_start": 0, "env_id": "CartPole-v1"}\nr,l,t\n100,2,3\n300,2,4\n')
    sources = ["swept", *map(str, longer), "PPO=ppo.csv"]
    compared = read_scores(sources)
    assert compared.tasks == ["cartpole", "frozenlake", "nim"]
    assert compared.contenders == ["iterations 1", "iterations 4", "PPO"]
    assert compared.scores("cartpole", "PPO").tolist() == [200.0]
    assert any("training episodes" in note for note in compared.notes)
    done = line("compare", *sources, "-o", "c.md", "-o", "c.png", "--columns", 1)
    assert done.code == 0, done.err
    assert {"c.md", "c.png"} <= {path.name for path in tmp_path.iterdir()}
    said = done.out.splitlines()[-1]
    assert "Whether PPO or iterations 1 is better on cartpole is open" in said
    assert "a single run does not show how much runs vary" in said
    assert re.search(r"scores \S+ \[.*\] on nim; 3 seeds each\.$", line("compare", *longer).out.strip())


def test_by_a_setting_pools_the_others_and_says_so() -> None:
    variants = [{"iterations": iterations, "grid": grid} for iterations in (1, 2) for grid in ("free", "fixed")]
    folders = [str(policygen.run("frozenlake", seed=100, **variant, **SMALL).folder) for variant in variants]
    compared = read_scores(folders, by="grid", suite="props15")
    assert compared.contenders == ["grid free", "grid fixed"]
    assert any("runs that differ in iterations are averaged, as --by grid asks" in note for note in compared.notes)
    assert compared.published[0].scores.keys() == {"frozenlake"}
    assert read_scores(folders, by="task").contenders == ["all runs"]
    assert len(read_scores(folders).contenders) == 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere",), "nowhere is not a run or a sweep; name runs of other programs as LABEL:TASK=PATH"),
        (("X=log.csv",), "log.csv does not name its task: write X:TASK=log.csv"),
        (("X:nim=log.csv", "--by", "colour"), "--by colour: compare by one of llm, template"),
        (("X:nim=log.csv", "-o", "x.doc"), "cannot write x.doc: end the name in"),
        (("X:nim=log.csv", "--suite", "none"), "there is no suite `none`"),
        (("X:nim=log.csv", "-o", "x.png", "--x", "env_steps"), "no run counts env_steps"),
        (("X:nim=log.csv", "-o", "x.png", "--x", "usd"), "X on nim: its file has no column `usd`; choose another --x"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: tuple[str, ...], sentence: str, line: Line) -> None:
    Path("log.csv").write_text("episodes,return\n1,2\n")
    done = line("compare", *arguments)
    assert done.code in (1, 2)
    (said,) = sentences(done.err)
    assert sentence in said


def test_unfinished_runs_are_left_out_and_counted_and_scores_that_cannot_be_added_are_a_sentence() -> None:
    whole, other = (policygen.run("nim", iterations=1, seed=seed, **SMALL).folder for seed in (100, 101))
    # A provider that asks no language model makes no calls, in any file.
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["llm_calls"] == 0
    assert pd.read_csv(other / "learning_curve.csv")["calls"].tolist() == [0] * 2
    (other / "summary.json").unlink()
    compared = read_scores([str(whole), str(other)])
    assert len(compared.results) == 1
    assert "1 unfinished runs are left out" in compared.notes
    with pytest.raises(LogbookError, match="no run is finished"):
        read_scores([str(other)])
    summary["final"]["mean"] = 1e308
    (whole / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(LogbookError, match=r"has a score beyond 1e\+100, which cannot be compared"):
        read_scores([str(whole)])


def test_episodes_are_all_that_a_run_played_before_its_final_score_wherever_they_stand() -> None:
    faultless = "```\nup = 0 - offset - 4\ndown = offset - 4\nstay = 0\n```"
    with ChatServer([faultless, faultless]) as server:
        asked = {"llm": "compatible:m", "base_url": server.openai_url, "iterations": 2, "policy": "linear"}
        folder = policygen.run("pong", seed=5, **{**SMALL, "episodes": 20}, **asked).folder
    said = json.loads((folder / "summary.json").read_text())
    assert (said["stopped"], said["attempts"]) == ("the best known score, 3, was reached", 1)
    assert said["optimum_reached"] is True  # 5 of 5 episodes at the cap
    assert said["episodes"] == 4 + 20 + 300  # warm-up, the score, and the confirmation of the cap
    last = json.loads((folder / "attempts.jsonl").read_text().splitlines()[-1])
    assert [last[name] for name in ("episodes", "env_steps", "validated_episodes")] == [324, said["env_steps"], 300]
    assert pd.read_csv(folder / "learning_curve.csv")["episodes"].iloc[-1] == 324
    compared = read_scores([str(folder)])
    assert (rows_of(compared)[0].episodes, load_run(folder).ledger.episodes) == (324, 324)
    for x, label, end in (
        ("env_steps", "environment steps", said["env_steps"]),
        ("seconds", "wall-clock time [s]", last["wall_seconds"]),
    ):
        axes = comparison_figure(compared, x=x).axes[0]
        assert axes.get_xlabel() == label
        assert pytest.approx(end, abs=0.001) in [
            drawn.get_xdata()[-1] for drawn in axes.lines if len(drawn.get_xdata())
        ]
    with pytest.raises(LogbookError, match="compatible:m on pong: the price of a model is unknown; choose another --x"):
        comparison_figure(compared, x="usd")


def test_an_unfit_run_of_another_program_is_one_sentence_and_published_names_stay_apart(line: Line) -> None:
    folder = policygen.run("cartpole", iterations=1, seed=100, **SMALL).folder
    Path("ppo.csv").write_text("episodes,return\n1,2\n")
    for label, words in (
        ("PPO:nosuch", "no run has the task 'nosuch'; write PPO:TASK=ppo.csv, with TASK one of cartpole"),
        ("builtin (no language model):cartpole", "'builtin (no language model)'; write another label"),
    ):
        done = line("compare", folder, f"{label}=ppo.csv")
        (said,) = sentences(done.err)
        assert (done.code, words in said) == (2, True), said
    header = report_of(read_scores([str(folder), "PPO:cartpole=ppo.csv"], suite="props15")).sections[0].header
    assert {"PPO", "PPO (published)"} <= set(header)
    assert len(set(header)) == len(header)
