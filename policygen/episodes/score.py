"""Scores of policies, with confidence intervals and paired comparisons on common seeds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.requirements import Requirements, Violations
from policygen.episodes.trajectory import Trajectory
from policygen.tasks.task import Task

CONFIDENCE = 0.95  # of the one-sided lower bound that must reach a target
NEGLIGIBLE = 1e-4  # an exact score this close to the known optimum, relative to its size, counts as reaching it
ROUNDING = 1e-9  # differences of exact scores up to this size are rounding errors
# So many episodes without a failure show, with 95% confidence, that a policy fails in fewer than 1 of 100 (the rule of
# three; Hanley and Lippman-Hand, JAMA 249, 1983).
FAULTLESS = 300


@dataclass(frozen=True, slots=True, repr=False)
class Score:
    """The mean return of one policy, its uncertainty, and how it was obtained.

    Attributes:
        std: the standard deviation of the episodes' returns (not of their mean).
        ci95: the 95% Student's t interval of the mean; a point if exact, None for a single episode.
        returns, seeds: of the episodes; empty if exact.
        violations: of the task's requirements, in final scores and those of `evaluate`.
    """

    mean: float
    std: float
    ci95: tuple[float, float] | None
    exact: bool
    engine: str
    returns: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()
    violations: tuple[Violations, ...] = ()

    @property
    def episodes(self) -> int:
        """Number of episodes of the score, 0 if exact."""
        return len(self.returns)

    def __repr__(self) -> str:
        return f"Score({self})"

    def __str__(self) -> str:
        if self.exact:
            return f"{number(self.mean)} (exact)"
        interval = f" [{number(self.ci95[0])}, {number(self.ci95[1])}]" if self.ci95 else ""
        return f"{number(self.mean)}{interval} over {episode_words(self)}"


_UNSEEDED = ", unseeded"


def engine_words(engine: str, task: Task) -> str:
    """Describe the engine of a score; add `, unseeded` if the environment ignores its seed."""
    return engine + _UNSEEDED * task.unseeded


def episode_words(score: Score, which: str = "") -> str:
    """Return the number of episodes in words, such as `100 fresh episodes` or `20 unseeded episodes`."""
    unseeded = "unseeded" if score.engine.endswith(_UNSEEDED) else ""
    noun = "episode" if score.episodes == 1 else "episodes"
    return " ".join(filter(None, (str(score.episodes), which, unseeded, noun)))


def number(value: float) -> str:
    """Format a number with four significant digits; from 1,000 on, as an integer with thousands separators."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value + 0.0:.4g}"


def episode_seeds(run_seed: int, purpose: str, count: int, first: int = 0) -> tuple[int, ...]:
    """Return seeds `first` to `first + count - 1` of a run's stream for `purpose`; streams are independent.

    The same arguments always give the same seeds, and a longer request begins with the seeds of a shorter one.
    """
    # The purpose is part of the entropy: tuning and final scores never share a stream.
    entropy = [run_seed, *purpose.encode()]
    return tuple(int(s) for s in np.random.SeedSequence(entropy).generate_state(first + count)[first:])


def sampled_score(trajectories: Sequence[Trajectory], engine: str) -> Score:
    """Compute the score of a set of episodes."""
    returns = np.array([trajectory.episode_return for trajectory in trajectories])
    return score_of_returns(returns, tuple(trajectory.seed for trajectory in trajectories), engine)


def score_with_violations(
    task: Task, trajectories: Sequence[Trajectory], engine: str, exact: Score | None = None
) -> Score:
    """Return the score of the episodes, or the exact one, with their violations of the task's requirements."""
    score = exact if exact is not None else sampled_score(trajectories, engine)
    return replace(score, violations=Requirements(task).count(trajectories)) if task.requirements else score


