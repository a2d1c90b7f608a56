"""Numbers of plants, fitted to episodes, and the record of a fitted plant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import EXACT, LINE, PENDULUM, driven, episode, equations, swings
from support import Line

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plants.equations import Equations
from policygen.extensions.plants.fit import MOST_STARTS, FittedPlant, Transitions, fit_plant
from policygen.extensions.plants.plant import PlantRecord, PredictionError


def fitted(made: Equations | str, data: Transitions) -> FittedPlant:
    made = equations(made, data.task) if isinstance(made, str) else made
    return fit_plant(made, data, np.random.default_rng(0))


def away(found: FittedPlant, expected: object) -> float:
    """The largest distance of a fitted number from what is expected."""
    return float(np.abs(found.values[0] - np.asarray(expected)).max())


def test_the_constants_of_the_pendulum_are_found_from_wrong_ones_even_if_some_rows_are_corrupted() -> None:
    exact, data, rng = equations(EXACT), swings(), np.random.default_rng(1)
    wrong = Equations(PENDULUM, exact.with_values(exact.values * np.linspace(0.6, 1.5, len(exact.values))))
    found = fitted(wrong, data)
    assert np.abs(found.values[0] / exact.values - 1).max() < 1e-4
    assert found.error.max() < 1e-4
    assert found.error_ahead.max() < 1e-2
    after = data.after.copy()
    rows = rng.choice(len(after), len(after) // 50, replace=False)
    after[rows] += rng.normal(scale=20, size=(len(rows), 3))
    found = fitted(Equations(PENDULUM, exact.with_values(exact.values * 1.1)), replace(data, after=after))
    assert np.abs(found.values[0] / exact.values - 1).max() < 0.02


def test_numbers_with_a_range_are_fitted_within_it_and_one_of_unknown_sign_may_begin_at_0() -> None:
    data = driven(200)  # next x = 0.9*x + 0.5*u
    for text, expected in (
        ("tune(0, -1, 1)*x + tune(0, -2, 2)*u", [0.9, 0.5]),
        ("tune(0.3, 0, 0.6)*x + tune(0, -2, 0)*u", [0.6, 0.0]),
        ("0.9*x + 0.5*u*(u > tune(-9, -30, 30))", [0.9, 0.5, None]),
    ):
        made = equations(f"next x = {text}", LINE)
        found = fitted(made, data)
        low, high = made.limits
        assert ((low <= found.values) & (found.values <= high)).all()
        for value, best in zip(found.values[0], expected, strict=True):
            assert best is None or value == pytest.approx(best, abs=1e-4)


def test_numbers_are_less_certain_with_fewer_steps() -> None:
    few, many = (fitted("next x = 0.5*x + 0.1*u", driven(n, noise=0.1)) for n in (40, 1_000))
    assert (few.values.std(axis=0) > 2 * many.values.std(axis=0)).all()
    assert (many.values.std(axis=0) > 0).all()
    assert away(many, [0.9, 0.5]) < 0.05


@pytest.mark.parametrize(
    "episodes",
    [
        [episode([[0], [1]], [[1]], [1])],
        [episode([[k], [k + 0.5]], [[1]], [k], terminated=True) for k in range(5)],
        [episode([[3]] * 10, [[1]] * 9, [0] * 9)],
        [episode([[3]], np.zeros((0, 1)), []), episode([[0], [1], [2]], [[1], [0]], [1, 1])],
    ],
    ids=["one step", "episodes of one step", "nothing changes", "an episode without steps"],
)
def test_poor_data_give_finite_numbers(episodes: list[object]) -> None:
    data = Transitions.of(LINE, episodes)  # type: ignore[arg-type]
    found = fitted("next x = 0.5*x + 0.1*u + prev(u)\nreward = 2*next(x)\nends = x > 9", data)
    assert np.isfinite(found.values).all()
    assert found.error_ahead is None
    account = found.record
    assert (account.steps, account.errors[0].name) == (len(data), "x")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("line", ["1e308*x", "exp(exp(100 + x))", "log(-1 - x^2)", "1/(x - x)", "1e-320*x"])
def test_plants_that_explode_are_fitted_without_a_word(line: str) -> None:
    data = driven(60)
    found = fitted(f"next x = {line}\nreward = {line}*1e308", data)
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.error).all()
    assert found.record.steps == len(data)


def moved(step: Callable[[float, float, int], float], n: int, seed: int = 0) -> Trajectory:
    """An episode with random actions u, in which `step` makes the next x from x, u and the number of the step."""
    u = np.random.default_rng(seed).uniform(-1, 1, (n, 1)).astype(np.float32)
    x = np.zeros((n + 1, 1))
    for t in range(n):
        x[t + 1] = step(x[t, 0], u[t, 0], t)
    return episode(x, u, -(x[:-1, 0] ** 2))


@pytest.mark.parametrize(
    ("loads", "leak", "line", "expected", "tolerance"),
    [
        ([0.1, -0.2, 0.3, 0.0, 0.25], 1.0, "start load = uniform(-0.5, 0.5)", [0.9, 0.5], 1e-3),
        ([1.0, -0.7, 0.4, 0.9], 0.7, "next load = 0.9*load", [0.9, 0.5, 0.7], 1e-2),
    ],
    ids=["it stays", "it moves"],
)
def test_a_hidden_state_is_fitted_for_each_episode(
    loads: list[float], leak: float, line: str, expected: list[float], tolerance: float
) -> None:
    episodes = [
        moved(lambda x, u, t, load=load: 0.9 * x + 0.5 * u + load * leak**t, 40, k) for k, load in enumerate(loads)
    ]
    data = Transitions.of(LINE, episodes)
    found = fitted(f"hidden load\nnext x = 0.5*x + 0.1*u + load\n{line}", data)
    assert away(found, expected) < tolerance
    assert np.abs(found.starts[:, 1] - loads).max() < tolerance
    assert fitted("next x = 0.5*x + 0.1*u", data).error[0] > 50 * found.error[0]


def test_show_prints_a_plant_and_its_errors(plant_run: Path, line: Line) -> None:
    errors = (PredictionError("cos", 0.0123, None), PredictionError("rate", 1.0, 0.5))
    assert PlantRecord("next rate = rate", 1_234, errors).to_text().splitlines() == [
        "# plant fitted to 1,234 steps",
        "next rate = rate",
        '# prediction errors, 1 step / 20 steps ahead, where 1 is no better than "nothing changes": '
        "cos 0.012 / -, rate 1 / 0.5",
    ]
    said = line("show", plant_run)
    assert said.code == 0
    policy, _, plant = said.out.partition("# plant fitted to ")
    assert "torque = " in policy
    assert "reward = " in plant
    assert ", rate " in plant
    assert "plant" not in line("show", plant_run / "best.json").out


def test_a_fit_with_hidden_states_uses_a_bounded_number_of_starts() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 7, 120).tolist()
    data = Transitions.of(LINE, [episode(rng.normal(size=(n + 1, 1)), np.zeros((n, 1)), np.zeros(n)) for n in sizes])
    assert len(data.of_at_most(7).starts) == 7
    assert data.of_at_most(200) is data
    some = data.of_at_most(7)
    assert (np.diff([*some.starts, len(some)]) == some.lengths).all()
    assert (some.before[some.starts[-1]] == data.before[data.starts[-1]]).all()
    found = fitted("hidden a\nhidden b\nnext a = a\nnext b = 0.5*b\nnext x = 0.9*x + a + b", data)
    assert len(found.starts) == MOST_STARTS // 2
