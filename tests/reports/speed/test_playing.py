"""The plain loop that playing is compared with."""

from __future__ import annotations

from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.policies.parse import parse
from policygen.reports.speed import playing
from policygen.tasks.load import load_task
from policygen.tasks.task import Task


def test_a_plain_loop_returns_what_the_simulator_does() -> None:
    task: Task = load_task("cartpole")
    policy = parse("left = 0\nright = angle", task).policy
    assert policy is not None
    seeds = episode_seeds(0, "bench", 5)
    with Simulator(task) as simulator:
        assert playing.plain_loop(task, policy, seeds) == [t.episode_return for t in simulator.play(policy, seeds)]
