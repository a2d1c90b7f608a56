"""What the tests of pictures share: run folders whose attempts have given scores, and the axes of a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from policygen.episodes.buffer import ReplayBuffer
from policygen.episodes.score import Score
from policygen.policies.lines import Problem
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.runs.attempt import Attempt, Counts, Requests, Standing, Tuned, costs_of, saved
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook, Summary
from policygen.tasks.load import load_task
from policygen.tasks.task import Task

LAKE = load_task("frozenlake")
FAILED = None


def a_score(mean: float) -> Score:
    return Score(mean, 0.1, (mean - 0.1, mean + 0.1), False, "vector", (mean, mean), (1, 2))


def a_run(
    out: Path,
    scores: Sequence[float | None],
    *,
    random: float | None = 0.02,
    task: Task = LAKE,
    final: Score | None = None,
    proposed: Mapping[int, float] | None = None,
    **settings: Any,
) -> Path:
    """A run folder whose attempts have these scores (`FAILED` for a reply without a policy); finished if `final`.

    `proposed` has the scores that attempts of these numbers had before tuning.
    """
    before = proposed or {}
    logbook = Logbook.create(out, task, RunConfig(task=task.name, **settings))
    logbook.record_attempt(
        Attempt(0, None, None if random is None else a_score(random), counts=Counts(episodes=20)), ReplayBuffer()
    )
    best: float | None = None
    for number, score in enumerate(scores, start=1):
        accepted = score is not None and (best is None or score > best)
        best = score if accepted else best
        attempt = Attempt(
            number,
            saved(a_policy(task)) if score is not None else None,
            a_score(score) if score is not None else None,
            accepted=accepted,
            problems=() if score is not None else (Problem(1, "nonsense", "a table"),),
            requests=Requests(calls=2, tokens_in=100, tokens_out=10, usd=0.25),
            tuned=Tuned("", saved(a_policy(task)), a_score(before[number])) if number in before else Tuned(),
            standing=Standing(best_mean=best),
            counts=Counts(20 + 20 * number, 1000 * number, wall_seconds=1.5 * number),
        )
        logbook.record_attempt(attempt, ReplayBuffer())
    if final is not None:
        logbook.write_summary(Summary(final=final))
    return logbook.folder


def ended(out: Path, scores: Sequence[float | None], **settings: Any) -> Path:
    """A finished run whose final score is its best one, exact; no score where every reply failed."""
    known = [score for score in scores if score is not None]
    final = Score(max(known), 0.0, (max(known), max(known)), True, "exact") if known else None
    folder = a_run(out, scores, **settings)
    spent = costs_of(Logbook(folder).attempts())
    Logbook(folder).write_summary(Summary(final, spent=spent))
    return folder


def a_policy(task: Task) -> Policy:
    assert task.grid is not None
    return TablePolicy.from_actions(task, np.arange(task.grid.size) % 2)


def the_axes(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes
