"""Who carries out the cells of a sweep: here by worker processes, in other modules on other machines."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from policygen.episodes.players import usable_cores
from policygen.errors import PolicygenError
from policygen.extensions.sweeps.worker import CellResult, Event, Order, work

SECONDS_TO_BREAK_OFF = 60.0


class ClusterError(PolicygenError):
    """A cluster cannot be used as asked."""


class Executor(Protocol):
    """Carries out orders, some at a time.

    Attributes:
        jobs: processes that play the episodes of one cell, where its settings do not say; None for a run's own default.
    """

    jobs: int | None

    @property
    def free(self) -> bool:
        """Whether it takes another order now."""
        ...

    @property
    def busy(self) -> bool:
        """Whether there is an order it has been given whose outcome has not been told."""
        ...

    def give(self, order: Order) -> None:
        """Take an order; only where `free`."""
        ...

    def events(self) -> list[Event]:
        """What has happened; waits a while for something to happen."""
        ...

    def end(self) -> list[CellResult]:
        """Break off what is being carried out, to be resumed one day, and say what became of it."""
        ...


class Processes:
    """Worker processes on this machine; each log is in the sweep's folder.

    Args:
        size: how many at most.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._size = size
        self._slots: list[_Slot] = []
        self.jobs = max(1, usable_cores() // size) if size > 1 else None

    @property
    def free(self) -> bool:
        """Whether a worker has nothing to do, or there may be another one."""
        return len(self._slots) < self._size or any(slot.order is None for slot in self._slots)

    @property
    def busy(self) -> bool:
        """Whether any worker has something to do."""
        return any(slot.order is not None for slot in self._slots)

    def give(self, order: Order) -> None:
        """Hand an order to a worker that has none."""
        slot = next((slot for slot in self._slots if slot.order is None), None)
        if slot is None:
            slot = _Slot(self._folder / f"worker-{len(self._slots) + 1}.log", alone=self._size == 1)
            self._slots.append(slot)
        slot.give(order)

    def events(self) -> list[Event]:
        """Wait until a worker says something or ends."""
        busy = [slot for slot in self._slots if slot.order is not None]
        return [event for slot in _ready(busy) for event in slot.events()]

    def end(self) -> list[CellResult]:
        """End all workers; runs that they were at are broken off and stay to be resumed."""
        for slot in self._slots:
            slot.stop()
        deadline = time.monotonic() + SECONDS_TO_BREAK_OFF
        ended = [outcome for slot in self._slots if (outcome := slot.ended(deadline)) is not None]
        self._slots.clear()
        remove_empty_logs(self._folder)
        return ended


def remove_empty_logs(folder: Path) -> None:
    """Remove the logs of workers that printed nothing."""
    for log in folder.glob("worker-*.log"):
        with suppress(OSError):
            if not log.stat().st_size:
                log.unlink()


def broken_off(key: str, last: CellResult | None) -> CellResult:
    """What became of a cell that was told to break off: interrupted, but for one that came to its end all the same."""
    return last if last is not None and last.state == "finished" else CellResult(key, "interrupted")


def _ready(busy: Sequence[_Slot]) -> list[_Slot]:
    ends = {end: slot for slot in busy for end in (slot.connection, slot.process.sentinel)}
    return list({id(ends[end]): ends[end] for end in wait(list(ends))}.values())  # type: ignore[index]


class _Slot:
    """A place for one worker process, which is replaced where it dies."""

    def __init__(self, log: Path, *, alone: bool) -> None:
        self._log = log
        # Without it every process would let its libraries use all cores.
        self._threads = {} if alone else {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.order: Order | None = None
        self._begun = 0.0
        self.connection: Connection
        self.process: BaseProcess
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, self._log, self._threads), daemon=False)
        self.process.start()
        theirs.close()

    def give(self, order: Order) -> None:
        """Hand out a cell."""
        if not self.process.is_alive():
            self._start()
        self.order, self._begun = order, time.perf_counter()
        with suppress(OSError):  # it died this moment: events() says so
            self.connection.send(order)

    def events(self) -> list[Event]:
        """What the worker has to say; where it has died, that its cell has failed."""
        found: list[Event] = []
        try:
            while self.connection.poll():
                found.append(self.connection.recv())
        except (EOFError, OSError):
            pass
        if self.order is not None and any(isinstance(event, CellResult) for event in found):
            self.order = None
        elif self.order is not None and not self.process.is_alive():
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was ended by signal {-code}" if code < 0 else f"ended by itself (exit code {code})"
            sentence = f"its process {how}; what it printed is in {self._log}"
            found.append(CellResult(self.order.cell.key, "failed", sentence, None, time.perf_counter() - self._begun))
            self.order = None
        return found

    def stop(self) -> None:
        """Tell the worker to break off what it does, and to end."""
        if self.order is None:
            with suppress(OSError):
                self.connection.send(None)
        elif self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGTERM)

    def ended(self, deadline: float) -> CellResult | None:
        """What became of the order that it had, once its process has ended."""
        self.process.join(max(0.0, deadline - time.monotonic()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        if self.order is None:
            return None
        key = self.order.cell.key
        return broken_off(key, next((event for event in self.events() if isinstance(event, CellResult)), None))
