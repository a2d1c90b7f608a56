"""Races of two policies on shared seeds: compare hard requirements, then returns; add episodes while undecided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from policygen.episodes.exact import FiniteMDP, exact_score
from policygen.episodes.requirements import excess
from policygen.episodes.score import (
    ROUNDING,
    Difference,
    Score,
    difference,
    first_episodes,
    number,
    score_with_violations,
)
from policygen.episodes.trajectory import Trajectory
from policygen.policies.policy import Policy
from policygen.tasks.task import Task

MIN_SHOWN_P = 1e-4  # smaller p-values are printed as `< 0.0001`
Scorer = Callable[[int], Score]
"""A function from n to a contender's score over the first n shared seeds (fewer if its budget runs out)."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The significance levels of the one-sided paired test that decides a race.

    Attributes:
        gain, loss: the levels of a gain and of a loss. With a `loss` of 1, a challenger that is behind has lost,
            however small the difference.
        last: replaces `gain` once `most` episodes are played.
    """

    gain: float = 0.05
    loss: float = 0.05
    last: float = 0.05
    most: int = 0


@dataclass
class Course:
    """The episodes of all contenders on one list of seeds; each contender plays each seed at most once.

    Attributes:
        task: the task whose requirements are counted.
        seeds: the shared seeds; a race over n episodes takes the first n.
        play: plays a policy on some seeds.
        engine: the engine of the scores, see `Score`.
        mdp: the known MDP, if there is one. Scores are then exact, and episodes are played only for requirements.
    """

    task: Task
    seeds: Sequence[int]
    play: Callable[[Policy, tuple[int, ...]], list[Trajectory]]
    engine: str
    mdp: FiniteMDP | None = None

    def __post_init__(self) -> None:
        self._played: dict[int, tuple[Policy, list[Trajectory]]] = {}
        self.count = 0  # episodes played so far

    def scorer(self, contender: Policy) -> Scorer:
        """Return the scorer of a policy."""
        return partial(self.score, contender)

    def played(self, contender: Policy) -> list[Trajectory]:
        """Return the live list of a contender's episodes; `episodes` appends to it."""
        return self._played.setdefault(id(contender), (contender, []))[1]

    def episodes(self, contender: Policy, count: int) -> list[Trajectory]:
        """Return a contender's episodes on the first `count` seeds; play those that are missing."""
        played = self.played(contender)
        if len(played) < count:
            missing = tuple(self.seeds[len(played) : count])
            played += self.play(contender, missing)
            self.count += len(missing)
        return played[:count]

    def forget(self, contender: Policy) -> None:
        """Delete a contender's episodes."""
        self._played.pop(id(contender), None)

    def score(self, contender: Policy, count: int) -> Score:
        """Return the exact score if the MDP is known, otherwise the score over the first `count` seeds."""
        exact = exact_score(contender, self.mdp, self.task.max_steps) if self.mdp is not None else None
        if exact is not None and not self.task.requirements:
            return exact
        return score_with_violations(self.task, self.episodes(contender, count), self.engine, exact)


