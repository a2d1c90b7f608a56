"""The objectives that proposals were tuned for, as a template sees them: each with the sums of its terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from policygen.episodes.trajectory import Trajectory
from policygen.policies.shaping import Measure
from policygen.runs.attempt import Attempt
from policygen.runs.state import Context

MOST_SHOWN = 3  # last objectives that are shown, beside that of the best policy
EXTREME = 4  # least number of episodes to show the best and the worst one separately


@dataclass(frozen=True, slots=True)
class ObjectiveView:
    """The objective that one attempt was tuned for.

    Attributes:
        lines: its objective and potential, after the features that they need.
        refinement: the result of tuning, in words.
        groups: groups of episodes, each with its number of episodes and their mean return.
        terms: each term of the objective with its mean sum per episode, one for each group; empty without an
            objective.
        total: the same for the whole objective.
    """

    number: int
    is_best: bool
    lines: tuple[str, ...]
    refinement: str
    groups: tuple[tuple[str, int, float], ...] = ()
    terms: tuple[tuple[str, tuple[float, ...]], ...] = ()
    total: tuple[float, ...] = ()


def objective_views(context: Context) -> list[ObjectiveView]:
    """Return the last objectives, oldest first, and that of the best policy."""
    shaped = [attempt for attempt in context.attempts if attempt.shaping is not None and attempt.saved is not None]
    shown = [attempt for attempt in shaped if attempt is context.best or attempt in shaped[-MOST_SHOWN:]]
    best = context.best.number if context.best is not None else 0
    return [
        context.buffer.cached(("objective", attempt.number, best), lambda attempt=attempt: _view(attempt, context))  # type: ignore[misc]
        for attempt in shown
    ]


def _view(attempt: Attempt, context: Context) -> ObjectiveView:
    assert attempt.shaping is not None
    view = ObjectiveView(attempt.number, attempt is context.best, attempt.shaping.lines, attempt.tuned.refinement)
    groups = _groups(attempt, context)
    if not attempt.shaping.objective or not groups:
        return view
    measure = Measure(context.task, attempt.shaping)
    sums = [measure.sums_of_terms(episodes).mean(axis=1) for _, episodes in groups]
    return replace(
        view,
        groups=tuple((name, len(some), float(np.mean([t.episode_return for t in some]))) for name, some in groups),
        terms=tuple((text, tuple(float(one[i]) for one in sums)) for i, text in enumerate(measure.terms)),
        total=tuple(float(one.sum()) for one in sums),
    )


def _groups(attempt: Attempt, context: Context) -> list[tuple[str, Sequence[Trajectory]]]:
    """Return groups of episodes: an attempt's best and worst ones (or all, if alike), and the best policy's."""
    own = [episode.trajectory for episode in context.buffer.of_attempt(attempt.number, len(attempt.played))]
    own.sort(key=lambda t: -t.episode_return)
    groups: list[tuple[str, Sequence[Trajectory]]] = []
    extreme = max(1, len(own) // EXTREME)
    if own and own[0].episode_return > own[-1].episode_return:
        groups += [("its best", own[:extreme]), ("its worst", own[-extreme:])]
    elif own:
        groups.append(("its", own))
    if groups and context.best is not None and attempt is not context.best:
        best = context.best
        others = [episode.trajectory for episode in context.buffer.of_attempt(best.number, len(best.played))]
        groups += [("the best policy's", others)] if others else []
    return groups
