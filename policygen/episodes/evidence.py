"""Evidence from episodes, for prompts: how they ended, where they lost reward, and what reward depends on.

`make_episodes` adds to each trajectory how it ended, and what only a simulator can compute. The other functions compare
episodes. They are pure: none of them plays an episode, makes an environment or scores a policy.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.score import standard_error
from policygen.episodes.signals import Column, usual_ranges
from policygen.episodes.trajectory import Trajectory
from policygen.policies.features import Reader
from policygen.quantities.tree import previous_of
from policygen.tasks.environments import opened
from policygen.tasks.task import Task

OUTSTANDING = 5.0  # a last reward above this multiple of the highest other reward marks a success
WEAK = 0.1  # see `account`
THROUGHOUT = 0.8  # from this share of its steps on, an episode counts as losing reward throughout
PARTS = 5  # number of equal parts of an episode, to show the reward over time
LEAST_LOSS = 1e-6  # smaller losses, relative to the largest reward, are rounding errors
STANDARD_ERRORS = 2.0  # a loss is significant if it exceeds this number of standard errors
RELEVANT = 0.5  # minimum relevance of a relevant observation
LEAST_EXPLAINED = 0.02  # an observation that explains a smaller share of a variance explains nothing
MOST_STEPS = 20_000  # maximum number of steps, evenly chosen, for correlations with the reward


# --- one episode -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """An episode in the replay buffer, with the evidence computed when it was added.

    Attributes:
        attempt: number of the attempt that played it (0: random actions).
        reached: whether it ended in success, see `reached_its_goal`.
        unobserved: quantities that no policy can read, such as heights of feet, by name: float32, shape (T + 1,).
    """

    attempt: int
    trajectory: Trajectory
    reached: bool = False
    unobserved: tuple[tuple[str, npt.NDArray[np.float32]], ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the environment ended it without success."""
        return self.trajectory.terminated and not self.reached


Heights = Callable[[npt.NDArray[Any]], Mapping[str, npt.NDArray[np.float32]]]


@lru_cache(maxsize=8)
def heights_of(task: Task) -> Heights | None:
    """Return a function from observations, shape (T, d), to heights in m, by name, each of shape (T,).

    Returns None if the task declares no heights. The observations begin with the positions of MuJoCo's joints.
    """
    if not task.heights:
        return None
    with opened(task) as env:
        base: Any = env.unwrapped
        model, count = base.model, int(base.observation_structure["qpos"])
    mujoco = sys.modules["mujoco"]
    data = mujoco.MjData(model)
    bodies = [model.body(one.body).id for one in task.heights for _ in one.spheres]
    spheres = np.array([sphere for one in task.heights for sphere in one.spheres])
    starts = np.cumsum([0, *(len(one.spheres) for one in task.heights)][:-1])

    def heights(observations: npt.NDArray[Any]) -> Mapping[str, npt.NDArray[np.float32]]:
        lowest = np.zeros((len(observations), len(bodies)))
        for row, positions in zip(lowest, observations[:, :count].astype(np.float64), strict=True):
            data.qpos[model.nq - count :] = positions
            mujoco.mj_kinematics(model, data)
            row[:] = data.xpos[bodies, 2] + (data.xmat[bodies, 6:] * spheres[:, :3]).sum(axis=1) - spheres[:, 3]
        found = np.minimum.reduceat(lowest, starts, axis=1).astype(np.float32)
        return {one.name: found[:, k] for k, one in enumerate(task.heights)}

    return heights


def make_episodes(attempt: int, trajectories: Iterable[Trajectory], task: Task) -> list[Episode]:
    """Return an attempt's episodes with their evidence. The first call for a task may make its environment."""
    heights = heights_of(task)

    def episode(t: Trajectory) -> Episode:
        unobserved = tuple(heights(t.observations).items()) if heights is not None else ()
        return Episode(attempt, t, reached_its_goal(t, task.solved), unobserved)

    return [episode(t) for t in trajectories]


