"""`cma`: the covariance matrix adaptation evolution strategy, as the pycma library implements it.

Source: Hansen, "The CMA evolution strategy: a tutorial", arXiv 1604.00772. For more than 100 constants it learns no
correlations, and needs only linear time and memory (separable CMA-ES, Ros and Hansen 2008).

In this module, z is the change of each constant divided by its size (see `Tunable`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from policygen.policies.policy import Policy
from policygen.quantities.text import to_digits
from policygen.runs.attempt import TuningState
from policygen.runs.tuning import FIRST_STEP, POPULATION, SEEDS_PER_GENERATION, VALIDATION_SHARE
from policygen.search.refine.tunable import Refined, Trials, Tunable, Vector

FIRST_STEPS = (0.02, 0.3)  # minimum and maximum first step of a constant after probing
PROBE = 0.1  # relative change of one constant at a time, to measure its effect on the return
PROBE_SHARE = 0.2  # maximum share of the budget for probing
MAX_VALIDATED = 16  # maximum number of distribution means that are compared at the end
STALL = 30  # generations without improvement after which a search ends
CHECKED_EVERY = 10  # generations between checks of the number of seeds
# Numbers of seeds, and the minimum rank correlation between two halves of the seeds at which each number is enough.
FEWER = ((1, 0.9), (2, 0.7))
FLAT = 10  # generations with equal returns after which a search ends
MIN_CLIMB = 5  # minimum number of generations for detecting a rise
MAX_CORRELATED = 100  # maximum number of constants whose correlations are learned
MIN_EIGENVALUE = 1e-4  # of a stored correlation matrix, which is rounded and may not be positive definite
KEPT_STEPS = (0.003, 1e4)  # limits on the relative steps of a continued search, which are huge for a constant near 0
MIN_SHARED = 0.5  # minimum share of its constants that a revised policy has in common with the tuned one
WIDER = 2.0  # factor on the final deviations of shared constants, because new constants shift their optimum
MIN_VALIDATION = 12  # seeds for each mean in the first round; a smaller budget compares fewer means, or none


def tune(policy: Policy, trials: Trials, rng_seed: int, population: int = POPULATION) -> Refined | None:
    """Tune the constants of a policy; None if it has none, or the budget is too small for one generation.

    Args:
        trials: their state, if any, is that of a search of these constants which ended at this policy.
        population: minimum number of candidates in a generation.
    """
    tunable = trials.tunable(policy)
    if not tunable.size:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its optional plotting is not installed
        import cma  # start-up time: takes a second to load

    population = max(population, 4 + int(3 * math.log(tunable.size)))
    options: dict[str, Any] = {"popsize": population, "seed": rng_seed + 1, "verbose": -9, "verb_log": 0}
    if tunable.size == 1 or tunable.size > MAX_CORRELATED:
        options["CMA_diagonal"] = True
    # CMA-ES is invariant to linear transformations: a stopped search continues in coordinates in which its distribution
    # was isotropic. It recovers its evolution path in a few generations.
    shape, step, probed = _map_of(trials.state, tunable), 1.0, 0
    if shape is None:
        shape, step = np.ones(tunable.size), trials.first_step
        steps, probed = _first_steps(tunable, trials)
        options["CMA_stds"] = (np.clip(steps, *FIRST_STEPS) / FIRST_STEP).tolist()
    validation = int(trials.episodes * VALIDATION_SHARE)
    fits = [k for k in range(2, MAX_VALIDATED + 1) if validation // math.ceil(math.log2(k)) // k >= MIN_VALIDATION]
    compared = max(fits, default=1)
    if compared == 1:
        validation = 0
    budget = trials.episodes - validation - probed
    if budget < population * SEEDS_PER_GENERATION or not trials.affords(population * SEEDS_PER_GENERATION + validation):
        return None
    search = cma.CMAEvolutionStrategy(np.zeros(tunable.size), step, options)
    first = SEEDS_PER_GENERATION if probed else 0
    means, levels = [np.zeros(tunable.size)], list[float]()
    spent, needed = 0, SEEDS_PER_GENERATION
    while spent + population * needed <= budget and not has_converged(levels):
        if not trials.affords(population * needed + validation):
            break  # steps are limited, and episodes are longer now
        if len(levels) % CHECKED_EVERY == 0 and spent + population * SEEDS_PER_GENERATION <= budget:
            needed = SEEDS_PER_GENERATION
        samples = search.ask()
        candidates = [tunable.at(_mapped(shape, x)) for x in samples]
        shared = trials.seeds(first, needed)
        first, spent = first + needed, spent + population * needed
        parts = trials.maximised(candidates, shared, 2 if needed == SEEDS_PER_GENERATION else 1)
        scores = np.mean(parts, axis=0)
        needed = _seeds_needed(*parts) if len(parts) == 2 else needed
        search.tell(samples, (-scores).tolist())
        # Keep the mean of the distribution, not the luckiest candidate.
        means.append(_mapped(shape, search.result.xfavorite))
        levels.append(float(scores.mean()))
    generations = len(levels)
    # Include the original policy: with a small budget, the search may have found nothing better.
    moments = np.linspace(generations, generations // 8, compared).astype(int)
    moments = np.unique([*moments[: compared - 1], 0 if validation else generations])
    chosen = [tunable.at(means[moment]) for moment in moments]
    place, validated = best_by_halving(chosen, replace(trials, episodes=validation), first)
    distribution = _distribution(search, shape)
    return Refined(
        chosen[place],
        probed + spent + validated,
        "cma",
        tunable.size,
        tuple(zip(tunable.places, tunable.relative(distribution[0], means[-1]), strict=True)),
        _state(distribution, tunable, Tunable(chosen[place], tunable.floor), means[moments[place]], levels),
        (levels[0], levels[-1]),
    )


def _seeds_needed(one: Vector, other: Vector) -> int:
    """Return the number of seeds for the next generations, from the candidates' returns on two halves of the seeds.

    The better the two rankings agree, the fewer seeds are needed, and the more generations the budget allows.
    """
    from scipy.stats import spearmanr  # start-up time: takes a second to load

    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return SEEDS_PER_GENERATION
    agreement = float(spearmanr(one, other).statistic)
    return next((count for count, least in FEWER if agreement >= least), SEEDS_PER_GENERATION)


def has_converged(levels: Sequence[float]) -> bool:
    """Whether a search has converged, judged by the mean returns of its generations.

    It has after `FLAT` equal returns, or if a line through the last `STALL` returns predicts that `STALL` more
    generations gain less than the standard error of their mean. The line is checked every `STALL / 3` generations.
    """
    if len(levels) >= FLAT and len(set(levels[-FLAT:])) == 1:
        return True
    if len(levels) < STALL or len(levels) % (STALL // 3):
        return False
    slope, residual = _line(levels[-STALL:])
    return slope * STALL <= residual / math.sqrt(STALL)


def _line(levels: Sequence[float]) -> tuple[float, float]:
    """Return the slope of the least-squares line through the levels, and the residuals' standard deviation."""
    at = np.arange(len(levels)) - (len(levels) - 1) / 2
    values = np.asarray(levels) - np.mean(levels)
    slope = float(at @ values / (at @ at))
    return slope, float(np.sqrt(((values - slope * at) ** 2).sum() / max(1, len(levels) - 2)))


