"""The filters of the templates, applied to played episodes."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from searched import searched
from support import Written, fenced

from policygen.episodes.evidence import shortfall
from policygen.episodes.signals import rhythms
from policygen.prompts.evidence import EpisodeView
from policygen.prompts.filters import FILTERS
from policygen.prompts.render import template_variables

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture(scope="module")
def swing() -> EpisodeView:
    """A pendulum that swings for 200 steps."""
    context, config = searched("pendulum", "linear", iterations=2)
    view: EpisodeView = template_variables(context, config)["best_episodes"][0]
    return view


@pytest.fixture(scope="module")
def fall() -> EpisodeView:
    """A cart that drifts away."""
    reply = fenced("left = 0", "right = spin")
    context, config = searched("cartpole", "linear", Written([reply]), iterations=1)
    view: EpisodeView = template_variables(context, config)["worst_episodes"][0]
    return view


def steps(rows: list[dict[str, Any]]) -> list[int]:
    return [row["step"] for row in rows]


@pytest.mark.parametrize(("where", "first"), [("start", 0), ("middle", 95), ("end", 190)])
def test_a_window_is_consecutive_steps_with_all_columns(swing: EpisodeView, where: str, first: int) -> None:
    rows = FILTERS["window"](swing, 10, where)
    assert steps(rows) == list(range(first, first + 10))
    assert all(row[name] == swing.columns[name][row["step"]] for row in rows for name in swing.columns)
    assert steps(FILTERS["window"](swing, 1_000, where)) == list(range(200))


def test_the_window_of_a_fault_is_around_the_first_anomaly(fall: EpisodeView) -> None:
    shown = steps(FILTERS["window"](fall, 12, "fault"))
    assert len(shown) == 12
    assert shown[0] == min(fall.length - 12, fall.anomaly.step - 8)


def test_the_window_of_a_fault_without_an_anomaly_is_where_losses_begin_or_the_reward_is_least(
    swing: EpisodeView,
) -> None:
    assert swing.anomaly is None
    assert swing.ending == "cut by the time limit"
    rewards = np.array(swing.columns["reward"])
    sums = [rewards[i : i + 20].sum() for i in range(200 - 20 + 1)]
    first = steps(FILTERS["window"](swing, 20, "fault"))[0]
    assert sums[first] == pytest.approx(min(sums))
    lost = [*np.random.default_rng(0).normal(0, 0.3, 120), *np.random.default_rng(1).normal(1, 0.3, 80)]
    view = dataclasses.replace(swing, lost=lost, shortfall=shortfall(np.array(lost)))
    first = steps(FILTERS["window"](view, 20, "fault"))[0]
    assert abs(first + 13 - 120) <= 2  # two thirds of the rows precede the rise


def test_losses_from_the_first_step_on_begin_there(swing: EpisodeView) -> None:
    rng = np.random.default_rng(0)
    lost = [*rng.normal(5, 0.3, 30), *rng.normal(0.01, 0.3, 170)]
    view = dataclasses.replace(swing, lost=lost, shortfall=shortfall(np.array(lost)))
    assert steps(FILTERS["window"](view, 16, "fault"))[0] == 0


def test_a_coarse_view_of_a_part_stays_in_its_fifth_of_the_episode(swing: EpisodeView) -> None:
    assert steps(FILTERS["coarse"](swing, 3)) == [0, 100, 199]
    assert steps(FILTERS["coarse"](swing, 3, 1)) == [40, 60, 79]


def test_columns_keep_what_is_observed_what_decides_and_what_went_wrong(fall: EpisodeView) -> None:
    everything = FILTERS["columns"](fall, 40)
    assert everything == ["step", "position", "velocity", "angle", "spin", *fall.outputs, "reward"]
    few = FILTERS["columns"](fall, 2)
    assert {*fall.traced[:2], fall.anomaly.name} == set(few) - {"step", "action", "reward"}


def of(view: EpisodeView, **columns: Any) -> EpisodeView:
    """Return the view of an episode with these columns instead, all of them traced."""
    length = len(next(iter(columns.values())))
    rest = {"step": list(range(length)), "reward": [0.0] * length}
    return dataclasses.replace(
        view,
        columns={**rest, **{name: list(values) for name, values in columns.items()}},
        length=length,
        traced=tuple(columns),
        outputs=(),
        relevant=(),
    )


def test_the_window_of_a_change_is_around_the_jump_of_a_set_point(swing: EpisodeView) -> None:
    noise = np.random.default_rng(0).normal(size=100)
    setpoint = np.where(np.arange(100) < 20, 1.0, np.where(np.arange(100) < 60, 2.0, 5.0))
    view = of(swing, level=noise, setpoint=setpoint, switch=np.repeat([0.0, 1.0, 0.0, 1.0], 25) / 9 + noise)
    assert FILTERS["most_changed"](view, 12) == "setpoint"
    assert steps(FILTERS["window"](view, 12, "change")) == list(range(57, 69))
    assert FILTERS["condensed"](dataclasses.replace(view, still={"level": 0.0}), 12, "change")[0]["first"] == 57
    words = of(swing, level=noise, gear=["low"] * 90 + ["high"] * 10)
    assert FILTERS["most_changed"](words, 8) == "gear"
    assert steps(FILTERS["window"](words, 8, "change")) == list(range(88, 96))


def test_without_a_set_point_it_is_where_what_the_reward_depends_on_changes_most(swing: EpisodeView) -> None:
    rng = np.random.default_rng(0)
    wild, calm = rng.normal(size=100), np.sin(np.arange(100) / 30) + 0.001 * rng.normal(size=100)
    calm[70:] += 0.2 * np.arange(30) * (np.arange(30) < 10)
    view = of(swing, wild=wild, calm=calm)
    told = dataclasses.replace(view, relevant=("calm",))
    assert FILTERS["most_changed"](told, 10) == "calm"
    first = steps(FILTERS["window"](told, 10, "change"))[0]
    moved = [np.ptp(calm[i : i + 10]) for i in range(91)]
    assert first == int(np.argmax(moved))
    assert FILTERS["most_changed"](view, 10) == "wild, calm"
    assert steps(FILTERS["window"](view, 500, "change")) == list(range(100))
    resting = of(swing, wild=np.zeros(9))
    assert FILTERS["most_changed"](resting, 4) == ""
    assert len(FILTERS["window"](resting, 4, "change")) == 4


@pytest.mark.parametrize("rows", [80, 30, 29, 5, 1])
def test_the_first_steps_of_a_short_cycle_stand_alone_and_a_long_one_is_shown_in_equal_parts(
    swing: EpisodeView, rows: int
) -> None:
    hop = np.maximum(np.sin(2 * np.pi * np.arange(400) / 60), 0) ** 3
    signals, reference = rhythms({"hop": hop}, {})
    view = dataclasses.replace(of(swing, hop=hop), signals=signals, reference=reference)
    shown = [(row["first"], row["last"]) for row in FILTERS["condensed"](view, rows, "cycle")]
    if rows >= 30:
        assert shown == [(170 + i, 170 + i) for i in range(min(rows, 60))]
        return
    assert len(shown) == rows
    assert (shown[0][0], shown[-1][1]) == (170, 229)
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(shown))
    assert {last - first + 1 for first, last in shown} <= {60 // rows, 60 // rows + 1}


def test_within_keeps_whole_lines_and_counts_the_others() -> None:
    within = FILTERS["within"]
    assert within(["abc", "defgh", "i"], 100) == ["abc", "defgh", "i"]
    assert within(["abc", "defgh", "i"], 5) == ["abc", "... (2 more left out)"]
    assert within(["abcdef", "g"], 5) == ["abcde ...", "... (1 more left out)"]
    assert within(["abc"], 0) == []


def test_of_many_moves_those_that_changed_most_for_their_size_are_shown() -> None:
    tuned = {"let lag": [(0.5, 0.51)], "left": [(1.0, -1.0), (1000.0, 1010.0)], "right": [(0.0, 3.0)]}
    assert FILTERS["moves"](tuned, 4) == "let lag 0.5 to 0.51; left 1 to -1, 1000 to 1010; right 0 to 3"
    assert FILTERS["moves"](tuned) == "let lag 0.5 to 0.51; left 1 to -1; right 0 to 3"
    assert FILTERS["moves"](tuned, 2) == "left 1 to -1; right 0 to 3"
    assert FILTERS["moves"]({}, 1) == ""


def test_a_list_in_a_text_is_shortened_to_whole_items_and_says_how_many_are_left_out() -> None:
    items = FILTERS["items"]
    assert items("ab; cd; ef", 10) == "ab; cd; ef"
    assert items("ab; cd; ef", 9) == "ab; cd; and 1 more"
    assert items("abcdefgh; cd; ef", 7) == "abc ...; and 2 more"
    assert items("ab, cd", 5, ", ", 3) == "ab, and 4 more"


def test_runs_join_consecutive_rows_that_agree() -> None:
    rows = [{"step": i, "cell": cell} for i, cell in enumerate("aabaaa")]
    joined = FILTERS["runs"](rows, "cell")
    assert [(row["cell"], row["steps"]) for row in joined] == [("a", "0-1"), ("b", "2"), ("a", "3-5")]
    assert [row["count"] for row in joined] == [2, 1, 3]
    assert [row["steps"] for row in FILTERS["runs"](rows, "step")] == ["0", "1", "2", "3", "4", "5"]
    assert rows[0] == {"step": 0, "cell": "a"}


def test_tables_and_lines_hold_the_named_columns(swing: EpisodeView) -> None:
    rows = FILTERS["window"](swing, 3, "start")
    names = ["step", *swing.traced, "reward"]
    table = FILTERS["table"](rows, names).splitlines()
    assert table[0] == "| " + " | ".join(names) + " |"
    assert table[1] == "|" + "---|" * len(names)
    assert len(table) == 5
    lines = [line.split(" ") for line in FILTERS["lines"](rows, names).splitlines()]
    assert [len(line) for line in lines] == [len(names)] * 3
    for line, row in zip(lines, rows, strict=True):
        for text, name in zip(line, names, strict=True):
            largest = max(abs(r[name]) for r in rows)
            assert float(text) == pytest.approx(row[name], abs=largest / 80)  # half of one of at least 40 units


def test_numbers_of_a_column_end_at_the_decimal_place_that_the_largest_needs() -> None:
    rows = [{"a": 39.04, "b": 0.0512, "c": 1234.5}, {"a": -0.123, "b": 0.1, "c": 1.0}]
    assert FILTERS["lines"](rows, ["a", "b", "c", "d"]) == "39 0.051 1230 -\n-0.1 0.1 0 -"
    narrow = [{"a": 0.4123, "b": 44_021.7}, {"a": 0.4371, "b": 44_123.2}]  # small changes of large numbers
    assert FILTERS["lines"](narrow, ["a", "b"]) == "0.412 44022\n0.437 44123"
    codes = [{"a": 132.0, "b": 98_765.0}, {"a": 7.0, "b": -590.0}]
    assert FILTERS["lines"](codes, ["a", "b"]) == "132 98765\n7 -590"
    extremes = [{"a": 5e-324, "b": 1e300, "c": float("inf")}, {"a": 0.0, "b": -2.0, "c": 0.123456}]
    assert FILTERS["lines"](extremes, ["a", "b", "c"]) == "5e-324 1e+300 inf\n0 0 0.1235"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.23456, "1.23"),
        (1234567.0, "1230000"),
        (1023.0, "1023"),
        (-99_999.0, "-99999"),
        (1023.4, "1020"),
        (0.00001234, "1.23e-05"),
        (-0.0, "0"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (7, "7"),
        (True, "yes"),
        (False, "no"),
        ("left", "left"),
        ((1, 2.5), "1,2.5"),
        (np.float32(0.1), "0.1"),
        (np.int64(3), "3"),
        (None, "-"),
    ],
)
def test_brief_is_a_value_in_few_characters(value: Any, said: str) -> None:
    assert FILTERS["brief"](value) == said
    assert FILTERS["brief"](1.23456, 5) == "1.2346"
