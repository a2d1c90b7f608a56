"""Races: requirements first, then returns; longer ones only while undecided."""

from __future__ import annotations

import numpy as np
import pytest
from exporting import written
from support import BEST_LAKE

from policygen.episodes.exact import finite_mdp
from policygen.episodes.race import Course, Levels, Race, race
from policygen.episodes.requirements import Violations
from policygen.episodes.score import Score, episode_seeds, score_of_returns
from policygen.episodes.simulator import ParallelSimulator


def scored(*returns: float, violated: int = 0, allowed: float = 0.0) -> Score:
    score = score_of_returns(np.array(returns), tuple(range(len(returns))), "vector")
    violations = (Violations("overshoot", True, allowed, violated, len(returns)),)
    return Score(score.mean, score.std, score.ci95, False, "vector", score.returns, score.seeds, violations)


def exact(mean: float) -> Score:
    return Score(mean, 0.0, (mean, mean), True, "exact")


HUNDREDS = (100.0,) * 6
FAR = (120.0, 130.0) * 3


@pytest.mark.parametrize(
    ("challenger", "incumbent", "verdict", "lost"),
    [
        (scored(*HUNDREDS), scored(*HUNDREDS), "undecided", False),
        (scored(*HUNDREDS[1:], 96.0), scored(*HUNDREDS), "undecided", False),  # a loss of 0.67, p = 0.18
        (scored(99.5, 99.4, 99.6, 99.5, 99.5, 99.5), scored(*HUNDREDS), "worse", True),  # little, but certainly
        (scored(*HUNDREDS[1:], 0.0), scored(*HUNDREDS), "undecided", True),  # uncertain, but much
        (scored(*HUNDREDS[1:], 200.0), scored(*HUNDREDS), "undecided", False),
        (scored(*FAR), scored(*HUNDREDS), "better", False),
        (scored(*(101.0,) * 6), scored(*HUNDREDS), "better", False),  # equal differences leave no doubt
        (scored(*FAR, violated=1), scored(*HUNDREDS), "worse", True),
        (scored(*FAR, violated=1, allowed=0.2), scored(*HUNDREDS), "better", False),
        (scored(*[0.0] * 6), scored(*HUNDREDS, violated=2), "better", False),
        (exact(0.5), exact(0.5), "equal", False),
        (exact(0.5 - 1e-12), exact(0.5), "equal", False),
        (exact(0.4999), exact(0.5), "worse", True),
        (exact(0.5001), exact(0.5), "better", False),
    ],
)
def test_hard_requirements_decide_then_significance_then_the_margin(
    challenger: Score, incumbent: Score, verdict: str, lost: bool
) -> None:
    found = Race(challenger, incumbent)
    assert (found.verdict, found.is_lost(0.01)) == (verdict, lost)


def test_a_race_is_prolonged_while_undecided_and_no_seed_is_played_twice() -> None:
    good = written("left = 0\nright = angle + 0.25*spin + 0.04*position + 0.08*velocity", "cartpole")
    alike = written("left = 0\nright = angle + 0.25*spin + 0.04*position + 0.0801*velocity", "cartpole")
    bad = written("left = 0\nright = 1", "cartpole")
    played: list[int] = []
    with ParallelSimulator(good.task) as players:

        def play(policy, seeds):
            played.extend(seeds)
            return players.play(policy, seeds)

        course = Course(good.task, episode_seeds(0, "race", 20), play, players.engine)
        entrants = [course.scorer(policy) for policy in (good, alike, bad)]
        assert race(entrants[2], entrants[0], [5, 20]).episodes == 5
        assert race(entrants[1], entrants[0], [5, 20]).episodes == 20
        assert race(entrants[0], entrants[1], [5, 20]).verdict == "undecided"
    assert len(played) == course.count == 5 + 20 + 20
    assert {*played} == {*course.seeds}
    course.forget(good)
    assert course.played(good) == []


def test_exact_scores_play_nothing() -> None:
    policy = written(BEST_LAKE, "frozenlake")
    course = Course(policy.task, (), lambda *_: pytest.fail("played"), "exact", finite_mdp(policy.task))
    assert race(course.scorer(policy), course.scorer(policy), [20, 100]).verdict == "equal"


SEARCH = Levels(gain=0.1, loss=1, last=0.2, most=4)
RISING = scored(1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("challenger", "incumbent", "levels", "verdict"),
    [
        (scored(3, 4, 5, 6.5, 8), RISING, SEARCH, "better"),
        (scored(0, 1, 2, 3, 4), RISING, SEARCH, "worse"),
        (RISING, RISING, SEARCH, "equal"),
        (scored(1, 2, 3, 4, 4.9), RISING, SEARCH, "worse"),  # any loss
        (scored(9, 1, 3, 3, 5), RISING, SEARCH, "undecided"),
        (scored(3, 2, 4, 4.5), scored(1, 2, 3, 5), SEARCH, "better"),  # p = 0.13 after the last episodes
        (scored(3, 2, 4, 4.5), scored(1, 2, 3, 5), Levels(0.1, 1), "undecided"),
        (scored(1, 2, 3, float("nan")), scored(1, 2, 3, 4), SEARCH, "worse"),
    ],
)
def test_levels_say_how_sure_a_race_has_to_be(
    challenger: Score, incumbent: Score, levels: Levels, verdict: str
) -> None:
    assert Race(challenger, incumbent, levels).verdict == verdict


def test_a_contender_whose_budget_ends_is_compared_on_the_episodes_that_it_has() -> None:
    short, long = scored(2, 3, 4.5, violated=3), scored(1, 2, 3, 1000, violated=4)
    found = race(lambda count: short, lambda count: long, [3, 6, 9], SEARCH)
    assert (found.verdict, found.episodes) == ("better", 3)
    assert found.incumbent.violations == long.violations


@pytest.mark.parametrize(
    ("challenger", "incumbent", "words"),
    [
        (scored(9, 1, 3, 3), scored(1, 2, 3, 4), "undecided after 4 paired episodes: ahead by 1.5 ["),
        (scored(1, 2, 3, 4), scored(9, 1, 3, 3), "undecided after 4 paired episodes: behind by 1.5 ["),
        (scored(1, 2), scored(1, 2), "no difference on 2 paired episodes"),
        (scored(*FAR), scored(*HUNDREDS), "better by 25 [19.25, 30.75] on 6 paired episodes, one-sided p < 0.0001"),
        (exact(0.5), exact(0.5), "equal (exact)"),
        (exact(0.6), exact(0.5), "better by 0.1 (exact)"),
        (exact(0.25), exact(0.5), "worse by 0.25 (exact)"),
        (
            scored(*HUNDREDS, violated=3),
            scored(*HUNDREDS),
            "worse: it violates `overshoot` in 3 of 6 episodes, the other in 0",
        ),
        (
            scored(*HUNDREDS),
            scored(*HUNDREDS, violated=3),
            "better: it violates `overshoot` in 0 of 6 episodes, the other in 3",
        ),
    ],
)
def test_the_words_of_a_race_state_the_result_its_size_and_its_basis(
    challenger: Score, incumbent: Score, words: str
) -> None:
    assert str(Race(challenger, incumbent)).startswith(words)
