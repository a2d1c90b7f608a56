"""Pictures of policies that can be played: contributions of terms, and maps of two quantities."""

from __future__ import annotations

import matplotlib.text
import numpy as np
import pytest
from matplotlib.figure import Figure

import policygen
from policygen.episodes.simulator import Simulator
from policygen.extensions.plots.played import MOST_PATHS, POINTS
from policygen.extensions.plots.portraits import policy_figure

PUSH = "force = 10*velocity + 0.1*position + 0.02"


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text)]


def test_a_bar_is_the_weight_times_the_usual_size_of_its_term() -> None:
    policy = policygen.parse(PUSH, "mountaincar-continuous", "linear")
    with Simulator(policy.task) as simulator:
        met = np.concatenate([episode.observations[:-1] for episode in simulator.play(policy, [0, 1, 2])])
    usual = np.abs(met).mean(axis=0)
    figure = policy_figure(policy)
    bars, plane, _ = figure.axes
    widths = [bar.get_width() for bar in bars.patches]
    assert widths == pytest.approx([10 * usual[1], 0.1 * usual[0], 0.02], rel=1e-5)
    assert bars.get_xlabel() == "weight × usual size in force"
    assert [t.get_text() for t in bars.get_yticklabels()][:2] == [
        f"velocity  ±{usual[1]:.2g}",
        f"position  ±{usual[0]:.2g}",
    ]
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("position", "velocity")


def test_several_outputs_share_one_scale_of_contributions() -> None:
    policy = policygen.parse("left = -angle - 0.5*spin\nright = angle + 0.5*spin", "cartpole", "linear")
    figure = policy_figure(policy)
    matrix = figure.axes[0].collections[0].get_array()
    assert (matrix[:, 0] == -matrix[:, 1]).all()
    assert 0 < matrix[0, 1] < 0.2
    assert "weight × usual size" in texts(figure)


def test_a_policy_of_two_quantities_has_a_map_beside_it_that_shows_episodes() -> None:
    text = "left = -10*velocity\nnone = 0\nright = 10*velocity + 0.01*position"
    policy = policygen.parse(text, "mountaincar", "linear")
    *_, plane = policy_figure(policy).axes
    chosen = np.asarray(plane.collections[0].get_array()).reshape(POINTS, POINTS)
    for row, column in ((0, 0), (20, 150), (90, 40), (180, 180)):
        position, velocity = np.linspace(*plane.get_xlim(), POINTS)[column], np.linspace(*plane.get_ylim(), POINTS)[row]
        assert chosen[row, column] == policy.act_one([position, velocity])
    assert len(plane.get_lines()) == 3 * MOST_PATHS
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("position", "velocity")
    assert len(policy_figure(policy, alone=False).axes) == 2  # the matrix and its bar


def test_titles_of_a_widened_picture_do_not_meet() -> None:
    figure = policy_figure(policygen.parse(PUSH, "mountaincar-continuous", "linear"))
    figure.draw_without_rendering()
    title = figure._suptitle.get_window_extent()
    plane = figure.axes[1].title.get_window_extent()
    assert title.x1 <= plane.x0 or title.y0 >= plane.y1
