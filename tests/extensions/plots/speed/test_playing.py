"""The plain loop that playing is compared with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.extensions.plots.speed import playing
from policygen.policies.parse import parse
from policygen.tasks.load import load_task
from policygen.tasks.task import Task


def test_a_plain_loop_returns_what_the_simulator_does() -> None:
    task: Task = load_task("cartpole")
    policy = parse("left = 0\nright = angle", task).policy
    assert policy is not None
    seeds = episode_seeds(0, "bench", 5)
    with Simulator(task) as simulator:
        assert playing.plain_loop(task, policy, seeds) == [t.episode_return for t in simulator.play(policy, seeds)]


def test_a_hopper_that_remembers_plays_the_steps_of_the_one_with_numbers_instead() -> None:
    pytest.importorskip("mujoco")
    ours, theirs = playing.with_and_without_memory()
    assert set(ours.remembers) == {"smooth", "phase"}
    assert not theirs.remembers
    with Simulator(replace(ours.task, max_steps=60)) as simulator:
        first, second = (simulator.play(policy, episode_seeds(0, "bench", 2)) for policy in (ours, theirs))
    assert [t.actions.tolist() for t in first] == [t.actions.tolist() for t in second]
