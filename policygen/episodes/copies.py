"""Copies of an environment: single environments that are stepped in turn, and those of EnvPool.

EnvPool (Weng et al. 2022, arXiv 2206.10558) steps environments in C++ on a pool of threads. A seed starts a different
episode there than in Gymnasium, so scores of the two engines agree only statistically.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from policygen.episodes.play import Array, Copies, Flags, StepOutput
from policygen.errors import EnvironmentFault
from policygen.tasks.actions import action_builder
from policygen.tasks.environments import became_unstable, make_env, origin
from policygen.tasks.faults import STEP_TIMEOUT, Watchdog, close, fault, flag_of, number_of
from policygen.tasks.spaces import layout_of, row_of
from policygen.tasks.task import Task

COPIES = 32  # environments that one process steps in turn; more would be no faster
# Words in the names under which `info` may hold terms of the reward; `reward_terms` checks that they add up to it.
_GAINS = frozenset(("reward", "bonus", "revenue", "profit", "income"))
_LOSSES = frozenset(("penalty", "cost", "costs", "loss", "fee"))
_LARGEST = float(np.finfo(np.float32).max)

# Their dynamics, rewards and terminations equal Gymnasium's. tests/episodes/test_copies.py compares single steps from
# equal states where the observation is the whole state, and elsewhere the distributions of returns and lengths.
STEP_BY_STEP = ("HalfCheetah-v5", "Hopper-v5", "Swimmer-v5", "Walker2d-v5")
BY_DISTRIBUTION = ("LunarLander-v3", "BipedalWalker-v3")
# Excluded: Pendulum-v1, whose speed EnvPool clips later than Gymnasium does; Acrobot-v1 and both mountain cars, which
# are as fast in numpy.
POOL_COPIES = 128  # simultaneous episodes


@dataclass(slots=True)
class RunningEpisode:
    """An environment and the episode in it.

    Attributes:
        info: the values in `info` that requirements read, after the reset and each step; NaN where missing.
        steps: number of steps so far.
        rewards: the sum of the rewards so far.
        terms: the sums of the possible reward terms, by their names in `info`; None before the first step.
    """

    env: gym.Env[Any, Any]
    info: dict[str, list[float]]
    steps: int = 0
    rewards: float = 0.0
    terms: dict[str, float] | None = None

    def add_terms(self, reward: float, info: Mapping[str, Any]) -> None:
        """Add a step's reward and its possible terms; the first step determines their names."""
        self.rewards += reward
        if self.terms is None:
            if not isinstance(info, Mapping):
                raise EnvironmentFault(f"its `info` is of type {type(info).__name__}, not a dictionary")
            values = ((name, value) for name, value in info.items() if isinstance(name, str))
            self.terms = {name: 0.0 for name, value in values if _words(name) and isinstance(value, Real)}
        for name in self.terms:
            value = info.get(name)
            if isinstance(value, Real):
                self.terms[name] += float(value)

    def reward_terms(self) -> dict[str, float]:
        """Return the reward terms, with costs and penalties negative, if they add up to the reward; else none."""
        terms = {name: value for name, value in (self.terms or {}).items() if math.isfinite(value)}
        close = 1e-3 * max(1e-3, abs(self.rewards), *map(abs, terms.values()))
        totals = {n for n, value in terms.items() if not _words(n) & _LOSSES and abs(value - self.rewards) <= close}
        for name, value in terms.items():  # `penalty`, the sum of `penalty_heat` and `penalty_co2`
            own = [part for other, part in terms.items() if other != name and name in other.split("_")]
            totals |= {name} if own and abs(value - sum(own)) <= close else set()
        parts = {name: value for name, value in terms.items() if name not in totals}
        for some in (terms, parts):
            for signed in (some, {n: -value if _words(n) & _LOSSES else value for n, value in some.items()}):
                if some and abs(sum(signed.values()) - self.rewards) <= close:
                    return signed
        return {}

    def add_info(self, info: Mapping[str, Any]) -> None:
        """Append the values that requirements read."""
        for name, values in self.info.items():
            value = info.get(name) if isinstance(info, Mapping) else None
            values.append(float(value) if isinstance(value, Real | np.bool_) else math.nan)


def _words(name: str) -> frozenset[str]:
    """Return the words in the name of a value of `info` that mark it as a possible reward term."""
    return (_GAINS | _LOSSES) & frozenset(name.lower().split("_"))


