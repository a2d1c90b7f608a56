"""Counts of visited cells and of the actions taken there."""

from __future__ import annotations

import numpy as np
import pytest
from support import PAIR

import policygen
from policygen.episodes.buffer import ReplayBuffer, count_visits
from policygen.episodes.evidence import arrived
from policygen.episodes.trajectory import Trajectory
from policygen.policies.features import cell_reader
from policygen.prompts.views import visit_views


@pytest.mark.parametrize("name", ["Pendulum-v1", "pair"])
def test_visits_are_the_same_counted_at_once_or_prompt_by_prompt(name: str) -> None:
    task = PAIR if name == "pair" else policygen.load_task(name)
    rng = np.random.default_rng(0)
    reader = cell_reader(task, task.grid)
    buffer = ReplayBuffer(2_000)
    values = np.array([[-2.0], [0.0], [0.5], [2.0]]) if name != "pair" else np.array([[0, 0], [0, 1], [1, 0], [2, 1]])
    for attempt in range(40):
        played = []
        for seed in range(2):
            length = int(rng.integers(5, 20))
            chosen = values[rng.integers(0, 1 + min(3, attempt // 8), length)]
            observations = rng.normal(size=(length + 1, len(task.observations))).astype(np.float32)
            actions = chosen.astype(np.float32 if task.action_space == "box" else np.int16)
            rewards = np.ones(length, np.float32)
            played.append(Trajectory(observations, actions, rewards, float(length), seed, bool(seed), not seed))
        buffer.add(arrived(attempt, played, task))
        fresh = ReplayBuffer()
        fresh.add(buffer)
        mine, theirs = count_visits(buffer, reader), count_visits(fresh, reader)
        assert np.array_equal(mine[0], theirs[0])
        assert np.allclose(mine[1], theirs[1])
        assert mine[1][0].sum() == buffer.transitions
        views = visit_views(reader, *mine, 8)
        assert [view["visits"] for view in views] == [view["visits"] for view in visit_views(reader, *theirs, 8)]
    assert len(buffer) < 80
    assert len(mine[0]) == 4
