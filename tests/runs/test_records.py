"""Summaries, scores and attempts as JSON values read back as written."""

from __future__ import annotations

import json

import numpy as np
import pytest

from policygen.episodes.score import Score, score_of_returns
from policygen.policies.parse import parse
from policygen.runs.attempt import Attempt, Counts, Played, Requests, Standing, Tuned, TuningState, saved
from policygen.runs.logbook import (
    SUMMARY,
    Summary,
    attempt_from_record,
    attempt_to_record,
)
from policygen.runs.notes import UNDEFINED
from policygen.tasks.load import load_task

SAMPLED = score_of_returns(np.array([1.0, 2.0, 4.0]), (5, 6, 7), "copies")
EXACT = Score(0.5, 0.5, (0.5, 0.5), True, "exact")


@pytest.mark.parametrize("score", [SAMPLED, EXACT, score_of_returns(np.array([3.0]), (1,), "copies")])
def test_a_summary_comes_back_as_it_was(score: Score) -> None:
    summary = Summary(score, SAMPLED, ("late", "noisy"), "all is done", 0.5, asks_a_model=False)
    written = json.loads(json.dumps(SUMMARY.dump_python(summary)))
    assert SUMMARY.validate_python(written) == summary


def test_an_attempt_comes_back_as_it_was_without_its_task() -> None:
    task = load_task("frozenlake")
    policy = parse("| row | column | action |\n| * | * | down |", task).policy
    attempt = Attempt(
        2,
        saved(policy),
        SAMPLED,
        Played((3, 9, 4), (True, False, True), {"goal": (1.0, 0.0, 2.0)}),
        kind="tuning",
        notes={UNDEFINED.key: (("x", 0.5), ("y", float("inf")))},
        requests=Requests(usd=None),
        tuned=Tuned(
            "cma", saved(policy), EXACT, (("levels", 0.1),), TuningState((0.1, 2.5), (-0.5,), 2.5, climbing=True)
        ),
        standing=Standing(validated_mean=0.25, validated_episodes=4),
        counts=Counts(7, 30, wall_seconds=0.5),
    )
    written = json.loads(json.dumps(attempt_to_record(attempt)))
    assert "task" not in written["policy"]
    back = attempt_from_record(written, task)
    assert back.returns == (1.0, 2.0, 4.0)
    assert back == attempt
    assert (back.policy, back.proposed) == (policy, policy)
