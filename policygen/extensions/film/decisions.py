"""Explanations of a policy's actions: the matching row of a table, or the terms of a linear policy, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import contains
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.maps import weight_rows
from policygen.policies.cells import bins_text
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension
from policygen.quantities.text import format_number
from policygen.tasks.spaces import Actuator
from policygen.tasks.task import output_slices

MOST_REASONS = 6  # reasons shown for a table, or for equations with one actuator
MOST_OUTPUTS = 8  # actuators shown for equations with several


@dataclass(frozen=True, slots=True)
class Reason:
    """A condition of the matching row, a term, or one of several actuators."""

    text: str  # the quantity, term or actuator: `angle = 0.031`
    value: str  # its range or amount: `below 0.05`, `+1.2`
    # Length of the bar, -1 to 1: the amount relative to the episode's largest or, with several actuators, to the
    # actuator's limit. None: no bar.
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The action at a step, a summary, and the reasons, all in words."""

    action: str  # empty if the reasons state the action of each actuator
    summary: str
    reasons: tuple[Reason, ...]


# A function that explains an action from the quantities of its step, and the largest number of reasons that it gives.
_ExplainFunction = tuple[Callable[[list[float], Any], Decision], int]


class Explainer:
    """Explains the steps of one episode; `step` takes them in order, because it follows the policy's memory.

    Attributes:
        max_reasons: the largest number of reasons per decision.
    """

    def __init__(self, policy: Policy, episode: Trajectory) -> None:
        self._reader = policy.reader
        self._memory: list[float] = policy.start(1)[0].tolist()
        self._explain, self.max_reasons = _EXPLAINERS.get(policy.kind, _unexplained)(policy, episode)

    def step(self, observation: npt.NDArray[Any], action: Any, *, wanted: bool = True) -> Decision | None:
        """Explain the `action` for an observation of shape (d,); if not `wanted`, only follow the memory."""
        quantities = self._reader.completed(observation.tolist() + self._memory)
        self._memory = self._reader.next_memory_of_row(quantities, action)
        return self._explain(quantities, action) if wanted else None


def _named_action(policy: Policy, action: Any) -> str:
    """Return an action in words: `left`, or with the names of its actuators `shoulder 0.52, elbow off`."""
    actuators, values = policy.task.actuators, np.atleast_1d(action).tolist()
    words = [(actuator.name, _in_words(actuator, value)) for actuator, value in zip(actuators, values, strict=True)]
    if len(words) == 1 and actuators[0].is_choice:
        return words[0][1]
    return ", ".join(f"{name} {word}" for name, word in words)


def _in_words(actuator: Actuator, value: float) -> str:
    if actuator.is_choice:
        return str(actuator.labels[round(value)])
    named = next((name for name, level in actuator.levels if float(np.float32(level)) == value), None)
    return named or f"{value + 0.0:.3g}"


def _unexplained(policy: Policy, episode: Trajectory) -> _ExplainFunction:
    return lambda quantities, action: Decision(_named_action(policy, action), "", ()), 0


# --- tables ----------------------------------------------------------------------------------------------------------


def _table(policy: TablePolicy, episode: Trajectory) -> _ExplainFunction:
    rows: dict[int, int] = {}  # row numbers of cells met so far

    def explain(quantities: list[float], action: Any) -> Decision:
        cell = policy.reader.cell_of(quantities)
        if cell not in rows:
            at = policy.grid.bins_of(cell).tolist()
            rows[cell] = next(i for i, rule in enumerate(policy.rules) if all(map(contains, rule.bins, at)))
        rule = policy.rules[rows[cell]]
        reasons = [
            Reason(f"{dimension.name} = {quantities[at]:.3g}", _span(dimension, bins))
            for dimension, bins, at in zip(policy.grid.dimensions, rule.bins, policy.reader.positions, strict=True)
            if len(bins) < dimension.bins
        ]
        rest = "" if reasons else ": everything that no row above covers"
        summary = f"row {rows[cell] + 1} of {len(policy.rules)}{rest}"
        return Decision(_named_action(policy, action), summary, _cut(reasons, MOST_REASONS))

    bins = [dimension.bins for dimension in policy.grid.dimensions]
    conditions = max(sum(len(own) < n for own, n in zip(rule.bins, bins, strict=True)) for rule in policy.rules)
    return explain, min(conditions, MOST_REASONS)


def _cut(reasons: Sequence[Reason], most: int) -> tuple[Reason, ...]:
    if len(reasons) <= most:
        return tuple(reasons)
    return (*reasons[: most - 1], Reason(f"and {len(reasons) - most + 1} more", ""))


