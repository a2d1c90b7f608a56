"""The lock of a run folder, which only one process at a time may hold."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from policygen.errors import LogbookError, reason_of


class FolderInUse(LogbookError):
    """Another process works in the folder."""


class RunLock:
    """A lock on a run folder, held until it is released or its process ends in any way, even by a crash.

    Raises FolderInUse if another process works in the folder, LogbookError if the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = FileLock(folder / ".lock", timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            use = "is in use: another process runs or resumes it; wait for it, or stop it first"
            raise FolderInUse(f"{folder} {use}") from None
        except (OSError, NotImplementedError) as error:
            remedy = "copy the folder to where you may write, and use the copy"
            raise LogbookError(f"cannot write to {folder} ({reason_of(error)}); {remedy}") from None

    def release(self) -> None:
        """Unlock the folder, if it is locked."""
        self._lock.release(force=True)
