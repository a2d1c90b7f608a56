"""Standardised quantities: `n_NAME` is NAME minus its mean, divided by its standard deviation.

This is the observation normalisation of augmented random search (V2 in Mania, Guy and Recht, arXiv 1803.07055). Here
`n_NAME` is an ordinary feature in the policy's text, such as `let n_angle = (angle - 0.0123)/0.456`. So a policy needs
nothing else to act, and a person can edit the numbers. `builtin` writes them; tuning leaves them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policygen.policies.features import Reader
from policygen.quantities.spelling import finite
from policygen.quantities.text import to_digits
from policygen.quantities.tree import Call, Name, Node, Number
from policygen.tasks.task import Task

PREFIX = "n_"
SIGNIFICANT_DIGITS = 4
# A quantity with a smaller spread, as a share of its largest value, counts as constant: it is centred, but not scaled.
LEAST_SPREAD = 1e-7  # the resolution of single precision


def definitions(
    task: Task, observations: Sequence[npt.NDArray[np.generic]], quantities: Sequence[str]
) -> dict[str, Node]:
    """Return the expressions of `n_NAME`, by this name; means and spreads have 4 significant digits.

    Args:
        observations: flattened observations, one array of shape (rows, d) per episode. Without any episode, a single
            observation of zeros takes their place: spreads are 1, and plain observations stay unchanged.
        quantities: observations and features of the task.
    """
    rows = np.concatenate(observations) if observations else np.zeros((1, task.width), np.float32)
    reader = Reader(task)
    columns = dict(zip(reader.names, reader.columns(rows.T), strict=True))
    found = {}
    for name in quantities:
        with np.errstate(all="ignore"):
            values = finite(np.asarray(columns[name], np.float64))
            mean, spread = float(values.mean()), float(values.std())
            least = LEAST_SPREAD * float(np.abs(values).max(initial=0.0))
        mean = to_digits(mean, SIGNIFICANT_DIGITS) if math.isfinite(mean) else 0.0
        spread = to_digits(spread, SIGNIFICANT_DIGITS) if least < spread < math.inf else 1.0
        found[PREFIX + name] = definition(name, mean, spread)
    return found


def definition(quantity: str, mean: float, spread: float) -> Node:
    """Return `(quantity - mean)/spread`, written with a plus for a negative mean."""
    sign = "+" if mean < 0 else "-"
    return Call("/", (Call(sign, (Name(quantity), Number(abs(mean)))), Number(spread)))


def is_definition(name: str, node: Node) -> bool:
    """Whether a feature has the form of a `definition`."""
    match node:
        case Call("/", (Call("-" | "+", (Name(quantity), Number(_, None))), Number(_, None))):
            return name == PREFIX + quantity
    return False
