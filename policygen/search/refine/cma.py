"""`cma`: the covariance matrix adaptation evolution strategy for tens of constants.

Hansen, "The CMA evolution strategy: a tutorial", arXiv 1604.00772, by the pycma library.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policygen.policies.policy import Policy
from policygen.search.refine.tunable import FIRST_STEP, Refined, Trials, Tunable, Vector

POPULATION = 12  # candidates of a generation, all on the same seeds
SEEDS_PER_GENERATION = 4
FIRST_STEPS = (0.02, 0.3)  # least and most first change of a constant, where more is known about it
PROBE = 0.1  # relative change of one constant at a time, to see what it does to the return
PROBE_SHARE = 0.2  # of the budget, at most
# The search drifts along what its few seeds reward, towards cliffs they do not show: of its own history the policy is
# chosen on episodes it has not seen, by successive halving, for this share of the budget.
VALIDATION_SHARE = 0.2
VALIDATED = 16  # moments of the search that are compared, at most
LEAST_VALIDATION = 12  # seeds for each of them in the first round; with less budget fewer are compared, or none


def cma_es(tunable: Tunable, trials: Trials, rng_seed: int, spread: Sequence[float]) -> Refined | None:
    """Tune by CMA-ES; None where the budget does not suffice for one generation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # optional plotting that is not installed
        import cma

    steps, probed = np.asarray(spread, np.float64), 0
    if len(steps) != tunable.size:
        steps, probed = _first_steps(tunable, trials)
    population = max(POPULATION, 4 + int(3 * math.log(tunable.size)))
    per_generation = population * SEEDS_PER_GENERATION
    validation = int(trials.episodes * VALIDATION_SHARE)
    fits = [k for k in range(2, VALIDATED + 1) if validation // _rounds(k) // k >= LEAST_VALIDATION]
    compared = max(fits, default=1)
    if compared == 1:
        validation = 0
    generations = (trials.episodes - validation - probed) // per_generation
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
        shared = trials.seeds(first + generation * SEEDS_PER_GENERATION, SEEDS_PER_GENERATION)
        scores = trials.returns([tunable.at(np.asarray(z)) for z in candidates], shared)
        search.tell(candidates, (-scores).tolist())
        # The mean of the distribution, not the luckiest candidate.
        means.append(np.asarray(search.result.xfavorite))
    # The start is among them: with a small budget, nothing better may have been found.
    moments = np.linspace(generations, generations // 8, compared).astype(int)
    moments = np.unique([*moments[: compared - 1], 0 if validation else generations])
    chosen = [tunable.at(means[moment]) for moment in moments]
    best, validated = _best_of(chosen, replace(trials, episodes=validation), first + generations * SEEDS_PER_GENERATION)
    return Refined(
        best,
        probed + generations * per_generation + validated,
        "cma",
        tunable.size,
        tuple(zip(tunable.places, tunable.relative(np.asarray(search.result.stds), means[-1]), strict=True)),
    )


def _first_steps(tunable: Tunable, trials: Trials) -> tuple[Vector, int]:
    """First changes of the constants, of which each costs about as much return, and the episodes it took to find out.

    Every constant is moved a little both ways on the same seeds. Were the return a bowl with axes along the constants,
    steps in proportion to one over the square root of the losses would make it round. A length that the geometry
    dictates then moves little, a gain that hardly matters much. Without the budget for it all steps are alike.
    """
    alike = np.full(tunable.size, FIRST_STEP)
    cost = (2 * tunable.size + 1) * SEEDS_PER_GENERATION
    if tunable.floor > 0 or tunable.size == 1 or cost > PROBE_SHARE * trials.episodes:
        return alike, 0
    moves = PROBE * np.eye(tunable.size)
    shared = trials.seeds(0, SEEDS_PER_GENERATION)
    scores = trials.returns([tunable.at(z) for z in (alike * 0, *moves, *-moves)], shared)
    loss = np.abs(scores[1:] - scores[0]).reshape(2, -1).max(axis=0)
    if not np.median(loss) > 0:
        return alike, cost
    with np.errstate(divide="ignore"):
        return np.clip(FIRST_STEP * np.sqrt(np.median(loss) / loss), *FIRST_STEPS), cost


def _rounds(policies: int) -> int:
    """Rounds of halving until one is left."""
    return math.ceil(math.log2(policies))


def _best_of(policies: Sequence[Policy], trials: Trials, first: int) -> tuple[Policy, int]:
    """The best policy by successive halving (Jamieson and Talwalkar, arXiv 1502.07943), and the episodes it took.

    Every round costs the same; the better half of the policies goes on to more seeds, from number `first` on.
    """
    rounds = _rounds(len(policies))
    remaining = list(policies)
    totals, counted, played = np.zeros(len(remaining)), 0, 0
    for _ in range(rounds):
        count = trials.episodes // rounds // len(remaining)
        totals += count * trials.returns(remaining, trials.seeds(first + counted, count))
        counted, played = counted + count, played + count * len(remaining)
        order = np.argsort(-totals, kind="stable")[: math.ceil(len(remaining) / 2)]
        remaining, totals = [remaining[i] for i in order], totals[order]
    return remaining[0], played