def reached_its_goal(t: Trajectory, solved: float | None) -> bool:
    """Whether the environment ended an episode because of a success rather than a failure.

    There are three cases of success: steps cost on average, and the last one costs no more than the cheapest other one;
    the last reward is far above all others (`OUTSTANDING`); or the return counts as solved, unless every step pays, so
    that an early end loses reward.
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


def quantities(t: Trajectory, reader: Reader) -> dict[str, Column]:
    """Return observations, the features of `reader`, and continuous actions, by name, each of shape (T,)."""
    task, columns = reader.task, reader.along((t.observations[:-1], t.actions))
    # Remembered values belong to an earlier step, and texts are not numbers.
    slots = {*map(previous_of, reader.remembered), *task.columns[len(task.observations) :]}
    arrays = {
        name: np.asarray(column, np.float64)
        for name, column in zip(reader.names, columns, strict=True)
        if name not in slots
    }
    if task.has_numbers:
        for actuator, column in zip(task.actuators, t.actions.T, strict=True):
            if not actuator.is_choice:
                arrays[actuator.name] = column.astype(np.float64)
    return arrays


# --- losses against the mean of a policy, and against another policy --------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The steps `first` to `last` in which an episode lost most: it earned `total` less than the mean of its policy.

    `throughout` says that these are nearly all of its steps.
    """

    first: int
    last: int
    total: float
    throughout: bool = False


def shortfall(lost: Column) -> Shortfall | None:
    """Return the consecutive steps whose losses have the highest sum; None if no step loses anything.

    Args:
        lost: by how much the reward of each step is below the mean, shape (T,).
    """
    summed = np.concatenate([[0.0], np.cumsum(lost)])
    gained = summed - np.minimum.accumulate(summed)  # the highest sum of steps that ends here (Kadane 1984)
    end = int(gained.argmax())
    if not gained[end] > 0:
        return None
    first = int(summed[: end + 1].argmin())
    return Shortfall(first, end - 1, float(gained[end]), end - first > THROUGHOUT * len(lost))


def mean_rewards(episodes: Sequence[Episode]) -> Column:
    """Return the mean reward of each step over the episodes that last as long: shape (longest episode,)."""
    sums = np.zeros(max((e.trajectory.length for e in episodes), default=0))
    counts = np.zeros(len(sums))
    for e in episodes:
        sums[: e.trajectory.length] += e.trajectory.rewards
        counts[: e.trajectory.length] += 1
    return np.asarray(sums / np.maximum(counts, 1), np.float64)


def step_losses(t: Trajectory, mean: Column) -> Column:
    """Return by how much the reward of each step is below `mean_rewards`: shape (T,)."""
    lost = mean[: t.length] - t.rewards
    lost[np.abs(lost) < LEAST_LOSS * np.abs(t.rewards).max(initial=0.0)] = 0.0
    return lost


