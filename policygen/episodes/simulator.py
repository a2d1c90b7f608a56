"""Play and score episodes, in one process or on all cores.

An episode depends only on its policy and its seed. So policies played on the same seeds get the same initial states
(common random numbers), and the number of processes never changes a score. No episode is cut short when another one
ends, so lengths are unbiased.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Self

from policygen.episodes.copies import PooledCopies, SingleCopies, pool_for
from policygen.episodes.exact import finite_mdp
from policygen.episodes.play import play, play_together
from policygen.episodes.race import Course
from policygen.episodes.score import Score, engine_words
from policygen.episodes.trajectory import Actor, Trajectory
from policygen.episodes.vector import VectorCopies, has_vector_form
from policygen.errors import EnvironmentFault
from policygen.policies.policy import Policy
from policygen.portable import usable_cores
from policygen.tasks.environments import is_picklable, make_env, of_gymnasium_or_ours, steps_taken
from policygen.tasks.faults import STEP_TIMEOUT, OwnDirectory
from policygen.tasks.task import Task

# Smaller amounts of work are played in this process: sending work to a process takes milliseconds, starting it seconds.
SECONDS_WORTH_SHARING = 0.3
SECONDS_WORTH_STARTING = 3.0
TIMED_FIRST = 2  # episodes played to measure the time that one takes
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Simulator(AbstractContextManager["Simulator"]):
    """Plays episodes of one task and keeps its environments for reuse; close it, or use it in a `with` statement.

    A watchdog in the playing process stops a reset or step that takes too long. Copies in numpy or EnvPool need none.

    Args:
        step_timeout: limit on one step in seconds, see `Watchdog`.
        expendable: whether the process may be ended if a step cannot be interrupted, see `Watchdog`.
        vectorise: whether copies in numpy may play; they also ask the actor for actions in ended episodes.
        pool: copies to play with; by default those that suit the task.

    Attributes:
        engine: the kind of copies: `vector` (in numpy, all at once), `envpool`, or `copies` (stepped in turn); `copies,
            unseeded` if the environment ignores its seed.
        steps: number of steps that its environments have taken, including those of episodes that failed; in numpy and
            EnvPool, those of episodes that ended.
        origin: a text that identifies the environment of the task in this process, see `environments.origin`.
    """

    def __init__(
        self,
        task: Task,
        step_timeout: float = STEP_TIMEOUT,
        *,
        expendable: bool = False,
        vectorise: bool = True,
        pool: PooledCopies | None = None,
    ) -> None:
        self.task, self.step_timeout, self.steps = task, step_timeout, 0
        self._expendable = expendable
        self._working_directory = OwnDirectory()
        with self._working_directory:
            self._copies = pool or _copies_of(task, step_timeout, vectorise)
        self.engine, self.origin = engine_words(self._copies.engine, task), self._copies.origin

    def play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """Play one episode per seed, in the order of the seeds.

        Raises:
            EnvironmentFault: the environment failed; the next call makes new environments.
        """
        copies = self._copies
        watched = copies.watched(expendable=self._expendable) if isinstance(copies, SingleCopies) else nullcontext()
        before, played = steps_taken(), list[Trajectory]()
        with self._working_directory:
            try:
                with watched:
                    played = play(self.task, copies, actor, seeds)
                return played
            except BaseException:
                self.close()
                raise
            finally:  # copies in numpy and EnvPool step no environment of Gymnasium
                self.steps += steps_taken() - before or sum(one.length for one in played)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the environments of this process; idle worker processes end by themselves."""
        self._copies.close()


def _copies_of(task: Task, step_timeout: float, vectorise: bool) -> SingleCopies | VectorCopies:
    env = make_env(task)
    vectorised = vectorise and task.given is None and not task.info_names and has_vector_form(env)
    return VectorCopies(env, task.max_steps) if vectorised else SingleCopies(task, env, step_timeout)


