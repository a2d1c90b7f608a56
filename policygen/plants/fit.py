"""Fit the numbers of a plant to played transitions by robust least squares, and measure its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.plants.least_squares import LeastSquares, one_step_residuals, residuals_ahead, sample_weights
from policygen.plants.transitions import BLOCK, Transitions
from policygen.policies.plant import NEXT, Column, Equations, Plant
from policygen.policies.shaping import REWARD
from policygen.quantities.tree import names_in

MEMBERS = 4  # plants of an ensemble: the first fitted to all transitions, the others to bootstrap samples
AHEAD = 20  # steps of the long predictions, whose errors are measured beside those of one step
MARGIN = 0.3  # by which predictions may leave the observed range, as a share of that range
LARGEST_ERROR = 1e6  # largest error that is recorded
SMALL_ERROR = 0.02  # one-step error up to which numbers are not fitted to longer predictions
MOST_NUMBERS = 40  # a plant of more numbers is not fitted to longer predictions: each plays all windows
MAX_ERROR_RATIO = 0.8  # of squared errors `AHEAD` steps ahead: a fit to longer predictions is kept below it


@dataclass(frozen=True, eq=False)
class FittedPlant:
    """A plant with its numbers fitted several times.

    Attributes:
        equations: the structure, with the numbers from which the fit began.
        values: the numbers of each member, shape (members, K).
        low, high: bounds of predicted observations, shape (d,): the observed range, extended by `MARGIN`.
        starts: the first observations of each episode, followed by its hidden states: shape (episodes, d + h).
        reward_outside: reward of each step out of bounds: the lowest seen, or 0 if that or the mean is positive.
        steps: number of transitions it was fitted to.
        error, error_ahead: root mean square errors of predicting each observation one step and `AHEAD` steps ahead
            (None if no episode is that long), as a share of its change over that time: 1 is as good as "nothing
            changes".
    """

    equations: Equations
    values: Column
    low: Column
    high: Column
    starts: Column
    reward_outside: float
    error: Column
    error_ahead: Column | None
    steps: int

    @property
    def plant(self) -> Plant:
        """The plant with the numbers of the first member."""
        return self.equations.with_values(self.values[0])

    def disagreement(self, episodes: Sequence[Trajectory]) -> float:
        """Return the spread of the members' one-step predictions as shares of the bounds, summed over an episode."""
        data = Transitions.of(self.equations.task, episodes)
        values = list(self.values.T[:, :, None])
        hidden = list(_usual_starts(self.equations, data))
        memory, decided = data.memory(self.equations, values, hidden), self.equations.decided(data.actions)
        found, _ = self.equations.step(list(data.before.T), memory, decided, values)
        apart = [np.broadcast_to(column, (len(self.values), len(data))).std(axis=0) for column in found]
        room = self.high - self.low + 1e-12
        shares = [np.nan_to_num(one / width) for one, width in zip(apart, room, strict=True)]
        return float(np.sum(shares)) / max(1, data.episode_count)

    @property
    def hidden(self) -> list[Column]:
        """Each hidden state at the start of the episodes that the plant was fitted to: shape (episodes,)."""
        return list(self.starts[:, len(self.low) :].T)

    @property
    def deviations(self) -> Column:
        """The standard deviation of each number over the members, shape (K,)."""
        with np.errstate(all="ignore"):  # numbers of 1e308 have no sum
            return np.asarray((self.values - self.values[0]).std(axis=0))


def fit_plant(equations: Equations, data: Transitions, rng: np.random.Generator, members: int = MEMBERS) -> FittedPlant:
    """Fit the numbers of a plant, and its hidden states in each episode, starting from its present numbers.

    They are fitted to one-step predictions of the reward and of all observations, each in units of its usual change. A
    residual far above the usual one counts by its size, not by its square (SciPy's `soft_l1`). If an error remains,
    they are fitted again to predictions of `BLOCK` steps, which noise misleads less; this second fit is kept if it
    predicts better far ahead.
    """
    kept = data.thinned_steps()
    values = np.tile(equations.values, (members, 1))
    if not equations.plant.hidden:
        for lines, numbers in _independent(equations):
            problem = LeastSquares(equations, data, numbers, one_step_residuals(equations, data, kept, lines))
            values[:, numbers], _ = problem.solved([sample_weights(data.blocks[kept], rng) for _ in range(members - 1)])
        found = fitted(equations, values, data, [])
    else:
        found = _fitted_ahead(equations, data, rng, members, None)
    if not SMALL_ERROR < found.error.max() < 1 or len(equations.values) > MOST_NUMBERS or found.error_ahead is None:
        return found
    longer = _fitted_ahead(equations, data, rng.spawn(1)[0], members, found)
    assert longer.error_ahead is not None
    return longer if (longer.error_ahead**2).sum() < MAX_ERROR_RATIO * (found.error_ahead**2).sum() else found


