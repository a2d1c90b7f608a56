"""Tune a proposal: the model chooses its structure, a numerical search its numbers.

A search tunes the constants of a policy (coefficients, constants in features, bin edges, the numbers of a continuous
table) or the entries of a table of choices. The result is the same policy with other numbers, as text like before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import FiniteMDP
from policygen.episodes.trajectory import Actor, Trajectory
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.shaping import Measure
from policygen.policies.table import Rule, TablePolicy
from policygen.quantities.grid import Dimension, Grid
from policygen.quantities.text import to_digits
from policygen.quantities.tree import Node, constants, is_standardised, limits, with_constants, with_plain_signs
from policygen.runs.attempt import Attempt, TuningState
from policygen.runs.methods import METHODS
from policygen.runs.tuning import FIRST_STEP, method_for

Vector = npt.NDArray[np.float64]
SIGNIFICANT_DIGITS = 5
# A constant as large as this means "no limit" and is not tuned; none grows beyond it.
HUGE = 1e30

# Plays each policy on each seed, and returns the score of each policy, shape (policies,).
Returns = Callable[[Sequence[Policy], Sequence[int]], Vector]
# The same on each of some equal parts of the seeds; returns one array for each part.
Parts = Callable[[Sequence[Policy], Sequence[int], int], Sequence[Vector]]
# Plays one episode per seed with an actor that may learn, and returns their returns, shape (seeds,).
Practice = Callable[[Actor, Sequence[int]], Vector]


@dataclass(frozen=True, slots=True)
class Trials:
    """The episodes that a numerical search may play, and the functions that play them and charge them in advance.

    Attributes:
        returns: plays candidates and returns their scores: the means of their returns.
        seeds: `seeds(first, count)` returns part of the search's own sequence of episode seeds.
        episodes: maximum number of episodes in all.
        practice: plays for learners; if the MDP is known, it draws the episodes from the MDP.
        measure: the objective and the potential, if any.
        parts: plays all seeds together, because many episodes take little longer than few, and returns the means that a
            search maximises on each part of them: of the objective, if there is one, else of the returns. The policy to
            keep is chosen by `returns`. By default the parts are played by `returns`, one after the other.
        watch: plays one policy and returns its episodes.
        seen: the episodes in the replay buffer; empty unless the method has `most_episodes`.
        affords: whether the budget allows some more episodes and a score of the result.
        attempts: the attempts so far, including the present one; a method may read their notes.
        first_step: first change of a constant, relative to its size, when `cma` starts a new search.
        mdp: the MDP of the task, if known.
        floor: minimum size of a constant outside features (`let`). The first change of a constant is proportional to
            its size. With a floor of 0, changes follow the units of the policy, and a weight of 0 stays 0.
        state: final state of an earlier search of the policy, from which `cma` continues; its floor replaces `floor`.
    """

    returns: Returns
    seeds: Callable[[int, int], Sequence[int]]
    episodes: int
    practice: Practice | None = None
    measure: Measure | None = None
    parts: Parts | None = None
    watch: Callable[[Policy, Sequence[int]], list[Trajectory]] | None = None
    seen: Sequence[Trajectory] = ()
    affords: Callable[[int], bool] = lambda count: True
    attempts: Sequence[Attempt] = ()
    first_step: float = FIRST_STEP
    mdp: FiniteMDP | None = None
    floor: float = 0.0
    state: TuningState | None = None

    def tunable(self, policy: Policy) -> Tunable:
        """Return the policy as a vector, with the floor of the search."""
        return Tunable(policy, self.state.floor if self.state is not None else self.floor)

    def maximised(self, policies: Sequence[Policy], seeds: Sequence[int], parts: int = 1) -> Sequence[Vector]:
        """Return what a search maximises on each part of the seeds, see `parts`."""
        if self.parts is not None:
            return self.parts(policies, seeds, parts)
        size = len(seeds) // parts
        return [self.returns(policies, seeds[i * size : (i + 1) * size]) for i in range(parts)]


@dataclass(frozen=True, slots=True)
class Refined:
    """A tuned policy and the course of its tuning.

    Attributes:
        episodes: number of episodes played.
        constants: number of tuned constants, or of table entries.
        spread: for each constant its place (`let x`, an output, `bins x` or `levels`) and the final standard deviation
            of the search, relative to the constant or its range; it is large if the return hardly depends on it.
        state: the state from which `cma` can continue.
        climb: mean score of the candidates in the first and in the last generation; None unless the method is `cma`.
        watched: the episodes of the environment that were recorded step by step, for the replay buffer.
        notes: the method's notes for the attempt.
        place: where the policy was tuned, in words, if not in the environment.
    """

    policy: Policy
    episodes: int
    method: str
    constants: int
    spread: tuple[tuple[str, float], ...] = ()
    state: TuningState | None = None
    climb: tuple[float, float] | None = None
    watched: tuple[Trajectory, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""


def is_choice_table(policy: Policy) -> TypeGuard[TablePolicy]:
    """Whether a policy is a table whose actions are all choices among labels."""
    return isinstance(policy, TablePolicy) and all(actuator.is_choice for actuator in policy.task.actuators)


def refine(policy: Policy, method: str, trials: Trials, seed: int) -> Refined | None:
    """Tune a policy's numbers within a budget of episodes; None if there is nothing to tune or the budget is too small.

    Args:
        method: a name in `METHODS`, or `auto`.

    Raises PolicyError if the method does not support this policy or task.
    """
    # If a table has constants (in its own features or bins), these are tuned instead of its entries, unless the entries
    # can be improved exactly.
    exact = trials.mdp is not None and not policy.remembers
    choices = is_choice_table(policy) and (exact or trials.tunable(policy).size == 0)
    found: Refined | None = METHODS[method_for(method, choices=choices, exact=exact)](policy, trials, seed)
    return found


class Tunable:
    """A policy as a vector z: constant i is c_i + s_i * z_i, where s_i is its size; z = 0 is the policy itself.

    The size of a constant in `tune(START, LOW, HIGH)` is the width of its range, which it never leaves.

    Attributes:
        values, sizes: the tuned constants and their sizes, shape (size,).
        places: the place of each constant, as in `Refined.spread`.
    """

    def __init__(self, policy: Policy, floor: float = 0.0) -> None:
        self.policy = policy
        self.floor = floor
        # Definitions of standardised quantities (`n_NAME`) are fixed.
        self._moving = {name for name, node in policy.lets if not is_standardised(name, node)}
        named: list[tuple[str, Node]] = [(f"let {n}", node) for n, node in policy.lets if n in self._moving]
        edges: list[float] = []
        levels: list[float] = []
        places: list[str] = []
        if isinstance(policy, LinearPolicy):
            named += policy.equations
        elif isinstance(policy, TablePolicy):
            # Only bins that the policy defines itself are tuned, not those of the task.
            if policy.grid != policy.task.grid:
                edges = [edge for dimension in policy.grid.dimensions for edge in dimension.edges]
                places = [f"bins {dimension.name}" for dimension in policy.grid.dimensions for _ in dimension.edges]
            pairs = (pair for rule in policy.rules for pair in zip(rule.action, policy.task.actuators, strict=True))
            levels = [value for value, actuator in pairs if not actuator.is_choice]
        in_nodes = [value for _, node in named for value in constants(node)]
        places = [name for name, node in named for _ in constants(node)] + places + ["levels"] * len(levels)
        self._values = np.array([*in_nodes, *edges, *levels], dtype=np.float64)
        ranges = [one for _, node in named for one in limits(node)] + [(-np.inf, np.inf)] * len(edges + levels)
        low, high = np.array(ranges, np.float64).reshape(-1, 2).T
        ranged = np.isfinite(low)
        # The floor is only for constants outside features: one in a feature may be the rate of a clock.
        outside_features = np.array([not place.startswith("let ") for place in places], np.bool_)
        sizes = np.maximum(np.abs(self._values), np.where(outside_features, floor, 0.0))
        # An edge or level of 0 gets the mean size of the other edges or levels.
        for start, stop in ((len(in_nodes), len(in_nodes) + len(edges)), (len(in_nodes) + len(edges), len(sizes))):
            part = sizes[start:stop]
            known = part[part < HUGE]
            part[part == 0] = float(known.mean()) if known.any() else 0.1
        sizes[ranged] = (high - low)[ranged]
        # A 1 in a feature usually belongs to its structure (a limit of `clip`, a sign, `1 - x`), and pi always does.
        structure = [
            value == math.pi or (abs(value) == 1 and place.startswith("let "))
            for value, place in zip(self._values, places, strict=True)
        ]
        self._free = np.flatnonzero((sizes > 0) & (sizes < HUGE) & (ranged | ~np.array(structure, np.bool_)))
        self.sizes, self._ranged = sizes[self._free], ranged[self._free]
        # A constant with a range becomes 0 below this value.
        self._grain = np.where(ranged, sizes * 10.0**-SIGNIFICANT_DIGITS, 0.0)
        self._low, self._high = np.where(ranged, (low, high), 0.0)[:, self._free]
        self.places, self.values = tuple(places[i] for i in self._free), self._values[self._free]

    @property
    def size(self) -> int:
        """Number of tuned constants."""
        return len(self._free)

    def sign_changes(self, tuned: Tunable, z: Vector) -> Vector:
        """Return for each constant whether its number in `tuned`, the policy at z, grows with z (1) or falls (-1).

        It falls if `tuned` writes `a - -3` as `a + 3`, or if the constant is reflected at an end of its range.
        """
        signs = np.sign(self._constants_at(z) * tuned.values)
        falls = np.floor((self.values - self._low) / self.sizes + z) % 2
        return np.where(self._ranged, 1.0 - 2.0 * falls, np.where(signs == 0, 1.0, signs))

    def relative(self, deviations: Vector, z: Vector) -> list[float]:
        """Return standard deviations of z relative to the constants at z, or to their ranges, to 3 digits."""
        with np.errstate(all="ignore"):
            sizes = np.maximum(np.abs(self._constants_at(z)), 0.01 * self.sizes)
            shares = np.nan_to_num(deviations * np.where(self._ranged, 1.0, self.sizes / sizes), posinf=HUGE)
        return [to_digits(value, 3) for value in shares]

    def _constants_at(self, z: Vector) -> Vector:
        """Return the constants at z; one beyond its range is reflected, so that a search sees a slope there."""
        with np.errstate(all="ignore"):
            moved = np.clip(np.nan_to_num(self.values + self.sizes * z, posinf=HUGE, neginf=-HUGE), -HUGE, HUGE)
            beyond = np.mod(moved - self._low, 2 * self.sizes)
        out = self._ranged & ((moved < self._low) | (moved > self._high))
        return np.where(out, self._low + np.minimum(beyond, 2 * self.sizes - beyond), moved)

    def at(self, z: Vector) -> Policy:
        """Return the policy at z, with changed constants rounded to `SIGNIFICANT_DIGITS`."""
        values = self._values.copy()
        values[self._free] = self._constants_at(z)
        tidied = with_plain_signs if (np.sign(values) * np.sign(self._values) < 0).any() else lambda node: node
        for i in np.flatnonzero(values != self._values):
            values[i] = to_digits(values[i], SIGNIFICANT_DIGITS) if abs(values[i]) >= self._grain[i] else 0.0
        rounded = iter(values.tolist())
        lets = tuple(
            (name, tidied(with_constants(node, rounded)) if name in self._moving else node)
            for name, node in self.policy.lets
        )
        if isinstance(self.policy, LinearPolicy):
            equations = tuple((name, tidied(with_constants(node, rounded))) for name, node in self.policy.equations)
            return LinearPolicy(self.policy.task, lets, equations, comments=self.policy.comments)
        assert isinstance(self.policy, TablePolicy)
        grid, rules = self.policy.grid, self.policy.rules
        if grid != self.policy.task.grid:
            grid = Grid(tuple(Dimension(d.name, _increasing(rounded, len(d.edges))) for d in grid.dimensions))
        if self.policy.task.has_numbers:
            actuators = self.policy.task.actuators
            moved = []
            for rule in rules:
                pairs = zip(rule.action, actuators, strict=True)
                action = tuple(v if a.is_choice else min(max(next(rounded), a.low), a.high) for v, a in pairs)
                moved.append(Rule(rule.bins, action))
            rules = tuple(moved)
        return TablePolicy(self.policy.task, lets, grid, rules, comments=self.policy.comments)


def _increasing(values: Iterator[float], count: int) -> tuple[float, ...]:
    """Return the next `count` edges, sorted and with gaps, because a search may move one past another."""
    edges = sorted(next(values) for _ in range(count))
    for i in range(1, count):
        step = 1e-5 * max(1.0, abs(edges[i - 1]))
        edges[i] = max(edges[i], edges[i - 1] + step)
    return tuple(edges)
