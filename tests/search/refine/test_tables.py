"""Coordinate search: what it tries and keeps, within its budget."""

from __future__ import annotations

import numpy as np
from refining import policy_of, seeds, tuned

from policygen.policies.table import TablePolicy
from policygen.search.refine.tunable import Trials

WRONG = "| row | column | action |\n|---|---|---|\n| * | * | right |"


def test_with_enough_episodes_every_entry_is_tried_twice_on_the_same_seeds() -> None:
    start = policy_of(WRONG, "frozenlake")
    wanted = np.arange(16) % 4
    lists: list[tuple[int, ...]] = []

    def agreeing(policies: list[TablePolicy], seeds: tuple[int, ...]) -> np.ndarray:
        lists.extend([seeds] * len(policies))
        return np.array([np.mean(np.ravel(policy.actions) == wanted) for policy in policies])

    refined = tuned(start, "coordinate", Trials(agreeing, seeds, 2 * 49 * 20), 1)  # type: ignore[arg-type]
    assert isinstance(refined.policy, TablePolicy)
    assert (np.ravel(refined.policy.actions) == wanted).all()
    assert [len(one) for one in lists] == [20] * (2 * 49)
    assert (len(set(lists)), refined.episodes) == (2, 2 * 49 * 20)
