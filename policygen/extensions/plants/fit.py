"""Fit the numbers of a plant to played transitions by robust least squares, and measure its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policygen.extensions.plants.equations import NEXT, REWARD, Column, Equations, Plant
from policygen.extensions.plants.transitions import Transitions
from policygen.quantities.operations import OPERATIONS
from policygen.quantities.spelling import compiled
from policygen.quantities.text import to_digits
from policygen.quantities.tree import NOTHING, Call, names_in, needed_by, nodes_of

MEMBERS = 4  # plants of an ensemble: the first fitted to all transitions, the others to bootstrap samples
AHEAD = 20  # steps of the long predictions, whose errors are measured, too
MARGIN = 0.3  # of the bounds around the observed range, as a share of that range
LARGEST_ERROR = 1e6  # largest error that is recorded
MOST_STARTS = 100  # of hidden states, one per state and episode: a fit takes a square of their number
MOST_STEPS = 20  # of a least-squares search
DAMPINGS = (1e-8, 1e-4, 1e-2, 1.0)  # of a step, tried in this order: per row, where columns have root mean square 1
SETTLED = 1e-6  # a smaller reduction of the error, as a share of it, ends a search
LARGEST_RESIDUAL = 1e3  # largest residual, in usual changes; also stands for NaN
OUTLIER = 3.0  # residuals above this multiple of the median count by their size, not by their square
PRIOR = 0.01  # residual of a hidden start that is one standard deviation from its mean
_MOST_AT_ONCE = 2_000_000  # entries of one array while derivatives are computed


class PredictionError(NamedTuple):
    """The errors of predicting one observation, as a share of its change: 1 is as good as "nothing changes"."""

    name: str
    one: float  # one step ahead
    ahead: float | None  # `AHEAD` steps ahead; None if no episode is that long

    @property
    def larger(self) -> float:
        """The larger of the two errors."""
        return max(self.one, self.ahead or 0.0)


@dataclass(frozen=True, slots=True)
class PlantRecord:
    """A summary of a fitted plant, as an attempt records it and as prompts and `show` print it."""

    text: str  # the lines of the plant, with the fitted numbers
    steps: int  # number of transitions that it was fitted to
    errors: tuple[PredictionError, ...] = ()  # of each observation

    def to_text(self) -> str:
        """Return the lines of the plant between comments: the number of steps, and the errors of its predictions."""
        errors = (f"{e.name} {e.one:.2g} / {'-' if e.ahead is None else f'{e.ahead:.2g}'}" for e in self.errors)
        told = f'# prediction errors, 1 step / {AHEAD} steps ahead, where 1 is no better than "nothing changes": '
        return f"# plant fitted to {self.steps:,} steps\n{self.text}\n{told}{', '.join(errors)}"


@dataclass(frozen=True, eq=False)
class FittedPlant:
    """A plant with fitted numbers: an ensemble of members with the same equations and different numbers."""

    equations: Equations  # with the numbers from which the fit began
    values: Column  # the numbers of each member, shape (members, K)
    low: Column  # lower bounds of predicted observations, shape (d,): the least value observed, minus a margin
    high: Column  # upper bounds, likewise
    starts: Column  # the first observations of each episode, then its hidden states: shape (episodes, d + h)
    reward_outside: float  # of each step out of bounds; see `_reward_outside`
    seeks_end: bool  # whether the reward asks for the end of an episode; see `_seeks_end`
    # Root mean square error of predicting each observation one step ahead, as a share of the root mean square change in
    # that time, shape (d,): 1 is as good as "nothing changes".
    error: Column
    error_ahead: Column | None  # the same `AHEAD` steps ahead; None if no episode is that long
    steps: int  # number of transitions that it was fitted to

    @property
    def plant(self) -> Plant:
        """The plant with the numbers of the first member."""
        return self.equations.with_values(self.values[0])

    @property
    def record(self) -> PlantRecord:
        """Its summary."""
        names, ahead = self.equations.task.observation_names, self.error_ahead
        longer = [None] * len(names) if ahead is None else [to_digits(error, 4) for error in ahead.tolist()]
        each = zip(names, self.error.tolist(), longer, strict=True)
        errors = tuple(PredictionError(name, to_digits(one, 4), error) for name, one, error in each)
        return PlantRecord(self.plant.to_text(), self.steps, errors)


def fit_plant(equations: Equations, data: Transitions, rng: np.random.Generator) -> FittedPlant:
    """Fit the numbers of a plant, and its hidden states at the start of each episode; begin with its present numbers.

    The fit minimises errors of one-step predictions of the reward and all observations, each in units of its usual
    change. A residual far above the usual one counts by its size, not by its square. With hidden states, it uses only
    some episodes, evenly spaced, so that at most `MOST_STARTS` starts are fitted.
    """
    if equations.plant.hidden:
        data = data.of_some(max(2, MOST_STARTS // len(equations.plant.hidden)))
    values, hidden = np.tile(equations.values, (MEMBERS, 1)), _usual_starts(equations, data)
    predicted = [line for line in (REWARD, *_moves(equations)) if line in equations.computed]
    if equations.plant.hidden:
        everything = _Problem(equations, data, predicted, np.arange(len(equations.values)), hidden)
        values, hidden = everything.solve(MEMBERS - 1, rng)
    else:
        for lines, numbers in _independent_groups(equations, predicted):
            values[:, numbers], _ = _Problem(equations, data, lines, numbers, hidden).solve(MEMBERS - 1, rng)
    return with_errors(equations, values, data, hidden)


def with_errors(equations: Equations, values: Column, data: Transitions, hidden: Column | None = None) -> FittedPlant:
    """Return a plant with these numbers, and measure the errors with which its first member predicts the data.

    Args:
        values: the numbers of each member, shape (members, K).
        hidden: each hidden state at the start of the episodes, shape (h, episodes); None: the usual ones.
    """
    hidden = _usual_starts(equations, data) if hidden is None else hidden
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
        _seeks_end(equations, values[0].tolist(), list(hidden), data),
        error,
        _error(equations, values[0], hidden, data, AHEAD),
        len(data),
    )


def _usual_starts(equations: Equations, data: Transitions) -> Column:
    """Return the mean start of each hidden state for every episode, shape (h, episodes)."""
    means = [mean for mean, _ in equations.hidden_starts]
    return np.tile(np.array(means, np.float64)[:, None], (1, len(data.starts)))


def _moves(equations: Equations) -> list[str]:
    """Return the left-hand sides of the lines of observations, stated or not."""
    return [f"{NEXT} {name}" for name in equations.task.observation_names]


def _reward_outside(data: Transitions) -> float:
    """Return the reward of each step out of bounds: the lowest seen, at most 0.

    It is 0 if the mean reward of steps that do not end an episode is positive: an episode that leaves the bounds then
    loses these rewards, and needs no penalty.
    """
    not_ending = data.rewards[~data.ended]
    return 0.0 if len(not_ending) and not_ending.mean() > 0 else min(0.0, float(data.rewards.min()))


def _seeks_end(equations: Equations, values: list[float], hidden: list[Column], data: Transitions) -> bool:
    """Whether steps cost something, and by the reward's equation a step costs no more if it ends the episode."""
    if _reward_outside(data) >= 0 or not equations.plant.ends:
        return False

    def paid(ends: str) -> float:
        made = Equations(data.task, replace(equations.plant, ends=ends))
        memory, decided = data.memory(made, values, hidden), made.decided(data.actions)
        return float(np.mean(made.outcome(list(data.before.T), memory, decided, values, list(data.after.T))[0]))

    return paid("1 > 0") >= paid("0 > 1")


