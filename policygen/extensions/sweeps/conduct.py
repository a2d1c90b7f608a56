"""A sweep from start to finish: cells handed out to worker processes, and what became of them."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from policygen.errors import PlaceError, PolicygenError, UsageError
from policygen.extensions.sweeps.executor import Executor, Processes
from policygen.extensions.sweeps.plan import (
    MANIFEST,
    Cell,
    Limits,
    SweepPlan,
    cells_of,
    check_vouched,
    extended,
    is_sweep,
    read_plan,
    write_plan,
)
from policygen.extensions.sweeps.shared_budget import SharedBudget, spent_so_far
from policygen.extensions.sweeps.worker import CellResult, Event, Order, Progress, config_of, finished
from policygen.llm import check_address, connect, read_spec, specs_of
from policygen.llm.cache import Cache
from policygen.outgoing import redacted
from policygen.runs.lock import RunLock
from policygen.runs.request_log import llm_options


@dataclass
class Sweep:
    """A sweep's folder, what it is to run, and what has become of it so far; held until `release`.

    Attributes:
        typed: models as the user named them, by the names in the plan, which hold no password.
        asked: whether the user stated the settings; else the manifest does.
        settings: all runs' settings; `again` are those that runs begun before take as well (a server's address, for
            one, which no file may choose).
        skipped: cells that were finished before.
        outcomes: by cell, of those that this process carried out.
        running: how far the cells are that are being carried out.
        refused: whether a cell was refused the sweep's budget.
        place: what the command line says of who carries the cells out, beyond processes on this machine.
        cache: the folder of the cache that its runs share; `track` names the trackers that they are written for.
    """

    folder: Path
    plan: SweepPlan
    cells: list[Cell]
    again: tuple[str, ...] = ()
    trust: bool = False
    typed: dict[str, str] = field(default_factory=dict)
    asked: bool = False
    skipped: dict[str, float | None] = field(default_factory=dict)
    outcomes: dict[str, CellResult] = field(default_factory=dict)
    running: dict[str, Progress] = field(default_factory=dict)
    workers: int = 1
    place: str = ""
    refused: bool = False
    cache: Path | None = None
    track: tuple[str, ...] = ()
    _lock: RunLock | None = None

    def release(self) -> None:
        """Let other processes go on with the sweep."""
        if self._lock is not None:
            self._lock.release()

    def of_state(self, state: str) -> list[CellResult]:
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
    asked: SweepPlan | None = None,
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
        again: settings for runs that were begun before as well as for new ones; `llm=SPEC` names a model of the
            manifest, which vouches for its address.
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
    llms = [text.removeprefix("llm=") for text in again if text.startswith("llm=")]
    again = [text for text in again if not text.startswith("llm=")]
    products = asked.products if asked is not None else ()
    typed = {redacted(llm): llm for llm in (*llms, *(llm for product in products for llm in product.llms))}
    if asked is not None:  # a password is in no plan
        hidden = [one.model_copy(update={"llms": tuple(map(redacted, one.llms))}) for one in products]
        asked = asked.model_copy(update={"products": tuple(hidden)})
    if asked is not None and not trust:
        check_vouched(asked, asked, folder)
    if asked is not None and not is_sweep(folder):
        _check(asked, tuple(again), trust, typed)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlaceError(f"cannot create {str(folder)!r}: {error.strerror}; choose another --out") from None
    elif not is_sweep(folder):
        read_plan(folder)  # says what it is not
    lock = RunLock(folder)
    try:
        plan = read_plan(folder) if is_sweep(folder) else asked
        assert plan is not None
        if asked is not None and plan is not asked:
            plan = extended(plan, asked, folder)
            _check(asked, tuple(again), trust, typed)
        if others := typed.keys() - {llm for product in plan.products for llm in product.llms}:
            raise UsageError(f"--llm {min(others)}: none of the sweep's models; resume it without, or name one of them")
        if not trust:
            check_vouched(plan, asked, folder)
        if limits is not None:
            plan = plan.model_copy(update={"limits": plan.limits.more(limits)})
        cells = cells_of(plan)
        write_plan(folder, plan)
        return Sweep(
            folder, plan, cells, tuple(again), trust, typed, asked is not None, workers=workers, cache=cache, _lock=lock
        )
    except BaseException:
        lock.release()
        raise


def _check(plan: SweepPlan, again: tuple[str, ...], trust: bool, typed: Mapping[str, str]) -> None:
    """Refuse what every run of a task, model and template would be refused for: a wrong setting, a missing key."""
    models = [one for product in plan.products for llm in product.llms for one in specs_of(llm)]
    check_address(models, next((text.partition("=")[2] for text in again if text.startswith("base_url=")), None))
    seen = set()
    for cell in cells_of(plan):
        if cell.row not in seen:
            seen.add(cell.row)
            named = replace(cell, llm=typed[cell.llm])
            config = config_of(named, (*plan.settings, *again), trust=trust)[1]
            connect(config.llm, llm_options(config.trusted() if trust else config))


def conduct(sweep: Sweep, tell: Callable[[Event], None] = lambda event: None, crew: Executor | None = None) -> None:
    """Carry out all cells that are not finished; what becomes of them is in `sweep.outcomes`.

    Args:
        tell: told what happens; what it raises breaks the sweep off.
        crew: who carries them out; by default `sweep.workers` processes on this machine.

    Raises:
        KeyboardInterrupt: the sweep was interrupted; its runs are broken off, and can be resumed.
    """
    waiting: deque[Cell] = deque()
    for cell in sweep.cells:
        try:
            summary = finished(sweep.folder / cell.key, sweep.again)
        except PolicygenError as error:
            sweep.outcomes[cell.key] = CellResult(cell.key, "failed", str(error))
            continue
        if summary is None:
            waiting.append(cell)
        else:
            sweep.skipped[cell.key] = summary.final.mean if summary.final is not None else None
    SharedBudget(sweep.folder, sweep.plan.limits).open(spent_so_far(sweep.folder))
    crew = crew or Processes(sweep.folder, sweep.workers)
    terminated = signal.signal(signal.SIGTERM, _interrupt) if _in_main_thread() else None
    try:
        while True:
            while crew.free and (free := _next(waiting, sweep)) is not None:
                crew.give(_order(sweep, free, crew.jobs))
            if not crew.busy:
                return
            for event in crew.events():
                _note(event, sweep)
                tell(event)
    finally:
        for outcome in crew.end():
            _note(outcome, sweep)
            tell(outcome)
        if terminated is not None:
            signal.signal(signal.SIGTERM, terminated)


def _order(sweep: Sweep, cell: Cell, jobs: int | None) -> Order:
    again = sweep.again
    if jobs is not None and not any(text.startswith("jobs=") for text in (*sweep.plan.settings, *again)):
        again = (*again, f"jobs={jobs}")
    stated = (sweep.plan.settings, sweep.plan.limits, again)
    llm = sweep.typed.get(cell.llm)
    manifest = str(sweep.folder / MANIFEST)
    sources = ("" if llm is not None else manifest, "" if sweep.asked else manifest)
    named = replace(cell, llm=llm or cell.llm)
    return Order(named, sweep.folder, *stated, sweep.trust, sweep.cache, sweep.track, *sources)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _next(waiting: deque[Cell], sweep: Sweep) -> Cell | None:
    """The next cell; once the sweep's budget was refused to one, only those that need none of it."""
    while waiting:
        cell = waiting.popleft()
        entry = read_spec(cell.llm).entry
        if sweep.refused and (entry is None or entry.is_language_model):
            sweep.outcomes[cell.key] = CellResult(cell.key, "out of budget", "not begun or resumed")
            continue
        return cell
    return None


def _note(event: Event, sweep: Sweep) -> None:
    if isinstance(event, Progress):
        sweep.running[event.key] = event
    elif isinstance(event, CellResult):
        sweep.running.pop(event.key, None)
        sweep.outcomes[event.key] = event
        sweep.refused = sweep.refused or event.state == "out of budget"
