"""The rule by which a proposal counts as working, so that its tuning begins with small steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.score import score_of_returns
from policygen.runs.attempt import Attempt
from policygen.runs.state import Search
from policygen.search.assess import already_works
from policygen.tasks.load import load_task


@pytest.mark.parametrize(
    ("score", "random", "best", "solved", "works"),
    [
        (260, 0, 500, 475, True),
        (240, 0, 500, 475, False),
        (-700, -1200, -150, -200, False),  # negative returns are compared alike
        (-600, -1200, -150, -200, True),
        (240, 0, None, 475, True),  # before the first policy, the score that solves the task counts
        (230, 0, None, 475, False),
        (230, 0, None, None, False),
        (-1300, -1200, -1500, None, False),  # a best policy below random actions says nothing
        (None, 0, 500, 475, False),
        (260, None, 500, 475, False),
    ],
)
def test_a_policy_works_from_halfway_between_random_actions_and_the_best(
    score: float | None, random: float | None, best: float | None, solved: float | None, works: bool
) -> None:
    def of(value: float | None):  # type: ignore[no-untyped-def]
        return score_of_returns(np.array([value, value]), (1, 2), "x") if value is not None else None

    search = Search(replace(load_task("cartpole"), solved=solved, optimum=None), ReplayBuffer(100))
    search.attempts.append(Attempt(0, None, of(random)))
    search.best_score = of(best)
    assert already_works(of(score), search) is works
