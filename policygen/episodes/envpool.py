"""Play episodes on EnvPool's threads, for environments with the same dynamics as in Gymnasium.

EnvPool (Weng et al. 2022, arXiv 2206.10558) steps environments in C++ on a pool of threads. A seed fixes the start of
an episode, but another start than in Gymnasium: scores of the two engines agree statistically.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from policygen.episodes.batched_actors import play_together
from policygen.episodes.trajectory import Actor, Learning, SideBySide, Trajectory, chunks
from policygen.errors import EnvironmentFault
from policygen.tasks.task import Task

# Equations, rewards and ends are the same: tests/episodes/test_envpool.py compares steps from equal states if the
# observation is the state, else (the ground is hidden) returns and lengths of many episodes.
STEP_BY_STEP = ("HalfCheetah-v5", "Hopper-v5", "Swimmer-v5", "Walker2d-v5")
BY_LAW = ("LunarLander-v3", "BipedalWalker-v3")
POOLED = (*STEP_BY_STEP, *BY_LAW)
# Not Pendulum-v1, whose speed EnvPool clips later than Gymnasium, and not what numpy plays as fast: Acrobot-v1 and both
# mountain cars.
COPIES = 128  # episodes under way at a time


def pool_for(task: Task, cores: int) -> Pool | None:
    """Return an EnvPool for the task; None if EnvPool is not installed or lacks an equivalent environment."""
    if task.gym_id not in POOLED or task.kwargs or importlib.util.find_spec("envpool") is None:
        return None
    return Pool(task, cores)


class Pool:
    """Plays episodes like a `Simulator`, in EnvPool."""

    engine = "envpool"
    origin = "('gymnasium."  # the environments of `POOLED`

    def __init__(self, task: Task, cores: int) -> None:
        self.task = task
        # With one thread per core, cores idle while threads wake up: one more thread than cores plays Hopper on two
        # cores in five sixths of the time; two more are no faster.
        self.threads = cores + 1 if cores > 1 else 1

    def play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """Play one episode per seed, in the order of the seeds.

        Raises:
            EnvironmentFault: a reward or an observation is not a finite number.
        """
        played = [trajectory for chunk in chunks(seeds, COPIES) for trajectory in self._play(actor, chunk)]
        for trajectory in played:
            if not (np.isfinite(trajectory.episode_return) and np.isfinite(trajectory.observations).all()):
                raise EnvironmentFault(f"{self.task.gym_id} failed: a reward or an observation is not a finite number")
        return played

    def play_many(self, actors: Sequence[Actor], seeds: Sequence[int]) -> list[list[Trajectory]]:
        """Play each portable actor on the same seeds.

        Raises:
            EnvironmentFault: a reward or an observation is not a finite number.
        """
        return play_together(self.play, actors, seeds, COPIES)

    def close(self) -> None:
        """Do nothing: EnvPool's copies fix their seeds when made, so none are kept between calls."""

    def _play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        import envpool

        n, limit = len(seeds), self.task.max_steps
        pool: Any = envpool.make(
            self.task.gym_id,
            env_type="gymnasium",
            num_envs=n,
            num_threads=min(self.threads, n),
            max_episode_steps=limit,
            env_seed=[int(seed) & 0x7FFFFFFF for seed in seeds],
        )
        current, _ = pool.reset()
        observations = np.empty((limit + 1, n, current.shape[1]), np.float32)
        box = self.task.action_space == "box"
        kind: Any = np.float32 if box else np.int32
        actions = np.empty((limit, n, len(self.task.actuators)) if box else (limit, n), np.float32 if box else np.int16)
        rewards = np.empty((limit, n))
        lengths = np.zeros(n, np.int64)
        terminated = np.zeros(n, np.bool_)
        observations[0] = current
        live = np.arange(n, dtype=np.int32)
        step = 0
        decider = actor.begin(n)
        learning = decider if isinstance(decider, Learning) else None
        while len(live):
            chosen = np.asarray(decider.decide(current, live), kind)
            actions[step, live] = chosen
            current, reward, fallen, _, info = pool.step(chosen, live)
            # Copies report in the order in which they finish; copies with an ended episode are not stepped.
            order = np.argsort(info["env_id"])
            current, reward, fallen = current[order], reward[order], fallen[order]
            observations[step + 1, live], rewards[step, live] = current, reward
            step += 1
            if learning is not None:
                learning.learn(live, current, np.asarray(reward, np.float64), fallen.astype(np.bool_))
            ended = fallen | (step >= limit)
            if ended.any():
                lengths[live[ended]], terminated[live[ended]] = step, fallen[ended]
                live, current = live[~ended], current[~ended]
        pool.close()
        return SideBySide(observations, actions, rewards, lengths, terminated).trajectories(seeds)
