"""Numbers of plants, fitted to episodes.

It tests `plants.least_squares`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from planted import EXACT, LINE, PENDULUM, driven, episode, equations, swings

from policygen.episodes.trajectory import Trajectory
from policygen.plants.fit import FittedPlant, fit_plant
from policygen.plants.record import record_of
from policygen.plants.transitions import Transitions
from policygen.policies.plant import Equations
from policygen.quantities.text import format_number
from policygen.tasks.spaces import Observation


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
    assert (few.deviations > 2 * many.deviations).all()
    assert (many.deviations > 0).all()
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
    account = record_of(found, data)
    assert (account.steps, account.errors[0].name) == (len(data), "x")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("line", ["1e308*x", "exp(exp(100 + x))", "log(-1 - x^2)", "1/(x - x)", "1e-320*x"])
def test_plants_that_explode_are_fitted_without_a_word(line: str) -> None:
    data = driven(60)
    found = fitted(f"next x = {line}\nreward = {line}*1e308", data)
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.error).all()
    record_of(found, data)


def test_more_steps_than_are_fitted_are_thinned_in_blocks() -> None:
    data = driven(9_000)
    kept = data.thinned_steps()
    assert len(kept) <= 4_000
    assert kept[-1] == len(data) - 1
    assert np.count_nonzero(np.diff(kept) > 1) < len(kept) / 9


def test_the_worst_step_is_a_row_of_real_beside_predicted() -> None:
    rng = np.random.default_rng(1)
    task = replace(LINE, observations=(Observation("x"), Observation("y")))
    data = Transitions.of(task, [episode(rng.normal(size=(41, 2)), rng.choice([-1, 1], (40, 1)), [0] * 40)] * 2)
    after = data.before.copy()
    after[:, 0] += 1
    after[53] += [1, 5]
    found = fitted("next x = fixed(1) + x\nnext y = y + fixed(0)*u", replace(data, after=after))
    worst = record_of(found, replace(data, after=after)).worst
    x, y = data.before[53].tolist()
    assert (worst.step, worst.action) == (13, format_number(float(data.actions[53, 0])))
    assert [value.name for value in worst.row] == ["y", "x"]
    uncertain = record_of(fitted("next x = 0.1*u^3 + x", data), data).uncertain
    assert uncertain
    assert all(one.line == "next x" and one.deviation > 0 for one in uncertain)
    told = [(value.before, value.after, value.predicted) for value in worst.row]
    assert np.array(told) == pytest.approx(np.array([(y, y + 5, y), (x, x + 2, x + 1)]), rel=1e-3)


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
    assert np.abs(found.hidden[0] - loads).max() < tolerance
    assert fitted("next x = 0.5*x + 0.1*u", data).error[0] > 50 * found.error[0]


def test_noise_misleads_predictions_of_several_steps_less() -> None:
    """Noise in what is observed, not in the motion: one-step least squares takes it for damping."""
    rng = np.random.default_rng(3)
    exact = driven(1_500)
    noisy = exact.before + 0.3 * rng.normal(size=exact.before.shape)
    after = np.concatenate([noisy[1:], exact.after[-1:]])
    found = fitted("next x = 0.5*x + 0.1*u", replace(exact, before=noisy, after=after))
    assert abs(found.values[0][0] - 0.9) < 0.06
    assert abs(np.linalg.lstsq(np.column_stack([noisy, exact.actions]), after, rcond=None)[0][0, 0] - 0.9) > 0.1


DEEP = ["let a0 = 0.5*x", *(f"let a{i} = fixed(0.5)*(a{i - 1} + a{i - 1})" for i in range(1, 21))]


@pytest.mark.parametrize(
    ("data", "text", "expected", "tolerance"),
    [
        (driven(300, delay=1), "next x = 0.5*x + 0.1*prev(u)", [0.9, 0.5], 1e-4),
        (
            Transitions.of(LINE, [moved(lambda x, u, t: 0.8 * x + (0.5 * u if abs(u) > 0.4 else 0.0), 400)]),
            "next x = 0.6*x + 0.3*where(abs(u) > 0.25, u, 0)",
            [0.8, 0.5, 0.4],
            0.01,
        ),
        (driven(200), "\n".join([*DEEP, "next x = a20 + 0.1*u"]), [0.9, 0.5], 1e-4),
    ],
    ids=["what is remembered", "a threshold, which has no slope", "a line of a million terms if written out"],
)
def test_numbers_are_found(data: Transitions, text: str, expected: list[float], tolerance: float) -> None:
    found = fitted(text, data)
    assert away(found, expected) < tolerance
    assert found.error.max() < tolerance
