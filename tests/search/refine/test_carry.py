"""What tuning showed of a policy is kept for one that revises it."""

from __future__ import annotations

import numpy as np
import pytest
from refining import policy_of

from policygen.runs.attempt import TuningState
from policygen.runs.tuning import CAREFUL_STEP, FIRST_STEP
from policygen.search.refine.cma import WIDER, carry_over
from policygen.search.refine.tunable import Tunable

PARENT = "let length = 0.5*cos(angle)\nleft = 0\nright = 3*length - 2*spin"
REVISED = PARENT.replace(" - 2*spin", " + 0.7*position - 2*spin")
STATE = TuningState((0.01, 0.03, 0.02), (0.5, 0.0, -0.9))


def carried(text: str, state: TuningState = STATE, first_step: float = FIRST_STEP) -> TuningState:
    found = carry_over(policy_of(text), policy_of(PARENT), state, first_step)
    assert found is not None
    return found


def test_constants_that_are_kept_keep_their_steps_and_what_moves_together() -> None:
    state = carried(REVISED)
    assert Tunable(policy_of(REVISED)).places == ("let length", "right", "right", "right")
    length, gain, new, damping = state.deviations
    assert (length, gain, damping) == pytest.approx([WIDER * value for value in STATE.deviations])
    assert new == pytest.approx(FIRST_STEP * 0.7)
    assert state.correlations == (0.5, 0.0, 0.0, 0.0, -0.9, 0.0)
    assert not state.climbing


def test_a_step_never_becomes_larger_than_the_first_of_a_new_constant() -> None:
    state = carried(PARENT, TuningState((0.4, 0.4, 0.4)))
    assert state.deviations == pytest.approx((FIRST_STEP * 0.5, FIRST_STEP * 3, FIRST_STEP * 2))


def test_a_revision_that_works_already_is_tuned_in_smaller_steps() -> None:
    careful, usual = carried(REVISED, first_step=CAREFUL_STEP), carried(REVISED)
    assert careful.deviations == pytest.approx(np.array(usual.deviations) * CAREFUL_STEP / FIRST_STEP)
    assert careful.correlations == usual.correlations


def test_a_rounded_constant_is_the_same_and_a_changed_one_is_new() -> None:
    state = carried("let length = 0.5013*cos(angle)\nleft = 0\nright = 3*length - 5*spin")
    assert state.deviations == pytest.approx((WIDER * 0.01, WIDER * 0.03, FIRST_STEP * 5))


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("left = 0\nright = 7*angle - 2*spin + 9*position", STATE),  # one of three is shared
        ("left = 0\nright = 7*angle", STATE),
        ("left = 0\nright = angle", STATE),  # a 1 that nothing multiplies
        (PARENT, TuningState((0.1, 0.1))),  # of another policy
    ],
)
def test_a_policy_that_shares_too_little_begins_anew(text: str, state: TuningState) -> None:
    assert carry_over(policy_of(text), policy_of(PARENT), state) is None