class SingleCopies(Copies):
    """Single environments of a task that are stepped in turn and reused for later episodes.

    All numbers are checked, because the environment may be third-party code; a fault names the line of that code.

    Args:
        env: the first environment; others are made when needed.
        step_timeout: limit on one reset or step in seconds, see `Watchdog`.
    """

    engine: ClassVar[str] = "copies"
    by_row: ClassVar[bool] = True
    renews: ClassVar[bool] = True

    def __init__(self, task: Task, env: gym.Env[Any, Any], step_timeout: float = STEP_TIMEOUT) -> None:
        self._task, self._step_timeout, self.origin = task, step_timeout, origin(env)
        self._is_single_env = task.given is not None and task.given.env is not None
        self.max_copies = 1 if self._is_single_env else COPIES
        self._running: list[RunningEpisode] = []
        self._free = [env]
        self._current = env  # the environment that was called last
        self._build = action_builder(env.action_space)
        self._layout = layout_of(env.observation_space)
        self._info_names = task.info_names
        self._calls, self._calling = 0, False

    def watched(self, *, expendable: bool) -> Watchdog:
        """Return a context in which a reset or step that takes too long raises an exception; see `Watchdog`."""

        def progress() -> object:
            # An actor may take as long as it likes: a new object differs from all earlier values, and so is progress.
            return self._calls if self._calling else object()

        return Watchdog(self._step_timeout, progress, self._current, expendable=expendable)

    def begin(self, seeds: Sequence[int], /) -> Array:
        """Begin an episode with each seed; see `Copies`. Raises EnvironmentFault if a reset fails."""
        for one in self._running:
            self._put_aside(one.env)
        self._rows, self._running = np.empty((len(seeds), self._task.width), np.float32), []
        for place, seed in enumerate(seeds):
            self._start(place, seed)
        return self._rows

    def replace(self, ended: Flags, seeds: Sequence[int], /) -> Array:
        """Begin episodes with `seeds` in the first ended environments, put the others aside; see `begin`."""
        self._rows, places = self._rows.copy(), ended.nonzero()[0].tolist()
        for number, place in enumerate(places):
            self._put_aside(self._running[place].env)
            if number < len(seeds):
                self._start(place, seeds[number])
        for place in reversed(places[len(seeds) :]):
            del self._running[place]
        self._rows = np.delete(self._rows, places[len(seeds) :], axis=0)
        return self._rows

    def step(self, actions: Sequence[Any], /) -> StepOutput:
        """Step the environments in turn; `actions` has one action for each, as a `Trajectory` stores it.

        Raises:
            EnvironmentFault: an environment fails, or a number is not finite or beyond single precision.
        """
        count = len(self._running)
        rows, rewards = list[Array](), np.empty(count)
        terminated, truncated = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        with self._guarded("step"):
            for place, (one, action) in enumerate(zip(self._running, actions, strict=True)):
                self._current = one.env
                self._calls += 1
                observation, reward, terminates, truncates, info = one.env.step(self._build(action))
                one.steps += 1
                rows.append(row_of(self._layout, observation, self._task.width))
                rewards[place] = paid = number_of(reward)
                if not abs(paid) <= _LARGEST:
                    raise EnvironmentFault(f"the reward of step {one.steps} is {paid:g}")
                one.add_terms(paid, info)
                one.add_info(info)
                terminated[place] = flag_of(terminates, "terminated")
                truncated[place] = flag_of(truncates, "truncated")
            self._rows = self._checked(rows, self._running)
        return self._rows, rewards, terminated, truncated if truncated.any() else False

    def trajectory_fields(self, place: int, /) -> Mapping[str, Any]:
        """Return reward terms, values in `info`, and whether the simulation diverged; see `Copies`."""
        one = self._running[place]
        terms = ((name.removeprefix("reward_"), value) for name, value in one.reward_terms().items())
        info = ((name, np.array(values)) for name, values in one.info.items())
        return {"terms": tuple(terms), "unstable": became_unstable(one.env), "info": tuple(info)}

    def close(self) -> None:
        """Close the environments; the next episodes make others."""
        for env in [*(one.env for one in self._running), *self._free]:
            close(env, self._step_timeout)
        self._running, self._free = [], []

    def _start(self, place: int, seed: int) -> None:
        """Begin an episode in the copy `place`, which may be a new one."""
        env = self._free.pop() if self._free else make_env(self._task)
        one = RunningEpisode(env, {name: [] for name in self._info_names})
        self._running[place : place + 1] = [one]
        with self._guarded("reset"):
            self._current = env
            self._calls += 1
            observation, info = env.reset(seed=int(seed))
            self._rows[place] = self._checked([row_of(self._layout, observation, self._task.width)], [one])
            one.add_info(info)

    def _put_aside(self, env: gym.Env[Any, Any]) -> None:
        """Keep an environment for later episodes, unless it has a Box2D world.

        A reused world behaves differently from a new one (Gymnasium issue 728), so an episode would depend on earlier
        ones.
        """
        if hasattr(env.unwrapped, "world") and not self._is_single_env:
            close(env, self._step_timeout)
        else:
            self._free.append(env)

    def _checked(self, rows: Sequence[Array], running: Sequence[RunningEpisode]) -> Array:
        """Convert rows of some episodes to single precision; raise EnvironmentFault if a value is not finite."""
        with np.errstate(over="ignore"):
            single = np.array(rows, np.float32)
        if not np.isfinite(single).all():
            place, column = np.argwhere(~np.isfinite(single))[0].tolist()
            one, value = running[place], single[place, column]
            self._current = one.env
            raise EnvironmentFault(f"the observation after {one.steps} steps holds {value:g} in single precision")
        return single

    @contextmanager
    def _guarded(self, method: str) -> Iterator[None]:
        """Mark a call of the environment for the watchdog, and turn its exceptions into faults of the environment."""
        self._calling = True
        try:
            yield
        except BaseException as error:
            raise fault(error, self._current, self._task.gym_id, method) from error
        finally:
            self._calling = False


