"""Races of two policies on shared seeds: hard requirements first, then returns; longer while undecided."""

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

LEAST_P = 1e-4  # smaller p-values are printed as `< 0.0001`
Entrant = Callable[[int], Score]
"""A contender in a race: returns its score over the first n shared seeds, or over fewer if its budget runs out."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The one-sided p-values of the paired test at which a race is decided.

    Attributes:
        gain, loss: the levels of a gain and of a loss. With a `loss` of 1, a challenger that is not ahead has lost.
        last: the level of a gain after `most` episodes, the largest number.
    """

    gain: float = 0.05
    loss: float = 0.05
    last: float = 0.05
    most: int = 0


@dataclass
class Course:
    """The seeds that contenders share, and their episodes on them; no contender plays a seed twice.

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

    def entrant(self, contender: Policy) -> Entrant:
        """Return a policy as a contender of races."""
        return partial(self.score, contender)

    def played(self, contender: Policy) -> list[Trajectory]:
        """Return the episodes that a contender has played so far, as a list that grows."""
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
        """Return the exact score, or the one over the first `count` seeds, with violations of requirements."""
        exact = exact_score(contender, self.mdp, self.task.max_steps) if self.mdp is not None else None
        if exact is not None and not self.task.requirements:
            return exact
        return score_with_violations(self.task, self.episodes(contender, count), self.engine, exact)


@dataclass(frozen=True, slots=True)
class Race:
    """The scores of two policies, exact or on the same seeds, with violations of the task's requirements."""

    challenger: Score
    incumbent: Score
    levels: Levels = Levels()

    @property
    def gain(self) -> Difference:
        """The paired difference of the scores."""
        return difference(self.challenger, self.incumbent)

    @property
    def excess(self) -> float:
        """The challenger's excess violations minus the incumbent's; any difference decides the race."""
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

        If they are equal, sampled returns decide if their difference is significant; exact returns always decide.
        """
        if self.excess:
            return "worse" if self.excess > 0 else "better"
        found, levels = self.gain, self.levels
        if self.is_exact:
            return "equal" if abs(found.gain) <= ROUNDING else "better" if found.gain > 0 else "worse"
        if found.gain > 0 and found.p <= (levels.last if self.episodes == levels.most else levels.gain):
            return "better"
        if not found.gain > 0 and levels.loss >= 1:
            return "equal" if found.gain == 0 else "worse"
        if found.gain < 0 and difference(self.incumbent, self.challenger).p <= levels.loss:
            return "worse"
        return "undecided"

    def __str__(self) -> str:
        """Describe the result: `better by 3.4 [1.2, 5.6] on 10 paired episodes, one-sided p = 0.037`."""
        verdict, basis = self.verdict, " (exact)" if self.is_exact else f" on {self.episodes} paired episodes"
        if self.excess:
            violations = (self.challenger if self.excess > 0 else self.incumbent).violations
            worst = max(violations, key=lambda one: one.excess)
            own, others = (
                next((one.violated for one in score.violations if one.name == worst.name), 0)
                for score in (self.challenger, self.incumbent)
            )
            return f"{verdict}: it violates `{worst.name}` in {own} of {worst.episodes} episodes, the other in {others}"
        if verdict == "equal":
            return verdict + basis
        ahead = self.gain.gain > 0
        found = self.gain if ahead else difference(self.incumbent, self.challenger)
        interval = f" [{number(found.gain - found.half)}, {number(found.gain + found.half)}]" if found.half else ""
        amount, p = f"by {number(found.gain)}{interval}", ""
        if not self.is_exact:
            p = f", one-sided p = {found.p:.2g}" if found.p >= LEAST_P else f", one-sided p < {LEAST_P:.4f}"
        if verdict == "worse" and not found.gain > found.half:
            return f"not better: behind {amount}{basis}{p}"
        if verdict != "undecided":
            return f"{verdict} {amount}{basis}{p}"
        if not found.gain:
            return f"no difference{basis}"
        return f"undecided after {self.episodes} paired episodes: {'ahead' if ahead else 'behind'} {amount}{p}"

    def is_lost(self, margin: float) -> bool:
        """Whether the challenger is worse or, if undecided, behind by more than `margin`.

        The margin is a share of the incumbent's score or of its standard deviation, whichever is larger.
        """
        if self.verdict != "undecided":
            return self.verdict == "worse"
        return -self.gain.gain > margin * max(abs(self.incumbent.mean), self.incumbent.std)


def race(challenger: Entrant, incumbent: Entrant, lengths: Iterable[int], levels: Levels = Levels()) -> Race:
    """Race two contenders over the first number of episodes in `lengths`, and over the next one while undecided.

    Args:
        lengths: one or more increasing numbers of episodes. If a contender has fewer, both are compared on those.

    Raises:
        EnvironmentFault: the environment failed.
    """
    for count in lengths:
        found = on_common_episodes(challenger(count), incumbent(count), levels)
        if found.verdict != "undecided":
            break
    return found


def on_common_episodes(challenger: Score, incumbent: Score, levels: Levels) -> Race:
    """Compare two scores on the seeds that both have; one may have fewer because its budget ran out."""
    common = min((score.episodes for score in (challenger, incumbent) if not score.exact), default=0)
    return Race(first_episodes(challenger, common), first_episodes(incumbent, common), levels)


def lengths_up_to(episodes: int) -> tuple[int, int]:
    """Return the lengths of a race over at most `episodes`: a fifth, which shows large differences, and all."""
    return max(2, episodes // 5), episodes
