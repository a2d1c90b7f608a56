"""How a recorded plant is shown: as text with units, on a run's page, and by `show`."""

from __future__ import annotations

import re
from pathlib import Path

from support import Line

import policygen
from policygen.plants.record import (
    PlantRecord,
    PredictedValue,
    PredictionError,
    UncertainNumber,
    WorstPrediction,
    plant_words,
)

PENDULUM = policygen.load_task("pendulum")
TEXT = """let turned = 0.05*rate
next cos = cos - turned*sin
next rate = prev(rate, 0) + fixed(0.15)*torque
start rate = uniform(-1, 1)
reward = -next(rate)^2 - 10*ends
ends = abs(rate) > 7"""


def test_lines_errors_and_uncertain_numbers_are_told() -> None:
    errors = (PredictionError("cos", 0.0123, None), PredictionError("rate", 1.0, 0.5))
    row = (PredictedValue("rate", 1.5, 2.0, -3.125), PredictedValue("cos", 0.0, 0.1, 0.2))
    worst = WorstPrediction(9, "-0.5", row)
    account = PlantRecord(TEXT, 1_234, errors, (UncertainNumber("next cos", 0.05, 0.02),), worst)
    said = list(plant_words(account, PENDULUM))
    assert said[0] == "# plant fitted to 1,234 steps"
    assert "next cos = cos - turned*sin" in said
    assert "next rate = prev(rate, 0) + fixed(0.15)*torque  # rad/s" in said
    assert "start rate = uniform(-1, 1)  # rad/s" in said
    assert [line.split() for line in said if re.match("# (cos|rate) ", line)] == [
        ["#", "cos", "0.012", "–"],
        ["#", "rate", "1", "0.5"],
        ["#", "rate", "1.5", "2", "-3.125"],
        ["#", "cos", "0", "0.1", "0.2"],
    ]
    assert "# worst prediction: step 9 of an episode, action -0.5" in said
    assert said[-1] == "# uncertain: 0.05 ± 0.02 in `next cos`"


def test_show_prints_it_below_the_policy(plant_run: Path, line: Line) -> None:
    said = line("show", plant_run)
    assert said.code == 0
    policy, _, plant = said.out.partition("# plant fitted to ")
    assert "torque = " in policy
    assert "reward = " in plant
    assert "# rate " in plant
    assert "plant" not in line("show", plant_run / "best.json").out
