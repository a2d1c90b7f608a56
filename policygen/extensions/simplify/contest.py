"""Paired comparisons of smaller candidates with the original policy, on shared episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from policygen.episodes.exact import exact_score, finite_mdp
from policygen.episodes.players import Players
from policygen.episodes.score import Score, difference, episode_seeds, sampled_score
from policygen.episodes.trajectory import Trajectory
from policygen.policies.policy import Policy

P = TypeVar("P", bound=Policy)
SIGNIFICANCE = 0.05  # one-sided; a loss that is significant at this level is not accepted, however small
MARGIN = 0.01  # largest mean loss, relative to the score or to its standard deviation, whichever is larger
FIRST_EPISODES = 20  # episodes after which a clearly worse candidate is rejected
ROUNDING = 1e-9  # tolerance for rounding errors of exact scores, which must not decrease
SIMPLIFYING, CHECKING = "simplify", "simplified {}"  # purposes of `episode_seeds` that nothing else uses


@dataclass(frozen=True, slots=True)
class PairedLoss:
    """The loss of a policy against another one on the same episodes."""

    mean: float  # mean difference of the returns; negative is a gain
    p: float  # one-sided p-value of the loss; 1 for exact scores, so that only `allowed` decides
    allowed: float  # the largest accepted mean loss

    @property
    def acceptable(self) -> bool:
        """Whether the loss is within the margin and not significant."""
        return self.mean <= self.allowed and (self.p > SIGNIFICANCE or self.mean <= 0)


def loss_of(smaller: Score, original: Score, margin: float = MARGIN, whole: Score | None = None) -> PairedLoss:
    """Compute the loss of a smaller policy over the episodes that both scores have.

    The margin is a share of `whole`, a score of the original over more episodes, as the spread of a few is unreliable.
    """
    if original.exact:
        return PairedLoss(original.mean - smaller.mean, 1.0, ROUNDING)
    lost, whole = difference(original, smaller), whole or original
    return PairedLoss(lost.gain, lost.p, margin * max(abs(whole.mean), whole.std))


@dataclass
class Contest(Generic[P]):
    """A contest of smaller candidates with the original policy, all on the same episodes.

    Each candidate is compared with the original, not with the last accepted one, so that losses do not add up.
    """

    original: P
    players: Players
    seed: int
    episodes: int  # played for an accepted candidate
    # Upper limit of the episodes that the original and candidates play; those of `check` come on top. If it leaves too
    # few episodes for a candidate, only candidates with identical actions are accepted.
    limit: int
    margin: float = MARGIN
    on_accepted: Callable[[Policy], None] = lambda policy: None  # called with every accepted policy
    played: int = 0  # episodes so far
    tried: int = 0  # candidates so far

    def __post_init__(self) -> None:
        self._mdp = finite_mdp(self.original.task)
        self._seeds = episode_seeds(self.seed, SIMPLIFYING, self.episodes)
        self._reference = self._play(self.original, self._seeds)
        self.trajectories = self._reference  # the episodes of the policy accepted last
        self.before = self._exact(self.original) or sampled_score(self._reference, self.players.engine)
        self.path = [self.original]  # all accepted policies
        self._known = {self.original.to_text(plain=True)}  # candidates tried before

    def _exact(self, policy: Policy) -> Score | None:
        return exact_score(policy, self._mdp) if self._mdp is not None else None

    @property
    def current(self) -> P:
        """The policy that was accepted last."""
        return self.path[-1]

    @property
    def exhausted(self) -> bool:
        """Whether no further candidate can be played."""
        return self.played + self.episodes > self.limit

    def accept_while_any(self, candidates: Callable[[P], Iterable[P]]) -> None:
        """Accept the first candidate made from the current policy that is not worse, and repeat while there is one."""
        while not self.exhausted and any(map(self.accept_unless_worse, candidates(self.current))):
            pass

    def accept_unless_worse(self, candidate: P) -> bool:
        """Accept the candidate if it is new and not worse than the original; return whether it is accepted."""
        text = candidate.to_text(plain=True)
        if text in self._known:
            return False
        self._known.add(text)
        self.tried += 1
        good, played = (True, self.trajectories) if self._acts_alike(candidate) else self.trial(candidate)
        if good:
            self.adopt(candidate, played)
        return good

    def adopt(self, candidate: P, played: list[Trajectory]) -> None:
        """Make a candidate with its episodes the current policy."""
        self.trajectories = played
        self.path.append(candidate)
        self.on_accepted(candidate)

    def trial(self, candidate: Policy, *, always: bool = False) -> tuple[bool, list[Trajectory]]:
        """Return whether the candidate is not worse than the original, and its episodes.

        With `always`, episodes are also played if the exact score shows that the candidate is worse.
        """
        if self.exhausted:
            return False, []
        if self.before.exact:
            score = self._exact(candidate)
            good = score is not None and loss_of(score, self.before).acceptable
            return good, self._play(candidate, self._seeds) if good or always else []
        played: list[Trajectory] = []
        for count in sorted({min(FIRST_EPISODES, self.episodes), self.episodes}):
            played += self._play(candidate, self._seeds[len(played) : count])
            after, before = (sampled_score(some, self.players.engine) for some in (played, self._reference[:count]))
            if not loss_of(after, before, self.margin, self.before).acceptable:
                return False, played
        return True, played

    def _play(self, policy: Policy, seeds: Sequence[int]) -> list[Trajectory]:
        self.played += len(seeds)
        return self.players.play(policy, seeds)

    def _acts_alike(self, candidate: Policy) -> bool:
        """Whether the candidate takes the same actions in the current policy's episodes, so it need not play them."""
        if self.before.exact:  # an exact score also counts states that these episodes do not visit
            return False
        return all(np.array_equal(_along(candidate, t), _along(self.current, t)) for t in self.trajectories if t.length)

    def check(self, candidate: Policy, check_number: int) -> tuple[Score, Score, PairedLoss]:
        """Score the original and a candidate on held-out episodes, new ones for each number; compute the loss."""
        if self.before.exact:
            before, after = self.before, self._exact(candidate)
            assert after is not None
        else:
            seeds = episode_seeds(self.seed, CHECKING.format(check_number), 2 * self.episodes)
            played = (self._play(policy, seeds) for policy in (self.original, candidate))
            before, after = (sampled_score(some, self.players.engine) for some in played)
        return before, after, loss_of(after, before, self.margin)


def _along(policy: Policy, episode: Trajectory) -> npt.NDArray[np.generic]:
    """Compute the actions of a policy at the steps of an episode, with its memory."""
    observations = episode.observations[:-1]
    if not policy.remembers:
        return policy.act(observations)
    return policy.act_on_quantities(policy.reader.along(observations, episode.actions))
