"""Episodes of random and constant actions, for what no task file states: ranges, bins, the length of an episode."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from policygen.tasks.actions import random_actions
from policygen.tasks.counted import steps_left
from policygen.tasks.spaces import Observation, alike, span
from policygen.tasks.trial import random_episode

STEPS = 5_000  # of random actions
EPISODES = 5  # at least, so that set-points differ
SECONDS = 20.0  # time limit of the warm-up, and of the search for the length of an episode
LONGEST = 20_000  # steps in which the length of an episode is looked for
MOST_EPISODES = 40  # in which it is looked for
LONG = 200  # steps of an episode
_STILL = 1e-9  # a smaller range is none


@dataclass(frozen=True)
class WarmUp:
    """Observations under random actions, shape (steps, width), and the numbers of their episodes, shape (steps,)."""

    rows: npt.NDArray[np.float64]
    episodes: npt.NDArray[np.int64]

    def seen(self, observations: Sequence[Observation]) -> list[str]:
        """Return a sentence per observation, or per group of alike ones: range, spread, whole, constant."""
        starts = np.flatnonzero(np.diff(self.episodes, prepend=-1))
        sentences = [f"Seen in {len(self.rows):,} steps of random actions, {len(starts)} episodes:"]
        for group in alike(observations):
            columns = self.rows[:, [observations.index(one) for one in group]]
            low, high = columns.min(), columns.max()
            words = f"{low:.4g} to {high:.4g}, standard deviation {columns.std(axis=0).mean():.3g}"
            inside = max(float(np.ptp(part, axis=0).max()) for part in np.split(columns, starts[1:]))
            if high - low < _STILL:
                words = f"always {low:.4g}"
            elif inside < _STILL:
                words += ", constant within an episode, different between episodes"
            words += ", whole numbers" * bool((columns == np.rint(columns)).all())
            sentences.append(f"{span(group)}: {words}")
        return sentences


def warm_up(env: gym.Env[Any, Any], width: int, step_timeout: float) -> WarmUp:
    """Play random actions on fixed seeds for `STEPS` steps; a slow environment for `SECONDS` only, with a warning.

    Where steps are limited, half of `steps_left` are played, but at least one.
    """
    kept: list[npt.NDArray[np.float64]] = []
    numbers: list[int] = []
    until, episode, wanted = time.monotonic() + SECONDS, 0, max(1, min(STEPS, steps_left() // 2))
    while len(kept) < wanted:
        most = min(max(1, wanted // EPISODES), wanted - len(kept))
        rows, _ = random_episode(env, episode, width, step_timeout, steps=most, until=until)
        kept += [row[:width] for row in rows[:-1]]
        numbers += [episode] * (len(rows) - 1)
        episode += 1
        if time.monotonic() > until and len(kept) < wanted:
            name = env.spec.id if env.spec else "the environment"
            warnings.warn(
                f"{name} is slow: its bins come from only {len(kept):,} steps of random actions (in "
                f"{SECONDS:g} s), and may differ next time; a task file fixes them",
                stacklevel=2,
            )
            break
    return WarmUp(np.asarray(kept), np.asarray(numbers))


def found_limit(env: gym.Env[Any, Any], width: int, step_timeout: float) -> tuple[int | None, int]:
    """Return the number of steps at which every episode that does not fail ends, and the number of episodes played.

    Episodes are played to their ends with random and with constant actions, in at most `LONGEST` steps, `SECONDS`, or a
    third of `steps_left`.
    An episode that the environment truncates did not fail. If it truncates none, the longest are taken, if with two
    kinds of actions all are as long, and have at least `LONG` steps: the same obstacle may end all short ones. The
    number of steps is None if there is no such length.
    """
    until, left, lengths = time.monotonic() + SECONDS, min(LONGEST, steps_left() // 3), list[tuple[int, bool, int]]()
    actions = [None, *_constant_actions(env.action_space)]
    for episode in range(MOST_EPISODES):
        kind = episode % len(actions)
        rows, truncated = random_episode(
            env, episode, width, step_timeout, steps=left, until=until, action=actions[kind]
        )
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
    """Yield the least, the middle and the largest action, as far as the space has such."""
    if isinstance(space, gym.spaces.Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all():
        yield from ((space.low + share * (space.high - space.low)).astype(space.dtype) for share in (0.5, 0.0, 1.0))
    elif isinstance(space, gym.spaces.Discrete):
        yield from dict.fromkeys(space.start + i for i in (0, (space.n - 1) // 2, space.n - 1))
    else:
        draw = random_actions(space, np.random.default_rng(0))
        yield from (draw() for _ in range(3))
