"""An account of a policy's rewards: the parts of an episode that earn or lose them, and the cost of early ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policygen.episodes.trajectory import Trajectory
from policygen.prompts.signals import Column

OUTSTANDING = 5.0  # a last reward above this many times the highest other reward marks a success
WEAK = 0.1  # see `account`
THROUGHOUT = 0.8  # share of an episode's steps that counts as nearly all of them
PARTS = 5  # equal parts of an episode, to show the reward over time


def reached_its_goal(t: Trajectory, solved: float | None) -> bool:
    """Whether the environment ended an episode for its success rather than for a failure.

    An end is a success in three cases: steps cost on average, and the last step costs no more than the cheapest other;
    the last reward is far above all others (`OUTSTANDING`); or the return counts as solved. The last case is left out
    if every step pays, because an earlier end then loses reward.
    """
    if not t.terminated:
        return False
    last, others = float(t.rewards[-1]), t.rewards[:-1]
    if solved is not None and t.episode_return >= solved and not float(t.rewards.min()) > 0:
        return True
    if not len(others):
        return last > 0
    highest, mean = float(others.max()), float(others.mean())
    return (mean < 0 and last >= highest) or (last > highest and (mean <= 0 or last > OUTSTANDING * highest))


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The steps `first` to `last` in which an episode lost most: it earned `total` less than the mean of several.

    `throughout` says that these are nearly all of its steps.
    """

    first: int
    last: int
    total: float
    throughout: bool = False


def mean_rewards(trajectories: Sequence[Trajectory]) -> Column:
    """Return the mean reward of each step, over the episodes that last so long: shape (longest episode,)."""
    sums = np.zeros(max((t.length for t in trajectories), default=0))
    counts = np.zeros(len(sums))
    for t in trajectories:
        sums[: t.length] += t.rewards
        counts[: t.length] += 1
    return np.asarray(sums / np.maximum(counts, 1), np.float64)


def shortfall(lost: Column) -> Shortfall | None:
    """Return the consecutive steps whose losses have the highest sum; None if no step loses anything.

    Args:
        lost: reward that each step of an episode earned less than the mean, shape (steps,).
    """
    summed = np.concatenate([[0.0], np.cumsum(lost)])
    gained = summed - np.minimum.accumulate(summed)  # the highest sum of steps that end here (Kadane 1984)
    end = int(gained.argmax())
    if not gained[end] > 0:
        return None
    first = int(summed[: end + 1].argmin())
    return Shortfall(first, end - 1, float(gained[end]), end - first > THROUGHOUT * len(lost))


def _mean_by_part(t: Trajectory) -> Column:
    starts = np.arange(PARTS) * t.length // PARTS
    return np.asarray(np.add.reduceat(t.rewards, starts) / np.diff(starts, append=t.length), np.float64)


def account(trajectories: Sequence[Trajectory], max_steps: int, solved: float | None = None) -> dict[str, Any] | None:
    """Return the sources of a policy's return over its own episodes, for templates; None without any.

    `solved` is the return that counts as solved.
    """
    if not trajectories:
        return None
    sums = [dict(t.terms) for t in trajectories]
    names = dict.fromkeys(name for terms in sums for name in terms)
    parts = np.mean([_mean_by_part(t) for t in trajectories if t.length >= PARTS] or np.zeros((1, 0)), axis=0)
    early = [t for t in trajectories if t.terminated and t.length < max_steps]
    reached = [t.length for t in early if reached_its_goal(t, solved)]
    failed = [t.length for t in early if not reached_its_goal(t, solved)]
    per_step = sum(t.episode_return for t in trajectories) / max(1, sum(t.length for t in trajectories))
    return {
        "episodes": len(trajectories),
        # mean sum of each of the reward's terms, where the environment names them
        "terms": [(name, float(np.mean([s.get(name, 0.0) for s in sums]))) for name in names],
        "parts": parts.tolist(),  # mean reward of a step in each fifth of an episode, by the episode's own length
        # numbers of episodes that the environment ended early for a success and for a failure, and their shortest and
        # longest lengths
        "reached": len(reached),
        "reached_steps": (min(reached, default=0), max(reached, default=0)),
        "failed": len(failed),
        "failed_steps": (min(failed, default=0), max(failed, default=0)),
        # mean return that an episode loses by ending early, if each missing step earned the mean reward
        "lost": sum(max_steps - length for length in failed) * max(0.0, per_step) / len(trajectories),
        # the part that pays least, if parts differ by more than `WEAK` of the largest in size
        "weakest": int(parts.argmin()) if len(parts) and np.ptp(parts) > WEAK * np.abs(parts).max() else None,
    }
