"""Races: requirements first, then returns; longer ones only while undecided."""

from __future__ import annotations

import numpy as np
import pytest
from exporting import written
from support import BEST_LAKE

from policygen.episodes.exact import finite_mdp
from policygen.episodes.players import Players
from policygen.episodes.race import Course, Race, race
from policygen.episodes.requirements import Violations
from policygen.episodes.score import Score, episode_seeds, score_of_returns


def scored(*returns: float, violated: int = 0, allowed: float = 0.0) -> Score:
    score = score_of_returns(np.array(returns), tuple(range(len(returns))), "vector")
    violations = (Violations("overshoot", True, allowed, violated, len(returns)),)
    return Score(score.mean, score.std, score.ci95, False, "vector", score.returns, score.seeds, violations)


HUNDREDS = (100.0,) * 6
EXACT = Score(0.5, 0.0, (0.5, 0.5), True, "exact")


@pytest.mark.parametrize(
    ("challenger", "verdict", "lost"),
    [
        (scored(*HUNDREDS), "undecided", False),
        (scored(*HUNDREDS[1:], 96.0), "undecided", False),  # a loss of 0.67, p = 0.18
        (scored(99.5, 99.4, 99.6, 99.5, 99.5, 99.5), "worse", True),  # little, but certainly
        (scored(*HUNDREDS[1:], 0.0), "undecided", True),  # uncertain, but much
        (scored(*HUNDREDS[1:], 200.0), "undecided", False),
        (scored(*(120.0, 130.0) * 3), "better", False),
        (scored(*(120.0, 130.0) * 3, violated=1), "worse", True),
        (scored(*(120.0, 130.0) * 3, violated=1, allowed=0.2), "better", False),
    ],
)
def test_hard_requirements_decide_then_significance_then_the_margin(
    challenger: Score, verdict: str, lost: bool
) -> None:
    found = Race(challenger, scored(*HUNDREDS))
    assert (found.verdict, found.is_lost(0.01)) == (verdict, lost)


def test_fewer_violations_win_whatever_the_return() -> None:
    found = Race(scored(*[0.0] * 6), scored(*HUNDREDS, violated=2))
    assert (found.verdict, found.is_lost(0.01)) == ("better", False)


@pytest.mark.parametrize(
    ("mean", "verdict"), [(0.5, "equal"), (0.5 - 1e-12, "equal"), (0.4999, "worse"), (0.5001, "better")]
)
def test_exact_scores_decide_always(mean: float, verdict: str) -> None:
    found = Race(Score(mean, 0.0, (mean, mean), True, "exact"), EXACT)
    assert (found.verdict, found.is_lost(0.01)) == (verdict, verdict == "worse")


def test_a_race_is_prolonged_while_undecided_and_no_seed_is_played_twice() -> None:
    good = written("left = 0\nright = angle + 0.25*spin + 0.04*position + 0.08*velocity", "cartpole")
    alike = written("left = 0\nright = angle + 0.25*spin + 0.04*position + 0.0801*velocity", "cartpole")
    bad = written("left = 0\nright = 1", "cartpole")
    played: list[int] = []
    with Players(good.task) as players:

        def play(policy, seeds):
            played.extend(seeds)
            return players.play(policy, seeds)

        course = Course(good.task, episode_seeds(0, "race", 20), play, players.engine)
        assert race(bad, good, course, [5, 20]).challenger.episodes == 5
        assert race(alike, good, course, [5, 20]).challenger.episodes == 20
        assert race(good, alike, course, [5, 20]).verdict == "undecided"
    assert len(played) == course.count == 5 + 20 + 20
    assert {*played} == {*course.seeds}
    course.forget(good)
    assert course.played(good) == []


def test_exact_scores_play_nothing() -> None:
    policy = written(BEST_LAKE, "frozenlake")
    course = Course(policy.task, (), lambda *_: pytest.fail("played"), "exact", finite_mdp(policy.task))
    assert race(policy, policy, course, [20, 100]).verdict == "equal"