class ParallelSimulator(Simulator):
    """A simulator that plays in several processes if the work is large enough.

    Args:
        jobs: number of processes, or of cores for EnvPool; by default all usable cores.
        use_pool: whether EnvPool may play, if it is installed and has an equivalent environment.

    Attributes:
        steps: as in `Simulator`, for all processes together.
        isolated: whether other processes play all episodes, so that a crash does not end this one.
    """

    def __init__(
        self, task: Task, jobs: int | None = None, *, use_pool: bool = True, step_timeout: float = STEP_TIMEOUT
    ) -> None:
        self.isolated = False
        self._picklable = task.given is None or is_picklable(task.given)
        self.jobs = (jobs or usable_cores()) if self._picklable else 1
        super().__init__(task, step_timeout, pool=pool_for(task, self.jobs) if use_pool else None)
        self._seconds_per_episode: float | None = None

    @property
    def foreign(self) -> bool:
        """Whether the environment is neither Gymnasium's nor policygen's own."""
        return not of_gymnasium_or_ours(self.origin)

    def play(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        """Play one episode per seed, see `Simulator.play`; only `independent` actors play in other processes."""
        if not actor.independent:
            return super().play(actor, seeds)
        if self._has_to_be_timed(len(seeds) - TIMED_FIRST):
            return self._play_here(actor, seeds[:TIMED_FIRST]) + self.play(actor, seeds[TIMED_FIRST:])
        parts = [list(seeds[i :: self.jobs]) for i in range(min(self.jobs, len(seeds)))]
        played = self._play_in_workers([(actor, part) for part in parts])
        if played is None:
            return self._play_here(actor, seeds)
        results: list[Any] = [None] * len(seeds)
        for i, trajectories in enumerate(played):
            results[i :: self.jobs] = trajectories
        return results

    def play_many(self, actors: Sequence[Actor], seeds: Sequence[int]) -> list[list[Trajectory]]:
        """Play several independent actors on the same seeds; see `Simulator.play`."""
        if not self._copies.by_row:
            return play_together(self._play_here, actors, seeds, self._copies.max_copies)
        if self._has_to_be_timed((len(actors) - 1) * len(seeds)):
            return [self._play_here(actors[0], seeds), *self.play_many(actors[1:], seeds)]
        played = self._play_in_workers([(actor, list(seeds)) for actor in actors])
        return played or [self._play_here(actor, seeds) for actor in actors]

    def _play_here(self, actor: Actor, seeds: Sequence[int]) -> list[Trajectory]:
        started = time.perf_counter()
        trajectories = super().play(actor, seeds)
        if seeds:
            self._seconds_per_episode = (time.perf_counter() - started) / len(seeds)
        return trajectories

    def _has_to_be_timed(self, episodes: int) -> bool:
        return self._seconds_per_episode is None and not self.isolated and self._can_share(episodes)

    def _can_share(self, episodes: int) -> bool:
        return self.jobs > 1 and episodes > 1 and self._copies.by_row and self.task.gym_id not in _local_ids

    def _play_in_workers(self, work: Sequence[tuple[Actor, list[int]]]) -> list[list[Trajectory]] | None:
        """Play in worker processes; return None if the work is too small, or they cannot make the environment."""
        global _workers_started
        episodes = sum(len(seeds) for _, seeds in work)
        if self.isolated:
            # EnvPool has threads of its own.
            share = self._copies.engine != "envpool" and self._picklable and self.task.gym_id not in _local_ids
        else:
            least = SECONDS_WORTH_SHARING if _workers_started else SECONDS_WORTH_STARTING
            share = self._can_share(episodes) and (self._seconds_per_episode or 0.0) * episodes > least
        if not share:
            return None
        from loky import BrokenProcessPool, get_reusable_executor  # start-up time
        from loky.process_executor import TerminatedWorkerError

        _workers_started, started = True, time.perf_counter()
        # Trust was checked when this process made the environment.
        play = partial(_play_in_worker, self.task.trusted(), self.origin, self.step_timeout)
        pool = get_reusable_executor(max_workers=self.jobs, timeout=60, env=_ONE_THREAD)
        try:
            results = list(pool.map(play, *zip(*work, strict=True)))
        except TerminatedWorkerError:
            self.steps += episodes * self.task.most_steps  # the true number is unknown
            raise EnvironmentFault(
                f"a process playing {self.task.gym_id} was killed: the environment crashed, did not answer within"
                f" {3 * self.step_timeout:g} s, or ran out of memory; one process needs less: --jobs 1"
            ) from None
        except BrokenProcessPool:  # the workers cannot unpickle the work
            results = [None]
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


_workers_started = False
# Ids registered only in this process, for example by a script or a notebook.
_local_ids: set[str] = set()
_simulators: dict[str, Simulator] = {}


def _play_in_worker(
    task: Task, expected: str, step_timeout: float, actor: Actor, seeds: Sequence[int]
) -> tuple[list[Trajectory] | EnvironmentFault, int] | None:
    """Play in a worker process, which keeps its environments between calls.

    Returns:
        The episodes, or the failure that ended them, and the number of steps they took; None if the task's id is
        unknown in this process or names another environment than `expected`.
    """
    token = task.given.token if task.given is not None else ""
    read = task.info_names
    key = repr((task.gym_id, task.kwargs, task.max_steps, task.perturb, read, step_timeout, token))
    if key not in _simulators:
        try:
            _simulators[key] = Simulator(task, step_timeout, expendable=True)
        except Exception:  # it works in the main process, so the worker lacks something
            return None
    simulator = _simulators[key]
    if simulator.origin != expected:
        return None
    before = simulator.steps
    try:
        return simulator.play(actor, seeds), simulator.steps - before
    except EnvironmentFault as fault:
        return fault, simulator.steps - before


def evaluate(
    policy: Policy,
    seeds: Sequence[int],
    task: Task | None = None,
    jobs: int | None = None,
    step_timeout: float = STEP_TIMEOUT,
    *,
    isolate_foreign: bool = False,
) -> Score:
    """Score a policy exactly if possible, else over one episode per seed; count violations of the task's requirements.

    Args:
        seeds: environment seeds. An exact score needs them only for the requirements.
        task: the task to play; by default the policy's own.
        jobs, step_timeout: as in `ParallelSimulator`.
        isolate_foreign: whether only other processes play an environment from another package.
    """
    task = task or policy.task
    with ParallelSimulator(task, jobs, step_timeout=step_timeout) as players:
        players.isolated = isolate_foreign and players.foreign
        return Course(task, seeds, players.play, players.engine, finite_mdp(task)).score(policy, len(seeds))
