"""Make environments, turn their failures into clear messages, and count their steps."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from policygen.errors import TaskError, UsageError
from policygen.tasks.actions import actuators_of
from policygen.tasks.faults import SEVERAL_AGENTS, close, place_of, wrappers_of
from policygen.tasks.perturbed_env import PerturbedEnv
from policygen.tasks.spaces import check_spaces, observed_in
from policygen.tasks.task import Perturbation, Task
from policygen.tasks.trust import check_task, is_standard_library

# Importing this package registers policygen's own environments with Gymnasium.
with contextlib.suppress(ModuleNotFoundError):
    importlib.import_module("policygen.extensions.worlds")

_SINGLE = "name a class or function that makes a single one; policygen plays episodes in parallel itself"
NAMESPACE = "given/"  # prefix of the ids of environments that were passed as Python objects


class _Steps(threading.local):
    """The steps taken by a thread's environments, and the number at which loading a task stops stepping them."""

    taken = 0
    most = sys.maxsize


_steps = _Steps()


class CountedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that counts all calls of `step`; see `steps_taken`."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step of the environment and count it, even if it fails."""
        _steps.taken += 1
        return self.env.step(action)

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]
        """The environment's own specification, to which a wrapper would add itself."""
        return self.env.spec


def steps_taken() -> int:
    """Return how many steps the environments of this thread have taken so far."""
    return _steps.taken


def steps_left() -> int:
    """Return how many steps loading a task may still take (see `limited_to`); a large number without a limit."""
    return max(0, _steps.most - _steps.taken)


@contextlib.contextmanager
def limited_to(steps: int | None) -> Iterator[None]:
    """Limit the steps that loading a task takes in this context; None is no limit."""
    before, _steps.most = _steps.most, sys.maxsize if steps is None else _steps.taken + steps
    try:
        yield
    finally:
        _steps.most = before


@dataclass(frozen=True, eq=False)
class UserEnv:
    """An environment or an environment factory that was passed as a Python object.

    Attributes:
        env: the environment, which plays one episode at a time; None if a factory was passed.
        factory: a function that makes an environment; None if an environment was passed.
        token: an id that this object shares with its copies in other processes.
    """

    env: gym.Env[Any, Any] | None = None
    factory: Callable[..., gym.Env[Any, Any]] | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def name(self) -> str:
        """The name of the environment's class or factory."""
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
                raise TaskError(f"{self.name} cannot make an environment ({_words_of(error)})") from error
            if not isinstance(env, gym.Env):
                kind = type(env).__name__
                raise TaskError(f"{self.name} returns a {kind}, not a Gymnasium environment (gymnasium.Env)")
        check_spaces(env, self.name)
        env = CountedEnv(env)
        if max_steps is not None and limit_of(env) != max_steps:
            env = TimeLimit(OrderEnforcing(env), max_steps)
        return env

    def rendering(self, max_steps: int, mode: str) -> gym.Env[Any, Any]:
        """Return an environment that renders in a mode; raise TaskError if none can be made."""
        env = self.make(max_steps)
        if env.render_mode != mode and self.env is None and mode in (env.metadata.get("render_modes") or ()):
            env.close()
            with contextlib.suppress(TaskError):
                env = self.make(max_steps, render_mode=mode)
        if env.render_mode == mode:
            return env
        env.close()
        raise TaskError(
            f"{self.name} does not render images: pass an environment made with render_mode={mode!r}, or a function "
            "that takes render_mode"
        )


class BorrowedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that does not close its environment, which belongs to the user."""

    def close(self) -> None:
        """Leave the user's environment open."""


def limit_of(env: gym.Env[Any, Any]) -> int | None:
    """Return the step limit at which an environment truncates its episodes; None if it states none."""
    stated = env.spec.max_episode_steps if env.spec is not None else None
    return next((w._max_episode_steps for w in wrappers_of(env) if isinstance(w, TimeLimit)), stated)


