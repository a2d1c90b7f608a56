"""A task without its names, prose and features, to measure how much they help.

This is the numbers-only setting of ProPS: quantities and actions without names, no prose, no features.
"""

from __future__ import annotations

from dataclasses import replace

from policygen.quantities.grid import Grid, integers
from policygen.tasks.spaces import Actuator, Observation, ObservedText
from policygen.tasks.task import Task


def without_knowledge(task: Task) -> Task:
    """Return the task without names, units, prose, hints, facts, features and known optimum.

    Observations are called x0, x1, ...; actions a0, a1, ... with choices by number. The grid keeps its edges on
    observations and loses those on features; if none remain, integer observations get one bin per value.
    """
    names = {observation.name: f"x{i}" for i, observation in enumerate(task.observations)}
    observations = tuple(
        Observation(names[o.name], low=o.low, high=o.high, integer=o.integer) for o in task.observations
    )
    texts = tuple(ObservedText(f"t{i}", columns=text.columns) for i, text in enumerate(task.texts))
    actuators = tuple(
        Actuator(f"a{i}", tuple(str(k) for k in range(len(a.labels))), a.low, a.high)
        for i, a in enumerate(task.actuators)
    )
    dimensions = [
        replace(d, name=names[d.name]) for d in (task.grid.dimensions if task.grid else ()) if d.name in names
    ]
    if task.grid is not None and not dimensions:
        dimensions = [integers(o.name, int(o.high) + 1) for o in observations if o.integer and o.low == 0]
    return replace(
        task,
        observations=observations,
        texts=texts,
        actuators=actuators,
        features=(),
        inputs=(),
        grid=Grid(tuple(dimensions)) if dimensions else None,
        about="",
        hints=(),
        facts=(),
        optimum=None,
        assumed=(*task.assumed, "names, prose and features are withheld (--ablate knowledge)"),
    )
