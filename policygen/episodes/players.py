"""Episodes on all cores: a simulator in this process and, where it pays, one in each of several worker processes.

An episode depends on its policy and its seed alone, not on what is played beside it, so the number of processes never
changes a score.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial

from policygen.episodes.envpool import Pool, pool_for
from policygen.episodes.score import engine_words
from policygen.episodes.simulator import Closable, Simulator
from policygen.episodes.trajectory import Actor, Trajectory
from policygen.errors import EnvironmentFault
from policygen.tasks.faults import STEP_TIMEOUT
from policygen.tasks.task import Task
from policygen.tasks.trust import trusted
from policygen.tasks.user_env import can_travel

# Handing work to other processes costs some milliseconds a piece, and starting them takes seconds: less work than this
# stays here.
SECONDS_WORTH_SHARING = 0.3
SECONDS_WORTH_STARTING = 3.0
TRIED_FIRST = 2  # episodes that tell how long one takes
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def usable_cores() -> int:
    """The processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Play = Callable[[Actor, list[int]], list[Trajectory] | None]
Piece = tuple[Actor, list[int]]
Elsewhere = Callable[[Play, Sequence[Piece], int], list[list[Trajectory] | None]]
"""Has pieces of work played by other processes, of which there are so many; None for what they cannot play."""


class PlayerKilled(Exception):
    """A process that played has died."""


def by_processes(play: Play, work: Sequence[Piece], jobs: int) -> list[list[Trajectory] | None]:
    """Have it played by worker processes of this machine; see `Elsewhere`.

    Raises:
        PlayerKilled: one of them died.
    """
    from loky import BrokenProcessPool, get_reusable_executor
    from loky.process_executor import TerminatedWorkerError

    executor = get_reusable_executor(max_workers=jobs, timeout=60, env=_ONE_THREAD)
    try:
        return list(executor.map(play, *zip(*work, strict=True)))
    except TerminatedWorkerError:
        raise PlayerKilled from None
    except BrokenProcessPool:  # what was sent to them cannot be read there
        return [None]


class _Workers:
    """Whether this process has worker processes already, and what they are."""

    started = False
    elsewhere: Elsewhere = staticmethod(by_processes)


_workers = _Workers()


def share_by(elsewhere: Elsewhere) -> None:
    """Let other processes than worker processes of this machine play what is worth sharing; they are there already."""
    _workers.elsewhere = elsewhere
    _workers.started = elsewhere is not by_processes


