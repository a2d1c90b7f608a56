"""A few episodes of a policy, for pictures that show what it meets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicygenError
from policygen.extensions.plots.planes import deciding_quantities
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.tasks.trust import why_refused

EPISODES = 3


def played(policy: Policy) -> list[Trajectory]:
    """Episodes of fixed seeds; none where the environment cannot be made or played here."""
    try:
        with Simulator(policy.task) as simulator:
            return simulator.play(policy, range(EPISODES))
    except PolicygenError:
        return []


def unplayed(policy: Policy, what: str, *, page: bool = False, film: bool = False) -> str:
    """What a picture or a page lacks where nobody vouched for the task, and the way out; empty where nothing is.

    Args:
        what: it is called.
        page: it is a page, whose map of the plane shows episodes that the run has kept.
        film: it would have an episode that plays.
    """
    why = why_refused(policy.task)
    linear = policy.kind == "linear"
    plane = not page and (linear or policy.reader.needed) and len(deciding_quantities(policy)) == 2
    parts = {
        "the episode that plays": film,
        "the usual sizes of the terms": linear,
        "episodes in the map": plane,
        "the traces of memory": policy.remembers,
    }
    lacks = [part for part, wanted in parts.items() if wanted]
    return f"{what} lacks {', '.join(lacks)}: {why}" if why and lacks else ""


def usual_sizes(policy: LinearPolicy, episodes: Sequence[Trajectory]) -> npt.NDArray[np.float64]:
    """The mean absolute value of each of a policy's terms over the steps of episodes, shape (terms,)."""
    values = [policy.term_columns(policy.reader.along(e.observations[:-1], e.actions)) for e in episodes]
    sizes: npt.NDArray[np.float64] = np.abs(np.concatenate(values, axis=1)).mean(axis=1)
    return sizes
