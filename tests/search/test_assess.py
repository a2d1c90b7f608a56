"""The reasons to stop, a best policy that was lucky, and the verdict on a tuned one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.race import Race
from policygen.episodes.requirements import Violations
from policygen.episodes.score import Score, score_of_returns
from policygen.runs.attempt import Attempt
from policygen.runs.config import RunConfig
from policygen.runs.state import Search
from policygen.search.assess import _reason_for_dropping, already_works, is_overestimated
from policygen.search.loop import reason_to_give_up, reason_to_stop
from policygen.tasks.load import load_task

POLE = load_task("cartpole")


def score(*returns: float) -> Score:
    return score_of_returns(np.array(returns), tuple(range(len(returns))), "copies")


def exact(mean: float) -> Score:
    return Score(mean, 0.0, (mean, mean), True, "exact")


@pytest.mark.parametrize(
    ("best", "settings", "expected"),
    [
        (None, {}, ""),
        (score(1, 2), {}, ""),
        (exact(500), {}, "the best known score, 500, was reached"),
        (score(*[500] * 300), {}, "the best known score, 500, was reached"),
        (score(*[500] * 80), {}, ""),  # a policy that fails once in fifty episodes does that every fifth time
        (score(*[500] * 299, 400), {}, ""),
        (score(30, 31, 32, 33), {"stop_at": 29.5}, "the score to stop at, 29.5, was reached"),
        (score(30, 31, 32, 33), {"stop_at": 31}, ""),  # the mean is 31.5, and may be luck
        (score(40), {"stop_at": 30}, ""),
        (exact(1.5 - 1e-12), {"stop_at": 1.5}, "the score to stop at, 1.5, was reached"),
        (exact(499.96), {}, "the best known score, 500, was reached"),  # what is left is not worth a reply
        (exact(499.9), {}, ""),
        (exact(499.96), {"stop_at": 500}, ""),
    ],
)
def test_a_run_stops_once_its_target_is_surely_reached(best: Any, settings: Any, expected: str) -> None:
    assert reason_to_stop(best, POLE, RunConfig(task="cartpole", **settings)) == expected


@pytest.mark.parametrize(
    ("kinds", "patience", "expected"),
    [
        ("", None, ""),
        ("bffffff", None, ""),
        ("br", None, ""),
        ("brr", None, "the model saw no improvement, 2 replies in a row"),
        ("brfr", None, ""),
        ("bffrf", 4, "4 attempts in a row brought no new best (--patience 4)"),
        ("ffff", 4, "4 attempts in a row brought no new best (--patience 4)"),
        ("br", 1, "the model saw no improvement, 1 reply in a row"),
        ("brr", 9, "the model saw no improvement, 2 replies in a row"),
        # t: tuning of an earlier attempt after the last reply, T: one that became the best; the run then went on
        ("bffTff", 3, ""),
        ("bffTfff", 3, "3 attempts in a row brought no new best (--patience 3)"),
        ("bffffTtbfff", 3, "3 attempts in a row brought no new best (--patience 3)"),
    ],
)
def test_a_run_gives_up_without_progress(kinds: str, patience: int | None, expected: str) -> None:
    attempts, kinds_of = [Attempt(0, None, None)], {"r": "resignation", "t": "tuning", "T": "tuning"}
    for number, kind in enumerate(kinds, 1):
        attempts.append(Attempt(number, None, None, accepted=kind in "bT", kind=kinds_of.get(kind, "proposal")))
    assert reason_to_give_up(attempts, RunConfig(task="cartpole", patience=patience)) == expected


@pytest.mark.parametrize(
    ("best", "unbiased", "target", "expected"),
    [
        (score(4, 5, 6, 5), score(1, 2, 1, 2), None, True),
        (score(4, 5, 6, 5), score(1, 9, 4, 5), None, False),  # may be chance
        (score(1, 2, 1, 2), score(4, 5, 6, 5), None, False),
        (score(4, 5, 6, 5, -90, -90), score(1, 2, 1, 2), None, True),  # on the four that chose it
        (score(9, 9, 9, 9), score(9, 9, 9, 8), 9, True),  # they show no failure, where there are some
        (score(9, 9, 9, 8), score(9, 9, 9, 7), 9, False),
        (exact(5), score(1, 2, 1, 2), None, False),
        (score(4, 5, 6, 5), None, None, False),
        (None, None, None, False),
    ],
)
def test_a_score_is_overestimated_if_the_policy_does_worse_on_new_episodes(
    best: Any, unbiased: Any, target: float | None, expected: bool
) -> None:
    assert is_overestimated(best, unbiased, target, 4) is expected


def test_the_reason_for_dropping_a_tuned_policy() -> None:
    before, better, worse = (score(*[value] * 20) for value in (1.0, 2.0, 0.0))
    better = replace(better, violations=(Violations("speed < 3", True, 0.05, 3, 20),))
    assert _reason_for_dropping(Race(better, before)) == (
        ", dropped: it violates `speed < 3` in 15% of 20 episodes (limit 5%)"
    )
    assert _reason_for_dropping(Race(worse, before)) == ", which did not help and was dropped"


@pytest.mark.parametrize(
    ("mean", "random", "best", "solved", "works"),
    [
        (260, 0, 500, 475, True),
        (240, 0, 500, 475, False),
        (-700, -1200, -150, -200, False),  # negative returns are compared alike
        (240, 0, None, 475, True),  # before the first policy, the score that solves the task counts
        (230, 0, None, None, False),
        (-1300, -1200, -1500, None, False),  # a best policy below random actions says nothing
        (None, 0, 500, 475, False),
        (260, None, 500, 475, False),
    ],
)
def test_a_policy_works_from_halfway_between_random_actions_and_the_best(
    mean: float | None, random: float | None, best: float | None, solved: float | None, works: bool
) -> None:
    def of(value: float | None) -> Score | None:
        return score(value, value) if value is not None else None

    search = Search(replace(load_task("cartpole"), solved=solved, optimum=None), ReplayBuffer(100))
    search.attempts.append(Attempt(0, None, of(random)))
    search.best_score = of(best)
    assert already_works(of(mean), search) is works
