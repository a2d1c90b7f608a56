"""System calls that Windows lacks or handles differently; each function says what it does there."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from pathlib import Path

ALARM = getattr(signal, "SIGALRM", 0)  # 0 on Windows, where no step is interrupted
_PAUSES = (0.01, 0.03, 0.1, 0.3, 0.6) if os.name == "nt" else ()  # seconds between attempts to replace a file


def usable_cores() -> int:
    """Return the number of processor cores that this process may use; on Windows and macOS, all cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def interrupt(thread: int, number: int) -> None:
    """Send a signal to a thread, even while it waits; on Windows, the handler runs when the wait is over."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread, number)
    else:
        signal.raise_signal(number)


def replace(source: Path, target: Path) -> None:
    """Replace a file by another; on Windows, retry for a second while a program has it open. Raises OSError."""
    for pause in _PAUSES:
        try:
            return os.replace(source, target)
        except PermissionError:
            time.sleep(pause)
    return os.replace(source, target)


def escape_unprintable() -> None:
    """Print characters that the encoding of the output lacks, such as cp1252, as escapes (`\\u2264`)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
