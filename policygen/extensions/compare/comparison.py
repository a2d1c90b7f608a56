"""The statistics of a comparison: a row for each task and contender, and the difference of every pair."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from policygen.extensions.compare.contenders import ComparedScores
from policygen.extensions.compare.results import Result
from policygen.extensions.plots.statistics import (
    Interval,
    fewest_pairs,
    holm,
    interval_over_seeds,
    mean_of_means,
    more_runs_needed,
    p_against_mean,
    probability_of_improvement,
    seeds_needed,
    shuffle_p,
    sign_flip_p,
    stratified_interval,
)
from policygen.extensions.plots.style import Numbers

SIGNIFICANCE = 0.05  # a difference is settled if its corrected p-value is at most this
ALL_TASKS = "all tasks"
PUBLISHED_DIGITS = 0.005  # half a unit of the last digit in published tables
PublishedRank = Literal["above", "highest", "level", "lower"]


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """The scores and costs of a contender on a task, as means over its runs.

    Attributes:
        std: standard deviation of the scores; 0 for one run.
        mean_interval: 95% bootstrap interval of the mean score; None for one run.
        calls, tokens, usd, seconds: costs of a run; None if one is unknown or not counted.
        episodes: number of episodes played before the final score (see `runs.records.Summary`), or None as above.
        exact: whether all scores are exact, without sampling error.
    """

    task: str
    contender: str
    runs: int
    mean: float
    std: float
    mean_interval: Interval | None
    calls: float | None
    tokens: float | None
    usd: float | None
    episodes: float | None
    seconds: float | None
    exact: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """The difference between two contenders, on one task or on all their common tasks (with `normalised_scores`).

    Attributes:
        tasks: number of tasks.
        gain: mean of `second` minus mean of `first`, over shared seeds if every task has some.
        interval: 95% bootstrap interval of the gain; None for single runs.
        better: the probability that a run of `second` is better than one of `first`; a tie counts half.
        p, corrected: p-value of a permutation test, and the same corrected by Holm's method for the number of tests.
        seeds: number of shared seeds per task; 0 if runs are not paired.
        runs: number of runs of `first` and of `second`.
        more: estimate of the further seeds that settle the difference: 0 if settled, None if unknown or impossible.
        fewest: smallest number of seeds at which the corrected test can be significant; 0 if settled.
        unit: as in `ComparedScores`; if it is `episode`, seeds and runs are episodes.
    """

    task: str
    first: str
    second: str
    tasks: int
    gain: float
    interval: Interval | None
    better: float
    p: float
    corrected: float
    seeds: int
    runs: tuple[int, int]
    more: int | None = None
    fewest: int = 0
    unit: Literal["seed", "episode"] = "seed"


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A pair, and the facts from which the number of further seeds is estimated.

    Attributes:
        spread: standard deviation of the difference over seeds.
        differing: share of the common seeds at which the two scores differ.
    """

    pair: Pair
    spread: float
    differing: float = 1.0


def rows_of(compared: ComparedScores) -> list[ComparisonRow]:
    """Return a row for each task and contender that has a score."""
    return [
        _row(task, contender, runs)
        for task, contender in itertools.product(compared.tasks, compared.contenders)
        if (runs := compared.of(task, contender))
    ]


def _row(task: str, contender: str, runs: Sequence[Result]) -> ComparisonRow:
    scores = np.array([run.score for run in runs], dtype=np.float64)

    def mean_cost(value: Callable[[Result], float | None]) -> float | None:
        known = [found for run in runs if (found := value(run)) is not None]
        return float(np.mean(known)) if len(known) == len(runs) else None

    return ComparisonRow(
        task,
        contender,
        len(runs),
        float(scores.mean()),
        float(scores.std(ddof=1)) if len(scores) > 1 else 0.0,
        interval_over_seeds(scores),
        mean_cost(lambda run: run.llm_calls),
        mean_cost(lambda run: run.tokens),
        mean_cost(lambda run: run.usd),
        mean_cost(lambda run: run.total("episodes")),
        mean_cost(lambda run: run.seconds),
        all(run.exact for run in runs),
    )