@dataclass(frozen=True, slots=True)
class Race:
    """The result of a race: both scores, exact or on the same seeds, with violations of the task's requirements."""

    challenger: Score
    incumbent: Score
    levels: Levels = Levels()

    @property
    def gain(self) -> Difference:
        """The paired difference of the scores."""
        return difference(self.challenger, self.incumbent)

    @property
    def excess(self) -> float:
        """The challenger's excess violations minus the incumbent's; any difference decides the race.

        Excess violations are the share of episodes beyond the allowed share, summed over the hard requirements.
        """
        return excess(self.challenger.violations) - excess(self.incumbent.violations)

    @property
    def episodes(self) -> int:
        """Number of paired episodes; 0 if both scores are exact."""
        return max(self.challenger.episodes, self.incumbent.episodes)

    @property
    def is_exact(self) -> bool:
        """Whether both scores are exact."""
        return self.challenger.exact and self.incumbent.exact

    @property
    def verdict(self) -> Literal["better", "worse", "equal", "undecided"]:
        """The challenger's result: fewer excess violations of hard requirements win, whatever the returns.

        If they are equal, sampled returns count only if their difference is significant; exact returns always count.
        """
        if self.excess:
            return "worse" if self.excess > 0 else "better"
        paired, levels = self.gain, self.levels
        if self.is_exact:
            return "equal" if abs(paired.gain) <= ROUNDING else "better" if paired.gain > 0 else "worse"
        if paired.gain > 0 and paired.p <= (levels.last if self.episodes == levels.most else levels.gain):
            return "better"
        if not paired.gain > 0 and levels.loss >= 1:
            return "equal" if paired.gain == 0 else "worse"
        if paired.gain < 0 and difference(self.incumbent, self.challenger).p <= levels.loss:
            return "worse"
        return "undecided"

    def __str__(self) -> str:
        """Describe the result: `better by 3.4 [1.2, 5.6] on 10 paired episodes, one-sided p = 0.037`."""
        verdict, basis = self.verdict, " (exact)" if self.is_exact else f" on {self.episodes} paired episodes"
        if self.excess:
            violations = (self.challenger if self.excess > 0 else self.incumbent).violations
            worst = max(violations, key=lambda violation: violation.excess)
            own, others = (
                next((violation.violated for violation in score.violations if violation.name == worst.name), 0)
                for score in (self.challenger, self.incumbent)
            )
            return f"{verdict}: it violates `{worst.name}` in {own} of {worst.episodes} episodes, the other in {others}"
        if verdict == "equal":
            return verdict + basis
        ahead = self.gain.gain > 0
        paired = self.gain if ahead else difference(self.incumbent, self.challenger)
        interval = f" [{number(paired.gain - paired.half)}, {number(paired.gain + paired.half)}]" if paired.half else ""
        amount, p = f"by {number(paired.gain)}{interval}", ""
        if not self.is_exact:
            p = f", one-sided p = {paired.p:.2g}" if paired.p >= MIN_SHOWN_P else f", one-sided p < {MIN_SHOWN_P:.4f}"
        if verdict == "worse" and not paired.gain > paired.half:
            return f"not better: behind {amount}{basis}{p}"
        if verdict != "undecided":
            return f"{verdict} {amount}{basis}{p}"
        if not paired.gain:
            return f"no difference{basis}"
        return f"undecided after {self.episodes} paired episodes: {'ahead' if ahead else 'behind'} {amount}{p}"

    def is_lost(self, margin: float) -> bool:
        """Whether the challenger is worse or, if undecided, behind by more than `margin`.

        The margin is a share of the incumbent's score or of its standard deviation, whichever is larger.
        """
        if self.verdict != "undecided":
            return self.verdict == "worse"
        return -self.gain.gain > margin * max(abs(self.incumbent.mean), self.incumbent.std)


def race(challenger: Scorer, incumbent: Scorer, lengths: Iterable[int], levels: Levels = Levels()) -> Race:
    """Race two contenders for `lengths[0]` episodes; while undecided, go on to the next length.

    Args:
        lengths: one or more increasing numbers of episodes. If a contender has fewer, both are compared
            on that many.

    Raises:
        EnvironmentFault: the environment failed.
    """
    for count in lengths:
        result = compare_on_common_episodes(challenger(count), incumbent(count), levels)
        if result.verdict != "undecided":
            break
    return result


def compare_on_common_episodes(challenger: Score, incumbent: Score, levels: Levels) -> Race:
    """Compare two scores on the seeds that both have; one may have fewer because its budget ran out."""
    common = min((score.episodes for score in (challenger, incumbent) if not score.exact), default=0)
    return Race(first_episodes(challenger, common), first_episodes(incumbent, common), levels)


def lengths_up_to(episodes: int) -> tuple[int, int]:
    """Return two race lengths: a fifth of `episodes` (at least 2), enough to show large differences, then all."""
    return max(2, episodes // 5), episodes
