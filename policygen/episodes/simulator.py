"""Play episodes in one process, with the kind of copies that suits the task.

An episode's start depends only on its seed, so policies played on the same seeds get the same starts (common random
numbers). No episode is cut when another one ends, so lengths are unbiased.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from policygen.episodes.copies import SingleCopies
from policygen.episodes.envpool import PooledCopies
from policygen.episodes.play import play
from policygen.episodes.trajectory import Actor, Trajectory
from policygen.episodes.vector import VectorCopies, has_vector_form
from policygen.tasks.counted import steps_taken
from policygen.tasks.environments import make_env
from policygen.tasks.faults import STEP_TIMEOUT, OwnDirectory
from policygen.tasks.requirements import info_names
from policygen.tasks.task import Task


class Simulator(AbstractContextManager["Simulator"]):
    """Plays episodes of one task and keeps its environments for reuse; close it, or use it with `with`.

    The process in which it plays, a worker or the program itself, watches that no reset or step takes too long. Copies
    of policygen's own, in numpy or EnvPool, need no watch.

    Args:
        step_timeout: limit on one step in seconds, see `Watchdog`.
        expendable: whether the process may be ended if a step cannot be interrupted, see `Watchdog`.
        vectorise: whether a vectorised form may play; it asks the actor for actions in ended episodes, too.

        pool: copies to play with instead of those that suit the task.

    Attributes:
        engine: the kind of copies: `vector` (in numpy, all at once), `envpool`, or `copies` (stepped in turn).
        steps: number of steps that its environments have taken.
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
        self.task = task
        self._expendable = expendable
        self._working_directory = OwnDirectory()
        with self._working_directory:
            self._copies = pool or _copies_of(task, step_timeout, vectorise)
        self.engine, self.origin, self.steps = self._copies.engine, self._copies.origin, 0

    @property
    def batch_size(self) -> int:
        """The largest number of episodes that begin together; 0 for `copies`."""
        return 0 if self._copies.by_row else self._copies.most

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
            finally:  # copies of policygen's own step no environment
                self.steps += steps_taken() - before or sum(one.length for one in played)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the environments."""
        self._copies.close()


def _copies_of(task: Task, step_timeout: float, vectorise: bool) -> SingleCopies | VectorCopies:
    env = make_env(task)
    vectorised = vectorise and task.given is None and not info_names(task.requirements) and has_vector_form(env)
    return VectorCopies(env, task.max_steps) if vectorised else SingleCopies(task, env, step_timeout)
