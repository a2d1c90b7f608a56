"""Who is best: a paired test on common seeds, and when to stop. Nothing here plays an episode."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from policygen.episodes.score import Score, first_episodes, paired_gain, t_quantile
from policygen.runs.config import RunConfig
from policygen.runs.standard import FAULTLESS, LAST_SIGNIFICANCE, SIGNIFICANCE
from policygen.runs.state import Attempt
from policygen.tasks.task import Task

CONFIDENCE = 0.95  # that a target is reached, before a run stops for it
NEGLIGIBLE = 1e-4  # of a known optimum: what an exact score may miss and count as reaching it; it is not worth a reply
ROUNDING = 1e-9  # of exact scores
RESIGNATIONS = 2  # replies in a row that see no improvement, until they are believed


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
    gain, p = paired_gain(challenger, first_episodes(best, challenger.episodes))
    # Where the comparison was close it rests on more episodes than the attempt's own score.
    basis = " (exact)" if challenger.exact else f" on {challenger.episodes} paired episodes"
    words = f"{gain:+.4g} against the best{basis}"
    accepted = gain > 0 and p <= (LAST_SIGNIFICANCE if last else SIGNIFICANCE)
    if gain <= 0 or challenger.exact:
        return Verdict(accepted, words, False, p, gain, challenger.episodes)
    words = f"{words}, p = {p:.2g}{'' if accepted else ', not sure enough'}"
    return Verdict(accepted, words, not accepted, p, gain, challenger.episodes)


def decided(challenger: Score, best: Score) -> bool:
    """Whether it is sure which of the two is better, so that no further episodes are played to tell them apart."""
    gain, p = paired_gain(challenger, first_episodes(best, challenger.episodes))
    return gain != 0 and min(p, 1 - p) <= SIGNIFICANCE


def undecided(verdict: Verdict) -> Verdict:
    """The verdict on a close call where the episodes that could decide it are not left."""
    words = f"ahead, but too few episodes are left to be sure (p = {verdict.p:.2f})"
    return replace(verdict, accepted=False, words=words, close=False)


def stop_score(task: Task, config: RunConfig) -> float | None:
    """The score at which a run has nothing left to gain: `stop_at`, else the known optimum."""
    if config.stop_at is not None:
        return config.stop_at
    return task.optimum.value if task.optimum is not None else None


def reaches(score: Score | None, target: float | None, slack: float = 0.0) -> bool:
    """Whether a score shows that the target is reached: exact, or by the one-sided 95% bound of its episodes.

    Of sampled scores only those show it that did not choose the policy. A mean may be above the target by luck, and
    returns without any spread may come from a policy that fails seldom: of these it takes `FAULTLESS`.

    Args:
        slack: what an exact score may miss, as a share of the target's size.
    """
    if score is None or target is None or not math.isfinite(score.mean):
        return False
    if score.exact:
        return score.mean >= target - max(ROUNDING, slack * abs(target))
    if score.episodes < (2 if score.std > 0 else FAULTLESS):
        return False
    half = t_quantile(CONFIDENCE, score.episodes - 1) * score.std / math.sqrt(score.episodes)
    return score.mean - half >= target - ROUNDING


def flattered(best: Score | None, unbiased: Score | None, target: float | None, episodes: int) -> bool:
    """Whether the best policy does worse on episodes that did not choose it than on the `episodes` that did.

    These then no longer tell policies apart: what is left to gain shows on others. Where they already show the target
    at which a run stops, the least shortfall elsewhere counts; else Welch's one-sided t-test says whether there is one,
    at a level that one failure among twenty episodes reaches.
    """
    if best is None or unbiased is None or best.exact or unbiased.exact or min(episodes, unbiased.episodes) < 2:
        return False
    first = first_episodes(best, min(episodes, best.episodes))
    if first.mean <= unbiased.mean:
        return False
    if target is not None and first.mean >= target > unbiased.mean:
        return True
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # returns that are all alike, of which the p-value is 0
        worse = ttest_ind(first.returns, unbiased.returns, equal_var=False, alternative="greater")
    return bool(worse.pvalue <= LAST_SIGNIFICANCE)


def nothing_left_to_gain(unbiased: Score | None, task: Task, config: RunConfig) -> str:
    """Why the run may stop with a best policy of that score, as a sentence; empty while there is something to gain."""
    target = stop_score(task, config)
    if not reaches(unbiased, target, NEGLIGIBLE if config.stop_at is None else 0.0):
        return ""
    return f"the {'best known score' if config.stop_at is None else 'score to stop at'}, {target:.6g}, was reached"


def given_up(attempts: Sequence[Attempt], config: RunConfig) -> str:
    """Why the run need not go on after these attempts, as a sentence; empty while there is hope.

    Derived from the attempts alone, so that a resumed run stops where it would have.
    """
    attempts = [attempt for attempt in attempts if attempt.kind != "tuning"]
    resigned = 0
    for attempt in reversed(attempts):
        if attempt.kind != "resignation":
            break
        resigned += 1
    if resigned >= min(RESIGNATIONS, config.patience or RESIGNATIONS):
        return f"the model saw no improvement, {resigned} {'reply' if resigned == 1 else 'replies'} in a row"
    last = next((attempt.number for attempt in reversed(attempts) if attempt.accepted), 0)
    since = len(attempts) - 1 - last
    if config.patience is not None and since >= config.patience:
        return f"{since} attempts in a row brought no new best (--patience {config.patience})"
    return ""


def still_rising(attempts: Sequence[Attempt]) -> Attempt | None:
    """The best of the policies that lost although their tuning ended while it rose; None where there is none.

    Policies that differ from the best one in their numbers alone are not meant: tuning goes on with that one.
    """
    asked = [attempt for attempt in attempts if attempt.kind == "proposal" and attempt.has_policy]
    best = next((attempt for attempt in reversed(asked) if attempt.accepted), None)
    if best is None:
        return None
    waiting = [
        (attempt.score.mean, -attempt.number, attempt)
        for attempt in asked
        if attempt.score is not None
        and attempt.tuning is not None
        and attempt.tuning.climbing
        and _structure(attempt) != _structure(best)
    ]
    return max(waiting)[-1] if waiting else None


def _structure(attempt: Attempt) -> str:
    """A policy's text without its numbers."""
    text = attempt.policy.to_text(plain=True) if attempt.policy is not None else ""
    return re.sub(r"([-+] ?)?(?<!\w)[\d.]+(e[-+]?\d+)?", "0", text)
