"""Fit the numbers of a plant to the transitions played, by robust least squares, and say how well it predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policygen.episodes.trajectory import Trajectory
from policygen.policies.cells import action_words
from policygen.policies.parts import ENDS
from policygen.policies.plant import NEXT, Column, Equations, Plant
from policygen.policies.shaping import REWARD
from policygen.quantities.compiled import compile_together
from policygen.quantities.tree import Call, Name, Node, names_in
from policygen.tasks.task import Task

MEMBERS = 4  # plants of an ensemble: the first fitted to all transitions, the others to bootstrap samples
BLOCK = 10  # consecutive steps that a bootstrap sample takes or leaves together: neighbours are nearly copies
MOST_FITTED = 4_000  # transitions of a fit; more are thinned out evenly, in blocks
AHEAD = 20  # steps over which predictions are tested, beside one
MARGIN = 0.3  # share of the range seen by which a prediction may leave it
MOST_STEPS = 12  # of the least-squares search
DAMPING = 1e-8
SETTLED = 1e-6  # a gain, as a share of the squared error, that ends the search
WRONG = 1e3  # a residual at most, in usual changes; one that is no number
WORST = 1e6  # an error at most, as an account states it
MOST_UNCERTAIN = 5  # numbers that an account names
UNCERTAIN = 0.1  # standard deviation of such a number, as a share of it, at least
OUTLIER = 10.0  # residuals beyond so many median residuals count less than their square
SLIGHT = 0.02  # an error of one step that is not fitted to longer predictions
MOST_AHEAD = 40  # numbers that are fitted to longer predictions: each of them plays all windows
MOST_WINDOWS = 150
BETTER = 0.8  # share of the squared error far ahead that the longer predictions must leave at most
PRIOR = 0.01  # how much the usual start of a hidden state counts: as one residual of so many usual changes
LEAST_UNIT = 1e-3  # of the search for numbers without a slope
MOST_TRIALS = 60  # of that search, for each number
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

    @property
    def episodes(self) -> int:
        """The number of episodes."""
        return int(np.count_nonzero(self.first))

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

    @cached_property
    def episode(self) -> npt.NDArray[np.intp]:
        """The index of the episode that each step belongs to: shape (n,)."""
        return np.asarray(np.cumsum(self.first) - 1, np.intp)

    def memory(self, equations: Equations, values: Sequence[Any], hidden: Sequence[Any] = ()) -> list[Column]:
        """Return what the plant remembers at each step, and its hidden states, while it observes what was real.

        Args:
            values: for each of `equations.values` a number, or an array of shape (variants, 1).
            hidden: each hidden state at the start of the episodes, shape (episodes,) or (variants, episodes).

        Returns:
            for each a column, shape (n,) or (variants, n).
        """
        starts = np.flatnonzero(self.first)
        memory: list[Any] = equations.memory(hidden, len(starts))
        if not memory:
            return []
        variants = next((np.shape(one)[:1] for one in (*values, *hidden) if np.ndim(one) == 2), ())
        rows = np.empty((len(memory), *variants, len(self)))
        decided, lengths = equations.decided(self.actions), np.diff([*starts, len(self)])
        for step in range(int(lengths.max())):
            left = lengths > step
            at, lengths = starts[left] + step, lengths[left]
            starts = starts[left]
            memory = [np.broadcast_to(column, (*variants, len(left)))[..., left] for column in memory]
            rows[..., at] = memory
            observed, parts = list(self.before[at].T), [column[at] for column in decided]
            _, memory = equations.step(observed, memory, parts, values)
        return list(rows)

    def thinned(self) -> npt.NDArray[np.intp]:
        """Return the indices of at most `MOST_FITTED` steps, in whole blocks, the last ones first to stay."""
        every = -(-len(self) // MOST_FITTED)
        last = self.blocks[-1]
        return np.flatnonzero((last - self.blocks) % every == 0)

    def windows(self) -> npt.NDArray[np.intp]:
        """Return the first steps of whole blocks of `BLOCK` steps, evenly spread, at most `MOST_WINDOWS` of them."""
        begins = np.flatnonzero(np.diff(self.blocks, prepend=-1))
        whole = begins[np.bincount(self.blocks) == BLOCK]
        every = max(1, -(-len(whole) // MOST_WINDOWS))
        return np.asarray(whole[::-1][::every][::-1], np.intp)


class PredictionError(NamedTuple):
    """The errors of predicting one observation, as a share of its change: 1 is as good as "nothing changes".

    Attributes:
        one: of one step.
        ahead: of `AHEAD` steps; None where no episode is that long.
    """

    name: str
    one: float
    ahead: float | None

    @property
    def larger(self) -> float:
        """The larger one of the two."""
        return max(self.one, self.ahead or 0.0)


class UncertainNumber(NamedTuple):
    """A number that the data leave uncertain: left-hand side of its line, value, standard deviation."""

    line: str
    value: float
    deviation: float


class PredictedValue(NamedTuple):
    """An observation before a step, after it, and as predicted for after it."""

    name: str
    before: float
    after: float
    predicted: float


class WorstPrediction(NamedTuple):
    """The step that is predicted worst.

    Attributes:
        step: its place in its episode; the first is 0.
        action: the action, in the task's words.
        row: all observations, the one predicted worst first.
    """

    step: int
    action: str
    row: tuple[PredictedValue, ...]


@dataclass(frozen=True, slots=True)
class PlantAccount:
    """A fitted plant in short, as an attempt records it and as prompts and reports show it.

    Attributes:
        text: its lines, with the fitted numbers.
        steps: number of transitions it was fitted to.
        errors: those of each observation.
        uncertain: the least certain numbers.
    """

    text: str
    steps: int
    errors: tuple[PredictionError, ...] = ()
    uncertain: tuple[UncertainNumber, ...] = ()
    worst: WorstPrediction | None = None


@dataclass(frozen=True, eq=False)
class FittedPlant:
    """A plant with its numbers fitted several times.

    Attributes:
        equations: the structure, with the numbers from which the fit began.
        values: the numbers of each member, shape (members, K).
        low, high: what an observation may be in a prediction, shape (d,): beyond it the data say nothing.
        starts: the first observations of the episodes, and then their hidden states: shape (episodes, d + h).
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
        """Return the plant in short, judged by the transitions that it was fitted to."""
        equations, names = self.equations, self.equations.task.observation_names
        one, ahead = self.error, self.error_ahead
        errors = [
            PredictionError(name, _short(one[i]), None if ahead is None else _short(ahead[i]))
            for i, name in enumerate(names)
        ]
        sizes = np.abs(self.values[0])
        shares = np.where(sizes > 0, self.deviations / np.maximum(sizes, 1e-300), 0.0)
        least = [k for k in np.argsort(-shares, kind="stable").tolist()[:MOST_UNCERTAIN] if shares[k] > UNCERTAIN]
        uncertain = [
            UncertainNumber(equations.places[k], _short(self.values[0][k]), _short(self.deviations[k])) for k in least
        ]
        return PlantAccount(self.plant.to_text(), self.steps, tuple(errors), tuple(uncertain), self._worst(data))

    def _worst(self, data: Transitions) -> WorstPrediction:
        equations, task = self.equations, self.equations.task
        names = task.observation_names
        found, _ = equations.step(
            list(data.before.T),
            data.memory(equations, list(self.values[0]), self.hidden),
            equations.decided(data.actions),
            list(self.values[0]),
        )
        predicted = np.stack([np.broadcast_to(column, len(data)) for column in found], axis=1)
        wrong = np.abs(_shares(predicted - data.after, data.spreads))
        at = int(wrong.max(axis=1).argmax())
        row = [
            PredictedValue(names[i], _short(data.before[at, i]), _short(data.after[at, i]), _short(predicted[at, i]))
            for i in np.argsort(-wrong[at], kind="stable").tolist()
        ]
        action = action_words(task.actuators, [_short(part) for part in np.atleast_1d(data.actions[at])])
        return WorstPrediction(int(at - np.flatnonzero(data.first[: at + 1])[-1]), action, tuple(row))

    def doubt(self, episodes: Sequence[Trajectory]) -> float:
        """Return how far the members disagree about the steps of an episode: shares of the region, summed."""
        data = Transitions.of(self.equations.task, episodes)
        values = list(self.values.T[:, :, None])
        hidden = list(_usual_starts(self.equations, data))
        memory, decided = data.memory(self.equations, values, hidden), self.equations.decided(data.actions)
        found, _ = self.equations.step(list(data.before.T), memory, decided, values)
        apart = [np.broadcast_to(column, (len(self.values), len(data))).std(axis=0) for column in found]
        room = self.high - self.low + 1e-12
        shares = [np.nan_to_num(one / width) for one, width in zip(apart, room, strict=True)]
        return float(np.sum(shares)) / max(1, data.episodes)

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
    """Fit the numbers of a plant, and its hidden states in each episode, starting from those it has.

    One-step predictions of all observations, each in units of its usual change, and of the reward. A residual far
    beyond the usual counts about as its size, not as its square (SciPy's `soft_l1`). Where these leave an error, the
    numbers are fitted again to predictions of `BLOCK` steps, which noise misleads less; those are kept if predictions
    far ahead are better for it.
    """
    kept = data.thinned()
    values = np.tile(equations.values, (members, 1))
    if not equations.plant.hidden:
        for lines, numbers in _independent(equations):
            problem = _Problem(equations, data, numbers, _one_step(equations, data, kept, lines))
            values[:, numbers], _ = problem.solved([_weights(data.blocks[kept], rng) for _ in range(members - 1)])
        found = fitted(equations, values, data, [])
    else:
        found = _fitted_ahead(equations, data, rng, members, None)
    if not SLIGHT < found.error.max() < 1 or len(equations.values) > MOST_AHEAD or found.error_ahead is None:
        return found
    longer = _fitted_ahead(equations, data, rng.spawn(1)[0], members, found)
    assert longer.error_ahead is not None
    return longer if (longer.error_ahead**2).sum() < BETTER * (found.error_ahead**2).sum() else found


