"""Measure the figures of sweeps.md: the driver's cost per cell of a sweep, and wall time by number of workers.

python results/benchmarks/sweeps.py [driver] [waiting] [playing]; needs `pip install "policygen[ray]"`. `playing`, runs
that keep a processor busy, wants a machine with nothing else to do.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from policygen.extensions.cluster.on_ray import RayExecutor
from policygen.extensions.sweeps.conduct import conduct, open_sweep
from policygen.extensions.sweeps.executor import Executor, ProcessExecutor
from policygen.extensions.sweeps.plan import SweepPlan, product_of
from policygen.extensions.sweeps.progress import SweepTerminal
from policygen.extensions.sweeps.worker import CellResult, Order, Tell

SETTINGS = ("iterations=12", "episodes=20", "final_episodes=100", "jobs=1")
WAIT = 2.0


def nothing(order: Order, tell: Tell) -> CellResult:
    """A cell that takes no time: what is left is the driver's work."""
    return CellResult(order.cell.key, "finished", score=0.0)


def waiting(order: Order, tell: Tell) -> CellResult:
    """A cell that waits, as one that asks a language model mostly does."""
    time.sleep(WAIT)
    return CellResult(order.cell.key, "finished", score=0.0)


def measured(cells: int, on: str, size: int, **more: Any) -> tuple[float, float]:
    """Seconds on the clock and CPU seconds of the driver alone, from the first cell to the last."""
    wall, cpu = time.perf_counter(), time.process_time()
    folder = Path(tempfile.mkdtemp()) / "swept"
    plan = SweepPlan(products=(product_of(["cartpole"], [], [], range(100, 100 + cells)),), settings=SETTINGS)
    sweep = open_sweep(folder, plan)
    executor: Executor = RayExecutor(folder, None, size, **more) if on == "ray" else ProcessExecutor(folder, size)
    conduct(sweep, executor, SweepTerminal(sweep).tell)
    sweep.lock.release()
    assert sweep.complete
    return time.perf_counter() - wall, time.process_time() - cpu


def fall(sizes: tuple[int, ...]) -> Iterator[tuple[int, float]]:
    """Workers, and seconds on the clock that 16 cells that wait take once all workers have started."""
    import ray

    for size in sizes:
        ray.init(address="local", num_cpus=size, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        measured(4 * size, "ray", size, carry_out=waiting)
        yield size, measured(16, "ray", size, carry_out=waiting)[0]
        ray.shutdown()


def main() -> None:
    """Print the rows of the tables as they come."""
    chosen = sys.argv[1:] or ["driver", "waiting", "playing"]
    real, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115 - a sweep says a line a cell
    if "waiting" in chosen:
        for size, wall in fall((1, 2, 4, 8)):
            print(f"| {size} | {wall:.1f} s |", file=real, flush=True)
    if "driver" in chosen:
        for cells in (100, 1_000, 10_000):
            _, cpu = measured(cells, "ray", 2, carry_out=nothing)
            print(f"| {cells:,} | {cpu:.1f} s | {1000 * cpu / cells:.1f} ms |", file=real, flush=True)
    if "playing" in chosen:
        for on in ("local", "ray"):
            for size in (1, 2):
                print(f"| {on} | {size} | {measured(32, on, size)[0]:.1f} s |", file=real, flush=True)


if __name__ == "__main__":
    main()
