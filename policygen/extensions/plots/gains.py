"""Gains of equations: the slope of every output along every observation and remembered value, over played episodes.

Definitions are followed down to observations. Slopes are exact where the equations are linear.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plots.maps import unit_of
from policygen.extensions.plots.style import Numbers
from policygen.outgoing import in_columns
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.tasks.task import Task

STEP = 1e-4  # of a central difference, as a share of a quantity's spread
CONSTANT = 0.01  # slopes that differ by at most this share count as one gain
LEAST_SHARE = 0.005  # of an output's variation; quantities with a smaller share are not shown
MOST_STEPS = 2_000  # about as many steps of the episodes are used, evenly spaced; never twice as many


@dataclass(frozen=True, slots=True)
class Gain:
    """The slope of an output along a quantity."""

    output: str
    name: str  # an observation, or a remembered value as `prev(NAME)`
    slope: float  # median over the steps
    low: float  # the middle 90% of the steps
    high: float
    # the quantity's share of the output's variation: mean size of the slope times the quantity's standard deviation,
    # over the sum of these for all quantities
    share: float

    @property
    def constant(self) -> bool:
        """Whether the slope is the same at all steps: the output is linear in the quantity."""
        return self.high - self.low <= CONSTANT * max(abs(self.low), abs(self.high))


def quantities_along(policy: Policy, episode: Trajectory) -> dict[str, Numbers]:
    """Return all quantities at each step of an episode, by name: arrays of shape (steps,)."""
    columns = policy.reader.along(episode.observations[:-1], episode.actions)
    named = zip(policy.reader.names, columns, strict=True)
    return {name: np.asarray(values, np.float64) for name, values in named}


def visited(policy: Policy, episodes: Sequence[Trajectory]) -> dict[str, Numbers]:
    """Return the observed and remembered numbers at the steps of the episodes, by name: arrays of shape (steps,)."""
    met = [quantities_along(policy, episode) for episode in episodes]
    names = policy.reader.names[: policy.task.width + len(policy.reader.remembered)]
    return {name: np.concatenate([quantities[name] for quantities in met]) for name in names}


def _slopes(policy: LinearPolicy, met: Mapping[str, Numbers]) -> Iterator[tuple[Numbers, float]]:
    """Yield the slopes of the outputs along each quantity, shape (steps, outputs), and the quantity's spread."""
    every = max(1, len(next(iter(met.values()), ())) // MOST_STEPS)
    columns = [values[::every] for values in met.values()]
    for place, values in enumerate(columns):
        spread = float(np.nanstd(values)) if np.isfinite(values).any() else 0.0
        moved = max(STEP * spread, 1e-9)
        up, down = ([*columns[:place], values + sign * moved, *columns[place + 1 :]] for sign in (1, -1))
        yield (np.array(policy.outputs(up)) - np.array(policy.outputs(down))) / (2 * moved), spread


def effects(policy: LinearPolicy, episodes: Sequence[Trajectory]) -> tuple[list[str], Numbers]:
    """Return the quantities with an effect, and each output's mean slope times their spread, shape (names, outputs)."""
    met = visited(policy, episodes)
    amounts = np.array([slope.mean(axis=0) * spread for slope, spread in _slopes(policy, met)])
    # A quantity with nearly no effect has no row.
    kept = [i for i, row in enumerate(amounts) if np.abs(row).max() > LEAST_SHARE * np.abs(amounts).max()]
    return [list(met)[i] for i in kept], amounts[kept]


def gains(policy: LinearPolicy, episodes: Sequence[Trajectory]) -> list[Gain]:
    """Return the gains of each output in turn, the largest share first, without shares below `LEAST_SHARE`."""
    met = visited(policy, episodes)
    slopes = list(_slopes(policy, met))
    sizes = np.array([np.abs(slope).mean(axis=0) * spread for slope, spread in slopes])
    whole = sizes.sum(axis=0)
    shares = np.divide(sizes, whole, out=np.zeros_like(sizes), where=whole > 0)
    found = []
    for k, (output, _) in enumerate(policy.equations):
        for i in np.argsort(-shares[:, k], kind="stable"):
            if shares[i, k] >= LEAST_SHARE:
                low, middle, high = np.quantile(slopes[i][0][:, k], (0.05, 0.5, 0.95)).tolist()
                found.append(Gain(output, list(met)[i], middle, low, high, float(shares[i, k])))
    return found


def main_quantities(policy: LinearPolicy, episodes: Sequence[Trajectory]) -> tuple[str, ...]:
    """Return the two quantities with the largest shares of all outputs' variation; fewer if fewer have a gain."""
    shares: dict[str, float] = {}
    for gain in gains(policy, episodes):
        shares[gain.name] = shares.get(gain.name, 0.0) + gain.share
    chosen = sorted(shares, key=lambda name: -shares[name])[:2]
    return tuple(name for name in policy.reader.names if name in chosen)


def gains_text(policy: LinearPolicy, episodes: Sequence[Trajectory]) -> str:
    """Return a table of the gains with their units as text; slopes that depend on the state are marked as medians."""
    rows = [("output", "quantity", "gain", "middle 90%", "share")]
    for gain in gains(policy, episodes):
        local = "" if gain.constant else f"median, {gain.low:.3g}..{gain.high:.3g}"
        slope = f"{gain.slope:.4g}{_unit(policy.task, gain)}"
        rows.append((gain.output, gain.name, slope, local, f"{gain.share:.0%}"))
    return "\n".join(in_columns(rows))


def _unit(task: Task, gain: Gain) -> str:
    """Return the unit of a slope: ` N m/rad`; ` per rad` if the task states no unit of the output."""
    units = (unit_of(task, gain.output), unit_of(task, gain.name))
    above, below = (f"({unit})" if " " in unit or "/" in unit else unit for unit in units)
    if not below or above == below:
        return ""
    return f" {above}/{below}" if above else f" per {below}"