def pool_for(task: Task, cores: int) -> PooledCopies | None:
    """Return copies in EnvPool for the task; None if EnvPool is not installed or has no equivalent environment."""
    plain = (
        task.gym_id in (*STEP_BY_STEP, *BY_DISTRIBUTION)
        and not task.kwargs
        and not task.perturb
        and not task.info_names
    )
    if not plain or importlib.util.find_spec("envpool") is None:
        return None
    return PooledCopies(task, cores)


class PooledCopies(Copies):
    """Copies of an environment in EnvPool. It takes seeds only when it makes the copies."""

    engine: ClassVar[str] = "envpool"
    origin: ClassVar[str] = "('gymnasium."  # see `Simulator.origin`: all of them are Gymnasium's
    max_copies = POOL_COPIES

    def __init__(self, task: Task, cores: int) -> None:
        self._task = task
        # With one thread per core, cores idle while threads wake up. One more thread cuts the time of Hopper on two
        # cores by a sixth; two more are no faster.
        self.threads = cores + 1 if cores > 1 else 1
        self._dtype: Any = np.float32 if task.action_space == "box" else np.int32
        self._pool: Any = None

    def begin(self, seeds: Sequence[int], /) -> Array:
        """Begin an episode with each seed; see `Copies`."""
        import envpool  # the extra `envpool`

        self.close()
        self._pool = envpool.make(
            self._task.gym_id,
            env_type="gymnasium",
            num_envs=len(seeds),
            num_threads=min(self.threads, len(seeds)),
            max_episode_steps=self._task.max_steps,
            env_seed=[int(seed) & 0x7FFFFFFF for seed in seeds],
        )
        self._kept, self._steps = np.arange(len(seeds), dtype=np.int32), 0
        self._rows = self._checked(self._pool.reset()[0])
        return self._rows

    def step(self, actions: Array, /) -> StepOutput:
        """Step all copies; see `Copies`. Raises EnvironmentFault if an observation or reward is not finite."""
        observations, rewards, terminated, _, info = self._pool.step(np.asarray(actions, self._dtype), self._kept)
        # Copies report in the order in which they finish.
        order = np.argsort(info["env_id"])
        self._rows, self._steps = self._checked(observations[order]), self._steps + 1
        rewards = self._checked(rewards[order], np.float64)
        return self._rows, rewards, terminated[order], self._steps == self._task.max_steps

    def replace(self, ended: Flags, seeds: Sequence[int], /) -> Array:
        """Drop the ended copies; see `Copies`."""
        self._kept, self._rows = self._kept[~ended], self._rows[~ended]
        return self._rows

    def close(self) -> None:
        """Close the pool."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None

    def _checked(self, values: Array, dtype: Any = np.float32) -> Array:
        if not np.isfinite(values).all():
            raise EnvironmentFault(f"{self._task.gym_id} failed: a reward or an observation is not a finite number")
        return np.asarray(values, dtype)
