"""The objectives that proposals were tuned for, as a template sees them: each with the sums of its terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from policygen.episodes.trajectory import Trajectory
from policygen.policies.shaping import Measure
from policygen.runs.attempt import Attempt
from policygen.runs.state import Context

MOST_TOLD = 3  # objectives, the last ones; and that of the best policy
EXTREME = 4  # the best and the worst of so many episodes are told apart


@dataclass(frozen=True, slots=True)
class ObjectiveView:
    """The objective that one attempt was tuned for.

    Attributes:
        lines: its objective and potential, after the features that they need.
        refinement: what tuning did, in words.
        groups: whose episodes the terms were summed over, with how many there are and their mean return.
        terms: each term of the objective with its mean sum over an episode, one for each of the groups; without an
            objective there are none.
        total: the same of the whole objective.
    """

    number: int
    is_best: bool
    lines: tuple[str, ...]
    refinement: str
    groups: tuple[tuple[str, int, float], ...] = ()
    terms: tuple[tuple[str, tuple[float, ...]], ...] = ()
    total: tuple[float, ...] = ()


def objective_views(context: Context) -> list[ObjectiveView]:
    """The last objectives, the oldest first, and the best policy's own wherever it is among the attempts."""
    shaped = [attempt for attempt in context.attempts if attempt.shaping is not None and attempt.saved is not None]
    told = [attempt for attempt in shaped if attempt is context.best or attempt in shaped[-MOST_TOLD:]]
    best = context.best.number if context.best is not None else 0
    return [
        context.buffer.once(("objective", attempt.number, best), lambda attempt=attempt: _view(attempt, context))  # type: ignore[misc]
        for attempt in told
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
    """The best and the worst of an attempt's episodes, all of them where they are alike, and the best policy's."""
    own = [episode.trajectory for episode in context.buffer.of_attempt(attempt.number)]
    own.sort(key=lambda t: -t.episode_return)
    groups: list[tuple[str, Sequence[Trajectory]]] = []
    extreme = max(1, len(own) // EXTREME)
    if own and own[0].episode_return > own[-1].episode_return:
        groups += [("its best", own[:extreme]), ("its worst", own[-extreme:])]
    elif own:
        groups.append(("its", own))
    if groups and context.best is not None and attempt is not context.best:
        others = [episode.trajectory for episode in context.buffer.of_attempt(context.best.number)]
        groups += [("the best policy's", others)] if others else []
    return groups
