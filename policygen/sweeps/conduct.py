"""A sweep from start to finish: cells handed out to worker processes, and what became of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from policygen.episodes.players import usable_cores
from policygen.errors import LogbookError, UsageError
from policygen.llm import connect, read_spec
from policygen.llm.cache import Cache
from policygen.runs.correspondence import llm_options
from policygen.runs.lock import RunLock
from policygen.sweeps.plan import Cell, Limits, Plan, cells_of, check_vouched, extended, is_sweep, read_plan, write_plan
from policygen.sweeps.purse import Purse, spent_so_far
from policygen.sweeps.worker import Event, Order, Outcome, Progress, config_of, finished, work

SECONDS_TO_BREAK_OFF = 60.0


@dataclass
class Sweep:
    """A sweep's folder, what it is to run, and what has become of it so far; held until `release`.

    Attributes:
        settings: all runs' settings; `again` are those that runs begun before take as well (a server's address, for
            one, which no file may choose).
        skipped: cells that were finished before.
        outcomes: by cell, of those that this process carried out.
        running: how far the cells are that are being carried out.
        cache: the folder of the cache that its runs share.
    """

    folder: Path
    plan: Plan
    cells: list[Cell]
    again: tuple[str, ...] = ()
    trust: bool = False
    skipped: dict[str, float | None] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    running: dict[str, Progress] = field(default_factory=dict)
    workers: int = 1
    cache: Path | None = None
    _lock: RunLock | None = None

    def release(self) -> None:
        """Let other processes go on with the sweep."""
        if self._lock is not None:
            self._lock.release()

    def of_state(self, state: str) -> list[Outcome]:
        """The outcomes of a kind, in the order in which they came."""
        return [outcome for outcome in self.outcomes.values() if outcome.state == state]

    @property
    def left(self) -> int:
        """How many cells are not finished, and have not failed."""
        done = sum(outcome.state in ("finished", "failed") for outcome in self.outcomes.values())
        return len(self.cells) - len(self.skipped) - done

    @property
    def whole(self) -> bool:
        """Whether all cells are finished."""
        return len(self.skipped) + len(self.of_state("finished")) == len(self.cells)


def open_sweep(
    folder: Path,
    asked: Plan | None = None,
    *,
    limits: Limits | None = None,
    again: Sequence[str] = (),
    workers: int = 1,
    trust: bool = False,
    cache: Path | None = None,
) -> Sweep:
    """A sweep ready to go on, new or begun before; its folder is held.

    Args:
        asked: what to run; None for what the manifest says. A folder that has a manifest is extended by it.
        limits: what is stated of them takes the place of the manifest's.
        again: settings for runs that were begun before as well as for new ones.
        workers: processes that carry out cells.
        trust: the task files are known to the user.
        cache: the folder of a cache of answers, for runs to share.

    Raises:
        UsageError: a task, suite or setting is wrong, or the folder's runs have other settings.
        LogbookError: the folder is in use, damaged, or cannot be written.
    """
    if workers < 1:
        raise UsageError(f"--workers {workers}: at least one is needed")
    if cache is not None:
        Cache(cache)  # says what is wrong with it
    if asked is not None and not trust:
        check_vouched(asked, asked, folder)
    if asked is not None and not is_sweep(folder):
        _check(asked, tuple(again), trust)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogbookError(f"cannot create {str(folder)!r}: {error.strerror}; choose another --out") from None
    elif not is_sweep(folder):
        read_plan(folder)  # says what it is not
    lock = RunLock(folder)
    try:
        plan = read_plan(folder) if is_sweep(folder) else asked
        assert plan is not None
        if asked is not None and plan is not asked:
            plan = extended(plan, asked, folder)
            _check(asked, tuple(again), trust)
        if not trust:
            check_vouched(plan, asked, folder)
        if limits is not None:
            plan = plan.model_copy(update={"limits": plan.limits.more(limits)})
        cells = cells_of(plan)
        write_plan(folder, plan)
        return Sweep(folder, plan, cells, tuple(again), trust, workers=workers, cache=cache, _lock=lock)
    except BaseException:
        lock.release()
        raise


def _check(plan: Plan, again: tuple[str, ...], trust: bool) -> None:
    """Refuse what every run of a task, model and template would be refused for: a wrong setting, a missing key."""
    seen = set()
    for cell in cells_of(plan):
        if cell.row not in seen:
            seen.add(cell.row)
            config = config_of(cell, (*plan.settings, *again), trust=trust)[1]
            connect(config.llm, llm_options(config.trusted() if trust else config))


def conduct(sweep: Sweep, tell: Callable[[Event], None] = lambda event: None) -> None:
    """Carry out all cells that are not finished; what becomes of them is in `sweep.outcomes`.

    Args:
        tell: told what happens; what it raises breaks the sweep off.

    Raises:
        KeyboardInterrupt: the sweep was interrupted; its runs are broken off, and can be resumed.
    """
    waiting: deque[Cell] = deque()
    for cell in sweep.cells:
        try:
            summary = finished(sweep.folder / cell.key)
        except LogbookError as error:
            sweep.outcomes[cell.key] = Outcome(cell.key, "failed", str(error))
            continue
        if summary is None:
            waiting.append(cell)
        else:
            sweep.skipped[cell.key] = summary.final.mean if summary.final is not None else None
    Purse(sweep.folder, sweep.plan.limits).open(spent_so_far(sweep.folder))
    slots = [_Slot(sweep, number) for number in range(1, min(sweep.workers, len(waiting)) + 1)]
    terminated = signal.signal(signal.SIGTERM, _interrupt) if _in_main_thread() else None
    try:
        while True:
            for slot in slots:
                if slot.cell is None and (free := _next(waiting, sweep)) is not None:
                    slot.give(free)
            busy = [slot for slot in slots if slot.cell is not None]
            if not busy:
                return
            for slot in _ready(busy):
                for event in slot.events():
                    _note(event, sweep)
                    tell(event)
    finally:
        _end(slots, sweep, tell)
        if terminated is not None:
            signal.signal(signal.SIGTERM, terminated)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _next(waiting: deque[Cell], sweep: Sweep) -> Cell | None:
    """The next cell; once the sweep's budget was refused to one, only those that need none of it."""
    refused = bool(sweep.of_state("out of budget"))
    while waiting:
        cell = waiting.popleft()
        entry = read_spec(cell.llm).entry
        if refused and (entry is None or entry.is_language_model):
            sweep.outcomes[cell.key] = Outcome(cell.key, "out of budget", "not begun or resumed")
            continue
        return cell
    return None


