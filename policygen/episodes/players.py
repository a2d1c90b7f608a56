"""Play and score episodes on all cores: in this process and, if the work is large enough, in worker processes.

An episode depends only on its policy and its seed, so the number of processes never changes a score.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

from policygen.episodes.envpool import pool_for
from policygen.episodes.exact import finite_mdp
from policygen.episodes.play import play_together
from policygen.episodes.race import Course
from policygen.episodes.score import Score, engine_words
from policygen.episodes.simulator import Simulator
from policygen.episodes.trajectory import Actor, Trajectory
from policygen.errors import EnvironmentFault
from policygen.policies.policy import Policy
from policygen.portable import usable_cores
from policygen.tasks.environments import most_steps, of_gymnasium_or_ours
from policygen.tasks.faults import STEP_TIMEOUT
from policygen.tasks.requirements import info_names
from policygen.tasks.task import Task
from policygen.tasks.trust import trusted
from policygen.tasks.user_env import is_picklable

# Less work than this is played in this process: workers take milliseconds to get their work, and seconds to start.
SECONDS_WORTH_SHARING = 0.3
SECONDS_WORTH_STARTING = 3.0
TIMED_FIRST = 2  # episodes played to measure the time of one
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


Outcome = tuple[list[Trajectory] | EnvironmentFault, int]
"""The episodes of a piece of work, or the failure that ended them, and the number of steps they took."""
Play = Callable[[Actor, list[int]], Outcome | None]
Piece = tuple[Actor, list[int]]
Distribute = Callable[[Play, Sequence[Piece], int], list[Outcome | None]]
"""Plays pieces of work in a number of other processes; the result of a piece they cannot play is None."""


class PlayerKilled(Exception):
    """A worker process died."""


def by_processes(play: Play, work: Sequence[Piece], jobs: int) -> list[Outcome | None]:
    """Play pieces of work in worker processes of this machine; see `Distribute`.

    Raises:
        PlayerKilled: one of them died.
    """
    from loky import BrokenProcessPool, get_reusable_executor  # start-up time
    from loky.process_executor import TerminatedWorkerError

    pool = get_reusable_executor(max_workers=jobs, timeout=60, env=_ONE_THREAD)
    try:
        return list(pool.map(play, *zip(*work, strict=True)))
    except TerminatedWorkerError:
        raise PlayerKilled from None
    except BrokenProcessPool:  # the workers cannot unpickle the work
        return [None]


class _Workers:
    """How work is distributed, and whether the processes already run."""

    started = False
    distribute: Distribute = staticmethod(by_processes)


def use_distribution(distribute: Distribute) -> None:
    """Play by `distribute` from now on; its processes already run, unless it is `by_processes`."""
    _Workers.distribute = distribute
    _Workers.started = distribute is not by_processes


class Players(AbstractContextManager["Players"]):
    """Plays episodes as a `Simulator` does, in `jobs` processes if the work is large enough.

    Args:
        jobs: number of processes, or of cores for EnvPool; by default all usable cores.
        use_pool: whether EnvPool may play if it is installed and has an equivalent environment.
        step_timeout: limit on one step in seconds.

    Attributes:
        steps: number of steps that the environments have taken in all processes, also in episodes that failed.
        isolated: whether even small work is played in other processes, so that a crash does not end this one.
    """

    def __init__(
        self, task: Task, jobs: int | None = None, *, use_pool: bool = True, step_timeout: float = STEP_TIMEOUT
    ) -> None:
        self.task = task
        self.step_timeout = step_timeout
        self.isolated = False
        self.steps = 0
        self._picklable = task.given is None or is_picklable(task.given)
        self.jobs = (jobs or usable_cores()) if self._picklable else 1
        pool = pool_for(task, self.jobs) if use_pool else None
        self._local = Simulator(task, step_timeout, pool=pool)
        self._seconds_per_episode: float | None = None

    @property
    def engine(self) -> str:
        """The engine: `vector`, `envpool`, `copies`, or `copies, unseeded` if the environment ignores its seed."""
        return engine_words(self._local.engine, self.task)

    @property
    def foreign(self) -> bool:
        """Whether the environment is neither one of Gymnasium nor one of policygen."""
        return not of_gymnasium_or_ours(self._local.origin)

    def play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """Play one episode per seed, in the order of the seeds.

        Raises:
            EnvironmentFault: the environment itself failed.
        """
        if not actor.independent:
            return self._play_locally(actor, seeds)
        if not self.isolated and self._seconds_per_episode is None and self._can_share(len(seeds) - TIMED_FIRST):
            timed = self._play_locally(actor, seeds[:TIMED_FIRST])
            return timed + self.play(actor, seeds[TIMED_FIRST:])
        parts = [list(seeds[i :: self.jobs]) for i in range(self.jobs)]
        played = self._play_in_workers([(actor, part) for part in parts if part])
        if played is None:
            return self._play_locally(actor, seeds)
        results: list[Trajectory | None] = [None] * len(seeds)
        for i, trajectories in enumerate(played):
            results[i :: self.jobs] = trajectories
        return [trajectory for trajectory in results if trajectory is not None]

    def play_many(self, actors: Sequence[Actor], seeds: Sequence[int]) -> list[list[Trajectory]]:
        """Play each independent actor on the same seeds.

        Raises:
            EnvironmentFault: the environment itself failed.
        """
        if self._local.batch_size:
            return play_together(self._play_locally, actors, seeds, self._local.batch_size)
        unknown = self._seconds_per_episode is None and not self.isolated
        if unknown and self._can_share((len(actors) - 1) * len(seeds)):
            return [self._play_locally(actors[0], seeds), *self.play_many(actors[1:], seeds)]
        played = self._play_in_workers([(actor, list(seeds)) for actor in actors])
        return played or [self._play_locally(actor, seeds) for actor in actors]

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the environments of this process; idle workers end by themselves."""
        self._local.close()

    def _play_locally(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        started, before = time.perf_counter(), self._local.steps
        try:
            trajectories = self._local.play(actor, seeds)
        finally:
            self.steps += self._local.steps - before
        if seeds and actor.independent:
            self._seconds_per_episode = (time.perf_counter() - started) / len(seeds)
        return trajectories

    def _can_share(self, episodes: int) -> bool:
        copies = self._local.engine == "copies"
        return self.jobs > 1 and episodes > 1 and copies and self.task.gym_id not in _local_ids

    def _play_in_workers(self, work: Sequence[Piece]) -> list[list[Trajectory]] | None:
        """Play work in worker processes; None if it is too small for them, or they lack the environment."""
        episodes = sum(len(seeds) for _, seeds in work)
        if self.isolated:
            # EnvPool distributes its episodes itself.
            share = self._local.engine != "envpool" and self._picklable and self.task.gym_id not in _local_ids
        else:
            least = SECONDS_WORTH_SHARING if _Workers.started else SECONDS_WORTH_STARTING
            share = self._can_share(episodes) and (self._seconds_per_episode or 0.0) * episodes > least
        if not share:
            return None
        _Workers.started = True
        started = time.perf_counter()
        # This process has made the environment, so the workers need not check trust.
        play = partial(_play_in_worker, trusted(self.task), self._local.origin, self.step_timeout)
        try:
            results = _Workers.distribute(play, work, self.jobs)
        except PlayerKilled:
            self.steps += episodes * most_steps(self.task)  # how many it took is unknown
            raise EnvironmentFault(
                f"a process that played {self.task.gym_id} was killed: the environment crashed, did not answer within"
                f" {3 * self.step_timeout:g} s, or wanted too much memory; fewer processes need less: --jobs 1"
            ) from None
        known = [result for result in results if result is not None]
        self.steps += sum(steps for _, steps in known)
        if len(known) < len(results):
            _local_ids.add(self.task.gym_id)
            return None
        played = list[list[Trajectory]]()
        for found, _ in known:
            if isinstance(found, EnvironmentFault):
                raise found
            played.append(found)
        self._seconds_per_episode = (time.perf_counter() - started) * self.jobs / episodes
        return played


# Ids that only this process has registered, for example in a script, a notebook or a test.
_local_ids: set[str] = set()
_simulators: dict[str, Simulator] = {}


def _play_in_worker(
    task: Task, expected: str, step_timeout: float, actor: Actor, seeds: Sequence[int]
) -> Outcome | None:
    """Play in a worker process, which keeps its environments between calls.

    Returns:
        None if the task's id is unknown or means another environment than `expected`.
    """
    token = task.given.token if task.given is not None else ""
    read = info_names(task.requirements)
    key = repr((task.gym_id, task.kwargs, task.max_steps, task.perturb, read, step_timeout, token))
    if key not in _simulators:
        try:
            _simulators[key] = Simulator(task, step_timeout, expendable=True)
        except Exception:  # the environment works in the main process, so the worker lacks something
            return None
    simulator = _simulators[key]
    if simulator.origin != expected:
        return None
    before = simulator.steps
    try:
        return simulator.play(actor, seeds), simulator.steps - before
    except EnvironmentFault as fault:
        return fault, simulator.steps - before


def evaluate(policy: Policy, seeds: Sequence[int], *, task: Task | None = None) -> Score:
    """Score a policy: exactly if possible, else over one episode per seed.

    Args:
        policy: any policy; its own task unless `task` is given.
        seeds: environment seeds. An exact score needs none, but requirements of the task are checked in their episodes.
    """
    task = task or policy.task
    with Players(task) as players:
        return Course(task, seeds, players.play, players.engine, finite_mdp(task)).score(policy, len(seeds))
