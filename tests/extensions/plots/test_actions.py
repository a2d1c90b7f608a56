"""Action maps: which quantities are drawn, with which actions, and which policies have no map."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from toys import HALVES, MOVES, SQUARE, TORQUE, linear, table, toy

from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.errors import UsageError
from policygen.extensions.plots.actions import action_figure
from policygen.extensions.plots.style import OKABE_ITO
from policygen.policies.parse import parse
from policygen.quantities.grid import Dimension, integer_dimension
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Observation

CARTPOLE = load_task("cartpole")


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def written(axes: Axes) -> list[str]:
    """The texts in the cells, a line a row."""
    rows: dict[float, list[str]] = {}
    for text in axes.texts:
        rows.setdefault(text.get_position()[1], []).append(text.get_text())
    return [" ".join(rows[row]) for row in sorted(rows)]


def figure_of(text: str, *names: str) -> Figure:
    """The map of equations for an episode in which these observations go through all values between -1 and 1."""
    observations = tuple(Observation(name, low=-1.0, high=1.0) for name in names)
    rng, values = np.random.default_rng(0), np.linspace(-1, 1, 2_001, dtype=np.float32)
    seen = np.column_stack([rng.permutation(values) for _ in names])
    episode = Trajectory(seen, np.zeros((2_000, 1), np.float32), np.zeros(2_000, np.float32), 0.0, 0, False, True)
    return action_figure(linear(text, replace(toy(TORQUE), observations=observations)), [episode])


def test_a_table_is_a_map_of_its_cells_with_arrows_and_colours() -> None:
    figure = action_figure(table([0, 1, 2, 3, 0, 0], integer_dimension("b", 2), integer_dimension("c", 3)))
    axes, bar = figure.axes
    assert written(axes) == ["← ↓ →", "↑ ← ←"]
    assert axes.yaxis_inverted()
    mesh = axes.collections[0]
    mesh.update_scalarmappable()
    assert [to_hex(color) for color in mesh.get_facecolors()[:4]] == [color.lower() for color in OKABE_ITO[:4]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2"]
    assert bar.get_ylabel() == MOVES.name
    assert [label.get_text() for label in bar.get_yticklabels()] == ["left", "down", "right", "up"]


def test_further_dimensions_of_a_table_have_panels() -> None:
    actions = np.tile([[0, 1], [2, 3]], (3, 1, 1))
    actions[2, 0, 1] = 3
    shown = panels(action_figure(table(actions, Dimension("a", HALVES), *SQUARE)))
    assert shown[2].get_title() == "a [m]: 0.5 and above"
    assert [written(axes)[0] for axes in shown] == ["← ↓", "← ↓", "← ↑"]
    cell = np.arange(40)
    four = table((cell + cell // 8 + cell // 4) % 4, integer_dimension("a", 5), integer_dimension("d", 2), *SQUARE)
    figure = action_figure(four)
    assert [axes.get_title() for axes in panels(figure)] == ["b: 0", "b: 1"]
    assert "held: d: " in figure.get_suptitle()


def test_a_dimension_that_no_row_reads_has_no_panels() -> None:
    shape = (2, 3, 2, 2, 2)
    a, _, c, d, e = np.indices(shape)
    names = zip("abcde", shape, strict=True)
    policy = table((a + c + d + e) % 4, *(integer_dimension(name, bins) for name, bins in names))
    figure = action_figure(policy)
    assert "b: " not in figure.get_suptitle()
    assert len(panels(figure)) == 2


def test_equations_of_two_quantities_are_evaluated_over_the_visited_range() -> None:
    policy = parse("left = 0\nright = 10*angle + 3*spin\n", CARTPOLE, "linear").policy
    with Simulator(CARTPOLE) as simulator:
        episodes = simulator.play(policy, range(3))
    axes, _ = action_figure(policy, episodes).axes
    assert {axes.figure.get_supxlabel(), axes.figure.get_supylabel()} == {"spin [rad/s]", "angle [rad]"}
    mesh = axes.collections[0]
    grid = dict(zip(("angle", "spin"), np.moveaxis(mesh.get_coordinates()[:-1, :-1], -1, 0), strict=True))
    if axes.figure.get_supxlabel().startswith("spin"):
        grid = {"spin": grid["angle"], "angle": grid["spin"]}
    expected = 10 * grid["angle"] + 3 * grid["spin"] > 0
    assert np.mean(mesh.get_array() == expected) > 0.98  # corners of the mesh are half a cell from its centres
    visited = np.concatenate([episode.observations[:, 2] for episode in episodes])
    assert np.ptp(grid["angle"]) == pytest.approx(1.2 * np.ptp(visited), rel=0.05)


def test_more_quantities_of_equations_are_slices_or_held() -> None:
    figure = figure_of("torque = 2*p + 1.5*q + 1.2*r + 0.001*s\n", *"pqrst")
    shown = panels(figure)
    assert [axes.get_title().split(": ")[0] for axes in shown] == ["r"] * 3
    middle = shown[1].collections[0].get_array()
    assert middle[100, 100] == pytest.approx(0, abs=0.05)
    assert (middle.min(), middle.max()) == (-2, 2)
    assert ", t" not in figure.get_suptitle()
    assert "held: s: " in figure.get_suptitle()


def test_one_quantity_is_a_curve_and_features_replace_many_observations() -> None:
    (axes,) = panels(figure_of("torque = 2*p\n", "p"))
    assert axes.get_ylabel() == "torque"
    assert axes.lines[0].get_ydata()[[0, 100, -1]].tolist() == [-2, 0, 2]
    swing = parse("let push = angle + spin + velocity\nleft = 0\nright = push\n", CARTPOLE, "linear").policy
    (axes,) = panels(action_figure(swing))
    assert axes.figure.get_supxlabel() == "push"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["left", "right"]


def test_a_policy_that_always_acts_alike_has_no_map() -> None:
    with pytest.raises(UsageError, match="always takes the same action"):
        figure_of("torque = 1\n", "p")
