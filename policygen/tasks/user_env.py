"""Environments that a Python program passes: an object, or a function that makes one."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from policygen.errors import TaskError, UsageError
from policygen.tasks.counted import CountedEnv
from policygen.tasks.faults import wrappers_of
from policygen.tasks.spaces import check_spaces

NAMESPACE = "given/"  # prefix of the ids of environments that only this program can make


@dataclass(frozen=True, eq=False)
class UserEnv:
    """An environment or an environment factory that the program passed.

    Attributes:
        env: the environment; None if there is a factory.
        factory: a function that makes an environment; None if there is an environment.
        token: an id that this object shares with its copies in other processes.
    """

    env: gym.Env[Any, Any] | None = None
    factory: Callable[..., gym.Env[Any, Any]] | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def is_single_env(self) -> bool:
        """Whether this is one environment, which plays one episode at a time."""
        return self.factory is None

    @property
    def name(self) -> str:
        """Name of the environment's class or factory."""
        if self.env is not None:
            return type(self.env.unwrapped).__name__
        factory = self.factory.func if isinstance(self.factory, partial) else self.factory
        name = getattr(factory, "__name__", type(factory).__name__)
        return "env" if name == "<lambda>" else str(name)

    def make(self, max_steps: int | None, **more: Any) -> gym.Env[Any, Any]:
        """Return an environment, truncated at `max_steps`; closing it leaves the user's object open.

        TaskError is raised if the factory fails, or does not make an environment.
        """
        if self.env is not None:
            env: gym.Env[Any, Any] = BorrowedEnv(self.env)
        else:
            assert self.factory is not None
            try:
                env = self.factory(**more)
            except (Exception, SystemExit) as error:  # the user's code
                problem = " ".join(f"{type(error).__name__}: {error}".split())
                raise TaskError(f"{self.name} cannot make an environment, it fails with {problem}") from error
            if not isinstance(env, gym.Env):
                kind = type(env).__name__
                raise TaskError(f"{self.name} makes a {kind}, which is not a Gymnasium environment (gymnasium.Env)")
        check_spaces(env, self.name)
        env = CountedEnv(env)
        if max_steps is not None and limit_of(env) != max_steps:
            env = TimeLimit(OrderEnforcing(env), max_steps)
        return env

    def rendering(self, max_steps: int, mode: str) -> gym.Env[Any, Any]:
        """Return an environment that renders in a mode; raise TaskError if none can be made."""
        env = self.make(max_steps)
        if env.render_mode == mode:
            return env
        env.close()
        with suppress(TaskError):
            if not self.is_single_env and mode in (env.metadata.get("render_modes") or ()):
                env = self.make(max_steps, render_mode=mode)
                if env.render_mode == mode:
                    return env
                env.close()
        raise TaskError(
            f"{self.name} draws no pictures: pass an environment made with render_mode={mode!r}, or a function that "
            "takes render_mode"
        )


class BorrowedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that does not close its environment, which belongs to the user."""

    def close(self) -> None:
        """Leave the user's environment open."""


def limit_of(env: gym.Env[Any, Any]) -> int | None:
    """Return the number of steps after which an environment truncates its episodes; None if it states none."""
    stated = env.spec.max_episode_steps if env.spec is not None else None
    return next((w._max_episode_steps for w in wrappers_of(env) if isinstance(w, TimeLimit)), stated)


def user_env_of(what: Any) -> UserEnv | str:
    """Wrap an environment or factory, but return `module:Name` for one that other processes can import.

    UsageError is raised for anything else.
    """
    if isinstance(what, gym.Env):
        return UserEnv(env=what)
    if isinstance(what, gym.vector.VectorEnv):
        raise UsageError("a vectorised environment is not a task: pass a function that makes a single one")
    if not callable(what):
        raise UsageError(
            f"a {type(what).__name__} is not a task: pass a task's name, a Gymnasium id, a Task, an environment, or a "
            "function that makes one"
        )
    module, name = getattr(what, "__module__", None), getattr(what, "__qualname__", "")
    importable = module not in (None, "__main__", "builtins") and name.isidentifier()
    if importable and getattr(sys.modules.get(str(module)), name, None) is what and name not in gym.registry:
        return f"{module}:{name}"
    return UserEnv(factory=what)


def is_picklable(what: UserEnv) -> bool:
    """Whether other processes can make the environment: it has a factory that can be pickled."""
    if what.is_single_env:
        return False
    from loky.cloudpickle_wrapper import dumps  # start-up time

    try:
        dumps(what)
    except Exception:  # pickling runs the user's code
        return False
    return True