def _note(event: Event, sweep: Sweep) -> None:
    if isinstance(event, Progress):
        sweep.running[event.key] = event
    elif isinstance(event, Outcome):
        sweep.running.pop(event.key, None)
        sweep.outcomes[event.key] = event


def _ready(busy: Sequence[_Slot]) -> list[_Slot]:
    ends = {end: slot for slot in busy for end in (slot.connection, slot.process.sentinel)}
    return list({id(ends[end]): ends[end] for end in wait(list(ends))}.values())  # type: ignore[index]


class _Slot:
    """A place for one worker process, which is replaced where it dies."""

    def __init__(self, sweep: Sweep, number: int) -> None:
        self._sweep = sweep
        self._log = sweep.folder / f"worker-{number}.log"
        self.cell: Cell | None = None
        self._begun = 0.0
        self.connection: Connection
        self.process: BaseProcess
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # Without it every process would let its libraries use all cores.
        threads = {} if self._sweep.workers == 1 else {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = context.Process(target=work, args=(theirs, self._log, threads), daemon=False)
        self.process.start()
        theirs.close()

    def give(self, cell: Cell) -> None:
        """Hand out a cell."""
        sweep = self._sweep
        if not self.process.is_alive():
            self._start()
        again = sweep.again
        if sweep.workers > 1 and not any(text.startswith("jobs=") for text in (*sweep.plan.settings, *again)):
            again = (*again, f"jobs={max(1, usable_cores() // sweep.workers)}")
        self.cell, self._begun = cell, time.perf_counter()
        order = Order(cell, sweep.folder, sweep.plan.settings, sweep.plan.limits, again, sweep.trust, sweep.cache)
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
        if self.cell is not None and any(isinstance(event, Outcome) for event in found):
            self.cell = None
        elif self.cell is not None and not self.process.is_alive():
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was ended by signal {-code}" if code < 0 else f"ended by itself (exit code {code})"
            sentence = f"its process {how}; what it printed is in {self._log}"
            found.append(Outcome(self.cell.key, "failed", sentence, None, time.perf_counter() - self._begun))
            self.cell = None
        return found

    def stop(self) -> None:
        """Tell the worker to break off what it does, and to end."""
        if self.cell is None:
            with suppress(OSError):
                self.connection.send(None)
        elif self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGTERM)


def _end(slots: Sequence[_Slot], sweep: Sweep, tell: Callable[[Event], None]) -> None:
    """End all workers; runs that they were at are broken off and stay to be resumed."""
    for slot in slots:
        slot.stop()
    deadline = time.monotonic() + SECONDS_TO_BREAK_OFF
    for slot in slots:
        slot.process.join(max(0.0, deadline - time.monotonic()))
        if slot.process.is_alive():
            slot.process.kill()
            slot.process.join()
        if slot.cell is not None:
            key = slot.cell.key
            last = next((event for event in slot.events() if isinstance(event, Outcome)), None)
            outcome = last if last is not None and last.state == "finished" else Outcome(key, "interrupted")
            _note(outcome, sweep)
            tell(outcome)
        with suppress(OSError):
            if not slot._log.stat().st_size:
                slot._log.unlink()
