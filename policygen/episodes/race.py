"""A race of two policies on shared seeds: hard requirements first, then the returns, prolonged while undecided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from policygen.episodes.exact import FiniteMDP, exact_score
from policygen.episodes.requirements import excess
from policygen.episodes.score import Difference, Score, difference, score_with_violations
from policygen.episodes.trajectory import Trajectory
from policygen.policies.policy import Policy
from policygen.tasks.task import Task

SIGNIFICANCE = 0.05  # one-sided level at which a difference of returns decides a race
ROUNDING = 1e-9  # tolerance for rounding errors of exact scores


@dataclass
class Course:
    """The shared seeds of races, and the episodes of policies on them; no policy plays a seed twice.

    Attributes:
        task: the requirements of this task are counted.
        seeds: in order; a race of n episodes takes the first n.
        play: plays a policy on some seeds.
        engine: the engine of the scores, see `Score`.
        mdp: the known MDP, in which scores are exact; episodes are then only played for requirements.
    """

    task: Task
    seeds: Sequence[int]
    play: Callable[[Policy, tuple[int, ...]], list[Trajectory]]
    engine: str
    mdp: FiniteMDP | None = None

    def __post_init__(self) -> None:
        self._played: dict[int, tuple[Policy, list[Trajectory]]] = {}
        self.count = 0  # episodes played so far

    def played(self, policy: Policy) -> list[Trajectory]:
        """Return the episodes that a policy has played so far; the list may be extended."""
        return self._played.setdefault(id(policy), (policy, []))[1]

    def episodes(self, policy: Policy, count: int) -> list[Trajectory]:
        """Return a policy's episodes on the first `count` seeds, after playing those that are missing."""
        played = self.played(policy)
        if len(played) < count:
            missing = tuple(self.seeds[len(played) : count])
            played += self.play(policy, missing)
            self.count += len(missing)
        return played[:count]

    def forget(self, policy: Policy) -> None:
        """Delete a policy's episodes."""
        self._played.pop(id(policy), None)

    def score(self, policy: Policy, count: int) -> Score:
        """Return a policy's score over the first `count` seeds, or its exact score, with violated requirements."""
        exact = exact_score(policy, self.mdp) if self.mdp is not None else None
        if exact is not None and not self.task.requirements:
            return exact
        return score_with_violations(self.task, self.episodes(policy, count), self.engine, exact)


@dataclass(frozen=True, slots=True)
class Race:
    """The scores of two policies on the same seeds, or exact ones, with violations of the task's requirements."""

    challenger: Score
    incumbent: Score

    @property
    def gain(self) -> Difference:
        """The paired difference of the scores."""
        return difference(self.challenger, self.incumbent)

    @property
    def verdict(self) -> Literal["better", "worse", "equal", "undecided"]:
        """The challenger's result: the sum of excess violations of hard requirements decides before any return.

        Of equal sums, sampled returns decide if their difference is significant; exact ones decide always.
        """
        more = excess(self.challenger.violations) - excess(self.incumbent.violations)
        if more:
            return "worse" if more > 0 else "better"
        gain = self.gain.gain
        if self.challenger.exact and self.incumbent.exact:
            return "equal" if abs(gain) <= ROUNDING else "better" if gain > 0 else "worse"
        if gain > 0 and self.gain.p <= SIGNIFICANCE:
            return "better"
        if gain < 0 and difference(self.incumbent, self.challenger).p <= SIGNIFICANCE:
            return "worse"
        return "undecided"

    def is_lost(self, margin: float) -> bool:
        """Whether the challenger is worse, or if undecided loses more than `margin` of the incumbent's score.

        The margin is a share of that score or of its standard deviation, whichever is larger.
        """
        if self.verdict != "undecided":
            return self.verdict == "worse"
        return -self.gain.gain > margin * max(abs(self.incumbent.mean), self.incumbent.std)


def race(challenger: Policy, incumbent: Policy, course: Course, lengths: Sequence[int]) -> Race:
    """Race two policies over the first of `lengths` episodes, and over each longer one while undecided.

    Args:
        lengths: increasing numbers of episodes, at least one.

    Raises:
        EnvironmentFault: the environment failed.
    """
    for count in lengths:
        found = Race(course.score(challenger, count), course.score(incumbent, count))
        if found.verdict != "undecided":
            break
    return found
