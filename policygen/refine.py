"""Numerical search around a proposal: structure comes from the model, numbers from here.

What is tuned are the constants a policy is written with: coefficients, constants inside `let`, bin edges, the levels of
a continuous table; and, for a table of choices, its entries. The result is the same policy with other numbers, so it
goes back to the model as text.

`cma` is the covariance matrix adaptation evolution strategy (Hansen, arXiv 1604.00772, by the pycma library), for tens
of constants. `ars` is augmented random search (Mania, Guy and Recht, arXiv 1803.07055), for hundreds. `coordinate`
changes one table entry at a time, exactly where the MDP is known, else on paired seeds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from policygen.evaluate import FiniteMDP, exact_score
from policygen.expressions import Node, constants, with_constants
from policygen.grid import Dimension, Grid
from policygen.normalise import is_definition
from policygen.policies import LinearPolicy, Policy, TablePolicy
from policygen.rules import Rule

Method = Literal["cma", "ars", "coordinate"]
Vector = npt.NDArray[np.float64]

POPULATION = 12  # candidates of a generation, all on the same seeds
SEEDS_PER_GENERATION = 4
FIRST_STEP = 0.2  # a constant's first changes are about 20% of its size
FIRST_STEPS = (0.02, 0.3)  # least and most first change of a constant, where more is known about it
PROBE = 0.1  # relative change of one constant at a time, to see what it does to the return
PROBE_SHARE = 0.2  # of the budget, at most
MOST_FOR_CMA = 100
SIGNIFICANT_DIGITS = 5
# The search drifts along what its few seeds reward, towards cliffs they do not show: of its own history the policy is
# chosen on episodes it has not seen, by successive halving, for this share of the budget.
VALIDATION_SHARE = 0.2
VALIDATED = 16  # moments of the search that are compared, at most
LEAST_VALIDATION = 12  # seeds for each of them in the first round; with less budget fewer are compared, or none


class Returns(Protocol):
    """Plays each policy on each seed: mean returns, shape (policies,); charges the episodes before it plays."""

    def __call__(self, policies: Sequence[Policy], seeds: Sequence[int]) -> Vector:
        """Mean return of each policy."""
        ...


@dataclass(frozen=True, slots=True)
class Refined:
    """A tuned policy, how many episodes it took, what was tuned, and how flat the optimum is.

    `spread` is the search distribution's final standard deviation per constant, relative to the tuned constant, with
    the place it stands in (`let x`, an output, `bins x`, `levels`): large where the return hardly depends on it.
    """

    policy: Policy
    episodes: int
    method: Method
    constants: int
    spread: tuple[tuple[str, float], ...] = ()


def refine(
    policy: Policy,
    method: Literal["auto", "cma", "ars", "coordinate"],
    episodes: int,
    returns: Returns,
    seeds: Callable[[int, int], Sequence[int]],
    rng_seed: int,
    *,
    mdp: FiniteMDP | None = None,
    floor: float = 0.0,
    spread: Sequence[float] = (),
) -> Refined | None:
    """Tune a policy's numbers within a budget of episodes.

    Args:
        returns: plays candidates; it is what the episodes are charged to.
        seeds: `seeds(first, count)` gives the search's own stream of episode seeds.
        floor: least size of a constant's first changes. 0 changes constants in proportion to their size, which keeps
            physical units apart, and leaves zeros alone. Above 0, the features (`let`) stay as they are.
        spread: where an earlier search of the same constants left off, for `cma` to go on with.

    Returns:
        The tuned policy, or None where there is nothing to tune or too little budget for one generation.
    """
    discrete_table = isinstance(policy, TablePolicy) and all(a.is_choice for a in policy.task.actuators)
    if method == "coordinate" or (method == "auto" and discrete_table):
        return _coordinate(policy, episodes, returns, seeds, rng_seed, mdp) if isinstance(policy, TablePolicy) else None
    tunable = Tunable(policy, floor)
    if tunable.size == 0:
        return None
    if method == "auto":
        method = "cma" if tunable.size <= MOST_FOR_CMA else "ars"
    if method == "cma":
        return _cma(tunable, episodes, returns, seeds, rng_seed, spread)
    return _ars(tunable, episodes, returns, seeds, rng_seed)


class Tunable:
    """A policy as a vector: constant i is c_i + s_i * z_i with s_i its size, and z = 0 is the policy itself."""

    def __init__(self, policy: Policy, floor: float = 0.0) -> None:
        self.policy = policy
        self.floor = floor
        # What standardises quantities for the equations to weigh is fixed; with a floor, that is every feature.
        self._moving = {name for name, node in policy.lets if floor == 0.0 and not is_definition(name, node)}
        named: list[tuple[str, Node]] = [(f"let {n}", node) for n, node in policy.lets if n in self._moving]
        edges: list[float] = []
        levels: list[float] = []
        places: list[str] = []
        if isinstance(policy, LinearPolicy):
            named += policy.equations
        elif isinstance(policy, TablePolicy):
            # The grid of the task is the task's; only bins that the policy chose itself move.
            if policy.grid != policy.task.grid:
                edges = [edge for dimension in policy.grid.dimensions for edge in dimension.edges]
                places = [f"bins {dimension.name}" for dimension in policy.grid.dimensions for _ in dimension.edges]
            if not any(actuator.is_choice for actuator in policy.task.actuators):
                levels = [value for rule in policy.rules for value in rule.action]
        in_nodes = [value for _, node in named for value in constants(node)]
        places = [name for name, node in named for _ in constants(node)] + places + ["levels"] * len(levels)
        self._values = np.array([*in_nodes, *edges, *levels], dtype=np.float64)
        sizes = np.maximum(np.abs(self._values), floor)
        # A zero edge or level has no size of its own: the others of its kind lend it theirs.
        for start, stop in ((len(in_nodes), len(in_nodes) + len(edges)), (len(in_nodes) + len(edges), len(sizes))):
            part = sizes[start:stop]
            part[part == 0] = float(part.mean()) if part.any() else 0.1
        # A 1 in a feature is mostly structure: a limit of `clip`, a side, what a share is taken from; and pi is pi.
        structure = [
            value == math.pi or (abs(value) == 1 and place.startswith("let "))
            for value, place in zip(self._values, places, strict=True)
        ]
        self._free = np.flatnonzero((sizes > 0) & ~np.array(structure, np.bool_))
        self._sizes = sizes[self._free]
        self.places = tuple(places[i] for i in self._free)

    @property
    def size(self) -> int:
        """Number of constants that move."""
        return len(self._free)

    def relative(self, deviations: Vector, z: Vector) -> list[float]:
        """Standard deviations of z as shares of the constants' sizes at z, to 3 significant digits."""
        sizes = np.maximum(np.abs(self._values[self._free] + self._sizes * z), 0.01 * self._sizes)
        return [float(f"{value:.3g}") for value in deviations * self._sizes / sizes]

    def at(self, z: Vector) -> Policy:
        """The policy at z, the constants that moved rounded to a readable number of digits."""
        values = self._values.copy()
        values[self._free] += self._sizes * z
        for i in np.flatnonzero(values != self._values):
            values[i] = float(f"{values[i]:.{SIGNIFICANT_DIGITS}g}")
        rounded = iter(values.tolist())
        lets = tuple(
            (name, with_constants(node, rounded) if name in self._moving else node) for name, node in self.policy.lets
        )
        if isinstance(self.policy, LinearPolicy):
            equations = tuple((name, with_constants(node, rounded)) for name, node in self.policy.equations)
            return LinearPolicy(self.policy.task, lets, equations)
        assert isinstance(self.policy, TablePolicy)
        grid, rules = self.policy.grid, self.policy.rules
        if grid != self.policy.task.grid:
            grid = Grid(tuple(Dimension(d.name, _increasing(rounded, len(d.edges))) for d in grid.dimensions))
        if not any(actuator.is_choice for actuator in self.policy.task.actuators):
            limits = [(a.low, a.high) for a in self.policy.task.actuators]
            rules = tuple(
                Rule(rule.bins, tuple(min(max(next(rounded), low), high) for low, high in limits)) for rule in rules
            )
        return TablePolicy(self.policy.task, lets, grid, rules)


