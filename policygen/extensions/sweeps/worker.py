"""The work that a sweep hands to a process or machine: one run."""

from __future__ import annotations

import functools
import os
import socket
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from policygen.errors import LogbookError, PolicygenError
from policygen.extensions.sweeps.plan import Cell
from policygen.files import read, write_atomically
from policygen.runs.config import CHANGEABLE, RunConfig, effective_config, read_assignment
from policygen.runs.listeners import Listener
from policygen.runs.logbook import FolderInUse, Logbook, Summary
from policygen.search.resume import resume
from policygen.search.run import Run, carry_out, start
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

SECONDS_TO_RELEASE = 120.0  # how long to wait for another process to release the run
LOST = "its process or machine was lost before the run ended"


@dataclass(frozen=True, slots=True)
class Execution:
    """How to carry out a sweep.

    Attributes:
        trust: whether the user trusts the task files.
        cache: folder of the cache of replies that the runs share.
        track: names of the trackers.
        workers: number of runs at a time; None: one here, one per processor of a cluster, 1,000 on Slurm.
        slurm: long options of `sbatch`, `NAME=VALUE` or `NAME`.
    """

    trust: bool = False
    cache: Path | None = None
    track: tuple[str, ...] = ()
    backend: Literal["local", "ray", "dask", "slurm"] = "local"
    workers: int | None = None
    slurm: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """An order to carry out one run: call it. Files in the sweep's folder record how far the run is.

    Attributes:
        folder: folder of the sweep.
        settings: `NAME=VALUE`, as the user typed them.
        directory: the working directory, shared by all machines.
    """

    cell: Cell
    folder: Path
    settings: tuple[str, ...] = ()
    execution: Execution = Execution()
    directory: str = "."

    @property
    def run_folder(self) -> Path:
        """The folder of the run."""
        return self.folder / self.cell.key

    @property
    def _fault_file(self) -> Path:
        return self.folder / f"{self.cell.key}.failed"

    def summary(self) -> Summary | None:
        """Return the summary of the run; None if it is not finished, or its folder is damaged."""
        with suppress(LogbookError):
            return Logbook(self.run_folder).summary() if (self.run_folder / "config.toml").exists() else None
        return None

    def fault(self) -> str:
        """Return why the run failed; empty if it has not failed."""
        with suppress(FileNotFoundError, LogbookError):
            return read(self._fault_file, str).strip()
        return ""

    def fail(self, sentence: str) -> None:
        """Record why the run failed; an empty sentence deletes the record."""
        if sentence:
            write_atomically(self._fault_file, f"{sentence}\n")
        else:
            self._fault_file.unlink(missing_ok=True)

    @property
    def lost(self) -> bool:
        """Whether a process has started the run, and recorded neither its end nor a failure."""
        return self.fault() == LOST

    @property
    def ended(self) -> bool:
        """Whether the run has finished or failed."""
        return self.summary() is not None or self.fault() not in ("", LOST)

    def __call__(self) -> None:
        """Start or resume the run, and carry it out; a failure is recorded, not raised.

        Raises PolicygenError if this machine cannot write into the sweep's folder.
        """
        try:
            os.chdir(self.directory)
            self.fail(LOST)  # in case this process dies
        except (OSError, PolicygenError) as error:
            raise PolicygenError(f"{socket.gethostname()} does not share the folders of the sweep: {error}") from None
        fault = ""
        try:
            self._carry_out()
        except PolicygenError as error:
            fault = str(error)
        except Exception as error:
            traceback.print_exc()
            fault = f"{type(error).__name__}: {error}".removesuffix(": ")
        except KeyboardInterrupt:
            self.fail("")
            raise
        self.fail(fault)

    def _carry_out(self) -> None:
        listeners: Sequence[Listener] = ()
        if self.execution.track:
            from policygen.extensions.trackers import trackers  # with --track only: it needs another extra

            listeners = trackers(self.execution.track)
        deadline = time.monotonic() + SECONDS_TO_RELEASE
        # If a process of an earlier command is still working on the run, its result is waited for.
        while self.summary() is None:
            try:
                run = begin(self)
            except FolderInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                carry_out(run, listeners)


def config_of(cell: Cell, settings: tuple[str, ...], *, trust: bool = False) -> tuple[Task, RunConfig]:
    """Return the task and the settings of a cell's run; raise UsageError if the task or a setting is wrong."""
    task = _task(cell.task, trust=trust)
    options = {"llm": cell.llm, "template": cell.template or None, "seed": cell.seed}
    stated = (*settings, *cell.settings)
    return task, effective_config(task, cell.task, suite=cell.protocol, assignments=stated, options=options)


_task = functools.lru_cache(maxsize=64)(load_task)  # all seeds of a configuration have the same task


def begin(order: Order) -> Run:
    """Start or resume the run of an order; raise PolicygenError if that is impossible."""
    cell = order.cell
    if (order.run_folder / "config.toml").exists():
        # A resumed run takes these values only if the user repeats them; the user of a sweep repeats all.
        stated = dict(map(read_assignment, order.settings))
        repeated = {name: value for name, value in stated.items() if name in (*CHANGEABLE, "extra_body")}
        repeated |= {"llm": cell.llm} if "@http" in cell.llm else {}
        return resume(order.run_folder, changes=repeated, trust=order.execution.trust, cache=order.execution.cache)
    task, config = config_of(cell, order.settings, trust=order.execution.trust)
    config = config.trusted() if order.execution.trust else config
    return start(task, config, order.folder, name=cell.key, cache=order.execution.cache)
