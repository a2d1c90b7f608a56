"""Plants found by regression."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import LINE, PENDULUM, driven, episode, played, policy, swings

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plants.equations import Equations
from policygen.extensions.plants.fit import FittedPlant, Transitions, with_errors
from policygen.extensions.plants.identify import identify_plant
from policygen.extensions.plants.plant import Plant, known_plant
from policygen.policies.parse import parse
from policygen.tasks.load import load_task
from policygen.tasks.spaces import Actuator, Observation
from policygen.tasks.task import Task


def judged(found: Plant, data: Transitions) -> FittedPlant:
    """The plant with the errors of its predictions."""
    made = Equations(data.task, found)
    return with_errors(made, made.values[None], data)


def test_the_pendulum_is_found() -> None:
    found = identify_plant(swings(), known_plant(PENDULUM))
    lines = dict(found.next)
    assert lines["cos"].startswith("cos(angle_cos + ")
    assert lines["sin"].startswith("sin(angle_cos + ")
    parsed = parse(f"torque = 0*sin\n{found.to_text()}", PENDULUM, "linear").notes["plant"]
    assert (parsed.next, set(parsed.lets)) == (found.next, set(found.lets))
    assert judged(found, swings()).error.max() < 0.02
    # The terms of the documentation, and no other; rates beyond 8 are cut.
    (later,) = (text for name, text in found.lets if name == "later_rate")
    assert later == "min(rate + 0.75*sin + 0.15*torque, 8)"
    assert "prev(" not in found.to_text(), "there is no delay"


def test_the_cart_and_pole_are_predicted_20_steps_ahead() -> None:
    task = load_task("cartpole")
    balanced = policy("left = 0\nright = angle + 0.3*spin + 0.05*velocity", task)
    data = Transitions.of(task, [*played(task, range(8)), *played(replace(task, max_steps=60), (9,), balanced)])
    found = identify_plant(data, known_plant(task))
    assert judged(found, data).error_ahead.max() < 1e-3
    assert (found.reward, found.ends) == (task.reward, task.ends)
    assert "prev(" not in found.to_text(), "there is no delay"


def test_ends_and_rewards_that_nobody_stated_are_learned() -> None:
    task = load_task("cartpole")
    found = identify_plant(Transitions.of(task, played(task, range(20))), Plant())
    assert found.reward == "1"
    bounds = [float(test.split()[-1]) for test in found.ends.split(" or ") if test.startswith("angle")]
    assert len(bounds) == 2
    assert all(abs(abs(bound) - 0.2095) < 0.03 for bound in bounds)


def test_the_wall_of_the_mountain_car_is_found() -> None:
    task = load_task("mountaincar-continuous")
    wild = policy("force = where(velocity < 0, -1, 0.4)", task)
    data = Transitions.of(replace(task, max_steps=400), played(replace(task, max_steps=400), (1, 2, 3), wild))
    found = identify_plant(data, known_plant(task))
    assert (data.after[:, 0] < -1.1999).sum() >= 3
    assert re.search(r"(max|clip)\(.*-1\.2", found.to_text())
    assert "prev(" not in found.to_text(), "there is no delay"


@pytest.mark.parametrize("delay", [0, 3])
def test_delayed_actions_are_found(delay: int) -> None:
    found = identify_plant(driven(200, delay=delay, noise=0.02), known_plant(LINE))
    lags = ["u", *(f"u_{k}" for k in range(1, delay + 1))]
    assert found.lets == tuple((late, f"prev({before})") for before, late in itertools.pairwise(lags))
    assert f"*{lags[-1]}" in dict(found.next)["x"]
    assert judged(found, driven(200, seed=1, delay=delay)).error_ahead[0] < 0.05


def random_task(rng: np.random.Generator) -> tuple[Task, list[Trajectory]]:
    """A task of 1 to 6 observations, and nonsense for episodes: constant, clipped, rounded, on a circle, tiny, huge."""
    d, m, box = int(rng.integers(1, 7)), int(rng.integers(1, 4)), bool(rng.integers(2))
    names = (["x", "y", "z", "w", "v", "a"], ["ends", "reward", "next", "later_ends", "turn_ends", "pi2"])
    seen = tuple(Observation(name) for name in names[int(rng.integers(2))][:d])
    choice = Actuator("action", ("left", "right", "off")[: int(rng.integers(2, 4))])
    actuators = tuple(Actuator(f"u{i}", (), -1.0, 1.0) for i in range(m)) if box else (choice,)
    task = Task("t", "T-v0", seen, actuators, "box" if box else "discrete", 50)
    scale = 10.0 ** rng.integers(-8, 9, size=d)
    episodes = []
    for _ in range(int(rng.integers(1, 5))):
        n, kind = int(rng.integers(1, 30)), int(rng.integers(6))
        rows = rng.normal(size=(n + 1, d)) * scale
        circle = np.column_stack([np.cos(rows[:, 0]), np.sin(rows[:, 0]), rows[:, 2:]])[:, :d]
        constant, clipped = np.repeat(rows[:1], n + 1, axis=0), np.clip(rows, -scale, scale)
        rows = [constant, np.cumsum(rows, axis=0), clipped, np.round(rows), circle, rows][kind]
        acted = rng.uniform(-1, 1, (n, m)) if box else rng.integers(len(actuators[0].labels), size=n)
        paid = rng.normal(size=n) if rng.random() < 0.5 else np.full(n, rng.choice([0.0, 1.0, -1e30, 1e-30]))
        episodes.append(episode(rows, acted, paid, terminated=bool(rng.integers(2))))
    return task, episodes


@pytest.mark.filterwarnings("error")
@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whatever_the_data_a_plant_is_found_that_reads_back(seed: int) -> None:
    task, episodes = random_task(np.random.default_rng(seed))
    found = identify_plant(Transitions.of(task, episodes), Plant())
    assert [name for name, _ in found.next] == list(task.observation_names)
    made = Equations(task, found)
    assert np.isfinite(made.values).all()
    if "ends" not in task.observation_names:
        zeros = "\n".join(f"{actuator.name} = 0" for actuator in task.actuators if not actuator.is_choice)
        zeros = zeros or "\n".join(f"{label} = 0" for label in task.actuators[0].labels)
        parsed = parse(f"{zeros}\n{found.to_text()}", task, "linear")
        assert "plant" in parsed.notes, [str(problem) for problem in parsed.problems]
        assert parsed.notes["plant"].next == Equations(task, parsed.notes["plant"]).plant.next
