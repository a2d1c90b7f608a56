"""Maps as text: the place of each character, labels, symbols and their key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toys import HALVES, SQUARE, TORQUE, Other, linear, table, toy

from policygen.extensions.plots.maps import MOST_CELLS, alphabet, marks, policy_map
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension, integer_dimension
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Actuator

SIDE = int(MOST_CELLS**0.5) + 1
WITHOUT_MAP = (
    table(np.zeros(32, int), *[integer_dimension(name, 2) for name in "abcde"]),
    table(np.zeros(SIDE * SIDE, int), integer_dimension("a", SIDE), integer_dimension("b", SIDE)),
    Other(toy(), ()),
)


@pytest.mark.parametrize(
    ("policy", "lines"),
    [
        (
            table([0, 1, 2, 3, 0, 0], integer_dimension("b", 2), integer_dimension("c", 3)),
            ["b down, c across", "", "   0 1 2", "0  ← ↓ →", "1  ↑ ← ←"],
        ),
        (
            table([[0, 0, 2], [1, 1, 1], [3, 3, 3]], Dimension("a", HALVES), Dimension("b", HALVES)),
            [
                "a [m] up, b across",
                "b 0: below -0.5, 1: -0.5 to 0.5, 2: 0.5 and above",
                "",
                "                  0 1 2",
                "2: 0.5 and above  ↑ ↑ ↑",
                "1: -0.5 to 0.5    ↓ ↓ ↓",
                "0: below -0.5     ← ← →",
            ],
        ),
        (
            table([0, 2, 3], Dimension("a", HALVES)),
            ["a [m] down", "", "0: below -0.5     ←", "1: -0.5 to 0.5    →", "2: 0.5 and above  ↑"],
        ),
        (
            table([-2.0, -0.0, 0.123456, 1.5], *SQUARE, task=toy(TORQUE)),
            ["b down, c across", "", "       0     1", "0     -2     0", "1  0.123   1.5"],
        ),
        (
            linear("left = 0\nright = 2*a - 0.25*b + tanh(3*a*b) + 1.5", toy(Actuator("push", ("left", "right")))),
            [
                "term          left  right",
                "a                0      2",
                "b                0  -0.25",
                "tanh(3*a*b)      0      1",
                "constant         0    1.5",
            ],
        ),
        *((policy, []) for policy in WITHOUT_MAP),
    ],
    ids=["counts", "bins", "a list", "numbers", "weights", "five dimensions", "many cells", "other kind"],
)
def test_a_policy_is_drawn_as_text(policy: Policy, lines: list[str]) -> None:
    assert policy_map(policy).splitlines() == lines


def test_three_dimensions_lie_side_by_side_while_the_width_lasts() -> None:
    actions = np.zeros((3, 2, 2), int)
    actions[2, 0, 1] = 3
    policy = table(actions, Dimension("a", HALVES), *SQUARE)
    wide = policy_map(policy).splitlines()
    assert wide == [
        "b down, c across, one map for each a [m]",
        "",
        "   a: below -0.5     a: -0.5 to 0.5    a: 0.5 and above",
        "   0 1               0 1               0 1",
        "0  ← ←               ← ←               ← ↑",
        "1  ← ←               ← ←               ← ←",
    ]
    narrow = policy_map(policy, width=40).splitlines()
    assert max(map(len, narrow)) <= 40
    assert narrow[2] == "   a: below -0.5     a: -0.5 to 0.5"
    assert narrow[7:] == ["   a: 0.5 and above", "   0 1", "0  ← ↑", "1  ← ←"]


def test_four_dimensions_start_a_line_for_each_bin_of_the_first() -> None:
    actions = np.zeros((2, 3, 2, 2), int)
    actions[1, 2, 0, 1] = 2
    dimensions = [integer_dimension("a", 2), Dimension("d", HALVES), *SQUARE]
    lines = policy_map(table(actions, *dimensions)).splitlines()
    assert lines[0] == "b down, c across, one map for each a [m] and d"
    assert lines[2].split() == ["a:", "0"] * 3
    assert lines[3] == "   d: below -0.5     d: -0.5 to 0.5    d: 0.5 and above"
    assert lines[8].split() == ["a:", "1"] * 3
    assert lines[11] == "0  ← ←               ← ←               ← →"
    assert "→" not in "".join(lines[:11] + lines[12:])


def test_every_cell_of_cartpole_is_where_the_policy_says() -> None:
    task = load_task("cartpole")
    actions = np.random.default_rng(0).integers(0, 2, task.grid.size)
    body = [
        line for line in policy_map(TablePolicy.from_actions(task, actions)).splitlines() if "←" in line or "→" in line
    ]
    assert len(body) == 3 * 6
    drawn = np.array([[c for c in line if c in "←→"] for line in body]).reshape(3, 6, 3, 6)
    # Lines are (position, angle), characters along a line are (velocity, spin).
    expected = np.where(actions == 0, "←", "→").reshape(3, 3, 6, 6).transpose(0, 2, 1, 3)
    assert (drawn == expected[::-1, ::-1]).all()  # quantities grow upwards, as in pictures


def test_wide_maps_drop_the_gaps_and_number_every_tenth_column_and_are_cut_to_the_width() -> None:
    actions = np.zeros((2, 70), int)
    actions[0, 65] = 2
    policy = table(actions, integer_dimension("b", 2), integer_dimension("c", 70))
    whole = policy_map(policy).splitlines()
    assert whole[2] == "   0         10        20        30        40        50        60"
    assert whole[3:] == ["0  " + "←" * 65 + "→" + "←" * 4, "1  " + "←" * 70]
    lines = policy_map(policy, width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert [line for line in lines if line.startswith("   ")] == [
        "   0         10        20",
        "   30        40        50",
        "   60",
    ]
    assert lines[-2] == "0  " + "←" * 5 + "→" + "←" * 4


def test_a_long_count_is_folded() -> None:
    actions = np.zeros(48, int)
    actions[[7, 20, 47]] = 1, 2, 3
    policy = table(actions, integer_dimension("b", 48))
    lines = policy_map(policy, width=30).splitlines()
    assert lines[0] == "b: the number at the left plus the one above"
    assert lines[2] == "    0         10"
    assert lines[3] == "0   " + "←" * 7 + "↓" + "←" * 12
    assert lines[4] == "20  →" + "←" * 19
    assert lines[5] == "40  " + "←" * 7 + "↑"
    assert policy_map(policy, width=500).splitlines()[2] == "   0         10        20        30        40"


@pytest.mark.parametrize(
    ("labels", "symbols"),
    [
        (("left", "down", "right", "up"), "← ↓ → ↑"),
        (("Right", "Left"), "→ ←"),
        (("left", "nothing", "right"), "l n r"),
        (("push left", "push right", "coast"), "l r c"),
        (("full_left", "half_left", "none"), "f h n"),
        (("left", "left_fast"), "l f"),
        (("x1", "x2"), "1 2"),
        (("a", "A"), "a A"),
        (tuple(map(str, range(11))), "0 1 2 3 4 5 6 7 8 9 10"),
    ],
)
def test_symbols(labels: tuple[str, ...], symbols: str) -> None:
    letters = alphabet(Actuator("move", labels), np.zeros(1))
    assert [letter.name for letter in letters] == list(labels)
    assert [letter.symbol for letter in letters] == symbols.split()


def test_symbols_stay_distinct_whatever_the_names() -> None:
    letters = alphabet(Actuator("move", tuple(f"push {i}" for i in range(40))), np.zeros(1))
    assert {len(letter.symbol) for letter in letters} == {1}
    assert len({letter.symbol for letter in letters}) == 40


def test_letters_and_named_levels_have_a_key_and_arrows_and_numbers_do_not() -> None:
    engines = toy(Actuator("engine", ("nothing", "left", "main", "right")))
    lines = policy_map(table([0, 1, 2, 3], *SQUARE, task=engines)).splitlines()
    assert lines[3:] == ["0  n l", "1  m r", "", "n = nothing, l = left, m = main, r = right"]
    assert "=" not in policy_map(table([0, 1, 2, 3], *SQUARE))
    assert "=" not in policy_map(table([0, 1, 0, 0], *SQUARE, task=toy(Actuator("n", ("0", "1")))))
    # 0.1 is not a float32, which is what actions are.
    task = toy(replace(TORQUE, levels=(("back", -2.0), ("off", 0.0), ("slow", 0.1), ("forth", 2.0))))
    lines = policy_map(table([-2.0, 0.0, 0.1, 2.0], *SQUARE, task=task)).splitlines()
    assert lines[3:] == ["0  b o", "1  s f", "", "b = back, o = off, s = slow, f = forth"]


def test_each_actuator_has_its_own_map() -> None:
    task = toy(replace(TORQUE, name="hip"), replace(TORQUE, name="knee"))
    actions = np.stack([[0, 0.5, 1, 1], [-1, -1, 1, 1]], axis=1)
    hip, knee = policy_map(table(actions, *SQUARE, task=task)).split("\n\nknee:\n")
    assert hip.splitlines()[0] == "hip:"
    assert hip.splitlines()[-2:] == ["0    0 0.5", "1    1   1"]
    assert knee.splitlines()[-2:] == ["0  -1 -1", "1   1  1"]


def test_weights_show_small_ones_and_no_minus_zero() -> None:
    small = policy_map(linear("torque = 0.00012*a - 0*b - 12345.6*c"))
    assert [line.split()[1] for line in small.splitlines()[1:]] == ["0.00012", "0", "-1.235e+04", "0"]


def test_many_outputs_are_cut_into_blocks() -> None:
    task = toy(*(replace(TORQUE, name=f"joint{i}") for i in range(9)))
    policy = linear("\n".join(f"joint{i} = {i}*a" for i in range(9)), task)
    text = policy_map(policy, width=40)
    assert max(map(len, text.splitlines())) <= 40
    first, *_, last = text.split("\n\n")
    assert first.splitlines()[0].split() == ["term", "joint0", "joint1", "joint2", "joint3"]
    assert last.splitlines()[1].split() == ["a", "8"]


# --- cells in which no action is taken -------------------------------------------------------------------------------


def always(name: str, action: int) -> TablePolicy:
    task = load_task(name)
    return TablePolicy.from_actions(task, np.full(task.grid.size, action))


def test_the_lake_and_the_cliff_show_holes_and_goals() -> None:
    lake = policy_map(always("frozenlake", 1)).splitlines()
    assert lake[3:] == ["0  ↓ ↓ ↓ ↓", "1  ↓ H ↓ H", "2  ↓ ↓ ↓ H", "3  H ↓ ↓ G", "", "H = hole, G = goal"]
    cliff = policy_map(always("cliffwalking", 0)).splitlines()
    assert cliff[3:] == [*(f"{i}  " + 12 * "↑" for i in range(3)), "3  ↑CCCCCCCCCCG", "", "C = cliff, G = goal"]


def test_an_end_that_may_be_good_or_bad_is_no_goal_and_other_worlds_have_no_marks() -> None:
    names = {cell: mark.name for cell, mark in marks(always("nim", 0)).items()}
    assert names == {0: "end", 9: "never met"}
    assert marks(always("cartpole", 0)) == marks(always("blackjack", 0)) == {}