def _climbing(levels: Sequence[float]) -> bool:
    """Whether the mean return rose over the last generations, by a slope of more than twice its standard error."""
    count = min(len(levels), STALL)
    if count < MIN_CLIMB:
        return False
    slope, residual = _line(levels[-count:])
    return slope > 2 * residual / math.sqrt(count * (count**2 - 1) / 12)


def _mapped(shape: Vector, x: Vector) -> Vector:
    """Apply the linear map `shape`: a matrix, or its diagonal."""
    mapped: Vector = shape * x if shape.ndim == 1 else shape @ x
    return mapped


def _distribution(search: Any, shape: Vector) -> tuple[Vector, Vector | None]:
    """Return the search distribution in z: standard deviations, including the step size, and learned correlations."""
    deviations = np.asarray(search.result.stds)
    if not 1 < len(deviations) <= MAX_CORRELATED:
        return np.sqrt(_mapped(shape, _mapped(shape, deviations**2))), None
    own = np.asarray(search.sm.C)
    scale = deviations / np.sqrt(np.diag(own))
    covariance = own * np.outer(scale, scale)
    if shape.ndim == 2:
        covariance = shape @ covariance @ shape.T
    spread = np.sqrt(np.diag(covariance))
    return spread, covariance / np.outer(spread, spread)


def _state(
    distribution: tuple[Vector, Vector | None], tunable: Tunable, tuned: Tunable, z: Vector, levels: Sequence[float]
) -> TuningState | None:
    """Return the final state of a search that ended at the policy `tuned`, at z; None if it has other constants."""
    spread, correlations = distribution
    if tuned.size != tunable.size:
        return None
    stored: tuple[float, ...] = ()
    if correlations is not None:
        signs = tunable.sign_changes(tuned, z)
        below = np.tril_indices(tunable.size, -1)
        stored = tuple((correlations * np.outer(signs, signs))[below].round(3).tolist())
    deviations = tuple(to_digits(value, 4) for value in spread * tunable.sizes)
    return TuningState(deviations, stored, tunable.floor, _climbing(levels))


def _map_of(state: TuningState | None, tunable: Tunable) -> Vector | None:
    """Return the linear map from an isotropic distribution to the stored one, in z; None without a usable state."""
    if state is None or len(state.deviations) != tunable.size:
        return None
    deviations = np.asarray(state.deviations) / tunable.sizes
    if not (np.isfinite(deviations).all() and (deviations > 0).all()):
        return None
    deviations = np.clip(deviations, *KEPT_STEPS)
    if not state.correlations:
        return deviations
    values, vectors = np.linalg.eigh(_correlations(state).clip(-1, 1))
    root: Vector = vectors * np.sqrt(np.maximum(values, MIN_EIGENVALUE)) @ vectors.T
    return np.asarray(deviations[:, None] * root)


