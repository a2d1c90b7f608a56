"""Fit the numbers of a plant to the steps played, by robust least squares, and measure its prediction errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.extensions.plants.equations import Column, Equations, Group
from policygen.extensions.plants.plant import AHEAD, NEXT, REWARD, PlantRecord, PredictionError
from policygen.quantities.codegen import compiled
from policygen.quantities.text import to_digits
from policygen.tasks.task import Task

BLOCK = 10  # consecutive steps that a bootstrap sample draws together, because neighbouring steps are nearly equal
MOST_FITTED = 4_000  # steps used for a fit; if there are more, evenly spaced blocks of them
MEMBERS = 4  # plants of the ensemble: the first is fitted to all steps, the others to bootstrap samples
MARGIN = 0.3  # bounds exceed the observed range by this share of it, at both ends
LARGEST_ERROR = 1e6  # larger prediction errors are recorded as this
MOST_STARTS = 100  # of hidden states, over all episodes of a fit, whose time grows with the square of their number
MOST_STEPS = 20  # of a least-squares search
DAMPINGS = (1e-8, 1e-4, 1e-2, 1.0)  # tried in this order for each step; see `linear_least_squares`
SETTLED = 1e-6  # a search ends when the error falls by less than this share of it
LARGEST_RESIDUAL = 1e3  # in units of usual changes; also the residual for NaN
OUTLIER = 3.0  # residuals above this multiple of the median count by their size, not by their square
PRIOR = 0.01  # residual of a hidden state that starts one standard deviation from its mean
_MOST_AT_ONCE = 2_000_000  # entries of one array in the computation of derivatives


@dataclass(frozen=True, eq=False)
class Transitions:
    """The steps of episodes as arrays, in order."""

    task: Task
    before: Column  # the observations before each step, shape (n, d)
    after: Column  # the observations after it
    actions: npt.NDArray[Any]  # shape (n,) or (n, m)
    rewards: Column  # shape (n,)
    ended: npt.NDArray[np.bool_]  # whether the episode terminated after the step, shape (n,)
    starts: npt.NDArray[np.intp]  # the indices of the first steps of the episodes, shape (episodes,)

    @staticmethod
    def of(task: Task, trajectories: Sequence[Trajectory]) -> Transitions:
        """Return the steps of these episodes, which must have at least one."""
        played = [trajectory for trajectory in trajectories if trajectory.length]
        bounds = np.cumsum([0, *(episode.length for episode in played)])
        ended = np.zeros(bounds[-1], np.bool_)
        ended[bounds[1:] - 1] = [episode.terminated for episode in played]
        return Transitions(
            task,
            np.concatenate([episode.observations[:-1] for episode in played]).astype(np.float64),
            np.concatenate([episode.observations[1:] for episode in played]).astype(np.float64),
            np.concatenate([episode.actions for episode in played]),
            np.concatenate([episode.rewards for episode in played]).astype(np.float64),
            ended,
            bounds[:-1],
        )

    def of_at_most(self, most: int) -> Transitions:
        """Return the steps of at most `most` episodes, evenly spaced."""
        count = len(self.starts)
        if count <= most:
            return self
        chosen = np.linspace(0, count - 1, most).round().astype(np.intp)
        kept = np.isin(self.episode_index, chosen)
        arrays = {name: getattr(self, name)[kept] for name in ("before", "after", "actions", "rewards", "ended")}
        return replace(self, starts=np.cumsum([0, *self.lengths[chosen]])[:-1], **arrays)

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def lengths(self) -> npt.NDArray[np.intp]:
        """The number of steps of each episode, shape (episodes,)."""
        return np.diff([*self.starts, len(self)])

    @cached_property
    def blocks(self) -> npt.NDArray[np.intp]:
        """The index of each step's block, shape (n,); the last block of an episode may be shorter."""
        within = np.arange(len(self)) - self.starts[self.episode_index]
        return np.asarray(np.cumsum(within % BLOCK == 0) - 1, np.intp)

    @cached_property
    def rms_changes(self) -> Column:
        """The root mean square change of each observation in a step, shape (d,); at least 1e-6 standard deviations."""
        changes = np.sqrt(((self.after - self.before) ** 2).mean(axis=0))
        least = 1e-6 * self.before.std(axis=0)
        return np.asarray(np.where(changes > least, changes, np.maximum(least, 1e-9)))

    @cached_property
    def episode_index(self) -> npt.NDArray[np.intp]:
        """The index of each step's episode, shape (n,)."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)

    def memory(self, equations: Equations, values: Sequence[Any], hidden: Sequence[Any] = ()) -> list[Column]:
        """Return the plant's memory and hidden states at each step, computed from the real observations.

        Each is a column of shape (n,). For several variants of the numbers, shape (variants, 1), or of the hidden
        states at the start of the episodes, shape (variants, episodes), it has the shape (variants, n).
        """
        starts, lengths = self.starts, self.lengths
        memory: list[Any] = equations.memory(hidden, len(starts))
        if not memory:
            return []
        variants = next((np.shape(one)[:1] for one in (*values, *hidden) if np.ndim(one) == 2), ())
        rows = np.empty((len(memory), *variants, len(self)))
        decided = equations.decided(self.actions)
        for step in range(int(lengths.max())):
            running = lengths > step
            at, lengths = starts[running] + step, lengths[running]
            starts = starts[running]
            if not running.all():
                memory = [np.broadcast_to(column, (*variants, len(running)))[..., running] for column in memory]
            for row, column in zip(rows, memory, strict=True):
                row[..., at] = column
            observed, parts = list(self.before[at].T), [column[at] for column in decided]
            _, memory = equations.step(observed, memory, parts, values)
        return list(rows)

    def thinned_steps(self) -> npt.NDArray[np.intp]:
        """Return the indices of at most about 4,000 steps: evenly spaced blocks, including the last."""
        every = -(-len(self) // MOST_FITTED)
        last = self.blocks[-1]
        return np.flatnonzero((last - self.blocks) % every == 0)


@dataclass(frozen=True, eq=False)
class FittedPlant:
    """A fitted plant: an ensemble of members with the same equations and different numbers."""

    equations: Equations  # with the numbers from which the fit began
    values: Column  # the numbers of each member, shape (members, K)
    low: Column  # lower bounds of predicted observations, shape (d,): the observed minimum, minus a margin
    high: Column  # upper bounds, likewise
    starts: Column  # the first observations of each episode, then its hidden states: shape (episodes, d + h)
    reward_outside: float  # of each step out of bounds; see `_reward_outside`
    seeks_end: bool  # whether a good policy ends the episode; see `_seeks_end`
    # Root mean square error of predictions one step ahead, as a share of the root mean square change, shape (d,): 1 is
    # as good as "nothing changes".
    error: Column
    error_ahead: Column | None  # the same `AHEAD` steps ahead; None if no episode is that long
    steps: int  # number of steps that it was fitted to

    @property
    def record(self) -> PlantRecord:
        """The summary of the plant, with the numbers of the first member."""
        names, ahead = self.equations.task.observation_names, self.error_ahead
        longer = [None] * len(names) if ahead is None else [to_digits(error, 4) for error in ahead.tolist()]
        each = zip(names, self.error.tolist(), longer, strict=True)
        errors = tuple(PredictionError(name, to_digits(one, 4), error) for name, one, error in each)
        return PlantRecord(self.equations.with_values(self.values[0]).to_text(), self.steps, errors)


def fit_plant(equations: Equations, data: Transitions, rng: np.random.Generator) -> FittedPlant:
    """Fit the numbers of a plant, from their current values, and its hidden states at the start of each episode.

    The fit minimises errors in predicting the reward and all observations one step ahead, each in units of its usual
    change. A residual far above the median counts by its size, not by its square. With hidden states, only some
    episodes are used, evenly spaced, so that at most 100 starts are fitted.
    """
    if equations.plant.hidden:
        data = data.of_at_most(max(2, MOST_STARTS // len(equations.plant.hidden)))
    values, hidden = np.tile(equations.values, (MEMBERS, 1)), _mean_starts(equations, data)
    groups = equations.groups()
    if equations.plant.hidden:  # all lines together
        groups = [(equations.predictions, np.arange(len(equations.values)))]
    for group in groups:
        values[:, group[1]], hidden = _Problem(equations, data, group, hidden).solve(MEMBERS - 1, rng)
    return with_errors(equations, values, data, hidden)


def with_errors(equations: Equations, values: Column, data: Transitions, hidden: Column | None = None) -> FittedPlant:
    """Return the plant with these numbers, and with the prediction errors of its first member on the data.

    Args:
        values: the numbers of each member, shape (members, K).
        hidden: the hidden states at the start of the episodes, shape (h, episodes); None: their means.
    """
    hidden = _mean_starts(equations, data) if hidden is None else hidden
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


def _mean_starts(equations: Equations, data: Transitions) -> Column:
    """Return the mean start of each hidden state for every episode, shape (h, episodes)."""
    means = [mean for mean, _ in equations.hidden_starts]
    return np.tile(np.array(means, np.float64)[:, None], (1, len(data.starts)))


def _reward_outside(data: Transitions) -> float:
    """Return the reward of each step out of bounds: the lowest seen, at most 0.

    It is 0 if the mean reward of steps that do not end an episode is positive: leaving the bounds then loses these
    rewards, and needs no penalty.
    """
    not_ending = data.rewards[~data.ended]
    return 0.0 if len(not_ending) and not_ending.mean() > 0 else min(0.0, float(data.rewards.min()))


def _seeks_end(equations: Equations, values: list[float], hidden: list[Column], data: Transitions) -> bool:
    """Whether steps have a cost, and, by the reward's equation, a step that ends the episode does not cost more."""
    if _reward_outside(data) >= 0 or not equations.plant.ends:
        return False

    def paid(ends: str) -> float:
        made = Equations(data.task, replace(equations.plant, ends=ends))
        memory, decided = data.memory(made, values, hidden), made.decided(data.actions)
        return float(np.mean(made.outcome(list(data.before.T), memory, decided, values, list(data.after.T))[0]))

    return paid("1 > 0") >= paid("0 > 1")


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
    """The least-squares problem of the numbers in a group of lines, and of hidden states at the start of each episode.

    The residuals are the lines' one-step prediction errors, in units of usual changes. The search begins with the
    current numbers and the states `hidden`, shape (h, episodes).
    """

    def __init__(self, equations: Equations, data: Transitions, group: Group, hidden: Column) -> None:
        lines, numbers = group
        self._equations, self._data, self._numbers, self._hidden = equations, data, numbers, hidden
        self._kept = kept = data.thinned_steps()
        self._decided = [column[kept] for column in equations.decided(data.actions)]
        seen = [*(f"{NEXT} {name}" for name in equations.task.observation_names), REWARD]
        targets = dict(zip(seen, [*data.after[kept].T, data.rewards[kept]], strict=True))
        scales = dict(zip(seen, [*data.rms_changes, data.rewards.std() or 1.0], strict=True))
        self._targets, self._scales = (np.array([some[line] for line in lines]) for some in (targets, scales))
        names = [*equations.inputs, *equations.inputs_after]
        self._predict = compiled([equations.computed[one] for one in lines], names, equations.definitions)
        self._memory = data.memory(equations, equations.values.tolist(), list(hidden))
        starts = np.array(equations.hidden_starts).reshape(-1, 2)
        self._means, self._spreads = starts[:, :1], np.maximum(starts[:, 1:], 1e-9)
        own, free = equations.limits[:, numbers], np.full((2, hidden.size), [[-np.inf], [np.inf]])
        self._low, self._high = np.concatenate([own, free], axis=1)

    def solve(self, samples: int, rng: np.random.Generator) -> tuple[Column, Column]:
        """Return the fitted numbers, shape (1 + samples, numbers), and hidden states, shape (h, episodes).

        The first row is the best fit, by Gauss-Newton steps that are damped if a full step does not help
        (Levenberg-Marquardt). The others fit bootstrap samples of blocks, by one such step from the first.
        """
        best = np.concatenate([self._equations.values[self._numbers], self._hidden.ravel()])
        residuals = self._residuals(best)
        for _ in range(MOST_STEPS):
            limit = _outlier_size(residuals)
            if limit == 0:
                break
            slopes, roots = self._jacobian(best), _root_weights(residuals, limit)
            error = _robust(residuals, limit).sum()
            for damping in DAMPINGS:
                moved = self._after_step(best, slopes, residuals, roots, damping)
                after = self._residuals(moved)
                gain = error - _robust(after, limit).sum()
                if gain > 0:
                    best, residuals = moved, after
                    break
            if gain <= SETTLED * error:
                break
        slopes, roots = self._jacobian(best), _root_weights(residuals, _outlier_size(residuals) or OUTLIER)
        found = [best]
        present, block = np.unique(self._data.blocks[self._kept], return_inverse=True)
        for _ in range(samples):
            drawn = np.bincount(rng.integers(len(present), size=len(present)), minlength=len(present))
            each = np.concatenate([np.tile(drawn[block], len(self._targets)), np.ones(self._hidden.size)])
            found.append(self._after_step(best, slopes, residuals, roots * np.sqrt(each), DAMPINGS[0]))
        numbers, hidden = np.split(np.stack(found), [len(self._numbers)], axis=1)
        return numbers, hidden[0].reshape(self._hidden.shape)

    def _after_step(self, theta: Column, slopes: Column, residuals: Column, roots: Column, damping: float) -> Column:
        """Return the numbers after a step within their limits; numbers at a limit do not affect the others' steps."""
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
        # A hidden state affects only the residuals of its own episode. So variant k moves state k in all episodes.
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
        """Return the residuals of all lines, shape (variants, lines * n); numbers may have the shape (variants, 1)."""
        values: list[Any] = self._equations.values.tolist()
        for index, value in zip(self._numbers.tolist(), numbers, strict=True):
            values[index] = value
        data, kept = self._data, self._kept
        memory = data.memory(self._equations, values, hidden) if len(hidden) else self._memory
        inputs = [*data.before[kept].T, *(column[..., kept] for column in memory), *self._decided, *values]
        with np.errstate(all="ignore"):
            found = self._predict([np.asarray(one, np.float64) for one in (*inputs, *data.after[kept].T)])
            each = zip(found, self._targets, self._scales, strict=True)
            parts = [_bounded((one - real) / scale, LARGEST_RESIDUAL) for one, real, scale in each]
        shape = (variants, len(kept))
        return np.concatenate([np.zeros((variants, 0)), *(np.broadcast_to(part, shape) for part in parts)], axis=1)


def _outlier_size(residuals: Column) -> float:
    """Return the size above which residuals are outliers; 0 if all are 0."""
    sizes = np.abs(residuals)
    return OUTLIER * float(np.median(sizes[sizes > 0])) if sizes.any() else 0.0


def _robust(residuals: Column, limit: float) -> Column:
    """Return about half the square of residuals below `limit`, and `limit` times the size of those far above it."""
    return np.asarray(limit**2 * (np.sqrt(1 + (residuals / limit) ** 2) - 1))


def _root_weights(residuals: Column, limit: float) -> Column:
    """Return the square roots of the weights with which weighted least squares has the same gradient as `_robust`."""
    return np.asarray((1 + (residuals / limit) ** 2) ** -0.25)


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
        damping: times n, added to the diagonal of the normal equations of columns scaled to root mean square 1.
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
