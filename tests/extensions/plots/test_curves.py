"""Learning curves: what is drawn where, what is written beside it, and what is averaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import FAILED, LAKE, a_run, ended, the_axes
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection

from policygen.episodes.score import Score
from policygen.errors import PolicygenError
from policygen.extensions.plots.curves import X_AXES, plot_runs, runs_figure
from policygen.extensions.plots.style import OKABE_ITO
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook
from policygen.tasks.task import Optimum


def legend_of(axes: Axes) -> list[str]:
    (legend,) = axes.figure.legends
    return [text.get_text() for text in legend.get_texts()]


def drawn(*folders: Path, x: str = "attempt") -> Axes:
    """The axes with the curves of these runs of one task."""
    return the_axes(runs_figure(folders, x=x))


def line_called(axes: Axes, start: str) -> tuple[list[float], list[float], Any]:
    """The positions of the one line whose label starts like this, and the line."""
    (line,) = [line for line in axes.get_lines() if str(line.get_label()).startswith(start)]
    return list(np.asarray(line.get_xdata(), float)), list(np.asarray(line.get_ydata(), float)), line


# --- one run ---------------------------------------------------------------------------------------------------------


def test_one_run_shows_its_attempts_and_its_best(tmp_path: Path) -> None:
    axes = drawn(a_run(tmp_path, [0.2, 0.1, FAILED, 0.5], seed=3))
    assert axes.get_title() == "frozenlake: builtin (no language model), seed 3, unfinished"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("attempt", "mean return per episode")
    assert line_called(axes, "attempt that became the best")[:2] == ([1, 4], [0.2, 0.5])
    (points,) = [line for line in axes.get_lines() if line.get_label() == "attempt"]
    scored = [(x, y) for x, y in np.asarray(points.get_xydata()) if not np.isnan(y)]
    assert scored == [(2, 0.1)]
    x, y, line = line_called(axes, "best so far")
    assert (x, y) == ([0, 1, 2, 3, 4], [0.02, 0.2, 0.2, 0.2, 0.5])
    assert line.get_drawstyle() == "steps-post"


def test_what_tuning_gained_is_drawn_from_the_score_as_proposed(tmp_path: Path) -> None:
    run = a_run(tmp_path, [0.4, FAILED, 0.3, 0.6], proposed={1: 0.1, 4: 0.5})
    axes = drawn(run)
    assert line_called(axes, "before tuning")[:2] == ([1, 4], [0.1, 0.5])
    (gains,) = [c for c in axes.collections if isinstance(c, LineCollection)]
    assert [segment.tolist() for segment in gains.get_segments()] == [[[1, 0.1], [1, 0.4]], [[4, 0.5], [4, 0.6]]]
    labels = drawn(a_run(tmp_path / "plain", [0.4])).get_legend_handles_labels()[1]
    assert not [label for label in labels if label.startswith(("before tuning", "failed"))]


def test_lines_to_compare_with_are_those_that_task_and_warm_up_give(tmp_path: Path) -> None:
    axes = drawn(a_run(tmp_path, [0.1], random=0.0125))
    heights = {label: set(line_called(axes, label)[1]) for label in ("random actions", "solved", "known optimum")}
    assert heights == {"random actions": {0.0125}, "solved": {0.7}, "known optimum": {0.74016}}
    assert line_called(axes, "random actions")[2].get_linestyle() == ":"
    assert {"random actions: 0.0125", "solved: 0.7", "known optimum: 0.7402"} <= set(legend_of(axes))
    task = replace(LAKE, solved=None, optimum=None)
    axes = drawn(a_run(tmp_path, [0.1, 0.3], task=task, random=None))
    assert legend_of(axes) == ["attempt that became the best", "best so far"]
    assert legend_of(drawn(a_run(tmp_path, [], random=None, task=task))) == []


def test_the_final_score_stands_at_the_right_edge_with_its_interval(tmp_path: Path) -> None:
    final = Score(0.4, 0.5, (0.3, 0.5), False, "vector", (0.4,) * 100)
    axes = drawn(a_run(tmp_path, [0.2] * 11, final=final))
    (bars,) = axes.containers
    marker, _, (arms,) = bars.lines
    assert marker.get_xdata()[0] > 11
    assert marker.get_ydata()[0] == 0.4
    assert arms.get_segments()[0][:, 1].tolist() == pytest.approx([0.3, 0.5])
    assert "final score: 0.4 [0.3, 0.5]\nmean return over 100 fresh episodes, 95% interval" in legend_of(axes)
    assert "unfinished" not in axes.get_title()
    assert max(axes.get_xticks()) == 10  # the final score is no third attempt
    exact = Score(0.74, 0.4, (0.74, 0.74), True, "exact")
    words = "final score: 0.74\n(exact) mean return, from the environment's transition table"
    assert words in legend_of(drawn(a_run(tmp_path, [0.74], final=exact)))


POSITIONS = {
    "attempt": [0, 1, 2],
    "calls": [0, 2, 4],
    "episodes": [20, 40, 60],
    "env_steps": [0, 1000, 2000],
    "tokens": [0, 110, 220],
    "seconds": [0, 1.5, 3],
    "usd": [0, 0.25, 0.5],
}


def test_what_scores_are_drawn_over(tmp_path: Path) -> None:
    run = a_run(tmp_path, [0.1, 0.2])
    for x, positions in POSITIONS.items():
        axes = drawn(run, x=x)
        assert line_called(axes, "best so far")[0] == positions
        assert axes.get_xlabel() == X_AXES[x]
    assert POSITIONS.keys() == X_AXES.keys()


# --- many runs -------------------------------------------------------------------------------------------------------


def band_of(axes: Axes, index: int = 0) -> tuple[float, float]:
    """The lowest and highest point of a band."""
    heights = axes.collections[index].get_paths()[0].vertices[:, 1]
    return float(heights.min()), float(heights.max())


def means_of(axes: Axes) -> list[Any]:
    return [line for line in axes.get_lines() if line.get_drawstyle() == "steps-post" and line.get_linewidth() > 1.2]


def test_two_runs_have_their_mean_and_range(tmp_path: Path) -> None:
    axes = drawn(ended(tmp_path, [0.2, 0.4], seed=1), ended(tmp_path, [0.6, 0.6], seed=2))
    assert axes.get_title() == "frozenlake"
    assert legend_of(axes) == [
        "builtin (no language model) (2 runs)",
        "marks at the right: final scores",
        "random actions",
        "solved",
        "known optimum",
    ]
    (line,) = means_of(axes)
    assert line.get_xydata().tolist() == pytest.approx(np.array([[0, 0.02], [1, 0.4], [2, 0.5]]))
    # A resample of two runs is one of them twice with probability 1/4 each: the outer 2.5% are the runs themselves.
    assert band_of(axes) == pytest.approx((0.02, 0.6))
    (bars,) = axes.containers
    marker, _, (arms,) = bars.lines
    assert marker.get_xdata()[0] > 2
    assert marker.get_ydata()[0] == 0.5
    assert arms.get_segments()[0][:, 1].tolist() == pytest.approx([0.4, 0.6])
    assert max(axes.get_xticks()) == 2  # the final score is no third attempt


def test_groups_have_their_own_colour_line_and_mark(tmp_path: Path) -> None:
    folders = [
        *(ended(tmp_path, [0.1], seed=i) for i in range(2)),
        *(ended(tmp_path, [0.2], seed=i, llm="openai:gpt-5-mini") for i in range(3)),
        ended(tmp_path, [0.3], llm="openai:gpt-5-mini", policy="linear"),
        ended(tmp_path, [0.4], llm="openai:gpt-5-mini", template="terse"),
    ]
    axes = drawn(*folders)
    assert legend_of(axes)[:4] == [
        "builtin (no language model), tables (2 runs)",
        "openai:gpt-5-mini, tables (3 runs)",
        "openai:gpt-5-mini, equations (1 run)",
        "openai:gpt-5-mini, tables, template=terse (1 run)",
    ]
    means = means_of(axes)
    for looks in ("get_color", "get_linestyle"):
        assert len({getattr(line, looks)() for line in means}) == 4
    assert len({bars.lines[0].get_marker() for bars in axes.containers}) == 4
    bands = [part for part in axes.collections if not isinstance(part, LineCollection)]
    assert len(bands) == 2  # a single run has no band


def test_a_task_has_its_own_panel_and_a_group_its_colour_in_all(tmp_path: Path) -> None:
    other = replace(LAKE, name="pond", solved=0.3, optimum=Optimum(0.5, "by hand"))
    folders = [
        ended(tmp_path, [0.1], seed=1),
        ended(tmp_path, [0.2], seed=2, llm="manual"),
        ended(tmp_path, [0.3], task=other, llm="manual"),
    ]
    lake, pond = runs_figure(folders).axes
    assert (lake.get_title(), pond.get_title()) == ("frozenlake", "pond")
    assert {0.3, 0.5} <= {line.get_ydata()[0] for line in pond.get_lines() if len(line.get_ydata())}
    assert means_of(pond)[0].get_color() == means_of(lake)[1].get_color() == OKABE_ITO[1]


def recorded(run: Path, **changes: Any) -> Path:
    """Change these fields of the requests of all attempts in the log of a run; return the run."""
    log = run / "attempts.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    for record in records:
        record["requests"] |= changes
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


NO_MODEL = {"tokens_in": 0, "tokens_out": 0, "calls": 0}


def test_labels_are_in_the_picture_and_keep_off_each_other(tmp_path: Path) -> None:
    final = Score(0.5, 0.1, (0.4, 0.6), False, "vector", (0.5,) * 100)
    long = {"llm": "openai:gpt-5-mini", "refine": "cma:4000", "shape": True}
    folders = [
        a_run(tmp_path, [0.1, 0.2], seed=i, task=replace(LAKE, name=name), template=f"a-long-name-{i}", **long)
        for name in ("frozenlake", "pond", "inverted-double-pendulum")
        for i in range(4)
    ]
    figure = runs_figure([*folders, a_run(tmp_path, [0.1], seed=2, task=LAKE, final=final)])
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    parts = [*figure.legends, *(part for axes in figure.axes for part in (axes.yaxis.label, axes.title))]
    boxes = [part.get_window_extent(renderer) for part in parts]
    width, height = figure.bbox.size
    for i, box in enumerate(boxes):
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= 0, i
        assert not [j for j, other in enumerate(boxes[:i]) if box.overlaps(other)], i
    assert all(axes.bbox.height > 100 for axes in figure.axes)


def test_unfinished_runs_are_dotted_lines_and_enter_no_mean_and_runs_without_a_policy_do(tmp_path: Path) -> None:
    folders = [ended(tmp_path, scores, seed=i) for i, scores in enumerate(([0.4], [FAILED]))]
    axes = drawn(*folders, a_run(tmp_path, [0.5], seed=3), a_run(tmp_path, [0.1], llm="manual"))
    assert legend_of(axes)[:2] == [
        "builtin (no language model) (2 runs, 1 unfinished (dotted))",
        "manual (0 runs, 1 unfinished (dotted))",
    ]
    (mean,) = means_of(axes)
    assert list(mean.get_ydata()) == pytest.approx([0.02, 0.21])
    dotted = [line for line in axes.get_lines() if line.get_linestyle() == ":" and line.get_drawstyle() == "steps-post"]
    assert [list(line.get_ydata()) for line in dotted] == [[0.02, 0.5], [0.02, 0.1]]
    assert dotted[0].get_color() == mean.get_color()


# --- files -----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_plotted_is_a_sentence(tmp_path: Path) -> None:
    begun = Logbook.create(tmp_path, LAKE, RunConfig(task="frozenlake")).folder
    run, unpriced = recorded(a_run(tmp_path, [0.1]), **NO_MODEL), recorded(a_run(tmp_path, [0.1]), usd=None)
    for folders, x, words in (
        ([run], "dollars", r"`dollars`.*attempt, calls, episodes, env_steps, tokens, seconds, usd"),
        ([run], "tokens", "spent no tokens; plot over another --x"),
        ([], "attempt", "no run folders"),
        ([tmp_path / "nowhere"], "attempt", "nowhere is not a run folder"),
        ([begun], "attempt", f"{begun.name} has no attempts yet"),
        ([unpriced], "usd", f"{unpriced.name} has requests of unknown price; plot over another --x"),
    ):
        with pytest.raises(PolicygenError, match=words):
            plot_runs(folders, tmp_path / "a.png", x=x)
    assert not (tmp_path / "a.png").exists()