def user_env_of(what: Any) -> UserEnv | str:
    """Wrap an environment or factory, but return `module:Name` if other processes can import it.

    Raises:
        UsageError: `what` is neither.
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
    """Whether other processes can make the environment: only if it has a factory that can be pickled."""
    if what.env is not None:
        return False
    from loky.cloudpickle_wrapper import dumps  # start-up time

    try:
        dumps(what)
    except Exception:  # pickling runs the user's code
        return False
    return True


def make_env(task: Task, *, cut: bool = True) -> gym.Env[Any, Any]:
    """Make the environment of a task, with its perturbations.

    Args:
        cut: whether to truncate episodes at `task.max_steps`.

    Raises:
        TaskError: the environment cannot be made (see `make`), the task is untrusted and may not use it, or a
            perturbation does not fit it.
    """
    limit = task.most_steps if cut else None

    def make_with(keywords: Mapping[str, Any]) -> gym.Env[Any, Any]:
        if task.given is None:
            return make(task.gym_id, {**dict(task.kwargs), **keywords}, limit)
        if keywords:
            raise TaskError("kwargs.NAME needs an environment with a Gymnasium id; choose another perturbation")
        return task.given.make(limit)  # type: ignore[no-any-return]

    if task.given is None:
        check_task(task)
    env = make_with({})
    if not task.perturb:
        return env
    signals = [one.name for one in task.observations]
    return PerturbedEnv(env, task.perturb, make_with, signals, task.max_steps if cut else None)


@contextlib.contextmanager
def opened(task: Task, *, cut: bool = True) -> Iterator[gym.Env[Any, Any]]:
    """Make the environment of a task (see `make_env`), and close it at the end of the context."""
    env = make_env(task, cut=cut)
    try:
        yield env
    finally:
        close(env)


def fits(task: Task, perturbation: Perturbation) -> bool:
    """Whether the environment of a task supports a perturbation."""
    try:
        with opened(replace(task, perturb=(perturbation,))):
            return True
    except TaskError:
        return False


def with_user_env(task: Task, env: Any) -> Task:
    """Return the task, trusted, with an environment or factory of this program in place of its own.

    Raises:
        UsageError: `env` is neither.
        TaskError: its observations or actions differ in number from the task's.
    """
    own = user_env_of(env)
    if isinstance(own, str):
        if own == task.gym_id:
            return task.trusted()
        own = UserEnv(factory=env)
    with opened(replace(task, given=own, perturb=()), cut=False) as made:
        numbers, texts = observed_in(made.observation_space)
        taken = len(actuators_of(made.action_space)[1])
    observed, expected = len(numbers) + len(texts), len(task.observations) + len(task.texts)
    if (observed, taken) != (expected, len(task.actuators)):
        raise TaskError(
            f"{own.name} has {observed} observed values and {taken} action values; the environment of {task.name} "
            f"has {expected} and {len(task.actuators)}"
        )
    return replace(task, untrusted="", given=own)


def origin(env: gym.Env[Any, Any]) -> str:
    """Return entry point, arguments and wrappers of an environment as text, the same in all processes; else empty."""
    spec = env.spec
    if spec is None:
        return ""
    where = entry = spec.entry_point
    if not isinstance(entry, str):
        where = f"{getattr(entry, '__module__', '')}:{getattr(entry, '__qualname__', '')}"
    # Memory addresses differ between processes.
    return re.sub(r"\b0x[0-9a-f]+", "", repr((where, spec.kwargs, spec.additional_wrappers)))


def of_gymnasium_or_ours(where: str) -> bool:
    """Whether an `origin` is one of Gymnasium's or policygen's own environments."""
    return where.startswith(("('gymnasium.", "('policygen."))


_ID = re.compile(r"(\w+(\.\w+)*:)?[^:\s]+")  # `Id-v0`, or `module:Id-v0` with the module that registers it
# Extras of policygen, by a word in the error that a missing package raises.
_EXTRAS = {"mujoco": "mujoco", "box2d": "box2d", "pygame": "box2d", "swig": "box2d", "minigrid": "minigrid"}


def _silence_mujoco() -> None:
    """Keep MuJoCo from printing warnings and writing MUJOCO_LOG.TXT: attempts report instabilities themselves."""
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(lambda remark: None)


# MuJoCo's warnings about NaN or huge values of positions, velocities and accelerations (mjtWarning).
_UNSTABLE = ("mjWARN_BADQPOS", "mjWARN_BADQVEL", "mjWARN_BADQACC")


def became_unstable(env: gym.Env[Any, Any]) -> bool:
    """Whether a MuJoCo simulation has become unstable since its last reset."""
    mujoco, data = sys.modules.get("mujoco"), getattr(env.unwrapped, "data", None)
    if mujoco is None or not isinstance(data, mujoco.MjData):
        return False
    return any(data.warning[int(getattr(mujoco.mjtWarning, kind))].number > 0 for kind in _UNSTABLE)


def import_user_module(module: str) -> ModuleType:
    """Import a user's module, from the working directory too; the caller checks that its code may run.

    Raises:
        TaskError: the module does not exist or fails.
    """
    if is_standard_library(module):
        raise TaskError(f"{module} is part of Python's standard library; name a module with environments")
    top, folder = module.partition(".")[0], str(Path.cwd())
    is_here = (Path(top).is_dir() or Path(f"{top}.py").is_file()) and folder not in sys.path and "" not in sys.path
    if is_here and top not in sys.modules and importlib.util.find_spec(top) is None:
        sys.path.append(folder)  # at the end: the folder must not hide installed packages
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise TaskError(
                f"the module {module} needs a package that is not installed: {error}; install the one that has it "
                f"(often: pip install {error.name.partition('.')[0] if error.name else 'NAME'})"
            ) from None
        places = f"neither {top}.py in the working directory nor an installed package"
        raise TaskError(
            f"there is no module `{module}`: {places}; go to the folder of the file, or install the package"
        ) from None
    except (Exception, SystemExit) as error:  # foreign code
        raise TaskError(
            f"the module {module} fails when it is imported ({_words_of(error)}): "
            f"repair it until `python -c 'import {module}'` works"
        ) from error


def _words_of(error: BaseException) -> str:
    """Return type and message of an exception, and the file and line that raised it."""
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return ", ".join(filter(None, (words, place_of(error))))


def _import_and_register(module: str, name: str) -> None:
    """Import a user's module; register its class or function `name` unless the module registers that id itself."""
    if module.endswith(".py"):
        raise TaskError(f"`{module}` is a file; name its module: {module.removesuffix('.py')}:{name}")
    before = set(gym.registry)
    found = import_user_module(module)
    # Some packages register in a function of their own, such as `register_envs()`.
    for function in ("", *(word for word in vars(found) if word.startswith("register_"))):
        if function and inspect.isfunction(register := getattr(found, function)) and _takes_nothing(register):
            try:
                register()
            except (Exception, SystemExit) as error:  # foreign code
                raise TaskError(f"{module}.{function}() fails: {_words_of(error)}") from error
        if name in gym.registry or any(known.startswith(f"{name}-v") for known in gym.registry):
            return
    what = getattr(found, name, None)
    if name.isidentifier() and callable(what):
        if inspect.isbuiltin(what) or (isinstance(what, type) and not issubclass(what, gym.Env)):
            if isinstance(what, type) and issubclass(what, gym.vector.VectorEnv):
                raise TaskError(f"{module}:{name} is a vectorised environment: {_SINGLE}")
            raise TaskError(
                f"{module}:{name} is not an environment: name a subclass of gymnasium.Env, or a function that makes "
                f"one; {SEVERAL_AGENTS}"
            )
        gym.register(id=name, entry_point=f"{module}:{name}")
        return
    classes = {word for word, kind in vars(found).items() if isinstance(kind, type) and issubclass(kind, gym.Env)}
    own = sorted(set(gym.registry) - before) + sorted(classes - {"Env"})
    meant = difflib.get_close_matches(name, own, n=1) or own[:6]
    has = f"it has {', '.join(f'{module}:{word}' for word in meant)}" if meant else "it has no environment"
    raise TaskError(
        f"the module {module} neither registers `{name}` nor has a class or function of that name; {has}; if a "
        f"submodule registers it, name that: {module}.envs:{name}"
    )