def _correlations(state: TuningState) -> Vector:
    """Return the stored correlation matrix; the identity if there is none."""
    size = len(state.deviations)
    matrix, (rows, columns) = np.eye(size), np.tril_indices(size, -1)
    if len(state.correlations) == len(rows):
        matrix[rows, columns] = matrix[columns, rows] = state.correlations
    return matrix


def _first_steps(tunable: Tunable, trials: Trials) -> tuple[Vector, int]:
    """Probe the constants; return first steps of about equal effect on the return, and the episodes played.

    Every constant is changed a little both ways on the same seeds. If the return is quadratic and separable, steps
    proportional to 1 / sqrt(loss) make it isotropic: sensitive constants get small steps, others large ones. If the
    budget is too small for it, all steps are equal.
    """
    alike = np.full(tunable.size, FIRST_STEP)
    cost = (2 * tunable.size + 1) * SEEDS_PER_GENERATION
    if tunable.floor > 0 or tunable.size == 1 or cost > PROBE_SHARE * trials.episodes:
        return alike, 0
    moves = PROBE * np.eye(tunable.size)
    shared = trials.seeds(0, SEEDS_PER_GENERATION)
    (scores,) = trials.maximised([tunable.at(z) for z in (alike * 0, *moves, *-moves)], shared)
    loss = np.abs(scores[1:] - scores[0]).reshape(2, -1).max(axis=0)
    if not np.median(loss) > 0:
        return alike, cost
    with np.errstate(divide="ignore"):
        return np.clip(FIRST_STEP * np.sqrt(np.median(loss) / loss), *FIRST_STEPS), cost


def best_by_halving(policies: Sequence[Policy], trials: Trials, first: int) -> tuple[int, int]:
    """Return the index of the best policy, by successive halving (arXiv 1502.07943), and the episodes played.

    Every round costs the same; the better half of the policies plays more seeds, from index `first` on.
    """
    rounds = math.ceil(math.log2(len(policies)))
    remaining = list(range(len(policies)))
    totals, counted, played = np.zeros(len(remaining)), 0, 0
    for _ in range(rounds):
        count = trials.episodes // rounds // len(remaining)
        totals += count * trials.returns([policies[i] for i in remaining], trials.seeds(first + counted, count))
        counted, played = counted + count, played + count * len(remaining)
        order = np.argsort(-totals, kind="stable")[: math.ceil(len(remaining) / 2)]
        remaining, totals = [remaining[i] for i in order], totals[order]
    return remaining[0], played


def carry_over(
    policy: Policy, parent: Policy, state: TuningState, first_step: float = FIRST_STEP
) -> TuningState | None:
    """Return the initial search distribution for tuning `policy`, a revision of `parent`; None if too little is shared.

    Most constants of a revision are those of its parent. These keep their deviations, somewhat widened, and their
    correlations; only new constants get first steps.

    Args:
        state: final state of the tuning of `parent`.
        first_step: first step of new constants, relative to their size. Below FIRST_STEP, the steps of shared constants
            shrink as well.
    """
    new, old = Tunable(policy, state.floor), Tunable(parent, state.floor)
    shared = _shared_constants(new, old)
    if old.size != len(state.deviations) or len(shared) < MIN_SHARED * new.size or not shared:
        return None
    here, there = np.array(shared).T
    deviations = first_step * new.sizes
    wider = WIDER * first_step / FIRST_STEP
    deviations[here] = np.minimum(deviations[here], wider * np.asarray(state.deviations)[there])
    stored: tuple[float, ...] = ()
    if max(new.size, old.size) <= MAX_CORRELATED:
        correlations = np.eye(new.size)
        correlations[np.ix_(here, here)] = _correlations(state)[np.ix_(there, there)]
        stored = tuple(correlations[np.tril_indices(new.size, -1)].tolist())
    return TuningState(tuple(to_digits(value, 4) for value in deviations), stored, state.floor)


def _shared_constants(new: Tunable, old: Tunable) -> list[tuple[int, int]]:
    """Return the index pairs of shared constants: same place and order, equal to two digits (models round)."""
    pairs = []
    for place in dict.fromkeys(new.places):
        here, there = ([i for i in range(one.size) if one.places[i] == place] for one in (new, old))
        texts, others = ([f"{one.values[i]:.2g}" for i in at] for one, at in ((new, here), (old, there)))
        for block in SequenceMatcher(None, texts, others, autojunk=False).get_matching_blocks():
            pairs += [(here[block.a + i], there[block.b + i]) for i in range(block.size)]
    return pairs
