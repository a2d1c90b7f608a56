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
    Height,
    Layout,
    Observation,
    ObservedText,
    TextPart,
    leaf_parts,
)
from policygen.tasks.task import Optimum, Task

# A record has these keys only if their value is not empty.
_IF_STATED = {
    *("texts", "unseeded", "reward", "ends", "starts", "requirements", "perturb", "action_layout", "step_seconds"),
    *("derived", "seen", "documentation", "heights"),
}


@dataclass(frozen=True, slots=True)
class _ActuatorRecord:
    name: str
    about: str
    labels: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    levels: dict[str, float] = field(default_factory=dict)
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskRecord:
    """The keys of a saved task, in their order; records of older versions lack those that have a default."""

    name: str
    gym_id: str
    kwargs: dict[str, Any]
    action_space: ActionKind
    max_steps: int
    discount: float
    solved: float | None
    optimum: tuple[float, str] | None
    step_seconds: float | None = None
    observations: tuple[tuple[str, str, str, float | None, float | None, bool], ...]
    derived: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    texts: tuple[ObservedText, ...] = ()
    actuators: tuple[_ActuatorRecord, ...]
    unseeded: bool = False
    features: dict[str, str]
    reward: str = ""
    ends: str = ""
    starts: tuple[tuple[str, str], ...] = ()
    requirements: tuple[Requirement, ...] = ()
    perturb: tuple[Perturbation, ...] = ()
    about: str
    hints: tuple[str, ...]
    documentation: str = ""
    facts: tuple[str, ...] = ()
    heights: tuple[Height, ...] = ()
    inputs: tuple[str, ...] = ()
    layout: Layout | TextPart | None = None
    action_layout: ActionLayout | None = None
    grid: dict[str, tuple[float, ...]] | None
    assumed: tuple[str, ...] = ()  # this key and the next one are only in a run folder's task
    steps_taken: int = 0


def task_to_record(task: Task) -> dict[str, Any]:
    """Convert a task to values for JSON (tuples become lists), with all that acting, scoring and prompts need."""
    # Numbers are written as floats, so that 0 and 0.0 in a task file give equal records.
    other_forms = {
        "kwargs": dict(task.kwargs),
        "discount": float(task.discount),
        "solved": float(task.solved) if task.solved is not None else None,
        "optimum": [float(task.optimum.value), task.optimum.source] if task.optimum else None,
        "observations": [
            [o.name, o.unit, o.about, *(float(b) if math.isfinite(b) else None for b in (o.low, o.high)), o.integer]
            for o in task.observations
        ],
        "derived": {o.name: o.derived for o in task.observations if o.derived},
        "seen": {o.name: o.seen for o in task.observations if o.seen},
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
        "features": dict(task.features),
        "requirements": list(map(asdict, task.requirements)),
        "perturb": [{k: v for k, v in asdict(one).items() if k != "spread" or v} for one in task.perturb],
        "heights": list(map(asdict, task.heights)),
        "layout": asdict(task.layout) if task.layout is not None else None,
        "action_layout": asdict(task.action_layout) if task.action_layout is not None else None,
        "grid": grid_to_record(task.grid) if task.grid else None,
    }
    names = [one.name for one in fields(_TaskRecord) if one.name not in ("assumed", "steps_taken")]
    record = {name: other_forms[name] if name in other_forms else getattr(task, name) for name in names}
    return {key: value for key, value in record.items() if value or key not in _IF_STATED}


def task_from_record(record: Mapping[str, Any]) -> Task:
    """Read a record that `task_to_record` wrote; if it is damaged, raise PolicyError, which says where."""
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
    return Task(
        **{one.name: getattr(read, one.name) for one in fields(_TaskRecord) if one.name not in ("derived", "seen")}
        | {
            "kwargs": tuple(read.kwargs.items()),
            "observations": tuple(
                Observation(
                    *(name, unit, about, -math.inf if low is None else low, math.inf if high is None else high),
                    integer=integer,
                    derived=read.derived.get(name, ""),
                    seen=read.seen.get(name, ""),
                )
                for name, unit, about, low, high, integer in read.observations
            ),
            "actuators": tuple(Actuator(**asdict(a) | {"levels": tuple(a.levels.items())}) for a in read.actuators),
            "optimum": Optimum(*read.optimum) if read.optimum else None,
            "features": tuple(read.features.items()),
            "perturb": tuple(checked_perturbation(one.name, one.low, one.high, one.spread) for one in read.perturb),
            "untrusted": "the saved task",
            "grid": grid_from_record(read.grid) if read.grid else None,
        }
    )


def grid_to_record(grid: Grid) -> dict[str, list[float]]:
    """Convert a grid to JSON values: the edges of each dimension, in order."""
    return {dimension.name: [float(edge) for edge in dimension.edges] for dimension in grid.dimensions}


def grid_from_record(record: Mapping[str, Sequence[float]]) -> Grid:
    """Read a record that `grid_to_record` wrote; raise PolicyError if it is not a grid."""
    try:
        return Grid(tuple(Dimension(name, tuple(edges)) for name, edges in record.items()))
    except UsageError as error:
        raise PolicyError(f"damaged grid: {error}") from None
