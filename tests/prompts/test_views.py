"""Counts of visits of cells and of the actions taken there; bins as prompts tell them."""

from __future__ import annotations

import collections
import collections.abc
from typing import Any

import numpy as np
import pytest
from searched import searched

import policygen
from policygen.episodes.buffer import ReplayBuffer, count_visits
from policygen.episodes.evidence import Episode
from policygen.episodes.trajectory import Trajectory
from policygen.policies.features import cell_reader
from policygen.prompts.render import template_variables
from policygen.prompts.templates import render_template
from policygen.prompts.views import LEAST_EPISODES, grid_view, visit_views
from policygen.quantities.grid import Dimension, Grid

pytestmark = pytest.mark.usefixtures("workplace")


def test_a_bin_for_each_integer_is_told_in_one_line() -> None:
    stock = Dimension("stock", tuple(i - 19.5 for i in range(40)))
    floor = Dimension("floor", tuple(i + 2.5 for i in range(6)))
    count = Dimension("count", (0.5, 1.5, 2.5))
    speed = Dimension("speed", (-0.5, 0.5))
    show = {"details": 8000}
    text = render_template("_grid", {"grid": grid_view(Grid((stock, floor, count, speed))), "show": show})
    beyond = "the first and the last bin also hold what lies beyond"
    assert text.splitlines()[1:] == [
        f"- stock: bin i is the value i - 20, 0 to 40; {beyond}",
        f"- floor: bin i is the value i + 2, 0 to 6; {beyond}",
        "- count: bin i is the value i, 0 to 3",
        "- speed: 0 = below -0.5, 1 = -0.5 to 0.5, 2 = 0.5 and above",
    ]


def counted(episodes: collections.abc.Iterable[Any], policy: policygen.TablePolicy) -> tuple[Any, Any, Any]:
    """Return visits, visits before a fall, and the returns to go from first visits, by (bins, action)."""
    counts: collections.Counter[Any] = collections.Counter()
    ends: collections.Counter[Any] = collections.Counter()
    returns: collections.defaultdict[Any, list[float]] = collections.defaultdict(list)
    for episode in episodes:
        t, met = episode.trajectory, set()
        for step, cell in enumerate(policy.cells(t.observations[:-1]).tolist()):
            key = (tuple(policy.grid.bins_of(cell).tolist()), ("left", "right")[int(t.actions[step])])
            counts[key] += 1
            ends[key] += t.terminated and step >= t.length - 10
            if key not in met:
                met.add(key)
                returns[key].append(float(t.rewards[step:].sum()))
    return counts, ends, returns


def test_visits_are_those_of_the_best_policy_and_told_only_where_chance_does_not_explain_them() -> None:
    context, config = searched("cartpole", "table", iterations=6, episodes=20, warmup_episodes=40)
    policy = context.incumbent
    assert isinstance(policy, policygen.TablePolicy)
    counts, ends, returns = counted(context.buffer.of_attempt(context.best.number), policy)
    _, _, anywhere = counted(context.buffer, policy)
    views = template_variables(context, config)["visits"]
    assert views

    def interval(values: list[float]) -> tuple[float, float]:
        half = 2 * np.std(values, ddof=1) / np.sqrt(len(values))
        return np.mean(values) - half, np.mean(values) + half

    for view in views:
        key = (view["bins"], view["action"])
        assert (view["visits"], view["ends_soon"], view["episodes"]) == (counts[key], ends[key], len(returns[key]))
        assert view["mean_return"] == pytest.approx(np.mean(returns[key]))
        low, high = interval(returns[key])
        assert view["error"] == pytest.approx((high - low) / 4)
        other = (view["bins"], {"left": "right", "right": "left"}[view["action"]])
        if len(anywhere[other]) >= LEAST_EPISODES:
            assert view["other"] == other[1]
            assert view["other_return"] == pytest.approx(np.mean(anywhere[other]))
            below, above = interval(anywhere[other])
            assert above < low + 1e-9 or below > high - 1e-9
        else:
            assert view["other"] == ""
    order = [(-view["ends_soon"], -view["visits"]) for view in views]
    assert order == sorted(order)


def test_noise_is_not_told() -> None:
    task = policygen.load_task("cartpole")
    rng = np.random.default_rng(1)
    buffer = ReplayBuffer()
    for seed in range(20):  # one step each, in one cell, an action and a reward by chance
        rewards = rng.normal(size=1).astype(np.float32)
        actions = rng.integers(0, 2, 1).astype(np.int16)
        observations = np.zeros((2, 4), np.float32)
        buffer.add([Episode(1, Trajectory(observations, actions, rewards, float(rewards[0]), seed, True, False))])
    reader = cell_reader(task, task.grid)
    assert visit_views(reader, *count_visits(buffer, reader), 16) == []


def test_actions_that_are_random_numbers_are_not_counted() -> None:
    context, config = searched("Pendulum-v1", "table", iterations=1, warmup_episodes=8)
    assert context.buffer.transitions > 1_000
    assert template_variables(context, config)["visits"] == []
