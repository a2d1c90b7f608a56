"""Squares on which nothing is decided carry no action, in maps and in pictures."""

from __future__ import annotations

import matplotlib.text
import numpy as np
import pytest

from policygen.extensions.plots.maps import marks, policy_map
from policygen.extensions.plots.portraits import policy_figure
from policygen.policies.table import TablePolicy
from policygen.tasks.load import load_task


def always(name: str, action: int) -> TablePolicy:
    task = load_task(name)
    assert task.grid is not None
    return TablePolicy.from_actions(task, np.full(task.grid.size, action))


def test_the_lake_shows_its_holes_and_its_goal() -> None:
    lines = policy_map(always("frozenlake", 1)).splitlines()
    assert lines[3:] == ["0  ↓ ↓ ↓ ↓", "1  ↓ H ↓ H", "2  ↓ ↓ ↓ H", "3  H ↓ ↓ G", "", "H = hole, G = goal"]


def test_the_cliff_is_four_rows_of_twelve() -> None:
    lines = policy_map(always("cliffwalking", 0)).splitlines()
    assert lines[3:] == [
        "0  " + 12 * "↑",
        "1  " + 12 * "↑",
        "2  " + 12 * "↑",
        "3  ↑CCCCCCCCCCG",
        "",
        "C = cliff, G = goal",
    ]


@pytest.mark.parametrize(("name", "letters"), [("frozenlake", "HHHHG"), ("cliffwalking", "CCCCCCCCCCG"), ("maze", "G")])
def test_the_picture_has_a_letter_and_no_colour_there(name: str, letters: str) -> None:
    figure = policy_figure(always(name, 1))
    axes = figure.subfigs[0].axes[0]
    drawn = np.ma.masked_invalid(axes.collections[0].get_array())
    written = {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in axes.texts if len(t.get_text()) == 1}
    blank = [
        written[row + 0.5, column + 0.5] for row, column in zip(*np.nonzero(np.ma.getmaskarray(drawn)), strict=True)
    ]
    assert "".join(blank) == letters
    legend = [text.get_text() for text in figure.findobj(matplotlib.text.Text)]
    assert "G goal" in legend


def test_an_end_that_may_be_good_or_bad_is_no_goal() -> None:
    names = {cell: mark.name for cell, mark in marks(always("nim", 0)).items()}
    assert names == {0: "end", 9: "never met"}


@pytest.mark.parametrize("name", ["cartpole", "blackjack"])
def test_other_worlds_have_no_such_squares(name: str) -> None:
    assert marks(always(name, 0)) == {}