def normalised_scores(compared: ComparedScores, task: str, contender: str) -> Numbers:
    """Return the normalised scores of a contender on a task, shape (runs,).

    0 is the mean of random actions, 100 the best known score or the score that counts as solved. If one of the two is
    unknown, the lowest or the highest score in the comparison takes its place.
    """
    runs = [result for result in compared.results if result.task == task]
    published = [column.scores[task][0] for column in compared.published if task in column.scores]
    scores = [*(run.score for run in runs if run.score is not None), *published]
    random = [run.random for run in runs if run.random is not None]
    target = next((run.target for run in runs if run.target is not None), None)
    zero = float(np.mean(random)) if random else min(scores, default=0.0)
    hundred = target if target is not None and target > zero else max(scores, default=1.0)
    span = hundred - zero if hundred > zero else 1.0
    normalised: Numbers = 100.0 * (compared.scores(task, contender) - zero) / span
    return normalised


def pairs_of(compared: ComparedScores) -> list[Pair]:
    """Compare every two contenders on each of their common tasks, and on all of them together."""
    single: list[_Evidence] = []
    together: list[_Evidence] = []
    for first, second in itertools.combinations(compared.contenders, 2):
        common = [task for task in compared.tasks if compared.of(task, first) and compared.of(task, second)]
        single += [_pair(compared, [task], first, second) for task in common]
        if len(common) > 1:
            together.append(_pair(compared, common, first, second))
    return [*_corrected(single), *_corrected(together)]


def _corrected(found: Sequence[_Evidence]) -> list[Pair]:
    """Return the pairs with the fields that depend on the number of tests."""
    corrected = holm([one.pair.p for one in found])
    # Holm's method counts only differences that are not settled: of k, the smallest p must be at most SIGNIFICANCE / k.
    wanted = SIGNIFICANCE / max(1, sum(p > SIGNIFICANCE for p in corrected))
    pairs = []
    for one, p in zip(found, corrected, strict=True):
        more, fewest = (0, 0) if p <= SIGNIFICANCE else _further_seeds(one, wanted)
        pairs.append(replace(one.pair, corrected=p, more=more, fewest=fewest))
    return pairs


def _further_seeds(one: _Evidence, level: float) -> tuple[int | None, int]:
    """Return `more` and `fewest` of a pair that is not settled, for a test that must reach the p-value `level`."""
    pair = one.pair
    have = pair.seeds or min(pair.runs)
    if pair.seeds:
        pairs = fewest_pairs(level)
        fewest = math.ceil(pairs / pair.tasks)
        lacking = math.ceil(round(pairs / (pair.tasks * one.differing), 9)) - have if one.differing else 0
    else:
        fewest = 1 + more_runs_needed(level, 1, 1, pair.tasks)
        lacking = more_runs_needed(level, *pair.runs, pair.tasks)
    needed = seeds_needed(pair.gain, one.spread, level) if min(pair.runs) > 1 else None
    return max(1, needed - have, lacking) if needed is not None else None, fewest


def _pair(compared: ComparedScores, tasks: Sequence[str], first: str, second: str) -> _Evidence:
    """Compare two contenders: on one task by its scores, on several by normalised scores."""

    def scores_of(contender: str) -> list[Numbers]:
        return [
            compared.scores(task, contender) if len(tasks) == 1 else normalised_scores(compared, task, contender)
            for task in tasks
        ]

    ones, others = scores_of(first), scores_of(second)
    counts = (min(len(one) for one in ones), min(len(other) for other in others))
    better, differing, seeds = probability_of_improvement(others, ones), 1.0, 0
    sides = [
        (_by_seed(compared, task, first, one), _by_seed(compared, task, second, other))
        for task, one, other in zip(tasks, ones, others, strict=True)
    ]
    if all(mine.keys() & theirs.keys() for mine, theirs in sides):
        gains = [np.array([theirs[s] - mine[s] for s in sorted(mine.keys() & theirs.keys())]) for mine, theirs in sides]
        gain = float(mean_of_means(gains))
        interval = stratified_interval(gains, mean_of_means)
        p = sign_flip_p(gains)
        seeds = min(len(one) for one in gains)
        spread, differing = _spread(gains), float(np.mean(np.concatenate(gains) != 0))
    else:
        gain = float(np.mean([other.mean() - one.mean() for one, other in zip(ones, others, strict=True)]))
        half = len(tasks)
        interval = stratified_interval(
            [*ones, *others], lambda samples: mean_of_means(samples[half:]) - mean_of_means(samples[:half])
        )
        p = shuffle_p(others, ones)
        spread = float(np.hypot(_spread(ones), _spread(others)))
    name = tasks[0] if len(tasks) == 1 else ALL_TASKS
    pair = Pair(name, first, second, len(tasks), gain, interval, better, p, p, seeds, counts, unit=compared.unit)
    return _Evidence(pair, spread, differing)


