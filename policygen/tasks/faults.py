"""Faults of environments: a sentence with file and line for each, and a watchdog for steps that never end."""

from __future__ import annotations

import faulthandler
import inspect
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import IO, Any, Self

import gymnasium as gym
import numpy as np

from policygen.errors import EnvironmentFault
from policygen.notices import notices
from policygen.portable import ALARM, interrupt

STEP_TIMEOUT = 120.0  # default limit on one step in seconds
_UNINTERRUPTED = 3  # after this many time limits, a process whose code cannot be interrupted is ended
_LONGEST = 300  # characters of a message from an environment
SEVERAL_AGENTS = (
    "if it has several agents, wrap it in a gymnasium.Env that controls one of them and gives the others fixed policies"
)
# Words in the errors of environments written for OpenAI's Gym, and what Gymnasium expects.
_RESET = "write `def reset(self, *, seed=None, options=None)`, which returns (observation, info)"
_OLD_INTERFACE = {
    "expected 5, got 4": "`step` has to return (observation, reward, terminated, truncated, info)",
    "unexpected keyword argument 'seed'": _RESET,
    "unexpected keyword argument 'options'": _RESET,
}
_TICKS = 4  # checks per time limit
# The usual types of rewards and flags, which need no further check.
_NUMBERS: frozenset[Any] = frozenset({float, int, bool, np.float64, np.float32, np.int64, np.bool_})


def fault(error: BaseException, env: gym.Env[Any, Any], gym_id: str, method: str) -> EnvironmentFault:
    """Return the fault for an exception in an environment's method, with file and line.

    SystemExit is a fault, too; a KeyboardInterrupt is raised again, because the user interrupted the program.
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
    where = f" ({location})" if (location := _location(error, env, method)) else ""
    return EnvironmentFault(f"{gym_id} failed in `{method}`{where}: {_message_of(error)}")


def name_of(env: gym.Env[Any, Any]) -> str:
    """Return the id of an environment, or the name of its class if it is not registered."""
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def wrappers_of(env: gym.Env[Any, Any]) -> Iterator[gym.Wrapper[Any, Any, Any, Any]]:
    """Yield the wrappers of an environment from the outside in."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def number_of(reward: Any) -> float:
    """Convert a reward to a float; raise EnvironmentFault if it is neither a number nor a 0-d array."""
    if type(reward) in _NUMBERS:
        return float(reward)
    with suppress(Exception):  # the environment's code
        if not isinstance(reward, str | bytes) and np.ndim(reward) == 0:
            return float(reward)
    remedy = ""
    if isinstance(reward, np.ndarray | list | tuple | dict):  # several objectives or agents
        scalar = "gymnasium.wrappers.TransformReward or MO-Gymnasium's LinearReward"
        remedy = f": make one number of it with {scalar}; {SEVERAL_AGENTS}"
    raise EnvironmentFault(f"the reward is {_short_repr(reward)}, not a number{remedy}")


def place_of(error: BaseException) -> str:
    """Return file and line of the innermost frame outside Gymnasium and policygen; empty if there is none."""
    ours = tuple(str(Path(module.__file__).parent) for module in (gym, sys.modules["policygen"]) if module.__file__)
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = (f for f in frames if not f.filename.startswith((*ours, "<")))
    return next((f"{_short_path(f.filename)}, line {f.lineno}" for f in places), "")


def flag_of(value: Any, name: str) -> bool:
    """Convert `terminated` or `truncated` to a boolean; raise EnvironmentFault if it is neither boolean nor number."""
    if type(value) in _NUMBERS:
        return bool(value)
    with suppress(Exception):  # the environment's code
        if np.size(value) == 1 and np.asarray(value).dtype.kind in "biuf":
            return bool(value)
    raise EnvironmentFault(f"`{name}` is {_short_repr(value)}, neither true nor false")


def close(env: gym.Env[Any, Any], seconds: float = STEP_TIMEOUT) -> None:
    """Close an environment; warn, and leave it open, if that fails, exits or takes more than `seconds`."""
    name = name_of(env)
    if name in _never_closed:
        return
    try:
        with OwnDirectory(), Watchdog(seconds, lambda: None, env):
            env.close()
    except (Exception, SystemExit, TimeLimitExceeded) as error:
        if isinstance(error, TimeLimitExceeded):  # a second attempt would also hang
            _never_closed.add(name)
        warnings.warn(f"{fault(error, env, name, 'close')}; no result is lost", stacklevel=2)


_never_closed: set[str] = set()


class OwnDirectory:
    """A context in which an environment has a working directory of its own.

    Without it, a `chdir` in an environment would change the meaning of relative paths, such as the run's folder. When
    the context is entered again, the environment finds the directory that it changed to.
    """

    def __init__(self) -> None:
        self._program_folder = self._env_folder = ""

    def __enter__(self) -> Self:
        self._program_folder = os.getcwd()
        with suppress(OSError):  # if the folder is gone, the environment itself will fail
            if self._env_folder:
                os.chdir(self._env_folder)
        return self

    def __exit__(self, *exception: object) -> None:
        self._env_folder = ""
        with suppress(OSError):
            self._env_folder = os.getcwd()
        if self._env_folder == self._program_folder:
            self._env_folder = ""
        else:
            os.chdir(self._program_folder)


