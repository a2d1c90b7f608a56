"""The visited cells that prompts show: those from which more or less followed than chance explains."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.policies.cells import action_words
from policygen.policies.features import CellReader

STANDARD_ERRORS = 2.0  # half width of the intervals of returns to go; overlapping ones count as equal
LEAST_EPISODES = 5  # least number of episodes for a mean return to go


def visit_views(
    reader: CellReader,
    kinds: npt.NDArray[Any],
    counts: npt.NDArray[np.float64],
    most: int,
    anywhere: npt.NDArray[np.float64] | None = None,
) -> list[dict[str, Any]]:
    """Return a record for each of at most `most` pairs of a cell and an action, for templates.

    Pairs shortly before failures come first, then the most visited. A pair is left out if too few episodes have it, or
    if its return to go and that of another action in the cell are equal within two standard errors of each. If no other
    action was taken there in enough episodes, the pair is kept only if it occurs shortly before a failure and its
    return to go differs significantly from the mean over all cells.

    Args:
        counts: counts of the episodes to show, as from `count_visits`.
        anywhere: counts of all episodes, for the other actions; by default `counts`.
    """
    anywhere = counts if anywhere is None else anywhere
    visits, ends = counts[0].reshape(-1), counts[1].reshape(-1)
    seen = np.flatnonzero(visits)
    if not len(seen):
        return []
    cells, own = np.divmod(seen, len(kinds))
    rows = np.arange(len(seen))
    mean, error = _means(counts[2:, cells, own])
    others, errors = _means(anywhere[2:, cells])
    others[rows, own] = np.nan
    apart = np.abs(others - mean[:, None]) > STANDARD_ERRORS * (errors + error[:, None])
    alone: npt.NDArray[np.bool_] = np.asarray(np.isnan(others).all(axis=1))
    overall = counts[3].sum() / counts[2].sum()
    differs = np.where(alone, np.abs(mean - overall) > STANDARD_ERRORS * error, (apart | np.isnan(others)).all(axis=1))
    kept = np.flatnonzero(differs & ~np.isnan(mean) & (~alone | (ends[seen] > 0)))
    kept = kept[np.lexsort((-visits[seen[kept]], -ends[seen[kept]]))][:most]

    def words(kind: int) -> str:
        return action_words(reader.task.actuators, list(map(float, kinds[kind])))

    places = reader.grid.bins_of(cells[kept]).tolist()
    views = []
    for i, bins in zip(kept.tolist(), places, strict=True):
        other = -1 if alone[i] else int(np.nanargmax(others[i]))
        views.append(
            {
                "bins": tuple(bins),
                "action": words(int(own[i])),
                "visits": int(visits[seen[i]]),  # steps in which the action was taken there
                # return to go from the first visit in each of `episodes` episodes
                "mean_return": float(mean[i]),
                "error": float(error[i]),
                "episodes": int(counts[2, cells[i], own[i]]),
                "ends_soon": int(ends[seen[i]]),  # steps among the last 10 before a failure
                # the best other action there; without one, the row differs from the mean over all cells
                "other": words(other) if other >= 0 else "",
                "other_return": float(others[i, other]) if other >= 0 else 0.0,
            }
        )
    return views


def _means(first: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return means and standard errors from counts, sums and sums of squares, shape (3, ...); NaN for too few."""
    n, total, squares = first
    with np.errstate(all="ignore"):
        mean = np.where(n >= LEAST_EPISODES, total / n, np.nan)
        variance = np.maximum(0.0, squares - n * mean**2) / (n - 1)
        return mean, np.where(n >= LEAST_EPISODES, np.sqrt(variance / n), np.nan)