def work_of_fit(equations: Equations) -> int:
    """Return the work of a fit: numbers times operations, summed over groups of lines that share numbers.

    A function counts as four operations. Hidden states join all lines, and double the work.
    """
    lines = [line for line in (REWARD, *_moves(equations)) if line in equations.computed]
    groups, work = _independent_groups(equations, lines), 0
    if equations.plant.hidden:
        groups = [([*equations.computed], np.arange(len(equations.values)))] * 2
    for some, numbers in groups:
        read = needed_by(set().union(*(names_in(equations.computed[line]) for line in some)), equations.definitions)
        nodes = [*(equations.computed[line] for line in some), *(equations.definitions.get(n, NOTHING) for n in read)]
        calls = [one.function for node in nodes for one in nodes_of(node) if isinstance(one, Call)]
        work += len(numbers) * sum(1 if OPERATIONS[name].level and name != "^" else 4 for name in calls)
    return work


def _independent_groups(equations: Equations, lines: Sequence[str]) -> list[tuple[list[str], npt.NDArray[np.intp]]]:
    """Return groups of lines that share numbers, each with the indices of its numbers; no number is in two groups."""
    groups: list[tuple[list[str], set[int]]] = []
    for line in lines:
        read = needed_by(names_in(equations.computed[line]), equations.definitions, now=True)
        some, numbers = [line], {int(name[1:]) for name in read if name.startswith("#")}
        for group in [group for group in groups if group[1] & numbers]:
            groups.remove(group)
            some, numbers = group[0] + some, group[1] | numbers
        groups.append((some, numbers))
    return [(some, np.array(sorted(numbers), np.intp)) for some, numbers in groups if numbers]


