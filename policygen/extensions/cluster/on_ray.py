"""An executor that carries out cells as Ray tasks, on an existing cluster or on this machine.

All machines must see the sweep's folder under the same path: the locks of runs and the sweep's budget are files there.
If a machine is lost, another one gets its task and resumes the run.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from policygen.episodes.players import share_by, usable_cores
from policygen.errors import UsageError
from policygen.extensions.cluster.by_ray import by_ray
from policygen.extensions.sweeps.executor import SECONDS_TO_BREAK_OFF, ClusterError, broken_off, remove_empty_logs
from policygen.extensions.sweeps.worker import (
    CellResult,
    Event,
    Order,
    Tell,
    carry_out_again,
    go_to,
    print_into,
    warnings_told,
)

RETRIES = 3  # of a cell whose process or machine was lost
SECONDS_TO_WAIT = 0.5
CarryOut = Callable[[Order, Tell], CellResult]


class OnRay:
    """Carries out cells on a Ray cluster.

    Keys are not sent: workers read them from their environment, or from `.env` in the working directory.

    Args:
        folder: folder of the sweep, where workers write their output.
        folder: the sweep's, where workers write their output.
        size: most cells at a time; None: the number of processors of the cluster.
        carry_out: the function that carries out an order; benchmarks replace it.

    Raises:
        UsageError: Ray is not installed, or the address has another form.
        ClusterError: no cluster answers at the address.
    """

    def __init__(
        self,
        folder: Path,
        address: str | None = None,
        size: int | None = None,
        *,
        carry_out: CarryOut = carry_out_again,
    ) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
        try:
            import ray
            from ray.util.queue import Queue
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
        except ImportError:
            raise UsageError('--on ray needs Ray: pip install "policygen[ray]"') from None
        if address is not None and "://" in address:
            raise UsageError(f"--address {address}: write HOST:PORT or auto, on a machine of the cluster")
        self._ray: Any = ray
        self._folder = folder
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        self._begun = not ray.is_initialized()
        try:
            if address is None and self._begun:
                processors = max(size or 1, usable_cores())
                # Its ports are open to this machine only.
                private: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
                ray.init(address="local", num_cpus=processors, **private, **quiet)
            elif self._begun:
                ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())[:200]
            raise ClusterError(f"--address {address}: no usable Ray cluster ({said})") from None
        processors = int(self._ray.cluster_resources().get("CPU", 1))
        self._size = size or processors
        self.jobs: int | None = max(1, processors // self._size)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._said = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        self._task = ray.remote(num_cpus=1, max_retries=RETRIES)(_carry_out)
        self._carry_out = ray.put(carry_out)
        self._cells: dict[Any, tuple[str, float]] = {}
        self._heard = 0.0

    @property
    def free(self) -> bool:
        """Whether fewer cells than `size` are running."""
        return len(self._cells) < self._size

    @property
    def busy(self) -> bool:
        """Whether any cell is running."""
        return bool(self._cells)

    def give(self, order: Order) -> None:
        """Start a task for an order."""
        task = self._task.remote(self._carry_out, order, str(Path.cwd()), self._said.actor)
        self._cells[task] = (order.cell.key, time.perf_counter())

    def events(self) -> list[Event]:
        """Wait briefly for cells to end and for messages of workers."""
        under_way = list(self._cells)
        self._ray.wait(under_way, timeout=SECONDS_TO_WAIT)
        ended, _ = self._ray.wait(under_way, num_returns=len(under_way), timeout=0)
        return [*self._heard_of(), *(self._outcome(task) for task in ended)]

    def _heard_of(self) -> list[Event]:
        if time.monotonic() < self._heard + SECONDS_TO_WAIT:
            return []
        self._heard = time.monotonic()
        waiting = self._said.size()
        under_way = {key for key, _ in self._cells.values()}
        heard: list[Event] = self._said.get_nowait_batch(waiting) if waiting else []
        return [event for event in heard if event.key in under_way]

    def _outcome(self, task: Any) -> CellResult:
        key, begun = self._cells.pop(task)
        try:
            outcome: CellResult = self._ray.get(task)
            return outcome
        except self._ray.exceptions.RayError as error:
            sentence = (
                f"its process or machine was lost ({type(error).__name__}), also after every retry; its output is in"
                f" {self._folder}/worker-*.log"
            )
            return CellResult(key, "failed", sentence, None, time.perf_counter() - begun)

    def end(self) -> list[CellResult]:
        """Stop all running cells, and a cluster that this executor started."""
        ray = self._ray
        for task in self._cells:
            ray.cancel(task, force=False, recursive=True)
        ended: list[Any] = []
        if self._cells:
            ended, late = ray.wait(list(self._cells), num_returns=len(self._cells), timeout=SECONDS_TO_BREAK_OFF)
            for task in late:
                with suppress(ValueError, ray.exceptions.RayError):
                    ray.cancel(task, force=True)
        outcomes = []
        for task in list(self._cells):
            key = self._cells[task][0]
            last = self._outcome(task) if task in ended else None
            outcomes.append(broken_off(key, last))
        self._cells.clear()
        del self._said  # the last reference: the queue ends
        if self._begun:
            ray.shutdown()
        remove_empty_logs(self._folder)
        return outcomes


# --- in a worker -----------------------------------------------------------------------------------------------------

_printing = set[Path]()


def _carry_out(carry_out: CarryOut, order: Order, directory: str, said: Any) -> CellResult:
    """Carry out an order in the working directory of the process that gave it."""
    key = order.cell.key
    if lacks := go_to(directory):
        return CellResult(key, "failed", lacks)
    log = order.folder / f"worker-{socket.gethostname()}-{os.getpid()}.log"
    if log not in _printing:
        print_into(log)
        _printing.add(log)

    def tell(event: Event) -> None:
        said.put_nowait.remote(event)

    share_by(by_ray)
    with warnings_told(key, tell):
        return carry_out(order, tell)
