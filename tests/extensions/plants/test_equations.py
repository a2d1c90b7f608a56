"""Plants as values: their text, their numbers, and what they compute."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import LINE, PENDULUM, equations, plant

from policygen.errors import PolicyError
from policygen.extensions.plants.equations import Equations
from policygen.extensions.plants.plant import FITTED_PLANT, PLANT, Plant, PlantRecord, PredictionError
from policygen.runs.attempt import Attempt
from policygen.runs.logbook import attempt_from_record, attempt_to_record
from policygen.tasks.spaces import Observation

EVERY_KIND = """
let later = rate + 0.75*sin + 0.15*torque
next rate = clip(later, -8, 8) + prev(torque, 1)*0 + prev(later)*0
next cos = cos
start rate = uniform(-1, 1)
start sin = normal(0, 0.1)
reward = -(next(rate)^2 + next(energy)) - 5*ends + torque
ends = rate > 8 or energy < -100
"""


def test_every_kind_of_line_is_written_as_it_is_read() -> None:
    stated = plant(EVERY_KIND)
    assert [line.split(" = ")[0] for line in stated.to_text().splitlines()] == [
        "let later",
        *("next rate", "next cos", "start rate", "start sin", "reward", "ends"),
    ]
    assert plant(stated.to_text()) == stated
    fitted = Equations(PENDULUM, stated)
    assert plant(fitted.with_values(fitted.values * 1.0000001).to_text()).next[0][0] == "rate"


def test_what_a_reply_leaves_out_stays() -> None:
    old = plant("let a = rate\nnext rate = a\nnext cos = cos\nreward = 1\nends = rate > 8")
    new = plant("let a = 2*rate\nnext rate = a + torque\nstart rate = normal(0, 1)\nreward = 2")
    assert old.revised_by(new).to_text().splitlines() == [
        *("let a = 2*rate", "next rate = a + torque", "next cos = cos", "start rate = normal(0, 1)"),
        *("reward = 2", "ends = rate > 8"),
    ]
    assert old.revised_by(Plant()) == old == Plant().revised_by(old)


def test_a_revised_quantity_may_read_a_new_one_and_one_that_nothing_reads_falls_away() -> None:
    old = Plant(lets=(("pull", "0.75*sin"), ("gone", "2*rate")), next=(("rate", "rate + pull + gone"),))
    new = Plant(
        lets=(("grip", "0.1*rate"), ("pull", "0.75*sin - grip + prev(late)"), ("late", "2*sin")),
        next=(("rate", "rate + pull"),),
    )
    revised = old.revised_by(new)
    assert [name for name, _ in revised.lets] == ["grip", "pull", "late"]
    assert Equations(PENDULUM, revised).remembered == ("late",)
    hidden = plant("hidden push\nnext push = 0.9*push\nstart push = normal(0, 2)\nnext rate = rate + push")
    assert hidden.revised_by(plant("next cos = 1")).hidden == ("push",)
    assert hidden.revised_by(plant("hidden push\nnext push = push\nnext rate = rate + push")).starts == hidden.starts


def test_exponents_pi_fixed_numbers_and_the_end_are_not_fitted() -> None:
    stated = "next rate = 2*rate^3 + pi*torque + fixed(7)*sin\nreward = -4*rate\nends = rate > 5"
    made = equations(stated)
    assert made.values.tolist() == [2, -4] or made.values.tolist() == [2, 4]
    moved = made.with_values(made.values * 3)
    assert dict(moved.next)["rate"] == "6*rate^3 + pi*torque + fixed(7)*sin"
    assert (moved.reward, moved.ends) == ("-12*rate", "rate > 5")


def test_a_number_with_a_range_is_fitted_within_it() -> None:
    made = equations("next rate = tune(1, 0, 2)*rate + tune(-1, -1, 0)*torque^tune(2, 1, 3) + 5*sin")
    assert made.values.tolist() == [1, -1, 2, 5]
    assert made.limits.tolist() == [[0, -1, 1, -np.inf], [2, 0, 3, np.inf]]
    moved = dict(made.with_values(made.values * -3).next)["rate"]
    assert moved == "tune(0, 0, 2)*rate + tune(0, -1, 0)*torque^tune(1, 1, 3) - 15*sin"


def test_what_is_remembered_is_nothing_at_first_and_then_of_the_step_before() -> None:
    made = equations("let twice = 2*x\nnext x = prev(u) + 10*prev(twice, 3)", LINE)
    assert made.remembered == ("twice", "u")
    (first,), memory = made.step([1.0], [np.nan, np.nan], [0.5], made.values)
    (second,), memory = made.step([first], memory, [0.25], made.values)
    assert (float(first), float(second)) == (30.0, 0.5 + 10 * 2.0)
    assert [float(value) for value in memory] == [60.0, 0.25]


@pytest.mark.parametrize(
    ("ends", "inside", "outside"), [("x > 2", 1, 3), ("2 >= x", 3, 1), ("abs(x) > 2 or x < -1", 0, -1.5)]
)
def test_nearness_to_the_end_is_positive_where_an_episode_ends(ends: str, inside: float, outside: float) -> None:
    nearness = equations(f"ends = {ends}", LINE).nearness_to_end
    assert float(nearness([np.array(inside)])[0]) < 0 < float(nearness([np.array(outside)])[0])
    for no_bound in ("x", "1", "x == 2", "x > prev(x)", "not x > 2"):
        assert equations(f"ends = {no_bound}", LINE).nearness_to_end is None


def test_an_observation_called_ends_is_that_observation() -> None:
    named = Plant(next=(("ends", "ends + u"),), reward="2*ends")
    task = replace(LINE, observations=(Observation("ends"), Observation("reward"), Observation("next")))
    made = Equations(task, named)
    columns = list(np.array([[3.0], [5.0], [7.0]]))
    paid, _ = made.outcome(columns, [], [np.array([1.0])], made.values, columns)
    assert float(np.ravel(paid)[0]) == 6.0


# --- in the log of a run ---------------------------------------------------------------------------------------------

ACCOUNT = PlantRecord("next rate = rate", 7, (PredictionError("rate", 0.5, None),))


def recorded() -> dict[str, Any]:
    attempt = Attempt(1, None, None, notes={PLANT.key: plant(EVERY_KIND), FITTED_PLANT.key: ACCOUNT})
    record: dict[str, Any] = json.loads(json.dumps(attempt_to_record(attempt)))
    return record


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("plant", "next", [["rate", "import os"]]),
        ("plant", "lets", [["a", "b"], ["b", "a"]]),
        ("plant", "reward", "(" * 5000),
        ("fitted_plant", "errors", [["rate"]]),
    ],
)
def test_a_damaged_plant_in_the_log_is_refused_in_one_sentence(part: str, name: str, value: object) -> None:
    record = recorded()
    read_back = attempt_from_record(record, PENDULUM)
    assert (PLANT.of(read_back), FITTED_PLANT.of(read_back)) == (plant(EVERY_KIND), ACCOUNT)
    record["notes"][part][name] = value
    with pytest.raises(PolicyError) as refused:
        attempt_from_record(record, PENDULUM)
    assert len(str(refused.value).splitlines()) == 1
