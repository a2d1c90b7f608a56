"""Executors carry out the cells of a sweep: worker processes here, cluster jobs in other modules."""

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
    """Carries out orders, several at a time.

    Attributes:
        jobs: processes per cell for episodes, unless its settings state it; None: the default of a run.
    """

    jobs: int | None

    @property
    def free(self) -> bool:
        """Whether it can take another order now."""
        ...

    @property
    def busy(self) -> bool:
        """Whether the result of any order is outstanding."""
        ...

    def give(self, order: Order) -> None:
        """Take an order; call this only if `free`."""
        ...

    def events(self) -> list[Event]:
        """Return new events; wait briefly if there are none."""
        ...

    def end(self) -> list[CellResult]:
        """Stop all orders in progress, so that they can be resumed, and return their results."""
        ...


class Processes:
    """Worker processes on this machine; their logs are in the sweep's folder.

    Args:
        size: most workers.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._size = size
        self._slots: list[_Slot] = []
        self.jobs = max(1, usable_cores() // size) if size > 1 else None

    @property
    def free(self) -> bool:
        """Whether a worker is idle, or another one may start."""
        return len(self._slots) < self._size or any(slot.order is None for slot in self._slots)

    @property
    def busy(self) -> bool:
        """Whether any worker has an order."""
        return any(slot.order is not None for slot in self._slots)

    def give(self, order: Order) -> None:
        """Give an order to an idle worker."""
        slot = next((slot for slot in self._slots if slot.order is None), None)
        if slot is None:
            slot = _Slot(self._folder / f"worker-{len(self._slots) + 1}.log", alone=self._size == 1)
            self._slots.append(slot)
        slot.give(order)

    def events(self) -> list[Event]:
        """Wait until a worker sends something or ends."""
        busy = [slot for slot in self._slots if slot.order is not None]
        return [event for slot in _ready(busy) for event in slot.events()]

    def end(self) -> list[CellResult]:
        """Stop all workers; their runs can be resumed."""
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
    """Return the result of a stopped cell: interrupted, unless it finished nevertheless."""
    return last if last is not None and last.state == "finished" else CellResult(key, "interrupted")


def _ready(busy: Sequence[_Slot]) -> list[_Slot]:
    ends = {end: slot for slot in busy for end in (slot.connection, slot.process.sentinel)}
    return list({id(ends[end]): ends[end] for end in wait(list(ends))}.values())  # type: ignore[index]


class _Slot:
    """A slot for a worker process, which is replaced if it dies."""

    def __init__(self, log: Path, *, alone: bool) -> None:
        self._log = log
        # Otherwise the libraries of every process would use all cores.
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
        """Send an order to the worker."""
        if not self.process.is_alive():
            self._start()
        self.order, self._begun = order, time.perf_counter()
        with suppress(OSError):  # it has just died; events() reports that
            self.connection.send(order)

    def events(self) -> list[Event]:
        """Return what the worker has sent; if it has died, a failure of its cell."""
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
            sentence = f"its process {how}; its output is in {self._log}"
            found.append(CellResult(self.order.cell.key, "failed", sentence, None, time.perf_counter() - self._begun))
            self.order = None
        return found

    def stop(self) -> None:
        """Tell the worker to stop its order, and to end."""
        if self.order is None:
            with suppress(OSError):
                self.connection.send(None)
        elif self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGTERM)

    def ended(self, deadline: float) -> CellResult | None:
        """Return the result of its order, once the process has ended."""
        self.process.join(max(0.0, deadline - time.monotonic()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        if self.order is None:
            return None
        key = self.order.cell.key
        return broken_off(key, next((event for event in self.events() if isinstance(event, CellResult)), None))
