"""Identify a plant from data, without a language model: sparse regression over polynomials of observations.

The change of each observation is a sum of products of observations and parts of the action. Terms are dropped as long
as the error on held-out steps hardly grows (sequentially thresholded least squares; Brunton, Proctor and Kutz,
"Discovering governing equations from data by sparse identification of nonlinear dynamical systems", PNAS 113, 2016).
Two observations whose squares add up to 1 are the cosine and sine of an angle. If actions take effect with a delay, the
sums read the actions of that many steps before.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from policygen.extensions.plants.equations import SIGNIFICANT_DIGITS, Column, Equations
from policygen.extensions.plants.fit import Transitions, linear_least_squares
from policygen.extensions.plants.plant import ENDS, Plant
from policygen.policies.features import Reader
from policygen.quantities.text import format_number, is_name, next_of, to_digits

DEGREE = 3  # of the polynomials; less where they would have more than MOST_TERMS terms
MOST_TERMS = 170
THRESHOLDS = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2)  # minimum size of a term, as a share of the target's spread
MAX_ERROR_FACTOR = 1.1  # factor by which the error on held-out steps may grow for fewer terms
NEGLIGIBLE = 1e-4  # an error that needs no further terms, as a share of the target's spread
AT_A_LIMIT = 3  # the maximum (or minimum) of an observation is a limit if it occurs at least this often
ON_A_CIRCLE = 1e-3  # maximum error of x^2 + y^2 = 1 for a cosine and a sine
STEPS_PER_TERM = 3  # minimum number of steps per candidate term
MOST_IN_A_LINE = 30  # terms of a sum in one line
LATER_ERROR_RATIO = 0.5  # a line reads values after the step if that reduces its error below this share
MOST_DELAY = 8  # steps
DELAY_ERROR_RATIO = 0.9  # a delay is assumed if it reduces the squared error below this share
GOOD_ENOUGH = 1e-3  # lines with a smaller error read no values after the step

Product = tuple[int, ...]  # the variables of a term, by index
Limits = tuple[float | None, float | None]  # minimum and maximum; None: no limit


def identify_plant(data: Transitions, known: Plant) -> Plant:
    """Return a plant fitted to the data; if `known` states a reward or an end, they are kept."""
    return _Identification(data, known).plant()


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum of products of variables that predicts a target."""

    products: tuple[Product, ...]
    weights: tuple[float, ...]
    error: float  # root mean square error on held-out steps, as a share of the target's spread

    @property
    def variables(self) -> frozenset[int]:
        """The indices of the variables that the sum reads."""
        return frozenset(itertools.chain(*self.products))

    def lines(self, names: Sequence[str], name: str) -> tuple[list[tuple[str, str]], str]:
        """Return the sum as text, after the definitions of its parts (NAME_1, NAME_2, ...) if it is long."""
        terms = []
        for weight, product in zip(self.weights, self.products, strict=True):
            powers = [names[v] if n == 1 else f"{names[v]}^{n}" for v, n in Counter(product).items()]
            terms.append("*".join([_number(weight), *powers]))
        parts = [" + ".join(terms[i : i + MOST_IN_A_LINE]) for i in range(0, len(terms), MOST_IN_A_LINE)] or ["0"]
        before = [(f"{name}_{k}", _signed(part)) for k, part in enumerate(parts[:-1], 1)]
        return before, _signed(" + ".join([*(part for part, _ in before), parts[-1]]))


def _number(value: float) -> str:
    return format_number(to_digits(value, SIGNIFICANT_DIGITS))


def _signed(text: str) -> str:
    return text.replace("+ -", "- ")


