"""How prompts describe a task: quantities of one kind together, and bins."""

from __future__ import annotations

import dataclasses

import pytest

import policygen
from policygen.prompts.described import grid_view, task_view
from policygen.prompts.templates import render_template
from policygen.quantities.grid import Dimension, Grid
from policygen.tasks.spaces import Actuator, Observation

pytestmark = pytest.mark.usefixtures("workplace")


def described(*observations: Observation) -> list[tuple[str, str]]:
    task = dataclasses.replace(policygen.load_task("cartpole"), observations=observations, features=(), grid=None)
    return [(one.name, one.about) for one in task_view(task)["observed"]]


def test_neighbours_whose_descriptions_differ_in_words_of_their_names_are_one_entry() -> None:
    said = described(
        Observation("torso_x_velocity", "m/s", "x-coordinate velocity of the torso (centre) (root)"),
        Observation("torso_y_velocity", "m/s", "y-coordinate velocity of the torso (centre) (root)"),
        Observation("left_tank", "m", "level in the left tank above the drain (LT1)"),
        Observation("right_tank", "m", "level in the right tank above the drain (LT2)"),
        Observation("right_pump", "m", "level in the right tank above the drain (LT2)"),
    )
    assert said == [
        ("torso_x_velocity, torso_y_velocity", "velocity of the torso (centre) (root)"),
        ("left_tank (LT1), right_tank (LT2)", "level in the ... tank above the drain"),
        ("right_pump", "level in the right tank above the drain (LT2)"),
    ]


def test_what_a_name_says_already_is_not_said_again_but_a_sign_and_a_range_are() -> None:
    assert described(
        Observation("pole_angle", about="Pole Angle, -0.4189 to 0.4189"),
        Observation("cart_velocity", about="Cart Velocity"),
        Observation("tip_goal", about="tip - goal"),
        Observation("speed", about="velocity"),
    ) == [("pole_angle", "-0.4189 to 0.4189"), ("cart_velocity", ""), ("tip_goal", "tip - goal"), ("speed", "velocity")]


def test_rates_that_say_nothing_more_are_named_after_what_changes() -> None:
    said = described(
        Observation("hip_angle", "rad", "angle between torso and thigh"),
        Observation("knee_angle", "rad", "angle between thigh and leg"),
        Observation("hip_rate", "rad/s", "angular velocity of the angle between torso and thigh"),
        Observation("knee_rate", "rad/s", "angular velocity of the angle between thigh and leg"),
        Observation("foot_rate", "rad/s", "wanted by the walker"),
    )
    assert said[1:] == [
        ("knee_angle", "angle between thigh and leg"),
        ("hip_rate, knee_rate", "rates of hip_angle to knee_angle"),
        ("foot_rate", "wanted by the walker"),
    ]


def test_three_neighbours_whose_descriptions_begin_alike_share_the_beginning() -> None:
    task = policygen.load_task("cartpole")
    where = ("front hip", "left two links", "back hip")
    acted = tuple(
        Actuator(f"a{i}", low=-1, high=1, about=f"Torque on the rotor at the {w}") for i, w in enumerate(where)
    )
    (entry,) = task_view(dataclasses.replace(task, actuators=acted))["acted"]
    assert entry.name == "a0 (front hip), a1 (left two links), a2 (back hip)"
    assert entry.about == "Torque on the rotor at the parts in brackets"
    apart = dataclasses.replace(acted[2], high=2)
    assert len(task_view(dataclasses.replace(task, actuators=(*acted[:2], apart)))["acted"]) == 3


@pytest.mark.parametrize("name", ["Ant-v5", "Humanoid-v5", "cartpole", "bipedalwalker", "Pusher-v5", "LunarLander-v3"])
def test_every_observation_and_action_is_named_once_and_in_order(name: str) -> None:
    task = policygen.load_task(name)
    view = task_view(task)
    bodies = {o.name for o in task.observations if o.derived}  # `BODY_contact_force_x (BODY: torso, aux_1)`
    for entries, names in (
        (view["observed"], task.observation_names),
        (view["acted"], [a.name for a in task.actuators]),
    ):
        told = " ".join(entry.name for entry in entries).replace("(", " ").replace(")", " ").replace(",", " ").split()
        plain = [one for one in names if one not in bodies]
        assert [word for word in told if word in plain] == plain


def test_a_bin_for_each_integer_is_told_in_one_line() -> None:
    stock = Dimension("stock", tuple(i - 19.5 for i in range(40)))
    floor = Dimension("floor", tuple(i + 2.5 for i in range(6)))
    count = Dimension("count", (0.5, 1.5, 2.5))
    speed = Dimension("speed", (-0.5, 0.5))
    show = {"details": 8000}
    text = render_template("_grid", {"grid": grid_view(Grid((stock, floor, count, speed))), "show": show})
    beyond = "the first and the last bin also hold what lies beyond"
    assert text.splitlines()[2:] == [
        f"- stock: bin i is the value i - 20, 0 to 40; {beyond}",
        f"- floor: bin i is the value i + 2, 0 to 6; {beyond}",
        "- count: bin i is the value i, 0 to 3",
        "- speed: 0 (-0.5) 1 (0.5) 2",
    ]
