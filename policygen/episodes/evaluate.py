"""Score a policy on fresh episodes, or exactly if possible."""

from __future__ import annotations

from collections.abc import Sequence

from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.players import Players
from policygen.episodes.score import Score, sampled_score
from policygen.policies.policy import Policy
from policygen.tasks.task import Task


def evaluate(policy: Policy, seeds: Sequence[int], *, task: Task | None = None) -> Score:
    """Score a policy: exactly if possible, else over one episode per seed.

    Args:
        policy: any policy; its own task unless `task` is given.
        seeds: environment seeds; not used when the score is exact.
    """
    task = task or policy.task
    mdp = finite_mdp(task)
    exact = exact_score(policy, mdp, task.max_steps) if mdp is not None else None
    if exact is not None:
        return exact
    with Players(task) as players:
        return sampled_score(players.play(policy, seeds), players.engine)
