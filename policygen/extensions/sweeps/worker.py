"""The work of a sweep: carrying out one cell, and a worker process that carries out one cell after another."""

from __future__ import annotations

import functools
import os
import signal
import socket
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from policygen.episodes.score import kind_of_episodes
from policygen.errors import PolicygenError
from policygen.extensions.sweeps.plan import Cell, SweepLimits
from policygen.extensions.sweeps.shared_budget import SharedBudgetExhausted, SharedLedger
from policygen.llm import read_spec, specs_of
from policygen.llm.cache import Cache
from policygen.llm.retry import Wait
from policygen.proposers.proposer import Proposer
from policygen.runs.attempt import Attempt
from policygen.runs.config import RunConfig, changed_config, effective_config, larger_budgets
from policygen.runs.listeners import Activity, Listener, RunView
from policygen.runs.lock import FolderInUse, RunLock
from policygen.runs.logbook import Logbook
from policygen.runs.records import Summary
from policygen.search.resume import resume
from policygen.search.run import Run, carry_out, start
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

SECONDS_TO_RELEASE = 120.0  # how long a cell waits for another process to release its folder

State = Literal["finished", "failed", "interrupted", "out of budget"]


@dataclass(frozen=True, slots=True)
class Order:
    """A cell to carry out, with the sweep's folder and settings.

    Attributes:
        settings: `NAME=VALUE` for new runs.
        overrides: `NAME=VALUE` for new and resumed runs.
        trust, cache, track: as in `conduct.Sweep`.
        llm_from, settings_from: the file that chose the model or the settings; empty if the user typed them.
    """

    cell: Cell
    folder: Path
    settings: tuple[str, ...]
    limits: SweepLimits
    overrides: tuple[str, ...] = ()
    trust: bool = False
    cache: Path | None = None
    track: tuple[str, ...] = ()
    llm_from: str = ""
    settings_from: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a cell: its attempts so far, its planned attempts, and its best score."""

    key: str
    attempt: int
    planned: int
    best: float | None


@dataclass(frozen=True, slots=True)
class Note:
    """A message about a cell: a warning, or the reason for waiting."""

    key: str
    sentence: str


@dataclass(frozen=True, slots=True)
class CellResult:
    """The result of a cell.

    Attributes:
        sentence: why the cell did not finish; or for a finished one, a remark on its score.
        score: the final score; None if the cell did not finish.
        seconds: how long it took; None if that was not measured, as for a stopped run.
    """

    key: str
    state: State
    sentence: str = ""
    score: float | None = None
    seconds: float | None = None


Event = Progress | Note | CellResult
Tell = Callable[[Event], None]
CarryOut = Callable[[Order, Tell], CellResult]


def config_of(cell: Cell, settings: tuple[str, ...], *, trust: bool = False) -> tuple[Task, RunConfig]:
    """Return the task and the settings of a cell's run; raise UsageError if the task or a setting is wrong."""
    task = _task(cell.entry.task, trust=trust)
    if cell.entry.max_steps is not None:
        task = replace(task, max_steps=cell.entry.max_steps)
    options = {"llm": cell.llm, "template": cell.template or None, "seed": cell.seed}
    stated = (*settings, *cell.settings)
    return task, effective_config(task, cell.entry.task, suite=cell.entry.run, assignments=stated, options=options)


_task = functools.lru_cache(maxsize=64)(load_task)  # all seeds of a configuration have the same task


def begin(order: Order) -> Run:
    """Start or resume the run of a cell; language-model runs spend from the sweep's shared budget.

    Raises PolicygenError if that is impossible.
    """
    cell, folder = order.cell, order.folder / order.cell.key
    if (folder / "config.toml").exists():
        assignments = list(order.overrides)
        # A run that is resumed takes these values only if the user repeats them, as the user of this sweep did.
        if not order.llm_from and any(read_spec(one).address for one in specs_of(cell.llm)):
            assignments.append(f"llm={cell.llm}")
        assignments += [text for text in order.settings if text.startswith("extra_body") and not order.settings_from]
        run = resume(folder, assignments=assignments, trust=order.trust)
    else:
        task, config = config_of(cell, (*order.settings, *order.overrides), trust=order.trust)
        if order.trust:
            config = config.trusted()
        else:
            stated = any("extra_body" in text for text in order.settings)
            body = config.origin("extra_body") or (order.settings_from if stated else "")
            config = config.chosen_by(order.llm_from, "llm").chosen_by(body, "extra_body")
        run = start(task, config, order.folder, name=cell.key)
    try:
        run.cache = Cache(order.cache) if order.cache is not None else None
        if run.proposer.is_language_model:
            if order.limits.max_usd is not None and run.config.max_usd is None:
                limited = run.config.model_copy(update={"max_usd": order.limits.max_usd})
                Proposer(run.provider, limited).check(run.task)  # raises if a price is unknown
            run.ledger = SharedLedger(run.ledger, order.folder, order.limits, cell.key)
    except BaseException:
        run.logbook.release()
        raise
    return run