def _fitted_ahead(
    equations: Equations, data: Transitions, rng: np.random.Generator, members: int, found: FittedPlant | None
) -> FittedPlant:
    """Fit all numbers at once: to predictions of one step, or of `BLOCK` steps, beginning with the numbers found."""
    begins = data.thinned() if found is None else data.windows()
    start = equations if found is None else Equations(equations.task, found.plant)
    numbers = np.arange(len(equations.values))
    steps = 1 if found is None else BLOCK
    hidden = _usual_starts(equations, data) if found is None else np.array(found.hidden).reshape(-1, data.episodes)
    residuals = _ahead(start, data, begins, steps)
    problem = _Problem(start, data, numbers, residuals, hidden)
    values, starts = problem.solved([_weights(data.blocks[begins], rng) for _ in range(members - 1)])
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
        _worst(data),
        _error(equations, values[0], hidden, data, 1),
        _error(equations, values[0], hidden, data, AHEAD) if _longest(data) >= AHEAD else None,
        len(data),
    )


def hidden_starts(equations: Equations, data: Transitions) -> list[Column]:
    """Return each hidden state at the start of the episodes, shape (episodes,), fitted to them."""
    if not equations.plant.hidden:
        return []
    residuals = _ahead(equations, data, data.thinned(), 1)
    nothing = np.zeros(0, np.intp)
    _, hidden = _Problem(equations, data, nothing, residuals, _usual_starts(equations, data)).solved([])
    return hidden


