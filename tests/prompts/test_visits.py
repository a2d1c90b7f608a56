"""Visits: how often each cell was met and each action taken in it."""

from __future__ import annotations

import collections
import collections.abc
from typing import Any

import numpy as np
import pytest
from searched import searched
from support import PAIR

import policygen
from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.trajectory import Trajectory
from policygen.policies.features import cell_reader
from policygen.prompts.render import template_variables
from policygen.prompts.visits import count_visits, visit_views

pytestmark = pytest.mark.usefixtures("workplace")


def test_visits_are_counted_over_all_episodes_those_before_a_fall_first() -> None:
    context, config = searched("cartpole", "table", iterations=3)
    policy = context.incumbent
    assert isinstance(policy, policygen.TablePolicy)
    counts: collections.Counter[Any] = collections.Counter()
    ends: collections.Counter[Any] = collections.Counter()
    returns: collections.defaultdict[Any, list[float]] = collections.defaultdict(list)
    for episode in context.buffer:
        t = episode.trajectory
        for step, cell in enumerate(policy.cells(t.observations[:-1]).tolist()):
            key = (tuple(policy.grid.bins_of(cell).tolist()), ("left", "right")[int(t.actions[step])])
            counts[key] += 1
            ends[key] += t.terminated and step >= t.length - 10
            returns[key].append(float(t.rewards[step:].sum()))
    views = template_variables(context, config)["visits"]
    assert len(views) >= 16
    for view in views:
        key = (view.bins, view.action)
        assert (view.visits, view.ends_soon) == (counts[key], ends[key])
        assert view.mean_return == pytest.approx(np.mean(returns[key]))
    order = [(-view.ends_soon, -view.visits) for view in views]
    assert order == sorted(order)
    assert order[:16] == sorted((-ends[key], -counts[key]) for key in counts)[:16]


@pytest.mark.parametrize("name", ["Pendulum-v1", "pair"])
def test_visits_are_the_same_counted_at_once_or_prompt_by_prompt(name: str) -> None:
    task = PAIR if name == "pair" else policygen.load_task(name)
    assert task.grid is not None
    rng = np.random.default_rng(0)
    reader = cell_reader(task, task.grid)
    buffer = ReplayBuffer(600)
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
        buffer.add(attempt, played)
        fresh = ReplayBuffer()
        for episode in buffer:
            fresh.add(episode.attempt, [episode.trajectory])
        mine, theirs = count_visits(buffer, reader), count_visits(fresh, reader)
        assert np.array_equal(mine[0], theirs[0])
        assert np.allclose(mine[1], theirs[1])
        assert mine[1][0].sum() == buffer.transitions
        views = visit_views(reader, *mine, 8)
        assert [view.visits for view in views] == [view.visits for view in visit_views(reader, *theirs, 8)]
    assert buffer.cleared > 3
    assert len(mine[0]) == 4


def test_actions_that_are_random_numbers_are_not_counted() -> None:
    context, config = searched("Pendulum-v1", "table", iterations=1, warmup_episodes=8)
    assert context.buffer.transitions > 1_000
    assert template_variables(context, config)["visits"] == []
