"""Play episodes on EnvPool's threads, for environments with the same dynamics as in Gymnasium.

EnvPool (Weng et al. 2022, arXiv 2206.10558) steps environments in C++ on a pool of threads. The same seed starts
a different episode than in Gymnasium, so scores of the two engines agree only statistically.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from policygen.episodes.play import Array, Copies, Flags, Stepped
from policygen.errors import EnvironmentFault
from policygen.tasks.requirements import info_names
from policygen.tasks.task import Task

# Dynamics, rewards and terminations equal Gymnasium's, as tests/episodes/test_envpool.py shows: step by step from equal
# states where the observation is the whole state, else by the distribution of returns and lengths over many episodes.
STEP_BY_STEP = ("HalfCheetah-v5", "Hopper-v5", "Swimmer-v5", "Walker2d-v5")
BY_DISTRIBUTION = ("LunarLander-v3", "BipedalWalker-v3")
POOLED = (*STEP_BY_STEP, *BY_DISTRIBUTION)
# Left out: Pendulum-v1, whose speed EnvPool clips later than Gymnasium; Acrobot-v1 and both mountain cars, because
# our numpy versions are as fast.
COPIES = 128  # simultaneous episodes


def pool_for(task: Task, cores: int) -> PooledCopies | None:
    """Return copies in an EnvPool for the task; None if EnvPool is not installed or lacks an equivalent environment."""
    plain = task.gym_id in POOLED and not task.kwargs and not task.perturb and not info_names(task.requirements)
    if not plain or importlib.util.find_spec("envpool") is None:
        return None
    return PooledCopies(task, cores)


class PooledCopies(Copies):
    """Copies of an environment in EnvPool, which fixes their seeds when it makes them."""

    engine: ClassVar[str] = "envpool"
    origin: ClassVar[str] = "('gymnasium."  # see `Simulator.origin`: all environments of `POOLED` are Gymnasium's
    most = COPIES

    def __init__(self, task: Task, cores: int) -> None:
        self._task = task
        # With one thread per core, cores are idle while threads wake up. One more thread than cores plays Hopper on two
        # cores in five sixths of the time; two more are no faster.
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

    def step(self, actions: Array, /) -> Stepped:
        """Step all copies; see `Copies`.

        Raises:
            EnvironmentFault: an observation or a reward is not finite.
        """
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
