"""A sweep from start to finish: an executor carries out its cells, and their results are collected."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from policygen.errors import PolicygenError, UsageError
from policygen.extensions.sweeps import worker
from policygen.extensions.sweeps.executor import Executor
from policygen.extensions.sweeps.plan import (
    MANIFEST,
    Cell,
    SweepLimits,
    SweepPlan,
    by_configuration,
    cells_of,
    check_trusted,
    extend,
    is_sweep,
    read_plan,
    write_plan,
)
from policygen.extensions.sweeps.shared_budget import open_account
from policygen.files import make_folder
from policygen.llm import check_address, connect, read_spec, specs_of
from policygen.llm.cache import Cache
from policygen.outgoing import redacted
from policygen.runs.lock import RunLock
from policygen.runs.request_log import llm_options


@dataclass
class Sweep:
    """A sweep: its folder, plan and results so far; the folder is locked until `lock.release()`.

    Attributes:
        overrides: settings for new and resumed runs, such as a server's address, which no file may choose.
        trust: whether the user trusts the task files.
        typed_models: the models as the user typed them, by their names in the plan, where passwords are hidden.
        settings_typed: whether the user typed the settings; if not, they come from the manifest.
        cache: folder of a cache of replies, shared by the runs.
        track: names of the trackers of the runs.
        executor_options: command-line options that choose the executor and its size.
        skipped: final scores of the cells that had finished before, by key; None for a run without a policy.
        outcomes: results of this process, by key.
        running: progress of the cells that are being carried out, by key.
    """

    folder: Path
    plan: SweepPlan
    cells: list[Cell]
    lock: RunLock
    overrides: tuple[str, ...] = ()
    trust: bool = False
    typed_models: dict[str, str] = field(default_factory=dict)
    settings_typed: bool = False
    cache: Path | None = None
    track: tuple[str, ...] = ()
    executor_options: str = ""
    skipped: dict[str, float | None] = field(default_factory=dict)
    outcomes: dict[str, worker.CellResult] = field(default_factory=dict)
    running: dict[str, worker.Progress] = field(default_factory=dict)

    def of_state(self, state: worker.State) -> list[worker.CellResult]:
        """Return the results with a state, in the order of their arrival."""
        return [outcome for outcome in self.outcomes.values() if outcome.state == state]

    @property
    def unfinished(self) -> int:
        """Number of cells that have neither finished nor failed."""
        return len(self.cells) - len(self.skipped) - len(self.of_state("finished")) - len(self.of_state("failed"))

    @property
    def complete(self) -> bool:
        """Whether all cells have finished, without a failure."""
        return len(self.skipped) + len(self.of_state("finished")) == len(self.cells)


def open_sweep(
    folder: Path,
    requested: SweepPlan | None = None,
    *,
    limits: SweepLimits | None = None,
    overrides: Sequence[str] = (),
    trust: bool = False,
    cache: Path | None = None,
) -> Sweep:
    """Open a new or existing sweep, and lock its folder.

    Args:
        requested: the plan of the command; it extends the plan of the manifest, if the folder has one. None: the plan
            of the manifest is used as it is.
        limits: limits that replace those of the manifest.
        overrides: as in `Sweep`, and `llm=SPEC`: a model of the manifest that the user has typed again. An address or
            password in SPEC is then used as typed, and is not taken from the manifest.
        trust, cache: as in `Sweep`.

    Raises:
        UsageError: a task, suite or setting is wrong, or the runs in the folder have other settings.
        PathError: the folder cannot be created, or is no sweep.
        LogbookError: the folder is in use, damaged, or not writable.
    """
    if cache is not None:
        Cache(cache)  # raises if it is unusable
    llms = [text.removeprefix("llm=") for text in overrides if text.startswith("llm=")]
    overrides = tuple(text for text in overrides if not text.startswith("llm="))
    products = requested.products if requested is not None else ()
    typed = {redacted(llm): llm for llm in (*llms, *(llm for product in products for llm in product.llms))}
    if requested is None:
        read_plan(folder)  # raises if it is no sweep
    else:
        # Plans are written to the manifest, so they must not contain passwords.
        hidden = [one.model_copy(update={"llms": tuple(map(redacted, one.llms))}) for one in products]
        requested = requested.model_copy(update={"products": tuple(hidden)})
        if not trust:
            check_trusted(requested, requested, folder)
        _check(requested, overrides, trust, typed)
        make_folder(folder, "choose another --out")
    lock = RunLock(folder)
    try:
        plan = read_plan(folder) if is_sweep(folder) else requested
        assert plan is not None
        if requested is not None and plan is not requested:
            plan = extend(plan, requested, folder)
        if others := typed.keys() - {llm for product in plan.products for llm in product.llms}:
            raise UsageError(
                f"--llm {min(others)} is not a model of the sweep; leave it out, or name one of its models"
            )
        if not trust:
            check_trusted(plan, requested, folder)
        if limits is not None:
            plan = plan.model_copy(update={"limits": plan.limits.replaced_by(limits)})
        cells = cells_of(plan)
        write_plan(folder, plan)
    except BaseException:
        lock.release()
        raise
    return Sweep(folder, plan, cells, lock, overrides, trust, typed, requested is not None, cache)


def _check(plan: SweepPlan, overrides: tuple[str, ...], trust: bool, typed: Mapping[str, str]) -> None:
    """Check each configuration once for faults that all its runs would have: a wrong setting, a missing key."""
    models = [one for product in plan.products for llm in product.llms for one in specs_of(llm)]
    check_address(models, next((text.partition("=")[2] for text in overrides if text.startswith("base_url=")), None))
    for cell, *_ in by_configuration(cells_of(plan)).values():
        named = replace(cell, llm=typed[cell.llm])
        config = worker.config_of(named, (*plan.settings, *overrides), trust=trust)[1]
        connect(config.llm, llm_options(config.trusted() if trust else config))


def conduct(sweep: Sweep, executor: Executor, tell: worker.Tell = lambda event: None) -> None:
    """Let an executor carry out all cells that are not finished, and put their results into `sweep.outcomes`.

    `tell` is called with every event; an exception in it stops the sweep. Raises KeyboardInterrupt if the sweep was
    interrupted; its runs have stopped and can be resumed.
    """
    waiting: deque[Cell] = deque()
    for cell in sweep.cells:
        try:
            summary = worker.finished(sweep.folder / cell.key, sweep.overrides)
        except PolicygenError as error:
            sweep.outcomes[cell.key] = worker.CellResult(cell.key, "failed", str(error))
            continue
        if summary is None:
            waiting.append(cell)
        else:
            sweep.skipped[cell.key] = summary.final.mean if summary.final is not None else None
    open_account(sweep.folder)
    outstanding: set[str] = set()  # keys of cells whose results have not arrived
    refused = False  # whether the sweep's budget has refused a cell

    def record(event: worker.Event) -> None:
        nonlocal refused
        if isinstance(event, worker.Progress):
            sweep.running[event.key] = event
        elif isinstance(event, worker.CellResult):
            outstanding.discard(event.key)
            sweep.running.pop(event.key, None)
            sweep.outcomes[event.key] = event
            refused = refused or event.state == "out of budget"
        tell(event)

    in_main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, worker.interrupt_once) if in_main else None
    try:
        while waiting or outstanding:
            while waiting and len(outstanding) < executor.size:
                cell = waiting.popleft()
                entry = read_spec(cell.llm).entry
                if refused and (entry is None or entry.is_language_model):
                    words = "not begun, or not resumed"
                    sweep.outcomes[cell.key] = worker.CellResult(cell.key, "out of budget", words)
                else:
                    outstanding.add(cell.key)
                    executor.submit(_order(sweep, cell, executor.jobs))
            for event in executor.events() if outstanding else ():
                record(event)
    finally:
        last = {result.key: result for result in executor.end() if result.state == "finished"}
        for key in sorted(outstanding):
            record(last.get(key, worker.CellResult(key, "interrupted")))
        for log in sweep.folder.glob("worker-*.log"):
            with suppress(OSError):
                if not log.stat().st_size:
                    log.unlink()
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _order(sweep: Sweep, cell: Cell, jobs: int | None) -> worker.Order:
    """Return the order for a cell; `jobs` is the executor's number of processes per cell."""
    overrides = sweep.overrides
    if jobs is not None and not any(text.startswith("jobs=") for text in (*sweep.plan.settings, *overrides)):
        overrides = (*overrides, f"jobs={jobs}")
    stated = (sweep.plan.settings, sweep.plan.limits, overrides)
    llm = sweep.typed_models.get(cell.llm)
    manifest = str(sweep.folder / MANIFEST)
    sources = ("" if llm is not None else manifest, "" if sweep.settings_typed else manifest)
    named = replace(cell, llm=llm or cell.llm)
    return worker.Order(named, sweep.folder, *stated, sweep.trust, sweep.cache, sweep.track, *sources)
