"""A smaller policy for a policy: try what may go, then check on episodes that nothing was chosen by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from policygen.episodes.exact import finite_mdp
from policygen.episodes.players import Players
from policygen.episodes.score import Score
from policygen.errors import PolicyError, UsageError
from policygen.extensions.simplify.contest import MARGIN, SIGNIFICANCE, Contest, Loss
from policygen.extensions.simplify.numbers import simplify_numbers, size_of_expressions
from policygen.extensions.simplify.tables import simplify_table
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy

LOOKS = 4  # at most so many policies are checked, each on episodes of its own
EPISODES, MOST_EPISODES = 100, 20_000


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is to read: rows of a table or terms of equations, and names, numbers and operations beside."""

    rows: int
    parts: int
    characters: int
    kind: str

    def __str__(self) -> str:
        word = "row" if self.kind == "table" else "term"
        parts = f", {self.parts} names and numbers in expressions" if self.parts else ""
        return f"{self.rows} {word}{'' if self.rows == 1 else 's'}{parts}"


def size_of(policy: Policy) -> Size:
    """The size of a policy."""
    if isinstance(policy, TablePolicy):
        rows = len(policy.rules)
    else:
        assert isinstance(policy, LinearPolicy)
        rows = int((policy.weights != 0).sum() + (policy.bias != 0).sum())
    return Size(rows, size_of_expressions(policy), len(policy.to_text(plain=True)), policy.kind)


@dataclass(frozen=True, slots=True)
class Simplified:
    """What simplifying came to.

    Attributes:
        policy: the smaller policy, or the one that it began with.
        before, after: scores of both on the last check's episodes, which chose nothing (or exact ones).
        loss: between them.
        looks: how many policies were checked until one was not worse; each had fresh episodes.
        tried, episodes: candidates and episodes in all.
    """

    policy: Policy
    original: Policy
    before: Score
    after: Score
    loss: Loss
    looks: int
    tried: int
    episodes: int

    @property
    def changed(self) -> bool:
        """Whether there is a smaller policy."""
        return self.policy is not self.original


def simplify(
    policy: Policy,
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    max_episodes: int = MOST_EPISODES,
    margin: float = MARGIN,
    on_accepted: Callable[[Policy], None] = lambda policy: None,
) -> Simplified:
    """The smallest policy found that is not worse.

    Not worse: on the same episodes it loses on average at most `margin` of the score's size (or of its standard
    deviation, where that is larger), and a one-sided paired t-test does not call the loss significant (p > 0.05).
    Nothing of an exact score may be lost. Candidates are compared with the original on `episodes` seeds that all of
    them share, so that the one that is left may have been lucky there; it is therefore checked on twice as many fresh
    ones, and where it fails, one of the larger ones before it is, on others: four checks at most.

    Raises:
        UsageError: a number out of range.
        PolicyError: this kind of policy cannot become smaller.
    """
    if episodes < 2 or margin < 0:
        raise UsageError("simplifying needs at least 2 episodes, and a margin of at least 0")
    if not isinstance(policy, LinearPolicy | TablePolicy):
        raise PolicyError(f"a policy of kind `{policy.kind}` cannot be simplified; tables and equations can")
    with Players(policy.task) as players:
        contest = _Told(policy, players, finite_mdp(policy.task), seed, episodes, max_episodes, margin)
        contest.told = on_accepted
        if isinstance(policy, TablePolicy):
            simplify_table(contest)
        if policy.lets or isinstance(policy, LinearPolicy) or policy.task.has_numbers:
            simplify_numbers(contest)
        return _checked(contest)


class _Told(Contest):
    """A contest that tells what it accepts."""

    told: Callable[[Policy], None]

    def accepts(self, candidate: Policy) -> bool:
        accepted = super().accepts(candidate)
        if accepted:
            self.told(candidate)
        return accepted


def _checked(contest: Contest) -> Simplified:
    """The last policy of the path that a check on fresh episodes does not call worse."""
    last = len(contest.path) - 1
    for look in range(1, LOOKS + 1):
        candidate = contest.path[last * (LOOKS + 1 - look) // LOOKS]
        before, after, loss = contest.check(candidate, look)
        if loss.bearable or candidate is contest.original:
            return _result(contest, candidate, (before, after, loss), look)
    return _result(contest, contest.original, (before, before, Loss(0.0, 1.0, loss.allowed)), LOOKS)


def _result(contest: Contest, policy: Policy, found: tuple[Score, Score, Loss], looks: int) -> Simplified:
    before, after, loss = found
    return Simplified(policy, contest.original, before, after, loss, looks, contest.tried, contest.played)


def words_of(found: Simplified, margin: float) -> list[str]:
    """What simplifying came to, in sentences."""
    lines = [f"before: {size_of(found.original)}; {found.before}", f"after:  {size_of(found.policy)}; {found.after}"]
    if not found.changed:
        return [*lines[:1], f"nothing smaller was found that is not worse ({found.tried:,} candidates)"]
    if found.before.exact:
        return [*lines, f"nothing of the exact score is lost ({found.tried:,} candidates)"]
    loss = found.loss
    share = f"{margin:.3g} of the score or its spread"
    word = "lost" if loss.mean >= 0 else "gained"
    lines += [
        f"{word}: {abs(loss.mean):.4g} on {found.before.episodes} paired episodes that simplifying never used; "
        f"p of a loss {loss.p:.2g}",
        f"not worse means: a loss of at most {loss.allowed:.4g} ({share}), with p > {SIGNIFICANCE:g}",
    ]
    if found.looks > 1:
        lines.append(f"{found.looks - 1} smaller policies failed this check, each on episodes of its own")
    return lines
