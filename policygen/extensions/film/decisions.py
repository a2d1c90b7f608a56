"""Explanations of a policy's actions: the matching row of a table, or the terms of a linear policy, in words."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import contains
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.style import Numbers
from policygen.policies.cells import bins_text
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Dimension
from policygen.quantities.text import format_number, to_text
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


def explain(policy: Policy, episode: Trajectory, steps: Sequence[int]) -> list[Decision]:
    """Return the explanations of the actions at some steps of an episode, in the order of `steps`."""
    quantities = policy.reader.along(episode.observations[:-1], episode.actions)
    if isinstance(policy, TablePolicy):
        return _rows(policy, episode, quantities, steps)
    if isinstance(policy, LinearPolicy):
        return _terms(policy, episode, quantities, steps)
    return [Decision(_named_action(policy, episode.actions[step]), "", ()) for step in steps]


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


def _rows(
    policy: TablePolicy, episode: Trajectory, quantities: Sequence[npt.NDArray[Any]], steps: Sequence[int]
) -> list[Decision]:
    """Explain each action by the first row that covers its cell, with the values that the row asks for."""
    columns = [quantities[i] for i in policy.reader.positions]
    cells = policy.grid.cells(columns).tolist()

    @functools.cache
    def row_of(cell: int) -> int:
        at = policy.grid.bins_of(cell).tolist()
        return next(i for i, rule in enumerate(policy.rules) if all(map(contains, rule.bins, at)))

    decisions = []
    for step in steps:
        row = row_of(cells[step])
        reasons = [
            Reason(f"{dimension.name} = {column[step]:.3g}", _span(dimension, bins))
            for dimension, bins, column in zip(policy.grid.dimensions, policy.rules[row].bins, columns, strict=True)
            if len(bins) < dimension.bins
        ]
        summary = f"row {row + 1} of {len(policy.rules)}"
        summary += "" if reasons else ": everything that no row above covers"
        decisions.append(Decision(_named_action(policy, episode.actions[step]), summary, _cut(reasons, MOST_REASONS)))
    return decisions


def _cut(reasons: Sequence[Reason], most: int) -> tuple[Reason, ...]:
    if len(reasons) <= most:
        return tuple(reasons)
    return (*reasons[: most - 1], Reason(f"and {len(reasons) - most + 1} more", ""))


def _span(dimension: Dimension, bins: Sequence[int]) -> str:
    """Return the values of some bins in words: `-0.1 to 0.3`, `below 0.3`, `2,5`; empty for one whole number."""
    low, high, edges = bins[0], bins[-1], [format_number(edge) for edge in dimension.edges]
    if dimension.has_integer_bins:
        return bins_text(bins, dimension.bins) if len(bins) > 1 else ""
    if len(bins) < high - low + 1:
        return f"bins {bins_text(bins, dimension.bins)}"
    if low == 0:
        return f"below {edges[high]}"
    return f"{edges[low - 1]} and above" if high == len(edges) else f"{edges[low - 1]} to {edges[high]}"


def _terms(
    policy: LinearPolicy, episode: Trajectory, quantities: Sequence[npt.NDArray[Any]], steps: Sequence[int]
) -> list[Decision]:
    """Explain one actuator by the amounts of its terms, or each of several actuators by its two largest terms."""
    names, weights = [*map(to_text, policy.terms), "constant"], np.vstack([policy.weights, policy.bias])
    values = np.vstack([policy.term_columns(quantities), np.ones(episode.length)])  # 1 for the constant
    if len(policy.task.actuators) > 1:
        return [_outputs(policy, names, weights, values[:, step], episode.actions[step]) for step in steps]
    [actuator] = policy.task.actuators
    # The largest terms change from step to step, so the film shows the terms with the largest mean, in one order.
    spread = np.ptp(weights, axis=1) if weights.shape[1] > 1 else np.abs(weights[:, 0])
    size, most = np.abs(values).mean(axis=1) * spread, np.abs(values).max(axis=1) * spread
    shown = [i for i in np.argsort(-size, kind="stable")[:MOST_REASONS].tolist() if size[i] > 0]
    largest = float(max((most[i] for i in shown), default=0.0)) or 1.0
    decisions = []
    for step in steps:
        action = episode.actions[step]
        weight, summary = _deciding_weights(actuator, weights, values[:, step], np.ravel(action)[0])
        amounts = [(names[i], float(values[i, step] * weight[i]) + 0.0) for i in shown]
        reasons = [Reason(name, f"{x:+.3g}", float(np.clip(x / largest, -1, 1))) for name, x in amounts]
        decisions.append(Decision(_named_action(policy, action), summary, tuple(reasons)))
    return decisions


def _outputs(policy: LinearPolicy, names: Sequence[str], weights: Numbers, values: Numbers, action: Any) -> Decision:
    reasons = []
    for actuator, own, value in zip(policy.task.actuators, output_slices(policy.task), action.tolist(), strict=True):
        parts = values * _deciding_weights(actuator, weights[:, own], values, value)[0]
        most = max(abs(actuator.low), abs(actuator.high))
        share = value / most if not actuator.is_choice and 0 < most < math.inf else None
        weightiest = [i for i in np.argsort(-np.abs(parts), kind="stable")[:2].tolist() if parts[i] != 0]
        largest_terms = ", ".join(f"{names[i]} {parts[i]:+.2g}" for i in weightiest)
        reasons.append(Reason(f"{actuator.name}: {largest_terms}", _in_words(actuator, value), share))
    return Decision("", "each output with its two largest terms", _cut(reasons, MOST_OUTPUTS))


def _deciding_weights(actuator: Actuator, weights: Numbers, values: Numbers, action: float) -> tuple[Numbers, str]:
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
    return weights[:, chosen] - weights[:, other], f"{words}; their difference:"
