"""The search `builtin` over equations: units of actions and observations, and the constant actions it begins with."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import policygen

pytestmark = pytest.mark.usefixtures("workplace", "quickly_discovered")


class Dosed(gym.Env[Any, Any]):
    """A dose should follow the first observation; its range and the unit of the observations differ."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(
        self, low: float = -1.0, high: float = 1.0, unit: float = 1.0, wanted: float = 0.0, gain: float = 0.5
    ) -> None:
        self.action_space = gym.spaces.Box(low, high, (1,), np.float64)
        self.middle, self.half, self.unit = (low + high) / 2, (high - low) / 2, unit
        self.wanted, self.gain = wanted, gain

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.x = 0, self.np_random.uniform(-1, 1, 2)
        return self.x * self.unit, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        missed = abs((action[0] - self.middle) / self.half - self.wanted - self.gain * self.x[0])
        self.x = np.clip(self.x + self.np_random.normal(0, 0.1, 2), -1, 1)
        return self.x * self.unit, -missed, False, self.steps >= 10, {}


gym.register("Dosed-v0", Dosed, max_episode_steps=10)
UNITS: list[dict[str, float]] = [
    {"low": 0.0, "high": 200.0},
    {"low": 0.0, "high": 3200.0},
    {"low": -2e-6, "high": 2e-6},
    {"unit": 1e-10},
]


@pytest.mark.parametrize(("refine", "iterations"), [("none", 4), ("cma:100", 2)])
def test_the_search_is_the_same_in_all_units(refine: str, iterations: int) -> None:
    def scores(units: dict[str, float]) -> list[float]:
        settings: Any = {"iterations": iterations, "episodes": 8, "refine": refine, "final_episodes": 8}
        settings["policy"] = "linear"
        found = policygen.run(lambda: gym.make("Dosed-v0", **units), **settings, fragility=False)
        return [one.score.mean for one in found.attempts if one.score is not None]

    plain = scores({})
    for units in UNITS:
        assert scores(units) == pytest.approx(plain, rel=1e-3), units


def played(task: Any, **settings: Any) -> policygen.RunResult:
    some: dict[str, Any] = {"episodes": 8, "final_episodes": 40, "policy": "linear", "fragility": False}
    return policygen.run(task, **some, **settings)


@pytest.mark.parametrize("wanted", [-1.0, 1.0, 0.5])
def test_a_run_begins_with_the_best_of_a_handful_of_constant_actions(wanted: float) -> None:
    found = played(
        lambda: gym.make("Dosed-v0", low=0.0, high=200.0, wanted=wanted, gain=0.1), iterations=1, refine="none"
    )
    assert found.policy is not None
    assert found.policy.act_one([0.0, 0.0]).tolist() == [100 + 100 * wanted]


def test_a_share_of_episodes_that_cannot_tune_all_proposals_tunes_fewer() -> None:
    found = played(lambda: gym.make("Dosed-v0", low=0.0, high=200.0), iterations=6, max_episodes=500, refine="auto")
    proposals = found.attempts[1:7]
    assert [bool(one.tuned.refinement) for one in proposals] == [True, False, False, False, False, False]
    texts = [one.policy.to_text() for one in proposals if one.policy is not None]
    assert len(set(texts)) == 6
    random, final = found.attempts[0].score, found.final
    assert random is not None
    assert final is not None
    assert final.mean > random.mean
