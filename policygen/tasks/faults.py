"""What goes wrong inside an environment, as one sentence that says where; and an end to steps that never end."""

from __future__ import annotations

import faulthandler
import inspect
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import gymnasium as gym
import numpy as np

from policygen.errors import EnvironmentFault
from policygen.outgoing import exit_message_hook

STEP_TIMEOUT = 120.0  # seconds that one step may take, unless told otherwise
_UNINTERRUPTED = 3  # time limits after which code that cannot be interrupted is ended with its process
_LONGEST = 300  # characters of a foreign message
_TICKS = 4  # looks at the clock within one time limit
_NUMBERS: frozenset[Any] = frozenset({float, int, bool, np.float64, np.float32, np.int64, np.bool_})


def fault(error: BaseException, env: gym.Env[Any, Any], gym_id: str, doing: str) -> EnvironmentFault:
    """What an environment raised in its method `doing`, as a sentence with its file and line.

    A call to exit is a fault as well. What the user raises from the keyboard is none of the environment's.

    Raises:
        KeyboardInterrupt: `error` is one.
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
    place = _place(error, env, doing)
    return EnvironmentFault(f"{gym_id} failed in `{doing}`{f' ({place})' if place else ''}: {_said(error)}")


def misshapen(row: Any, expected: int) -> EnvironmentFault:
    """An observation that has another number of numbers than the task says."""
    return EnvironmentFault(f"an observation has {np.size(row)} numbers instead of {expected}")


def number_of(reward: Any) -> float:
    """A reward as a number.

    Raises:
        EnvironmentFault: it is none; an array counts if it has no dimensions.
    """
    if type(reward) in _NUMBERS:
        return float(reward)
    with suppress(Exception):  # foreign code
        if not isinstance(reward, str | bytes) and np.ndim(reward) == 0:
            return float(reward)
    raise EnvironmentFault(f"the reward is {_shown(reward)}, not a number")


def flag_of(value: Any, name: str) -> bool:
    """`terminated` or `truncated` as a truth value.

    Raises:
        EnvironmentFault: it is none; a text, which would always be true, least of all.
    """
    if type(value) in _NUMBERS:
        return bool(value)
    with suppress(Exception):  # foreign code
        if np.size(value) == 1 and np.asarray(value).dtype.kind in "biuf":
            return bool(value)
    raise EnvironmentFault(f"`{name}` is {_shown(value)}, neither true nor false")


def close(env: gym.Env[Any, Any], seconds: float = STEP_TIMEOUT) -> None:
    """Close an environment; one that fails, exits or takes more than `seconds` is left behind.

    Warns:
        UserWarning: it is left behind.
    """
    name = env.spec.id if env.spec else type(env.unwrapped).__name__
    if name in _never_closed:
        return
    try:
        with OwnDirectory(), Watchdog(seconds, lambda: None, env):
            env.close()
    except (Exception, SystemExit, TooLong) as error:
        if isinstance(error, TooLong):  # nobody waits for it once more
            _never_closed.add(name)
        warnings.warn(f"{fault(error, env, name, 'close')}; nothing is lost", stacklevel=2)


_never_closed: set[str] = set()


class OwnDirectory:
    """Lets an environment work in a directory that it changes to, while the program stays where it is.

    Without it a relative path, such as that of the run's folder, would be another one after the environment's `chdir`.
    """

    def __init__(self) -> None:
        self._ours = self._theirs = ""

    def __enter__(self) -> Self:
        self._ours = os.getcwd()
        self._change(self._theirs)
        return self

    def __exit__(self, *exception: object) -> None:
        self._theirs = ""
        with suppress(OSError):
            self._theirs = os.getcwd()
        if self._theirs == self._ours:
            self._theirs = ""
        else:
            os.chdir(self._ours)

    def _change(self, folder: str) -> None:
        with suppress(OSError):  # it is gone: the environment itself says what it lacks
            if folder:
                os.chdir(folder)


def _said(error: BaseException) -> str:
    """The message of a foreign exception in one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # even that is foreign code
        text = ""
    if not isinstance(error, EnvironmentFault | TooLong):
        text = f"{type(error).__name__}{f': {text}' if text else ''}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _shown(value: Any) -> str:
    try:
        return repr(value)[:60]
    except Exception:  # foreign code
        return f"a {type(value).__name__}"


def _place(error: BaseException, env: gym.Env[Any, Any], doing: str) -> str:
    """The environment's own last line on the way to the exception, else where its method begins."""
    with suppress(Exception):  # whatever the environment says of itself is foreign, too
        if place := _last_place(reversed(list(traceback.walk_tb(error.__traceback__))), env):
            return place
        code = inspect.unwrap(getattr(type(env.unwrapped), doing)).__code__
        return f"{_short(code.co_filename)}, line {code.co_firstlineno}"
    return ""


