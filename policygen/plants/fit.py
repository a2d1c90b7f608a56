"""Fit the numbers of a plant to the transitions played, by robust least squares, and say how well it predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.policies.plant import NEXT, Column, Equations, Plant
from policygen.policies.shaping import REWARD
from policygen.quantities.compiled import compile_together
from policygen.quantities.tree import names_in
from policygen.tasks.task import Task

MEMBERS = 4  # plants of an ensemble: the first fitted to all transitions, the others to bootstrap samples
BLOCK = 10  # consecutive steps that a bootstrap sample takes or leaves together: neighbours are nearly copies
MOST_FITTED = 4_000  # transitions of a fit; more are thinned out evenly, in blocks
AHEAD = 20  # steps over which predictions are tested, beside one
MARGIN = 0.3  # share of the range seen by which a prediction may leave it
MOST_STEPS = 12  # of the least-squares search
DAMPING = 1e-8
WRONG = 1e3  # a residual at most, in usual changes; one that is no number
WORST = 1e6  # an error at most, as an account states it
MOST_UNCERTAIN = 5  # numbers that an account names
UNCERTAIN = 0.1  # standard deviation of such a number, as a share of it, at least
OUTLIER = 10.0  # residuals beyond so many median residuals count less than their square
ROBUST_FITS = 3  # at most, each with the usual residual of the last
_MOST_AT_ONCE = 2_000_000  # numbers of one array while derivatives are computed


@dataclass(frozen=True, eq=False)
class Transitions:
    """The steps of episodes as arrays, in order.

    Attributes:
        before, after: observations, shape (n, d).
        actions: shape (n,) or (n, m).
        rewards: shape (n,).
        ended: whether the environment ended the episode after the step, shape (n,).
        first: whether the step is the first of its episode, shape (n,).
    """

    task: Task
    before: Column
    after: Column
    actions: npt.NDArray[Any]
    rewards: Column
    ended: npt.NDArray[np.bool_]
    first: npt.NDArray[np.bool_]

    @staticmethod
    def of(task: Task, episodes: Sequence[Trajectory]) -> Transitions:
        """Return the steps of these episodes; there must be at least one."""
        episodes = [episode for episode in episodes if episode.length]
        starts = np.cumsum([0, *(episode.length for episode in episodes)])
        first, ended = np.zeros((2, starts[-1]), np.bool_)
        first[starts[:-1]] = True
        ended[starts[1:] - 1] = [episode.terminated for episode in episodes]
        return Transitions(
            task,
            np.concatenate([episode.observations[:-1] for episode in episodes]).astype(np.float64),
            np.concatenate([episode.observations[1:] for episode in episodes]).astype(np.float64),
            np.concatenate([episode.actions for episode in episodes]),
            np.concatenate([episode.rewards for episode in episodes]).astype(np.float64),
            ended,
            first,
        )

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def blocks(self) -> npt.NDArray[np.intp]:
        """The block of `BLOCK` steps, or fewer at the end of an episode, that each step belongs to: shape (n,)."""
        starts = np.flatnonzero(self.first)
        within = np.arange(len(self)) - np.repeat(starts, np.diff([*starts, len(self)]))
        return np.asarray(np.cumsum(within % BLOCK == 0) - 1, np.intp)

    @cached_property
    def spreads(self) -> Column:
        """The root mean square of each observation's change in a step, at least a millionth of its spread: (d,)."""
        changes = np.sqrt(((self.after - self.before) ** 2).mean(axis=0))
        least = 1e-6 * self.before.std(axis=0)
        return np.asarray(np.where(changes > least, changes, np.maximum(least, 1e-9)))

    def memory(self, equations: Equations) -> list[Column]:
        """Return what the plant remembers at each step: a column for each of `equations.remembered`."""
        width = len(equations.remembered)
        if not width:
            return []
        decided = equations.decided(self.actions)
        rows, memory = np.full((len(self), width), np.nan), [np.nan] * width
        for i, (observed, first) in enumerate(zip(self.before.tolist(), self.first.tolist(), strict=True)):
            rows[i] = memory = [np.nan] * width if first else memory
            parts = [column[i] for column in decided]
            memory = [float(value) for value in equations.step(observed, memory, parts, equations.values)[1]]
        return list(rows.T)

    def thinned(self) -> npt.NDArray[np.intp]:
        """Return the indices of at most `MOST_FITTED` steps, in whole blocks, the last ones first to stay."""
        every = -(-len(self) // MOST_FITTED)
        last = self.blocks[-1]
        return np.flatnonzero((last - self.blocks) % every == 0)


@dataclass(frozen=True, slots=True)
class PlantAccount:
    """A fitted plant in short, as an attempt records it and as prompts and reports show it.

    Attributes:
        text: its lines, with the fitted numbers.
        steps: number of transitions it was fitted to.
        errors: for each observation its name, the error of one step, and that of `AHEAD` steps (None where no episode
            is that long); each as a share of the change over that time, so that 1 is as good as "nothing changes".
        uncertain: the least certain numbers: left-hand side of the line, number, standard deviation.
        worst: where one step is predicted worst: observation, value before, after, predicted, and its step in the data.
    """

    text: str
    steps: int
    errors: tuple[tuple[str, float, float | None], ...] = ()
    uncertain: tuple[tuple[str, float, float], ...] = ()
    worst: tuple[str, float, float, float, int] | None = None


@dataclass(frozen=True, eq=False)
class FittedPlant:
    """A plant with its numbers fitted several times.

    Attributes:
        equations: the structure, with the numbers from which the fit began.
        values: the numbers of each member, shape (members, K).
        low, high: what an observation may be in a prediction, shape (d,): beyond it the data say nothing.
        starts: the first observations of the episodes, shape (episodes, d).
        worst: what each step beyond the data pays, at most 0: the least seen, or 0 where a step usually pays more.
        steps: number of transitions it was fitted to.
        error, error_ahead: of one step, and of `AHEAD` steps (None where no episode is that long): for each
            observation the root mean square, as a share of the change over that time. 1 is as good as "nothing
            changes".
    """

    equations: Equations
    values: Column
    low: Column
    high: Column
    starts: Column
    worst: float
    error: Column
    error_ahead: Column | None
    steps: int

    @property
    def plant(self) -> Plant:
        """The plant with the numbers of the first member."""
        return self.equations.with_values(self.values[0])

    def account(self, data: Transitions) -> PlantAccount:
        """Return the plant in short, judged by these transitions."""
        equations, names = self.equations, self.equations.task.observation_names
        one, ahead = self.error, self.error_ahead
        errors = [
            (name, _short(float(one[i])), None if ahead is None else _short(float(ahead[i])))
            for i, name in enumerate(names)
        ]
        sizes = np.abs(self.values[0])
        shares = np.where(sizes > 0, self.deviations / np.maximum(sizes, 1e-300), 0.0)
        least = [k for k in np.argsort(-shares, kind="stable").tolist()[:MOST_UNCERTAIN] if shares[k] > UNCERTAIN]
        uncertain = [
            (equations.places[k], _short(float(self.values[0][k])), _short(float(self.deviations[k]))) for k in least
        ]
        found, _ = equations.step(
            list(data.before.T), data.memory(equations), equations.decided(data.actions), list(self.values[0])
        )
        wrong = np.stack([np.broadcast_to(column, len(data)) for column in found], axis=1) - data.after
        wrong = np.abs(_shares(wrong, data.spreads))
        row, i = np.unravel_index(int(wrong.argmax()), wrong.shape)
        step = int(row - np.flatnonzero(data.first[: row + 1])[-1])
        predicted = _short(float(np.broadcast_to(found[i], len(data))[row]))
        before, after = _short(float(data.before[row, i])), _short(float(data.after[row, i]))
        worst = (names[i], before, after, predicted, step)
        return PlantAccount(self.plant.to_text(), self.steps, tuple(errors), tuple(uncertain), worst)

    @property
    def deviations(self) -> Column:
        """The standard deviation of each number over the members, shape (K,)."""
        with np.errstate(all="ignore"):  # numbers of 1e308 have no sum
            return np.asarray((self.values - self.values[0]).std(axis=0))


def fit_plant(equations: Equations, data: Transitions, rng: np.random.Generator, members: int = MEMBERS) -> FittedPlant:
    """Fit the numbers of a plant, starting from those it has.

    One-step predictions of all observations, each in units of its usual change, and of the reward. A residual far
    beyond the usual counts about as its size, not as its square (SciPy's `soft_l1`).
    """
    kept = data.thinned()
    memory = data.memory(equations)
    columns = [*data.before.T, *memory, *equations.decided(data.actions)]
    names, after = equations.task.observation_names, list(data.after[kept].T)
    targets = {f"{NEXT} {name}": column for name, column in zip(names, after, strict=True)}
    scales = {f"{NEXT} {name}": float(spread) for name, spread in zip(names, data.spreads, strict=True)}
    targets[REWARD], scales[REWARD] = data.rewards[kept], float(data.rewards.std()) or 1.0
    steps = _Steps([column[kept] for column in columns], after, targets, scales)
    values = np.tile(equations.values, (members, 1))
    for lines, numbers in _independent(equations):
        problem = _Problem(equations, steps, lines, numbers)
        values[:, numbers] = problem.solved([_weights(data.blocks[kept], rng) for _ in range(members - 1)])
    return fitted(equations, values, data)


def fitted(equations: Equations, values: Column, data: Transitions) -> FittedPlant:
    """Return a plant with these numbers for its members, and how well the first one predicts the data."""
    both = np.concatenate([data.before, data.after])
    low, high = both.min(axis=0), both.max(axis=0)
    room = MARGIN * (high - low)
    return FittedPlant(
        equations,
        values,
        low - room,
        high + room,
        data.before[data.first],
        _worst(data),
        _error(equations, values[0], data, 1),
        _error(equations, values[0], data, AHEAD) if _longest(data) >= AHEAD else None,
        len(data),
    )


def _worst(data: Transitions) -> float:
    """Return what each step beyond the data pays: the least seen, or 0 where steps that end no episode pay on average.

    There an episode that ends has lost enough; a price beside it would make an early end the better way out.
    """
    going = data.rewards[~data.ended]
    return 0.0 if len(going) and going.mean() > 0 else min(0.0, float(data.rewards.min()))


def _weights(blocks: npt.NDArray[np.intp], rng: np.random.Generator) -> Column:
    """Return the weight of each step in a bootstrap sample of blocks."""
    present, place = np.unique(blocks, return_inverse=True)
    drawn = np.bincount(rng.integers(len(present), size=len(present)), minlength=len(present))
    return np.asarray(drawn[place], np.float64)


def _independent(equations: Equations) -> list[tuple[list[str], npt.NDArray[np.intp]]]:
    """Return groups of lines that share numbers, each with the indices of its numbers; no number is in two groups."""
    groups: list[tuple[list[str], set[int]]] = []
    for line, node in equations.computed.items():
        numbers = {int(name[1:]) for name in names_in(node) if name.startswith("#")}
        if not numbers or not (line == REWARD or line.startswith(f"{NEXT} ")):
            continue
        lines = [line]
        for group in [group for group in groups if group[1] & numbers]:
            groups.remove(group)
            lines, numbers = group[0] + lines, group[1] | numbers
        groups.append((lines, numbers))
    # A number of a quantity that the motion shares with the reward is fitted to both.
    return [(lines, np.array(sorted(numbers), np.intp)) for lines, numbers in groups]


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps that a plant is fitted to: one column, of shape (steps,), per quantity.

    Attributes:
        inputs: the columns of `equations.inputs` that are no numbers of the plant.
        after: the observations after the step.
        targets: the values that each line should compute, by its left-hand side.
        scales: the unit of each line's residuals.
    """

    inputs: Sequence[Column]
    after: Sequence[Column]
    targets: Mapping[str, Column]
    scales: Mapping[str, float]


class _Problem:
    """The least-squares problem of some lines of a plant."""

    def __init__(
        self, equations: Equations, steps: _Steps, lines: Sequence[str], numbers: npt.NDArray[np.intp]
    ) -> None:
        names = [*equations.inputs, *equations.inputs_after]
        self._predict = compile_together([equations.computed[line] for line in lines], names)
        self._columns, self._after = list(steps.inputs), list(steps.after)
        self._targets = [steps.targets[line] for line in lines]
        self._scales = [steps.scales[line] for line in lines]
        self._numbers, self._start = numbers, equations.values

    def solved(self, samples: Sequence[Column]) -> Column:
        """Return the numbers that fit best, and those of each bootstrap sample, one Gauss-Newton step from them.

        Args:
            samples: the weight of each step in a sample, shape (steps,).

        Returns:
            shape (1 + samples, numbers).
        """
        from scipy.optimize import least_squares  # start-up time

        own = self._start[self._numbers]

        def solve(start: Column, **how: Any) -> Column:
            with np.errstate(all="ignore"):  # a number of 1e300 has no square
                found = least_squares(
                    self._residuals, start, self._jacobian, x_scale="jac", max_nfev=MOST_STEPS, ftol=1e-6, **how
                )
            return np.asarray(found.x if np.isfinite(found.x).all() else own)

        best = solve(own)
        left, usual = self._left(best)
        if (first := self._left(own))[1] < usual:  # outliers drew the numbers away from where they were
            best, (left, usual) = own, first
        for _ in range(ROBUST_FITS):
            if usual == 0 or not (left > OUTLIER * usual).any():
                break
            best, before = solve(best, loss="soft_l1", f_scale=OUTLIER / 3 * usual), usual
            left, usual = self._left(best)
            if usual > before / 2:  # what was usual before was not itself spoilt by outliers
                break
        # The weight that the robust loss gives each residual.
        robust = 1 / np.sqrt(1 + (left / (OUTLIER / 3 * usual)) ** 2) if usual > 0 else np.ones_like(left)
        residuals, slopes = self._residuals(best), self._jacobian(best)
        found = [best]
        for weights in samples:
            root = np.sqrt(np.tile(weights, len(self._targets)) * robust)
            sizes = np.sqrt((slopes**2).mean(axis=0)) + 1e-12
            scaled = slopes / sizes * root[:, None]
            gram = scaled.T @ scaled
            gram[np.diag_indices(len(gram))] += DAMPING * len(scaled)
            with np.errstate(all="ignore"):
                member = best - np.linalg.solve(gram, scaled.T @ (residuals * root)) / sizes
            found.append(member if np.isfinite(member).all() else best)
        return np.stack(found)

    def _left(self, theta: Column) -> tuple[Column, float]:
        """Return the sizes of the residuals, and the usual one: the median of those that are not 0."""
        left = np.abs(self._residuals(theta))
        return left, float(np.median(left[left > 0])) if (left > 0).any() else 0.0

    def _predicted(self, theta: Sequence[Any]) -> list[Any]:
        """Return the scaled residuals of each line, for numbers that may be columns of shape (variants, 1)."""
        values: list[Any] = list(self._start)
        for index, value in zip(self._numbers.tolist(), theta, strict=True):
            values[index] = value
        with np.errstate(all="ignore"):
            found = self._predict([*self._columns, *values, *self._after])
            scaled = [(p - t) / s for p, t, s in zip(found, self._targets, self._scales, strict=True)]
        return [np.nan_to_num(one, nan=WRONG, posinf=WRONG, neginf=-WRONG).clip(-WRONG, WRONG) for one in scaled]

    def _residuals(self, theta: Column) -> Column:
        n = len(self._targets[0])
        return np.concatenate([np.broadcast_to(part, n) for part in self._predicted(theta.tolist())])

    def _jacobian(self, theta: Column) -> Column:
        """Return the derivatives by forward differences, many at once: shape (residuals, numbers)."""
        n, here = len(self._targets[0]), self._residuals(theta)
        steps = 1e-6 * np.maximum(np.abs(theta), 1e-3)
        rows = []
        for some in np.array_split(np.arange(len(theta)), -(-len(theta) * n // _MOST_AT_ONCE)):
            moved: list[Any] = theta.tolist()
            for place, index in enumerate(some.tolist()):
                moved[index] = np.full((len(some), 1), theta[index])
                moved[index][place] += steps[index]
            parts = [np.broadcast_to(part, (len(some), n)) for part in self._predicted(moved)]
            rows.append((np.concatenate(parts, axis=1) - here) / steps[some, None])
        return np.concatenate(rows).T


def _longest(data: Transitions) -> int:
    return int(np.diff([*np.flatnonzero(data.first), len(data)]).max())


def _short(value: float) -> float:
    """Round to 4 significant digits."""
    return float(f"{value:.4g}") if np.isfinite(value) else WORST


def _error(equations: Equations, values: Column, data: Transitions, steps: int) -> Column:
    """Return the error of predictions so many steps ahead, as a share of the change."""
    n = len(data)
    episode = np.cumsum(data.first)
    begins = np.arange(n - steps + 1)
    begins = begins[episode[begins] == episode[begins + steps - 1]][:: max(1, n // 2_000)]
    memory = [column[begins] for column in data.memory(equations)]
    decided = equations.decided(data.actions)
    observed: list[Any] = list(data.before[begins].T)
    for step in range(steps):
        observed, memory = equations.step(observed, memory, [part[begins + step] for part in decided], values)
    found = np.stack([np.broadcast_to(column, len(begins)) for column in observed], axis=1)
    truth = data.after[begins + steps - 1]
    change = np.sqrt(((truth - data.before[begins]) ** 2).mean(axis=0))
    wrong = np.sqrt((_shares(found - truth, np.maximum(change, 1e-9)) ** 2).mean(axis=0))
    return np.asarray(np.where(change > 1e-9, wrong, 0.0))


def _shares(wrong: Column, usual: Column) -> Column:
    """Return errors in units of the usual change, at most `WORST` of them."""
    with np.errstate(all="ignore"):
        return np.nan_to_num(wrong / usual, nan=WORST, posinf=WORST, neginf=-WORST).clip(-WORST, WORST)
