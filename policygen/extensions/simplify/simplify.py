"""Simplification of a policy: try smaller candidates, then check the result on fresh episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from policygen.episodes.players import Players
from policygen.episodes.score import Score
from policygen.errors import PolicyError, UsageError
from policygen.extensions.simplify.contest import MARGIN, SIGNIFICANCE, Contest, PairedLoss
from policygen.extensions.simplify.numbers import simplify_numbers
from policygen.extensions.simplify.tables import simplify_table
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy

MOST_CHECKS = 4  # upper limit of policies checked, each on fresh episodes
EPISODES, MOST_EPISODES = 100, 20_000  # per accepted candidate, and in all while candidates are tried


def rows_or_terms(policy: Policy) -> int:
    """Count the rows of a table, or the terms of equations: weights and constants that are not 0."""
    if isinstance(policy, TablePolicy):
        return len(policy.rules)
    assert isinstance(policy, LinearPolicy)
    return int((policy.weights != 0).sum() + (policy.bias != 0).sum())


def size_words(policy: Policy) -> str:
    """Describe the size of a policy: its rows or terms, and the numbers and names of its text."""
    rows = rows_or_terms(policy)
    word = "row" if policy.kind == "table" else "term"
    return f"{rows} {word}{'s' * (rows != 1)}, {policy.size} numbers and names"


@dataclass(frozen=True, slots=True)
class Simplified:
    """The result of a simplification."""

    policy: Policy  # the smaller policy, or the original
    original: Policy
    before: Score  # of the original, on the episodes of the last check, or exact
    after: Score  # of `policy`, on the same episodes
    loss: PairedLoss  # of `policy` against the original on these episodes
    checks: int  # number of policies checked until one was not worse, each on fresh episodes
    tried: int  # number of candidates
    episodes: int  # number of episodes in all

    @property
    def changed(self) -> bool:
        """Whether a smaller policy was found."""
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
    """Find the smallest policy that is not worse.

    Not worse means: on the same episodes the mean loss is at most `margin` of the score (or of its standard deviation,
    if larger), and a one-sided paired t-test finds no significant loss (p > 0.05). An exact score must not decrease.
    Candidates are compared with the original on `episodes` shared seeds, where the smallest may have been lucky. It is
    therefore checked on twice as many fresh episodes; if it fails, a larger accepted policy is checked on other
    episodes. There are at most four checks.

    Args:
        max_episodes: upper limit of the episodes that the original and candidates play; checks come on top.
        on_accepted: called with every policy that is accepted on the shared seeds.

    Raises:
        UsageError: a number is out of range.
        PolicyError: this kind of policy cannot be simplified.
    """
    if episodes < 2 or margin < 0:
        raise UsageError("simplifying needs at least 2 episodes, and a margin of at least 0")
    if not isinstance(policy, LinearPolicy | TablePolicy):
        raise PolicyError(f"a policy of kind `{policy.kind}` cannot be simplified; tables and equations can")
    with Players(policy.task) as players:
        contest: Contest[Any] = Contest(policy, players, seed, episodes, max_episodes, margin, on_accepted)
        if isinstance(policy, TablePolicy):
            simplify_table(contest)
        if policy.lets or isinstance(policy, LinearPolicy) or policy.task.has_numbers:
            simplify_numbers(contest)
        return _checked(contest)


def _checked(contest: Contest[Policy]) -> Simplified:
    """Return the first policy, from the smallest on, that a check on fresh episodes does not find worse."""
    last = len(contest.path) - 1
    for check_number in range(1, MOST_CHECKS + 1):
        policy = contest.path[last * (MOST_CHECKS + 1 - check_number) // MOST_CHECKS]
        before, after, loss = contest.check(policy, check_number)
        if loss.acceptable or policy is contest.original:
            break
    else:
        policy, after, loss = contest.original, before, PairedLoss(0.0, 1.0, loss.allowed)
    return Simplified(policy, contest.original, before, after, loss, check_number, contest.tried, contest.played)


def words_of(found: Simplified, margin: float) -> list[str]:
    """Summarise a simplification in sentences."""
    before, after, loss = found.before, found.after, found.loss
    lines = [f"before: {size_words(found.original)}; {before}"]
    if not found.changed:
        return [*lines, f"no smaller policy was found that is not worse ({found.tried:,} candidates)"]
    lines.append(f"after:  {size_words(found.policy)}; {after}")
    if before.exact:
        return [*lines, f"nothing of the exact score is lost ({found.tried:,} candidates)"]
    lines += [
        f"{'lost' if loss.mean >= 0 else 'gained'}: {abs(loss.mean):.4g} on {before.episodes} paired episodes that "
        f"simplification never used; p of a loss {loss.p:.2g}",
        f"criterion: a mean loss of at most {loss.allowed:.4g} ({margin:.3g} of the score or its spread), with "
        f"p > {SIGNIFICANCE:g}",
    ]
    if found.checks > 1:
        lines.append(f"{found.checks - 1} smaller policies failed this check, each on fresh episodes")
    return lines
