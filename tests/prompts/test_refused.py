"""Refused proposals: prompts name the part of the episode with a significant loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import ALWAYS_LEFT, LEANING

import policygen
from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evidence import arrived
from policygen.episodes.trajectory import Trajectory
from policygen.policies.parse import parse
from policygen.prompts.refused import refused_view
from policygen.runs.attempt import Attempt, Played, saved


def lost(mine: list[np.ndarray], best: list[np.ndarray], first_seed: int = 0, ended: bool = False) -> Any:
    """Return what a prompt tells of the loss of attempt 2 against attempt 1, from the rewards of their episodes."""
    task = policygen.load_task("cartpole")
    buffer = ReplayBuffer()
    attempts = []
    for number, some, reply in ((1, best, ALWAYS_LEFT), (2, mine, LEANING)):
        trajectories = []
        for seed, rewards in enumerate(some, start=first_seed * (number - 1)):
            n, over = len(rewards), ended and number == 2
            observations = np.linspace(0, 1, 4 * (n + 1), dtype=np.float32).reshape(n + 1, 4)
            actions, paid = np.zeros(n, np.int16), rewards.astype(np.float32)
            trajectories.append(Trajectory(observations, actions, paid, float(rewards.sum()), seed, over, not over))
        buffer.add(arrived(number, trajectories, task))
        policy = saved(parse(reply, task, "table").policy)
        attempts.append(Attempt(number, policy, None, Played.of(trajectories)))
    view = refused_view(attempts[1], attempts[0], buffer, task)
    assert view["lines"] == ["| * | * | 0-2 | * | left |", "| * | * | * | * | right |"]
    return view["lost"]


def test_the_fifth_in_which_a_proposal_lost_is_found_with_its_worst_step() -> None:
    best = [np.ones(100) + 0.1 * i for i in range(6)]
    mine = [rewards.copy() for rewards in best]
    for i, rewards in enumerate(mine):
        rewards[40:60] -= 0.5 + 0.01 * i
    mine[5][47] -= 1
    found = lost(mine, best)
    assert (found["first"], found["last"], found["paired"], found["episodes"]) == (40, 59, True, 6)
    assert found["mean"] == pytest.approx(np.mean([(b - m).sum() for b, m in zip(best, mine, strict=True)]))
    assert found["row"]["step"] == 47
    assert {"angle", "cell", "action", "reward"} <= set(found["row"])


def test_what_chance_explains_is_not_told() -> None:
    rng = np.random.default_rng(0)
    assert lost([rng.normal(size=100) for _ in range(4)], [rng.normal(size=100) for _ in range(4)]) is None
    assert lost([np.zeros(100)], [np.ones(100)]) is None  # a single episode shows nothing


def test_an_episode_that_ends_early_loses_what_would_have_followed() -> None:
    found = lost([np.ones(50 + i) for i in range(5)], [np.ones(100)] * 5, ended=True)
    assert found["first"] >= 60
    assert found["row"]["step"] in range(49, 54)
    assert not lost([np.zeros(50)] * 5, [np.ones(50)] * 5, first_seed=100)["paired"]
