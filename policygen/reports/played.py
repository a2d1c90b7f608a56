"""A few episodes of a policy, for pictures that show what it meets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicygenError
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy

EPISODES = 3


def played(policy: Policy) -> list[Trajectory]:
    """Episodes of fixed seeds; none where the environment cannot be made or played here."""
    try:
        with Simulator(policy.task) as simulator:
            return simulator.play(policy, range(EPISODES))
    except PolicygenError:
        return []


def usual_sizes(policy: LinearPolicy, episodes: Sequence[Trajectory]) -> npt.NDArray[np.float64]:
    """The mean absolute value of each of a policy's terms over the steps of episodes, shape (terms,)."""
    values = [policy.term_columns(policy.reader.along(e.observations[:-1], e.actions)) for e in episodes]
    sizes: npt.NDArray[np.float64] = np.abs(np.concatenate(values, axis=1)).mean(axis=1)
    return sizes
