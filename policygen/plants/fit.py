"""Fit the numbers of a plant to played transitions by robust least squares, and measure its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.plants.least_squares import bounded, one_step_problem, problem_ahead
from policygen.plants.transitions import BLOCK, Transitions
from policygen.policies.plant import NEXT, Column, Equations, Plant
from policygen.policies.shaping import REWARD
from policygen.quantities.tree import names_in

MEMBERS = 4  # plants of an ensemble: the first fitted to all transitions, the others to bootstrap samples
AHEAD = 20  # steps of the long predictions, whose errors are measured, too
MARGIN = 0.3  # of the bounds around the observed range, as a share of that range
LARGEST_ERROR = 1e6  # largest error that is recorded
SMALL_ERROR = 0.02  # a second fit, to longer predictions, only if a one-step error is larger
MOST_NUMBERS = 40  # no second fit for more numbers: it simulates all windows once per number
MAX_ERROR_RATIO = 0.8  # the second fit is kept if its squared error `AHEAD` is below this share of the first fit's


@dataclass(frozen=True, eq=False)
class FittedPlant:
    """A plant with fitted numbers: an ensemble of members with the same equations and different numbers."""

    equations: Equations  # with the numbers from which the fit began
    values: Column  # the numbers of each member, shape (members, K)
    low: Column  # lower bounds of predicted observations, shape (d,): the least value observed, minus a margin
    high: Column  # upper bounds, likewise
    starts: Column  # the first observations of each episode, then its hidden states: shape (episodes, d + h)
    reward_outside: float  # of each step out of bounds; see `_reward_outside`
    # Root mean square error of predicting each observation one step ahead, as a share of the root mean square change in
    # that time, shape (d,): 1 is as good as "nothing changes".
    error: Column
    error_ahead: Column | None  # the same `AHEAD` steps ahead; None if no episode is that long
    steps: int  # number of transitions that it was fitted to

    @property
    def plant(self) -> Plant:
        """The plant with the numbers of the first member."""
        return self.equations.with_values(self.values[0])

    def disagreement(self, episodes: Sequence[Trajectory]) -> float:
        """Return the spread of the members' predictions: a sum over steps and observations, mean over the episodes.

        The spread is the standard deviation of one-step predictions, as a share of the bounds.
        """
        data = Transitions.of(self.equations.task, episodes)
        values = list(self.values.T[:, :, None])
        hidden = list(_usual_starts(self.equations, data))
        memory, decided = data.memory(self.equations, values, hidden), self.equations.decided(data.actions)
        found, _ = self.equations.step(list(data.before.T), memory, decided, values)
        apart = [np.broadcast_to(column, (len(self.values), len(data))).std(axis=0) for column in found]
        room = self.high - self.low + 1e-12
        shares = [np.nan_to_num(one / width) for one, width in zip(apart, room, strict=True)]
        return float(np.sum(shares)) / max(1, len(data.starts))

    @property
    def hidden(self) -> list[Column]:
        """For each hidden state its values at the start of the episodes that were fitted, shape (episodes,)."""
        return list(self.starts[:, len(self.low) :].T)

    @property
    def deviations(self) -> Column:
        """The standard deviation of each number over the members, shape (K,)."""
        with np.errstate(all="ignore"):  # a sum of numbers of 1e308 overflows
            return np.asarray((self.values - self.values[0]).std(axis=0))


def fit_plant(equations: Equations, data: Transitions, rng: np.random.Generator) -> FittedPlant:
    """Fit the numbers of a plant, and its hidden states at the start of each episode; begin with its present numbers.

    The fit minimises errors of one-step predictions of the reward and all observations, each in units of its usual
    change. A residual far above the usual one counts by its size, not by its square (SciPy's `soft_l1`). If the largest
    error is neither small nor above 1, a second fit minimises errors up to `BLOCK` steps ahead: noise distorts it less.
    It is kept if its predictions `AHEAD` steps ahead are clearly better. There is no second fit for more than
    `MOST_NUMBERS` numbers, or if no episode has `AHEAD` steps.
    """
    values = np.tile(equations.values, (MEMBERS, 1))
    if not equations.plant.hidden:
        for lines, numbers in _independent_groups(equations):
            values[:, numbers], _ = one_step_problem(equations, data, lines, numbers).solve(MEMBERS - 1, rng)
        found = with_errors(equations, values, data, [])
    else:
        found = _fitted_ahead(equations, data, rng, None)
    if not SMALL_ERROR < found.error.max() < 1 or len(equations.values) > MOST_NUMBERS or found.error_ahead is None:
        return found
    longer = _fitted_ahead(equations, data, rng.spawn(1)[0], found)
    assert longer.error_ahead is not None
    return longer if (longer.error_ahead**2).sum() < MAX_ERROR_RATIO * (found.error_ahead**2).sum() else found


def _fitted_ahead(
    equations: Equations, data: Transitions, rng: np.random.Generator, found: FittedPlant | None
) -> FittedPlant:
    """Fit all numbers and hidden states to one-step predictions or, after a first fit `found`, to longer ones."""
    start, hidden, steps = equations, _usual_starts(equations, data), 1
    if found is not None:
        start, hidden, steps = Equations(equations.task, found.plant), np.array(found.hidden), BLOCK
    numbers = np.arange(len(equations.values))
    problem = problem_ahead(start, data, numbers, hidden.reshape(-1, len(data.starts)), steps)
    values, starts = problem.solve(MEMBERS - 1, rng)
    return with_errors(equations, values, data, starts)


def with_errors(
    equations: Equations, values: Column, data: Transitions, hidden: Sequence[Column] | None = None
) -> FittedPlant:
    """Return a plant with these numbers, and measure the errors with which its first member predicts the data.

    Args:
        values: the numbers of each member, shape (members, K).
        hidden: each hidden state at the start of the episodes, shape (episodes,); None: fit them to the data.
    """
    if hidden is None:
        hidden = hidden_starts(Equations(equations.task, equations.with_values(values[0])), data)
    both = np.concatenate([data.before, data.after])
    low, high = both.min(axis=0), both.max(axis=0)
    room = MARGIN * (high - low)
    error = _error(equations, values[0], hidden, data, 1)
    assert error is not None, "every episode has a step"
    return FittedPlant(
        equations,
        values,
        low - room,
        high + room,
        np.column_stack([data.before[data.starts], *hidden]),
        _reward_outside(data),
        error,
        _error(equations, values[0], hidden, data, AHEAD),
        len(data),
    )


def hidden_starts(equations: Equations, data: Transitions) -> list[Column]:
    """Fit the hidden states at the start of each episode: for each hidden state a column of shape (episodes,)."""
    problem = problem_ahead(equations, data, np.zeros(0, np.intp), _usual_starts(equations, data), 1)
    return problem.solve(0, np.random.default_rng())[1]


def _usual_starts(equations: Equations, data: Transitions) -> Column:
    """Return the mean start of each hidden state for every episode, shape (h, episodes)."""
    means = [mean for mean, _ in equations.hidden_starts]
    return np.tile(np.array(means, np.float64)[:, None], (1, len(data.starts)))


def _reward_outside(data: Transitions) -> float:
    """Return the reward of each step out of bounds: the lowest seen, at most 0.

    It is 0 if the mean reward of steps that do not end an episode is positive: an episode that leaves the bounds then
    loses these rewards, and needs no penalty.
    """
    not_ending = data.rewards[~data.ended]
    return 0.0 if len(not_ending) and not_ending.mean() > 0 else min(0.0, float(data.rewards.min()))


def _independent_groups(equations: Equations) -> list[tuple[list[str], npt.NDArray[np.intp]]]:
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
    return [(lines, np.array(sorted(numbers), np.intp)) for lines, numbers in groups]


def _error(
    equations: Equations, values: Column, hidden: Sequence[Column], data: Transitions, steps: int
) -> Column | None:
    """Return the errors of predictions `steps` ahead, as a share of the change; None if no episode is that long."""
    n = len(data)
    begins = np.arange(n - steps + 1)
    begins = begins[data.episode_index[begins] == data.episode_index[begins + steps - 1]][:: max(1, n // 2_000)]
    if not len(begins):
        return None
    truth = data.after[begins + steps - 1]
    change = np.sqrt(((truth - data.before[begins]) ** 2).mean(axis=0))
    errors = predictions(equations, values, hidden, data, begins=begins, steps=steps) - truth
    wrong = np.sqrt((in_usual_changes(errors, np.maximum(change, 1e-9)) ** 2).mean(axis=0))
    return np.asarray(np.where(change > 1e-9, wrong, 0.0))


def predictions(
    equations: Equations,
    values: Column,
    hidden: Sequence[Column],
    data: Transitions,
    *,
    begins: npt.NDArray[np.intp],
    steps: int,
) -> Column:
    """Return the observations predicted after `steps` steps from each of the steps `begins`, shape (begins, d)."""
    memory = [column[begins] for column in data.memory(equations, values.tolist(), hidden)]
    decided = equations.decided(data.actions)
    observed: list[Any] = list(data.before[begins].T)
    for step in range(steps):
        observed, memory = equations.step(observed, memory, [part[begins + step] for part in decided], values.tolist())
    return np.stack([np.broadcast_to(column, len(begins)) for column in observed], axis=1)


def in_usual_changes(errors: Column, usual: Column) -> Column:
    """Return errors in units of the usual change, clipped to `LARGEST_ERROR`."""
    with np.errstate(all="ignore"):
        return bounded(errors / usual, LARGEST_ERROR)
