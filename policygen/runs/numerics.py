"""Notes on the numbers of an attempt's episodes: values that were not finite, simulations that diverged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policygen.episodes.trajectory import Trajectory
from policygen.policies.policy import Policy
from policygen.quantities.spelling import compiled
from policygen.runs.notes import Note

MOST_UNDEFINED = 6  # values that were not finite that are listed
Shares = tuple[tuple[str, float], ...]


def undefined_shares(policy: Policy | None, trajectories: Sequence[Trajectory]) -> Shares | None:
    """Return the features and outputs that were not finite, each with its share of the steps; None without any.

    Decisions use 0 for NaN, and -1,000,000 or 1,000,000 for infinite values.
    """
    formulas = [*policy.reader.needed, *policy.formulas()] if policy is not None else []
    steps = sum(t.length for t in trajectories)
    if policy is None or not formulas or not steps:
        return None
    parts = [policy.reader.along(t.observations[:-1], t.actions) for t in trajectories]
    joined = (np.concatenate(column).astype(np.float64) for column in zip(*parts, strict=True))
    # A quantity that nothing reads has one number per episode.
    columns = [column if len(column) == steps else np.zeros(steps) for column in joined]
    with np.errstate(all="ignore"):
        values = compiled([node for _, node in formulas], policy.reader.names)(columns)
    shares = ((name, float(np.mean(~np.isfinite(v)))) for (name, _), v in zip(formulas, values, strict=True))
    return tuple((name, share) for name, share in shares if share > 0) or None


def undefined_words(shares: Shares) -> str:
    """Describe values that were not finite, with their shares of the steps."""
    found = [f"`{name}` in {share:.2g} of the steps" for name, share in shares]
    more = f", and {len(found) - MOST_UNDEFINED} more" if len(found) > MOST_UNDEFINED else ""
    return f"{', '.join(found[:MOST_UNDEFINED])}{more}"


# Features and outputs that were not finite, each with its share of the steps.
UNDEFINED = Note(
    "undefined",
    tuple[tuple[str, float], ...],
    make=undefined_shares,
    heading="values without a finite number",
    words=undefined_words,
    number=len,
)
# Number of scored episodes in which the environment reported that the simulation diverged.
UNSTABLE = Note("unstable", int, make=lambda _, trajectories: sum(t.unstable for t in trajectories) or None)
