"""The objectives of attempts in prompts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policygen.episodes.trajectory import Trajectory
from policygen.policies.shaping import Measure
from policygen.prompts.views import View
from policygen.runs.attempt import Attempt
from policygen.runs.notes import SHAPING
from policygen.runs.state import Context

MOST_OBJECTIVES = 3  # last objectives that are shown, beside that of the best policy
EXTREME = 4  # one in this many of an attempt's episodes counts as its best, and one as its worst


def objective_views(context: Context) -> list[View]:
    """Return the last objectives that attempts were tuned for, oldest first, and that of the best policy."""
    shaped = [attempt for attempt in context.attempts if SHAPING.of(attempt) is not None and attempt.saved is not None]
    shown = [attempt for attempt in shaped if attempt is context.best or attempt in shaped[-MOST_OBJECTIVES:]]
    best = context.best.number if context.best is not None else 0
    return [
        context.buffer.cached(("objective", attempt.number, best), lambda attempt=attempt: _objective(attempt, context))  # type: ignore[misc]
        for attempt in shown
    ]


def _objective(attempt: Attempt, context: Context) -> View:
    shaping = SHAPING.of(attempt)
    assert shaping is not None
    groups = _groups(attempt, context) if shaping.objective else []
    measure = Measure(context.task, shaping)
    sums = [measure.sums_of_terms(episodes).mean(axis=1) for _, episodes in groups]
    return {
        "number": attempt.number,
        "is_best": attempt is context.best,
        "lines": shaping.to_text().splitlines(),
        "refinement": attempt.tuned.refinement,
        # each group's name, number of episodes and mean return; then the mean sum per episode of each term and of all
        "groups": [(name, len(some), float(np.mean([t.episode_return for t in some]))) for name, some in groups],
        "terms": [(text, [float(one[i]) for one in sums]) for i, text in enumerate(measure.terms)] if groups else [],
        "total": [float(one.sum()) for one in sums],
    }


def _groups(attempt: Attempt, context: Context) -> list[tuple[str, Sequence[Trajectory]]]:
    """Return groups of episodes: an attempt's best and worst ones (or all, if alike), and the best policy's."""
    own = sorted(_episodes(attempt, context), key=lambda t: -t.episode_return)
    if not own:
        return []
    groups: list[tuple[str, Sequence[Trajectory]]] = [("its", own)]
    if own[0].episode_return > own[-1].episode_return:
        extreme = max(1, len(own) // EXTREME)
        groups = [("its best", own[:extreme]), ("its worst", own[-extreme:])]
    if context.best is not None and attempt is not context.best and (others := _episodes(context.best, context)):
        groups.append(("the best policy's", others))
    return groups


def _episodes(attempt: Attempt, context: Context) -> list[Trajectory]:
    return [episode.trajectory for episode in context.buffer.of_attempt(attempt.number, len(attempt.played))]
