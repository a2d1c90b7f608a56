"""Episodes in a fitted plant: copies of it that step together, and a Gymnasium environment for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from policygen.episodes.batched import play_batch, play_together
from policygen.episodes.trajectory import Actor, Trajectory
from policygen.errors import PolicyError, UsageError
from policygen.plants.fit import FittedPlant, with_errors
from policygen.plants.transitions import Transitions
from policygen.policies.plant import Column, Equations, drawn_starts

LANES = 4_096  # episodes that are played side by side


class PlantCopies:
    """Copies of a fitted plant, one per seed; the seed determines the ensemble's member, the start and the noise.

    A copy fails if it leaves the bounds of the data or its reward is not finite. Its episode then ends, and the reward
    of its last step is the plant's `reward_outside` for each step left until the limit.
    """

    def __init__(self, plant: FittedPlant, seeds: Sequence[int], starts: Column | None = None) -> None:
        equations = plant.equations
        self._plant, self._equations = plant, equations
        members = np.asarray(seeds) % len(plant.values)
        self._values = list(plant.values[members].T)
        width = len(plant.low)
        self._low, self._high = plant.low[:, None], plant.high[:, None]
        drawn = np.stack([_start(plant, seed) for seed in seeds])
        if starts is not None:
            drawn[:, : starts.shape[1]] = starts
        columns = list(drawn.T)
        with np.errstate(over="ignore"):
            self.first = drawn[:, :width].astype(np.float32)  # observations at the start, shape (n, d)
        self._state = columns[:width]
        self._memory: list[Any] = equations.memory(columns[width:], len(seeds))
        self._steps_left = equations.task.max_steps
        noise = dict(equations.plant.noise)
        self._noise = np.array([noise.get(name, 0.0) for name in equations.task.observation_names])
        # Episodes of the same seed get the same noise, whichever other episodes are played.
        different, self._noise_of = np.unique(np.asarray(seeds, np.int64), return_inverse=True)
        self._rngs = [np.random.default_rng([seed, 1]) for seed in different.tolist()] if noise else []

    def step(self, actions: npt.NDArray[Any]) -> tuple[Any, ...]:
        """Step every copy; return the values of a vector environment's `step`."""
        equations, plant = self._equations, self._plant
        n = len(self._state[0])
        decided = equations.decided(actions)
        moved, memory = equations.step(self._state, self._memory, decided, self._values, n=n)
        after = np.empty((len(moved), n))
        for row, column in zip(after, moved, strict=True):
            row[:] = column
        outside = ~((after >= self._low) & (after <= self._high)).all(axis=0)
        if outside.any():
            after[:, outside] = np.clip(np.nan_to_num(after[:, outside]), self._low, self._high)
        paid, ends = equations.outcome(self._state, self._memory, decided, self._values, list(after), n=n)
        rewards, ended = np.empty(n), np.empty(n, np.bool_)
        rewards[:], ended[:] = paid, ends
        failed = outside | ~np.isfinite(rewards)
        ended |= failed
        rewards[failed] = plant.reward_outside * self._steps_left
        self._steps_left -= 1
        self._state, self._memory = list(after), [np.broadcast_to(column, n) for column in memory]
        seen = after.T
        if self._rngs:
            drawn = np.stack([rng.standard_normal(len(self._noise)) for rng in self._rngs])
            seen = seen + self._noise * drawn[self._noise_of]
        with np.errstate(over="ignore"):
            seen = seen.astype(np.float32)
        return seen, rewards, ended, False, {}

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Keep only these copies."""
        self._state = [column[which] for column in self._state]
        self._memory = [column[which] for column in self._memory]
        self._values = [column[which] for column in self._values]
        self._noise_of = self._noise_of[which]

    def close(self) -> None:
        """Do nothing: there is no environment to close."""


def _start(plant: FittedPlant, seed: int) -> Column:
    """Return the start of an episode, hidden states last: one that was seen, with the plant's `start` lines applied."""
    rng = np.random.default_rng(seed)
    start = plant.starts[rng.integers(len(plant.starts))].copy()
    for name, value in drawn_starts(plant.equations.plant, rng):
        start[[*plant.equations.task.observation_names, *plant.equations.plant.hidden].index(name)] = value
    return np.asarray(start, np.float64)


