"""The search `builtin` starts a new search after a stall, and not while scores rise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import policygen
from policygen.episodes.score import Score
from policygen.proposers.starts import EXCHANGES, policy_to_continue, starts_new_search, with_labels_exchanged
from policygen.runs.attempt import Attempt, Tuned, saved

RANDOM = -10.0


def attempted(task: str, random: float, *steps: tuple[str, str | None, float]) -> list[Attempt]:
    """Return attempts after random actions; a step is a policy as proposed, as tuned (None: not tuned), and a score."""
    attempts = [Attempt(0, None, Score(random, 0.0, (random, random), False, "copies"))]
    for number, (before, after, mean) in enumerate(steps, start=1):
        proposed = saved(policygen.parse(before, task))
        policy = proposed if after is None else saved(policygen.parse(after, task))
        best = mean > max((one.score.mean for one in attempts if one.score is not None), default=-np.inf)
        score, changed = Score(mean, 0.0, (mean, mean), False, "copies"), Tuned(proposed=proposed if after else None)
        attempts.append(Attempt(number, policy, score, tuned=changed, accepted=best))
    return attempts


def tuned(*steps: tuple[float, float | None, float]) -> list[Attempt]:
    """Return attempts; a step is a weight as proposed (0 starts a search), as tuned, and a score."""
    texts = (tuple(None if x is None else f"force = {x:g}*velocity" for x in step[:2]) for step in steps)
    pairs = zip(texts, steps, strict=True)
    return attempted("mountaincar-continuous", RANDOM, *((*some, step[2]) for some, step in pairs))  # type: ignore[misc]


def push(attempts: Sequence[Attempt]) -> str | None:
    """Return the policy to continue, as text."""
    policy = policy_to_continue(attempts)
    return None if policy is None else policy.to_text()


def parsed(text: str) -> str:
    return policygen.parse(text, "mountaincar").to_text()


FIRST, SECOND = (0.0, 1.0, 5.0), (0.0, 2.0, 30.0)


def test_two_searches_begin_and_the_better_one_goes_on() -> None:
    assert push(tuned()) is None
    assert push(tuned(FIRST)) is None
    assert push(tuned(FIRST, SECOND)) == "force = 2*velocity"
    assert push(tuned(SECOND, (0.0, 3.0, 5.0))) == "force = 2*velocity"


def test_it_goes_on_with_what_tuning_made_of_it_while_it_climbs() -> None:
    climbing = tuned(FIRST, SECOND, (2.0, 3.0, 40.0), (3.0, 4.0, 42.0), (4.0, 5.0, 44.0))
    assert push(climbing) == "force = 5*velocity"
    # A step that did not help changes nothing.
    assert push(tuned(FIRST, SECOND, (2.0, 3.0, 40.0), (3.0, None, 40.0))) == "force = 3*velocity"


def test_one_that_stalls_is_followed_by_another_which_goes_on_though_it_is_behind() -> None:
    stalled = (FIRST, SECOND, (2.0, 3.0, 30.2), (3.0, 4.0, 30.4), (4.0, 5.0, 30.6))
    assert push(tuned(*stalled)) is None
    anew = (*stalled, (0.0, 7.0, 12.0))
    assert push(tuned(*anew)) == "force = 7*velocity"
    assert push(tuned(*anew, (7.0, 8.0, 25.0))) == "force = 8*velocity"


def test_where_tuning_moves_nothing_it_begins_again_and_again() -> None:
    still = (0.0, None, RANDOM)
    assert push(tuned(still)) is None
    assert push(tuned(still, still, still, still)) == "force = 0*velocity"


def test_what_a_search_begins_with_is_known_though_tuning_left_it_as_it_was() -> None:
    _, first, again, tuned_on = tuned((0.0, None, RANDOM), (0.0, 1.0, 5.0), (1.0, 2.0, 6.0))
    assert starts_new_search(first, ())
    assert starts_new_search(again, (first,))
    assert not starts_new_search(tuned_on, (first, again))


STEEPEST = "left = {0}*velocity\nnone = 0\nright = {1}*velocity"


def chosen(*steps: tuple[str, str, float]) -> list[Attempt]:
    """Return attempts for a task with a choice among three labels."""
    return attempted("mountaincar", -200.0, *steps)


def of_right(rise: float) -> str:
    return STEEPEST.format(-rise, rise)


NOTHING = "left = 0\nnone = 0\nright = 0"
STALLED = (
    (NOTHING, of_right(1), -180.0),
    (NOTHING, of_right(2), -150.0),
    *((of_right(rise), of_right(rise + 1), -149.0) for rise in (2, 3, 4)),
)


def exchanged_in(attempts: list[Attempt]) -> str | None:
    """Return the proposal after these attempts; the best policy is the one accepted last."""
    best = next((one.policy for one in reversed(attempts) if one.accepted), None)
    policy = with_labels_exchanged(attempts, best, np.random.default_rng(0))
    return None if policy is None else policy.to_text()


def test_where_a_search_has_stalled_every_two_labels_are_exchanged_once() -> None:
    steps = list(STALLED)
    tried = []
    for _ in range(EXCHANGES):
        attempts = chosen(*steps)
        assert policy_to_continue(attempts) is None
        exchanged = exchanged_in(attempts)
        tried.append(exchanged)
        steps.append((exchanged, exchanged.replace("3", "6"), -190.0))
    assert len({*tried, policygen.parse(of_right(3), "mountaincar").to_text()}) == EXCHANGES + 1
    assert sorted(policygen.parse(text, "mountaincar").act(np.array([-0.5, 0.05])) for text in tried) == [0, 1, 2]
    # Then another search begins from nothing.
    assert policy_to_continue(chosen(*steps)) is None
    assert exchanged_in(chosen(*steps)) is None


def test_an_exchange_goes_on_where_it_makes_a_new_best_and_else_not() -> None:
    exchanged = exchanged_in(chosen(*STALLED))
    after = exchanged.replace("3", "6")
    assert policy_to_continue(chosen(*STALLED, (exchanged, after, -149.0))) is None
    # What was proposed beside it does not matter.
    for beside in ((), ((of_right(-3), of_right(-6), -190.0),)):
        assert push(chosen(*STALLED, (exchanged, after, -148.0), *beside)) == parsed(after)


def test_a_search_from_nothing_goes_on_though_it_is_behind_and_exchanges_failed_before_it() -> None:
    exchanged = exchanged_in(chosen(*STALLED))
    behind = (exchanged, exchanged.replace("3", "6"), -190.0), (NOTHING, of_right(7), -170.0)
    assert push(chosen(*STALLED, *behind)) == parsed(of_right(7))


@pytest.mark.parametrize(
    ("task", "text"), [("mountaincar-continuous", "force = 5*velocity"), ("cartpole", "left = -angle\nright = angle")]
)
def test_there_is_nothing_to_exchange_in_a_number_or_between_two(task: str, text: str) -> None:
    stalled = tuned(FIRST, SECOND, (2.0, 3.0, 30.2), (3.0, 4.0, 30.4), (4.0, 5.0, 30.6))
    assert with_labels_exchanged(stalled, policygen.parse(text, task), np.random.default_rng(0)) is None


def test_nothing_is_exchanged_before_two_searches_have_begun() -> None:
    assert exchanged_in(chosen(STALLED[0])) is None
