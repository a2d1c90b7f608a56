"""A sweep from start to finish: an executor carries out its runs, and a line tells of each that ends."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from policygen.extensions.sweeps.executor import check_execution, execute, jobs_of_a_run
from policygen.extensions.sweeps.plan import SweepPlan, add_to_manifest
from policygen.extensions.sweeps.worker import Execution, Order, config_of
from policygen.files import find_resource, make_folder
from policygen.llm import check_address, connect
from policygen.llm.base import dollars
from policygen.llm.store import Cache
from policygen.runs.config import CHANGEABLE
from policygen.runs.facts import BEST, duration, read_record, run_facts
from policygen.runs.logbook import lock_folder
from policygen.runs.request_log import llm_options
from policygen.tasks.trust import check_id

SECONDS_BETWEEN_LOOKS = 0.5  # at the folders of the runs


def conduct(
    folder: Path,
    plan: SweepPlan,
    execution: Execution = Execution(),  # noqa: B008  it is immutable
    say: Callable[[str], None] = lambda line: None,
) -> list[Order]:
    """Carry out the runs of a plan that are not finished, and return an order for each of its runs.

    Args:
        folder: folder of the sweep; its manifest gets the runs that it lacks.
        say: called with a line for every run that ends.

    Raises:
        UsageError: a task, suite or setting is wrong, or the sweep in the folder has other settings.
        PathError: the folder cannot be created.
        LogbookError: the folder is in use, damaged, or not writable.
        ClusterError: the cluster cannot be used, or refuses the jobs.
        KeyboardInterrupt: the sweep was interrupted. Its runs have stopped, and the same call resumes them.
    """
    check_execution(execution)
    if execution.cache is not None:
        Cache(execution.cache)  # raises if it is unusable
    _check(plan, trust=execution.trust)
    make_folder(folder, "choose another --out")
    lock = lock_folder(folder)
    try:
        fixed = tuple(text for text in plan.settings if text.partition("=")[0].strip() not in CHANGEABLE)
        add_to_manifest(folder, plan.model_copy(update={"settings": fixed}))
        settings, jobs = plan.settings, jobs_of_a_run(execution)
        if jobs is not None and not any(text.partition("=")[0].strip() == "jobs" for text in settings):
            settings = (*settings, f"jobs={jobs}")
        orders = [Order(cell, folder, settings, execution, str(Path.cwd())) for cell in plan.cells]
        waiting = [order for order in orders if order.summary() is None]
        waiting.sort(key=lambda order: order.lost)  # a run that ended its process may do so again
        for order in waiting:
            order.fail("")
        over = threading.Event()
        watch = threading.Thread(target=_watch, args=(waiting, len(orders), over, say), daemon=True)
        watch.start()
        try:
            execute(waiting, execution)
        finally:
            over.set()
            watch.join()
    finally:
        lock.release()
    return orders


def _check(plan: SweepPlan, *, trust: bool) -> None:
    """Check each configuration once for faults that all its runs would have, such as a wrong setting or a missing key.

    A suite file may come from someone else: the modules that its tasks name are not imported, unless it is trusted.
    """
    base_url = next((text.partition("=")[2] for text in plan.settings if text.startswith("base_url=")), None)
    check_address(list(dict.fromkeys(cell.llm for cell in plan.cells)), base_url)
    for cell in {cell.configuration: cell for cell in plan.cells}.values():
        if cell.suite and not trust and find_resource("envs", cell.task, ".toml") is None:
            check_id(cell.task, f"suite {cell.suite}")
        config = config_of(cell, plan.settings, trust=trust)[1]
        connect(config.llm, llm_options(config.trusted() if trust else config))


def _watch(waiting: Sequence[Order], planned: int, over: threading.Event, say: Callable[[str], None]) -> None:
    """Say a line for every order that has ended, until all have or `over` is set."""
    started, left, last = time.monotonic(), list(waiting), False
    while left and not last:
        last = over.wait(SECONDS_BETWEEN_LOOKS)
        for order in [order for order in left if order.ended or (last and order.lost)]:
            left.remove(order)
            seconds = (time.monotonic() - started) / (len(waiting) - len(left)) * len(left)
            rest = f", about {duration(seconds)} left" if left else ""
            say(f"{planned - len(left):>4}/{planned}  {order.cell.key}: {_outcome(order)}{rest}")


def _outcome(order: Order) -> str:
    if order.summary() is None:
        return f"failed: {order.fault()}"
    record = read_record(order.run_folder)
    known = {one.name: one for one in run_facts(record)}
    score = known[BEST[0]].short if record.final is not None else "no policy was found"
    return f"{score}  ({duration(known['time'].amount or 0.0)})"


def closing_words(folder: Path, orders: Sequence[Order]) -> tuple[bool, list[str]]:
    """Return whether all runs are finished, and lines with results, costs, and what to do next."""
    found = [read_record(order.run_folder) for order in orders if order.summary() is not None]
    failed = {order.cell.key: fault for order in orders if order.summary() is None and (fault := order.fault())}
    first = f"{len(found)} of {len(orders)} runs are finished" + (f", {len(failed)} failed" if failed else "")
    if asked := [record for record in found if record.asks_a_model]:
        spent = [record.spent for record in asked]
        usd = [one.usd for one in spent]
        calls, tokens = sum(one.requests for one in spent), sum(one.tokens for one in spent)
        first += f"; {calls:,} calls, {tokens:,} tokens, {dollars(None if None in usd else sum(filter(None, usd)))}"
    complete = len(found) == len(orders)
    compare = f"compare them with: policygen compare {shlex.quote(str(folder))}"
    failures = [f"failed: {key}: {fault}" for key, fault in failed.items()]
    return complete, [first, *failures, compare if complete else "repeat the command to continue"]