def play_in_plant(
    plant: FittedPlant, actors: Sequence[Actor], seeds: Sequence[int], starts: Column | None = None
) -> list[list[Trajectory]]:
    """Play each actor in the plant, one episode per seed; return the trajectories of each actor.

    Args:
        starts: first observations, shape (seeds, d), instead of those that the seeds draw; only with a single actor.
    """

    def play(actor: Actor, some: Sequence[int]) -> list[Trajectory]:
        return play_batch(plant.equations.task, actor, some, PlantCopies(plant, some, starts))

    return play_together(play, actors, seeds, LANES if starts is None else len(seeds))


class PlantEnv(gym.Env[npt.NDArray[np.float32], Any]):
    """A plant as an environment, with the rules of the episodes that tuning plays.

    An observation holds the task's numbers, float32 of shape (d,), clipped to the bounds that the task states. An
    action has the form that a policy returns: a choice, or the row of all actuators (a Box if any is a number; a choice
    in it is the index of its label). Numbers beyond their bounds are clipped.

    An episode is truncated at the task's step limit, and ends where the plant's `ends` says so. It also ends where a
    state leaves the bounds of the real episodes, because the equations are a guess there, or a reward is not finite.
    Only in these two cases, the last reward is the plant's `reward_outside`, which is at most 0, for each step left
    until the limit.

    Args:
        equations: the plant, with its numbers.
        episodes: real episodes; they give the bounds, and the starts that the plant does not state.

    Raises:
        PolicyError: no episode has a step.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, equations: Equations, episodes: Sequence[Trajectory]) -> None:
        if not any(episode.length for episode in episodes):
            raise PolicyError("a plant without any real episode has no starts to draw from")
        data = Transitions.of(equations.task, episodes)
        self.plant = with_errors(equations, equations.values[None], data)  # with its bounds and starts
        task = self._task = equations.task
        low, high = np.array([(o.low, o.high) for o in task.observations], np.float32).T
        self.observation_space = spaces.Box(low, high)
        counts = [len(actuator.labels) for actuator in task.actuators]
        if task.action_space == "discrete":
            self.action_space = spaces.Discrete(counts[0])
        elif task.action_space == "multidiscrete":
            self.action_space = spaces.MultiDiscrete(counts)
        else:
            low, high, _ = np.array(task.limits.bounds, np.float32).T
            self.action_space = spaces.Box(low, high)
        self._copies: PlantCopies | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begin an episode at a start drawn from the plant's `start` lines, else from the starts that were seen."""
        super().reset(seed=seed)
        self._copies, self._steps = PlantCopies(self.plant, [int(self.np_random.integers(2**31))]), 0
        return self._seen(self._copies.first), {}

    def step(self, action: Any) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Step the plant.

        Raises:
            UsageError: the action is not in the action space, or no episode has begun.
        """
        if self._copies is None:
            raise UsageError("call reset() before step()")
        if isinstance(self.action_space, spaces.Box):
            action = np.clip(np.asarray(action, np.float32), self.action_space.low, self.action_space.high)
        if not self.action_space.contains(action):
            raise UsageError(f"{str(action)[:80]} is not in the action space {self.action_space}")
        seen, rewards, ended, _, _ = self._copies.step(np.asarray(action)[None])
        self._steps += 1
        return self._seen(seen), float(rewards[0]), bool(ended[0]), self._steps >= self._task.max_steps, {}

    def _seen(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        space = self.observation_space
        assert isinstance(space, spaces.Box)
        return np.asarray(np.clip(rows[0], space.low, space.high), np.float32)
