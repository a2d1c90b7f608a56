"""A few episodes of a policy, for pictures that need visited states."""

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
    """Play episodes with fixed seeds; return none if the environment cannot be made or played here."""
    try:
        with Simulator(policy.task) as simulator:
            return simulator.play(policy, range(EPISODES))
    except PolicygenError:
        return []


def unplayed(policy: Policy, what: str, *, page: bool = False, film: bool = False) -> str:
    """Say which parts a picture or page lacks because the task is not trusted, and the remedy; empty if none.

    Args:
        what: the name of the picture or page.
        page: whether it is a page, whose map shows episodes that the run has kept.
        film: whether it would include a film.
    """
    why = why_refused(policy.task)
    linear = policy.kind == "linear"
    plane = not page and (linear or policy.reader.needed) and len(deciding_quantities(policy)) == 2
    parts = {
        "the film of an episode": film,
        "the usual sizes of the terms": linear,
        "episodes in the map": plane,
        "the traces of memory": policy.remembers,
    }
    lacks = [part for part, wanted in parts.items() if wanted]
    return f"{what} lacks {', '.join(lacks)}: {why}" if why and lacks else ""


def usual_sizes(policy: LinearPolicy, episodes: Sequence[Trajectory]) -> npt.NDArray[np.float64]:
    """Return the mean absolute value of each term over the steps of episodes, shape (terms,)."""
    values = [policy.term_columns(policy.reader.along(e.observations[:-1], e.actions)) for e in episodes]
    sizes: npt.NDArray[np.float64] = np.abs(np.concatenate(values, axis=1)).mean(axis=1)
    return sizes