def _takes_nothing(function: Callable[..., Any]) -> bool:
    """Whether a function can be called without arguments."""
    parameters = inspect.signature(function).parameters.values()
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def make(gym_id: str, kwargs: Mapping[str, Any], max_steps: int | None = None) -> gym.Env[Any, Any]:
    """Call `gymnasium.make` and turn its failures into clear messages.

    Raises:
        TaskError: Gymnasium does not know the id or the kwargs, a required package is missing, or the code of the
            environment, or of the module before the colon of `module:Id-v0`, fails.
    """
    if not _ID.fullmatch(gym_id):
        raise TaskError(f"`{gym_id}` is not a Gymnasium id: write `Id-v0`, or `module:Id-v0` to import a module first")
    if gym_id.startswith(NAMESPACE):
        raise TaskError(
            f"the environment {gym_id.removeprefix(NAMESPACE)} was passed as a Python object; pass it again: "
            "policygen.resume(RUN, env=...), policygen.score(policy, env), policygen.film(policy, path, env=...)"
        )
    module, colon, name = gym_id.partition(":")
    if colon:
        _import_and_register(module, name)
    arguments: dict[str, Any] = {**kwargs, "disable_env_checker": True}
    if max_steps is not None:
        arguments["max_episode_steps"] = max_steps
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the task chose this version, even if a newer one exists
            env = gym.make(gym_id, **arguments)
        check_spaces(env, gym_id)
        _silence_mujoco()
        return CountedEnv(env)
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        extra = next((extra for word, extra in _EXTRAS.items() if word in str(error).lower()), None)
        fix = (
            f'run: pip install "policygen[{extra}]"' if extra else f"install the package that this error names: {error}"
        )
        raise TaskError(f"{gym_id} needs a package that is not installed; {fix}") from None
    except TaskError:
        raise
    except gym.error.Error as error:
        hint = "" if colon else f"; if a package registers it, name the package: PACKAGE:{gym_id}"
        hint = hint if isinstance(error, gym.error.UnregisteredEnv) else ""
        if isinstance(error, gym.error.VersionNotFound):
            hint = " Write one of these versions"
        raise TaskError(f"Gymnasium cannot make {gym_id}: {' '.join(str(error).split())}{hint}") from None
    except (Exception, SystemExit) as error:  # foreign code
        if isinstance(error, TypeError) and "VectorEnv" in str(error):
            raise TaskError(f"{gym_id} makes a vectorised environment: {_SINGLE}") from None
        if isinstance(error, TypeError) and "gymnasium.Env" in str(error):  # the check of the result
            raise TaskError(f"{gym_id} makes no Gymnasium environment (gymnasium.Env); {SEVERAL_AGENTS}") from None
        fault = _words_of(error)
        if not isinstance(error, TypeError | ValueError | KeyError | AssertionError):
            raise TaskError(f"{gym_id} cannot be made ({fault})") from error
        if kwargs:
            raise TaskError(
                f"{gym_id} does not take these kwargs ({fault}); correct `kwargs` in the task file"
            ) from None
        needed = "render_mode=rgb_array" if "render_mode" in fault.lower().replace(" ", "_") else "NAME=VALUE"
        raise TaskError(
            f"{gym_id} cannot be made without arguments ({fault}): `policygen new {gym_id} --kwarg {needed}` writes "
            "a task file with arguments; if it needs none, its dependencies may have the wrong versions: install those "
            "that it names"
        ) from error
