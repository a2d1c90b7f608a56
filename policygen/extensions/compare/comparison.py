"""The statistics of a comparison: a row for each task and contender, and the difference of every pair."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from policygen.extensions.compare.contenders import ComparedScores
from policygen.extensions.compare.statistics import (
    fewest_pairs,
    holm,
    mean_of_means,
    more_runs_needed,
    p_against_mean,
    probability_of_improvement,
    seeds_needed,
    shuffle_p,
    sign_flip_p,
    stratified_interval,
)
from policygen.extensions.plots.statistics import Interval, interval_over_seeds
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
        spread: standard deviation of the difference over seeds.
        differing: share of the shared seeds at which the two scores differ.
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
    spread: float
    differing: float
    more: int | None = None
    fewest: int = 0
    unit: Literal["seed", "episode"] = "seed"


def rows_of(compared: ComparedScores) -> list[ComparisonRow]:
    """Return a row for each task and contender that has a score."""
    rows = []
    for task, contender in itertools.product(compared.tasks, compared.contenders):
        if runs := compared.of(task, contender):
            scores = compared.scores(task, contender)
            std = float(scores.std(ddof=1)) if len(scores) > 1 else 0.0
            costs = [(run.llm_calls, run.tokens, run.usd, run.total("episodes"), run.seconds) for run in runs]
            calls, tokens, usd, episodes, seconds = map(_mean_if_known, zip(*costs, strict=True))
            mean, interval, exact = float(scores.mean()), interval_over_seeds(scores), all(run.exact for run in runs)
            means = (mean, std, interval, calls, tokens, usd, episodes, seconds)
            rows.append(ComparisonRow(task, contender, len(runs), *means, exact))
    return rows


def _mean_if_known(amounts: Sequence[float | None]) -> float | None:
    """Return the mean of the amounts; None if one of them is unknown."""
    known = [amount for amount in amounts if amount is not None]
    return float(np.mean(known)) if len(known) == len(amounts) else None


def normalised_scores(compared: ComparedScores, task: str, contender: str) -> Numbers:
    """Return the normalised scores of a contender on a task, shape (runs,).

    0 is the mean of random actions, 100 the best known score or the score that counts as solved. If one of the two is
    unknown, the lowest or the highest score in the comparison takes its place.
    """
    runs = [result for result in compared.results if result.task == task]
    scores = [*(run.score for run in runs if run.score is not None), *compared.published_means(task)]
    random = [run.random for run in runs if run.random is not None]
    target = next((run.target for run in runs if run.target is not None), None)
    zero = float(np.mean(random)) if random else min(scores, default=0.0)
    hundred = target if target is not None and target > zero else max(scores, default=1.0)
    span = hundred - zero if hundred > zero else 1.0
    normalised: Numbers = 100.0 * (compared.scores(task, contender) - zero) / span
    return normalised


def pairs_of(compared: ComparedScores) -> list[Pair]:
    """Compare every two contenders on each of their common tasks, and on all of them together."""
    single: list[Pair] = []
    together: list[Pair] = []
    for first, second in itertools.combinations(compared.contenders, 2):
        common = [task for task in compared.tasks if compared.of(task, first) and compared.of(task, second)]
        single += [_pair(compared, [task], first, second) for task in common]
        if len(common) > 1:
            together.append(_pair(compared, common, first, second))
    return [*_corrected(single), *_corrected(together)]


def _corrected(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with the fields that depend on the number of tests: `corrected`, `more` and `fewest`."""
    corrected = holm([pair.p for pair in pairs])
    # Holm's method counts only differences that are not settled: of k, the smallest p must be at most SIGNIFICANCE / k.
    wanted = SIGNIFICANCE / max(1, sum(p > SIGNIFICANCE for p in corrected))
    found = []
    for pair, p in zip(pairs, corrected, strict=True):
        more, fewest = (0, 0) if p <= SIGNIFICANCE else _further_seeds(pair, wanted)
        found.append(replace(pair, corrected=p, more=more, fewest=fewest))
    return found


