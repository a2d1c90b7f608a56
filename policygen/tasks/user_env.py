"""Environments that a program hands over: an object, or what makes one."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from policygen.errors import TaskError, UsageError
from policygen.tasks.actions import actuators_of
from policygen.tasks.spaces import check_spaces, flat_names, texts_of
from policygen.tasks.task import Task
from policygen.tasks.trust import trusted

NAMESPACE = "given/"  # of the ids of environments that no other program can make


@dataclass(frozen=True, eq=False)
class UserEnv:
    """An environment of the program that runs.

    Attributes:
        env: the one object there is, or None.
        factory: makes one after another, or None.
        token: the same wherever a copy of this arrives, and nowhere else.
    """

    env: gym.Env[Any, Any] | None = None
    factory: Callable[..., gym.Env[Any, Any]] | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def alone(self) -> bool:
        """Whether there is but one environment, so that episodes are played one after the other."""
        return self.factory is None

    @property
    def name(self) -> str:
        """What it is called."""
        if self.env is not None:
            return type(self.env.unwrapped).__name__
        factory = self.factory.func if isinstance(self.factory, partial) else self.factory
        name = getattr(factory, "__name__", type(factory).__name__)
        return "env" if name == "<lambda>" else str(name)

    def make(self, max_steps: int | None, **more: Any) -> gym.Env[Any, Any]:
        """The environment, cut at `max_steps`; the one object there is stays open when this is closed.

        Raises:
            TaskError: what makes environments fails, or makes something else.
        """
        if self.env is not None:
            env: gym.Env[Any, Any] = BorrowedEnv(self.env)
        else:
            assert self.factory is not None
            try:
                env = self.factory(**more)
            except (Exception, SystemExit) as error:  # foreign code
                said = " ".join(f"{type(error).__name__}: {error}".split())
                raise TaskError(f"{self.name} cannot make an environment, it fails with {said}") from error
            if not isinstance(env, gym.Env):
                raise TaskError(
                    f"{self.name} makes a {type(env).__name__}, which is no Gymnasium environment (gymnasium.Env)"
                )
        check_spaces(env, self.name)
        if max_steps is not None and limit_of(env) != max_steps:
            env = TimeLimit(OrderEnforcing(env), max_steps)
        return env

    def drawing(self, max_steps: int, mode: str) -> gym.Env[Any, Any]:
        """The environment in a render mode.

        Raises:
            TaskError: it has none, or is not made in it and cannot be.
        """
        env = self.make(max_steps)
        if env.render_mode == mode:
            return env
        env.close()
        with suppress(TaskError):
            if not self.alone and mode in (env.metadata.get("render_modes") or ()):
                env = self.make(max_steps, render_mode=mode)
                if env.render_mode == mode:
                    return env
                env.close()
        raise TaskError(
            f"{self.name} draws no pictures: hand it over made with render_mode={mode!r}, or as a function that takes "
            "render_mode"
        )


class BorrowedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that belongs to somebody else."""

    def close(self) -> None:
        """Leave it open."""


def limit_of(env: gym.Env[Any, Any]) -> int | None:
    """After how many steps an environment cuts its episodes, where it says so."""
    inner: Any = env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, TimeLimit):
            return int(inner._max_episode_steps)
        inner = inner.env
    spec = env.spec
    return spec.max_episode_steps if spec is not None else None


def given(what: Any) -> UserEnv | str:
    """An environment or what makes one; a class or function that other processes can import as `module:Name`.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(what, gym.Env):
        return UserEnv(env=what)
    if isinstance(what, gym.vector.VectorEnv):
        raise UsageError(
            "a vectorised environment is no task: give what makes a single one; policygen plays many at once itself"
        )
    if not callable(what):
        raise UsageError(
            f"a {type(what).__name__} is no task: give a task's name, a Gymnasium id, a Task, an environment, or a "
            "function that makes one"
        )
    module, name = getattr(what, "__module__", None), getattr(what, "__qualname__", "")
    importable = module not in (None, "__main__", "builtins") and name.isidentifier()
    if importable and getattr(sys.modules.get(str(module)), name, None) is what and name not in gym.registry:
        return f"{module}:{name}"
    return UserEnv(factory=what)


def handed_over(task: Task, env: Any) -> Task:
    """The task with an environment, or what makes one, in the place of its own.

    Raises:
        UsageError: it is neither.
        TaskError: it does not observe and take as many numbers and texts as the task's own.
    """
    own = given(env)
    if isinstance(own, str):
        if own == task.gym_id:
            return trusted(task)
        own = UserEnv(factory=env)
    made = own.make(None)
    try:
        observed = len(flat_names(made.observation_space)) + len(texts_of(made.observation_space))
        taken = len(actuators_of(made.action_space)[1])
    finally:
        made.close()
    expected = len(task.observations) + len(task.texts)
    if (observed, taken) != (expected, len(task.actuators)):
        raise TaskError(
            f"{own.name} observes {observed} and takes {taken} numbers, the environment of {task.name} "
            f"{expected} and {len(task.actuators)}"
        )
    return replace(trusted(task), given=own)


def can_travel(what: UserEnv) -> bool:
    """Whether other processes can be sent what makes environments."""
    if what.alone:
        return False
    from loky.cloudpickle_wrapper import dumps

    try:
        dumps(what)
    except Exception:  # whatever it holds refuses in its own way
        return False
    return True
