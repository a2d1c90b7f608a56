"""The evidence why a proposal was refused: its new lines, the part of the episode with the largest loss, and a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def refused_view(attempt: Attempt, best_then: Attempt, buffer: ReplayBuffer, task: Task) -> dict[str, Any] | None:
    """Return why an attempt lost to `best_then`, the best at its time, for templates; None for a failed attempt."""
    proposed, policy = attempt.proposed, attempt.policy
    if proposed is None or policy is None:
        return None
    best_lines = set(_lines_of(best_then.policy)) if best_then.policy is not None else set()
    own = [line for line in _lines_of(proposed) if line not in best_lines and "| --" not in line]
    own = decisive_first(own, proposed)
    if isinstance(proposed, TablePolicy) and len(own) > MOST_ROWS:
        own = []
    mine, best = ([e.trajectory for e in buffer.of_attempt(a.number, len(a.played))] for a in (attempt, best_then))
    return {
        "lines": own[:MOST_LINES],  # those that the best policy lacks; none of a table with many
        "more_lines": max(0, len(own) - MOST_LINES),
        "tuned": moved(proposed, policy),
        "lost": _loss(attempt, mine, best, task),
    }


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


def _loss(
    attempt: Attempt, mine: Sequence[Trajectory], best: Sequence[Trajectory], task: Task
) -> dict[str, Any] | None:
    """Return the steps in which an attempt lost most reward against the best; None if no loss is significant.

    They are a fifth of the longest episode's steps. `row` has the values of one step, from the episode with the largest
    loss.
    """
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
    return {
        "first": first,
        "last": last,
        "mean": -float(gained[part]),  # lost there per episode
        "episodes": len(mine),
        "paired": paired,
        "row": row,
    }


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
    traced = view.traced
    if len(traced) > MOST_NAMES:  # observations come first, the decisive features last
        traced = traced[: MOST_NAMES // 2] + traced[-(MOST_NAMES - MOST_NAMES // 2) :]
    names = ("step", *traced, *(["cell"] if "cell" in view.columns else []), *view.outputs, "reward")
    return [{name: view.columns[name][step] for name in names} for step in steps if 0 <= step < t.length]
