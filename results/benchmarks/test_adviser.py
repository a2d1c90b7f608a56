"""Tests of the advice benchmark on small cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from adviser import (
    CASES,
    HEADER,
    Case,
    Field,
    Lesson,
    bad,
    episodes_of,
    measured,
    middles,
    reached_in_words,
    times_in_words,
    with_interval,
)

MAZE = Case("maze", "maze.txt", 128)
DOWN_AND_RIGHT = "| row | column | action |\n|-|-|-|\n| 0-1 | 0 | south |\n| * | * | east |\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "maze.txt").write_text(DOWN_AND_RIGHT)
    return tmp_path


def test_good_advice_is_at_the_optimum_at_once_and_rows_say_so(folder):
    rows = list(measured(MAZE, folder, seeds=(0, 1)))
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [len(row) for row in cells] == [HEADER.splitlines()[-2].count("|") - 1] * 4
    assert [row[1] for row in cells] == ["none", "a chat model's", "random", "inverted"]
    assert cells[1][2] == "0.9667"
    assert cells[1][3] == "2 of 2"
    assert cells[1][7].startswith("0.9667 ")
    assert cells[0][6] == "1"


def test_advice_is_read_by_cells_and_its_return_is_exact(folder):
    field = Field(MAZE)
    advice = field.advice(folder)
    assert advice.shape == (9,)
    assert field.value(advice, 0) == pytest.approx(1 - 0.3 / 9)
    assert field.learn(advice, 0) == field.learn(advice, 0)
    reached = field.learn(advice, 0).reached
    assert reached is not None
    assert reached <= MAZE.episodes
    assert Field(replace(MAZE, episodes=2)).learn(None, 0).reached is None


def test_inverted_advice_is_wrong_everywhere_and_random_advice_is_not():
    good = np.tile(np.arange(4), 50)
    rng = np.random.default_rng(0)
    inverted = bad("inverted", good, 4, rng)
    assert (inverted != good).all()
    assert set(inverted.tolist()) == {0, 1, 2, 3}
    assert 0.15 < float((bad("random", good, 4, rng) == good).mean()) < 0.35


def test_learners_are_counted_in_words():
    lessons = [Lesson(64, 1.0), Lesson(None, 0.5), Lesson(128, 1.0)]
    assert reached_in_words(lessons, 1_500) == ("2 of 3", "128 (64 to more than 1,500)")
    assert reached_in_words(lessons[1:2] * 2, 1_500)[0] == "0 of 2"
    assert with_interval([1.0, 2.0, 3.0]) == "2 ± 2.5"
    assert [episodes_of(lesson, 1_500) for lesson in lessons] == [64, 1_500, 128]


def test_how_many_times_the_episodes_is_compared_seed_by_seed():
    alone = [Lesson(count, 1.0) for count in (100, 400, None)]
    twice = [Lesson(count, 1.0) for count in (200, 800, None)]
    assert times_in_words(alone, alone, 1_000) == "1.00 (1.00 to 1.00)"
    assert times_in_words(twice[:2], alone[:2], 1_000) == "2.00 (2.00 to 2.00)"
    assert times_in_words(twice, alone, 1_000).startswith("1.59 (")


def test_a_rule_over_quantities_of_its_own_becomes_what_it_does_in_the_middle_of_each_cell(tmp_path):
    (tmp_path / "cartpole.txt").write_text(
        "let lean = angle + 0.1*spin\nbins lean: 0\n| lean | action |\n| 0 | left |\n| * | right |"
    )
    field = Field(Case("cartpole", "cartpole.txt", 40))
    rows = middles(field.blank.grid)
    assert (field.view.read(rows) == np.arange(field.view.cells)).all()
    assert (field.advice(tmp_path) == (rows[:, 2] + 0.1 * rows[:, 3] >= 0)).all()


def test_the_advice_of_every_case_is_there():
    policies = Path(__file__).resolve().parents[1] / "policies"
    assert all((policies / case.file).is_file() for case in CASES)
