"""Who is best: a paired test on common seeds, and when nothing is left to gain. Nothing here plays an episode."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from policygen.episodes.score import Score, paired_gain, score_of_returns
from policygen.runs.config import RunConfig
from policygen.runs.standard import LAST_SIGNIFICANCE, SIGNIFICANCE
from policygen.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a challenger replaces the best policy, and why in `words`.

    `close`: it is ahead, but not surely; on more episodes the verdict may be another. `p` is the one-sided p-value of
    the paired test, `gain` the mean difference from the best, on `episodes` paired episodes (0 when exact); None where
    nothing was compared.
    """

    accepted: bool
    words: str
    close: bool = False
    p: float = 0.0
    gain: float | None = None
    episodes: int = 0


FIRST = Verdict(True, "the first policy")


def judge(challenger: Score, best: Score, *, last: bool = False) -> Verdict:
    """Whether the challenger is better than the best, on the seeds of the challenger's score.

    Args:
        best: on the same seeds, and perhaps more; or exact, like the challenger's.
        last: no further episodes will be played to tell them apart.
    """
    gain, p = paired_gain(challenger, _first(best, challenger.episodes))
    # Where the comparison was close it rests on more episodes than the attempt's own score.
    basis = " (exact)" if challenger.exact else f" on {challenger.episodes} paired episodes"
    words = f"{gain:+.4g} against the best{basis}"
    accepted = gain > 0 and p <= (LAST_SIGNIFICANCE if last else SIGNIFICANCE)
    if gain <= 0 or challenger.exact:
        return Verdict(accepted, words, False, p, gain, challenger.episodes)
    words = f"{words}, p = {p:.2g}{'' if accepted else ', not sure enough'}"
    return Verdict(accepted, words, not accepted, p, gain, challenger.episodes)


def undecided(verdict: Verdict) -> Verdict:
    """The verdict on a close call where the episodes that could decide it are not left."""
    words = f"ahead, but too few episodes are left to be sure (p = {verdict.p:.2f})"
    return replace(verdict, accepted=False, words=words, close=False)


def _first(score: Score, count: int) -> Score:
    """The score on the first `count` of its seeds."""
    if score.exact or count == 0 or score.episodes == count:
        return score
    return score_of_returns(np.array(score.returns[:count]), score.seeds[:count], score.engine)


def stop_score(task: Task, config: RunConfig) -> float | None:
    """The score at which a run has nothing left to gain: `stop_at`, else the known optimum."""
    if config.stop_at is not None:
        return config.stop_at
    return task.optimum.value if task.optimum is not None else None


def nothing_left_to_gain(best: Score | None, task: Task, config: RunConfig) -> bool:
    """Whether the best score is as high as can be, as far as its episodes show."""
    target = stop_score(task, config)
    return target is not None and best is not None and target <= best.mean < math.inf
