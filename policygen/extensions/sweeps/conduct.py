"""Sweeps: joblib carries out the runs, on this machine or on a Ray or Dask cluster, or Slurm does, as jobs.

All machines must see the sweep's folder and the working directory under the same paths. Workers return nothing: every
run leaves a folder, or a file that says why it failed.
"""

# Imports inside functions: extras, and start-up time.

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from policygen.errors import PolicygenError, UsageError
from policygen.extensions.sweeps.plan import SweepPlan, add_to_manifest
from policygen.extensions.sweeps.worker import Execution, Order, config_of
from policygen.files import find_resource, make_folder
from policygen.llm import check_address, connect
from policygen.llm.base import dollars
from policygen.llm.store import Cache
from policygen.portable import usable_cores
from policygen.runs.config import CHANGEABLE
from policygen.runs.facts import BEST, duration, read_record, run_facts
from policygen.runs.logbook import lock_folder
from policygen.tasks.trust import check_id

AT_A_TIME = 1_000  # jobs in an array; Slurm allows 1,001 by default
SECONDS_BETWEEN_LOOKS = 0.5  # at the runs' folders and at Slurm's jobs
_PACKAGES = {"ray": "ray", "dask": "distributed", "slurm": "submitit"}  # the extras


class ClusterError(PolicygenError):
    """The cluster is missing, refuses a job, or lacks resources that a job asks for."""


