"""The pictures: what is drawn where, what is written beside it, and what cannot be drawn."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure

from policygen.buffer import ReplayBuffer
from policygen.config import RunConfig
from policygen.discovery import load_task
from policygen.drafts import Problem
from policygen.errors import LogbookError, UsageError
from policygen.evaluate import Score
from policygen.grid import Dimension, Grid, integers
from policygen.language import parse
from policygen.logbook import Logbook
from policygen.plots import OKABE_ITO, X_AXES, average, plot_policy, plot_runs, policy_figure, runs_figure
from policygen.policies import LinearPolicy, Policy, TablePolicy
from policygen.search import Attempt
from policygen.spaces import Actuator, Observation
from policygen.tasks import Optimum, Task

LAKE = load_task("frozenlake")
FAILED = None


def a_score(mean: float) -> Score:
    return Score(mean, 0.1, (mean - 0.1, mean + 0.1), False, "vector", (mean, mean), (1, 2))


def a_run(
    out: Path,
    scores: Sequence[float | None],
    *,
    random: float | None = 0.02,
    task: Task = LAKE,
    final: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """A run folder whose attempts have these scores (`FAILED` for a reply without a policy); finished if `final`."""
    logbook = Logbook.create(out, task, RunConfig(task=task.name, **settings))
    logbook.record_attempt(Attempt(0, None, None if random is None else a_score(random), episodes=20), ReplayBuffer())
    best: float | None = None
    for number, score in enumerate(scores, start=1):
        accepted = score is not None and (best is None or score > best)
        best = score if accepted else best
        attempt = Attempt(
            number,
            a_policy(task) if score is not None else None,
            a_score(score) if score is not None else None,
            accepted=accepted,
            problems=() if score is not None else (Problem(1, "nonsense", "a table"),),
            calls=2,
            tokens_in=100,
            tokens_out=10,
            episodes=20 + 20 * number,
            env_steps=1000 * number,
            best_mean=best,
            wall_seconds=1.5 * number,
        )
        logbook.record_attempt(attempt, ReplayBuffer())
    if final is not None:
        logbook.write_summary({"final": final})
    return logbook.folder


def a_policy(task: Task) -> Policy:
    assert task.grid is not None
    return TablePolicy.from_actions(task, np.zeros(task.grid.size))


def the_axes(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes


def legend_of(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def line_called(axes: Axes, start: str) -> tuple[list[float], list[float], Any]:
    """The positions of the one line whose label starts like this, and the line."""
    (line,) = [line for line in axes.get_lines() if str(line.get_label()).startswith(start)]
    return list(np.asarray(line.get_xdata(), float)), list(np.asarray(line.get_ydata(), float)), line


# --- one run ---------------------------------------------------------------------------------------------------------


def test_one_run_shows_its_attempts_and_its_best(tmp_path: Path) -> None:
    axes = the_axes(runs_figure([a_run(tmp_path, [0.2, 0.1, FAILED, 0.5], seed=3)]))
    assert axes.get_title() == "frozenlake: builtin (no language model), table policy, seed 3, unfinished"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("attempt", "mean return per episode")
    assert line_called(axes, "attempt that became the best")[:2] == ([1, 4], [0.2, 0.5])
    (points,) = [line for line in axes.get_lines() if line.get_label() == "attempt"]
    scored = [(x, y) for x, y in points.get_xydata() if not np.isnan(y)]
    assert scored == [(2, 0.1)]
    x, y, line = line_called(axes, "best so far")
    assert (x, y) == ([0, 1, 2, 3, 4], [0.02, 0.2, 0.2, 0.2, 0.5])
    assert line.get_drawstyle() == "steps-post"


def test_failed_attempts_are_marked_at_the_bottom(tmp_path: Path) -> None:
    axes = the_axes(runs_figure([a_run(tmp_path, [FAILED, 0.0, FAILED])]))
    x, y, line = line_called(axes, "failed attempt (2)")
    assert x == [1, 3]
    heights = line.get_transform().transform(np.column_stack([x, y]))[:, 1]
    lowest_score = axes.transData.transform((0, 0.0))[1]
    assert (heights < lowest_score - line.get_markersize()).all()  # the marks do not touch
    assert (heights > axes.transAxes.transform((0, 0))[1]).all()


def test_a_run_without_failures_does_not_mention_them(tmp_path: Path) -> None:
    assert not any("failed" in text for text in legend_of(the_axes(runs_figure([a_run(tmp_path, [0.1])]))))


def test_lines_to_compare_with(tmp_path: Path) -> None:
    axes = the_axes(runs_figure([a_run(tmp_path, [0.1], random=0.0125)]))
    heights = {label: set(line_called(axes, label)[1]) for label in ("random actions", "solved", "known optimum")}
    assert heights == {"random actions": {0.0125}, "solved": {0.7}, "known optimum": {0.74016}}
    assert line_called(axes, "random actions")[2].get_linestyle() == ":"
    assert {"random actions: 0.0125", "solved: 0.7", "known optimum: 0.7402"} <= set(legend_of(axes))


def test_a_task_without_goal_or_warm_up_has_no_such_lines(tmp_path: Path) -> None:
    task = replace(LAKE, solved=None, optimum=None)
    axes = the_axes(runs_figure([a_run(tmp_path, [0.1, 0.3], task=task, random=None)]))
    assert legend_of(axes) == ["attempt that became the best", "best so far"]


def test_the_final_score_stands_at_the_right_edge_with_its_interval(tmp_path: Path) -> None:
    final = {"mean": 0.4, "ci95": [0.3, 0.5], "episodes": 100, "exact": False}
    axes = the_axes(runs_figure([a_run(tmp_path, [0.2] * 11, final=final)]))
    (bars,) = axes.containers
    marker, _, (arms,) = bars.lines
    assert marker.get_xdata()[0] > 11
    assert marker.get_ydata()[0] == 0.4
    assert arms.get_segments()[0][:, 1].tolist() == pytest.approx([0.3, 0.5])
    assert "final score: 0.4 [0.3, 0.5]\n(95% interval, 100 fresh episodes)" in legend_of(axes)
    assert "unfinished" not in axes.get_title()
    assert max(axes.get_xticks()) == 10  # the final score is no third attempt


def test_an_exact_final_score_says_so(tmp_path: Path) -> None:
    final = {"mean": 0.74, "ci95": [0.74, 0.74], "episodes": 0, "exact": True}
    axes = the_axes(runs_figure([a_run(tmp_path, [0.74], final=final)]))
    assert "final score: 0.74 (exact)" in legend_of(axes)


def test_a_run_that_found_nothing_is_drawn(tmp_path: Path) -> None:
    folder = a_run(tmp_path, [FAILED])
    Logbook(folder).write_summary({"final": None})
    labels = legend_of(the_axes(runs_figure([folder])))
    assert "failed attempt (1)" in labels
    assert not any(label.startswith(("final", "best", "attempt")) for label in labels)


@pytest.mark.parametrize(
    ("x", "positions"),
    [
        ("attempt", [0, 1, 2]),
        ("calls", [0, 2, 4]),
        ("episodes", [20, 40, 60]),
        ("env_steps", [0, 1000, 2000]),
        ("tokens", [0, 110, 220]),
        ("wall_seconds", [0, 1.5, 3]),
    ],
)
def test_what_scores_are_drawn_over(tmp_path: Path, x: str, positions: list[float]) -> None:
    axes = the_axes(runs_figure([a_run(tmp_path, [0.1, 0.2])], x=x))
    assert line_called(axes, "best so far")[0] == positions
    assert axes.get_xlabel() == X_AXES[x]


def test_every_x_axis_is_tested() -> None:
    (mark,) = test_what_scores_are_drawn_over.pytestmark  # type: ignore[attr-defined]
    assert [case[0] for case in mark.args[1]] == list(X_AXES)


# --- many runs -------------------------------------------------------------------------------------------------------


def band_of(axes: Axes, index: int = 0) -> tuple[float, float]:
    """The lowest and highest point of a band."""
    heights = axes.collections[index].get_paths()[0].vertices[:, 1]
    return float(heights.min()), float(heights.max())


def test_two_runs_have_their_mean_and_range(tmp_path: Path) -> None:
    folders = [a_run(tmp_path, [0.2, 0.4], seed=1), a_run(tmp_path, [0.6, 0.6], seed=2)]
    axes = the_axes(runs_figure(folders))
    assert axes.get_title() == "frozenlake: builtin (no language model), table policy"
    x, y, line = line_called(axes, "mean of n = 2 runs")
    assert (x, y) == ([0, 1, 2], pytest.approx([0.02, 0.4, 0.5]))
    assert line.get_drawstyle() == "steps-post"
    # A resample of two runs is one of them twice with probability 1/4 each: the outer 2.5% are the runs themselves.
    assert band_of(axes) == pytest.approx((0.02, 0.6))
    singles = [list(one.get_ydata()) for one in axes.get_lines() if one.get_linewidth() < 1]
    assert singles == [[0.02, 0.2, 0.4], [0.02, 0.6, 0.6]]


def test_from_three_runs_on_it_is_the_interquartile_mean(tmp_path: Path) -> None:
    folders = [a_run(tmp_path, [best], seed=i) for i, best in enumerate([0.1, 0.2, 0.3, 0.9])]
    axes = the_axes(runs_figure(folders))
    assert line_called(axes, "interquartile mean of n = 4 runs, 95% band")[1] == pytest.approx([0.02, 0.25])


def test_groups_have_their_own_colour_line_and_mark(tmp_path: Path) -> None:
    folders = [
        *(a_run(tmp_path, [0.1], seed=i) for i in range(2)),
        *(a_run(tmp_path, [0.2], seed=i, llm="openai:gpt-5-mini") for i in range(3)),
        a_run(tmp_path, [0.3], llm="openai:gpt-5-mini", policy="linear"),
        a_run(tmp_path, [0.4], llm="openai:gpt-5-mini", template="terse"),
    ]
    axes = the_axes(runs_figure(folders))
    assert axes.get_title() == "frozenlake: best so far of 7 runs"
    assert legend_of(axes)[3:] == [
        "builtin (no language model), table policy: mean of n = 2 runs, 95% band",
        "openai:gpt-5-mini, table policy: interquartile mean of n = 3 runs, 95% band",
        "openai:gpt-5-mini, linear policy: n = 1 run",
        "openai:gpt-5-mini, table policy, template terse: n = 1 run",
    ]
    means = [line for line in axes.get_lines() if line.get_linewidth() > 2]
    for looks in ("get_color", "get_linestyle", "get_marker"):
        assert len({getattr(line, looks)() for line in means}) == 4
    assert len(axes.collections) == 2  # a single run has no band


def test_a_task_has_its_own_panel_and_a_group_its_colour_in_all(tmp_path: Path) -> None:
    other = replace(LAKE, name="pond", solved=0.3, optimum=Optimum(0.5, "by hand"))
    folders = [
        a_run(tmp_path, [0.1], seed=1),
        a_run(tmp_path, [0.2], seed=2, llm="manual"),
        a_run(tmp_path, [0.3], task=other, llm="manual"),
    ]
    lake, pond = runs_figure(folders).axes
    assert lake.get_title().startswith("frozenlake: ")
    assert pond.get_title() == "pond: manual, table policy"
    assert "known optimum: 0.5" in legend_of(pond)
    assert line_called(pond, "n = 1 run")[2].get_color() == line_called(lake, "manual")[2].get_color() == OKABE_ITO[1]


def test_the_random_level_of_many_runs_is_their_mean(tmp_path: Path) -> None:
    folders = [a_run(tmp_path, [0.1], seed=i, random=level) for i, level in enumerate((0.02, 0.04))]
    assert set(line_called(the_axes(runs_figure(folders)), "random actions: 0.03")[1]) == {0.03}


def test_a_folder_given_twice_counts_once(tmp_path: Path) -> None:
    one, two = a_run(tmp_path, [0.1], seed=1), a_run(tmp_path, [0.2], seed=2)
    again = one.parent / "." / ".." / one.parent.name / one.name
    assert "mean of n = 2 runs, 95% band" in legend_of(the_axes(runs_figure([one, two, again])))


def test_a_group_that_spent_nothing_of_x_is_still_seen(tmp_path: Path) -> None:
    spender = a_run(tmp_path, [0.1, 0.2], llm="openai:gpt-5-mini")
    saver = a_run(tmp_path, [0.3, 0.4])
    log = saver / "attempts.jsonl"
    records = [json.loads(line) | {"tokens_in": 0, "tokens_out": 0} for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    axes = the_axes(runs_figure([spender, saver], x="tokens"))
    x, y, line = line_called(axes, "builtin")
    assert (x, y) == ([0], [0.4])
    assert line.get_markevery() == [0]
    assert line.get_marker() not in ("", "None", None)


# --- the average -----------------------------------------------------------------------------------------------------


def arrays(*rows: Sequence[float]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    return [np.array(row, float) for row in rows]


def test_the_band_is_that_of_all_resamples() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 10.0]
    band = average(arrays(*[[0]] * 5), arrays(*[[value] for value in values]))
    # A quarter of five runs is 1.25 of them: none of the outermost, three quarters of their neighbours.
    weights = [0, 0.3, 0.4, 0.3, 0]
    assert band.centre == pytest.approx([0.3 * 1 + 0.4 * 2 + 0.3 * 3])
    resamples = [np.dot(sorted(drawn), weights) for drawn in itertools.product(values, repeat=5)]
    low, high = np.percentile(resamples, [2.5, 97.5])
    assert 0 < low < 2 < high < 10
    assert band.low[0] == pytest.approx(low, abs=0.3)
    assert band.high[0] == pytest.approx(high, abs=0.7)


def test_of_three_runs_the_outer_ones_count_a_quarter() -> None:
    # 0.75 of three runs go at either end: a quarter of the outer ones stays beside the middle one.
    assert average(arrays(*[[0]] * 3), arrays([0], [4], [100])).centre == pytest.approx([(4 + 0.25 * 100) / 1.5])


def test_the_average_takes_every_step_of_every_run() -> None:
    band = average(arrays([0, 10, 30], [5, 20]), arrays([0, 1, 2], [4, 6]))
    assert band.x.tolist() == [0, 5, 10, 20, 30]
    # The second run keeps its last level after its end, and its first one before its start.
    assert band.centre.tolist() == [2, 2, 2.5, 3.5, 4]
    assert band.low.tolist() == [0, 0, 1, 1, 2]
    assert band.high.tolist() == [4, 4, 4, 6, 6]


def test_of_several_levels_at_one_place_the_last_counts() -> None:
    assert average(arrays([0, 0, 0]), arrays([1, 2, 3])).centre.tolist() == [3]


def test_the_average_begins_where_every_run_has_a_level() -> None:
    band = average(arrays([0, 1, 2], [0, 1, 2]), arrays([np.nan, 1, 1], [np.nan, np.nan, 3]))
    assert band.x.tolist() == [2]
    assert band.centre.tolist() == [2]


def test_runs_that_agree_have_a_band_without_width() -> None:
    band = average(arrays(*[[0, 1]] * 4), arrays(*[[1, 2]] * 4))
    assert band.low.tolist() == band.centre.tolist() == band.high.tolist() == [1, 2]


def test_the_band_depends_on_the_seed_alone() -> None:
    rows = np.random.default_rng(0).random((6, 3))
    xs, levels = arrays(*[[0, 1, 2]] * 6), arrays(*rows)
    same, other = average(xs, levels, seed=1), average(xs, levels, seed=2)
    assert average(xs, levels, seed=1).low.tolist() == same.low.tolist()
    assert other.low.tolist() != same.low.tolist()
    assert other.centre.tolist() == same.centre.tolist()


def test_long_runs_are_thinned_and_keep_their_ends() -> None:
    xs = np.arange(5_000.0)
    band = average([xs, xs], [xs, xs])
    assert len(band.x) == 200
    assert (band.x[0], band.x[-1]) == (0, 4_999)
    assert (band.centre == band.x).all()


# --- files and mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_formats(tmp_path: Path, suffix: str, magic: bytes) -> None:
    folder = a_run(tmp_path, [0.1])
    path = tmp_path / f"curve.{suffix}"
    assert plot_runs([folder], path) == path
    first = path.read_bytes()
    assert first.startswith(magic)
    plot_runs([folder], path)
    assert path.read_bytes() == first
    assert plot_policy(a_policy(LAKE), tmp_path / f"policy.{suffix}").read_bytes().startswith(magic)
    assert not list(tmp_path.glob(".*"))


def test_an_unknown_suffix_names_the_known_ones(tmp_path: Path) -> None:
    for draw in (
        lambda path: plot_runs([a_run(tmp_path, [0.1])], path),
        lambda path: plot_policy(a_policy(LAKE), path),
    ):
        for name in ("curve.bmp", "curve"):
            with pytest.raises(UsageError, match=r"cannot draw into curve.*\.png, \.svg, \.pdf"):
                draw(tmp_path / name)
            assert not (tmp_path / name).exists()


def test_an_unknown_x_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"`dollars`.*attempt, calls, episodes, env_steps, tokens, wall_seconds"):
        plot_runs([a_run(tmp_path, [0.1])], tmp_path / "a.png", x="dollars")


def test_nothing_to_plot(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run folders"):
        plot_runs([], tmp_path / "a.png")
    with pytest.raises(LogbookError, match="nowhere is not a run folder"):
        plot_runs([tmp_path / "nowhere"], tmp_path / "a.png")
    folder = Logbook.create(tmp_path, LAKE, RunConfig(task="frozenlake")).folder
    with pytest.raises(LogbookError, match=f"{folder.name} has no attempts yet"):
        plot_runs([folder], tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_runs_that_spent_nothing_of_x_say_what_they_spent(tmp_path: Path) -> None:
    folder = a_run(tmp_path, [0.1])
    log = folder / "attempts.jsonl"
    records = [
        json.loads(line) | {"tokens_in": 0, "tokens_out": 0, "calls": 0} for line in log.read_text().splitlines()
    ]
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(
        UsageError, match="spent no tokens; plot over one of attempt, episodes, env_steps, wall_seconds"
    ):
        plot_runs([folder], tmp_path / "a.png", x="tokens")


def test_a_picture_that_cannot_be_written_is_an_error_and_keeps_the_old_one(tmp_path: Path) -> None:
    with pytest.raises(LogbookError, match="cannot write"):
        plot_policy(a_policy(LAKE), tmp_path / "missing" / "policy.png")


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_costs_no_heavy_library() -> None:
    code = "import sys, policygen.plots; print([m for m in ('matplotlib', 'pandas', 'scipy') if m in sys.modules])"
    assert run_python(code) == "[]"


def test_drawing_leaves_no_global_state(tmp_path: Path) -> None:
    folder = a_run(tmp_path, [0.1])
    code = f"""
