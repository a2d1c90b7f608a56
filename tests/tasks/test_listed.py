"""Names from lists in plain documentation, and what is no list."""

from __future__ import annotations

import time

import pytest
from gymnasium import spaces
from tasks.test_discovery import Sampled

from policygen.tasks.discovery import task_of
from policygen.tasks.documentation import listed


@pytest.mark.parametrize(
    ("documentation", "names"),
    [
        ("A tank.\n\nObservation: level (m, measured), setpoint (m).\nAction: valve, heater", "level setpoint"),
        ("Observes level (m), the set point (m) and valve position [0 to 1].", "level set_point valve_position"),
        ("The observation is [x, x_dot, theta].", "x x_dot theta"),
        ("Observation space: Box(2): level (m), setpoint (m)", "level setpoint"),
        ("Observation:\n    level (m), flow rate (m^3/s),\n    setpoint (m)\nAction: pump", "level flow_rate setpoint"),
        ("Observations:\n- `level` (m): what is measured\n- `setpoint` (m)\n\nActions: pump", "level setpoint"),
        ("Observes the temperature in degC, the power in W", "temperature power"),
    ],
)
def test_a_list_of_observations_names_them(documentation: str, names: str) -> None:
    found = listed(documentation, "observation", len(names.split()))
    assert [item.name for item in found] == names.split()
    assert listed(documentation, "observation", len(names.split()) + 1) == []


def test_units_and_meanings_stand_beside_the_names() -> None:
    text = "Observation: level (m, measured), speed in rad/s, load (unknown to you). Action: valve opening (0 to 1)"
    assert [tuple(item) for item in listed(text, "observation", 3)] == [
        ("level", "m", "measured"),
        ("speed", "rad/s", ""),
        ("load", "", "unknown to you"),
    ]
    assert [tuple(item) for item in listed(text, "action", 1)] == [("valve_opening", "", "0 to 1")]


@pytest.mark.parametrize(
    "text",
    [
        "The observation is a `ndarray` with shape `(2,)`, float32.",
        "The state is a vector of two numbers: those that you expect, and those that you do not",
        "Observation: level (m), level (cm)",
        "Observation: import (m), x[0] (m)",
        "Observation: level (m), setpoint (m), and much more",
        "",
    ],
)
def test_a_sentence_is_no_list(text: str) -> None:
    assert listed(text, "observation", 2) == []


@pytest.mark.parametrize("text", ["Observation ", "Observation: (", "state: a, ", "Observation:\n- a ( and ", " and ["])
def test_a_hostile_documentation_is_read_in_no_time(text: str) -> None:
    begun = time.process_time()
    assert listed("Observation: " + text * 20_000, "observation", 2) == []
    assert time.process_time() - begun < 5


class Tank(Sampled):
    """A tank that is filled.

    Observation: level (m, measured), setpoint (m).
    Action: inflow (m^3/s).
    """

    def __init__(self) -> None:
        super().__init__(spaces.Box(-9, 9, (2,)), spaces.Box(-1, 1, (1,)))


@pytest.mark.usefixtures("quickly_discovered")
def test_an_environment_whose_docstring_lists_its_numbers_has_them_by_name() -> None:
    task = task_of(Tank)
    assert [(o.name, o.unit) for o in task.observations] == [("level", "m"), ("setpoint", "m")]
    assert [(a.name, a.unit) for a in task.actuators] == [("inflow", "m^3/s")]
    assert "named after the environment's documentation: level, setpoint" in " ".join(task.assumed)