def _usual_starts(equations: Equations, data: Transitions) -> Column:
    means = [mean for mean, _ in equations.hidden_starts]
    return np.tile(np.array(means, np.float64)[:, None], (1, data.episodes))


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
class _Residuals:
    """What predictions miss, in parts of equal length: of one quantity, or of one quantity some steps ahead.

    Attributes:
        of: a function of the numbers of the plant and of its hidden states; one column of shape (n,) or (variants, n)
            per part.
        steps: for each part the steps that its rows are of.
    """

    of: Callable[[list[Any], Sequence[Any]], list[Any]]
    steps: Sequence[npt.NDArray[np.intp]]


def _one_step(equations: Equations, data: Transitions, kept: npt.NDArray[np.intp], lines: Sequence[str]) -> _Residuals:
    """Return the residuals of some lines at these steps."""
    memory = data.memory(equations, equations.values.tolist())
    inputs = [column[kept] for column in (*data.before.T, *memory, *equations.decided(data.actions))]
    after, names = list(data.after[kept].T), equations.task.observation_names
    targets = {f"{NEXT} {name}": column for name, column in zip(names, after, strict=True)}
    scales = {f"{NEXT} {name}": float(spread) for name, spread in zip(names, data.spreads, strict=True)}
    targets[REWARD], scales[REWARD] = data.rewards[kept], float(data.rewards.std()) or 1.0
    predict = compile_together(
        [equations.computed[line] for line in lines], [*equations.inputs, *equations.inputs_after]
    )

    def residuals(values: list[Any], _: Sequence[Any]) -> list[Any]:
        found = predict([*inputs, *values, *after])
        return [(one - targets[line]) / scales[line] for one, line in zip(found, lines, strict=True)]

    return _Residuals(residuals, [kept] * len(lines))


