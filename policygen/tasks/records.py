"""Convert tasks and grids to JSON values and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from policygen.errors import PolicyError, UsageError
from policygen.quantities.grid import Dimension, Grid
from policygen.quantities.words import columns_for
from policygen.tasks.actions import ActionLayout, check_layout
from policygen.tasks.checked import checked
from policygen.tasks.perturb import Perturbation
from policygen.tasks.perturb import perturbation as checked_perturbation
from policygen.tasks.requirements import Requirement
from policygen.tasks.spaces import (
    MOST_CHARACTERS,
    ActionKind,
    Actuator,
    Layout,
    Observation,
    ObservedText,
    TextPart,
    leaf_parts,
)
from policygen.tasks.task import Optimum, Task

# Keys that a record has only if their value is not empty: records of older versions lack them.
_IF_STATED = ("texts", "unseeded", "reward", "ends", "starts", "requirements", "perturb", "action_layout")


def task_to_record(task: Task) -> dict[str, Any]:
    """Convert a task to JSON values, with all that acting, scoring and prompts need."""
    record = {
        "name": task.name,
        "gym_id": task.gym_id,
        "kwargs": dict(task.kwargs),
        "action_space": task.action_space,
        "max_steps": task.max_steps,
        "discount": float(task.discount),
        "solved": float(task.solved) if task.solved is not None else None,
        "optimum": [float(task.optimum.value), task.optimum.source] if task.optimum else None,
        "observations": [
            [o.name, o.unit, o.about, _number(o.low), _number(o.high), o.integer] for o in task.observations
        ],
        "texts": list(map(asdict, task.texts)),
        "actuators": [
            {
                "name": a.name,
                "about": a.about,
                **({"unit": a.unit} if a.unit else {}),
                **({"labels": list(a.labels)} if a.is_choice else {"low": float(a.low), "high": float(a.high)}),
                **({} if a.is_choice else {"levels": {name: float(value) for name, value in a.levels}}),
            }
            for a in task.actuators
        ],
        "unseeded": task.unseeded,
        "features": dict(task.features),
        "reward": task.reward,
        "ends": task.ends,
        "starts": list(map(list, task.starts)),
        "requirements": list(map(asdict, task.requirements)),
        "perturb": list(map(asdict, task.perturb)),
        "about": task.about,
        "hints": list(task.hints),
        "facts": list(task.facts),
        "inputs": list(task.inputs),
        "layout": _layout_to_record(task.layout),
        "action_layout": asdict(task.action_layout) if task.action_layout is not None else None,
        "grid": grid_to_record(task.grid) if task.grid else None,
    }
    return {key: value for key, value in record.items() if value or key not in _IF_STATED}


def _layout_to_record(layout: Layout | TextPart | None) -> dict[str, Any] | None:
    if layout is None:
        return None
    if isinstance(layout, TextPart):
        return asdict(layout)
    return {"parts": [_layout_to_record(part) for part in layout.parts], "keys": layout.keys and list(layout.keys)}


def _number(value: float) -> float | None:
    """Return a number, or None for infinity; always a float, so that 0 in a task file and 0.0 give equal records."""
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class _ActuatorRecord:
    name: str
    about: str
    labels: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    levels: dict[str, float] = field(default_factory=dict)
    unit: str = ""


@dataclass(frozen=True, slots=True)
class _TaskRecord:
    name: str
    gym_id: str
    kwargs: dict[str, Any]
    action_space: ActionKind
    max_steps: int
    discount: float
    solved: float | None
    optimum: tuple[float, str] | None
    observations: tuple[tuple[str, str, str, float | None, float | None, bool], ...]
    actuators: tuple[_ActuatorRecord, ...]
    features: dict[str, str]
    about: str
    hints: tuple[str, ...]
    grid: dict[str, tuple[float, ...]] | None
    # Records of older versions lack these.
    unseeded: bool = False
    texts: tuple[ObservedText, ...] = ()
    inputs: tuple[str, ...] = ()
    reward: str = ""
    ends: str = ""
    starts: tuple[tuple[str, str], ...] = ()
    requirements: tuple[Requirement, ...] = ()
    perturb: tuple[Perturbation, ...] = ()
    facts: tuple[str, ...] = ()
    layout: Layout | TextPart | None = None
    action_layout: ActionLayout | None = None
    assumed: tuple[str, ...] = ()  # only in a run folder's task


def task_from_record(record: Mapping[str, Any]) -> Task:
    """Read a record that `task_to_record` wrote.

    Raises:
        PolicyError: it is damaged; the message says where.
    """
    read = checked(_TaskRecord, record, "damaged task")
    for name, items in (("observations", read.observations + read.texts), ("actuators", read.actuators)):
        if not items:
            raise PolicyError(f"damaged task: `{name}`: list should have at least 1 item")
    texts_laid_out = [part.columns for part in leaf_parts(read.layout) if part is not None]
    room = range(1, columns_for(MOST_CHARACTERS, 4) + 1)
    if texts_laid_out != [t.columns for t in read.texts] or any(columns not in room for columns in texts_laid_out):
        raise PolicyError("damaged task: its texts do not fit its layout")
    if read.max_steps < 1:
        raise PolicyError("damaged task: `max_steps`: input should be greater than 0")
    choices = [bool(actuator.labels) for actuator in read.actuators]
    kinds = {"box": (False, False), "mixed": (True, False)}
    if (any(choices), all(choices)) != kinds.get(read.action_space, (True, True)):
        raise PolicyError(f"damaged task: its actuators do not fit the action space `{read.action_space}`")
    if read.action_layout is not None:
        check_layout(read.action_layout, len(read.actuators))
    unchanged = {one.name: getattr(read, one.name) for one in fields(_TaskRecord)}
    return Task(
        **unchanged
        | {
            "kwargs": tuple(read.kwargs.items()),
            "observations": tuple(
                Observation(
                    name, unit, about, -math.inf if low is None else low, math.inf if high is None else high, integer
                )
                for name, unit, about, low, high, integer in read.observations
            ),
            "actuators": tuple(Actuator(**asdict(a) | {"levels": tuple(a.levels.items())}) for a in read.actuators),
            "optimum": Optimum(*read.optimum) if read.optimum else None,
            "features": tuple(read.features.items()),
            "perturb": tuple(checked_perturbation(one.name, one.low, one.high) for one in read.perturb),
            "untrusted": "the saved task",
            "grid": grid_from_record(read.grid) if read.grid else None,
        }
    )


def grid_to_record(grid: Grid) -> dict[str, list[float]]:
    """Convert a grid to JSON values: the edges of each dimension, in order."""
    return {dimension.name: [float(edge) for edge in dimension.edges] for dimension in grid.dimensions}


def grid_from_record(record: Mapping[str, Sequence[float]]) -> Grid:
    """Read a record that `grid_to_record` wrote.

    Raises:
        PolicyError: it is not a grid.
    """
    try:
        return Grid(tuple(Dimension(name, tuple(edges)) for name, edges in record.items()))
    except UsageError as error:
        raise PolicyError(f"damaged grid: {error}") from None