def _error(equations: Equations, values: Column, hidden: Column, data: Transitions, steps: int) -> Column | None:
    """Return the errors of predictions `steps` ahead, as a share of the change; None if no episode is that long."""
    n, numbers = len(data), values.tolist()
    begins = np.arange(n - steps + 1)
    begins = begins[data.episode_index[begins] == data.episode_index[begins + steps - 1]][:: max(1, n // 2_000)]
    if not len(begins):
        return None
    memory = [column[begins] for column in data.memory(equations, numbers, list(hidden))]
    decided, observed = equations.decided(data.actions), list[Any](data.before[begins].T)
    for step in range(steps):
        observed, memory = equations.step(observed, memory, [part[begins + step] for part in decided], numbers)
    truth = data.after[begins + steps - 1]
    change = np.sqrt(((truth - data.before[begins]) ** 2).mean(axis=0))
    with np.errstate(all="ignore"):
        errors = np.stack([np.broadcast_to(column, len(begins)) for column in observed], axis=1) - truth
        wrong = np.sqrt((_bounded(errors / np.maximum(change, 1e-9), LARGEST_ERROR) ** 2).mean(axis=0))
    return np.asarray(np.where(change > 1e-9, wrong, 0.0))


class _Problem:
    """A least-squares problem: some numbers of a plant, and its hidden states at the start of each episode.

    Its residuals are the errors of one-step predictions by some lines, in units of usual changes.

    Args:
        lines: left-hand sides of the lines that predict.
        numbers: the indices of the numbers, which are in no other line.
        hidden: the hidden states from which the search begins, shape (h, episodes).
    """

    def __init__(
        self,
        equations: Equations,
        data: Transitions,
        lines: Sequence[str],
        numbers: npt.NDArray[np.intp],
        hidden: Column,
    ) -> None:
        self._equations, self._data, self._numbers, self._hidden = equations, data, numbers, hidden
        self._kept = kept = data.thinned_steps()
        self._decided = [column[kept] for column in equations.decided(data.actions)]
        targets = dict(zip(_moves(equations), data.after[kept].T, strict=True)) | {REWARD: data.rewards[kept]}
        scales = dict(zip(_moves(equations), data.rms_changes, strict=True)) | {REWARD: data.rewards.std() or 1.0}
        self._targets, self._scales = (np.array([some[line] for line in lines]) for some in (targets, scales))
        names = [*equations.inputs, *equations.inputs_after]
        self._predict = compiled([equations.computed[one] for one in lines], names, equations.definitions)
        self._memory = data.memory(equations, equations.values.tolist(), list(hidden))
        starts = np.array(equations.hidden_starts).reshape(-1, 2)
        self._means, self._spreads = starts[:, :1], np.maximum(starts[:, 1:], 1e-9)
        own, free = equations.limits[:, numbers], np.full((2, hidden.size), [[-np.inf], [np.inf]])
        self._low, self._high = np.concatenate([own, free], axis=1)

    def solve(self, samples: int, rng: np.random.Generator) -> tuple[Column, Column]:
        """Find the numbers that fit best, and those that fit each bootstrap sample of blocks.

        The search takes Gauss-Newton steps, damped where a full one does not help (Levenberg and Marquardt). A
        sample's numbers are found by one such step from the best ones.

        Returns:
            The numbers, best first, shape (1 + samples, numbers), and the hidden states, shape (h, episodes).
        """
        best = np.concatenate([self._equations.values[self._numbers], self._hidden.ravel()])
        residuals = self._residuals(best)
        for _ in range(MOST_STEPS):
            usual = float(np.median(sizes[sizes > 0])) if ((sizes := np.abs(residuals)) > 0).any() else 0.0
            if usual == 0:
                break
            slopes, error = self._jacobian(best), _robust(residuals, OUTLIER * usual).sum()
            for damping in DAMPINGS:
                moved = self._moved(best, slopes, residuals, _roots(residuals, OUTLIER * usual), damping)
                after = self._residuals(moved)
                gain = error - _robust(after, OUTLIER * usual).sum()
                if gain > 0:
                    break
            if gain > 0:
                best, residuals = moved, after
            if gain <= SETTLED * error:
                break
        sizes = np.abs(residuals)
        usual = float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 1.0
        slopes, roots = self._jacobian(best), _roots(residuals, OUTLIER * usual)
        found = [best]
        present, block = np.unique(self._data.blocks[self._kept], return_inverse=True)
        for _ in range(samples):
            drawn = np.bincount(rng.integers(len(present), size=len(present)), minlength=len(present))
            each = np.concatenate([np.tile(drawn[block], len(self._targets)), np.ones(self._hidden.size)])
            found.append(self._moved(best, slopes, residuals, roots * np.sqrt(each), DAMPINGS[0]))
        numbers, hidden = np.split(np.stack(found), [len(self._numbers)], axis=1)
        return numbers, hidden[0].reshape(self._hidden.shape)

    def _moved(self, theta: Column, slopes: Column, residuals: Column, roots: Column, damping: float) -> Column:
        """Return the numbers after a step within their limits; one at its limit does not pull at the others."""
        step = linear_least_squares(slopes, residuals, roots, damping)
        free = ~(((theta <= self._low) & (step > 0)) | ((theta >= self._high) & (step < 0)))
        if not free.all():
            step = linear_least_squares(slopes * free, residuals, roots, damping)
        return np.clip(theta - step, self._low, self._high)

    def _split(self, theta: Column) -> tuple[list[Any], list[Any]]:
        numbers, hidden = np.split(theta, [len(self._numbers)])
        return numbers.tolist(), list(hidden.reshape(self._hidden.shape))

    def _residuals(self, theta: Column) -> Column:
        numbers, hidden = self._split(theta)
        prior = PRIOR * (np.reshape(hidden, self._hidden.shape) - self._means) / self._spreads
        return np.concatenate([self._computed(numbers, hidden, 1)[0], prior.ravel()])

    def _jacobian(self, theta: Column) -> Column:
        """Return the derivatives of the residuals by forward differences, shape (residuals, numbers and states)."""
        here = self._residuals(theta)
        numbers, hidden = self._split(theta)
        n, width = len(here) - self._hidden.size, len(theta)
        found = np.zeros((len(here), width))
        steps = 1e-6 * np.maximum(np.abs(theta), 1e-3)
        for some in np.array_split(np.arange(len(numbers)), -(-len(numbers) * n // _MOST_AT_ONCE) or 1):
            moved: list[Any] = list(numbers)
            for place, index in enumerate(some.tolist()):
                moved[index] = np.full((len(some), 1), theta[index])
                moved[index][place] += steps[index]
            if len(some):
                found[:n, some] = (self._computed(moved, hidden, len(some)) - here[:n]).T / steps[some]
        if not hidden:
            return found
        # A hidden state affects only the residuals of its own episode, so those of all episodes are moved at once: in
        # variant k those of state k.
        of = np.arange(len(numbers), width).reshape(self._hidden.shape)
        starts = np.tile(np.array(hidden), (len(hidden), 1, 1))
        starts[range(len(hidden)), range(len(hidden))] += steps[of]
        episodes = np.tile(self._data.episode_index[self._kept], len(self._targets))
        differences = self._computed(numbers, list(starts.swapaxes(0, 1)), len(hidden)) - here[:n]
        for columns, difference, spread in zip(of, differences, self._spreads[:, 0], strict=True):
            found[np.arange(n), columns[episodes]] = difference / steps[columns[episodes]]
            found[n + columns - len(numbers), columns] = PRIOR / spread
        return found

    def _computed(self, numbers: Sequence[Any], hidden: Sequence[Any], variants: int) -> Column:
        """Return the errors of all lines, shape (variants, n), for numbers that may be columns (variants, 1)."""
        values: list[Any] = self._equations.values.tolist()
        for index, value in zip(self._numbers.tolist(), numbers, strict=True):
            values[index] = value
        data, kept = self._data, self._kept
        memory = data.memory(self._equations, values, hidden) if len(hidden) else self._memory
        inputs = [*data.before[kept].T, *(column[..., kept] for column in memory), *self._decided, *values]
        with np.errstate(all="ignore"):
            found = self._predict([np.asarray(one, np.float64) for one in (*inputs, *data.after[kept].T)])
            shape = (variants, len(kept))
            each = zip(found, self._targets, self._scales, strict=True)
            parts = [
                np.broadcast_to(_bounded((one - real) / scale, LARGEST_RESIDUAL), shape) for one, real, scale in each
            ]
        return np.concatenate([np.zeros((variants, 0)), *parts], axis=1)


def _robust(residuals: Column, knee: float) -> Column:
    """Return half the square of small residuals, and `knee` times the size of those far above it."""
    return np.asarray(knee**2 * (np.sqrt(1 + (residuals / knee) ** 2) - 1))


def _roots(residuals: Column, knee: float) -> Column:
    """Return the square roots of the weights with which a weighted square replaces `_robust`."""
    return np.asarray((1 + (residuals / knee) ** 2) ** -0.25)


def _bounded(values: Any, largest: float) -> Column:
    """Clip values to -`largest` to `largest`, and replace NaN by `largest`."""
    return np.asarray(np.nan_to_num(values, nan=largest, posinf=largest, neginf=-largest).clip(-largest, largest))


def linear_least_squares(
    columns: Column, target: Column, weights: Column | None = None, damping: float = DAMPINGS[0]
) -> Column:
    """Return the damped solution of a linear least-squares problem; zeros if it is not finite.

    Args:
        columns: shape (n, k).
        target: shape (n,) or (n, targets).
        weights: factor of each row, shape (n,); None: all 1.
        damping: per row, added to the diagonal of the normal equations, whose columns have root mean square 1.
    """
    sizes = np.sqrt((columns**2).mean(axis=0)) + 1e-12
    scaled = columns / sizes
    if weights is not None:
        scaled, target = scaled * weights[:, None], target * weights
    gram = scaled.T @ scaled
    gram[np.diag_indices(len(gram))] += damping * len(columns)
    with np.errstate(all="ignore"):
        found = np.asarray((np.linalg.solve(gram, scaled.T @ target).T / sizes).T, np.float64)
    return found if np.isfinite(found).all() else np.zeros(found.shape)