def _span(dimension: Dimension, bins: Sequence[int]) -> str:
    """Return the values of some bins in words: `-0.1 to 0.3`, `below 0.3`, `2, 5`; empty for one whole number."""
    low, high, edges = bins[0], bins[-1], [format_number(edge) for edge in dimension.edges]
    if dimension.has_integer_bins:
        return bins_text(bins, dimension.bins) if len(bins) > 1 else ""
    if len(bins) < high - low + 1:
        return f"bins {bins_text(bins, dimension.bins)}"
    if low == 0:
        return f"below {edges[high]}"
    return f"{edges[low - 1]} and above" if high == len(edges) else f"{edges[low - 1]} to {edges[high]}"


# --- linear policies -------------------------------------------------------------------------------------------------


def _linear(policy: LinearPolicy, episode: Trajectory) -> _ExplainFunction:
    """Explain one actuator by the amounts of its terms, or each of several actuators by its two largest terms."""
    names, weights = weight_rows(policy)
    slices = output_slices(policy.task)

    def values_of(quantities: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """Return the terms, and 1 for the constant, of n rows of quantities: shape (terms + 1, n)."""
        values = policy.term_columns(quantities)
        return np.vstack([values, np.ones((1, values.shape[1]))])

    def explain_each(quantities: list[float], action: Any) -> Decision:
        values = values_of([np.array([quantity]) for quantity in quantities])[:, 0]
        reasons = []
        for actuator, own, value in zip(policy.task.actuators, slices, np.atleast_1d(action).tolist(), strict=True):
            parts = values * _deciding_weights(actuator, weights[:, own], values, value)[0]
            most = max(abs(actuator.low), abs(actuator.high))
            share = value / most if not actuator.is_choice and 0 < most < math.inf else None
            weightiest = [i for i in np.argsort(-np.abs(parts), kind="stable")[:2].tolist() if parts[i] != 0]
            largest_terms = ", ".join(f"{names[i]} {parts[i]:+.2g}" for i in weightiest)
            reasons.append(Reason(f"{actuator.name}: {largest_terms}", _in_words(actuator, value), share))
        return Decision("", "each output with its two largest terms", _cut(reasons, MOST_OUTPUTS))

    if len(policy.task.actuators) > 1:
        return explain_each, min(len(policy.task.actuators), MOST_OUTPUTS)
    [actuator] = policy.task.actuators
    # The largest terms change from step to step, so the film shows the terms with the largest mean, in one order.
    played = np.abs(values_of(policy.reader.along(episode.observations[:-1], episode.actions)))
    spread = np.ptp(weights, axis=1) if weights.shape[1] > 1 else np.abs(weights[:, 0])
    size, most = played.mean(axis=1) * spread, played.max(axis=1) * spread
    shown = [i for i in np.argsort(-size, kind="stable")[:MOST_REASONS].tolist() if size[i] > 0]
    largest = float(max((most[i] for i in shown), default=0.0)) or 1.0

    def explain(quantities: list[float], action: Any) -> Decision:
        values = values_of([np.array([quantity]) for quantity in quantities])[:, 0]
        weight, summary = _deciding_weights(actuator, weights, values, np.ravel(action)[0])
        amounts = [(names[i], float(values[i] * weight[i]) + 0.0) for i in shown]
        reasons = [Reason(name, f"{x:+.3g}", float(np.clip(x / largest, -1, 1))) for name, x in amounts]
        return Decision(_named_action(policy, action), summary, tuple(reasons))

    return explain, len(shown)


def _deciding_weights(
    actuator: Actuator, weights: npt.NDArray[np.float64], values: npt.NDArray[np.float64], action: float
) -> tuple[npt.NDArray[np.float64], str]:
    """Return the weights of the terms, and a summary of the result in words.

    For a choice, these are the weights of its lead: its weights less those of the runner-up.
    """
    outputs = values @ weights
    if not actuator.is_choice:
        cut = not actuator.low <= outputs[0] <= actuator.high
        limits = f" (cut to {actuator.low:g} to {actuator.high:g})" if cut else ""
        return weights[:, 0], f"{actuator.name} = {outputs[0] + 0.0:.3g}{limits}, the sum of"
    chosen = int(action)
    other = next((i for i in np.argsort(-outputs, kind="stable").tolist() if i != chosen), None)
    if other is None:
        return weights[:, chosen], "the only choice"
    words = ", ".join(f"{outputs[i] + 0.0:.3g} for {actuator.labels[i]}" for i in (chosen, other))
    return weights[:, chosen] - weights[:, other], f"{words}; terms of the lead"


_EXPLAINERS: dict[str, Callable[[Any, Trajectory], _ExplainFunction]] = {"table": _table, "linear": _linear}
