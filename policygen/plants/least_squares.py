"""Least squares for the numbers of a plant: the residuals of predictions, and the numbers that minimise them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.plants.transitions import Transitions
from policygen.policies.parts import ENDS
from policygen.policies.plant import NEXT, Column, Equations
from policygen.policies.shaping import REWARD
from policygen.quantities.tree import Call, Name, Node, names_in

MOST_STEPS = 12  # of a least-squares search
DAMPING = 1e-8  # added to the diagonal of the normal equations, whose columns have size 1
SETTLED = 1e-6  # a smaller reduction of the squared error, as a share of it, ends a search
LARGEST_RESIDUAL = 1e3  # largest residual, in usual changes; also stands for NaN
OUTLIER = 10.0  # residuals above this multiple of the median count less than their square
PRIOR = 0.01  # weight of a hidden state's usual start, as a residual of this many usual changes
LEAST_UNIT = 1e-3  # of the trial search for numbers without a slope
MOST_TRIALS = 60  # of that search, for each number
ROBUST_FITS = 3  # maximum; each takes the usual residual of the fit before
_MOST_AT_ONCE = 2_000_000  # numbers of one array while derivatives are computed


@dataclass(frozen=True, slots=True)
class Residuals:
    """The residuals of predictions, in parts of equal length: each of one quantity, one or several steps ahead.

    Attributes:
        compute: a function of the plant's numbers and hidden states that returns a column per part: shape (n,), or
            (variants, n) for several variants of the numbers.
        steps: for each part the steps that its rows belong to.
    """

    compute: Callable[[list[Any], Sequence[Any]], list[Any]]
    steps: Sequence[npt.NDArray[np.intp]]


def one_step_residuals(
    equations: Equations, data: Transitions, kept: npt.NDArray[np.intp], lines: Sequence[str]
) -> Residuals:
    """Return the residuals of some lines at these steps."""
    memory = data.memory(equations, equations.values.tolist())
    inputs = [column[kept] for column in (*data.before.T, *memory, *equations.decided(data.actions))]
    after, names = list(data.after[kept].T), equations.task.observation_names
    targets = {f"{NEXT} {name}": column for name, column in zip(names, after, strict=True)}
    scales = {f"{NEXT} {name}": float(change) for name, change in zip(names, data.rms_changes, strict=True)}
    targets[REWARD], scales[REWARD] = data.rewards[kept], float(data.rewards.std()) or 1.0
    predict = equations.compiled(
        [equations.computed[line] for line in lines], [*equations.inputs, *equations.inputs_after]
    )

    def residuals(values: list[Any], _: Sequence[Any]) -> list[Any]:
        found = predict([*inputs, *values, *after])
        return [(one - targets[line]) / scales[line] for one, line in zip(found, lines, strict=True)]

    return Residuals(residuals, [kept] * len(lines))


def residuals_ahead(equations: Equations, data: Transitions, begins: npt.NDArray[np.intp], steps: int) -> Residuals:
    """Return the residuals of predictions `steps` steps ahead, each in units of the usual change over that time."""
    moving = [i for i, name in enumerate(equations.task.observation_names) if f"{NEXT} {name}" in equations.computed]
    changes = [data.after[begins + step] - data.before[begins] for step in range(steps)]
    scales = [np.maximum(np.sqrt((change**2).mean(axis=0)), data.rms_changes) for change in changes]
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

    return Residuals(residuals, [begins + step for step in range(steps) for _ in range(len(moving) + pays)])


class LeastSquares:
    """A least-squares problem: some numbers of a plant, and its hidden states at the start of each episode."""

    def __init__(
        self,
        equations: Equations,
        data: Transitions,
        numbers: npt.NDArray[np.intp],
        residuals: Residuals,
        hidden: Column | None = None,
    ) -> None:
        self._all, self._numbers, self._compute = equations.values, numbers, residuals.compute
        self._counts = [len(some) for some in residuals.steps]
        self._episodes = data.episode_index[np.concatenate([np.zeros(0, np.intp), *residuals.steps])]
        self._hidden = np.zeros((0, data.episode_count)) if hidden is None else hidden
        starts = np.array(equations.hidden_starts).reshape(-1, 2)[: len(self._hidden)]
        self._means, self._spreads = starts[:, :1], np.maximum(starts[:, 1:], 1e-9)
        own, free = equations.limits[:, numbers], np.full((2, self._hidden.size), [[-np.inf], [np.inf]])
        self._low, self._high = np.concatenate([own, free], axis=1)
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
                bounds = (self._low, self._high)
                found = least_squares(
                    self._residuals,
                    start,
                    self._jacobian,
                    bounds,
                    x_scale="jac",
                    max_nfev=MOST_STEPS,
                    ftol=SETTLED,
                    **how,
                )
            return np.asarray(found.x if np.isfinite(found.x).all() else own)

        if not len(own):
            return np.zeros((1 + len(samples), 0)), []
        best, settled = self._stepped(own)
        best = best if settled else solve(best)
        if self._stepwise:
            best = solve(self._searched(best))
        sizes, usual = self._residual_sizes(best)
        if (first := self._residual_sizes(own))[1] < usual:  # outliers made the fit worse than the first numbers
            best, (sizes, usual) = own, first
        for _ in range(ROBUST_FITS):
            if usual == 0 or not (sizes > OUTLIER * usual).any():
                break
            best, before = solve(best, loss="soft_l1", f_scale=OUTLIER / 3 * usual), usual
            sizes, usual = self._residual_sizes(best)
            if usual > before / 2:  # outliers had not distorted the last usual residual
                break
        # The weight of each residual under the robust loss.
        robust = 1 / np.sqrt(1 + (sizes / (OUTLIER / 3 * usual)) ** 2) if usual > 0 else np.ones_like(sizes)
        residuals, slopes = self._residuals(best), self._jacobian(best)
        found = [best]
        for weights in samples:
            each = [np.tile(weights, len(self._counts)), np.ones(self._hidden.size)]
            found.append(self._within(best - _gauss_newton(residuals, slopes, np.sqrt(np.concatenate(each)) * robust)))
        numbers, hidden = np.split(np.stack(found), [len(self._numbers)], axis=1)
        return numbers, list(hidden[0].reshape(self._hidden.shape))

    def _within(self, theta: Column) -> Column:
        return np.clip(theta, self._low, self._high)

    def _stepped(self, theta: Column) -> tuple[Column, bool]:
        """Take Gauss-Newton steps while they reduce the error; return the numbers, and whether they are a minimum.

        One step finds the minimum if residuals are linear in the numbers; a general search would take several.
        """
        error = float((self._residuals(theta) ** 2).sum())
        for _ in range(MOST_STEPS):
            moved = self._within(theta - _gauss_newton(self._residuals(theta), self._jacobian(theta), np.ones(1)))
            after = float((self._residuals(moved) ** 2).sum())
            if not after < error:
                return theta, after <= error * (1 + SETTLED)
            theta, gain, error = moved, error - after, after
            if gain <= SETTLED * error:
                return theta, True
        return theta, False

    def _searched(self, best: Column) -> Column:
        """Search for numbers without a slope by trials (Powell's method); each trial refits the others by one step."""
        from scipy.optimize import minimize  # start-up time

        room = (self._high - self._low)[self._stepwise]
        units = np.where(np.isfinite(room), room, np.maximum(np.abs(best[self._stepwise]), LEAST_UNIT))

        def moved(shares: Column) -> Column:
            theta = best.copy()
            theta[self._stepwise] += shares * units
            change = _gauss_newton(self._residuals(theta), self._jacobian(theta), np.ones(1))
            change[self._stepwise] = 0.0
            return self._within(theta - change)

        def cost(shares: Column) -> float:
            return float(np.abs(self._residuals(moved(shares))).sum())

        found = minimize(cost, np.zeros(len(units)), method="Powell", options={"maxfev": MOST_TRIALS * len(units)})
        return moved(found.x) if found.fun < cost(np.zeros(len(units))) else best

    def _residual_sizes(self, theta: Column) -> tuple[Column, float]:
        """Return the sizes of the residuals, and the usual one: the median of those that are not 0."""
        sizes = np.abs(self._residuals(theta))
        return sizes, float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 0.0

    def _split(self, theta: Column) -> tuple[list[float], Column]:
        numbers, hidden = np.split(theta, [len(self._numbers)])
        return numbers.tolist(), hidden.reshape(self._hidden.shape)

    def _residuals(self, theta: Column) -> Column:
        numbers, hidden = self._split(theta)
        usual = PRIOR * (hidden - self._means) / self._spreads
        return np.concatenate([self._joined(numbers, list(hidden), 1)[0], usual.ravel()])

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
        """Return the residuals of all parts, for numbers that may be columns of shape (variants, 1)."""
        values: list[Any] = self._all.tolist()
        for index, value in zip(self._numbers.tolist(), numbers, strict=True):
            values[index] = value
        with np.errstate(all="ignore"):
            found = self._compute(values, hidden)
        found = [
            np.nan_to_num(part, nan=LARGEST_RESIDUAL, posinf=LARGEST_RESIDUAL, neginf=-LARGEST_RESIDUAL).clip(
                -LARGEST_RESIDUAL, LARGEST_RESIDUAL
            )
            for part in found
        ]
        parts = [np.broadcast_to(part, (variants, n)) for part, n in zip(found, self._counts, strict=True)]
        return np.asarray(np.concatenate([np.zeros((variants, 0)), *parts], axis=1))


def _gauss_newton(residuals: Column, slopes: Column, weights: Column) -> Column:
    """Return the slightly damped least-squares step, to be subtracted from the numbers; zeros if it is not finite."""
    sizes = np.sqrt((slopes**2).mean(axis=0)) + 1e-12
    scaled = slopes / sizes * weights[:, None]
    gram = scaled.T @ scaled
    gram[np.diag_indices(len(gram))] += DAMPING * len(scaled)
    with np.errstate(all="ignore"):
        step = np.linalg.solve(gram, scaled.T @ (residuals * weights)) / sizes
    return np.asarray(step if np.isfinite(step).all() else np.zeros(len(sizes)))


_WITHOUT_SLOPE = {"<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "floor", "sign"}  # functions that have no slope


def _without_slope(equations: Equations) -> set[int]:
    """Return the numbers that only conditions and other functions without a slope read, by index."""

    through: dict[str, set[str]] = {}

    def sloping(node: Node) -> set[str]:
        if isinstance(node, Call):
            return set() if node.function in _WITHOUT_SLOPE else set().union(*map(sloping, node.arguments))
        return through.get(node.name, {node.name}) if isinstance(node, Name) else set()

    for name, node in equations.definitions.items():
        through[name] = sloping(node)
    lines = [node for line, node in equations.computed.items() if not line.startswith("let ") and line != ENDS]
    read = set().union(*map(names_in, equations.with_definitions(lines))) - set().union(*map(sloping, lines))
    return {int(name[1:]) for name in read if name.startswith("#")}


def sample_weights(blocks: npt.NDArray[np.intp], rng: np.random.Generator) -> Column:
    """Return the weight of each step in a bootstrap sample of blocks."""
    present, place = np.unique(blocks, return_inverse=True)
    drawn = np.bincount(rng.integers(len(present), size=len(present)), minlength=len(present))
    return np.asarray(drawn[place], np.float64)
