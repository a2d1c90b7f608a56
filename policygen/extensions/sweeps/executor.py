"""Executors, which carry out the cells of a sweep: worker processes here; Ray and Slurm are in `cluster`."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from policygen.errors import PolicygenError
from policygen.extensions.sweeps.worker import CellResult, Event, Order, work
from policygen.portable import usable_cores

SECONDS_TO_STOP = 60.0  # an interrupted run has this long before its process is killed


class ClusterError(PolicygenError):
    """An error of a cluster: it is missing, refuses a job, or lacks what a job asks for."""


class Executor(Protocol):
    """Carries out orders, several at a time.

    Attributes:
        size: maximum number of orders at a time.
        jobs: the setting `jobs` of a cell that does not state it; None: the default of a run.
    """

    size: int
    jobs: int | None

    def submit(self, order: Order) -> None:
        """Take an order; call this only while fewer than `size` results are outstanding."""
        ...

    def events(self) -> list[Event]:
        """Wait for news, and return the new events; there may be none."""
        ...

    def end(self) -> list[CellResult]:
        """Stop all orders in progress, so that their runs can be resumed; return the results that arrive meanwhile."""
        ...


class ProcessExecutor:
    """Worker processes on this machine; their logs are in the sweep's folder.

    Args:
        size: maximum number of workers.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.size = size
        self.jobs = max(1, usable_cores() // size) if size > 1 else None
        self._folder = folder
        self._workers: list[_Worker] = []

    def submit(self, order: Order) -> None:
        """Give an order to an idle worker, or to a new one."""
        worker = next((worker for worker in self._workers if worker.order is None), None)
        if worker is None:
            worker = _Worker(self._folder / f"worker-{len(self._workers) + 1}.log", alone=self.size == 1)
            self._workers.append(worker)
        worker.submit(order)

    def events(self) -> list[Event]:
        """Wait until a worker sends something or ends, and return the new events."""
        busy = [worker for worker in self._workers if worker.order is not None]
        ends: dict[Any, _Worker] = {end: one for one in busy for end in (one.connection, one.process.sentinel)}
        ready = dict.fromkeys(ends[end] for end in wait(list(ends)))
        return [event for worker in ready for event in worker.events()]

    def end(self) -> list[CellResult]:
        """Stop all workers, so that their runs can be resumed; return the results that arrive meanwhile."""
        for worker in self._workers:
            if worker.order is not None:
                worker.process.terminate()
            else:
                with suppress(OSError):
                    worker.connection.send(None)
        deadline = time.monotonic() + SECONDS_TO_STOP
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        last = [event for worker in self._workers for event in worker.events()]
        self._workers.clear()
        return [event for event in last if isinstance(event, CellResult)]


class _Worker:
    """A worker process, which is replaced if it dies; `order` is the one that it carries out, or None."""

    connection: Connection
    process: BaseProcess

    def __init__(self, log: Path, *, alone: bool) -> None:
        self._log = log
        # Otherwise the libraries of every process would use all cores.
        self._threads = {} if alone else {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.order: Order | None = None
        self._started = 0.0
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, self._log, self._threads), daemon=False)
        self.process.start()
        theirs.close()

    def submit(self, order: Order) -> None:
        if not self.process.is_alive():
            self._start()
        self.order, self._started = order, time.perf_counter()
        with suppress(OSError):  # the process has just died, which events() reports
            self.connection.send(order)

    def events(self) -> list[Event]:
        """Return the events that the worker has sent; if it has died, also a failure of its cell."""
        found: list[Event] = []
        with suppress(EOFError, OSError):
            while self.connection.poll():
                found.append(self.connection.recv())
        if any(isinstance(event, CellResult) for event in found):
            self.order = None
        elif self.order is not None and not self.process.is_alive():
            code = self.process.exitcode or 0
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            sentence = f"its process {how}; its output is in {self._log}"
            found.append(CellResult(self.order.cell.key, "failed", sentence, None, time.perf_counter() - self._started))
            self.order = None
        return found
