"""Policies over toy tasks, which are never played, for the tests of maps and pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from policygen.policies.linear import LinearPolicy
from policygen.policies.parse import parse
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension, Grid, integer_dimension
from policygen.tasks.spaces import Actuator, Observation
from policygen.tasks.task import Task

MOVES = Actuator("move", ("left", "down", "right", "up"))
TORQUE = Actuator("torque", low=-2.0, high=2.0)
HALVES = (-0.5, 0.5)
SQUARE = (integer_dimension("b", 2), integer_dimension("c", 2))  # the dimensions of a table of four cells


def toy(*actuators: Actuator) -> Task:
    """A task with the observations a [m], b, ..., f; it chooses a move, unless it has other actuators."""
    own = actuators or (MOVES,)
    kind: Any = "box" if not own[0].is_choice else "discrete" if len(own) == 1 else "multidiscrete"
    observations = tuple(Observation(name, unit="m" if name == "a" else "") for name in "abcdef")
    return Task("toy", "Toy-v0", observations, own, kind, 10)


def table(actions: object, *dimensions: Dimension, task: Task | None = None) -> TablePolicy:
    return TablePolicy.from_actions(task or toy(), np.asarray(actions), Grid(dimensions))


def linear(text: str, task: Task | None = None) -> LinearPolicy:
    policy = parse(text, task or toy(TORQUE), "linear").policy
    assert isinstance(policy, LinearPolicy)
    return policy