def _message_of(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # `__str__` is the environment's code, too
        text = ""
    if not isinstance(error, EnvironmentFault | TimeLimitExceeded):
        text = f"{type(error).__name__}{f': {text}' if text else ''}"
        text += next((f"; {hint}" for words, hint in _OLD_INTERFACE.items() if words in text), "")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _short_repr(value: Any) -> str:
    try:
        return repr(value)[:60]
    except Exception:  # the environment's code
        return f"a {type(value).__name__}"


def _location(error: BaseException, env: gym.Env[Any, Any], method: str) -> str:
    """Return file and line in the environment's code that led to the exception, else those of its method, or empty."""
    with suppress(Exception):  # its attributes are the environment's code, too
        if location := _innermost_location(reversed(list(traceback.walk_tb(error.__traceback__))), env):
            return location
        code = inspect.unwrap(getattr(type(env.unwrapped), method)).__code__
        return f"{_short_path(code.co_filename)}, line {code.co_firstlineno}"
    return ""


_BLAMELESS = ("gymnasium.", "policygen.tasks.")  # modules of wrappers whose lines are not reported


def _innermost_location(frames: Iterable[tuple[FrameType, int]], env: gym.Env[Any, Any]) -> str:
    """Return file and line of the first frame in the code of the environment or of a wrapper from elsewhere."""
    modules = {one.__module__ for one in type(env.unwrapped).__mro__}
    modules -= {"builtins", "abc", "typing", gym.Env.__module__}
    modules |= {name for one in wrappers_of(env) if not (name := type(one).__module__).startswith(_BLAMELESS)}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in modules}
    found = ((frame.f_code.co_filename, line) for frame, line in frames if frame.f_code.co_filename in files)
    return next((f"{_short_path(file)}, line {line}" for file, line in found), "")


def _short_path(file: str) -> str:
    """Shorten a path to the part below `sys.path`: models read the message and must not see users' folders."""
    for folder in sorted({str(Path.cwd()), *filter(None, sys.path)}, key=len, reverse=True):
        with suppress(ValueError):
            return str(Path(file).relative_to(folder))
    return Path(file).name


class TimeLimitExceeded(BaseException):  # not an Exception, which an environment may catch
    """A step exceeded its time limit."""


class Watchdog:
    """A context that raises `TimeLimitExceeded` in a step that takes longer than `seconds`, or up to a quarter more.

    Steps cost nothing extra: a thread compares `progress` four times per limit, and interrupts the main thread by a
    signal. Nothing is watched in other threads, while the signal is in use, or on Windows. Code that never returns to
    Python cannot be interrupted; its process is ended instead, after three times the limit.

    Args:
        seconds: the limit on a step.
        progress: returns a value that changes with every step; called by another thread.
        env: the environment, named in the message with its file and line.
        expendable: whether the process may be ended silently; if not, it is ended only if `notices.say_exit` is set.
    """

    def __init__(
        self,
        seconds: float,
        progress: Callable[[], object],
        env: gym.Env[Any, Any] | None = None,
        *,
        expendable: bool = False,
    ) -> None:
        self.seconds = seconds
        self._progress = progress
        self._env = env
        self._expendable = expendable
        self._announce_exit = None if expendable else notices.say_exit
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._active = False

    def __enter__(self) -> Self:
        self._active = (
            ALARM != 0
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(ALARM) == signal.SIG_DFL
        )
        if self._active:
            signal.signal(ALARM, self._interrupt)
            self._restart_the_timer()
            threading.Thread(target=self._watch, args=(threading.get_ident(),), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._active:
            self._active = False
            with self._lock:  # a signal sent after this would end the process
                self._stopped.set()
            signal.signal(ALARM, signal.SIG_DFL)
            if self._expendable or self._announce_exit is not None:
                faulthandler.cancel_dump_traceback_later()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._active:
            raise TimeLimitExceeded(f"no answer within {self.seconds:g} s; more time: --set step_timeout=SECONDS")

    def _watch(self, watched: int) -> None:
        """Run in a thread of its own: interrupt the watched thread, or end the process if that fails."""
        seen, unchanged_checks = self._progress(), 0
        while not self._stopped.wait(self.seconds / _TICKS):
            now = self._progress()
            seen, unchanged_checks = now, unchanged_checks + 1 if now == seen else 0
            with self._lock:
                if self._stopped.is_set():
                    return
                if not unchanged_checks:
                    self._restart_the_timer()
                if unchanged_checks >= _TICKS:
                    interrupt(watched, ALARM)
                if unchanged_checks >= _UNINTERRUPTED * _TICKS and self._announce_exit is not None:
                    location = self._current_line(watched)
                    self._announce_exit(
                        f"the environment did not answer within {self.seconds:g} s and cannot be interrupted"
                        f"{f' ({location})' if location else ''}: this process ends here"
                    )
                    os._exit(1)

    def _restart_the_timer(self) -> None:
        """Restart the timer that ends the process even if no Python thread can run."""
        if self._expendable:
            faulthandler.dump_traceback_later(_UNINTERRUPTED * self.seconds, exit=True, file=_null_file())
        elif self._announce_exit is not None:
            faulthandler.dump_traceback_later((_UNINTERRUPTED + 1) * self.seconds, exit=True, file=2)

    def _current_line(self, watched: int) -> str:
        name = location = ""
        with suppress(Exception):  # the environment's code
            if self._env is not None:
                name = name_of(self._env)
                location = _innermost_location(traceback.walk_stack(sys._current_frames()[watched]), self._env)
        return ", ".join(filter(None, (name, location)))


@cache
def _null_file() -> IO[str]:
    """Return a file that discards what is written, and stays open until the process ends."""
    return open(os.devnull, "w", encoding="utf-8")
