"""Views for templates: plain data of the task, its requirements, and the cells that episodes visited."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.requirements import Violations
from policygen.policies.cells import action_words
from policygen.policies.features import CellReader
from policygen.prompts.sections import Section, add_section
from policygen.prompts.traces import rows_at
from policygen.quantities.grid import Grid
from policygen.quantities.text import slug
from policygen.runs.attempt import Attempt
from policygen.runs.notes import violations_of
from policygen.runs.state import Context
from policygen.tasks.spaces import Observation, alike, span
from policygen.tasks.task import Task

View = dict[str, Any]  # names and values for a template
STANDARD_ERRORS = 2.0  # half width of the intervals of returns to go; overlapping ones count as equal
LEAST_EPISODES = 5  # least number of episodes for a mean return to go
AROUND_VIOLATION = (-2, -1, 0, 1)  # steps that are shown around the first violation


# --- task and grid ---------------------------------------------------------------------------------------------------


# The part of a task that templates may read.
_TASK = (
    *("name", "gym_id", "observations", "observed", "texts", "actuators", "action_space", "max_steps"),
    *("features", "requirements", "perturbed", "about", "hints", "documentation", "facts", "discount", "solved"),
    *("optimum", "step_seconds", "observation_names", "quantity_names"),
)


def task_view(task: Task) -> View:
    """Return a task for templates, without its grid (`grid` is the one in use); `score` says what is maximised.

    In `observed`, neighbouring observations with the same description and unit are one entry, named by all their names;
    so are neighbours that differ in the body only, and many that differ in nothing but their numbers.
    """
    changed: View = {
        "observed": _together(task.observations),
        "requirements": [(one.name, str(one), one.hard) for one in task.requirements],
        "perturbed": [one.described for one in task.perturb],
    }
    return {name: changed[name] if name in changed else getattr(task, name) for name in _TASK}


def _together(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    alike_ones = [replace(group[0], name=span(group)) for group in alike(observations)]
    groups = [list(group) for _, group in itertools.groupby(alike_ones, lambda o: (o.about or o.name, o.unit))]
    entries = list[Observation]()
    for (names, about), run in itertools.groupby(groups, _of_any_body):
        first, *others = run
        if others:
            bodies = ", ".join(group[0].derived for group in (first, *others))
            entries.append(replace(first[0], name=f"{names} (BODY: {bodies})", about=about))
        else:
            entries.append(replace(first[0], name=", ".join(o.name for o in first)))
    return tuple(entries)


def _of_any_body(group: Sequence[Observation]) -> tuple[str, str]:
    """Return names and description of a group, with `BODY` for the name of the body that the description names."""
    names, about = [o.name for o in group], group[0].about
    body = group[0].derived
    if not body or not all(name.startswith(f"{slug(body)}_") for name in names):
        return ", ".join(names), about
    own = len(slug(body))
    return ", ".join(f"BODY{name[own:]}" for name in names), about.replace(f"of body {body}", "of BODY", 1)


FEWEST_EDGES = 5  # between integers that a person would not have chosen for a quantity of other values


def _first_integer(edges: Sequence[float]) -> int | None:
    """Return the integer in bin 0 of a dimension with a bin for each integer: its edges lie halfway between them."""
    whole = [edge - 0.5 for edge in edges]
    each = len(edges) >= FEWEST_EDGES and whole == list(range(int(whole[0]), int(whole[0]) + len(edges)))
    return int(whole[0]) if each else None


def grid_view(grid: Grid | None) -> list[View]:
    """Return the views of a grid's dimensions; none without a grid."""
    return [
        {
            "name": d.name,
            "bins": [{"index": i, "label": d.label(i)} for i in range(d.bins)],
            "plain": d.label(0) == "0",  # bin i is the value i
            "first": _first_integer(d.edges),  # bin i is the value first + i; none if bins are no integers
        }
        for d in (grid.dimensions if grid is not None else ())
    ]


# --- requirements ----------------------------------------------------------------------------------------------------


def requirement_views(context: Context) -> list[View]:
    """Return the requirements of the task, and how the best policy meets them."""
    best = context.best
    counted = {one.name: one for one in violations_of(best)} if best is not None else {}
    views = []
    for requirement in context.task.requirements:
        found = counted.get(requirement.name)
        view = {
            "name": requirement.name,
            "text": str(requirement),
            "hard": requirement.hard,
            "allowed": requirement.allowed,  # share of episodes that may violate it
            "violated": found.violated if found is not None else None,  # number of the best policy's episodes
            "episodes": found.episodes if found is not None else 0,
            # value of its left side when it was furthest from being met
            "worst": found.worst if found is not None else None,
            "rows": _rows(best, found, context) if best is not None and found is not None else [],
        }
        views.append(view)
    return views


def _rows(best: Attempt, found: Violations, context: Context) -> list[View]:
    """Return the steps around the first violation in the worst episode."""
    if not found.violated or found.step is None:
        return []
    played = [e for e in context.buffer.of_attempt(best.number) if e.trajectory.seed == found.seed]
    steps = [found.step + k for k in AROUND_VIOLATION]
    return rows_at(best.policy, played[0], steps, context.task) if played else []


add_section(Section("requirements", lambda context, config: requirement_views(context), "after_account"))


# --- visited cells ---------------------------------------------------------------------------------------------------


def visit_views(
    reader: CellReader,
    kinds: npt.NDArray[Any],
    counts: npt.NDArray[np.float64],
    most: int,
    anywhere: npt.NDArray[np.float64] | None = None,
) -> list[View]:
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