import sys
from pathlib import Path
import matplotlib
matplotlib.rcParams["axes.facecolor"] = "black"
from policygen.plots import plot_runs, runs_figure
plot_runs([Path({str(folder)!r})], Path({str(tmp_path / "a.png")!r}))
drawn = runs_figure([Path({str(folder)!r})]).axes[0].get_facecolor()
print("matplotlib.pyplot" in sys.modules, matplotlib.rcParams["axes.facecolor"], drawn)
"""
    assert run_python(code) == "False black (1.0, 1.0, 1.0, 1.0)"


# --- policies: tables ------------------------------------------------------------------------------------------------


def a_task(*actuators: Actuator, names: str = "abcdef") -> Task:
    """A task that is never played."""
    kind = "box" if not actuators[0].is_choice else "discrete" if len(actuators) == 1 else "multidiscrete"
    observations = tuple(Observation(name, unit="m" if name == "a" else "") for name in names)
    return Task("toy", "Toy-v0", observations, actuators, kind, 10)


MOVES = Actuator("move", ("left", "down", "right", "up"))
TORQUE = Actuator("torque", low=-2.0, high=2.0)
HALVES = (-0.5, 0.5)


def table(task: Task, actions: object, *dimensions: Dimension) -> TablePolicy:
    return TablePolicy.from_actions(task, np.asarray(actions), Grid(dimensions))


def parts(policy: Policy) -> tuple[Figure, list[Axes]]:
    """The figure, and its visible axes that hold cells (not colour bars)."""
    figure = policy_figure(policy)
    figure.draw_without_rendering()
    return figure, [axes for axes in figure.axes if axes.get_visible() and axes.get_label() != "<colorbar>"]


def cell_text(axes: Axes, row: int, column: int) -> str:
    (text,) = [text for text in axes.texts if text.get_position() == (column + 0.5, row + 0.5)]
    return text.get_text()


def cell_color(axes: Axes, row: int, column: int) -> str:
    mesh = axes.collections[0]
    columns = mesh.get_array().shape[1]
    return to_hex(mesh.get_facecolors()[row * columns + column])


def tick_texts(axes: Axes) -> tuple[list[str], list[str]]:
    return [t.get_text() for t in axes.get_xticklabels()], [t.get_text() for t in axes.get_yticklabels()]


def everything_written(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text)]


def test_two_counted_dimensions_are_a_map_read_from_the_top() -> None:
    actions = [0, 1, 2, 3, 0, 0]
    figure, (axes,) = parts(table(a_task(MOVES), actions, integers("b", 2), integers("c", 3)))
    symbols = dict(zip(range(4), "←↓→↑", strict=True))
    for cell, action in enumerate(actions):
        assert cell_text(axes, *divmod(cell, 3)) == symbols[action]
        assert cell_color(axes, *divmod(cell, 3)) == OKABE_ITO[action].lower()
    assert axes.yaxis_inverted()
    assert tick_texts(axes) == (["0", "1", "2"], ["0", "1"])
    assert figure.get_suptitle() == "toy: table policy over b, c"
    (legend,) = figure.subfigs[0].legends
    assert legend.get_title().get_text() == "move"
    assert [text.get_text() for text in legend.get_texts()] == ["← left", "↓ down", "→ right", "↑ up"]
    assert [to_hex(patch.get_facecolor()) for patch in legend.get_patches()] == [c.lower() for c in OKABE_ITO[:4]]


def test_real_quantities_grow_upwards_with_their_edges_between_the_cells() -> None:
    figure, (axes,) = parts(table(a_task(MOVES), np.zeros(9), Dimension("a", HALVES), Dimension("b", (1.0, 2.5))))
    assert not axes.yaxis_inverted()
    assert tick_texts(axes) == (["1", "2.5"], ["-0.5", "0.5"])
    assert axes.get_xticks().tolist() == axes.get_yticks().tolist() == [1, 2]
    assert {"a [m]", "b"} <= set(everything_written(figure))


def test_texts_can_be_read_on_their_colour() -> None:
    _, (axes,) = parts(table(a_task(MOVES), [0, 1, 2, 3], integers("b", 2), integers("c", 2)))
    for text in axes.texts[-4:]:
        column, row = (int(at - 0.5) for at in text.get_position())
        luminances = []
        for color in (text.get_color(), cell_color(axes, row, column)):
            linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgba(color)[:3]]
            luminances.append(float(np.dot(linear, [0.2126, 0.7152, 0.0722])))
        assert (max(luminances) + 0.05) / (min(luminances) + 0.05) > 3  # WCAG 2.2, large text


def test_three_dimensions_are_facets() -> None:
    actions = np.zeros((3, 2, 2))
    actions[2, 0, 1] = 3
    _, facets = parts(table(a_task(MOVES), actions, Dimension("a", HALVES), integers("b", 2), integers("c", 2)))
    assert [axes.get_title().replace("\n", " ") for axes in facets] == [
        "a [m]: below -0.5",
        "a [m]: -0.5 to 0.5",
        "a [m]: 0.5 and above",
    ]
    assert [cell_text(axes, 0, 1) for axes in facets] == ["←", "←", "↑"]


def test_many_facets_are_wrapped_and_the_rest_is_hidden() -> None:
    figure, facets = parts(table(a_task(MOVES), np.zeros(20), integers("a", 5), integers("b", 2), integers("c", 2)))
    assert len(facets) == 5
    assert len(figure.axes) == 6
    assert [axes.get_subplotspec().rowspan.start for axes in facets] == [0, 0, 0, 1, 1]


def test_four_dimensions_are_rows_and_columns_of_facets() -> None:
    actions = np.zeros((3, 2, 2, 2))
    actions[2, 1, 0, 1] = 3
    dimensions = [Dimension("a", HALVES), integers("b", 2), integers("c", 2), integers("d", 2)]
    _, facets = parts(table(a_task(MOVES), actions, *dimensions))
    assert [axes.get_title() for axes in facets] == ["b: 0", "b: 1", "", "", "", ""]
    beside = [next(t.get_text() for t in axes.texts if t.get_rotation() == 270).replace("\n", " ") for axes in facets]
    # The first dimension grows upwards like the quantities inside a facet.
    assert beside == ["", "a [m]: 0.5 and above", "", "a [m]: -0.5 to 0.5", "", "a [m]: below -0.5"]
    assert [cell_text(axes, 0, 1) for axes in facets] == ["←", "↑", "←", "←", "←", "←"]


def test_of_more_than_four_dimensions_those_that_matter_are_shown() -> None:
    shape = (2, 3, 2, 3, 2, 2)
    a, _, c, d, e, f = np.indices(shape)
    # Nothing depends on b; d matters where everything else is 1, and there only at its last bin.
    actions = (a + c + e + f) % 2 + 2 * ((a == 1) & (c == 1) & (e == 1) & (f == 1) & (d == 2))
    dimensions = [
        Dimension(n, HALVES) if bins == 3 else integers(n, bins) for n, bins in zip("abcdef", shape, strict=True)
    ]
    figure, facets = parts(table(a_task(MOVES), actions, *dimensions))
    title, *notes = figure.get_suptitle().split("\n")
    assert "a, b, c, d, e, f" in title
    assert notes == ["b held at -0.5 to 0.5", "d held at -0.5 to 0.5"]
    assert len(facets) == 4
    assert [[cell_text(axes, row, column) for row in (0, 1) for column in (0, 1)] for axes in facets] == [
        ["←", "↓", "↓", "←"],
        ["↓", "←", "←", "↓"],
        ["↓", "←", "←", "↓"],
        ["←", "↓", "↓", "←"],
    ]


def test_too_many_facets_are_thinned_and_say_so() -> None:
    figure, facets = parts(table(a_task(MOVES), np.zeros(160), integers("a", 20), *[integers(n, 2) for n in "bcd"]))
    assert figure.get_suptitle().splitlines()[1] == "6 of 20 bins of a are shown"
    assert len(facets) == 12


def test_one_dimension_is_a_strip() -> None:
    _, (axes,) = parts(table(a_task(MOVES), [0, 2, 3], Dimension("a", HALVES)))
    assert tick_texts(axes) == (["-0.5", "0.5"], [])
    assert [cell_text(axes, 0, column) for column in range(3)] == ["←", "→", "↑"]


def test_a_long_strip_is_folded() -> None:
    actions = np.zeros(60)
    actions[[24, 25, 59]] = 1, 2, 3
    figure, (axes,) = parts(table(a_task(MOVES), actions, integers("b", 60)))
    assert [cell_text(axes, *at) for at in ((0, 24), (1, 0), (2, 9))] == ["↓", "→", "↑"]
    assert tick_texts(axes)[1] == ["0", "25", "50"]
    assert len([t for t in axes.texts if t.get_text()]) == 60  # nothing is written after the last cell
    assert "b (number at the left plus number below)" in everything_written(figure)


def test_numbers_have_a_colour_bar_over_the_action_space() -> None:
    figure, (axes,) = parts(table(a_task(TORQUE), [-2.0, -0.5, 0.5, 2.0], integers("b", 2), integers("c", 2)))
    (bar,) = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert bar.get_ylabel() == "torque"
    assert bar.get_ylim() == (-2, 2)
    assert [cell_text(axes, row, column) for row in (0, 1) for column in (0, 1)] == ["-2", "-0.5", "0.5", "2"]
    (orange, _), (_, purple) = [[to_rgba(cell_color(axes, row, column)) for column in (0, 1)] for row in (0, 1)]
    assert orange[0] > 2 * orange[2]  # more red than blue
    assert purple[2] > 1.5 * purple[0]
    assert len({cell_color(axes, row, column) for row in (0, 1) for column in (0, 1)}) == 4


def test_named_levels_are_marked_on_the_colour_bar() -> None:
    task = a_task(replace(TORQUE, levels=(("back", -2.0), ("off", 0.0), ("forth", 2.0))))
    figure, (axes,) = parts(table(task, [-2.0, 0.0, 2.0, 0.0], integers("b", 2), integers("c", 2)))
    (bar,) = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert [text.get_text() for text in bar.get_yticklabels()] == ["back (-2)", "off (0)", "forth (2)"]
    assert bar.get_yticks().tolist() == [-2, 0, 2]
    assert cell_text(axes, 1, 0) == "f"


def test_actuators_that_push_one_way_have_one_scale() -> None:
    task = a_task(replace(TORQUE, low=0.0, high=1.0))
    figure, _ = parts(table(task, [0.0, 1.0], integers("b", 2)))
    (bar,) = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert bar.get_ylim() == (0, 1)


def test_each_actuator_has_its_own_map() -> None:
    task = a_task(Actuator("hip", ("bend", "stretch")), Actuator("knee", ("bend", "stretch")))
    figure, (hip, knee) = parts(table(task, [[0, 1], [1, 0]], integers("b", 2)))
    assert [cell_text(hip, 0, 0), cell_text(hip, 0, 1)] == ["b", "s"]
    assert [cell_text(knee, 0, 0), cell_text(knee, 0, 1)] == ["s", "b"]
    assert [part.legends[0].get_title().get_text() for part in figure.subfigs] == ["hip", "knee"]


def test_large_tables_are_coloured_but_not_written_into() -> None:
    figure, (axes,) = parts(table(a_task(MOVES), np.arange(10_000) % 4, integers("b", 100), integers("c", 100)))
    assert not [text for text in axes.texts if text.get_text()]
    assert axes.collections[0].get_array().shape == (100, 100)
    labels = [int(text) for text in tick_texts(axes)[1]]
    assert labels == sorted(labels)
    assert len(labels) < 60
    assert max(figure.get_size_inches()) < 15


@pytest.mark.parametrize("name", ["cartpole", "Pendulum-v1", "Acrobot-v1"])
def test_no_labels_overlap_or_leave_the_picture(name: str) -> None:
    task = load_task(name)
    assert task.grid is not None
    figure, facets = parts(TablePolicy.from_actions(task, np.arange(task.grid.size) % 2))
    renderer = FigureCanvasAgg(figure).get_renderer()
    for axes in facets:
        ticks = [t.get_window_extent(renderer) for t in axes.get_xticklabels() if t.get_visible() and t.get_text()]
        assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(ticks))
    titles = [axes.title.get_window_extent(renderer) for axes in facets if axes.get_title()]
    assert all(a.x1 <= b.x0 or a.y0 >= b.y1 or a.y1 <= b.y0 for a, b in itertools.combinations(titles, 2))
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_visible() and text.get_text()]
    boxes = [text.get_window_extent(renderer) for text in texts]
    width, height = figure.bbox.size
    outside = [
        t.get_text() for t, b in zip(texts, boxes, strict=True) if min(b.x0, b.y0, width - b.x1, height - b.y1) < 0
    ]
    assert outside == []


# --- policies: linear ------------------------------------------------------------------------------------------------


def linear(task: Task, text: str) -> LinearPolicy:
    policy = parse(text, task, "linear").policy
    assert isinstance(policy, LinearPolicy)
    return policy


def test_one_output_is_a_bar_chart() -> None:
    axes = the_axes(policy_figure(linear(a_task(TORQUE), "torque = 2*a - 0.5*b + tanh(3*a*b) + 0.25")))
    assert [bar.get_width() for bar in axes.patches] == [2, -0.5, 1, 0.25]
    assert tick_texts(axes)[1] == ["a [m]", "b", "tanh(3*a*b)", "constant"]
    assert [text.get_text() for text in axes.texts] == ["2", "-0.5", "1", "0.25"]
    assert axes.get_xlabel() == "weight in torque"
    assert axes.yaxis_inverted()
    up, down, *_ = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert up != down


def test_several_outputs_are_a_heat_map() -> None:
    policy = linear(a_task(Actuator("push", ("left", "right"))), "left = 0\nright = 2*a - 0.25*b + 1")
    figure = policy_figure(policy)
    axes, bar = figure.axes
    assert axes.collections[0].get_array().tolist() == [[0, 2], [0, -0.25], [0, 1]]
    assert axes.collections[0].get_clim() == (-2, 2)  # zero is white
    assert tick_texts(axes) == (["left", "right"], ["a [m]", "b", "constant"])
    assert cell_text(axes, 1, 1) == "-0.25"
    assert bar.get_ylabel() == "weight"
    assert figure.get_suptitle() == "toy: linear policy"


def test_of_many_terms_the_largest_are_shown() -> None:
    names = [f"x{i}" for i in range(60)]
    task = replace(a_task(TORQUE), observations=tuple(map(Observation, names)))
    text = "torque = " + " + ".join(f"{i + 1}*{name}" for i, name in enumerate(names))
    figure = policy_figure(linear(task, text))
    assert figure.get_suptitle().splitlines()[1] == "the 40 largest of 61 weights"
    assert tick_texts(the_axes(figure))[1] == names[20:]


def test_long_terms_are_cut() -> None:
    text = "torque = sin(a + 2*b)*cos(c - 3*d)*exp(e/7 + f)*tanh(a*b*c*d*e*f)"
    label = tick_texts(the_axes(policy_figure(linear(a_task(TORQUE), text))))[1][0]
    assert label.startswith("sin(a + 2*b)")
    assert label.endswith("...")
    assert len(label) == 48


def test_weights_of_zero_are_drawn() -> None:
    policy = linear(a_task(Actuator("push", ("left", "right"))), "left = 0\nright = 0*a")
    assert policy_figure(policy).axes[0].collections[0].get_clim() == (-1, 1)


def test_there_is_no_picture_of_an_unknown_kind() -> None:
    class Other(Policy):
        kind = "other"
        act_columns = act_one = to_text = _to_record = _read = None  # type: ignore[assignment]

    with pytest.raises(UsageError, match="no picture of a other policy"):
        policy_figure(Other(a_task(MOVES), ()))
