"""Least squares for the numbers of a plant: the residuals of predictions, and the numbers that minimise them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.plants.transitions import Transitions
from policygen.policies.parts import ENDS
from policygen.policies.plant import NEXT, Column, Equations
from policygen.policies.shaping import REWARD
from policygen.quantities.compiled import compile_together
from policygen.quantities.tree import Call, Name, Node, names_in

MOST_STEPS = 12  # of a least-squares search
DAMPING = 1e-8  # per row, added to the diagonal of the normal equations, whose columns have root mean square 1
SETTLED = 1e-6  # a smaller reduction of the squared error, as a share of it, ends a search
LARGEST_RESIDUAL = 1e3  # largest residual, in usual changes; also stands for NaN
OUTLIER = 10.0  # residuals above this multiple of the median count less than their square
PRIOR = 0.01  # residual of a hidden start that is one standard deviation from its mean
LEAST_UNIT = 1e-3  # smallest unit of the trial search for numbers without a slope
MOST_TRIALS = 60  # of that search, for each number
ROBUST_FITS = 3  # at most; each scales its loss by the usual residual of the fit before it
_MOST_AT_ONCE = 2_000_000  # entries of one array while derivatives are computed


def one_step_problem(
    equations: Equations, data: Transitions, lines: Sequence[str], numbers: npt.NDArray[np.intp]
) -> LeastSquares:
    """Return the problem of fitting some numbers to one-step predictions by some lines of a plant."""
    kept = data.thinned_steps()
    memory = data.memory(equations, equations.values.tolist())
    inputs = [column[kept] for column in (*data.before.T, *memory, *equations.decided(data.actions))]
    after, names = list(data.after[kept].T), equations.task.observation_names
    targets = {f"{NEXT} {name}": column for name, column in zip(names, after, strict=True)}
    scales = {f"{NEXT} {name}": float(change) for name, change in zip(names, data.rms_changes, strict=True)}
    targets[REWARD], scales[REWARD] = data.rewards[kept], float(data.rewards.std()) or 1.0
    names_read = [*equations.inputs, *equations.inputs_after]
    predict = compile_together([equations.computed[line] for line in lines], names_read, equations.definitions)

    def residuals(values: list[Any], _: Sequence[Any]) -> list[Any]:
        found = predict([*inputs, *values, *after])
        return [(one - targets[line]) / scales[line] for one, line in zip(found, lines, strict=True)]

    return LeastSquares(equations, data, numbers, residuals, steps=[kept] * len(lines))


def problem_ahead(
    equations: Equations, data: Transitions, numbers: npt.NDArray[np.intp], hidden: Column, steps: int
) -> LeastSquares:
    """Return the problem of fitting numbers and hidden states to predictions 1 to `steps` steps ahead.

    With `steps` = 1, it uses all steps of the data; if there are many, evenly spaced blocks of them. With more steps
    ahead, it uses evenly spaced windows.
    """
    begins = data.thinned_steps() if steps == 1 else data.window_starts()
    moving = [i for i, name in enumerate(equations.task.observation_names) if f"{NEXT} {name}" in equations.computed]
    changes = [data.after[begins + step] - data.before[begins] for step in range(steps)]
    scales = [np.maximum(np.sqrt((change**2).mean(axis=0)), data.rms_changes) for change in changes]
    decided = equations.decided(data.actions)
    pays = REWARD in equations.computed
    reward_scale = float(data.rewards.std()) or 1.0

    def residuals(values: list[Any], hidden: Sequence[Any]) -> list[Any]:
        memory = [column[..., begins] for column in data.memory(equations, values, hidden)]
        observed: list[Any] = list(data.before[begins].T)
        found = []
        for step in range(steps):
            at = begins + step
            parts = [column[at] for column in decided]
            if pays:
                reward, _ = equations.outcome(observed, memory, parts, values, list(data.after[at].T))
                found.append((reward - data.rewards[at]) / reward_scale)
            observed, memory = equations.step(observed, memory, parts, values)
            found += [(observed[i] - data.after[at, i]) / scales[step][i] for i in moving]
        return found

    predicted = [begins + step for step in range(steps) for _ in range(len(moving) + pays)]
    return LeastSquares(equations, data, numbers, residuals, steps=predicted, hidden=hidden)


class LeastSquares:
    """A least-squares problem: some numbers of a plant, and its hidden states at the start of each episode.

    Its residuals have a part for each predicted quantity and number of steps ahead.

    Args:
        residuals: a function of the plant's numbers and hidden states that returns a column per part, in units of usual
            changes: shape (n,), or (variants, n) for several variants of the numbers.
        steps: for each part the indices of the predicted steps, shape (n,); bootstrap samples draw the first part's.
        hidden: the hidden states from which the search begins, shape (h, episodes); None: there are none.
    """

    def __init__(
        self,
        equations: Equations,
        data: Transitions,
        numbers: npt.NDArray[np.intp],
        residuals: Callable[[list[Any], Sequence[Any]], list[Any]],
        *,
        steps: Sequence[npt.NDArray[np.intp]],
        hidden: Column | None = None,
    ) -> None:
        self._all, self._numbers, self._compute = equations.values, numbers, residuals
        self._counts = [len(some) for some in steps]
        self._episodes = data.episode_index[np.concatenate([np.zeros(0, np.intp), *steps])]
        self._blocks = data.blocks[steps[0]] if steps else np.zeros(0, np.intp)
        self._hidden = np.zeros((0, len(data.starts))) if hidden is None else hidden
        starts = np.array(equations.hidden_starts).reshape(-1, 2)[: len(self._hidden)]
        self._means, self._spreads = starts[:, :1], np.maximum(starts[:, 1:], 1e-9)
        own, free = equations.limits[:, numbers], np.full((2, self._hidden.size), [[-np.inf], [np.inf]])
        self._low, self._high = np.concatenate([own, free], axis=1)
        without_slope = _numbers_without_slope(equations)
        self._without_slope = [place for place, number in enumerate(numbers.tolist()) if number in without_slope]

    def solve(self, samples: int, rng: np.random.Generator) -> tuple[Column, list[Column]]:
        """Find the numbers that fit best, and those that fit each bootstrap sample of blocks.

        A sample's numbers are found by one Gauss-Newton step from the best ones.

        Returns:
            The numbers, best first: shape (1 + samples, numbers); and for each hidden state its starts, shape
            (episodes,).
        """
        from scipy.optimize import least_squares  # start-up time

        own = np.concatenate([self._all[self._numbers], self._hidden.ravel()])

        def search(start: Column, **loss: Any) -> Column:
            options = {"bounds": (self._low, self._high), "x_scale": "jac", "max_nfev": MOST_STEPS, "ftol": SETTLED}
            with np.errstate(all="ignore"):  # the square of 1e300 overflows
                found = least_squares(self._residuals, start, self._jacobian, **options, **loss)
            return np.asarray(found.x if np.isfinite(found.x).all() else own)

        if not len(own):
            return np.zeros((1 + samples, 0)), []
        best, settled = self._gauss_newton_search(own)
        best = best if settled else search(best)
        if self._without_slope:
            best = search(self._trial_search(best))
        sizes, usual = self._residual_sizes(best)
        if (first := self._residual_sizes(own))[1] < usual:  # outliers made the fit worse than the first numbers
            best, (sizes, usual) = own, first
        for _ in range(ROBUST_FITS):
            if usual == 0 or not (sizes > OUTLIER * usual).any():
                break
            best, before = search(best, loss="soft_l1", f_scale=OUTLIER / 3 * usual), usual
            sizes, usual = self._residual_sizes(best)
            if usual > before / 2:  # outliers had not distorted the last usual residual
                break
        # The square root of each residual's weight under the robust loss.
        robust = 1 / np.sqrt(1 + (sizes / (OUTLIER / 3 * usual)) ** 2) if usual > 0 else np.ones_like(sizes)
        residuals, slopes = self._residuals(best), self._jacobian(best)
        found = [best]
        present, block = np.unique(self._blocks, return_inverse=True)
        for _ in range(samples):
            drawn = np.bincount(rng.integers(len(present), size=len(present)), minlength=len(present))
            each = [np.tile(drawn[block], len(self._counts)), np.ones(self._hidden.size)]
            step = linear_least_squares(slopes, residuals, np.sqrt(np.concatenate(each)) * robust)
            found.append(self._within(best - step))
        numbers, hidden = np.split(np.stack(found), [len(self._numbers)], axis=1)
        return numbers, list(hidden[0].reshape(self._hidden.shape))

    def _within(self, theta: Column) -> Column:
        return np.clip(theta, self._low, self._high)

    def _gauss_newton_search(self, theta: Column) -> tuple[Column, bool]:
        """Take Gauss-Newton steps while they reduce the error; return the numbers, and whether they are a minimum.

        One step finds the minimum if residuals are linear in the numbers; a general search would take several.
        """
        error = float((self._residuals(theta) ** 2).sum())
        for _ in range(MOST_STEPS):
            moved = self._within(theta - linear_least_squares(self._jacobian(theta), self._residuals(theta)))
            after = float((self._residuals(moved) ** 2).sum())
            if not after < error:
                return theta, after <= error * (1 + SETTLED)
            theta, gain, error = moved, error - after, after
            if gain <= SETTLED * error:
                return theta, True
        return theta, False

    def _trial_search(self, best: Column) -> Column:
        """Search for numbers without a slope by trials (Powell's method); each trial refits the others by one step."""
        from scipy.optimize import minimize  # start-up time

        searched = self._without_slope
        room = (self._high - self._low)[searched]
        units = np.where(np.isfinite(room), room, np.maximum(np.abs(best[searched]), LEAST_UNIT))

        def moved(shares: Column) -> Column:
            theta = best.copy()
            theta[searched] += shares * units
            change = linear_least_squares(self._jacobian(theta), self._residuals(theta))
            change[searched] = 0.0
            return self._within(theta - change)

        def cost(shares: Column) -> float:
            return float(np.abs(self._residuals(moved(shares))).sum())

        found = minimize(cost, np.zeros(len(units)), method="Powell", options={"maxfev": MOST_TRIALS * len(units)})
        return moved(found.x) if found.fun < cost(np.zeros(len(units))) else best

    def _residual_sizes(self, theta: Column) -> tuple[Column, float]:
        """Return the sizes of the residuals, and the usual size: the median of those that are not 0."""
        sizes = np.abs(self._residuals(theta))
        return sizes, float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 0.0

    def _split(self, theta: Column) -> tuple[list[float], Column]:
        numbers, hidden = np.split(theta, [len(self._numbers)])
        return numbers.tolist(), hidden.reshape(self._hidden.shape)

    def _residuals(self, theta: Column) -> Column:
        numbers, hidden = self._split(theta)
        prior = PRIOR * (hidden - self._means) / self._spreads
        return np.concatenate([self._joined(numbers, list(hidden), 1)[0], prior.ravel()])

    def _jacobian(self, theta: Column) -> Column:
        """Return the derivatives of the residuals by forward differences, shape (residuals, numbers and states)."""
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
        # A hidden state affects only the residuals of its own episode, so those of all episodes are moved at once.
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
        shapes = ((variants, n) for n in self._counts)
        parts = [
            np.broadcast_to(bounded(part, LARGEST_RESIDUAL), shape) for part, shape in zip(found, shapes, strict=True)
        ]
        return np.asarray(np.concatenate([np.zeros((variants, 0)), *parts], axis=1))


def bounded(values: Any, largest: float) -> Column:
    """Clip values to -`largest` to `largest`, and replace NaN by `largest`."""
    return np.asarray(np.nan_to_num(values, nan=largest, posinf=largest, neginf=-largest).clip(-largest, largest))


def linear_least_squares(columns: Column, target: Column, weights: Column | None = None) -> Column:
    """Return the slightly damped solution of a linear least-squares problem; zeros if it is not finite.

    Args:
        columns: shape (n, k).
        target: shape (n,) or (n, targets).
        weights: factor of each row, shape (n,); None: all 1.
    """
    sizes = np.sqrt((columns**2).mean(axis=0)) + 1e-12
    scaled = columns / sizes
    if weights is not None:
        scaled, target = scaled * weights[:, None], target * weights
    gram = scaled.T @ scaled
    gram[np.diag_indices(len(gram))] += DAMPING * len(columns)
    with np.errstate(all="ignore"):
        found = np.asarray((np.linalg.solve(gram, scaled.T @ target).T / sizes).T, np.float64)
    return found if np.isfinite(found).all() else np.zeros(found.shape)


_WITHOUT_SLOPE = {"<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "floor", "sign"}  # their derivative is 0


def _numbers_without_slope(equations: Equations) -> set[int]:
    """Return the indices of the numbers that are read only through functions whose derivative is 0."""
    through: dict[str, set[str]] = {}  # for each definition the names that it reads with a slope

    def read_with_slope(node: Node) -> set[str]:
        if isinstance(node, Call):
            return set() if node.function in _WITHOUT_SLOPE else set().union(*map(read_with_slope, node.arguments))
        return through.get(node.name, {node.name}) if isinstance(node, Name) else set()

    for name, node in equations.definitions.items():
        through[name] = read_with_slope(node)
    lines = [node for line, node in equations.computed.items() if not line.startswith("let ") and line != ENDS]
    read = set().union(*map(names_in, equations.with_definitions(lines)))
    read -= set().union(*map(read_with_slope, lines))
    return {int(name[1:]) for name in read if name.startswith("#")}
