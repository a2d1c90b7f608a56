"""What the tests of refinement share: policies from text, a player that counts, seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from policygen.episodes.exact import FiniteMDP, exact_score, finite_mdp
from policygen.episodes.play import play_together
from policygen.episodes.score import episode_seeds
from policygen.episodes.simulator import Simulator
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.search.refine.tunable import Refined, Trials, refine
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

WEAK = "let lean = angle + 0.02*spin\nleft = 0\nright = 1*lean - 0.3*position"


def policy_of(text: str, task: str = "cartpole", kind: str | None = None) -> Policy:
    parsed = parse(text, load_task(task), kind)  # type: ignore[arg-type]
    assert parsed.policy is not None, [str(p) for p in parsed.problems]
    return parsed.policy


class Player:
    """Plays candidates for real, side by side, and counts the episodes."""

    def __init__(self, task: str, **changes: Any) -> None:
        self.simulator = Simulator(replace(load_task(task), **changes))
        self.episodes = 0
        self.seed_lists: list[tuple[int, ...]] = []

    def __call__(self, policies: Sequence[Policy], seeds: Sequence[int]) -> np.ndarray:
        self.episodes += len(policies) * len(seeds)
        self.seed_lists.append(tuple(seeds))
        played = play_together(self.simulator.play, policies, seeds, self.simulator._copies.max_copies)
        return np.array([np.mean([t.episode_return for t in one]) for one in played])


def seeds(first: int, count: int) -> tuple[int, ...]:
    return episode_seeds(0, "refine 1", count, first)


def mdp_of(task: Task) -> FiniteMDP:
    mdp = finite_mdp(task)
    assert mdp is not None
    return mdp


def exact_mean(policy: Policy) -> float:
    score = exact_score(policy, mdp_of(policy.task))
    assert score is not None
    return score.mean


def mean_return(policy: Policy, count: int = 100) -> float:
    with Simulator(policy.task) as simulator:
        played = simulator.play(policy, episode_seeds(5, "fresh", count))
    return float(np.mean([t.episode_return for t in played]))


def tuned(policy: Policy, method: Any, trials: Trials, rng_seed: int, **more: Any) -> Refined:
    """The policy as tuned, where there is something to tune and enough episodes."""
    found = refine(policy, method, replace(trials, **more), rng_seed)
    assert found is not None
    return found
