"""Play episodes on EnvPool's threads, for environments with the same dynamics as in Gymnasium.

EnvPool (Weng et al. 2022, arXiv 2206.10558) steps environments in C++ on a pool of threads. The same seed starts
a different episode than in Gymnasium, so scores of the two engines agree only statistically.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.batched import play_batch
from policygen.episodes.trajectory import Actor, Trajectory, chunks
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


def pool_for(task: Task, cores: int) -> Pool | None:
    """Return an EnvPool for the task; None if EnvPool is not installed or lacks an equivalent environment."""
    plain = task.gym_id in POOLED and not task.kwargs and not task.perturb and not info_names(task.requirements)
    if not plain or importlib.util.find_spec("envpool") is None:
        return None
    return Pool(task, cores)


class Pool:
    """Plays episodes as a `Simulator` does, in EnvPool."""

    engine = "envpool"
    batch_size = COPIES
    origin = "('gymnasium."  # see `Simulator.origin`: all environments of `POOLED` are Gymnasium's

    def __init__(self, task: Task, cores: int) -> None:
        self.task = task
        # With one thread per core, cores are idle while threads wake up. One more thread than cores plays Hopper on two
        # cores in five sixths of the time; two more are no faster.
        self.threads = cores + 1 if cores > 1 else 1

    def play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """Play one episode per seed; see `Players.play`."""
        played: list[Trajectory] = []
        for some in chunks(seeds, COPIES):
            copies = _PooledCopies(self.task, some, self.threads)
            played += play_batch(self.task, actor, some, copies, most_idle=0.0)
        for trajectory in played:
            if not (np.isfinite(trajectory.episode_return) and np.isfinite(trajectory.observations).all()):
                raise EnvironmentFault(f"{self.task.gym_id} failed: a reward or an observation is not a finite number")
        return played

    def close(self) -> None:
        """Do nothing: EnvPool's copies fix their seeds when made, so none are kept between calls."""


class _PooledCopies:
    def __init__(self, task: Task, seeds: Sequence[int], threads: int) -> None:
        import envpool  # the extra `envpool`

        self._pool: Any = envpool.make(
            task.gym_id,
            env_type="gymnasium",
            num_envs=len(seeds),
            num_threads=min(threads, len(seeds)),
            max_episode_steps=task.max_steps,
            env_seed=[int(seed) & 0x7FFFFFFF for seed in seeds],
        )
        self._kept = np.arange(len(seeds), dtype=np.int32)
        self._dtype: Any = np.float32 if task.action_space == "box" else np.int32
        self.first, _ = self._pool.reset()

    def step(self, actions: npt.NDArray[Any]) -> Sequence[Any]:
        observations, rewards, terminated, _, info = self._pool.step(np.asarray(actions, self._dtype), self._kept)
        # Copies report in the order in which they finish.
        order = np.argsort(info["env_id"])
        return observations[order], rewards[order], terminated[order]

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        self._kept = self._kept[which]

    def close(self) -> None:
        self._pool.close()
