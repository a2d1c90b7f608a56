"""Penalties for violated requirements, the verdict on a dropped tuning, and the first table of `builtin`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import policygen
from policygen.episodes.race import Race
from policygen.episodes.requirements import Penalty, Violations
from policygen.episodes.score import Score, score_of_returns
from policygen.episodes.trajectory import Trajectory
from policygen.search.assess import _reason_for_dropping
from policygen.tasks.load import load_task
from policygen.tasks.task import Requirement


def episode(*positions: float) -> Trajectory:
    rows = np.zeros((len(positions), 4), np.float32)
    rows[:, 0] = positions
    steps = len(positions) - 1
    return Trajectory(rows, np.zeros(steps, np.int16), np.ones(steps, np.float32), float(steps), 0, False, True)


def test_of_two_policies_that_violate_as_often_the_nearer_one_costs_less() -> None:
    task = replace(load_task("cartpole"), requirements=(Requirement("rail", always="position < 1"),))
    near, far, within = ([episode(0, 0, at, 0)] for at in (1.1, 2.0, 0.9))
    penalty = Penalty(task, 1)
    penalty(np.array([0.0, 3.0]), [within, within])  # the range of returns
    met, nearer, further = penalty(np.array([1.0, 1.0, 1.0]), [within, near, far])
    assert met == 1 > nearer > further


def score(*returns: float, violated: int = 0) -> Score:
    found = score_of_returns(np.array(returns), tuple(range(len(returns))), "copies")
    return replace(found, violations=(Violations("speed < 3", True, 0.05, violated, len(returns)),))


def test_a_dropped_tuning_says_whether_violations_were_the_reason() -> None:
    before, better, worse = score(*[1.0] * 20), score(*[2.0] * 20, violated=3), score(*[0.0] * 20)
    assert _reason_for_dropping(Race(better, before)) == (
        ", dropped: it violates `speed < 3` in 15% of 20 episodes (limit 5%)"
    )
    assert _reason_for_dropping(Race(worse, before)) == ", which did not help and was dropped"


class Third(gym.Env[Any, Any]):
    """Only the third action pays, whatever is observed."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.uniform(-1, 1, 2), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.np_random.uniform(-1, 1, 2), float(action == 2), False, self.t >= 60, {}


def test_the_first_table_of_builtin_is_no_worse_than_a_constant_action(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"warmup_episodes": 0, "episodes": 4, "final_episodes": 4, "iterations": 1}
    result = policygen.run(Third, out=tmp_path, policy="table", jobs=1, **settings)
    assert result.final is not None
    assert result.final.mean == 60