def _last_place(frames: Iterable[tuple[FrameType, int]], env: gym.Env[Any, Any]) -> str:
    """The file and line of the first of the frames that is the environment's own."""
    files = _files_of(env)
    for frame, line in frames:
        if frame.f_code.co_filename in files:
            return f"{_short(frame.f_code.co_filename)}, line {line}"
    return ""


def _files_of(env: gym.Env[Any, Any]) -> set[str]:
    """The files of the environment's classes, and of wrappers that are not Gymnasium's."""
    classes = [*type(env.unwrapped).__mro__]
    while isinstance(env, gym.Wrapper):
        if not type(env).__module__.startswith("gymnasium."):
            classes.append(type(env))
        env = env.env
    modules = {kind.__module__ for kind in classes} - {"builtins", "abc", "typing", gym.Env.__module__}
    return {str(file) for name in modules if (file := getattr(sys.modules.get(name), "__file__", None))}


def _short(file: str) -> str:
    """A file by its path from where Python finds it: sentences are shown to models, folders of the user are not."""
    for folder in sorted({str(Path.cwd()), *filter(None, sys.path)}, key=len, reverse=True):
        with suppress(ValueError):
            return str(Path(file).relative_to(folder))
    return Path(file).name


class TooLong(BaseException):  # an environment that catches every Exception must not catch this
    """A step took longer than it may."""


class Watchdog:
    """Ends a step that takes more than `seconds`, and at most a quarter more, by an exception inside it.

    It costs the steps nothing: a timer of the system looks at `progress` now and then. Timers interrupt the main thread
    only; elsewhere, and where somebody else uses the timer already, nothing is watched. Code that never returns to
    Python cannot be interrupted at all, but the process that it runs in can be ended, after three times the limit.

    Args:
        progress: anything that differs from one step to the next.
        env: what is watched, for a sentence that names the place.
        expendable: whether the process may be ended without a word; else only one with a `exit_message_hook`.
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
        self._over = threading.Event()
        self._seen: object = None
        self._quiet = 0
        self._on = False

    def __enter__(self) -> Self:
        free = (
            hasattr(signal, "setitimer")
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
        )
        if free:
            self._seen = self._progress()
            signal.signal(signal.SIGALRM, self._look)
            signal.setitimer(signal.ITIMER_REAL, self.seconds / _TICKS, self.seconds / _TICKS)
            self._on = True
            self._postpone_the_end()
            if exit_message_hook.say is not None and not self._expendable:
                threading.Thread(target=self._end_in_time, args=(exit_message_hook.say,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._on:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            self._over.set()
            if self._expendable or exit_message_hook.say is not None:
                faulthandler.cancel_dump_traceback_later()

    def _look(self, number: int, frame: FrameType | None) -> None:
        now = self._progress()
        if now != self._seen:
            self._seen, self._quiet = now, 0
            self._postpone_the_end()
            return
        self._quiet += 1
        if self._quiet >= _TICKS:
            raise TooLong(f"no answer within {self.seconds:g} s; more time: --set step_timeout=SECONDS")

    def _postpone_the_end(self) -> None:
        if self._expendable:
            faulthandler.dump_traceback_later(_UNINTERRUPTED * self.seconds, exit=True, file=_nowhere())
        elif exit_message_hook.say is not None:
            # For code that also keeps Python's other threads waiting; nobody is left then to say it in a sentence.
            faulthandler.dump_traceback_later((_UNINTERRUPTED + 1) * self.seconds, exit=True, file=2)

    def _end_in_time(self, say: Callable[[str], None]) -> None:
        """In a thread of its own: end the process where the main thread does not come back to Python."""
        seen, quiet = self._progress(), 0
        while not self._over.wait(self.seconds / _TICKS):
            now = self._progress()
            seen, quiet = now, quiet + 1 if now == seen else 0
            if quiet >= _UNINTERRUPTED * _TICKS and not self._over.is_set():
                place = self._stands_at()
                say(
                    f"the environment did not answer within {self.seconds:g} s and cannot be interrupted"
                    f"{f' ({place})' if place else ''}: this process ends here"
                )
                os._exit(1)

    def _stands_at(self) -> str:
        """Which environment it is, and where it stands now."""
        name = place = ""
        with suppress(Exception):  # foreign code
            frame = sys._current_frames()[threading.main_thread().ident or 0]
            if self._env is not None:
                name = self._env.spec.id if self._env.spec else type(self._env.unwrapped).__name__
                place = _last_place(traceback.walk_stack(frame), self._env)
        return ", ".join(filter(None, (name, place)))


_open_files: list[Any] = []


def _nowhere() -> Any:
    """Where a traceback that nobody reads goes to."""
    if not _open_files:
        _open_files.append(open(os.devnull, "w"))  # noqa: SIM115 - kept open for as long as the process lives
    return _open_files[0]
