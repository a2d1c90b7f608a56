"""The evidence why a proposal was refused: its new lines, the part of the episode with the largest loss, and a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.evidence import Episode, loss
from policygen.policies.features import is_definition
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.prompts.traces import episode_view, reader_for
from policygen.quantities.tree import signed_constants
from policygen.runs.attempt import Attempt
from policygen.tasks.task import Task

MOST_LINES = 12  # lines of a proposal that are shown
MOST_ROWS = 6  # a table with more new rows shows the changed cells instead, which is shorter
MOST_NAMES = 10  # quantities of the row that is shown


def refused_view(attempt: Attempt, best_then: Attempt, buffer: ReplayBuffer, task: Task) -> dict[str, Any] | None:
    """Return why an attempt lost to `best_then`, the best at its time, for templates; None for a failed attempt."""
    proposed, policy = attempt.proposed, attempt.policy
    if proposed is None or policy is None:
        return None
    best_lines = set(_lines_of(best_then.policy)) if best_then.policy is not None else set()
    own = [line for line in _lines_of(proposed) if line not in best_lines and "| --" not in line]
    own = decisive_first(own, proposed)
    if isinstance(proposed, TablePolicy) and len(own) > MOST_ROWS:
        own = []
    found = loss(*(buffer.of_attempt(one.number, len(one.played)) for one in (attempt, best_then)))
    lost = None
    if found is not None:
        row = rows_at(attempt, found.worst, [found.step], task)[0]
        numbers = {name: getattr(found, name) for name in ("first", "last", "mean", "episodes", "paired")}
        lost = {**numbers, "row": row}  # `mean` was lost there per episode
    return {
        "lines": own[:MOST_LINES],  # those that the best policy lacks; none of a table with many
        "more_lines": max(0, len(own) - MOST_LINES),
        "tuned": moved(proposed, policy),
        "lost": lost,
    }


def moved(proposed: Policy | None, policy: Policy) -> dict[str, list[tuple[float, float]]]:
    """Return the constants that tuning changed, before and after, with signs, by the name of their equation."""
    if not isinstance(proposed, LinearPolicy) or not isinstance(policy, LinearPolicy):
        return {}
    before = dict((*proposed.lets, *proposed.equations))
    found = {}
    for name, node in (*policy.lets, *policy.equations):
        pairs = zip(signed_constants(before[name]), signed_constants(node), strict=True)
        if changed := [(old, new) for old, new in pairs if old != new]:
            found[name] = changed
    return found


def decisive_first(lines: Sequence[str], policy: Policy) -> list[str]:
    """Return lines of equations with outputs first, then features, then standardised quantities: prompts cut the end.

    Lines of a table keep their order.
    """
    if not isinstance(policy, LinearPolicy):
        return list(lines)
    standard = {f"let {name}" for name, node in policy.lets if is_definition(name, node)}
    return sorted(lines, key=lambda line: line.startswith("let ") + (line.partition(" = ")[0] in standard))


def _lines_of(policy: Policy) -> list[str]:
    return [" ".join(line.split()) for line in policy.to_text(plain=True).splitlines()]


def rows_at(attempt: Attempt, episode: Episode, steps: Sequence[int], task: Task) -> list[dict[str, Any]]:
    """Return those of the steps that an episode of the attempt has, with their most informative columns."""
    view = episode_view(episode, reader_for(task, None, attempt.policy), attempt.policy)
    traced = view.traced
    if len(traced) > MOST_NAMES:  # observations come first, the decisive features last
        traced = traced[: MOST_NAMES // 2] + traced[-(MOST_NAMES - MOST_NAMES // 2) :]
    names = ("step", *traced, *(["cell"] if "cell" in view.columns else []), *view.outputs, "reward")
    return [{name: view.columns[name][step] for name in names} for step in steps if 0 <= step < view.length]
