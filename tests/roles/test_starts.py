"""When the embedded search begins anew: after a stall, and never while it climbs."""

from __future__ import annotations

from collections.abc import Sequence

import policygen
from policygen.episodes.score import Score
from policygen.roles.starts import begins, goes_on_with
from policygen.runs.state import Attempt

RANDOM = -10.0


def tuned(*steps: tuple[float, float | None, float]) -> list[Attempt]:
    """Attempts: the push as proposed (0 is where every search begins), as tuned (None: not tuned), and its score."""

    def policy(push: float) -> policygen.Policy:
        return policygen.parse(f"force = {push:g}*velocity", "mountaincar-continuous")

    attempts = [Attempt(0, None, Score(RANDOM, 0.0, (RANDOM, RANDOM), False, "copies"))]
    for number, (before, after, mean) in enumerate(steps, start=1):
        score, proposed = Score(mean, 0.0, (mean, mean), False, "copies"), policy(before)
        if after is None:
            attempts.append(Attempt(number, proposed, score))
        else:
            attempts.append(Attempt(number, policy(after), score, proposed=proposed))
    return attempts


def push(attempts: Sequence[Attempt]) -> str | None:
    policy = goes_on_with(attempts)
    return None if policy is None else policy.to_text()


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
    assert begins(first, ())
    assert begins(again, (first,))
    assert not begins(tuned_on, (first, again))