def carry_out_cell(order: Order, tell: Tell) -> CellResult:
    """Carry out a cell until it ends or fails; every error becomes a result."""
    key, started = order.cell.key, time.perf_counter()

    def result(state: State, sentence: str = "", score: float | None = None) -> CellResult:
        return CellResult(key, state, sentence, score, time.perf_counter() - started)

    try:
        run = begin(order)
        try:
            listeners: tuple[Listener, ...] = (_Reporter(run, key, tell),)
            if order.track:
                from policygen.extensions.trackers import trackers  # an extension of its own, which may be absent

                listeners += trackers(order.track)
            summary = carry_out(run, listeners)
        finally:
            if isinstance(run.ledger, SharedLedger):
                run.ledger.settle()
    except KeyboardInterrupt:
        return result("interrupted")
    except SharedBudgetExhausted as error:
        return result("out of budget", str(error))
    except PolicygenError as error:
        return result("failed", str(error))
    except Exception as error:
        traceback.print_exc()
        return result("failed", f"{type(error).__name__}: {error}".removesuffix(": "))
    if summary.final is None:
        return result("failed", "no policy was found")
    kind = kind_of_episodes(summary.final.engine)
    return result("finished", f"on {kind}" * (kind != "episodes"), score=summary.final.mean)


def carry_out_again(order: Order, tell: Tell) -> CellResult:
    """Carry out a cell that another process may have started, finished, or still be running.

    A machine that was given up as lost may be alive, so this waits for the run's lock: only the process that gets it
    continues the run.
    """
    key, folder = order.cell.key, order.folder / order.cell.key
    deadline = time.monotonic() + SECONDS_TO_RELEASE
    while folder.is_dir():
        try:
            RunLock(folder).release()
            if (summary := finished(folder, order.overrides)) is not None and summary.final is not None:
                return CellResult(key, "finished", score=summary.final.mean)
            break
        except PolicygenError as error:
            if not isinstance(error, FolderInUse) or time.monotonic() > deadline:
                return CellResult(key, "failed", str(error))
            time.sleep(0.2)
    return carry_out_cell(order, tell)


def carry_out_remotely(order: Order, directory: str, tell: Tell, carry_out: CarryOut = carry_out_again) -> CellResult:
    """Carry out a cell on another machine, in the working directory of the process that gave the order."""
    key = order.cell.key
    try:
        os.chdir(directory)
    except OSError as error:
        fault = f"{socket.gethostname()} has no folder {directory} ({error.strerror})"
        return CellResult(key, "failed", f"{fault}: the cluster's machines must share it")
    with warnings.catch_warnings():  # one process may carry out several cells, and each must report its own warnings
        send_warnings(key, tell)
        return carry_out(order, tell)


def send_warnings(key: str, tell: Tell) -> None:
    """From now on, send this process's `UserWarning`s as notes of a cell instead of printing them."""

    def warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            tell(Note(key, f"Warning: {message}"))

    warnings.showwarning = warn


def print_into(log: Path) -> None:
    """From now on, append everything that this process and its libraries print to a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def finished(folder: Path, overrides: Sequence[str] = ()) -> Summary | None:
    """Return the summary of a cell's run if it has ended; None if it has not, or if `overrides` enlarges its budget.

    Raises LogbookError if the run's folder is damaged, UsageError if `overrides` states a smaller budget or a setting
    that cannot change.
    """
    logbook = Logbook(folder)
    summary = logbook.summary() if (folder / "config.toml").exists() else None
    if summary is None or not overrides:
        return summary
    before = logbook.config()
    return None if larger_budgets(before, changed_config(logbook.task(), before, overrides)) else summary


@dataclass(eq=False)
class _Reporter(Listener):
    """A listener that reports the progress of a cell's run."""

    run: Run
    key: str
    tell: Tell

    def started(self, run: RunView) -> None:
        self._report(max(0, len(run.search.attempts) - 1))

    def doing(self, activity: Activity | None) -> None:
        """Report waits after errors, and the effects of the user's comments."""
        if isinstance(activity, str) or (isinstance(activity, Wait) and activity.reason):
            self.tell(Note(self.key, str(activity)))

    def attempted(self, attempt: Attempt) -> None:
        self._report(attempt.number)

    def _report(self, number: int) -> None:
        best = self.run.search.reported_score
        self.tell(Progress(self.key, number, self.run.config.iterations, best.mean if best is not None else None))


# --- the process -----------------------------------------------------------------------------------------------------


def work(connection: Connection, log: Path, environment: dict[str, str]) -> None:
    """Carry out the orders that arrive over a connection, until None arrives or the process is told to end.

    Ctrl-C is ignored: the parent gets it, too, and sends SIGTERM, which interrupts the run. Everything that
    environments print goes to the file `log`.
    """
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, interrupt_once)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    print_into(log)
    try:
        while (order := connection.recv()) is not None:
            send_warnings(order.cell.key, connection.send)
            result = carry_out_cell(order, connection.send)
            connection.send(result)
            if result.state == "interrupted":
                return
    except (EOFError, KeyboardInterrupt, OSError):
        pass  # the parent has ended, or wants this process to end


def interrupt_once(number: int, frame: Any) -> None:
    """Handle SIGTERM: interrupt the run as Ctrl-C does, and ignore further ones."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the writing of files
    raise KeyboardInterrupt


def _end_with_the_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