def conduct(
    folder: Path,
    plan: SweepPlan,
    execution: Execution = Execution(),  # noqa: B008  it is immutable
    say: Callable[[str], None] = lambda line: None,
) -> list[Order]:
    """Carry out the unfinished runs of a plan, and return an order for each of its runs.

    Args:
        folder: folder of the sweep; missing runs are added to its manifest.
        say: called with a line whenever a run ends.

    Raises:
        UsageError: a task, suite or setting is wrong, or the sweep in the folder has other settings.
        PathError: the folder cannot be created.
        LogbookError: the folder is in use, damaged, or not writable.
        ClusterError: the cluster cannot be used, or refuses the jobs.
        KeyboardInterrupt: the sweep was interrupted, and its runs have stopped; the same call resumes them.
    """
    _check(plan, execution)
    make_folder(folder, "choose another --out")
    lock = lock_folder(folder)
    try:
        names = [text.partition("=")[0].strip() for text in plan.settings]
        fixed = tuple(text for text, name in zip(plan.settings, names, strict=True) if name not in CHANGEABLE)
        add_to_manifest(folder, plan.model_copy(update={"settings": fixed}))
        settings, workers = plan.settings, execution.workers or 1
        if "jobs" not in names and (workers > 1 or execution.backend != "local"):
            here = max(1, usable_cores() // workers)
            settings = (*settings, f"jobs={here if execution.backend == 'local' else 1}")
        orders = [Order(cell, folder, settings, execution, str(Path.cwd())) for cell in plan.cells]
        waiting = [order for order in orders if order.summary() is None]
        waiting.sort(key=lambda order: order.lost)  # last: a run whose process died may kill the next one, too
        for order in waiting:
            order.fail("")
        over = threading.Event()
        watch = threading.Thread(target=_watch, args=(waiting, len(orders), over, say), daemon=True)
        watch.start()
        try:
            _execute(waiting, execution)
        finally:
            over.set()
            watch.join()
    finally:
        lock.release()
    return orders


def _check(plan: SweepPlan, execution: Execution) -> None:
    """Check the execution, and once per configuration what would stop all its runs, such as a missing key.

    A suite file may be untrusted: then modules that its tasks name are not imported.
    """
    backend, trust = execution.backend, execution.trust
    if execution.slurm and backend != "slurm":
        raise UsageError(f"--slurm {execution.slurm[0]}: add --backend slurm")
    for text in execution.slurm:
        # The options go into a script, line by line.
        if not re.fullmatch(r"(--)?[a-z][a-z0-9-]+(=.+)?", text) or not text.isprintable():
            raise UsageError(f"--slurm {text}: write NAME=VALUE with a long option name of sbatch, as in time=4:00:00")
    try:
        import_module(_PACKAGES.get(backend, "joblib"))
    except ImportError:
        raise UsageError(f'--backend {backend} needs a package: pip install "policygen[{backend}]"') from None
    if backend == "slurm" and shutil.which("sbatch") is None:
        raise UsageError("there is no `sbatch` here; run the command on a machine that submits Slurm jobs")
    if execution.cache is not None:
        Cache(execution.cache)  # raises if it is unusable
    base_url = next((text.partition("=")[2] for text in plan.settings if text.startswith("base_url=")), None)
    check_address(list(dict.fromkeys(cell.llm for cell in plan.cells)), base_url)
    for cell in {cell.configuration: cell for cell in plan.cells}.values():
        if cell.suite and not trust and find_resource("envs", cell.task, ".toml") is None:
            check_id(cell.task, f"suite {cell.suite}")
        config = config_of(cell, plan.settings, trust=trust)[1]
        connect(config.llm, config.trusted() if trust else config)


def _watch(waiting: Sequence[Order], planned: int, over: threading.Event, say: Callable[[str], None]) -> None:
    """Say a line for every order that ends, until all have ended or `over` is set."""
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
    known = {one.name: one for one in run_facts(read_record(order.run_folder))}
    best = known[BEST[0]]
    score = best.short if best.value is not None else "no policy was found"
    return f"{score}  ({duration(known['time'].amount or 0.0)})"


def closing_words(folder: Path, orders: Sequence[Order]) -> tuple[bool, list[str]]:
    """Return whether all runs are finished, and lines with their number, their cost, and the next command."""
    found = [read_record(order.run_folder) for order in orders if order.summary() is not None]
    failed = {order.cell.key: fault for order in orders if order.summary() is None and (fault := order.fault())}
    first = f"{len(found)} of {len(orders)} run{'s' * (len(orders) > 1)} finished" + (
        f", {len(failed)} failed" if failed else ""
    )
    if asked := [record for record in found if record.asks_a_model]:
        spent = [record.spent for record in asked]
        usd = [one.usd for one in spent]
        calls, tokens = sum(one.requests for one in spent), sum(one.tokens for one in spent)
        first += f"; {calls:,} calls, {tokens:,} tokens, {dollars(None if None in usd else sum(filter(None, usd)))}"
    complete = len(found) == len(orders)
    compare = f"to compare them: policygen compare {shlex.quote(str(folder))}"
    failures = [f"failed: {key}: {fault}" for key, fault in failed.items()]
    if all(record.best is None for record in found):
        compare = "no run has found a policy"
    return complete, [first, *failures, compare if complete else "repeat the command to continue"]


# --- executors -------------------------------------------------------------------------------------------------------


def _execute(orders: Sequence[Order], execution: Execution) -> None:
    """Carry out all orders, and return when all have ended; an interrupt stops them all.

    Raises ClusterError if the cluster cannot be used, or refuses the jobs.
    """
    backend, workers = execution.backend, execution.workers
    if backend == "slurm":
        for start in range(0, len(orders), AT_A_TIME):
            _by_slurm(orders[start : start + AT_A_TIME], execution.slurm, workers or AT_A_TIME)
    elif orders:
        with _cluster(backend, workers or usable_cores()):
            _by_joblib(orders, workers or (1 if backend == "local" else -1))


@contextmanager
def _cluster(backend: str, workers: int) -> Iterator[None]:
    """Join a cluster, or start one that only this machine can reach; joblib uses it until the end."""
    import joblib

    if backend == "local":
        yield
        return
    options: dict[str, Any]
    try:
        if backend == "ray":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
            import ray
            from ray.util.joblib import register_ray

            register_ray()
            options = {"num_cpus": workers, "include_dashboard": False}
            options |= {"address": "local", "_node_ip_address": "127.0.0.1"}
            options = {"address": os.environ["RAY_ADDRESS"]} if "RAY_ADDRESS" in os.environ else options
            ray.init(**options, logging_level="ERROR")
            leave = ray.shutdown
        else:
            from distributed import Client  # it joins the cluster of DASK_SCHEDULER_ADDRESS

            options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
            leave = Client(**({} if "DASK_SCHEDULER_ADDRESS" in os.environ else options)).close
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(f"--backend {backend}: {' '.join(str(error).split())[:300]}") from None
    try:
        with joblib.parallel_config(backend):
            yield
    finally:
        leave()


def _by_joblib(orders: Sequence[Order], workers: int) -> None:
    """Carry out orders; if a process dies, joblib stops the others, too, and their runs are resumed one by one."""
    import joblib

    parallel = partial(joblib.Parallel, batch_size=1)  # a run may take hours
    while orders:
        try:
            parallel(n_jobs=workers)(joblib.delayed(_in_worker)(order, os.getpid()) for order in orders)
            return
        except PolicygenError:
            raise
        except Exception:
            begun = [order for order in orders if order.lost]
            if not begun:
                raise
            orders = [order for order in orders if not order.ended and not order.lost]
            for order in begun:
                with suppress(Exception):  # with n_jobs=2 the run gets a process of its own
                    parallel(n_jobs=2)([joblib.delayed(_in_worker)(order, os.getpid())])


def _in_worker(order: Order, driver: int) -> None:
    """Carry out an order; a process that the process `driver` started ends with it."""
    if os.getppid() == driver:
        _end_with(driver)
    order()


@cache
def _end_with(parent: int) -> None:
    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class _Task:
    """The function of a Slurm job; a job that Slurm is about to stop is queued again."""

    def __call__(self, order: Order) -> None:
        order()

    def checkpoint(self, order: Order) -> Any:
        """Return the job that continues this one; submitit calls this before the job is stopped."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, order)


def _by_slurm(orders: Sequence[Order], options: Sequence[str], at_a_time: int) -> None:
    """Carry out orders as a job array; `sbatch` passes the environment with its keys on to the jobs."""
    import submitit

    # Jobs and results are pickled, so they go to a new folder in which only this user can write.
    logs = Path(tempfile.mkdtemp(prefix="slurm-", dir=orders[0].folder))
    executor = submitit.SlurmExecutor(logs)
    own = {"job_name": "policygen", "array_parallelism": at_a_time, "stderr_to_stdout": True, "time": None}
    given = [text.removeprefix("--").partition("=") for text in options]
    more = {name.replace("-", "_"): value if equals else True for name, equals, value in given}
    executor.update_parameters(**own, additional_parameters=more)
    try:
        jobs = executor.map_array(_Task(), orders)
    except (submitit.core.utils.FailedJobError, OSError) as error:
        shutil.rmtree(logs)
        raise ClusterError(f"--backend slurm: {' '.join(str(error).split())[:300]} (see --slurm)") from None
    try:
        while not all(job.done() for job in jobs):
            time.sleep(SECONDS_BETWEEN_LOOKS)
    except BaseException:
        for job in jobs:
            job.cancel(check=False)
        raise
    broken = [(job, order) for job, order in zip(jobs, orders, strict=True) if not order.ended]
    for job, order in broken:
        said = str(job.exception())  # waits for the job's result
        why = (said.partition("\n---")[2].partition("\n---")[0] or said).strip().rpartition("\n")[2]
        order.fail(f"{why[:300]}; its output is in {job.paths.stdout}")
    if not broken:
        shutil.rmtree(logs)