def _further_seeds(pair: Pair, level: float) -> tuple[int | None, int]:
    """Return `more` and `fewest` of a pair that is not settled, for a test that must reach the p-value `level`."""
    have = pair.seeds or min(pair.runs)
    if pair.seeds:
        pairs = fewest_pairs(level)
        fewest = math.ceil(pairs / pair.tasks)
        lacking = math.ceil(round(pairs / (pair.tasks * pair.differing), 9)) - have if pair.differing else 0
    else:
        fewest = 1 + more_runs_needed(level, 1, 1, pair.tasks)
        lacking = more_runs_needed(level, *pair.runs, pair.tasks)
    needed = seeds_needed(pair.gain, pair.spread, level) if min(pair.runs) > 1 else None
    return max(1, needed - have, lacking) if needed is not None else None, fewest


def _pair(compared: ComparedScores, tasks: Sequence[str], first: str, second: str) -> Pair:
    """Compare two contenders: on one task by its scores, on several by normalised scores."""
    scores_of = compared.scores if len(tasks) == 1 else partial(normalised_scores, compared)
    ones, others = ([scores_of(task, name) for task in tasks] for name in (first, second))
    counts = (min(len(one) for one in ones), min(len(other) for other in others))
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
        half, seeds = len(tasks), 0
        gain = float(np.mean([other.mean() - one.mean() for one, other in zip(ones, others, strict=True)]))
        interval = stratified_interval(
            [*ones, *others], lambda samples: mean_of_means(samples[half:]) - mean_of_means(samples[:half])
        )
        p = shuffle_p(others, ones)
        spread, differing = float(np.hypot(_spread(ones), _spread(others))), 1.0
    name = tasks[0] if len(tasks) == 1 else ALL_TASKS
    better = probability_of_improvement(others, ones)
    estimated = (len(tasks), gain, interval, better, p, p)
    return Pair(name, first, second, *estimated, seeds, counts, spread, differing, unit=compared.unit)


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
        strata = [normalised_scores(compared, task, contender) for task in compared.tasks]
        if all(map(len, strata)):
            found[contender] = (float(mean_of_means(strata)), stratified_interval(strata, mean_of_means))
    return found


def standings(compared: ComparedScores, contender: str) -> dict[str, PublishedRank]:
    """Compare the mean of a contender with the published means, by task.

    `above`: it is higher than each, significantly after a correction for the number of tasks (see `p_against_mean`).
    `highest`: it is higher, but not significantly. `level`: it equals the best published mean to the printed digits.
    `lower`: it is lower than the best.
    """
    gains: dict[str, float] = {}
    p_values = []
    for task in compared.tasks:
        published, scores = compared.published_means(task), compared.scores(task, contender)
        if published and len(scores):
            gains[task] = float(scores.mean()) - max(published)
            columns = [(*column.scores[task], column.runs) for column in compared.published if task in column.scores]
            p_values.append(max(p_against_mean(scores, *one) for one in columns))
    found: dict[str, PublishedRank] = {}
    for (task, gain), corrected in zip(gains.items(), holm(p_values), strict=True):
        if abs(gain) < PUBLISHED_DIGITS:
            found[task] = "level"
        else:
            found[task] = "lower" if gain < 0 else "above" if corrected <= SIGNIFICANCE else "highest"
    return found


def significantly_highest(compared: ComparedScores, pairs: Sequence[Pair], task: str) -> str | None:
    """Return the contender that is significantly above all others and all published columns on a task; None if none."""
    present = [name for name in compared.contenders if compared.of(task, name)]
    sure = [pair for pair in pairs if pair.task == task and pair.corrected <= SIGNIFICANCE]
    wins = Counter(pair.second if pair.gain > 0 else pair.first for pair in sure)
    for name in present:
        if wins[name] == len(present) - 1:
            standing = standings(compared, name).get(task)
            if standing == "above" or (standing is None and len(present) > 1):
                return name
    return None
