"""Small sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from searched import made
from support import outcome

from policygen.extensions.sweeps.conduct import conduct
from policygen.extensions.sweeps.plan import make_plan
from policygen.extensions.sweeps.worker import Execution, Order

SETTINGS = {"iterations": 3, "episodes": 4, "warmup_episodes": 4, "final_episodes": 5, "fragility": "false"}
SWEPT = Path("swept")


def stated(**settings: Any) -> tuple[str, ...]:
    """SETTINGS with changes, as a user writes them."""
    return tuple(f"{name}={value}" for name, value in {**SETTINGS, **settings}.items())


def swept(
    *names: str, seeds: tuple[int, ...] = (100, 101), settings: tuple[str, ...] = stated(), **more: Any
) -> list[Order]:
    """Conduct a sweep in SWEPT."""
    asked = {name: more.pop(name) for name in ("llms", "templates", "grid") if name in more}
    say = more.pop("say", lambda line: None)
    return conduct(SWEPT, make_plan(names, seeds=seeds, settings=settings, **asked), Execution(**more), say)


def assert_as_alone(task: str, seed: int, **settings: Any) -> Path:
    """Compare a cell with the run that it would be alone; return the folder of that."""
    alone = made(task, "alone", seed=seed, **{**SETTINGS, **settings})
    assert outcome(SWEPT / f"{task}-builtin-s{seed}") == outcome(alone)
    return alone