class _Identification:
    """The identification of a plant.

    The variables of sums are numbered: observations before the step, parts of the action, observations after the step.
    """

    def __init__(self, data: Transitions, known: Plant) -> None:
        self._data, self._known, self._task = data, known, data.task
        self._names = list(self._task.observation_names)
        columns = Equations(self._task, Plant()).decided(data.actions)
        decided = dict(zip(self._task.decision_names, columns, strict=True))
        # The parts that determine an action: numbers, and all labels of a choice except the first.
        each = zip(self._task.actuators, self._task.outputs_by_actuator, strict=True)
        self._parts = [name for actuator, outputs in each for name in outputs[actuator.is_choice :]]
        self._decided = np.column_stack([decided[name] for name in self._parts])
        self._first_later = len(self._names) + len(self._parts)
        self._held_out = data.blocks % 4 == 3
        delays = range(min(MOST_DELAY, len(data) // (STEPS_PER_TERM * 4)) + 1)
        errors = [self._squared_error(delay) for delay in delays]
        delay = int(np.argmin(errors))
        self._delay = delay if errors[delay] < DELAY_ERROR_RATIO * errors[0] else 0
        self._angles = _cosines_and_sines(np.concatenate([data.before, data.after]))

    def _delayed(self, delay: int) -> Column:
        """Return the decisions `delay` steps earlier, a column for each part; 0 before the start of the episode."""
        late, starts = np.zeros_like(self._decided), self._data.starts
        late[delay:] = self._decided[: len(late) - delay]
        late[(starts[:, None] + np.arange(delay)).ravel().clip(max=len(late) - 1)] = 0
        return late

    def _squared_error(self, delay: int) -> float:
        """Return the sum of squared errors on held-out steps of linear predictions with this delay."""
        data, held_out = self._data, self._held_out
        if held_out.all() or not held_out.any():
            return 0.0
        columns = np.column_stack([np.ones(len(data)), data.before, self._delayed(delay)])
        changes = (data.after - data.before) / data.rms_changes
        weights = linear_least_squares(columns[~held_out], changes[~held_out])
        return float(((columns[held_out] @ weights - changes[held_out]) ** 2).sum())

    def plant(self) -> Plant:
        data, sines = self._data, {j for _, j in self._angles}
        turns = {i: _angle(data.after, i, j) - _angle(data.before, i, j) for i, j in self._angles}
        targets = {
            i: (turns[i] + np.pi) % (2 * np.pi) - np.pi if i in turns else data.after[:, i] - data.before[:, i]
            for i in range(len(self._names))
            if i not in sines
        }
        limits = {i: self._limits(i) if i not in turns else (None, None) for i in targets}
        inside = {i: ~np.isin(data.after[:, i], [x for x in limits[i] if x is not None]) for i in targets}
        values = np.column_stack([data.before, self._delayed(self._delay)])
        sums, products = dict[int, _Sum](), list[Product]()
        for degree in range(1, DEGREE + 1):
            offered = self._products(len(self._names), degree, sines)
            if len(offered) <= len(products):
                break
            products, columns = offered, _columns(offered, values)
            for i, target in targets.items():
                found = self._sparse_sum(products, columns, target, inside[i])
                if i not in sums or found.error < sums[i].error / MAX_ERROR_FACTOR - NEGLIGIBLE:
                    sums[i] = found
        # Most simulators move positions by the speeds after the step, so a line may read other values after the step.
        later = {i: self._first_later + k for k, i in enumerate(i for i in targets if i not in turns)}
        for i in sorted(targets, key=lambda i: -sums[i].error):
            free = [j for j in later if j != i and not self._reads_later(sums[j])]
            is_read = any(later.get(i) in one.variables for one in sums.values())
            if sums[i].error < GOOD_ENOUGH or not free or is_read:
                continue
            with_later = np.column_stack([columns, data.after[:, free]])
            found = self._sparse_sum([*products, *((later[j],) for j in free)], with_later, targets[i], inside[i])
            if found.error < LATER_ERROR_RATIO * sums[i].error:
                sums[i] = found
        return self._plant_of(sums, limits, later)

    def _reads_later(self, found: _Sum) -> bool:
        return max(found.variables, default=-1) >= self._first_later

    def _plant_of(self, sums: dict[int, _Sum], limits: dict[int, Limits], later: dict[int, int]) -> Plant:
        """Return the plant of these sums; each line follows those whose values after the step it reads."""
        names, sine_of = self._names, dict(self._angles)
        acting, lets = list[str](), list[tuple[str, str]]()
        for part in self._parts:
            late = [part, *(self._free_name(f"{part}_{k}") for k in range(1, self._delay + 1))]
            lets += [(after, f"prev({before})") for before, after in itertools.pairwise(late)]
            acting.append(late[-1])
        later_names = {i: self._free_name(f"later_{names[i]}") for i in later}
        variables = [*names, *acting, *later_names.values()]
        lines: dict[str, str] = {}
        for i in sorted(sums, key=lambda i: self._reads_later(sums[i])):
            name = names[i]
            change = self._free_name(f"{'turn' if i in sine_of else 'change'}_{name}")
            before, text = sums[i].lines(variables, change)
            if i in sine_of:
                other, angle = names[sine_of[i]], self._free_name(f"angle_{name}")
                lets += [(angle, f"atan2({other}, {name})"), *before, (change, text)]
                lines |= {name: f"cos({angle} + {change})", other: f"sin({angle} + {change})"}
                continue
            lets += before
            text = _within(_signed(f"{name} + {text}") if sums[i].products else name, *limits[i])
            if any(later[i] in other.variables for other in sums.values()):
                lets.append((later_names[i], text))
                text = later_names[i]
            lines[name] = text
        ends = self._known.ends or self._end()
        ordered = tuple((name, lines[name]) for name in names)
        return Plant(tuple(lets), ordered, self._known.reward or self._reward(ends, lets), ends)

    def _products(self, quantities: int, most: int, sines: set[int]) -> list[Product]:
        """Return the products of up to `most` variables, or fewer if there are too many for the data.

        Squares of sines (the cosine expresses them) and products of labels of one choice are left out.
        """
        variables, choices = range(quantities + len(self._parts)), self._task.action_space == "discrete"
        products: list[Product] = []
        for degree in range(most, 0, -1):
            products = [
                product
                for size in range(degree + 1)
                for product in itertools.combinations_with_replacement(variables, size)
                if all(product.count(j) <= 1 for j in sines)
                and not (choices and sum(v >= quantities for v in product) > 1)
            ]
            if len(products) <= min(MOST_TERMS, len(self._data) // STEPS_PER_TERM):
                break
        return products

    def _sparse_sum(
        self, products: Sequence[Product], columns: Column, target: Column, where: npt.NDArray[np.bool_]
    ) -> _Sum:
        """Return the sum, fitted to the steps `where`, of as few products as the error on held-out steps allows."""
        columns, target, held_out = columns[where], target[where], self._held_out[where]
        if not len(target) or float(np.ptp(target)) <= 1e-12 * float(np.abs(target).max(initial=0.0)):
            mean = float(target.mean()) if len(target) else 0.0
            return _Sum((), (), 0.0) if mean == 0 else _Sum(((),), (mean,), 0.0)
        if held_out.all() or not held_out.any():
            held_out = np.arange(len(target)) % 4 == min(3, len(target) - 1)
        spread, sizes = float(target.std()), np.sqrt((columns**2).mean(axis=0))
        tried: list[tuple[float, npt.NDArray[np.intp]]] = []
        kept = np.arange(columns.shape[1])
        for threshold in THRESHOLDS:
            while True:
                weights = linear_least_squares(columns[~held_out][:, kept], target[~held_out])
                large = np.abs(weights) * sizes[kept] >= threshold * spread
                if large.all() or not large.any():
                    break
                kept = kept[large]
            wrong = columns[held_out][:, kept] @ weights - target[held_out]
            tried.append((float(np.sqrt((wrong**2).mean())) / spread, kept))
        least = min(error for error, _ in tried)
        error, kept = [one for one in tried if one[0] <= MAX_ERROR_FACTOR * least + NEGLIGIBLE][-1]
        weights = linear_least_squares(columns[:, kept], target)
        order = np.argsort(-np.abs(weights) * sizes[kept], kind="stable")
        chosen = [products[k] for k in kept[order].tolist()]
        return _Sum(tuple(chosen), tuple(weights[order].tolist()), error)

    def _free_name(self, name: str) -> str:
        taken = {*self._task.quantity_names, *self._task.decision_names, *dict(self._known.lets)}
        while name in taken or not is_name(name):
            name = f"{name[:50]}_"
        return name

    def _limits(self, i: int) -> Limits:
        """Return the apparent limits of an observation after a step."""
        before, after = self._data.before[:, i], self._data.after[:, i]
        if len(np.unique(after)) < 2 * AT_A_LIMIT:
            return None, None

        def limit(value: float) -> float | None:
            # A value that the observation only has from the start of an episode is no limit.
            return value if (after == value).sum() >= AT_A_LIMIT and (before[after == value] != value).any() else None

        return limit(float(after.min())), limit(float(after.max()))

    def _reward(self, ends: str, lets: Sequence[tuple[str, str]]) -> str:
        """Return the reward as text: a polynomial of observations and decisions, and the extra reward for an end."""
        data, names = self._data, self._names
        plain = ~data.ended if not data.ended.all() else np.ones(len(data), np.bool_)
        angles = [name for name, text in lets if text.startswith("atan2(")]
        own = [_angle(data.before, i, j) for i, j in self._angles]
        found, variables = _Sum((), (), np.inf), list[str]()
        predicted = np.zeros(len(data))
        for later in ([], [i for i in range(len(names)) if data.after[:, i].std() > 0]):
            quantities = [*data.before.T, *own, *data.after[:, later].T]
            products = self._products(len(quantities), 2, set())
            columns = _columns(products, np.column_stack([*quantities, self._decided]))
            new = self._sparse_sum(products, columns, data.rewards, plain)
            if new.error < (LATER_ERROR_RATIO if later else 1.0) * found.error:
                found = new
                variables = [*names, *angles, *(next_of(names[i]) for i in later), *self._parts]
                places = [products.index(product) for product in new.products]
                predicted = columns[:, places] @ np.array(new.weights)
            if found.error < GOOD_ENOUGH:
                break
        shortened = replace(found, products=found.products[:MOST_IN_A_LINE], weights=found.weights[:MOST_IN_A_LINE])
        _, text = shortened.lines(variables, "")
        if ends and data.ended.any() and ENDS not in self._task.quantity_names:
            extra = float(np.mean((data.rewards - predicted)[data.ended]))
            if abs(extra) > 1e-6 * max(1.0, abs(float(data.rewards.mean()))):
                text = _signed(f"{text} + {_number(extra)}*ends")
        return text

    def _end(self) -> str:
        """Return the end as text: thresholds of single quantities beyond which every step ended its episode."""
        data = self._data
        reader = Reader(self._task)
        columns = [np.asarray(np.broadcast_to(c, len(data)), np.float64) for c in reader.columns(data.after.T)]
        unexplained, tests = data.ended.copy(), list[str]()
        while unexplained.any():
            found: list[tuple[int, str, npt.NDArray[np.bool_]]] = []
            for (name, column), sign in itertools.product(zip(reader.names, columns, strict=True), (1, -1)):
                values = sign * column
                bound = float(values[~data.ended].max(initial=-np.inf))
                covered = unexplained & (values > bound)
                if covered.any() and np.isfinite(bound):
                    edge = sign * (bound + float(values[covered].min())) / 2
                    test = f"{name} {'>' if sign > 0 else '<'} {_number(edge)}"
                    found.append((int(covered.sum()), test, covered))
            if not found:
                break
            _, test, covered = max(found, key=lambda one: one[0])
            tests.append(test)
            unexplained &= ~covered
        return " or ".join(tests)


def _angle(rows: Column, cosine: int, sine: int) -> Column:
    return np.asarray(np.arctan2(rows[:, sine], rows[:, cosine]))


def _within(text: str, low: float | None, high: float | None) -> str:
    limits = [_number(limit) for limit in (low, high) if limit is not None]
    function = "clip" if len(limits) == 2 else "min" if low is None else "max"
    return f"{function}({', '.join([text, *limits])})" if limits else text


def _cosines_and_sines(rows: Column) -> list[tuple[int, int]]:
    """Return the indices of column pairs that are the cosine and the sine of an angle."""
    pairs: list[tuple[int, int]] = []
    for i, j in itertools.combinations(range(rows.shape[1]), 2):
        free = not {i, j} & {index for pair in pairs for index in pair}
        on = np.abs(rows[:, i] ** 2 + rows[:, j] ** 2 - 1).max() < ON_A_CIRCLE
        if free and on and min(rows[:, i].std(), rows[:, j].std()) > ON_A_CIRCLE:
            pairs.append((i, j))
    return pairs


def _columns(products: Sequence[Product], values: Column) -> Column:
    return np.column_stack([values[:, list(product)].prod(axis=1) for product in products])
