"""Make Gymnasium environments, and turn each failure into a clear message."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym

from policygen.errors import TaskError
from policygen.tasks.actions import actuators_of
from policygen.tasks.counted import CountedEnv
from policygen.tasks.faults import SEVERAL_AGENTS, close, place_of
from policygen.tasks.perturb import Perturbation, most_start_steps
from policygen.tasks.perturbed_env import PerturbedEnv
from policygen.tasks.spaces import check_spaces, observations_of, texts_of
from policygen.tasks.task import Task
from policygen.tasks.trust import is_standard_library, refuse_untrusted, trusted
from policygen.tasks.user_env import NAMESPACE, UserEnv, user_env_of

# Importing this package registers policygen's own environments with Gymnasium.
with contextlib.suppress(ModuleNotFoundError):
    importlib.import_module("policygen.extensions.worlds")


def make_env(task: Task, *, cut: bool = True) -> gym.Env[Any, Any]:
    """Make the environment of a task, with its perturbations.

    Args:
        cut: whether to truncate episodes at `task.max_steps`.

    Raises:
        TaskError: the environment cannot be made (see `make`), the task is untrusted and may not use it, or a
            perturbation does not fit it.
    """
    start_steps = most_start_steps(task.perturb)
    limit = task.max_steps + start_steps if cut else None

    def make_with(keywords: Mapping[str, Any]) -> gym.Env[Any, Any]:
        if task.given is None:
            return make(task.gym_id, {**dict(task.kwargs), **keywords}, limit)
        if keywords:
            raise TaskError("kwargs.NAME perturbs only environments with a Gymnasium id; choose another perturbation")
        return task.given.make(limit)

    if task.given is None:
        refuse_untrusted(task)
    env = make_with({})
    if not task.perturb:
        return env
    signals = [one.name for one in task.observations]
    return PerturbedEnv(env, task.perturb, make_with, signals, limit - start_steps if limit else None)


def most_steps(task: Task) -> int:
    """Return the largest number of steps that an episode takes, with the random ones before it."""
    return task.max_steps + most_start_steps(task.perturb)


def fits(task: Task, perturbation: Perturbation) -> bool:
    """Whether the environment of a task supports a perturbation."""
    try:
        close(make_env(replace(task, perturb=(perturbation,))))
    except TaskError:
        return False
    return True


def with_user_env(task: Task, env: Any) -> Task:
    """Return the task, trusted, with its environment replaced by an environment or factory of this program.

    Raises:
        UsageError: `env` is neither.
        TaskError: its observations or actions differ in number from the task's.
    """
    own = user_env_of(env)
    if isinstance(own, str):
        if own == task.gym_id:
            return trusted(task)
        own = UserEnv(factory=env)
    made = own.make(None)
    try:
        observed = len(observations_of(made.observation_space)) + len(texts_of(made.observation_space))
        taken = len(actuators_of(made.action_space)[1])
    finally:
        made.close()
    expected = len(task.observations) + len(task.texts)
    if (observed, taken) != (expected, len(task.actuators)):
        raise TaskError(
            f"{own.name} observes {observed} numbers and takes {taken}; the environment of {task.name} observes "
            f"{expected} and takes {len(task.actuators)}"
        )
    return replace(trusted(task), given=own)


def origin(env: gym.Env[Any, Any]) -> str:
    """Return the entry point, arguments and wrappers of an environment as text, equal in all processes, or empty."""
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
# The extra of policygen that installs a package, by a word of the error if the package is missing.
_EXTRAS = {"mujoco": "mujoco", "box2d": "box2d", "pygame": "box2d", "swig": "box2d", "minigrid": "minigrid"}


def _silence_mujoco(gym_id: str) -> None:
    """Keep MuJoCo, if it is or will be imported, from printing warnings and writing MUJOCO_LOG.TXT.

    Attempts report instabilities themselves. MuJoCo also warns about Gymnasium's own model files, which no user can
    change.
    """
    spec = gym.registry.get(gym_id)
    if "mujoco" not in (str(spec.entry_point) if spec is not None else "") and "mujoco" not in sys.modules:
        return
    with contextlib.suppress(ImportError):  # `make` reports a missing package
        import mujoco  # the extra `mujoco`

        if mujoco.get_mju_user_warning() is None:
            mujoco.set_mju_user_warning(lambda remark: None)


# MuJoCo's warnings about NaN or huge positions, velocities and accelerations (mjtWarning).
_UNSTABLE = ("mjWARN_BADQPOS", "mjWARN_BADQVEL", "mjWARN_BADQACC")


def became_unstable(env: gym.Env[Any, Any]) -> bool:
    """Whether a MuJoCo simulation has become unstable since its last reset."""
    mujoco, data = sys.modules.get("mujoco"), getattr(env.unwrapped, "data", None)
    if mujoco is None or not isinstance(data, mujoco.MjData):
        return False
    return any(data.warning[int(getattr(mujoco.mjtWarning, kind))].number > 0 for kind in _UNSTABLE)


def import_user_module(module: str) -> ModuleType:
    """Import a module of the user, also from the working directory; raise TaskError if there is none, or it fails.

    The caller must check that its code may run.
    """
    if is_standard_library(module):
        raise TaskError(f"{module} is a module of Python itself; name a module that has environments or agents")
    top, folder = module.partition(".")[0], str(Path.cwd())
    is_here = (Path(top).is_dir() or Path(f"{top}.py").is_file()) and folder not in sys.path and "" not in sys.path
    if is_here and top not in sys.modules and importlib.util.find_spec(top) is None:
        sys.path.append(folder)  # at the end: the folder must not hide installed packages
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise TaskError(f"the module {module} needs a package that is not installed: {error}") from None
        places = f"neither {top}.py in the working directory nor an installed package"
        raise TaskError(f"there is no module `{module}`: {places}") from None
    except (Exception, SystemExit) as error:  # foreign code
        fault = " ".join(f"{type(error).__name__}: {error}".split())
        raise TaskError(f"the module {module} fails when it is imported: {fault}") from error


def _import_and_register(module: str, name: str) -> None:
    """Import a module of the user, and register its class or function `name` unless the module registers that id."""
    if module.endswith(".py"):
        raise TaskError(f"`{module}` is a file: name its module, {module.removesuffix('.py')}:{name}")
    before = set(gym.registry)
    found = import_user_module(module)
    # Some packages register in a function of their own, such as `register_envs()`.
    for function in ("", *(word for word in vars(found) if word.startswith("register_"))):
        if function and inspect.isfunction(register := getattr(found, function)) and _takes_nothing(register):
            try:
                register()
            except (Exception, SystemExit) as error:  # foreign code
                raise TaskError(f"{module}.{function}() fails: {type(error).__name__}: {error}") from error
        if name in gym.registry or any(known.startswith(f"{name}-v") for known in gym.registry):
            return
    what = getattr(found, name, None)
    if name.isidentifier() and callable(what):
        if inspect.isbuiltin(what) or (isinstance(what, type) and not issubclass(what, gym.Env)):
            raise TaskError(
                f"{module}:{name} is not an environment: name a gymnasium.Env class or a function for one; "
                f"{SEVERAL_AGENTS}"
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
        TaskError: Gymnasium does not know the id or the kwargs, a package the environment needs is missing, or the
            environment, or the module before the colon of `module:Id-v0`, fails.
    """
    if not _ID.fullmatch(gym_id):
        raise TaskError(f"`{gym_id}` is not a Gymnasium id: write `Id-v0`, or `module:Id-v0` to import a module first")
    if gym_id.startswith(NAMESPACE):
        raise TaskError(
            f"the environment {gym_id.removeprefix(NAMESPACE)} exists only in a Python program; pass it again: "
            "policygen.resume(RUN, env=...), policygen.score(policy, env), policygen.film(policy, path, env=...)"
        )
    module, colon, name = gym_id.partition(":")
    if colon:
        _import_and_register(module, name)
    _silence_mujoco(gym_id)
    arguments: dict[str, Any] = {**kwargs, "disable_env_checker": True}
    if max_steps is not None:
        arguments["max_episode_steps"] = max_steps
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the task chose this version, even if a newer one exists
            env = gym.make(gym_id, **arguments)
        check_spaces(env, gym_id)
        _silence_mujoco(gym_id)
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
        raise TaskError(f"Gymnasium cannot make {gym_id}: {' '.join(str(error).split())}{hint}") from None
    except (Exception, SystemExit) as error:  # foreign code
        fault = " ".join(f"{type(error).__name__}: {error}".split())
        if isinstance(error, TypeError) and "gymnasium.Env" in str(error):  # the check of the result
            makes = f"{gym_id} makes something other than a Gymnasium environment (gymnasium.Env)"
            raise TaskError(f"{makes}; {SEVERAL_AGENTS}") from None
        fault = ", ".join(filter(None, (fault, place_of(error))))
        if not isinstance(error, TypeError | ValueError | KeyError | AssertionError):
            raise TaskError(f"{gym_id} cannot be made, it fails with {fault}") from error
        if kwargs:
            remedy = "correct `kwargs` in the task file"
            raise TaskError(f"{gym_id} does not take these kwargs ({fault}); {remedy}") from None
        raise TaskError(
            f"{gym_id} cannot be made without arguments ({fault}); if it needs some, give it `kwargs` in a task file: "
            f"policygen new {gym_id} --kwarg NAME=VALUE; else packages that it depends on may not fit: install the "
            "versions that it names"
        ) from error
