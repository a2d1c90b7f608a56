"""An executor that carries out cells as Ray tasks, on an existing cluster or on this machine.

A cell plays its episodes as Ray tasks, too. All machines must see the sweep's folder under the same path: the locks of
runs and the sweep's budget are files there. If a machine is lost, another one gets its task and resumes the run.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from policygen.episodes.players import Piece, Play, PlayerKilled, use_distribution
from policygen.episodes.trajectory import Trajectory
from policygen.errors import PolicygenError, UsageError
from policygen.extensions.sweeps import worker
from policygen.extensions.sweeps.executor import SECONDS_TO_STOP, ClusterError
from policygen.portable import usable_cores

RETRIES = 3  # of a cell whose process or machine was lost
EPISODE_RETRIES = 2  # of a piece of episodes whose process or machine was lost
SECONDS_TO_WAIT = 0.5  # for news of the cells


class RayExecutor:
    """Carries out cells on a Ray cluster.

    API keys are not sent: workers read them from their environment, or from `.env` in the working directory.

    Args:
        folder: folder of the sweep, where workers write their output.
        address: `HOST:PORT` or `auto` for an existing cluster; None starts one on this machine.
        size: maximum number of cells at a time; None: the number of processors of the cluster.
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
        carry_out: worker.CarryOut = worker.carry_out_again,
    ) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
        try:
            # the extra `ray`
            import ray
            from ray.util.queue import Queue
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
        except ImportError:
            raise UsageError('--on ray needs Ray: pip install "policygen[ray]"') from None
        if address is not None and "://" in address:
            raise UsageError(f"--address {address}: write HOST:PORT or auto, on a machine of the cluster")
        self._ray: Any = ray
        self._folder = folder
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            new: dict[str, Any] = {"address": "local", "num_cpus": max(size or 1, usable_cores())}
            # Only this machine may reach the ports of a new cluster.
            new |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            try:
                self._ray.init(**({"address": address} if address else new), log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = " ".join(str(error).split())[:200]
                where = f"--address {address}: no usable Ray cluster" if address else "Ray does not start here"
                raise ClusterError(f"{where} ({reason}); choose another --address, or leave --on ray out") from None
        processors = int(self._ray.cluster_resources().get("CPU", 1))
        self.size = size or processors
        self.jobs: int | None = max(1, processors // self.size)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._messages = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        self._task = ray.remote(num_cpus=1, max_retries=RETRIES)(_carry_out)
        self._carry_out = ray.put(carry_out)
        self._cells: dict[Any, tuple[str, float]] = {}
        self._read_time = 0.0

    def submit(self, order: worker.Order) -> None:
        """Start a task for an order."""
        task = self._task.remote(self._carry_out, order, str(Path.cwd()), self._messages.actor)
        self._cells[task] = (order.cell.key, time.perf_counter())

    def events(self) -> list[worker.Event]:
        """Wait briefly, and return the new results and the new messages of workers."""
        under_way = list(self._cells)
        self._ray.wait(under_way, timeout=SECONDS_TO_WAIT)
        ended, _ = self._ray.wait(under_way, num_returns=len(under_way), timeout=0)
        found: list[worker.Event] = []
        if time.monotonic() >= self._read_time + SECONDS_TO_WAIT:
            self._read_time = time.monotonic()
            if waiting := self._messages.size():
                keys = {key for key, _ in self._cells.values()}
                found += [event for event in self._messages.get_nowait_batch(waiting) if event.key in keys]
        return [*found, *map(self._result, ended)]

    def _result(self, task: Any) -> worker.CellResult:
        key, started = self._cells.pop(task)
        try:
            result: worker.CellResult = self._ray.get(task)
            return result
        except self._ray.exceptions.RayError as error:
            sentence = (
                f"its process or machine was lost ({type(error).__name__}), also after every retry; its output is in"
                f" {self._folder}/worker-*.log"
            )
            return worker.CellResult(key, "failed", sentence, None, time.perf_counter() - started)

    def end(self) -> list[worker.CellResult]:
        """Stop all running cells, and a cluster that was started here; return the results of cells that ended."""
        ray = self._ray
        ended: list[Any] = []
        for task in self._cells:
            ray.cancel(task, force=False, recursive=True)
        if self._cells:
            ended, late = ray.wait(list(self._cells), num_returns=len(self._cells), timeout=SECONDS_TO_STOP)
            for task in late:
                with suppress(ValueError, ray.exceptions.RayError):
                    ray.cancel(task, force=True)
        results = [self._result(task) for task in ended]
        self._cells.clear()
        del self._messages  # the last reference: the queue ends
        if self._connected_here:
            ray.shutdown()  # leaves an existing cluster; ends one that was started here
        return results


def by_ray(play: Play, work: Sequence[Piece], jobs: int) -> list[list[Trajectory] | None]:
    """Play each piece of work as a task of the Ray cluster that this process has joined; see `players.Distribute`.

    Ray runs one task per processor at a time; `jobs` only determined how finely the work was cut. Raises PlayerKilled
    if a process or machine was lost repeatedly.
    """
    import ray  # the extra `ray`

    task = ray.remote(num_cpus=1, max_retries=EPISODE_RETRIES)(_play)
    shared = ray.put(play)
    pending = [task.remote(shared, *piece) for piece in work]
    try:
        played: list[list[Trajectory] | None] = ray.get(pending)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, PolicygenError):  # Ray's own message is a traceback
            raise error.cause from None
        raise
    except ray.exceptions.RayError:
        raise PlayerKilled from None
    return played


def _play(play: Play, actor: object, seeds: list[int]) -> list[Trajectory] | None:
    return play(actor, seeds)  # type: ignore[arg-type]


# --- in a worker -----------------------------------------------------------------------------------------------------


def _carry_out(carry_out: worker.CarryOut, order: worker.Order, directory: str, messages: Any) -> worker.CellResult:
    """Carry out an order in this worker: print into the worker's own log, and play episodes as Ray tasks."""

    def with_log(order: worker.Order, tell: worker.Tell) -> worker.CellResult:
        worker.print_into(order.folder / f"worker-{socket.gethostname()}-{os.getpid()}.log")
        use_distribution(by_ray)
        return carry_out(order, tell)

    return worker.carry_out_remotely(order, directory, messages.put_nowait.remote, with_log)
