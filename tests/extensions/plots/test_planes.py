"""Decision maps: which policies have one, and that it shows what the policy does."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import policygen
from policygen.episodes.simulator import Simulator
from policygen.extensions.plots.played import POINTS, deciding_quantities, decision_figure


def car(text: str) -> policygen.Policy:
    return policygen.parse(text, "mountaincar", "linear")


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
    policy = car("right = velocity\nleft = -velocity\nnone = 0.001*position")
    figure = decision_figure(policy)
    assert figure is not None
    (axes,) = figure.axes
    (mesh,) = axes.collections
    shown = np.asarray(mesh.get_array()).reshape(POINTS, POINTS)
    x, y = (np.linspace(*limits, POINTS) for limits in (axes.get_xlim(), axes.get_ylim()))
    for i, j in ((0, 0), (150, 20), (100, 100), (30, 199)):
        assert shown[i, j] == policy.act_one([x[j], y[i]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("position", "velocity")
    legend = axes.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {
        policy.task.actuators[0].labels[k] for k in np.unique(shown).astype(int)
    }


def test_a_quantity_without_bounds_is_drawn_as_far_as_episodes_went() -> None:
    policy = policygen.parse("let lean = angle + 0.2*spin\nright = lean\nleft = 0.1*position", "cartpole", "linear")
    assert decision_figure(policy) is None
    with Simulator(policy.task) as simulator:
        episodes = simulator.play(policy, [1, 2])
    figure = decision_figure(policy, episodes)
    assert figure is not None
    (axes,) = figure.axes
    lean = np.concatenate([e.observations[:-1, 2] + 0.2 * e.observations[:-1, 3] for e in episodes])
    low, high = axes.get_ylim()
    assert low < lean.min() < lean.max() < high < 2 * lean.max() + 0.1
    paths = [line for line in axes.get_lines() if line.get_color() == "black" and line.get_marker() == "None"]
    assert [len(line.get_xdata()) for line in paths] == [e.length for e in episodes]


def test_a_map_reaches_as_far_as_episodes_went_and_no_further_than_bounds() -> None:
    policy = policygen.parse("right = angle\nleft = 0.1*position", "cartpole", "linear")
    with Simulator(policy.task) as simulator:
        episodes = simulator.play(policy, [1, 2])
    for narrow in (False, True):
        figure = decision_figure(policy, episodes, narrow=narrow)
        assert figure is not None
        angles = np.concatenate([e.observations[:-1, 2] for e in episodes])
        low, high = figure.axes[0].get_ylim()
        assert low < angles.min() < angles.max() < high
        assert high - low < 1.3 * np.ptp(angles)
        if narrow:
            renderer = FigureCanvasAgg(figure).get_renderer()
            figure.draw(renderer)
            box = figure.get_tightbbox(renderer)
            assert 0 <= box.x0 <= box.x1 <= figure.get_figwidth() <= 4.4


def test_numbers_have_a_scale_and_several_outputs_a_map_each() -> None:
    policy = policygen.parse("force = 3*velocity + 0.1*position", "mountaincar-continuous", "linear")
    figure = decision_figure(policy)
    assert figure is not None
    assert [axes.get_label() for axes in figure.axes][-1] == "<colorbar>"


def test_a_table_whose_portrait_is_the_map_has_no_other() -> None:
    text = (
        "bins position: -0.5\nbins velocity: 0\n| position | velocity | action |\n| * | 0 | left |\n| * | * | right |"
    )
    assert decision_figure(policygen.parse(text, "mountaincar", "table")) is None
