"""The Pareto front of score and size, and the choice of the smallest policy within a distance of the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from policygen.episodes.requirements import excess
from policygen.episodes.score import first_episodes
from policygen.errors import PolicyError, UsageError
from policygen.quantities.text import to_digits
from policygen.runs.attempt import Attempt, best_of
from policygen.runs.logbook import Logbook
from policygen.runs.records import Summary


@dataclass(frozen=True, slots=True, eq=False)
class SizedAttempt:
    """An attempt with the size of its policy and its difference from the best."""

    attempt: Attempt
    size: int  # numbers and names
    gain: float  # the difference from the best over the search episodes that both played
    episodes: int  # the number of these episodes; 0 if the scores are exact
    value: float  # the score of the best plus `gain`, to nine digits: rounding errors of exact scores do not count


@dataclass(frozen=True, slots=True)
class Front:
    """The Pareto front of a run's attempts by size and score.

    Of search scores only the difference from the best counts, because luck on the shared episodes changes it less.
    """

    best: SizedAttempt  # its `value` is the final score of the run or, without one, the best score so far
    basis: str  # the name of this score
    all: tuple[SizedAttempt, ...]  # without those that violate hard requirements more often than the best
    members: tuple[SizedAttempt, ...]  # those that score higher than all others of at most their size, smallest first


def front_of(attempts: Sequence[Attempt], summary: Summary | None = None) -> Front | None:
    """Return the front of a run's attempts; None without a policy that has a finite score."""
    best, final = best_of(attempts), summary.final if summary is not None else None
    level = final.value if final is not None else attempts[-1].standing.reported_best if attempts else None
    if best is None or level is None or not math.isfinite(level):
        return None
    previous = best_of(attempts[: best.number])
    found = []
    for attempt in attempts:
        gain, episodes = _difference(attempt, best, previous)
        if attempt.saved and math.isfinite(gain) and excess(attempt.violations) <= excess(best.violations):
            found.append(SizedAttempt(attempt, attempt.saved.size, gain, episodes, to_digits(level + gain, 9)))
    members: list[SizedAttempt] = []
    for one in sorted(found, key=lambda one: (one.size, -one.value, one.attempt.number)):
        if not members or one.value > members[-1].value:
            members.append(one)
    basis = "final score" if final is not None else "score so far"
    return Front(next(one for one in found if one.attempt is best), basis, tuple(found), tuple(members))


def _difference(attempt: Attempt, best: Attempt, previous: Attempt | None) -> tuple[float, int]:
    """Return an attempt's score less that of the best (NaN if unknown), and the number of paired episodes."""
    if attempt.number > best.number and attempt.comparison.gain is not None:  # the run compared it with this best
        return attempt.comparison.gain, attempt.comparison.paired_episodes
    if attempt is previous and best.comparison.gain is not None:
        return -best.comparison.gain, best.comparison.paired_episodes
    if attempt.score is None or best.score is None:
        return math.nan, 0
    count = min(attempt.score.episodes, best.score.episodes)
    mine, other = first_episodes(attempt.score, count), first_episodes(best.score, count)
    if (mine.exact, mine.seeds) != (other.exact, other.seeds):
        return math.nan, 0
    # The run scores an attempt on more episodes if the usual ones may overestimate it; then the lower score counts.
    return 0.0 if attempt is best else min(mine.value, attempt.score.value) - other.value, count


def smallest_within(run: Path, within: str | float) -> tuple[Attempt, list[str]]:
    """Return the smallest attempt of a run whose score is at most a distance below that of the best, and facts.

    The facts are sentences about its origin and scores.

    Args:
        within: the distance: a share such as `"1%"` of that from random actions to the best, or points of the score.

    Raises:
        UsageError: it is neither, or it is a share and the best is not above random actions.
        PolicyError: the run has no policy.
        LogbookError: it is not a run folder, or is damaged.
    """
    text = str(within).strip()
    try:
        amount = float(text.removesuffix("%"))
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise UsageError(f"cannot choose within `{text}` of the best: write a share as 1%, or points of the score as 5")
    attempts = Logbook(run).attempts()
    front = front_of(attempts, Logbook(run).summary())
    if front is None:
        raise PolicyError(f"{run} has no policy with a score yet, so there is none to choose")
    best, random = front.best, attempts[0].score
    if text.endswith("%"):
        if random is None or not random.value < best.value:
            raise UsageError(
                f"{text} of the distance from random actions ({random if random is not None else 'not played'}) to the "
                f"best ({best.value:.4g}) is undefined in {run}: give points of the score instead, as in 5"
            )
        amount *= (best.value - random.value) / 100
    one = next(one for one in front.members if one.value >= best.value - amount)
    distance, basis = f"{amount:.4g} points" + f" ({text})" * text.endswith("%"), f"{front.basis} {best.value:.5g}"
    what = f"attempt {one.attempt.number}, of {len(front.all)} policies the smallest within {distance} of the best"
    facts = [f"Run {run.name}, {what}: {one.size} numbers and names."]
    if one is best:
        return one.attempt, [*facts, f"It is the best policy of the run, {basis}."]
    paired = f" on {one.episodes} paired search episodes" if one.episodes else " (exact)"
    facts.append(f"Search score {one.attempt.score}; difference from the best {one.gain:+.4g}{paired}.")
    facts.append(f"The best, attempt {best.attempt.number}: {best.size} numbers and names, {basis}.")
    return one.attempt, facts