def _fitted_ahead(
    equations: Equations, data: Transitions, rng: np.random.Generator, members: int, found: FittedPlant | None
) -> FittedPlant:
    """Fit all numbers at once: to predictions of one step, or of `BLOCK` steps, beginning with the numbers found."""
    begins = data.thinned_steps() if found is None else data.window_starts()
    start = equations if found is None else Equations(equations.task, found.plant)
    numbers = np.arange(len(equations.values))
    steps = 1 if found is None else BLOCK
    hidden = _usual_starts(equations, data) if found is None else np.array(found.hidden).reshape(-1, data.episode_count)
    residuals = residuals_ahead(start, data, begins, steps)
    problem = LeastSquares(start, data, numbers, residuals, hidden)
    values, starts = problem.solved([sample_weights(data.blocks[begins], rng) for _ in range(members - 1)])
    return fitted(equations, values, data, starts)


def fitted(
    equations: Equations, values: Column, data: Transitions, hidden: Sequence[Column] | None = None
) -> FittedPlant:
    """Return a plant with these numbers for its members, and how well the first one predicts the data.

    Args:
        hidden: each hidden state at the start of the episodes, shape (episodes,); None: fitted to the data.
    """
    if hidden is None:
        hidden = hidden_starts(Equations(equations.task, equations.with_values(values[0])), data)
    both = np.concatenate([data.before, data.after])
    low, high = both.min(axis=0), both.max(axis=0)
    room = MARGIN * (high - low)
    return FittedPlant(
        equations,
        values,
        low - room,
        high + room,
        np.column_stack([data.before[data.first], *hidden]),
        _reward_outside(data),
        _error(equations, values[0], hidden, data, 1),
        _error(equations, values[0], hidden, data, AHEAD) if _longest(data) >= AHEAD else None,
        len(data),
    )


def hidden_starts(equations: Equations, data: Transitions) -> list[Column]:
    """Return each hidden state at the start of the episodes, shape (episodes,), fitted to them."""
    if not equations.plant.hidden:
        return []
    residuals = residuals_ahead(equations, data, data.thinned_steps(), 1)
    nothing = np.zeros(0, np.intp)
    _, hidden = LeastSquares(equations, data, nothing, residuals, _usual_starts(equations, data)).solved([])
    return hidden


def _usual_starts(equations: Equations, data: Transitions) -> Column:
    means = [mean for mean, _ in equations.hidden_starts]
    return np.tile(np.array(means, np.float64)[:, None], (1, data.episode_count))


def _reward_outside(data: Transitions) -> float:
    """Return the reward of each step out of bounds: the lowest seen, or 0 if steps before an end pay on average.

    In the second case an episode that leaves the bounds already loses later rewards, and needs no penalty.
    """
    going = data.rewards[~data.ended]
    return 0.0 if len(going) and going.mean() > 0 else min(0.0, float(data.rewards.min()))


def _independent(equations: Equations) -> list[tuple[list[str], npt.NDArray[np.intp]]]:
    """Return groups of lines that share numbers, each with the indices of its numbers; no number is in two groups."""
    groups: list[tuple[list[str], set[int]]] = []
    for line, node in equations.computed.items():
        read = set().union(*map(names_in, equations.with_definitions([node])))
        numbers = {int(name[1:]) for name in read if name.startswith("#")}
        if not numbers or not (line == REWARD or line.startswith(f"{NEXT} ")):
            continue
        lines = [line]
        for group in [group for group in groups if group[1] & numbers]:
            groups.remove(group)
            lines, numbers = group[0] + lines, group[1] | numbers
        groups.append((lines, numbers))
    # A number in a quantity that both the motion and the reward read is fitted to both.
    return [(lines, np.array(sorted(numbers), np.intp)) for lines, numbers in groups]


def _longest(data: Transitions) -> int:
    return int(np.diff([*np.flatnonzero(data.first), len(data)]).max())


def _error(equations: Equations, values: Column, hidden: Sequence[Column], data: Transitions, steps: int) -> Column:
    """Return the error of predictions `steps` steps ahead, as a share of the change."""
    n = len(data)
    begins = np.arange(n - steps + 1)
    begins = begins[data.episode_index[begins] == data.episode_index[begins + steps - 1]][:: max(1, n // 2_000)]
    memory = [column[begins] for column in data.memory(equations, values.tolist(), hidden)]
    decided = equations.decided(data.actions)
    observed: list[Any] = list(data.before[begins].T)
    for step in range(steps):
        observed, memory = equations.step(observed, memory, [part[begins + step] for part in decided], values.tolist())
    found = np.stack([np.broadcast_to(column, len(begins)) for column in observed], axis=1)
    truth = data.after[begins + steps - 1]
    change = np.sqrt(((truth - data.before[begins]) ** 2).mean(axis=0))
    wrong = np.sqrt((in_usual_changes(found - truth, np.maximum(change, 1e-9)) ** 2).mean(axis=0))
    return np.asarray(np.where(change > 1e-9, wrong, 0.0))


def in_usual_changes(wrong: Column, usual: Column) -> Column:
    """Return errors in units of the usual change, at most `LARGEST_ERROR` of them."""
    with np.errstate(all="ignore"):
        return np.nan_to_num(wrong / usual, nan=LARGEST_ERROR, posinf=LARGEST_ERROR, neginf=-LARGEST_ERROR).clip(
            -LARGEST_ERROR, LARGEST_ERROR
        )
