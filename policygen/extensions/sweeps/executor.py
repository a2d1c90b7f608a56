"""Executors, which carry out the runs of a sweep: joblib, here or on a cluster of Ray or Dask, and jobs of Slurm.

All machines must see the sweep's folder and the working directory under the same paths. An executor returns nothing:
every run leaves its folder, or a file with the reason why it could not be carried out.
"""

# Imports inside functions: extras, and start-up time.

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from policygen.errors import PolicygenError, UsageError
from policygen.extensions.sweeps.worker import Backend, Execution, Order
from policygen.portable import usable_cores

AT_A_TIME = 1_000  # jobs of an array; Slurm's default limit is 1,001
SECONDS_BETWEEN_LOOKS = 1.0  # at the jobs of Slurm
_PACKAGES = {"ray": "ray", "dask": "distributed", "slurm": "submitit"}  # the extras


class ClusterError(PolicygenError):
    """An error of a cluster: it is missing, refuses a job, or lacks what a job asks for."""


def check_execution(execution: Execution) -> None:
    """Raise UsageError if the package or the program of an executor is missing, or an option cannot be its own."""
    backend, slurm = execution.backend, execution.slurm
    if slurm and backend != "slurm":
        raise UsageError(f"--slurm {slurm[0]}: add --backend slurm")
    for text in slurm:
        # The options go into a script, line by line.
        if not re.fullmatch(r"(--)?[a-z][a-z0-9-]+(=.+)?", text) or not text.isprintable():
            raise UsageError(f"--slurm {text}: write NAME=VALUE with a long option name of sbatch, as in time=4:00:00")
    try:
        import_module(_PACKAGES.get(backend, "joblib"))
    except ImportError:
        raise UsageError(f'--backend {backend} needs a package: pip install "policygen[{backend}]"') from None
    if backend == "slurm" and shutil.which("sbatch") is None:
        raise UsageError("there is no `sbatch` here; run the command on a machine that submits Slurm jobs")


def jobs_of_a_run(execution: Execution) -> int | None:
    """Return the setting `jobs` of a run that does not state it; None: the default of a run."""
    if execution.backend != "local":
        return 1
    workers = execution.workers or 1
    return max(1, usable_cores() // workers) if workers > 1 else None


def execute(orders: Sequence[Order], execution: Execution) -> None:
    """Carry out all orders, and return when all have ended; stop them all if this is interrupted.

    Raises ClusterError if the cluster cannot be used, or refuses the jobs.
    """
    backend, workers = execution.backend, execution.workers
    if backend == "slurm":
        for start in range(0, len(orders), AT_A_TIME):
            _by_slurm(orders[start : start + AT_A_TIME], execution.slurm, workers or AT_A_TIME)
    elif orders:
        with _joined(backend, workers):
            _by_joblib(orders, workers or (1 if backend == "local" else -1))


# --- joblib ----------------------------------------------------------------------------------------------------------


@contextmanager
def _joined(backend: Backend, workers: int | None) -> Iterator[None]:
    """Join a cluster, or start one that only this machine can reach; joblib uses it until the end."""
    import joblib

    if backend == "ray":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
        import ray
        from ray.util.joblib import register_ray

        register_ray()
        options: dict[str, Any] = {"num_cpus": workers or usable_cores(), "include_dashboard": False}
        options |= {"address": "local", "_node_ip_address": "127.0.0.1"}
        options = {"address": os.environ["RAY_ADDRESS"]} if "RAY_ADDRESS" in os.environ else options
        try:
            ray.init(**options, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ClusterError(f"--backend ray: {' '.join(str(error).split())[:300]}") from None
        try:
            with joblib.parallel_config("ray"):
                yield
        finally:
            ray.shutdown()
    elif backend == "dask":
        from distributed import Client  # it joins the cluster of DASK_SCHEDULER_ADDRESS

        options = {"n_workers": workers or usable_cores(), "threads_per_worker": 1, "dashboard_address": None}
        try:
            client = Client(**({} if "DASK_SCHEDULER_ADDRESS" in os.environ else options))
        except (OSError, ValueError) as error:
            raise ClusterError(f"--backend dask: {error}") from None
        with client, joblib.parallel_config("dask"):
            yield
    else:
        yield


def _by_joblib(orders: Sequence[Order], workers: int) -> None:
    """Carry out orders; if a process is lost, and with it those beside it, their runs are resumed one by one."""
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
                with suppress(Exception):  # with two workers the run has a process that is not this one
                    parallel(n_jobs=2)([joblib.delayed(_in_worker)(order, os.getpid())])


def _in_worker(order: Order, driver: int) -> None:
    """Carry out an order; a process that `driver` has started ends with it."""
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


# --- Slurm -----------------------------------------------------------------------------------------------------------


class _Task:
    """The function of a job. Slurm takes a job's time or machine away with a warning: then it is queued again."""

    def __call__(self, order: Order) -> None:
        order()

    def checkpoint(self, order: Order) -> Any:
        """Return the work of the job that continues this one, for submitit."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, order)


def _by_slurm(orders: Sequence[Order], options: Sequence[str], at_a_time: int) -> None:
    """Carry out orders as a job array. Jobs inherit the environment with its keys, as `sbatch` passes it on."""
    import submitit

    # Jobs and results are pickles, so they go to a new folder that only this user can write.
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
        trace = str(job.exception()).partition("\n---")[2].partition("\n---")[0] or str(job.exception())
        why = trace.strip().rpartition("\n")[2]
        order.fail(f"{why[:300]}; its output is in {job.paths.stdout}")
    if not broken:
        shutil.rmtree(logs)
