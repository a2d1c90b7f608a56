"""A score comes from the engine that fits the task."""

from __future__ import annotations

from dataclasses import replace

from played import CLUMSY, policy_for

from policygen.episodes.evaluate import evaluate
from policygen.episodes.score import episode_seeds
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.tasks.load import load_task

LAKE = load_task("frozenlake")
RIGHT = [2] * 16


def test_a_score_names_its_engine() -> None:
    assert evaluate(policy_for("cartpole", CLUMSY), episode_seeds(0, "engines", 3)).engine == "vector"
    assert evaluate(TablePolicy.from_actions(LAKE, RIGHT), ()).engine == "exact"


def test_the_horizon_is_that_of_the_task_that_is_asked_about():
    policy = TablePolicy.from_actions(LAKE, RIGHT)
    short = replace(LAKE, max_steps=6)
    assert evaluate(policy, (), task=short).mean == evaluate(TablePolicy.from_actions(short, RIGHT), ()).mean
    assert evaluate(policy, (), task=short).mean < evaluate(policy, ()).mean


def test_a_sampled_score_keeps_the_seeds_it_was_played_on():
    task = load_task("cartpole")
    policy = parse("left = 0\nright = angle", task).policy
    seeds = episode_seeds(0, "final", 12)
    score = evaluate(policy, seeds)
    assert (score.seeds, score.engine, score.exact, score.episodes) == (seeds, "vector", False, 12)
    assert evaluate(policy, seeds) == score
    assert evaluate(policy, seeds[:6]).returns == score.returns[:6]
