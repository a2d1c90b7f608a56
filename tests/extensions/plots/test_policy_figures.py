"""Figures of policies: what is drawn where, what is written beside it, and what cannot be drawn."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal

import matplotlib
import numpy as np
import pytest
from drawn import the_axes
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from toys import HALVES, SQUARE, TORQUE, Other, linear, table, toy

import policygen
from policygen.episodes.simulator import Simulator
from policygen.errors import UsageError
from policygen.extensions.plots.played import MOST_PATHS
from policygen.extensions.plots.policy_figures import policy_figure
from policygen.extensions.plots.style import OKABE_ITO
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension, integer_dimension
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Actuator, Observation

# --- tables ----------------------------------------------------------------------------------------------------------


def parts(policy: Policy) -> tuple[Figure, list[Axes]]:
    """The figure, and its visible axes that hold cells (not colour bars)."""
    figure = policy_figure(policy)
    return figure, [axes for axes in figure.axes if axes.get_visible() and axes.get_label() != "<colorbar>"]


def written(axes: Axes) -> list[str]:
    """The texts in the cells, a line a row."""
    rows: dict[float, dict[float, str]] = {}
    for text in axes.texts:
        column, row = text.get_position()
        if text.get_text() and text.get_rotation() == 0:
            rows.setdefault(row, {})[column] = text.get_text()
    assert list(rows) == [row + 0.5 for row in range(len(rows))]
    return [" ".join(cells[column] for column in sorted(cells)) for cells in rows.values()]


def colour_bar(figure: Figure) -> Axes:
    (bar,) = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    return bar


def cell_color(axes: Axes, row: int, column: int) -> str:
    mesh = axes.collections[0]
    mesh.update_scalarmappable()
    columns = mesh.get_array().shape[1]
    return to_hex(mesh.get_facecolors()[row * columns + column])


def tick_texts(axes: Axes) -> tuple[list[str], list[str]]:
    return [t.get_text() for t in axes.get_xticklabels()], [t.get_text() for t in axes.get_yticklabels()]


def everything_written(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text)]


def test_two_counted_dimensions_are_a_map_read_from_the_top() -> None:
    actions = [0, 1, 2, 3, 0, 0]
    figure, (axes,) = parts(table(actions, integer_dimension("b", 2), integer_dimension("c", 3)))
    assert written(axes) == ["← ↓ →", "↑ ← ←"]
    for cell, action in enumerate(actions):
        assert cell_color(axes, *divmod(cell, 3)) == OKABE_ITO[action].lower()
    assert axes.yaxis_inverted()
    assert tick_texts(axes) == (["0", "1", "2"], ["0", "1"])
    assert figure.get_suptitle() == "toy: table policy over b, c"
    (legend,) = figure.subfigs[0].legends
    assert legend.get_title().get_text() == "move"
    assert [text.get_text() for text in legend.get_texts()] == ["← left", "↓ down", "→ right", "↑ up"]
    assert [to_hex(patch.get_facecolor()) for patch in legend.get_patches()] == [c.lower() for c in OKABE_ITO[:4]]


def test_real_quantities_grow_upwards_with_their_edges_between_the_cells() -> None:
    figure, (axes,) = parts(table(np.zeros(9), Dimension("a", HALVES), Dimension("b", (1.0, 2.5))))
    assert not axes.yaxis_inverted()
    assert tick_texts(axes) == (["1", "2.5"], ["-0.5", "0.5"])
    assert axes.get_xticks().tolist() == axes.get_yticks().tolist() == [1, 2]
    assert {"a [m]", "b"} <= set(everything_written(figure))


def test_texts_can_be_read_on_their_colour() -> None:
    _, (axes,) = parts(table([0, 1, 2, 3], *SQUARE))
    for text in axes.texts[-4:]:
        column, row = (int(at - 0.5) for at in text.get_position())
        luminances = []
        for color in (text.get_color(), cell_color(axes, row, column)):
            linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgba(color)[:3]]
            luminances.append(float(np.dot(linear, [0.2126, 0.7152, 0.0722])))
        assert (max(luminances) + 0.05) / (min(luminances) + 0.05) > 3  # WCAG 2.2, large text


def test_many_facets_are_wrapped_and_the_rest_is_hidden_or_left_out() -> None:
    figure, facets = parts(table(np.zeros(20), integer_dimension("a", 5), *SQUARE))
    assert len(facets) == 5
    assert len(figure.axes) == 6
    assert [axes.get_subplotspec().rowspan.start for axes in facets] == [0, 0, 0, 1, 1]
    figure, facets = parts(table(np.zeros(160), integer_dimension("a", 20), *[integer_dimension(n, 2) for n in "bcd"]))
    assert figure.get_suptitle().splitlines()[1] == "6 of 20 bins of a are shown"
    assert len(facets) == 12


def test_more_dimensions_are_rows_and_columns_of_facets() -> None:
    actions = np.zeros((3, 2, 2))
    actions[2, 0, 1] = 3
    _, facets = parts(table(actions, Dimension("a", HALVES), *SQUARE))
    assert facets[2].get_title().replace("\n", " ") == "a [m]: 0.5 and above"
    assert [written(axes)[0] for axes in facets] == ["← ←", "← ←", "← ↑"]
    actions = np.zeros((3, 2, 2, 2))
    actions[2, 1, 0, 1] = 3
    _, facets = parts(table(actions, Dimension("a", HALVES), *SQUARE, integer_dimension("d", 2)))
    assert [axes.get_title() for axes in facets] == ["b: 0", "b: 1", "", "", "", ""]
    beside = [next(t.get_text() for t in axes.texts if t.get_rotation() == 270).replace("\n", " ") for axes in facets]
    # The first dimension grows upwards like the quantities inside a facet.
    assert beside == ["", "a [m]: 0.5 and above", "", "a [m]: -0.5 to 0.5", "", "a [m]: below -0.5"]
    assert [written(axes)[0] for axes in facets] == ["← ←", "← ↑", *["← ←"] * 4]


def test_of_more_than_four_dimensions_those_that_matter_are_shown() -> None:
    shape = (2, 3, 2, 3, 2, 2)
    a, _, c, d, e, f = np.indices(shape)
    # Nothing depends on b; d matters where everything else is 1, and there only at its last bin.
    actions = (a + c + e + f) % 2 + 2 * ((a == 1) & (c == 1) & (e == 1) & (f == 1) & (d == 2))
    dimensions = [
        Dimension(n, HALVES) if bins == 3 else integer_dimension(n, bins)
        for n, bins in zip("abcdef", shape, strict=True)
    ]
    figure, facets = parts(table(actions, *dimensions))
    title, *notes = figure.get_suptitle().split("\n")
    assert "a, b, c, d, e, f" in title
    assert notes == ["b held at -0.5 to 0.5", "d held at -0.5 to 0.5"]
    same, swapped = ["← ↓", "↓ ←"], ["↓ ←", "← ↓"]
    assert [written(axes) for axes in facets] == [same, swapped, swapped, same]


def test_one_dimension_is_a_strip_and_a_long_one_is_folded() -> None:
    _, (axes,) = parts(table([0, 2, 3], Dimension("a", HALVES)))
    assert tick_texts(axes) == (["-0.5", "0.5"], [])
    assert written(axes) == ["← → ↑"]
    actions = np.zeros(60)
    actions[[24, 25, 59]] = 1, 2, 3
    figure, (axes,) = parts(table(actions, integer_dimension("b", 60)))
    assert written(axes) == ["← " * 24 + "↓", "→" + " ←" * 24, "← " * 9 + "↑"]
    assert tick_texts(axes)[1] == ["0", "25", "50"]
    assert "b (number at the left plus number below)" in everything_written(figure)


def test_numbers_have_a_colour_bar_over_the_action_space() -> None:
    figure, (axes,) = parts(table([-2.0, -0.5, 0.5, 2.0], *SQUARE, task=toy(TORQUE)))
    assert colour_bar(figure).get_ylabel() == "torque"
    assert colour_bar(figure).get_ylim() == (-2, 2)
    assert written(axes) == ["-2 -0.5", "0.5 2"]
    (orange, _), (_, purple) = [[to_rgba(cell_color(axes, row, column)) for column in (0, 1)] for row in (0, 1)]
    assert orange[0] > 2 * orange[2]  # more red than blue
    assert purple[2] > 1.5 * purple[0]
    assert len({cell_color(axes, row, column) for row in (0, 1) for column in (0, 1)}) == 4
    figure, _ = parts(table([0.0, 1.0], integer_dimension("b", 2), task=toy(replace(TORQUE, low=0.0, high=1.0))))
    assert colour_bar(figure).get_ylim() == (0, 1)


def test_named_levels_are_marked_on_the_colour_bar() -> None:
    task = toy(replace(TORQUE, levels=(("back", -2.0), ("off", 0.0), ("forth", 2.0))))
    figure, (axes,) = parts(table([-2.0, 0.0, 2.0, 0.0], *SQUARE, task=task))
    bar = colour_bar(figure)
    assert [text.get_text() for text in bar.get_yticklabels()] == ["back (-2)", "off (0)", "forth (2)"]
    assert bar.get_yticks().tolist() == [-2, 0, 2]
    assert written(axes) == ["b o", "f o"]


def test_each_actuator_has_its_own_map() -> None:
    task = toy(Actuator("hip", ("bend", "stretch")), Actuator("knee", ("bend", "stretch")))
    figure, (hip, knee) = parts(table([[0, 1], [1, 0]], integer_dimension("b", 2), task=task))
    assert (written(hip), written(knee)) == (["b s"], ["s b"])
    assert [part.legends[0].get_title().get_text() for part in figure.subfigs] == ["hip", "knee"]


def test_large_tables_are_coloured_but_not_written_into() -> None:
    figure, (axes,) = parts(table(np.arange(10_000) % 4, integer_dimension("b", 100), integer_dimension("c", 100)))
    assert not [text for text in axes.texts if text.get_text()]
    assert axes.collections[0].get_array().shape == (100, 100)
    labels = [int(text) for text in tick_texts(axes)[1]]
    assert labels == sorted(labels)
    assert len(labels) < 60
    assert max(figure.get_size_inches()) < 15


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_no_labels_overlap_or_leave_the_picture(name: str) -> None:
    task = load_task(name)
    figure, facets = parts(TablePolicy.from_actions(task, np.arange(task.grid.size) % 2))
    figure.draw_without_rendering()
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


@pytest.mark.parametrize(("name", "letters"), [("frozenlake", "HHHHG"), ("cliffwalking", "CCCCCCCCCCG")])
def test_cells_without_action_have_a_letter_and_no_colour(name: str, letters: str) -> None:
    task = load_task(name)
    figure = policy_figure(TablePolicy.from_actions(task, np.ones(task.grid.size)))
    axes = figure.subfigs[0].axes[0]
    blank = np.ma.getmaskarray(np.ma.masked_invalid(axes.collections[0].get_array()))
    symbols = np.array([row.split() for row in written(axes)])
    assert "".join(symbols[blank]) == letters
    assert "G goal" in everything_written(figure)


# --- linear ----------------------------------------------------------------------------------------------------------


def test_one_output_is_a_bar_chart() -> None:
    axes = the_axes(policy_figure(linear("torque = 2*a - 0.5*b + tanh(3*a*b) + 0.25")))
    assert [bar.get_width() for bar in axes.patches] == [2, -0.5, 1, 0.25]
    assert tick_texts(axes)[1] == ["a [m]", "b", "tanh(3*a*b)", "constant"]
    assert [text.get_text() for text in axes.texts] == ["2", "-0.5", "1", "0.25"]
    assert axes.get_xlabel() == "weight in torque"
    assert axes.yaxis_inverted()
    up, down, *_ = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert up != down


def test_several_outputs_are_a_heat_map() -> None:
    policy = linear("left = 0\nright = 2*a - 0.25*b + 1", toy(Actuator("push", ("left", "right"))))
    figure = policy_figure(policy)
    axes, bar = figure.axes
    assert axes.collections[0].get_array().tolist() == [[0, 2], [0, -0.25], [0, 1]]
    assert axes.collections[0].get_clim() == (-2, 2)  # zero is white
    assert tick_texts(axes) == (["left", "right"], ["a [m]", "b", "constant"])
    assert written(axes) == ["0 2", "0 -0.25", "0 1"]
    assert bar.get_ylabel() == "weight"
    assert figure.get_suptitle() == "toy: equations"
    nothing = linear("left = 0\nright = 0*a", policy.task)
    assert policy_figure(nothing).axes[0].collections[0].get_clim() == (-1, 1)


def test_of_many_terms_the_largest_are_shown_and_long_ones_are_cut() -> None:
    names = [f"x{i}" for i in range(60)]
    task = replace(toy(TORQUE), observations=tuple(map(Observation, names)))
    figure = policy_figure(linear("torque = " + " + ".join(f"{i + 1}*{name}" for i, name in enumerate(names)), task))
    assert figure.get_suptitle().splitlines()[1] == "the 40 largest of 61 weights"
    assert tick_texts(the_axes(figure))[1] == names[20:]
    figure = policy_figure(linear("torque = sin(a + 2*b)*cos(c - 3*d)*exp(e/7 + f)*tanh(a*b*c*d*e*f)"))
    label = tick_texts(the_axes(figure))[1][0]
    assert label.startswith("sin(a + 2*b)")
    assert label.endswith("...")
    assert len(label) == 48


LETS = (
    "let lean = a + 0.25*b\nlet tilt = tanh(lean)*cos(3*c)*exp(-d^2) + sin(2*e)*lean^2 - 0.125*f*lean + 0.5*a*b*c*d*e\n"
)
KINDS = {"linear": "torque = tilt", "table": "bins tilt: 0\n| tilt | torque |\n|---|---|\n| 0 | -1 |\n| * | 1 |"}


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_defined_below_the_picture(kind: Literal["table", "linear"]) -> None:
    policy = parse(LETS + KINDS[kind], toy(TORQUE), kind).policy
    figure = policy_figure(policy)
    figure.draw_without_rendering()
    below = figure.get_supxlabel()
    assert " ".join(below.split()) == " ".join(LETS.replace("let ", "").split())
    (text,) = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text() == below]
    box = text.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert box.y0 >= 0
    assert all(box.y1 <= axes.get_tightbbox().y0 for axes in figure.axes)
    cells = figure.axes[0].get_window_extent().height
    plain = policy_figure(parse(KINDS[kind].replace("tilt", "a"), toy(TORQUE), kind).policy)  # type: ignore[arg-type]
    plain.draw_without_rendering()
    assert plain.get_supxlabel() == ""
    assert cells > 0.8 * plain.axes[0].get_window_extent().height


def test_features_of_the_task_are_defined_if_the_policy_needs_them_and_an_unknown_kind_has_no_picture() -> None:
    task = replace(toy(TORQUE), features=(("far", "a + b"), ("near", "c"), ("idle", "d")))
    text = "let twice = 2*far\nlet spare = near\ntorque = tanh(twice) - e"
    assert policy_figure(linear(text, task)).get_supxlabel() == "far = a + b\ntwice = 2*far"
    with pytest.raises(UsageError, match="no picture of a other policy"):
        policy_figure(Other(toy(), ()))


# --- policies that can be played -------------------------------------------------------------------------------------

PUSH = "force = 10*velocity + 0.1*position + 0.02"


def test_a_bar_is_the_weight_times_the_usual_size_of_its_term() -> None:
    policy = policygen.parse(PUSH, "mountaincar-continuous", "linear")
    with Simulator(policy.task) as simulator:
        met = np.concatenate([episode.observations[:-1] for episode in simulator.play(policy, [0, 1, 2])])
    usual = np.abs(met).mean(axis=0)
    figure = policy_figure(policy)
    bars = figure.axes[0]
    widths = [bar.get_width() for bar in bars.patches]
    assert widths == pytest.approx([10 * usual[1], 0.1 * usual[0], 0.02], rel=1e-5)
    assert bars.get_xlabel() == "weight × usual size in force"
    assert [t.get_text() for t in bars.get_yticklabels()][:2] == [
        f"velocity  ±{usual[1]:.2g}",
        f"position  ±{usual[0]:.2g}",
    ]


def test_a_map_of_two_quantities_and_their_episodes_stands_beside_the_picture() -> None:
    policy = policygen.parse(PUSH, "mountaincar-continuous", "linear")
    figure = policy_figure(policy)
    figure.draw_without_rendering()
    _, plane, _ = figure.axes
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("position", "velocity")
    assert len(plane.get_lines()) == 3 * MOST_PATHS
    assert figure._suptitle.get_window_extent().x1 <= plane.get_tightbbox().x0
    assert len(policy_figure(policy, alone=False).axes) == 1
