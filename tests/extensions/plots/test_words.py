"""A table in words and as a map of characters, and which policies have neither."""

from __future__ import annotations

import pytest
from support import ARM
from toys import HALVES, TORQUE, linear, table, toy

from policygen.extensions.plots.words import in_words, text_map
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.quantities.grid import Dimension, integer_dimension
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

CARTPOLE = load_task("cartpole")


def read(text: str, task: Task = CARTPOLE) -> Policy:
    policy = parse(text, task, "table").policy
    assert policy is not None
    return policy


def test_rows_are_sentences_with_units_and_the_meaning_of_names() -> None:
    policy = read("| angle | spin | action |\n| 3-5 | 2,3 | right |\n| 0,2 | 4-5 | right |\n| * | * | left |")
    assert in_words(policy) == [
        'In words (the first matching line applies; "from a to b" includes a, not b):',
        "  angle at least 0 rad and spin from -0.2 to 0.2 rad/s -> right",
        "  angle (below -0.06 or from -0.02 to 0 rad) and spin at least 0.2 rad/s -> right",
        "  otherwise -> left",
        "  (angle: of the pole; 0 is upright, positive leans right)",
        "  (spin: of the pole; positive falls to the right)",
        "  (action: push the cart)",
    ]


def test_a_map_has_arrows_edges_and_the_directions_of_its_axes() -> None:
    policy = read(
        "bins angle: 0\nbins spin: -0.5, 0.5\n| angle | spin | action |\n| 1 | 1,2 | right |\n| * | * | left |"
    )
    assert text_map(policy) == [
        "Map of the actions (rows: angle [rad]; columns: spin [rad/s]): < = left, > = right",
        "  0 and above   <     >     >",
        "      below 0   <     <     <",
        "                  -0.5  0.5",
    ]


def test_whole_numbers_go_down_as_on_a_board() -> None:
    policy = table([0, 1, 2, 3, 0, 0], integer_dimension("b", 2), integer_dimension("c", 3))
    assert text_map(policy) == [
        "Map of the actions (rows: b; columns: c): < = left, v = down, > = right, ^ = up",
        "  0  <  v  >",
        "  1  ^  <  <",
        "     0  1  2",
    ]
    single = table([0, 0, 2], integer_dimension("c", 3))
    assert text_map(single) == ["Map of the actions (columns: c): < = left, > = right", "    <  <  >", "    0  1  2"]


def test_actions_without_arrows_are_letters_words_or_numbers() -> None:
    nim, blackjack = load_task("nim"), load_task("blackjack")
    takes = text_map(read("| sticks | action |\n| 0-4 | take3 |\n| * | take1 |", nim))
    assert takes[1].split() == ["take3"] * 5 + ["take1"] * 6
    cards = text_map(read("| sum | action |\n| 0-16 | hit |\n| * | stick |", blackjack))
    assert cards[0] == "Map of the actions (columns: sum): s = stick, h = hit"
    numbers = text_map(table([-0.123456, 1.0, 2.0], Dimension("a", HALVES), task=toy(TORQUE)))
    assert numbers[0] == "Map of the actions (columns: a [m])"
    assert numbers[1].split() == ["-0.123", "1", "2"]


def test_a_single_row_is_always() -> None:
    policy = read("| action |\n| left |")
    assert in_words(policy)[1] == "  always -> left"
    assert text_map(policy) == []


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (linear("torque = -a"), False),
        (read("| x | shoulder | elbow |\n| 0 | left | -1 |\n| * | off | 0.5 |", ARM), True),  # two outputs
        (table([*range(4)] * 6, *(Dimension(name, (0.0,)) for name in "abc"), Dimension("d", HALVES)), True),
        (table([i % 4 for i in range(40)], integer_dimension("b", 40)), True),  # too wide
    ],
)
def test_others_have_no_map(policy: Policy, words: bool) -> None:
    assert text_map(policy) == []
    assert bool(in_words(policy)) == words


def test_more_than_ten_rows_are_not_put_into_words() -> None:
    rows = "".join(f"| {i} | take{1 + i % 3} |\n" for i in range(11))
    assert in_words(read(f"| sticks | action |\n{rows}", load_task("nim"))) == []