def _ahead(equations: Equations, data: Transitions, begins: npt.NDArray[np.intp], steps: int) -> _Residuals:
    """Return the residuals of predictions so many steps ahead, each in units of the usual change over that time."""
    moving = [i for i, name in enumerate(equations.task.observation_names) if f"{NEXT} {name}" in equations.computed]
    changes = [data.after[begins + step] - data.before[begins] for step in range(steps)]
    scales = [np.maximum(np.sqrt((change**2).mean(axis=0)), data.spreads) for change in changes]
    decided = equations.decided(data.actions)
    pays = REWARD in equations.computed
    paid = float(data.rewards.std()) or 1.0

    def residuals(values: list[Any], hidden: Sequence[Any]) -> list[Any]:
        memory = [column[..., begins] for column in data.memory(equations, values, hidden)]
        observed: list[Any] = list(data.before[begins].T)
        found = []
        for step in range(steps):
            at = begins + step
            parts = [column[at] for column in decided]
            if pays:
                reward, _ = equations.outcome(observed, memory, parts, values, list(data.after[at].T))
                found.append((reward - data.rewards[at]) / paid)
            observed, memory = equations.step(observed, memory, parts, values)
            found += [(observed[i] - data.after[at, i]) / scales[step][i] for i in moving]
        return found

    return _Residuals(residuals, [begins + step for step in range(steps) for _ in range(len(moving) + pays)])


