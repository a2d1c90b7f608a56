"""Calls of the operating system that Windows lacks or carries out differently, each with what happens there."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

_PAUSES = (0.01, 0.03, 0.1, 0.3, 0.6) if os.name == "nt" else ()  # seconds between attempts to replace a file


def usable_cores() -> int:
    """Return the number of processor cores this process may use; on Windows and macOS, all cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_be_interrupted() -> bool:
    """Whether `interrupt` can stop this thread: the main one, if nothing handles SIGALRM. Never on Windows."""
    return (
        hasattr(signal, "pthread_kill")
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    )


def on_interrupt(handler: Callable[[int, FrameType | None], None] | None) -> None:
    """Let `interrupt` call a handler in the main thread; None: as before. Only where `can_be_interrupted`."""
    signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)


def interrupt(thread: int) -> None:
    """Call the handler in the main thread, between two steps of Python; `thread` is its identifier."""
    signal.pthread_kill(thread, signal.SIGALRM)


def replace(source: Path, target: Path) -> None:
    """Rename a file, in the place of another; on Windows, try for a second while another program has that one open.

    Raises:
        OSError: it cannot be renamed.
    """
    for pause in _PAUSES:
        try:
            return os.replace(source, target)
        except PermissionError:
            time.sleep(pause)
    return os.replace(source, target)


def escape_unprintable() -> None:
    """Print characters that the encoding of the output lacks as escapes (`\\u2264`): cp1252 has few."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
