"""The search is the same in any units: of actions, and of what is observed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from refining import policy_of

import policygen
from policygen.policies.parse import parse
from policygen.search.refine.sizes import sizes_of
from policygen.search.refine.tunable import Tunable
from policygen.tasks.load import task_of

# Name, lowest and highest action, and the scale and offset of what is observed.
UNITS = [(-1.0, 1.0, 1.0, 0.5), (0.0, 200.0, 50.0, 300.0), (0.0, 3200.0, 0.001, -0.004)]


class Dose(gym.Env[Any, Any]):
    """The right dose depends on the state, and jumps where the state passes 0.4."""

    def __init__(self, low: float, high: float, scale: float, offset: float) -> None:
        self.action_space = gym.spaces.Box(low, high, (1,), np.float64)
        self.observation_space = gym.spaces.Box(offset - scale, offset + scale, (1,), np.float64)
        self.low, self.high, self.scale, self.offset = low, high, scale, offset

    def observed(self) -> np.ndarray:
        return np.array([self.offset + self.scale * self.x])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.x = 0, float(self.np_random.uniform(-1, 1))
        return self.observed(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        dose = 2 * (float(action[0]) - self.low) / (self.high - self.low) - 1
        loss = abs(dose - 0.5 * self.x - (0.3 if self.x > 0.4 else -0.2))
        self.t, self.x = self.t + 1, float(self.np_random.uniform(-1, 1))
        return self.observed(), -loss, False, self.t >= 20, {}


def reply(low: float, high: float, scale: float, offset: float) -> str:
    """The same policy in each of the units: 0.1 + 0.2 x, and 0.3 more where x > 0.2."""
    middle, half = (low + high) / 2, (high - low) / 2
    slope, at, more, threshold = 0.2 * half / scale, middle + 0.1 * half, 0.3 * half, offset + 0.2 * scale
    line = f"action = {slope:.10g}*(obs0 - {offset:.10g}) + {at:.10g} + where(obs0 > {threshold:.10g}, {more:.10g}, "
    return f"{line}{-more:.10g})".replace("- -", "+ ")


def scores(tmp_path: Path, units: tuple[float, ...], **settings: Any) -> list[float]:
    options: dict[str, Any] = {"iterations": 1, "episodes": 10, "final_episodes": 2, "refine": "cma:480", **settings}
    result = policygen.run(lambda: Dose(*units), out=tmp_path, policy="linear", jobs=1, **options)
    return [one.score.mean for one in result.attempts if one.score is not None]


@pytest.mark.parametrize("units", UNITS[1:])
def test_a_reply_is_tuned_alike_in_any_units(tmp_path: Path, units: tuple[float, ...]) -> None:
    plain, other = (scores(tmp_path, one, start=reply(*one)) for one in (UNITS[0], units))
    assert other == pytest.approx(plain, rel=0.05)
    assert other[1] > -2  # -13.5 untuned


def test_builtin_searches_alike_in_any_units(tmp_path: Path) -> None:
    plain, other = (scores(tmp_path, units, refine="cma:240") for units in (UNITS[0], UNITS[2]))
    assert other == pytest.approx(plain, rel=0.05)


@pytest.mark.parametrize("units", UNITS)
def test_sizes_follow_the_range_of_an_action_and_the_spread_of_a_quantity(units: tuple[float, ...]) -> None:
    task = task_of(lambda: Dose(*units))
    policy = parse(reply(*units), task, "linear").policy
    assert policy is not None
    with policygen.episodes.simulator.Simulator(task) as simulator:
        played = simulator.play(policy, (1, 2, 3))
    half, spread = (units[1] - units[0]) / 2, 0.577 * units[2]
    found = sizes_of(policy, policy.equations, played)
    assert found[0] is None  # a factor: its own value is its size
    assert found[1:] == pytest.approx([spread, half / 2, spread, half / 2, half / 2], rel=0.15)


def test_a_zero_and_a_one_that_belong_to_the_structure_stay() -> None:
    policy = policy_of("let on = where(angle > 0.1, 1, 0)\nleft = 0\nright = on + 0.5*spin")
    assert Tunable(policy).places == ("let on", "right")