class Players(Closable):
    """Plays episodes like a `Simulator`, on `jobs` processes where the work is worth it.

    Args:
        jobs: number of processes, or of cores that EnvPool may use; by default as many as there are usable cores.
        use_pool: whether EnvPool may play, where it is installed and has the same environment.
        step_timeout: seconds that one step may take.

    Attributes:
        apart: whether other processes play however small the work is: what ends a process then does not end this one.
    """

    def __init__(
        self, task: Task, jobs: int | None = None, *, use_pool: bool = True, step_timeout: float = STEP_TIMEOUT
    ) -> None:
        self.task = task
        self.step_timeout = step_timeout
        self.apart = False
        self.jobs = jobs or usable_cores()
        if task.given is not None and not can_travel(task.given):
            self.jobs = 1
        pool = pool_for(task, self.jobs) if use_pool else None
        self._here: Pool | Simulator = pool or Simulator(task, step_timeout)
        self._seconds_per_episode: float | None = None

    @property
    def engine(self) -> str:
        """What plays the episodes: `vector`, `envpool` or `copies`; of what ignores its seed `copies, unseeded`."""
        return engine_words(self._here.engine, self.task)

    @property
    def foreign(self) -> bool:
        """Whether the environment is neither Gymnasium's nor ours."""
        return not self._here.origin.startswith(("('gymnasium.", "('policygen."))

    def play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """One episode per seed, in the order of the seeds.

        Raises:
            EnvironmentFault: the environment itself failed.
        """
        if not actor.portable:
            return self._play_here(actor, seeds)
        if not self.apart and self._seconds_per_episode is None and self._can_share(len(seeds) - TRIED_FIRST):
            tried = self._play_here(actor, seeds[:TRIED_FIRST])
            return tried + self.play(actor, seeds[TRIED_FIRST:])
        if not self._worth_sharing(len(seeds)):
            return self._play_here(actor, seeds)
        parts = [list(seeds[i :: self.jobs]) for i in range(self.jobs)]
        played = self._shared([(actor, part) for part in parts if part])
        if played is None:
            return self._play_here(actor, seeds)
        results: list[Trajectory | None] = [None] * len(seeds)
        for i, trajectories in enumerate(played):
            results[i :: self.jobs] = trajectories
        return [trajectory for trajectory in results if trajectory is not None]

    def play_many(self, actors: Sequence[Actor], seeds: Sequence[int]) -> list[list[Trajectory]]:
        """Each of some portable actors on the same seeds.

        Raises:
            EnvironmentFault: the environment itself failed.
        """
        if self._here.engine != "copies":
            return self._here.play_many(actors, seeds)
        unknown = self._seconds_per_episode is None and not self.apart
        if unknown and self._can_share((len(actors) - 1) * len(seeds)):
            return [self._play_here(actors[0], seeds), *self.play_many(actors[1:], seeds)]
        played = None
        if self._worth_sharing(len(actors) * len(seeds)):
            played = self._shared([(actor, list(seeds)) for actor in actors])
        return played or [self._play_here(actor, seeds) for actor in actors]

    def close(self) -> None:
        """Close the environments of this process; idle workers end by themselves."""
        self._here.close()

    def _play_here(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        started = time.perf_counter()
        trajectories = self._here.play(actor, seeds)
        if seeds and actor.portable:
            self._seconds_per_episode = (time.perf_counter() - started) / len(seeds)
        return trajectories

    def _can_share(self, episodes: int) -> bool:
        return self.jobs > 1 and episodes > 1 and self._here.engine == "copies" and self.task.gym_id not in _only_here

    def _worth_sharing(self, episodes: int) -> bool:
        if self.apart:
            reachable = self.task.given is None or can_travel(self.task.given)
            return isinstance(self._here, Simulator) and reachable and self.task.gym_id not in _only_here
        known = self._seconds_per_episode
        if known is None or not self._can_share(episodes):
            return False
        return known * episodes > (SECONDS_WORTH_SHARING if _workers.started else SECONDS_WORTH_STARTING)

    def _shared(self, work: Sequence[tuple[Actor, list[int]]]) -> list[list[Trajectory]] | None:
        """What worker processes play, or None if they do not have the same environment.

        Raises:
            EnvironmentFault: the environment itself failed, or a worker died.
        """
        assert isinstance(self._here, Simulator), "EnvPool shares out its episodes itself"
        _workers.started = True
        started = time.perf_counter()
        # This process has made the environment: others need not ask whether it may be.
        play = partial(_play_in_worker, trusted(self.task), self._here.origin, self.step_timeout)
        try:
            results = _workers.elsewhere(play, work, self.jobs)
        except PlayerKilled:
            raise EnvironmentFault(
                f"a process that played {self.task.gym_id} was killed: the environment crashed, did not answer within"
                f" {3 * self.step_timeout:g} s, or wanted too much memory; fewer processes need less: --jobs 1"
            ) from None
        played = [trajectories for trajectories in results if trajectories is not None]
        if len(played) < len(results):
            _only_here.add(self.task.gym_id)
            return None
        episodes = sum(len(seeds) for _, seeds in work)
        self._seconds_per_episode = (time.perf_counter() - started) * self.jobs / episodes
        return played


# Environments that only this process has: a script, a notebook or a test registered them.
_only_here: set[str] = set()
_simulators: dict[str, Simulator] = {}


def _play_in_worker(
    task: Task, expected: str, step_timeout: float, actor: Actor, seeds: Sequence[int]
) -> list[Trajectory] | None:
    """In a worker process: play, with environments that are kept from call to call.

    Returns:
        None where the task's id is unknown or means another environment than `expected`.
    """
    token = task.given.token if task.given is not None else ""
    key = repr((task.gym_id, task.kwargs, task.max_steps, step_timeout, token))
    if key not in _simulators:
        try:
            _simulators[key] = Simulator(task, step_timeout, expendable=True)
        except Exception:  # what has worked where the task comes from must be missing here
            return None
    if _simulators[key].origin != expected:
        return None
    return _simulators[key].play(actor, seeds)
