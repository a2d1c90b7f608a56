"""What tuning one policy showed, for another that shares constants with it: how far each of these may move."""

from __future__ import annotations

from difflib import SequenceMatcher

import numpy as np

from policygen.policies.policy import Policy
from policygen.runs.state import TuningState
from policygen.runs.tuning import FIRST_STEP
from policygen.search.refine.tunable import Tunable

LEAST_SHARED = 0.5  # of the constants; below, the policy is another one, and its first steps are found anew
WIDER = 2.0  # than where the search stopped: what is new shifts the optimum of what is not


def carried(policy: Policy, parent: Policy, state: TuningState) -> TuningState | None:
    """The search distribution with which tuning `policy` begins, where it revises a policy that has been tuned.

    A changed policy mostly repeats the constants of its parent. With steps of a new policy all of these would be thrown
    about again; they keep their deviations, somewhat widened, and their correlations, and only what is new takes first
    steps.

    Args:
        state: where the tuning of `parent` stopped.

    Returns:
        None where the two share too little.
    """
    new, old = Tunable(policy, state.floor), Tunable(parent, state.floor)
    shared = _shared(new, old)
    if old.size != len(state.deviations) or len(shared) < LEAST_SHARED * new.size or not shared:
        return None
    here, there = np.array(shared).T
    deviations = new.in_units(np.full(new.size, FIRST_STEP))
    deviations[here] = np.minimum(deviations[here], WIDER * np.asarray(state.deviations)[there])
    correlations = np.eye(new.size)
    rows, columns = np.tril_indices(old.size, -1)
    if len(state.correlations) == len(rows):
        known = np.eye(old.size)
        known[rows, columns] = known[columns, rows] = state.correlations
        correlations[np.ix_(here, here)] = known[np.ix_(there, there)]
    return TuningState(
        tuple(float(f"{value:.4g}") for value in deviations),
        tuple(correlations[np.tril_indices(new.size, -1)].tolist()),
        state.floor,
    )


def _shared(new: Tunable, old: Tunable) -> list[tuple[int, int]]:
    """Which constants of two policies are the same: in the same place, in the same order, of about the same value."""
    pairs = []
    for place in dict.fromkeys(new.places):
        here, there = _constants_in(new, place), _constants_in(old, place)
        matcher = SequenceMatcher(None, [text for _, text in here], [text for _, text in there], autojunk=False)
        for block in matcher.get_matching_blocks():
            pairs += [(here[block.a + i][0], there[block.b + i][0]) for i in range(block.size)]
    return pairs


def _constants_in(tunable: Tunable, place: str) -> list[tuple[int, str]]:
    """Number and rounded value of each constant in a place; people and models round what they repeat."""
    values = tunable.values.tolist()
    return [(i, f"{values[i]:.2g}") for i in range(tunable.size) if tunable.places[i] == place]
