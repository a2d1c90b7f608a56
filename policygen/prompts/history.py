"""What was tried, as a template sees it: every attempt with what it changed, and the best policy so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.episodes.score import Score
from policygen.policies.cells import action_text
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.tree import constants
from policygen.runs.state import Attempt

DIFFERENCES = 3  # cells named per attempt
TOLD_APART = 2.0  # ratio of the widest to the narrowest spread, from which they tell constants apart


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One line of the history: number, score, and what it changed.

    A table is compared with the best policy; a linear policy, as proposed, with the one it could revise, the best at
    its time (`parent`). `same_as` is an earlier attempt that proposed exactly this. `undefined` has its features and
    outputs that were no finite number, with the share of the steps.
    """

    number: int
    mean: float | None
    proposed_mean: float | None
    std: float | None
    lowest: float | None
    highest: float | None
    accepted: bool
    is_best: bool
    parent: int | None
    same_as: int | None
    changed: str
    problem: str
    refinement: str
    undefined: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BestView:
    """The best policy so far: its text (also as `lines`), its score, and its episodes, equal ones counted together.

    Where it was tuned, `tuned` has for each line of a linear policy the constants that moved, before and after;
    `proposed` is the text as it was, for a table. `spread` says how far the constants of each place could still move,
    in per cent.
    """

    number: int
    text: str
    lines: tuple[str, ...]
    score: str
    mean: float
    exact: bool
    refinement: str
    proposed: str
    tuned: Mapping[str, Sequence[tuple[float, float]]]
    spread: Mapping[str, Sequence[float]]
    played: tuple[Mapping[str, Any], ...]
    terms: tuple[str, ...]


def attempt_views(
    attempts: Sequence[Attempt], best: Attempt | None, visits: npt.NDArray[np.float64] | None = None
) -> list[AttemptView]:
    """The history, oldest first, each attempt with what it changed."""
    views: list[AttemptView] = []
    parent: Attempt | None = None
    seen: dict[str, int] = {}
    for attempt in attempts:
        if attempt.number == 0:
            continue
        policy, score, proposed = attempt.policy, attempt.score, attempt.proposed or attempt.policy
        changed, same_as = "", None
        if isinstance(proposed, LinearPolicy):
            text = proposed.to_text()
            same_as = seen.get(text)
            seen.setdefault(text, attempt.number)
            old = parent.policy.to_text() if parent is not None and parent.policy is not None else ""
            changed = _line_changes(text, old)
            if attempt.policy is not None:
                seen.setdefault(attempt.policy.to_text(), attempt.number)
        elif policy is not None and best is not None and best.policy is not None and attempt is not best:
            changed = _difference(policy, best.policy, visits)
        returns = [played.episode_return for played in attempt.played]
        before = attempt.proposed_score
        views.append(
            AttemptView(
                number=attempt.number,
                mean=score.mean if score else None,
                proposed_mean=before.mean if before else None,
                std=score.std if score else None,
                lowest=min(returns, default=None),
                highest=max(returns, default=None),
                accepted=attempt.accepted,
                is_best=attempt is best,
                parent=parent.number if parent is not None else None,
                same_as=same_as,
                changed=changed,
                problem=str(attempt.problems[0]) if attempt.problems else "",
                refinement=attempt.refinement,
                undefined=dict(attempt.undefined),
            )
        )
        if attempt.accepted:
            parent = attempt
    return views


def _line_changes(new: str, old: str) -> str:
    """What a policy's text changes in another one: the lines that are new or different, and the names that are gone."""
    before, after = (dict(line.partition(" = ")[::2] for line in text.splitlines()) for text in (old, new))
    lines = [f"`{name} = {value}`" for name, value in after.items() if before.get(name) != value]
    lines += [f"without `{name.removeprefix('let ')}`" for name in before if name not in after]
    return "; ".join(lines) or "nothing"


def _difference(policy: Policy, best: Policy, visits: npt.NDArray[np.float64] | None) -> str:
    """What separates a table from the best one, in at most a line: the cells that episodes visited most come first."""
    if not isinstance(policy, TablePolicy) or not isinstance(best, TablePolicy):
        return ""
    if policy.grid != best.grid:
        return "another grid"
    mine, theirs = (table.actions.reshape(table.grid.size, -1) for table in (policy, best))
    cells = np.flatnonzero((mine != theirs).any(axis=1))
    if not len(cells):
        return "the same table"
    if visits is not None:
        cells = cells[np.argsort(-visits[cells], kind="stable")]
    shown: dict[str, list[str]] = {}
    places = policy.grid.bins_of(cells[:DIFFERENCES]).tolist()
    for place, action in zip(places, mine[cells[:DIFFERENCES]].tolist(), strict=True):
        words = ",".join(action_text(a, v) for a, v in zip(policy.task.actuators, action, strict=True))
        shown.setdefault(words, []).append(",".join(map(str, place)))
    listed = "; ".join(f"{words} in {' '.join(where)}" for words, where in shown.items())
    if len(cells) > DIFFERENCES:
        return f"{len(cells)} cells differ, e.g. {listed}"
    return f"differs: {listed}"


def best_view(best: Attempt | None, score: Score | None) -> BestView | None:
    """The best policy as a template sees it; `score` may rest on more episodes than its own."""
    if best is None or best.policy is None or score is None:
        return None
    alike = Counter((p.episode_return, p.length, p.ending, p.terms) for p in best.played)
    names = tuple(dict.fromkeys(name for p in best.played for name, _ in p.terms))
    nothing = dict.fromkeys(names, 0.0)
    played = tuple(
        {"episode_return": value, "length": length, "ending": ending, "count": count, **nothing, **dict(terms)}
        for (value, length, ending, terms), count in sorted(alike.items())
    )
    spread: dict[str, list[float]] = {}
    widths = [value for _, value in best.spread]
    if widths and max(widths) > TOLD_APART * min(widths):
        for place, value in best.spread:
            spread.setdefault(place, []).append(100 * value)
    text = best.policy.to_text()
    tuned = _moved(best.proposed, best.policy)
    proposed = best.proposed.to_text() if best.proposed is not None and not tuned else ""
    return BestView(
        best.number,
        text,
        tuple(text.splitlines()),
        str(score),
        score.mean,
        score.exact,
        best.refinement,
        proposed,
        tuned,
        spread,
        played,
        names,
    )


def _moved(proposed: Policy | None, policy: Policy) -> dict[str, list[tuple[float, float]]]:
    """For each line of a linear policy, its constants that tuning moved: before and after."""
    if not isinstance(proposed, LinearPolicy) or not isinstance(policy, LinearPolicy):
        return {}
    before = dict((*proposed.lets, *proposed.equations))
    moved = {}
    for name, node in (*policy.lets, *policy.equations):
        pairs = zip(constants(before[name]), constants(node), strict=True)
        if changed := [(old, new) for old, new in pairs if old != new]:
            moved[name] = changed
    return moved
