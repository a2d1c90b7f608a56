"""The family tree: which attempts are drawn where, and how they are marked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn import the_axes
from matplotlib.axes import Axes
from support import NO_POLICY, Written, fenced, page_of

import policygen
from policygen.extensions.plots.attempts import MOST_ROWS, family_figure
from policygen.runs.attempt import Attempt, best_of
from policygen.runs.logbook import Logbook

REPLIES = [
    fenced("torque = -1*rate"),
    fenced("torque = -2*rate - 1*sin"),
    NO_POLICY,
    fenced("torque = -0.5*rate + 2*sin"),
    fenced("torque = -1*prev(rate) + 1*cos"),
    fenced("let e = 0.5*rate^2 + 10*(cos - 1)", "torque = -2*e*rate - 3*sin"),
    fenced("torque = 3*prev(rate) + 2*cos"),
    fenced("torque = 1*rate"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two lineages or more, a failure in one of them."""
    settings = {"episodes": 4, "warmup_episodes": 4, "final_episodes": 4, "repairs": 0, "fragility": False, "jobs": 1}
    out = tmp_path_factory.mktemp("runs")
    more = {"policy": "linear", "lineages": 2, "iterations": len(REPLIES), "seed": 300, **settings}
    return policygen.run("pendulum", llm=Written(REPLIES), out=out, **more).folder


@pytest.fixture(scope="module")
def attempts(folder: Path) -> list[Attempt]:
    return Logbook(folder).attempts()


def texts_of(axes: Axes) -> dict[str, tuple[float, float]]:
    return {text.get_text(): text.get_position() for text in axes.texts}


def test_the_tree_has_each_attempt_below_and_to_the_right_of_its_parent(attempts: list[Attempt]) -> None:
    figure = family_figure(attempts)
    axes = the_axes(figure)
    found = {int(text.partition(":")[0]): (text, place) for text, place in texts_of(axes).items()}
    assert sorted(found) == [attempt.number for attempt in attempts[1:]]
    assert len({place[1] for _, place in found.values()}) == len(found)  # a row each
    assert len({attempt.lineage for attempt in attempts[1:]}) > 1
    best = best_of(attempts)
    for attempt in attempts[1:]:
        text, (x, y) = found[attempt.number]
        assert text.endswith(", best") == (attempt is best)
        score = f"{attempt.score.value:.5g}" if attempt.score is not None else "no score"
        assert text.startswith(f"{attempt.number}: {score}")
        if attempt.parent is not None:
            left, above = found[attempt.parent][1]
            assert (left < x, above < y) == (True, True)
    edges = [line for line in axes.get_lines() if len(np.asarray(line.get_xdata())) == 3]
    assert len(edges) == sum(attempt.parent is not None for attempt in attempts)
    marks = [str(line.get_marker()) for line in axes.get_lines()]
    assert (marks.count("*"), marks.count("x")) == (1, sum(one.score is None for one in attempts[1:]))
    nodes = {float(line.get_ydata()[0]): line for line in axes.get_lines() if len(line.get_xdata()) == 1}
    colors = {(one.lineage, nodes[found[one.number][1][1]].get_color()) for one in attempts[1:]}
    assert len(colors) == len({lineage for lineage, _ in colors}) == len({color for _, color in colors})


def test_texts_of_the_tree_stay_within_the_picture(attempts: list[Attempt]) -> None:
    figure = family_figure(attempts)
    figure.canvas.draw()
    for text in the_axes(figure).texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_a_run_without_lineages_has_no_tree_and_a_long_one_only_what_led_on(attempts: list[Attempt]) -> None:
    assert family_figure(attempts[:1]) is None
    many = [attempts[0]]
    for number in range(1, 3 * MOST_ROWS):
        parent = None if number == 1 else number - 1 if number % 40 == 1 else (number - 1) // 40 * 40 + 1
        many.append(Attempt(number, None, None, lineage=1, parent=parent))
    many[5] = Attempt(5, None, None, lineage=1, parent=9)  # a damaged log must not make a loop
    figure = family_figure(many)
    revised = {attempt.parent for attempt in many}
    shown = {int(text.partition(":")[0]) for text in texts_of(the_axes(figure))}
    assert 1 in shown
    assert shown <= {number for number in revised if number is not None}


def test_the_page_of_a_run_with_lineages_has_the_tree(folder: Path) -> None:
    assert page_of(folder).count('alt="Family tree of the attempts"') == 1
