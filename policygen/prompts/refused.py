"""The evidence about a refused proposal: its lines, the part of the episode where it lost, one row of its trace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.buffer import Episode, ReplayBuffer
from policygen.episodes.trajectory import Trajectory
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.prompts.account import PARTS, reached_its_goal
from policygen.prompts.traces import episode_view, first_and_last, reader_for
from policygen.quantities.tree import signed_constants
from policygen.runs.attempt import Attempt
from policygen.tasks.task import Task

STANDARD_ERRORS = 2.0  # that a loss must be from zero to be told
MOST_LINES = 12  # of a proposal
MOST_ROWS = 6  # of a table; beyond, the cells in which it differs say more in less
MOST_NAMES = 10  # quantities of a row


@dataclass(frozen=True, slots=True)
class Loss:
    """The fifth of an episode in which a proposal lost most against the best: steps `first` to `last`.

    `mean` is what it lost there per episode, and `episodes` how many of its own that rests on. `paired` says whether
    both played the same seeds. `row` is one step of it, by quantity: of the episode that lost most, the step of least
    reward there, or the last one where the episode ended in it.
    """

    first: int
    last: int
    mean: float
    episodes: int
    paired: bool
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RefusedView:
    """A refused proposal: the lines that are not in the policy it was judged against, what tuning moved, its loss.

    A table that differs in many has no `lines`: see the cells in which it does (`AttemptView.changed`). `lost` is None
    where no part of the episode stands out.
    """

    lines: tuple[str, ...]
    more_lines: int
    tuned: Mapping[str, Sequence[tuple[float, float]]]
    lost: Loss | None


def refused_view(attempt: Attempt, rival: Attempt, buffer: ReplayBuffer, task: Task) -> RefusedView | None:
    """Return the view of an attempt that lost to `rival`, the best at its time; None for a failed attempt."""
    proposed, policy = attempt.proposed, attempt.policy
    if proposed is None or policy is None:
        return None
    theirs = set(_lines_of(rival.policy)) if rival.policy is not None else set()
    own = [line for line in _lines_of(proposed) if line not in theirs and "| --" not in line]
    if isinstance(proposed, TablePolicy) and len(own) > MOST_ROWS:
        own = []
    mine, best = ([e.trajectory for e in buffer.of_attempt(a.number)] for a in (attempt, rival))
    return RefusedView(
        tuple(own[:MOST_LINES]),
        max(0, len(own) - MOST_LINES),
        moved(proposed, policy),
        _loss(attempt, mine, best, task),
    )


def moved(proposed: Policy | None, policy: Policy) -> dict[str, list[tuple[float, float]]]:
    """For each line of a linear policy, its constants that tuning moved: before and after, with their signs."""
    if not isinstance(proposed, LinearPolicy) or not isinstance(policy, LinearPolicy):
        return {}
    before = dict((*proposed.lets, *proposed.equations))
    found = {}
    for name, node in (*policy.lets, *policy.equations):
        pairs = zip(signed_constants(before[name]), signed_constants(node), strict=True)
        if changed := [(old, new) for old, new in pairs if old != new]:
            found[name] = changed
    return found


def _lines_of(policy: Policy) -> list[str]:
    return [" ".join(line.split()) for line in policy.to_text(plain=True).splitlines()]


def _loss(attempt: Attempt, mine: Sequence[Trajectory], best: Sequence[Trajectory], task: Task) -> Loss | None:
    seeds = {t.seed: t for t in best}
    pairs = [(t, seeds[t.seed]) for t in mine if t.seed in seeds]
    paired = len(pairs) >= 2
    if paired:
        mine, best = [t for t, _ in pairs], [t for _, t in pairs]
    if len(mine) < 2 or len(best) < 2:
        return None
    longest = max(t.length for t in (*mine, *best))
    bounds = np.unique(np.arange(PARTS + 1) * longest // PARTS)
    ours, others = (_in_parts(some, bounds) for some in (mine, best))
    gained, error = _difference(ours, others, paired=paired)
    sure = gained + STANDARD_ERRORS * error < 0
    if not sure.any():
        return None
    part = int(np.argmin(np.where(sure, gained, math.inf)))
    first, last = int(bounds[part]), int(bounds[part + 1]) - 1
    there = (ours - others if paired else ours)[:, part]
    row = _row(attempt, mine[int(np.argmin(there))], first, last, task)
    return Loss(first, last, -float(gained[part]), len(mine), paired, row)


def _in_parts(some: Sequence[Trajectory], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The sum of the rewards in each part of each episode, 0 after its end: shape (episodes, parts)."""
    summed = np.zeros((len(some), int(bounds[-1]) + 1))
    for row, t in zip(summed, some, strict=True):
        row[1 : t.length + 1] = t.rewards
    return np.diff(np.cumsum(summed, axis=1)[:, bounds])


def _difference(
    mine: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64], *, paired: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean difference of each column and its standard error."""
    if paired:
        differences = mine - theirs
        return differences.mean(axis=0), differences.std(axis=0, ddof=1) / math.sqrt(len(differences))
    error = np.sqrt(mine.var(axis=0, ddof=1) / len(mine) + theirs.var(axis=0, ddof=1) / len(theirs))
    return mine.mean(axis=0) - theirs.mean(axis=0), error


def _row(attempt: Attempt, t: Trajectory, first: int, last: int, task: Task) -> dict[str, Any]:
    """One step of the part, else the episode's last one."""
    policy = attempt.policy
    end = t.length - 1
    if t.terminated and not reached_its_goal(t, task.solved) and end <= last:
        step = end
    else:
        step = min(end, first) if first >= end else first + int(np.argmin(t.rewards[first : last + 1]))
    reader = reader_for(task, None, policy)
    view = episode_view(Episode(attempt.number, t), task, reader, policy)
    names = (
        "step",
        *first_and_last(view.traced, MOST_NAMES),
        *(["cell"] if "cell" in view.columns else []),
        *view.outputs,
        "reward",
    )
    return {name: view.columns[name][step] for name in names}
