"""The text maps: each character stands where its cell is, and every label says what it should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policygen.extensions.plots.maps import MOST_CELLS, action_grids, alphabet, cell_texts, definitions, policy_map
from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension, Grid, integers
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Actuator, Observation
from policygen.tasks.task import PolicyKind, Task


def a_task(*actuators: Actuator, names: str = "abcdef") -> Task:
    """A task that is never played."""
    kind = "box" if not actuators[0].is_choice else "discrete" if len(actuators) == 1 else "multidiscrete"
    observations = tuple(Observation(name, unit="m" if name == "a" else "") for name in names)
    return Task("toy", "Toy-v0", observations, actuators, kind, 10)


MOVES = Actuator("move", ("left", "down", "right", "up"))
HALVES = (-0.5, 0.5)


def table(task: Task, actions: object, *dimensions: Dimension) -> TablePolicy:
    return TablePolicy.from_actions(task, np.asarray(actions), Grid(dimensions))


def linear(task: Task, text: str) -> LinearPolicy:
    policy = parse(text, task, "linear").policy
    assert isinstance(policy, LinearPolicy)
    return policy


def test_two_counted_dimensions() -> None:
    policy = table(a_task(MOVES), [0, 1, 2, 3, 0, 0], integers("b", 2), integers("c", 3))
    assert policy_map(policy).splitlines() == [
        "b down, c across",
        "",
        "   0 1 2",
        "0  ← ↓ →",
        "1  ↑ ← ←",
    ]


def test_bins_of_real_quantities_are_labelled_and_numbered() -> None:
    policy = table(a_task(MOVES), [[0, 0, 2], [1, 1, 1], [3, 3, 3]], Dimension("a", HALVES), Dimension("b", HALVES))
    assert policy_map(policy).splitlines() == [
        "a [m] up, b across",
        "b 0: below -0.5, 1: -0.5 to 0.5, 2: 0.5 and above",
        "",
        "                  0 1 2",
        "2: 0.5 and above  ↑ ↑ ↑",
        "1: -0.5 to 0.5    ↓ ↓ ↓",
        "0: below -0.5     ← ← →",
    ]


def test_three_dimensions_lie_side_by_side_while_the_width_lasts() -> None:
    actions = np.zeros((3, 2, 2), int)
    actions[2, 0, 1] = 3
    policy = table(a_task(MOVES), actions, Dimension("a", HALVES), integers("b", 2), integers("c", 2))
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
    dimensions = [integers("a", 2), Dimension("b", HALVES), integers("c", 2), integers("d", 2)]
    lines = policy_map(table(a_task(MOVES), actions, *dimensions)).splitlines()
    assert lines[0] == "c down, d across, one map for each a [m] and b"
    assert lines[2].split() == ["a:", "0"] * 3
    assert lines[3] == "   b: below -0.5     b: -0.5 to 0.5    b: 0.5 and above"
    assert lines[8].split() == ["a:", "1"] * 3
    assert lines[11] == "0  ← ←               ← ←               ← →"
    assert "→" not in "".join(lines[:11] + lines[12:])


def test_every_cell_of_cartpole_is_where_the_policy_says() -> None:
    task = load_task("cartpole")
    assert task.grid is not None
    actions = np.random.default_rng(0).integers(0, 2, task.grid.size)
    body = [
        line for line in policy_map(TablePolicy.from_actions(task, actions)).splitlines() if "←" in line or "→" in line
    ]
    assert len(body) == 3 * 6
    drawn = np.array([[c for c in line if c in "←→"] for line in body]).reshape(3, 6, 3, 6)
    # Lines are (position, angle), characters along a line are (velocity, spin).
    expected = np.where(actions == 0, "←", "→").reshape(3, 3, 6, 6).transpose(0, 2, 1, 3)
    assert (drawn == expected[::-1, ::-1]).all()  # quantities grow upwards, as in pictures


def test_more_than_four_dimensions_have_no_map() -> None:
    policy = table(a_task(MOVES), np.zeros(32, int), *[integers(name, 2) for name in "abcde"])
    assert policy_map(policy) == ""


def test_a_table_too_large_to_read_has_no_map() -> None:
    side = int(MOST_CELLS**0.5) + 1
    assert policy_map(table(a_task(MOVES), np.zeros(side * side, int), integers("a", side), integers("b", side))) == ""


def test_wide_maps_drop_the_gaps_and_number_every_tenth_column() -> None:
    actions = np.zeros((2, 25), int)
    actions[1, 12] = 2
    lines = policy_map(table(a_task(MOVES), actions, integers("b", 2), integers("c", 25))).splitlines()
    assert lines[2] == "   0         10        20"
    assert lines[3] == "0  " + "←" * 25
    assert lines[4] == "1  " + "←" * 12 + "→" + "←" * 12


def test_maps_wider_than_the_terminal_are_cut() -> None:
    actions = np.zeros((2, 70), int)
    actions[0, 65] = 2
    lines = policy_map(table(a_task(MOVES), actions, integers("b", 2), integers("c", 70)), width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert [line for line in lines if line.startswith("   ")] == [
        "   0         10        20",
        "   30        40        50",
        "   60",
    ]
    assert lines[-2] == "0  " + "←" * 5 + "→" + "←" * 4


def test_one_dimension_is_a_list() -> None:
    policy = table(a_task(MOVES), [0, 2, 3], Dimension("a", HALVES))
    assert policy_map(policy).splitlines() == [
        "a [m] down",
        "",
        "0: below -0.5     ←",
        "1: -0.5 to 0.5    →",
        "2: 0.5 and above  ↑",
    ]


def test_a_long_count_is_folded() -> None:
    actions = np.zeros(48, int)
    actions[[7, 20, 47]] = 1, 2, 3
    policy = table(a_task(MOVES), actions, integers("b", 48))
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
    assert letters is not None
    assert [letter.name for letter in letters] == list(labels)
    assert [letter.symbol for letter in letters] == symbols.split()


def test_symbols_stay_distinct_whatever_the_names() -> None:
    letters = alphabet(Actuator("move", tuple(f"push {i}" for i in range(40))), np.zeros(1))
    assert letters is not None
    assert len({letter.symbol for letter in letters}) == 40
    assert all(len(letter.symbol) == 1 for letter in letters)


def test_letters_have_a_key_and_arrows_do_not() -> None:
    engines = a_task(Actuator("engine", ("nothing", "left", "main", "right")))
    dimensions = [integers("b", 2), integers("c", 2)]
    lines = policy_map(table(engines, [0, 1, 2, 3], *dimensions)).splitlines()
    assert lines[-1] == "n = nothing, l = left, m = main, r = right"
    assert lines[3:5] == ["0  n l", "1  m r"]
    assert "=" not in policy_map(table(a_task(MOVES), [0, 1, 2, 3], *dimensions))
    assert "=" not in policy_map(table(a_task(Actuator("n", ("0", "1"))), [0, 1, 0, 0], *dimensions))


TORQUE = Actuator("torque", low=-2.0, high=2.0, levels=(("back", -2.0), ("off", 0.0), ("slow", 0.1), ("forth", 2.0)))


def test_named_levels_are_letters() -> None:
    # 0.1 is not a float32, which is what actions are.
    policy = table(a_task(TORQUE), [-2.0, 0.0, 0.1, 2.0], integers("b", 2), integers("c", 2))
    lines = policy_map(policy).splitlines()
    assert lines[3:5] == ["0  b o", "1  s f"]
    assert lines[-1] == "b = back, o = off, s = slow, f = forth"


def test_numbers_without_a_name_are_numbers() -> None:
    policy = table(a_task(TORQUE), [-2.0, -0.0, 0.123456, 1.5], integers("b", 2), integers("c", 2))
    assert policy_map(policy).splitlines() == [
        "b down, c across",
        "",
        "       0     1",
        "0     -2     0",
        "1  0.123   1.5",
    ]


def test_each_actuator_has_its_own_map() -> None:
    task = a_task(replace(TORQUE, name="hip", levels=()), replace(TORQUE, name="knee", levels=()))
    actions = np.stack([[0, 0.5, 1, 1], [-1, -1, 1, 1]], axis=1)
    hip, knee = policy_map(table(task, actions, integers("b", 2), integers("c", 2))).split("\n\nknee:\n")
    assert hip.splitlines()[0] == "hip:"
    assert hip.splitlines()[-2:] == ["0    0 0.5", "1    1   1"]
    assert knee.splitlines()[-2:] == ["0  -1 -1", "1   1  1"]


def test_cell_texts_keep_the_shape() -> None:
    policy = table(a_task(MOVES), [0, 1, 2, 3, 0, 0], integers("b", 2), integers("c", 3))
    ((actuator, actions),) = action_grids(policy)
    assert actuator is MOVES
    assert cell_texts(actions, alphabet(actuator, actions)).tolist() == [["←", "↓", "→"], ["↑", "←", "←"]]


def test_weights_of_a_choice() -> None:
    policy = linear(a_task(Actuator("push", ("left", "right"))), "left = 0\nright = 2*a - 0.25*b + tanh(3*a*b) + 1.5")
    assert policy_map(policy).splitlines() == [
        "term          left  right",
        "a                0      2",
        "b                0  -0.25",
        "tanh(3*a*b)      0      1",
        "constant         0    1.5",
    ]


def test_weights_of_numbers_show_small_ones_and_no_minus_zero() -> None:
    policy = linear(a_task(TORQUE), "torque = 0.00012*a - 0*b - 12345.6*c")
    assert policy_map(policy).splitlines() == [
        "term          torque",
        "a            0.00012",
        "b                  0",
        "c         -1.235e+04",
        "constant           0",
    ]


def test_many_outputs_are_cut_into_blocks() -> None:
    task = a_task(*(replace(TORQUE, name=f"joint{i}", levels=()) for i in range(9)))
    policy = linear(task, "\n".join(f"joint{i} = {i}*a" for i in range(9)))
    text = policy_map(policy, width=40)
    assert max(map(len, text.splitlines())) <= 40
    first, *_, last = text.split("\n\n")
    assert first.splitlines()[0].split() == ["term", "joint0", "joint1", "joint2", "joint3"]
    assert last.splitlines()[1].split() == ["a", "8"]


def test_an_unknown_kind_has_no_map() -> None:
    class Other(Policy):
        kind = "other"
        act_columns = act_one = _act_on = act_on_quantities = None  # type: ignore[assignment]
        _to_text = _to_record = _from_record = names_read = None  # type: ignore[assignment]

    assert policy_map(Other(a_task(MOVES), ())) == ""


# --- definitions -----------------------------------------------------------------------------------------------------


def defined(text: str, task: Task, kind: PolicyKind) -> list[str]:
    policy = parse(text, task, kind).policy
    assert policy is not None
    return definitions(policy)


def test_the_features_a_policy_rests_on_are_defined_the_tasks_and_its_own() -> None:
    actuator = Actuator("push", ("left", "right"))
    task = replace(a_task(actuator), features=(("far", "a + b"), ("near", "c"), ("idle", "d")))
    text = "let twice = 2*far\nlet spare = near\nleft = 0\nright = tanh(twice) - e"
    assert defined(text, task, "linear") == ["far = a + b", "twice = 2*far"]
    table = "let twice = 2*far\nbins twice: 0\n| twice | push |\n|---|---|\n| 0 | left |\n| * | right |"
    assert defined(table, task, "table") == ["far = a + b", "twice = 2*far"]
    assert defined("left = a\nright = b", task, "linear") == []