def largest_loss(mine: Sequence[Episode], best: Sequence[Episode]) -> tuple[dict[str, Any], Episode, int] | None:
    """Find the part of an episode in which a policy lost most reward against another; None if no loss is significant.

    Returns:
        Facts for templates: the steps `first` to `last`, a fifth of the longest episode; `mean`, the mean loss in these
        steps; the number of `episodes`, and whether each was `paired` with one of the same seed. Then the episode with
        the largest loss, and the step that shows it best.
    """
    seeds = {e.trajectory.seed: e for e in best}
    own = [e for e in mine if e.trajectory.seed in seeds]
    if paired := len(own) >= 2:
        mine, best = own, [seeds[e.trajectory.seed] for e in own]
    if len(mine) < 2 or len(best) < 2:
        return None
    longest = max(e.trajectory.length for e in (*mine, *best))
    bounds = np.unique(np.arange(PARTS + 1) * longest // PARTS)
    gains, others = (_in_parts(episodes, bounds) for episodes in (mine, best))
    if paired:
        gains, others = gains - others, np.zeros_like(others)
    gained = gains.mean(axis=0) - others.mean(axis=0)
    sure = gained + STANDARD_ERRORS * standard_error(gains, others) < 0
    if not sure.any():
        return None
    part = int(np.argmin(np.where(sure, gained, math.inf)))
    first, last = int(bounds[part]), int(bounds[part + 1]) - 1
    worst = mine[int(np.argmin(gains[:, part]))]
    facts = {"first": first, "last": last, "mean": -float(gained[part]), "episodes": len(mine), "paired": paired}
    return facts, worst, _telling_step(worst, first, last)


def _telling_step(episode: Episode, first: int, last: int) -> int:
    """Return the last step of an episode if it failed by step `last`, else the step with the lowest reward."""
    t, end = episode.trajectory, episode.trajectory.length - 1
    if episode.failed and end <= last:
        return end
    return min(end, first) if first >= end else first + int(np.argmin(t.rewards[first : last + 1]))


def _in_parts(episodes: Sequence[Episode], bounds: npt.NDArray[np.int64]) -> Column:
    """Return the sum of rewards in each part of each episode, counting 0 after its end: shape (episodes, parts)."""
    summed = np.zeros((len(episodes), int(bounds[-1]) + 1))
    for row, e in zip(summed, episodes, strict=True):
        row[1 : e.trajectory.length + 1] = e.trajectory.rewards
    return np.diff(np.cumsum(summed, axis=1)[:, bounds])


# --- what a policy earns ----------------------------------------------------------------------------------------------


def account(episodes: Sequence[Episode], max_steps: int) -> dict[str, Any] | None:
    """Return the sources of a policy's return in its own episodes, as plain data; None without episodes."""
    if not episodes:
        return None
    trajectories = [e.trajectory for e in episodes]
    sums = [dict(t.terms) for t in trajectories]
    names = dict.fromkeys(name for terms in sums for name in terms)
    by_part = []
    for t in trajectories:
        starts = np.arange(PARTS) * t.length // PARTS
        if t.length >= PARTS:
            by_part.append(np.add.reduceat(t.rewards, starts) / np.diff(starts, append=t.length))
    parts = np.mean(by_part or np.zeros((1, 0)), axis=0)
    reached = [e.trajectory.length for e in episodes if e.reached and e.trajectory.length < max_steps]
    failed = [e.trajectory.length for e in episodes if e.failed and e.trajectory.length < max_steps]
    per_step = sum(t.episode_return for t in trajectories) / max(1, sum(t.length for t in trajectories))
    return {
        "episodes": len(trajectories),
        # the mean sum of each reward term, if the environment reports them
        "terms": [(name, float(np.mean([s.get(name, 0.0) for s in sums]))) for name in names],
        "parts": parts.tolist(),  # the mean reward per step in each fifth of an episode
        # numbers of episodes that ended early in success and in failure, with their shortest and longest lengths
        "reached": len(reached),
        "reached_steps": (min(reached, default=0), max(reached, default=0)),
        "failed": len(failed),
        "failed_steps": (min(failed, default=0), max(failed, default=0)),
        # the mean return lost by failing early, if each missing step would earn the mean reward
        "lost": sum(max_steps - length for length in failed) * max(0.0, per_step) / len(trajectories),
        # the part that pays least, if parts differ by more than `WEAK` of the largest one
        "weakest": int(parts.argmin()) if len(parts) and np.ptp(parts) > WEAK * np.abs(parts).max() else None,
    }


# --- usual ranges, and what reward and ends depend on -----------------------------------------------------------------


def usual_ranges_of(episodes: Sequence[Episode], reader: Reader) -> dict[str, tuple[float, float]]:
    """Return the usual range of every quantity in some episodes, within the task's bounds."""
    usual = usual_ranges([(quantities(e.trajectory, reader), e.failed) for e in episodes])
    for actuator in reader.task.actuators:
        usual.pop(actuator.name, None)  # actions react to an anomaly and are no sign of it
    for o in reader.task.observations:
        if o.name in usual:
            low, high = usual[o.name]
            usual[o.name] = (max(low, o.low), min(high, o.high))
    return usual


@dataclass(frozen=True, slots=True)
class Relevance:
    """How much of the reward and of the early ends each observation explains.

    A parabola over the observation after a step explains a share of the variance of the reward; another one explains a
    share of the variance of early ends. Both shares are relative to the largest of all observations.

    Attributes:
        relevance: the larger share of each observation, by name; 0 for `derived` ones.
        variance: over all steps, by name.
        derived: observations that follow from positions and velocities, such as forces on bodies.
        set_points: observations that are constant within each episode and differ between episodes.
    """

    relevance: Mapping[str, float]
    variance: Mapping[str, float]
    derived: frozenset[str] = frozenset()
    set_points: frozenset[str] = frozenset()

    @property
    def relevant(self) -> list[str]:
        """The observations that reward or ends depend on, the most relevant first."""
        found = [name for name, value in self.relevance.items() if value >= RELEVANT]
        return sorted(found, key=lambda name: -self.relevance[name])


NOTHING_RELEVANT = Relevance({}, {})


def relevance_of(episodes: Sequence[Episode], task: Task) -> Relevance:
    """Return the relevance of each observation in these episodes.

    The last step before an early end counts towards the ends alone. The part of the reward that numeric actions explain
    by themselves is subtracted first, because the cost of random actions would hide the rest.
    """
    names, trajectories = task.observation_names, [e.trajectory for e in episodes]
    if not trajectories or not names:
        return NOTHING_RELEVANT
    after = np.concatenate([t.observations[1:, : len(names)] for t in trajectories]).astype(np.float64)
    rewards = np.concatenate([t.rewards for t in trajectories]).astype(np.float64)
    actions = np.concatenate([t.actions.reshape(t.length, -1) for t in trajectories]).astype(np.float64)
    ended = np.zeros(len(rewards))
    last = np.cumsum([t.length for t in trajectories]) - 1
    ended[last] = [e.failed for e in episodes]
    thinned = slice(None, None, 1 + len(rewards) // MOST_STEPS)
    inside = (ended == 0).nonzero()[0][thinned]
    with np.errstate(all="ignore"):
        after = np.nan_to_num(after, posinf=0.0, neginf=0.0)
        rest = rewards[inside]
        if task.action_space == "box":
            powers = np.column_stack([np.ones(len(inside)), actions[inside], actions[inside] ** 2])
            rest = rest - powers @ np.linalg.lstsq(powers, rest, rcond=None)[0]
        shares = [_explained_variance(after[inside], rest), _explained_variance(after, ended)]
        relative = [share / share.max() if share.max() >= LEAST_EXPLAINED else 0.0 * share for share in shares]
        derived = frozenset(o.name for o in task.observations if o.derived)
        found = np.where([name in derived for name in names], 0.0, np.maximum(*relative))
        varying = after.var(axis=0)
    relevance, variance = (dict(zip(names, values.tolist(), strict=True)) for values in (found, varying))
    return Relevance(relevance, variance, derived, set_points_of(episodes, task))


def set_points_of(episodes: Sequence[Episode], task: Task) -> frozenset[str]:
    """Return the observations that are constant within each episode and differ between episodes."""
    found = set[str]()
    for i, name in enumerate(task.observation_names):
        columns = [e.trajectory.observations[:, i] for e in episodes]
        if len({float(column[0]) for column in columns}) > 1 and all((column == column[0]).all() for column in columns):
            found.add(name)
    return frozenset(found)


def _explained_variance(columns: Column, values: Column) -> Column:
    """Return the share of the variance of `values`, shape (n,), that a parabola over each column explains."""
    if len(values) < 3:
        return np.zeros(columns.shape[1])
    line = _standardised(columns)
    bend = line**2 - (line**3).mean(axis=0) * line  # not correlated with the line
    target = _standardised(values[:, None])
    return np.asarray(((line * target).mean(axis=0)) ** 2 + ((_standardised(bend) * target).mean(axis=0)) ** 2)


def _standardised(columns: Column) -> Column:
    """Return columns minus their mean, divided by their standard deviation; zeros for a constant one."""
    spread = columns.std(axis=0)
    return np.asarray((columns - columns.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf))
