"""Attempts: the saved form of policies and episodes, and reading the attempts of an unfinished run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from searched import made
from support import Written, attempts_of, fenced

import policygen
from policygen.episodes.score import Score, score_of_returns
from policygen.errors import LogbookError
from policygen.policies.parse import parse
from policygen.runs.attempt import (
    MOST_CACHED,
    Attempt,
    Counts,
    Played,
    Requests,
    SavedPolicy,
    Standing,
    Tuned,
    TuningState,
    saved,
)
from policygen.runs.logbook import attempt_from_record, attempt_to_record
from policygen.runs.notes import UNDEFINED
from policygen.search.resume import load_run
from policygen.tasks.load import load_task

LINES = "left = 0\nright = {}*angle + 0.25*spin"


def saved_policy(number: float) -> SavedPolicy:
    found = saved(parse(LINES.format(number), policygen.load_task("cartpole"), "linear").policy)
    assert found is not None
    return found


def test_a_policy_of_an_attempt_keeps_a_few_hundred_bytes_and_reads_the_same() -> None:
    first = saved_policy(0.5)
    policy = first.policy
    assert policy is first.policy  # at hand
    for number in range(MOST_CACHED):
        _ = saved_policy(1 + number).policy
    assert policy is not first.policy  # read anew
    assert policy == first.policy
    assert len(first.content) < 400
    assert first == saved_policy(0.5)
    assert first.digest != saved_policy(0.25).digest


def test_a_damaged_policy_is_no_obstacle_until_it_is_read(tmp_path: Path) -> None:
    provider = Written([fenced(LINES.format(2 + n)) for n in range(4)])
    small = {"episodes": 2, "warmup_episodes": 2, "final_episodes": 2, "fragility": False}
    folder = made("cartpole", tmp_path, provider, policy="linear", iterations=4, stop_at=1e9, **small)
    (folder / "summary.json").unlink()
    records = attempts_of(folder)
    assert len(records) == 5
    best = max(record["number"] for record in records if record["accepted"])
    for record in records[1:]:
        if record["number"] != best:
            record["policy"]["equations"] = {"left": "no such name", "right": "0"}
    (folder / "attempts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    search = load_run(folder).search
    assert search.best.number == best
    other = next(one for one in search.attempts[1:] if one.number != best)
    with pytest.raises(LogbookError, match=r"attempts\.jsonl is damaged: [^\n]* policygen resume [^\n]*$"):
        _ = other.policy
    assert not other.failed


# --- saved forms -----------------------------------------------------------------------------------------------------

SAMPLED = score_of_returns(np.array([1.0, 2.0, 4.0]), (5, 6, 7), "copies")
EXACT = Score(0.5, 0.5, (0.5, 0.5), True, "exact")


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