def _by_seed(compared: ComparedScores, task: str, contender: str, scores: Numbers) -> dict[int, float]:
    """Return the mean score of each seed; `scores` has one for each of the contender's runs."""
    found: dict[int, list[float]] = {}
    for run, score in zip(compared.of(task, contender), scores.tolist(), strict=True):
        if run.seed is not None:
            found.setdefault(run.seed, []).append(score)
    return {seed: float(np.mean(own)) for seed, own in found.items()}


def _spread(strata: Sequence[Numbers]) -> float:
    """Return the standard deviation over seeds of the mean over tasks, as if each task had seeds of its own."""
    variances = [float(np.var(values, ddof=1)) if len(values) > 1 else 0.0 for values in strata]
    return float(np.sqrt(sum(variances))) / len(strata)


def means_over_tasks(compared: ComparedScores) -> dict[str, tuple[float, Interval | None]]:
    """Return the mean normalised score over all tasks, and its interval, of each contender that has runs of all."""
    found = {}
    for contender in compared.contenders:
        if all(compared.of(task, contender) for task in compared.tasks):
            strata = [normalised_scores(compared, task, contender) for task in compared.tasks]
            found[contender] = (float(mean_of_means(strata)), stratified_interval(strata, mean_of_means))
    return found


def best_published(compared: ComparedScores, task: str) -> float | None:
    """Return the highest published mean of a task."""
    return max((column.scores[task][0] for column in compared.published if task in column.scores), default=None)


def standings(compared: ComparedScores, contender: str) -> dict[str, PublishedRank]:
    """Compare the mean of a contender with the published means, by task.

    `above`: it is higher than each, significantly after a correction for the number of tasks (see `p_against_mean`).
    `highest`: it is higher, but not significantly. `level`: it equals the best published mean to the printed digits.
    `lower`: it is lower than the best.
    """
    with_published: dict[str, tuple[float, float]] = {}
    for task in compared.tasks:
        best, scores = best_published(compared, task), compared.scores(task, contender)
        if best is not None and len(scores):
            columns = [(*column.scores[task], column.runs) for column in compared.published if task in column.scores]
            with_published[task] = float(scores.mean()) - best, max(p_against_mean(scores, *one) for one in columns)
    found: dict[str, PublishedRank] = {}
    for (task, (gain, _)), corrected in zip(
        with_published.items(), holm([p for _, p in with_published.values()]), strict=True
    ):
        if abs(gain) < PUBLISHED_DIGITS:
            found[task] = "level"
        else:
            found[task] = "lower" if gain < 0 else "above" if corrected <= SIGNIFICANCE else "highest"
    return found


def significantly_highest(compared: ComparedScores, pairs: Sequence[Pair], task: str) -> str | None:
    """Return the contender that is significantly above all others and all published columns on a task; None if none."""
    present = [name for name in compared.contenders if compared.of(task, name)]
    sure = [pair for pair in pairs if pair.task == task and pair.corrected <= SIGNIFICANCE]
    beaten = [(pair.second, pair.first) if pair.gain > 0 else (pair.first, pair.second) for pair in sure]
    for name in present:
        if sum(winner == name for winner, _ in beaten) < len(present) - 1:
            continue
        standing = standings(compared, name).get(task)
        if standing == "above" or (standing is None and len(present) > 1):
            return name
    return None
