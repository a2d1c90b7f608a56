"""Small sweeps, and an executor that needs no other process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from searched import made
from support import outcome

from policygen.extensions.sweeps.conduct import Sweep, conduct, open_sweep
from policygen.extensions.sweeps.executor import Executor
from policygen.extensions.sweeps.plan import SweepLimits, SweepPlan, product_of
from policygen.extensions.sweeps.worker import CellResult, Event, Order, Tell, carry_out_cell

SETTINGS = {"iterations": 3, "episodes": 4, "warmup_episodes": 4, "final_episodes": 5, "fragility": "false"}
SWEPT = Path("swept")


def stated(**settings: Any) -> tuple[str, ...]:
    """SETTINGS with changes, as a user writes them."""
    return tuple(f"{name}={value}" for name, value in {**SETTINGS, **settings}.items())


def plan_of(
    *names: str,
    llms: Sequence[str] = (),
    templates: Sequence[str] = (),
    seeds: Sequence[int] = (1,),
    settings: tuple[str, ...] = (),
    limits: SweepLimits | None = None,
) -> SweepPlan:
    product = product_of(names, llms, templates, seeds)
    return SweepPlan(products=(product,), settings=settings, limits=limits or SweepLimits())


def opened(*names: str, seeds: Sequence[int] = (100, 101), overrides: Sequence[str] = (), **more: Any) -> Sweep:
    """A new or extended sweep in SWEPT; what is not of its plan are settings."""
    of_the_plan = {name: more.pop(name) for name in ("llms", "limits") if name in more}
    return open_sweep(SWEPT, plan_of(*names, seeds=seeds, settings=stated(**more), **of_the_plan), overrides=overrides)


def conducted(sweep: Sweep, tell: Tell = lambda event: None, executor: Executor | None = None) -> Sweep:
    """The sweep when `conduct` has ended, and released whatever happens."""
    try:
        conduct(sweep, executor or InThisProcess(), tell)
    finally:
        sweep.lock.release()
    return sweep


def assert_as_alone(task: str, seed: int, **settings: Any) -> Path:
    """Compare a cell with the run that it would be alone; return the folder of that."""
    alone = made(task, "alone", seed=seed, **{**SETTINGS, **settings})
    assert outcome(SWEPT / f"{task}-builtin-s{seed}") == outcome(alone)
    return alone


class InThisProcess:
    """Carries out one cell at a time in this process."""

    size = 1
    jobs: int | None = None

    def submit(self, order: Order) -> None:
        self._order = order

    def events(self) -> list[Event]:
        events: list[Event] = []
        events.append(carry_out_cell(self._order, events.append))
        return events

    def end(self) -> list[CellResult]:
        return []