def score_of_returns(returns: npt.NDArray[np.float64], seeds: tuple[int, ...], engine: str) -> Score:
    """Compute mean, standard deviation and interval from the returns of independent episodes."""
    n = len(returns)
    mean = float(returns.mean())
    std = spread(returns)
    half = half_interval(returns)
    interval = (mean - half, mean + half) if n > 1 else None
    return Score(mean, std, interval, False, engine, tuple(returns.tolist()), seeds)


def spread(values: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """Return the standard deviation of a sample; 0 for a single value, or if values differ only by rounding errors."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return deviation if deviation > 1e-12 * float(np.max(np.abs(values))) else 0.0


def standard_error(*samples: Sequence[float] | npt.NDArray[np.float64]) -> Any:
    """Return the standard error of a sum or difference of means of independent samples, each over its first axis."""
    return np.sqrt(sum(np.var(values, axis=0, ddof=1) / len(values) for values in samples))


def half_interval(values: Sequence[float] | npt.NDArray[np.float64], probability: float = 0.975) -> float:
    """Return the half-width of Student's t interval of the mean, by default the 95% interval; 0 for a single value.

    Args:
        probability: the probability that the mean is below the upper end.
    """
    from scipy.special import stdtrit  # start-up time

    n = len(values)
    return float(stdtrit(n - 1, probability) * spread(values) / np.sqrt(n)) if n > 1 else 0.0


def reaches(score: Score | None, target: float | None, slack: float = 0.0) -> bool:
    """Whether a score shows that the target is reached: exactly, or by its one-sided lower 95% bound.

    Sampled scores must come from held-out episodes: on the episodes that selected a policy, its score may exceed the
    target by luck. Equal returns may hide rare failures, so they need `FAULTLESS` episodes.

    Args:
        slack: tolerance for an exact score, relative to the target's size.
    """
    if score is None or target is None or not math.isfinite(score.mean):
        return False
    if score.exact:
        return score.mean >= target - max(ROUNDING, slack * abs(target))
    if score.episodes < (2 if score.std > 0 else FAULTLESS):
        return False
    return score.mean - half_interval(score.returns, CONFIDENCE) >= target - ROUNDING


def p_of_higher_mean(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the p-value of Welch's one-sided t-test of whether the mean of `values` exceeds that of `others`."""
    from scipy.stats import ttest_ind  # start-up time

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # if all values are equal, the p-value is 0
        return float(ttest_ind(values, others, equal_var=False, alternative="greater").pvalue)


def first_episodes(score: Score, count: int) -> Score:
    """Restrict a score to the first `count` of its seeds.

    An exact score stays as it is. So does any score if `count` is 0, the number of episodes of an exact score.
    """
    if score.exact or count == 0 or score.episodes == count:
        return score
    first = score_of_returns(np.array(score.returns[:count]), score.seeds[:count], score.engine)
    return replace(first, violations=score.violations)


@dataclass(frozen=True, slots=True)
class Difference:
    """The paired difference of two scores: the gain, the half-width of its 95% Student's t interval, and a p-value.

    A small `p`, which is one-sided, shows that the gain is above 0.
    """

    gain: float
    half: float
    p: float


def difference(challenger: Score, incumbent: Score) -> Difference:
    """Return the difference of two scores on the same seeds.

    The test is Student's paired t-test. For two exact scores the p-value is 0 or 1; if one is exact, the other's
    episodes are tested against it.

    Raises:
        ValueError: their seeds differ.
    """
    if not challenger.exact and not incumbent.exact and challenger.seeds != incumbent.seeds:
        raise ValueError("a paired comparison needs the same seeds")
    from scipy.special import stdtr  # start-up time

    ones, others = (np.array([score.mean] if score.exact else score.returns) for score in (challenger, incumbent))
    differences = ones - others
    gain, count = float(differences.mean()), len(differences)
    half = 0.0 if challenger.exact or incumbent.exact else half_interval(differences)
    error = float(standard_error(differences)) if count > 1 else 0.0
    if error == 0.0:
        return Difference(gain, half, 0.0 if gain > 1e-12 else 1.0)
    return Difference(gain, half, float(stdtr(count - 1, -gain / error)))
