"""Episodes of random and constant actions, which show ranges, lengths and the effect of seeds."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.errors import EnvironmentFault
from policygen.quantities.text import format_number, to_digits
from policygen.tasks.actions import random_actions
from policygen.tasks.environments import of_gymnasium_or_ours, opened, origin, steps_left
from policygen.tasks.faults import STEP_TIMEOUT, Watchdog, fault, flag_of, name_of, number_of
from policygen.tasks.spaces import Observation, alike, layout_of, row_of
from policygen.tasks.task import Task

STEPS = 5_000  # steps of random actions
FEW_STEPS = 500  # a smaller number of steps is reported, because true ranges may be larger
EPISODES = 5  # minimum number of episodes, so that set-points differ
SECONDS = 20.0  # time limit of the warm-up, and of the search for the length of episodes
LONGEST = 20_000  # maximum steps of the search for the length of episodes
MOST_EPISODES = 40  # maximum episodes of that search
LONG = 200  # minimum length, in steps, that counts as a limit without truncation
STILL = 1e-9  # a quantity with a smaller range is constant
SURVIVAL = 0.5  # correlation of length and return above which better policies are assumed to play longer
_MOST_NAMED = 8  # columns of a group that are named
_MOST_VALUES = 16  # values of constant columns that are listed

UNSEEDED = "episodes with the same seed differ, so policies cannot be compared on the same episodes"
MANY_CHECKED = 100  # steps of the episodes that check the seeds of an environment without a task file
FEW_CHECKED = 2  # the same with a task file
_STREAM = 2  # separates the random actions from the environment's own draws with the same seed
_CHECK_SECONDS = 0.5  # time limit of an episode that checks seeds
_TOLERANCE = 1e-5  # relative and absolute, because a reused simulator may differ in the last bits (Box2D)
_MARGIN = 0.1  # share of its declared range by which a value may lie outside


def play_episode(
    env: gym.Env[Any, Any],
    seed: int,
    width: int,
    step_timeout: float,
    *,
    steps: int,
    until: float = math.inf,
    action: Any = None,
) -> tuple[list[npt.NDArray[np.float64]], bool]:
    """Play an episode; return rows of observation and reward, and whether the episode was truncated.

    Args:
        width: number of columns of a flattened observation.
        steps: maximum number of steps; `steps_left` also limits it.
        until: a time of `time.monotonic` at which the episode stops, but not before two steps.
        action: the action of all steps; if None, they are random and depend on `seed` alone.

    Raises:
        EnvironmentFault: the environment fails or does not answer, or an observation or reward is not a number.
    """
    layout, rows = layout_of(env.observation_space), list[npt.NDArray[np.float64]]()
    draw = random_actions(env.action_space, np.random.default_rng([seed, _STREAM]))
    method, terminated, truncated, steps = "reset", False, False, min(steps, steps_left())

    def keep(observation: Any, reward: float) -> None:
        row = row_of(layout, observation, width)
        if row.dtype.kind not in "biuf" or not np.isfinite(row).all():
            raise EnvironmentFault(
                f"an observation holds a value that is not a number: {str(row.tolist())[:60]}; return finite numbers, "
                "for example numpy.nan_to_num(observation)"
            )
        if not math.isfinite(reward):
            raise EnvironmentFault(
                f"the reward of step {len(rows)} is {reward:g}; return a finite number, for example a large penalty"
            )
        rows.append(np.append(row.astype(np.float64), reward))

    try:
        with Watchdog(step_timeout, lambda: (len(rows), method), env):
            keep(env.reset(seed=seed)[0], 0.0)
            method = "step"
            while len(rows) <= steps and not (terminated or truncated):
                if len(rows) > 2 and time.monotonic() > until:
                    break
                observation, reward, terminated, truncated, _ = env.step(draw() if action is None else action)
                terminated, truncated = flag_of(terminated, "terminated"), flag_of(truncated, "truncated")
                keep(observation, number_of(reward))
    except BaseException as error:
        raise fault(error, env, name_of(env), method) from error
    return rows, truncated and not terminated


@dataclass(frozen=True)
class WarmUp:
    """Observations under random actions, shape (steps, width), and their episode numbers, shape (steps,).

    `ended` has the length and return of each episode that was played to its end.
    """

    rows: npt.NDArray[np.float64]
    episodes: npt.NDArray[np.int64]
    ended: tuple[tuple[int, float], ...] = ()

    @property
    def usual_steps(self) -> int | None:
        """The mean length of the episodes that ended, rounded up.

        It is None with fewer than `EPISODES`, or if longer ones return more, because better policies then play longer.
        """
        if len(self.ended) < EPISODES:
            return None
        lengths, returns = np.array(self.ended).T
        if np.ptp(lengths) > 0 and np.ptp(returns) > 0 and np.corrcoef(lengths, returns)[0, 1] > SURVIVAL:
            return None
        return math.ceil(float(lengths.mean()))

    def described(self, observations: Sequence[Observation]) -> list[Observation]:
        """Return the observations with `seen`: range, spread, copies, constants; similar ones share a sentence."""
        columns = self.rows[:, : len(observations)]
        copies, places = copies_of(columns), {id(o): i for i, o in enumerate(observations)}
        described: list[Observation] = []
        for group in alike(observations):
            which = [places[id(o)] for o in group]
            words = self._range(columns[:, which], group[0])
            if len(group) == 1 and which[0] in copies:
                first, offset = copies[which[0]]
                words = f"always {observations[first].name}"
                words += f" {'+' if offset > 0 else '-'} {abs(offset):.4g}" * (offset != 0)
            elif len(group) > 1:
                varied = np.ptp(columns[:, which]) > STILL
                still = [observations[i].name for i in which if varied and np.ptp(columns[:, i]) <= STILL]
                same = [observations[i].name for i in which if i in copies]
                if len(still) == len(group):
                    words, still = self._values(columns[:, which]), []
                for kind, names in (("always the same", still), ("copies", same)):
                    more = f" and {len(names) - _MOST_NAMED} more" * (len(names) > _MOST_NAMED)
                    words += f"; {kind}: {', '.join(names[:_MOST_NAMED])}{more}" * bool(names)
            described += [replace(o, seen=words) for o in group]
        return described

    def _values(self, columns: npt.NDArray[np.float64]) -> str:
        """Describe constant columns, shape (steps, columns)."""
        more = f" and {columns.shape[1] - _MOST_VALUES} more" * (columns.shape[1] > _MOST_VALUES)
        return f"always {', '.join(format_number(to_digits(v, 4)) for v in columns[0, :_MOST_VALUES].tolist())}{more}"

    def _range(self, columns: npt.NDArray[np.float64], space: Observation) -> str:
        """Describe the values of similar columns, shape (steps, columns)."""
        low, high = float(columns.min()), float(columns.max())
        deviation = format_number(to_digits(float(columns.std(axis=0).mean()), 2))
        words = f"{low:.4g} to {high:.4g}, sd {deviation}"
        parts = np.split(columns, np.flatnonzero(np.diff(self.episodes)) + 1)
        if high - low <= STILL:
            words = f"always {low:.4g}"
        elif all(np.ptp(part, axis=0).max() <= STILL for part in parts):
            words += ", changes between episodes only"
        words += ", whole" * bool((columns == np.rint(columns)).all())
        words += f", measured in only {len(columns)} steps" * (len(columns) < FEW_STEPS)
        slack = STILL + 1e-6 * max(abs(low), abs(high))
        return words + ", beyond its bounds" * (low < space.low - slack or high > space.high + slack)


def copies_of(columns: npt.NDArray[np.float64]) -> dict[int, tuple[int, float]]:
    """Map each column that differs from an earlier one by the same number in all rows to that one and the number.

    Args:
        columns: shape (steps, columns); constant columns are not copies.
    """
    spread, found = np.ptp(columns, axis=0), dict[int, tuple[int, float]]()
    for i in range(1, columns.shape[1]):
        slack = STILL + 1e-5 * spread[i]  # observations are in single precision
        for k in np.flatnonzero(np.abs(spread[:i] - spread[i]) <= slack) if spread[i] > STILL else ():
            offsets = columns[:, i] - columns[:, k]
            if k not in found and np.ptp(offsets) <= slack:
                found[i] = int(k), 0.0 if np.abs(offsets).max() <= slack else float(offsets.mean())
                break
    return found


def moving(columns: npt.NDArray[np.float64]) -> list[int]:
    """Return the indices of columns that are neither constant nor copies, in order; shape (steps, columns)."""
    copies = copies_of(columns)
    return [int(i) for i in np.flatnonzero(np.ptp(columns, axis=0) > STILL) if i not in copies]


def warm_up(env: gym.Env[Any, Any], width: int, step_timeout: float) -> WarmUp:
    """Play random actions on fixed seeds for `STEPS` steps, or, with a warning, for `SECONDS` in a slow environment.

    If steps are limited, half of `steps_left` are played, but at least one.
    """
    kept: list[npt.NDArray[np.float64]] = []
    numbers: list[int] = []
    ended: list[tuple[int, float]] = []
    until, episode, wanted = time.monotonic() + SECONDS, 0, max(1, min(STEPS, steps_left() // 2))
    share = wanted // 2  # steps for the next episode
    while len(kept) < wanted:
        # Half of the steps may go to a whole first episode, the others to at least four more.
        most = min(max(1, share), wanted - len(kept))
        rows, _ = play_episode(env, episode, width, step_timeout, steps=most, until=until)
        kept += [row[:width] for row in rows[:-1]]
        if episode == 0:
            share = (wanted - len(kept)) // (EPISODES - 1)
        numbers += [episode] * (len(rows) - 1)
        if len(rows) <= most and time.monotonic() <= until:
            ended.append((len(rows) - 1, float(sum(row[width] for row in rows))))
        episode += 1
        if time.monotonic() > until and len(kept) < wanted:
            name = env.spec.id if env.spec else "the environment"
            warnings.warn(
                f"{name} is slow: its bins come from only {len(kept):,} steps of random actions (played in "
                f"{SECONDS:g} s), and may differ next time; a task file fixes them",
                stacklevel=2,
            )
            break
    return WarmUp(np.asarray(kept), np.asarray(numbers), tuple(ended))


def find_limit(env: gym.Env[Any, Any], width: int, step_timeout: float) -> tuple[int | None, int]:
    """Return the number of steps at which episodes that do not fail end, if there is one, and the number of episodes.

    Episodes are played with random and with constant actions, in at most `LONGEST` steps, `SECONDS`, or a third of
    `steps_left`. Truncated episodes did not fail. If none is truncated, the length of the longest ones counts if all
    episodes with two kinds of actions have it, and it is at least `LONG`: shorter ones may all end at an obstacle.
    """
    until, left, lengths = time.monotonic() + SECONDS, min(LONGEST, steps_left() // 3), list[tuple[int, bool, int]]()
    actions = [None, *_constant_actions(env.action_space)]
    for episode in range(MOST_EPISODES):
        kind = episode % len(actions)
        rows, truncated = play_episode(env, episode, width, step_timeout, steps=left, until=until, action=actions[kind])
        left -= len(rows) - 1
        if left <= 0 or time.monotonic() > until:
            break
        lengths.append((len(rows) - 1, truncated, kind))
        if sum(cut for _, cut, _ in lengths) > len(actions):
            break
    ends = {length for length, cut, _ in lengths if cut}
    if not ends:
        longest = max((length for length, *_ in lengths), default=0)
        others = {kind for length, _, kind in lengths if length < longest}
        safe = [kind for _, _, kind in lengths if kind not in others]
        many = len(safe) > 2 and len(set(safe)) > 1 and longest >= LONG
        ends = {longest} if many else set()
    return (ends.pop() if len(ends) == 1 else None), len(lengths)


def _constant_actions(space: gym.Space[Any]) -> Iterator[Any]:
    """Yield the middle, lowest and highest action if the space has an order, else three random ones."""
    if isinstance(space, gym.spaces.Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all():
        yield from ((space.low + share * (space.high - space.low)).astype(space.dtype) for share in (0.5, 0.0, 1.0))
    elif isinstance(space, gym.spaces.Discrete):
        yield from dict.fromkeys(space.start + i for i in (0, (space.n - 1) // 2, space.n - 1))
    else:
        draw = random_actions(space, np.random.default_rng(0))
        yield from (draw() for _ in range(3))


def ignores_seed(
    env: gym.Env[Any, Any],
    observations: Sequence[Observation],
    width: int,
    step_timeout: float,
    *,
    steps: int = FEW_CHECKED,
) -> bool:
    """Whether two episodes with the same seed and the same actions differ.

    Gymnasium's and policygen's environments are not played, because their own tests check this.

    Args:
        width: number of columns of a flattened observation.
        steps: maximum steps of each episode; two expose most environments that ignore their seed.

    Raises:
        EnvironmentFault: the environment fails or does not answer, or an observation or reward is not a number.

    Warns:
        UserWarning: observations lie far outside the declared space.
    """
    if of_gymnasium_or_ours(origin(env)) and not (env.spec and env.spec.additional_wrappers):
        return False
    steps = min(steps, steps_left() // 2)
    first, _ = play_episode(env, 0, width, step_timeout, steps=steps, until=time.monotonic() + _CHECK_SECONDS)
    second, _ = play_episode(env, 0, width, step_timeout, steps=len(first) - 1)
    for o, column in zip(observations, np.array(first).T, strict=False):  # texts and the reward follow the numbers
        low, high = float(column.min()), float(column.max())
        margin = _MARGIN * (o.high - o.low) if math.isfinite(o.high - o.low) else _MARGIN
        if low < o.low - margin or high > o.high + margin:
            warnings.warn(
                f"{o.name} went from {low:g} to {high:g} under random actions, outside the {o.low:g} to {o.high:g} "
                "that the environment declares: correct its observation_space",
                stacklevel=2,
            )
    return len(first) != len(second) or not np.allclose(first, second, rtol=_TOLERANCE, atol=_TOLERANCE)


def seeds_checked(task: Task) -> Task:
    """Return the task with `unseeded` set by `ignores_seed`, unless it is set already; warn if it is unseeded."""
    if not task.unseeded:
        with opened(task) as env:
            task = replace(task, unseeded=ignores_seed(env, task.observations, task.width, STEP_TIMEOUT))
    warn_if_unseeded(task)
    return task


def warn_if_unseeded(task: Task) -> None:
    """Warn if episodes of a task ignore their seeds."""
    if task.unseeded:
        warnings.warn(
            f"two episodes of {task.gym_id} with one seed differ, so policies are compared on different episodes, and "
            "scores are labelled as unseeded: the environment probably draws from np.random instead of self.np_random "
            "(after super().reset(seed=seed))",
            stacklevel=3,
        )
