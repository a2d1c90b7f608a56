"""Pictures of episodes: which policies have a map of two quantities or traces of memory, and what these show."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn import the_axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from support import Line

import policygen
from policygen.episodes.simulator import Simulator
from policygen.extensions.plots.played import (
    MOST_STEPS,
    POINTS,
    deciding_quantities,
    decision_figure,
    play_episodes,
)
from policygen.extensions.plots.policy_figures import policy_figure


@pytest.mark.parametrize(
    ("task", "text", "names"),
    [
        ("mountaincar", "right = velocity\nleft = -velocity\nnone = 0.001*position", ("position", "velocity")),
        ("mountaincar", "let go = velocity*position\nright = go\nleft = -go\nnone = 0", ("position", "velocity")),
        ("mountaincar", "right = velocity\nleft = -velocity\nnone = 0", ("velocity",)),
        ("cartpole", "let lean = angle + 0.2*spin\nright = lean\nleft = 0.1*position", ("position", "lean")),
        ("cartpole", "right = angle + spin\nleft = position", ()),
        ("mountaincar", "right = prev(position)\nleft = velocity\nnone = 0", ()),
    ],
)
def test_the_quantities_that_suffice_to_decide(task: str, text: str, names: tuple[str, ...]) -> None:
    assert deciding_quantities(policygen.parse(text, task, "linear")) == names


def test_a_map_shows_what_the_policy_does() -> None:
    text = "right = velocity\nleft = -velocity\nnone = 0.001*position"
    policy = policygen.parse(text, "mountaincar", "linear")
    axes = the_axes(decision_figure(policy))
    (mesh,) = axes.collections
    shown = np.asarray(mesh.get_array()).reshape(POINTS, POINTS)
    x, y = (np.linspace(*limits, POINTS) for limits in (axes.get_xlim(), axes.get_ylim()))
    for i, j in ((0, 0), (150, 20), (100, 100), (30, 199)):
        assert shown[i, j] == policy.act_one([x[j], y[i]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("position", "velocity")
    legend = axes.get_legend()
    assert {text.get_text() for text in legend.get_texts()} == {
        policy.task.actuators[0].labels[k] for k in np.unique(shown).astype(int)
    }


def test_a_quantity_without_bounds_is_drawn_as_far_as_episodes_went() -> None:
    policy = policygen.parse("let lean = angle + 0.2*spin\nright = lean\nleft = 0.1*position", "cartpole", "linear")
    assert decision_figure(policy) is None
    with Simulator(policy.task) as simulator:
        episodes = simulator.play(policy, [1, 2])
    figure = decision_figure(policy, episodes)
    (axes,) = figure.axes
    lean = np.concatenate([e.observations[:-1, 2] + 0.2 * e.observations[:-1, 3] for e in episodes])
    position = np.concatenate([e.observations[:-1, 0] for e in episodes])
    left, right = axes.get_xlim()  # the bounds are further apart
    assert left < position.min() < position.max() < right < left + 1.3 * np.ptp(position)
    low, high = axes.get_ylim()
    assert low < lean.min() < lean.max() < high < 2 * lean.max() + 0.1
    paths = [line for line in axes.get_lines() if line.get_color() == "black" and line.get_marker() == "None"]
    assert [len(line.get_xdata()) for line in paths] == [e.length for e in episodes]
    narrow = decision_figure(policy, episodes, narrow=True)
    renderer = FigureCanvasAgg(narrow).get_renderer()
    narrow.draw(renderer)
    box = narrow.get_tightbbox(renderer)
    assert 0 <= box.x0 <= box.x1 <= narrow.get_figwidth() <= 4.4


def test_numbers_have_a_scale_and_a_table_whose_picture_is_the_map_has_no_other() -> None:
    figure = decision_figure(policygen.parse("force = 3*velocity + 0.1*position", "mountaincar-continuous", "linear"))
    assert figure.axes[-1].get_label() == "<colorbar>"
    text = (
        "bins position: -0.5\nbins velocity: 0\n| position | velocity | action |\n| * | 0 | left |\n| * | * | right |"
    )
    assert decision_figure(policygen.parse(text, "mountaincar", "table")) is None


# --- traces of memory ------------------------------------------------------------------------------------------------

CLOCKED = "let phase = mod(prev(phase) + 0.5, 6)\ntorque = sin(phase) - sin - 0.1*prev(torque)"
COUNTING = "let turn = mod(prev(turn, -1) + 1, 4)\nbins turn: 0.5, 1.5\n| turn | action |\n| 0 | down |\n| * | right |"


def test_traces_are_what_the_episode_left() -> None:
    figure = policy_figure(policygen.parse(CLOCKED, "pendulum"))
    phase, torque = (np.asarray(axes.lines[0].get_ydata()) for axes in figure.axes[-2:])
    assert np.isnan(phase[0])
    assert phase[1:4].tolist() == [0.5, 1.0, 1.5]
    assert len(torque) == 200


@pytest.mark.parametrize(("text", "task", "names"), [(CLOCKED, "pendulum", 2), (COUNTING, "frozenlake", 1)])
def test_a_picture_has_a_trace_of_each_remembered_quantity_beside_it(text: str, task: str, names: int) -> None:
    policy = policygen.parse(text, task)
    figure = policy_figure(policy)
    figure.draw_without_rendering()
    beside = [axes for axes in figure.axes if axes.lines and not axes.patches and not axes.get_title()]
    labels = [axes.get_ylabel().split(" ")[0] for axes in beside if axes.get_ylabel()]
    assert labels == list(policy.remembers)
    assert len(labels) == names
    left = min(axes.get_window_extent().x0 for axes in beside)
    others = [axes.get_window_extent().x1 for axes in figure.axes if axes not in beside]
    assert max(others) < left


def test_a_long_episode_is_cut_and_says_so() -> None:
    policy = policygen.parse(CLOCKED, "pendulum")
    figure = policy_figure(replace(policy, task=replace(policy.task, max_steps=MOST_STEPS + 50)))
    assert any("the first 300 of 350" in axes.get_xlabel() for axes in figure.axes)


def test_a_policy_of_one_observation_has_a_curve_of_its_output() -> None:
    policy = policygen.parse("right = velocity\nleft = -velocity\nnone = 0", "mountaincar", "linear")
    figure = decision_figure(policy, play_episodes(policy)[0])
    (axes,) = figure.axes
    curve = axes.get_lines()[0]
    for x, y in list(zip(curve.get_xdata(), curve.get_ydata(), strict=True))[::40]:
        assert y == policy.act_one([0.0, x])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("velocity", "action")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["left", "none", "right"]
    beside = policy_figure(policygen.parse("torque = -sin", "pendulum")).axes
    assert [axes.get_xlabel() for axes in beside] == ["weight × usual size in torque", "sin"]


def test_a_map_of_remembered_values_stands_between_the_picture_and_the_traces_and_has_units() -> None:
    text = "left = 0\nright = 10*angle + 3*prev(angle) + 0.001*spin"
    policy = policygen.parse(text, "cartpole", "linear")
    figure = policy_figure(policy)
    figure.draw_without_rendering()
    (plane,) = [axes for axes in figure.axes if axes.get_title().startswith("actions")]
    assert {plane.get_xlabel(), plane.get_ylabel()} == {"angle [rad]", "prev(angle) [rad]"}
    assert plane.get_title().endswith("all else at its median")
    order = [axes.get_window_extent() for axes in (figure.axes[0], plane, figure.axes[-1])]
    assert order[0].x1 < order[1].x0 < order[1].x1 < order[2].x0


def test_show_says_what_a_picture_lacks_where_nobody_vouched_for_the_task(
    tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swings.py").write_text("from gymnasium.envs.classic_control import PendulumEnv as Swing\n")
    monkeypatch.syspath_prepend(tmp_path)
    policy = policygen.parse(CLOCKED, "pendulum")
    replace(policy, task=replace(policy.task, gym_id="swings:Swing", kwargs=())).save(tmp_path / "p.json")
    shown = line("show", tmp_path / "p.json", "-o", tmp_path / "p.svg")
    assert shown.code == 0
    assert shown.err.startswith(
        "Warning: the picture lacks the usual sizes of the terms, the traces of memory: the saved task names the module"
    )
    assert "add --trust" in shown.err
    trusted = line("show", tmp_path / "p.json", "-o", tmp_path / "q.svg", "--trust")
    assert (trusted.code, trusted.err) == (0, "")
    assert "no traces of memory" in (tmp_path / "p.svg").read_text()
    assert "no traces of memory" not in (tmp_path / "q.svg").read_text()
    monkeypatch.delitem(sys.modules, "swings")
