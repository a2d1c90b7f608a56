"""The attempts of a run as a page shows them: changes, score, and why each was kept or not."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from policygen.episodes.score import Score
from policygen.extensions.compare.words import number
from policygen.extensions.page.conversation import Turn
from policygen.llm.transcript import KILLED
from policygen.policies.lines import Problem
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.progress import duration
from policygen.runs.attempt import Attempt

MOST_ATTEMPTS = 400  # a longer run shows only some
NO_REPLY = "the reply has not arrived yet, or the run was killed while waiting"
_MOST_LINES = 500  # longer policies list only their new lines
_MOST_CHANGES = 80  # lines


@dataclass(frozen=True, slots=True)
class Change:
    """A line of a policy that is added (`+`), removed (`-`) or unchanged (` `)."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt.

    Attributes:
        state: `best`, `accepted` (the best until a later one), `refused`, `failed`, `resigned`, `tuning` or `random`.
        verdict: why the attempt was kept or not.
        before: the score before tuning; `tuning` describes the tuning. Both are empty if nothing was tuned.
        comments: the user's comments in the prompt.
        parent: the best attempt so far, which `changes` and `cells` compare with; None for a first policy.
    """

    number: int
    state: str
    score: str
    verdict: str
    idea: str = ""
    before: str = ""
    tuning: str = ""
    fresh: str = ""
    problems: tuple[Problem, ...] = ()
    parent: int | None = None
    comments: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    cells: str = ""
    remark: str = ""
    turns: tuple[Turn, ...] = ()
    cost: str = ""


def score_words(score: Score) -> str:
    """Format a score and its interval."""
    if score.exact:
        return f"{number(score.mean)} (exact)"
    interval = f" [{number(score.ci95[0])}, {number(score.ci95[1])}]" if score.ci95 else ""
    return f"{number(score.mean)}{interval}"


def shown_attempts(attempts: Sequence[Attempt], best: Attempt | None) -> tuple[frozenset[int], int]:
    """Choose the attempts to show (former bests and the latest); return their numbers and how many are left out."""
    if len(attempts) <= MOST_ATTEMPTS:
        return frozenset(attempt.number for attempt in attempts), 0
    accepted = [attempt.number for attempt in attempts if attempt.accepted]
    last = [attempt.number for attempt in attempts[-MOST_ATTEMPTS:]]
    kept = frozenset((accepted + last)[-2 * MOST_ATTEMPTS :])
    return kept, len(attempts) - len(kept)


def attempt_views(
    attempts: Sequence[Attempt], shown: frozenset[int], best: Attempt | None, turns: dict[int, tuple[Turn, ...]]
) -> tuple[AttemptView, ...]:
    """Return the views of the `shown` attempts and of requests in progress; `turns` has the messages of each."""
    views = []
    parent: Attempt | None = None
    for attempt in attempts:
        if attempt.number in shown:
            views.append(_view(attempt, parent, attempt is best, turns.pop(attempt.number, ())))
        if attempt.accepted:
            parent = attempt
    for number_, said in sorted(turns.items()):
        if number_ > len(attempts) - 1:  # asked, not scored yet
            waiting = [replace(turn, error=NO_REPLY) if turn.error == KILLED else turn for turn in said]
            views.append(AttemptView(number_, "open", "", "not scored yet", turns=tuple(waiting)))
    return tuple(views)


def _view(attempt: Attempt, parent: Attempt | None, is_best: bool, turns: tuple[Turn, ...]) -> AttemptView:
    before = attempt.tuned.proposed_score
    proposed = attempt.proposed
    fresh = ""
    if attempt.accepted and attempt.standing.validated_mean is not None:
        fresh = f"{number(attempt.standing.validated_mean)} on {attempt.standing.validated_episodes} held-out episodes"
    return AttemptView(
        attempt.number,
        _state(attempt, is_best),
        score_words(attempt.score) if attempt.score is not None else "",
        attempt.verdict or ("no policy" if attempt.failed else ""),
        idea=attempt.idea,
        before=score_words(before) if before is not None else "",
        tuning=attempt.tuned.refinement,
        fresh=fresh,
        problems=attempt.problems,
        parent=parent.number if parent is not None else None,
        changes=_changes(parent.policy if parent is not None else None, proposed) if proposed is not None else (),
        cells=_cells(parent.policy if parent is not None else None, proposed),
        remark=f"the simulation became unstable in {attempt.unstable} episodes" if attempt.unstable else "",
        turns=turns,
        cost=_attempt_cost(attempt),
    )


def _state(attempt: Attempt, is_best: bool) -> str:
    if attempt.number == 0:
        return "random"
    if is_best:
        return "best"
    if attempt.accepted:
        return "accepted"
    if attempt.kind == "resignation":
        return "resigned"
    if attempt.kind == "tuning":
        return "tuning"
    return "refused" if attempt.score is not None else "failed"


def _changes(before: Policy | None, after: Policy) -> tuple[Change, ...]:
    """Return the differing lines of two policies with one line of context; all lines of a first policy."""
    new = after.to_text().splitlines()
    old = before.to_text().splitlines() if before is not None else []
    if before is None:
        changes = [Change("+", line) for line in new]
    elif max(len(new), len(old)) > _MOST_LINES:
        kept = set(old)
        changes = [Change("+", line) for line in new if line not in kept]
    else:
        lines = difflib.unified_diff(old, new, n=1, lineterm="")
        changes = [Change(line[0], line[1:]) for line in lines if line[:3] not in ("---", "+++") and line[0] in "+- "]
    if len(changes) > _MOST_CHANGES:
        rest = len(changes) - _MOST_CHANGES
        changes = [*changes[:_MOST_CHANGES], Change(" ", f"... ({rest:,} more lines)")]
    return tuple(changes)


def _cells(before: Policy | None, after: Policy | None) -> str:
    """Count the cells in which two tables over the same grid differ; different rows may decide the same."""
    if not (isinstance(before, TablePolicy) and isinstance(after, TablePolicy)) or before.grid != after.grid:
        return ""
    mine, theirs = (table.actions.reshape(table.grid.size, -1) for table in (after, before))
    return f"{int((mine != theirs).any(axis=1).sum()):,} of {after.grid.size:,} cells have another action."


def _attempt_cost(attempt: Attempt) -> str:
    parts = [duration(attempt.seconds)]
    if attempt.requests.tokens_in + attempt.requests.tokens_out:
        parts.append(f"{attempt.requests.tokens_in + attempt.requests.tokens_out:,} tokens")
        parts.append("cost unknown" if attempt.requests.usd is None else f"${attempt.requests.usd:.4f}")
    return ", ".join(parts)
