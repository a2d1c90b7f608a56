"""Reuse the tuning state of one policy for another that shares constants with it."""

from __future__ import annotations

from difflib import SequenceMatcher

import numpy as np

from policygen.policies.policy import Policy
from policygen.runs.attempt import TuningState
from policygen.runs.tuning import FIRST_STEP
from policygen.search.refine.tunable import Tunable

LEAST_SHARED = 0.5  # share of the constants; below, tuning begins from scratch
WIDER = 2.0  # factor on the final deviations: new constants shift the optimum of shared ones


def carry_over(policy: Policy, parent: Policy, state: TuningState) -> TuningState | None:
    """Return the search distribution with which tuning `policy` begins if it revises a tuned policy.

    A changed policy mostly repeats the constants of its parent. These keep their deviations, somewhat widened, and
    their correlations; only new constants get first steps.

    Args:
        state: final state of the tuning of `parent`.

    Returns:
        None if the two share too few constants.
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
    """Return pairs of equal constants of two policies: same place, same order, about the same value."""
    pairs = []
    for place in dict.fromkeys(new.places):
        here, there = _constants_in(new, place), _constants_in(old, place)
        matcher = SequenceMatcher(None, [text for _, text in here], [text for _, text in there], autojunk=False)
        for block in matcher.get_matching_blocks():
            pairs += [(here[block.a + i][0], there[block.b + i][0]) for i in range(block.size)]
    return pairs


def _constants_in(tunable: Tunable, place: str) -> list[tuple[int, str]]:
    """Return number and value of each constant in a place, rounded as people and models round numbers they repeat."""
    values = tunable.values.tolist()
    return [(i, f"{values[i]:.2g}") for i in range(tunable.size) if tunable.places[i] == place]
