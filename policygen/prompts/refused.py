"""The evidence why a proposal was refused: its new lines, the part of the episode with the largest loss, and a step."""

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
from policygen.policies.normalise import is_definition
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.prompts.account import PARTS, reached_its_goal
from policygen.prompts.traces import episode_view, reader_for
from policygen.quantities.tree import signed_constants
from policygen.runs.attempt import Attempt
from policygen.tasks.task import Task

STANDARD_ERRORS = 2.0  # a loss is shown if it exceeds this many standard errors
MOST_LINES = 12  # lines of a proposal that are shown
MOST_ROWS = 6  # a table with more new rows shows the changed cells instead, which is shorter
MOST_NAMES = 10  # quantities of the row that is shown


@dataclass(frozen=True, slots=True)
class LargestLoss:
    """The steps in which a proposal lost most reward against the best policy: one fifth of the longest episode.

    Attributes:
        first, last: the first and last of these steps.
        row: the values of one step by quantity, from the episode with the largest loss: the last step of an episode
            that failed by then, else the step with the least reward.
    """

    first: int
    last: int
    mean: float  # mean reward lost there per episode
    episodes: int  # number of the proposal's episodes behind the mean
    paired: bool  # whether both policies played the same seeds
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RefusedView:
    """A refused proposal, compared with the best policy of its time."""

    # its lines that the best policy lacks; empty for a table with many, see `AttemptView.changed`
    lines: tuple[str, ...]
    more_lines: int  # number of such lines that are left out
    # the constants that tuning changed, before and after, by the name of their line
    tuned: Mapping[str, Sequence[tuple[float, float]]]
    lost: LargestLoss | None  # the part of the episode with the largest loss; None if no part has a significant one


def refused_view(attempt: Attempt, best_then: Attempt, buffer: ReplayBuffer, task: Task) -> RefusedView | None:
    """Return the view of an attempt that lost to `best_then`, the best at its time; None for a failed attempt."""
    proposed, policy = attempt.proposed, attempt.policy
    if proposed is None or policy is None:
        return None
    best_lines = set(_lines_of(best_then.policy)) if best_then.policy is not None else set()
    own = [line for line in _lines_of(proposed) if line not in best_lines and "| --" not in line]
    own = decisive_first(own, proposed)
    if isinstance(proposed, TablePolicy) and len(own) > MOST_ROWS:
        own = []
    mine, best = ([e.trajectory for e in buffer.of_attempt(a.number, len(a.played))] for a in (attempt, best_then))
    return RefusedView(
        tuple(own[:MOST_LINES]),
        max(0, len(own) - MOST_LINES),
        moved(proposed, policy),
        _loss(attempt, mine, best, task),
    )


def moved(proposed: Policy | None, policy: Policy) -> dict[str, list[tuple[float, float]]]:
    """Return the constants that tuning changed, before and after, with signs, by the name of their equation."""
    if not isinstance(proposed, LinearPolicy) or not isinstance(policy, LinearPolicy):
        return {}
    before = dict((*proposed.lets, *proposed.equations))
    found = {}
    for name, node in (*policy.lets, *policy.equations):
        pairs = zip(signed_constants(before[name]), signed_constants(node), strict=True)
        if changed := [(old, new) for old, new in pairs if old != new]:
            found[name] = changed
    return found


def decisive_first(lines: Sequence[str], policy: Policy) -> list[str]:
    """Return lines of equations with outputs first, then features, then standardised quantities: prompts cut the end.

    Lines of a table keep their order.
    """
    if not isinstance(policy, LinearPolicy):
        return list(lines)
    standard = {f"let {name}" for name, node in policy.lets if is_definition(name, node)}
    return sorted(lines, key=lambda line: line.startswith("let ") + (line.partition(" = ")[0] in standard))


def _lines_of(policy: Policy) -> list[str]:
    return [" ".join(line.split()) for line in policy.to_text(plain=True).splitlines()]


def _loss(attempt: Attempt, mine: Sequence[Trajectory], best: Sequence[Trajectory], task: Task) -> LargestLoss | None:
    seeds = {t.seed: t for t in best}
    pairs = [(t, seeds[t.seed]) for t in mine if t.seed in seeds]
    paired = len(pairs) >= 2
    if paired:
        mine, best = [t for t, _ in pairs], [t for _, t in pairs]
    if len(mine) < 2 or len(best) < 2:
        return None
    longest = max(t.length for t in (*mine, *best))
    bounds = np.unique(np.arange(PARTS + 1) * longest // PARTS)
    own_rewards, best_rewards = (_in_parts(episodes, bounds) for episodes in (mine, best))
    gained, error = _difference(own_rewards, best_rewards, paired=paired)
    sure = gained + STANDARD_ERRORS * error < 0
    if not sure.any():
        return None
    part = int(np.argmin(np.where(sure, gained, math.inf)))
    first, last = int(bounds[part]), int(bounds[part + 1]) - 1
    in_part = (own_rewards - best_rewards if paired else own_rewards)[:, part]
    row = _row(attempt, mine[int(np.argmin(in_part))], first, last, task)
    return LargestLoss(first, last, -float(gained[part]), len(mine), paired, row)


def _in_parts(episodes: Sequence[Trajectory], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the sum of rewards in each part of each episode, 0 after its end: shape (episodes, parts)."""
    summed = np.zeros((len(episodes), int(bounds[-1]) + 1))
    for row, t in zip(summed, episodes, strict=True):
        row[1 : t.length + 1] = t.rewards
    return np.diff(np.cumsum(summed, axis=1)[:, bounds])


def _difference(
    mine: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64], *, paired: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the mean difference of each column, and its standard error."""
    if paired:
        differences = mine - theirs
        return differences.mean(axis=0), differences.std(axis=0, ddof=1) / math.sqrt(len(differences))
    error = np.sqrt(mine.var(axis=0, ddof=1) / len(mine) + theirs.var(axis=0, ddof=1) / len(theirs))
    return mine.mean(axis=0) - theirs.mean(axis=0), error


def _row(attempt: Attempt, t: Trajectory, first: int, last: int, task: Task) -> dict[str, Any]:
    """Return the step to show: the last one of an episode that failed by then, else the one of least reward."""
    end = t.length - 1
    if t.terminated and not reached_its_goal(t, task.solved) and end <= last:
        step = end
    else:
        step = min(end, first) if first >= end else first + int(np.argmin(t.rewards[first : last + 1]))
    return rows_at(attempt, t, [step], task)[0]


def rows_at(attempt: Attempt, t: Trajectory, steps: Sequence[int], task: Task) -> list[dict[str, Any]]:
    """Return those of the steps that an episode of the attempt has, with their most informative columns."""
    policy = attempt.policy
    reader = reader_for(task, None, policy)
    view = episode_view(Episode(attempt.number, t), task, reader, policy)
    names = (
        "step",
        *_first_and_last(view.traced, MOST_NAMES),
        *(["cell"] if "cell" in view.columns else []),
        *view.outputs,
        "reward",
    )
    return [{name: view.columns[name][step] for name in names} for step in steps if 0 <= step < t.length]


def _first_and_last(names: Sequence[str], most: int) -> list[str]:
    """Return at most `most` names, the first and the last ones: observations come first, the decisive features last."""
    kept = min(most, len(names))
    return [*names[: kept // 2], *names[len(names) - (kept - kept // 2) :]]