def _increasing(values: Iterator[float], count: int) -> tuple[float, ...]:
    """The next edges, sorted and kept apart: a search may move one past another."""
    edges = sorted(next(values) for _ in range(count))
    for i in range(1, count):
        step = 1e-5 * max(1.0, abs(edges[i - 1]))
        edges[i] = max(edges[i], edges[i - 1] + step)
    return tuple(edges)


def _cma(
    tunable: Tunable,
    episodes: int,
    returns: Returns,
    seeds: Callable[[int, int], Sequence[int]],
    rng_seed: int,
    spread: Sequence[float],
) -> Refined | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # optional plotting that is not installed
        import cma

    steps, probed = np.asarray(spread, np.float64), 0
    if len(steps) != tunable.size:
        steps, probed = _first_steps(tunable, episodes, returns, seeds)
    population = max(POPULATION, 4 + int(3 * math.log(tunable.size)))
    per_generation = population * SEEDS_PER_GENERATION
    validation = int(episodes * VALIDATION_SHARE)
    fits = [k for k in range(2, VALIDATED + 1) if validation // _rounds(k) // k >= LEAST_VALIDATION]
    compared = max(fits, default=1)
    if compared == 1:
        validation = 0
    generations = (episodes - validation - probed) // per_generation
    if generations < 1:
        return None
    options = {"popsize": population, "seed": rng_seed + 1, "verbose": -9, "verb_log": 0, "maxiter": generations}
    if tunable.size == 1:
        options["CMA_diagonal"] = True
    options["CMA_stds"] = (np.clip(steps, *FIRST_STEPS) / FIRST_STEP).tolist()
    search = cma.CMAEvolutionStrategy(np.zeros(tunable.size), FIRST_STEP, options)
    first = SEEDS_PER_GENERATION if probed else 0
    means = [np.zeros(tunable.size)]
    for generation in range(generations):
        candidates = search.ask()
        shared = seeds(first + generation * SEEDS_PER_GENERATION, SEEDS_PER_GENERATION)
        scores = returns([tunable.at(np.asarray(z)) for z in candidates], shared)
        search.tell(candidates, (-scores).tolist())
        # The mean of the distribution, not the luckiest candidate.
        means.append(np.asarray(search.result.xfavorite))
    # The start is among them: with a small budget, nothing better may have been found.
    moments = np.linspace(generations, generations // 8, compared).astype(int)
    moments = np.unique([*moments[: compared - 1], 0 if validation else generations])
    chosen = [tunable.at(means[moment]) for moment in moments]
    best, validated = _best_of(chosen, validation, returns, seeds, first + generations * SEEDS_PER_GENERATION)
    return Refined(
        best,
        probed + generations * per_generation + validated,
        "cma",
        tunable.size,
        tuple(zip(tunable.places, tunable.relative(np.asarray(search.result.stds), means[-1]), strict=True)),
    )


def _first_steps(
    tunable: Tunable, episodes: int, returns: Returns, seeds: Callable[[int, int], Sequence[int]]
) -> tuple[Vector, int]:
    """First changes of the constants, of which each costs about as much return, and the episodes it took to find out.

    Every constant is moved a little both ways on the same seeds. Were the return a bowl with axes along the constants,
    steps in proportion to one over the square root of the losses would make it round. A length that the geometry
    dictates then moves little, a gain that hardly matters much. Without the budget for it all steps are alike.
    """
    alike = np.full(tunable.size, FIRST_STEP)
    cost = (2 * tunable.size + 1) * SEEDS_PER_GENERATION
    if tunable.floor > 0 or tunable.size == 1 or cost > PROBE_SHARE * episodes:
        return alike, 0
    moves = PROBE * np.eye(tunable.size)
    scores = returns([tunable.at(z) for z in (alike * 0, *moves, *-moves)], seeds(0, SEEDS_PER_GENERATION))
    loss = np.abs(scores[1:] - scores[0]).reshape(2, -1).max(axis=0)
    if not np.median(loss) > 0:
        return alike, cost
    with np.errstate(divide="ignore"):
        return np.clip(FIRST_STEP * np.sqrt(np.median(loss) / loss), *FIRST_STEPS), cost


def _rounds(policies: int) -> int:
    """Rounds of halving until one is left."""
    return math.ceil(math.log2(policies))


def _best_of(
    policies: Sequence[Policy],
    episodes: int,
    returns: Returns,
    seeds: Callable[[int, int], Sequence[int]],
    first: int,
) -> tuple[Policy, int]:
    """The best policy by successive halving (Jamieson and Talwalkar, arXiv 1502.07943), and the episodes it took.

    Every round costs the same; the better half of the policies goes on to more seeds, from number `first` on.
    """
    rounds = _rounds(len(policies))
    remaining = list(policies)
    totals, counted, played = np.zeros(len(remaining)), 0, 0
    for _ in range(rounds):
        count = episodes // rounds // len(remaining)
        totals += count * returns(remaining, seeds(first + counted, count))
        counted, played = counted + count, played + count * len(remaining)
        order = np.argsort(-totals, kind="stable")[: math.ceil(len(remaining) / 2)]
        remaining, totals = [remaining[i] for i in order], totals[order]
    return remaining[0], played


def _ars(
    tunable: Tunable, episodes: int, returns: Returns, seeds: Callable[[int, int], Sequence[int]], rng_seed: int
) -> Refined | None:
    directions, best, step, noise = 16, 8, 0.15, 0.1
    per_step = 2 * directions * 2
    steps = episodes // per_step
    if steps < 1:
        return None
    rng = np.random.default_rng(rng_seed)
    z = np.zeros(tunable.size)
    for number in range(steps):
        deltas = rng.normal(size=(directions, tunable.size))
        pairs = [tunable.at(z + sign * noise * delta) for delta in deltas for sign in (1, -1)]
        scores = returns(pairs, seeds(2 * number, 2)).reshape(directions, 2)
        order = np.argsort(-scores.max(axis=1))[:best]
        spread = float(scores[order].std()) or 1.0
        z = z + step / (best * spread) * (scores[order, 0] - scores[order, 1]) @ deltas[order]
    return Refined(tunable.at(z), steps * per_step, "ars", tunable.size)


def _coordinate(
    policy: TablePolicy,
    episodes: int,
    returns: Returns,
    seeds: Callable[[int, int], Sequence[int]],
    rng_seed: int,
    mdp: FiniteMDP | None,
) -> Refined | None:
    """Change one entry at a time and keep what helps; exact scores cost no episodes."""
    dense = np.asarray(policy.actions, np.float64).reshape(policy.grid.size, -1)
    counts = [len(actuator.labels) for actuator in policy.task.actuators]
    if 0 in counts:
        return None
    rng = np.random.default_rng(rng_seed)
    current, played, number = policy, 0, 0
    if mdp is not None:
        best = exact_score(policy, mdp).mean
        improved = True
        while improved:
            improved = False
            for cell in range(policy.grid.size):
                for changed in _changed_entries(dense, cell, counts):
                    candidate = TablePolicy.from_actions(policy.task, changed, policy.grid, policy.lets)
                    score = exact_score(candidate, mdp).mean
                    if score > best + 1e-12:
                        current, dense, best, improved = candidate, changed, score, True
        return Refined(current, 0, "coordinate", policy.grid.size)
    tested = 8  # candidates side by side, each one entry away from the current table, on the same seeds as it
    while played + (tested + 1) * SEEDS_PER_GENERATION <= episodes:
        cells = rng.integers(policy.grid.size, size=tested)
        tables = [rng.permutation(list(_changed_entries(dense, int(c), counts)))[0] for c in cells]
        candidates = [TablePolicy.from_actions(policy.task, table, policy.grid, policy.lets) for table in tables]
        scores = returns([current, *candidates], seeds(number * SEEDS_PER_GENERATION, SEEDS_PER_GENERATION))
        played += (tested + 1) * SEEDS_PER_GENERATION
        number += 1
        winner = int(np.argmax(scores))
        if winner > 0 and scores[winner] > scores[0]:
            current, dense = candidates[winner - 1], tables[winner - 1]
    return Refined(current, played, "coordinate", policy.grid.size) if played else None


def _changed_entries(dense: Vector, cell: int, counts: Sequence[int]) -> Iterator[Vector]:
    """Every table that differs from `dense` in one entry of one cell."""
    for actuator, count in enumerate(counts):
        for action in range(count):
            if action != dense[cell, actuator]:
                changed = dense.copy()
                changed[cell, actuator] = action
                yield changed