class _Problem:
    """A least-squares problem: some numbers of a plant, and its hidden states at the start of each episode."""

    def __init__(
        self,
        equations: Equations,
        data: Transitions,
        numbers: npt.NDArray[np.intp],
        residuals: _Residuals,
        hidden: Column | None = None,
    ) -> None:
        self._all, self._numbers, self._of_values = equations.values, numbers, residuals.of
        self._counts = [len(some) for some in residuals.steps]
        self._episodes = data.episode[np.concatenate([np.zeros(0, np.intp), *residuals.steps])]
        self._hidden = np.zeros((0, data.episodes)) if hidden is None else hidden
        starts = np.array(equations.hidden_starts).reshape(-1, 2)[: len(self._hidden)]
        self._means, self._spreads = starts[:, :1], np.maximum(starts[:, 1:], 1e-9)
        without_slope = _without_slope(equations)
        self._stepwise = [place for place, number in enumerate(numbers.tolist()) if number in without_slope]

    def solved(self, samples: Sequence[Column]) -> tuple[Column, list[Column]]:
        """Return the numbers that fit best, and those of each bootstrap sample, one Gauss-Newton step from them.

        Args:
            samples: the weight of each step in a sample, shape (steps,).

        Returns:
            shape (1 + samples, numbers); and for each hidden state its starts, shape (episodes,).
        """
        from scipy.optimize import least_squares  # start-up time

        own = np.concatenate([self._all[self._numbers], self._hidden.ravel()])

        def solve(start: Column, **how: Any) -> Column:
            with np.errstate(all="ignore"):  # a number of 1e300 has no square
                found = least_squares(
                    self._residuals, start, self._jacobian, x_scale="jac", max_nfev=MOST_STEPS, ftol=SETTLED, **how
                )
            return np.asarray(found.x if np.isfinite(found.x).all() else own)

        if not len(own):
            return np.zeros((1 + len(samples), 0)), []
        best, settled = self._stepped(own)
        best = best if settled else solve(best)
        if self._stepwise:
            best = solve(self._searched(best))
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
            each = [np.tile(weights, len(self._counts)), np.ones(self._hidden.size)]
            found.append(best - _gauss_newton(residuals, slopes, np.sqrt(np.concatenate(each)) * robust))
        numbers, hidden = np.split(np.stack(found), [len(self._numbers)], axis=1)
        return numbers, list(hidden[0].reshape(self._hidden.shape))

    def _stepped(self, theta: Column) -> tuple[Column, bool]:
        """Take Gauss-Newton steps while they pay; return where they end, and whether that is the least.

        One step finds the least of residuals that are linear in the numbers; a general search would take several.
        """
        left = float((self._residuals(theta) ** 2).sum())
        for _ in range(MOST_STEPS):
            moved = theta - _gauss_newton(self._residuals(theta), self._jacobian(theta), np.ones(1))
            after = float((self._residuals(moved) ** 2).sum())
            if not after < left:
                return theta, after <= left * (1 + SETTLED)
            theta, gain, left = moved, left - after, after
            if gain <= SETTLED * left:
                return theta, True
        return theta, False

    def _searched(self, best: Column) -> Column:
        """Return the numbers with those that have no slope found by trial (Powell's method), the others following."""
        from scipy.optimize import minimize  # start-up time

        units = np.maximum(np.abs(best[self._stepwise]), LEAST_UNIT)

        def moved(shares: Column) -> Column:
            theta = best.copy()
            theta[self._stepwise] += shares * units
            change = _gauss_newton(self._residuals(theta), self._jacobian(theta), np.ones(1))
            change[self._stepwise] = 0.0
            return np.asarray(theta - change)

        def cost(shares: Column) -> float:
            return float(np.abs(self._residuals(moved(shares))).sum())

        found = minimize(cost, np.zeros(len(units)), method="Powell", options={"maxfev": MOST_TRIALS * len(units)})
        return moved(found.x) if found.fun < cost(np.zeros(len(units))) else best

    def _left(self, theta: Column) -> tuple[Column, float]:
        """Return the sizes of the residuals, and the usual one: the median of those that are not 0."""
        left = np.abs(self._residuals(theta))
        return left, float(np.median(left[left > 0])) if (left > 0).any() else 0.0

    def _parts(self, numbers: Sequence[Any], hidden: Sequence[Any]) -> list[Any]:
        """Return the residuals of each part, for numbers that may be columns of shape (variants, 1)."""
        values: list[Any] = self._all.tolist()
        for index, value in zip(self._numbers.tolist(), numbers, strict=True):
            values[index] = value
        with np.errstate(all="ignore"):
            found = self._of_values(values, hidden)
        return [np.nan_to_num(one, nan=WRONG, posinf=WRONG, neginf=-WRONG).clip(-WRONG, WRONG) for one in found]

    def _split(self, theta: Column) -> tuple[list[float], Column]:
        numbers, hidden = np.split(theta, [len(self._numbers)])
        return numbers.tolist(), hidden.reshape(self._hidden.shape)

    def _residuals(self, theta: Column) -> Column:
        numbers, hidden = self._split(theta)
        parts = zip(self._parts(numbers, list(hidden)), self._counts, strict=True)
        usual = PRIOR * (hidden - self._means) / self._spreads
        return np.concatenate([*(np.broadcast_to(part, count) for part, count in parts), usual.ravel()])

    def _jacobian(self, theta: Column) -> Column:
        """Return the derivatives by forward differences, many at once: shape (residuals, numbers and hidden states)."""
        here = self._residuals(theta)
        numbers, hidden = self._split(theta)
        n, width = sum(self._counts), len(theta)
        found = np.zeros((len(here), width))
        steps = 1e-6 * np.maximum(np.abs(theta), 1e-3)
        for some in np.array_split(np.arange(len(numbers)), -(-len(numbers) * n // _MOST_AT_ONCE) or 1):
            moved: list[Any] = list(numbers)
            for place, index in enumerate(some.tolist()):
                moved[index] = np.full((len(some), 1), theta[index])
                moved[index][place] += steps[index]
            if len(some):
                found[:n, some] = (self._joined(moved, list(hidden), len(some)) - here[:n]).T / steps[some]
        # The hidden state of an episode moves the residuals of that episode alone: all episodes are moved at once.
        for k, row in enumerate(hidden):
            columns = len(numbers) + k * len(row) + np.arange(len(row))
            moved = [*hidden[:k], row + steps[columns], *hidden[k + 1 :]]
            of = columns[self._episodes]
            found[np.arange(n), of] = (self._joined(numbers, moved, 1)[0] - here[:n]) / steps[of]
            found[n + columns - len(numbers), columns] = PRIOR / self._spreads[k, 0]
        return found

    def _joined(self, numbers: Sequence[Any], hidden: Sequence[Any], variants: int) -> Column:
        parts = zip(self._parts(numbers, hidden), self._counts, strict=True)
        return np.concatenate([np.broadcast_to(part, (variants, count)) for part, count in parts], axis=1)


def _gauss_newton(residuals: Column, slopes: Column, weights: Column) -> Column:
    """Return the step by which a little damped least squares would lessen the numbers; nothing if it is not finite."""
    sizes = np.sqrt((slopes**2).mean(axis=0)) + 1e-12
    scaled = slopes / sizes * weights[:, None]
    gram = scaled.T @ scaled
    gram[np.diag_indices(len(gram))] += DAMPING * len(scaled)
    with np.errstate(all="ignore"):
        step = np.linalg.solve(gram, scaled.T @ (residuals * weights)) / sizes
    return np.asarray(step if np.isfinite(step).all() else np.zeros(len(sizes)))


_STEPS = {"<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "floor", "sign"}  # functions that have no slope


def _without_slope(equations: Equations) -> set[int]:
    """Return the numbers that only conditions and other functions without a slope read, by index."""

    def sloping(node: Node) -> set[str]:
        if isinstance(node, Call):
            return set() if node.function in _STEPS else set().union(*map(sloping, node.arguments))
        return {node.name} if isinstance(node, Name) else set()

    lines = [node for line, node in equations.computed.items() if not line.startswith("let ") and line != ENDS]
    read = set().union(*map(names_in, lines)) - set().union(*map(sloping, lines))
    return {int(name[1:]) for name in read if name.startswith("#")}


def _longest(data: Transitions) -> int:
    return int(np.diff([*np.flatnonzero(data.first), len(data)]).max())


def _short(value: float) -> float:
    """Round to 4 significant digits."""
    return float(f"{value:.4g}") if np.isfinite(value) else WORST


def _error(equations: Equations, values: Column, hidden: Sequence[Column], data: Transitions, steps: int) -> Column:
    """Return the error of predictions so many steps ahead, as a share of the change."""
    n = len(data)
    begins = np.arange(n - steps + 1)
    begins = begins[data.episode[begins] == data.episode[begins + steps - 1]][:: max(1, n // 2_000)]
    memory = [column[begins] for column in data.memory(equations, values.tolist(), hidden)]
    decided = equations.decided(data.actions)
    observed: list[Any] = list(data.before[begins].T)
    for step in range(steps):
        observed, memory = equations.step(observed, memory, [part[begins + step] for part in decided], values.tolist())
    found = np.stack([np.broadcast_to(column, len(begins)) for column in observed], axis=1)
    truth = data.after[begins + steps - 1]
    change = np.sqrt(((truth - data.before[begins]) ** 2).mean(axis=0))
    wrong = np.sqrt((_shares(found - truth, np.maximum(change, 1e-9)) ** 2).mean(axis=0))
    return np.asarray(np.where(change > 1e-9, wrong, 0.0))


def _shares(wrong: Column, usual: Column) -> Column:
    """Return errors in units of the usual change, at most `WORST` of them."""
    with np.errstate(all="ignore"):
        return np.nan_to_num(wrong / usual, nan=WORST, posinf=WORST, neginf=-WORST).clip(-WORST, WORST)
