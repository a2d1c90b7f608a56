"""Attempts, exchanges and scores as JSON values and as CSV rows, and back."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from policygen.episodes.score import Score
from policygen.llm.messages import Message, Prompt, Reply
from policygen.policies.lines import Problem
from policygen.policies.policy import from_record
from policygen.runs.correspondence import Exchange, FailedExchange
from policygen.runs.state import Attempt, Played
from policygen.tasks.task import Task


def exchange_from_record(record: dict[str, Any]) -> Exchange | FailedExchange:
    """A line of the transcript."""
    prompt = Prompt(tuple(Message(**message) for message in record["messages"]))
    place = (record["attempt"], record["request"], prompt)
    if record["reply"] is None:
        return FailedExchange(*place, record["requests"], record["error"])
    return Exchange(*place, Reply(**record["reply"]), record["requests"])


def _shallow(record: Any) -> dict[str, Any]:
    """The fields of a record by name; unlike `asdict` without a copy of each of its thousand numbers."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def attempt_to_record(attempt: Attempt) -> dict[str, Any]:
    """An attempt as a line of the log."""
    record = _shallow(attempt)
    for name in ("policy", "proposed"):
        policy = record[name]
        # The task is the run's own and lies beside the log: only the policy itself is repeated.
        record[name] = {k: v for k, v in policy.to_record().items() if k != "task"} if policy is not None else None
    for name in ("score", "proposed_score"):
        record[name] = _shallow(record[name]) if record[name] is not None else None
    record["played"] = [[p.episode_return, p.length, p.ending, dict(p.terms)] for p in attempt.played]
    record["problems"] = [asdict(problem) for problem in attempt.problems]
    return record


def attempt_from_record(record: dict[str, Any], task: Task) -> Attempt:
    """What `attempt_to_record` wrote; the policies are bound to `task`."""
    known = {field.name for field in fields(Attempt)}
    values = {key: value for key, value in record.items() if key in known}
    for name in ("score", "proposed_score"):
        values[name] = _score(record[name]) if record.get(name) is not None else None
    for name in ("policy", "proposed"):
        values[name] = from_record(record[name], task) if record.get(name) is not None else None
    values["played"] = tuple(
        Played(value, length, ending, tuple(terms[0].items()) if terms else ())
        for value, length, ending, *terms in record["played"]
    )
    values["spread"] = tuple((place, value) for place, value in record.get("spread", ()))
    values["undefined"] = tuple((name, share) for name, share in record.get("undefined", ()))
    values["problems"] = tuple(Problem(**problem) for problem in record["problems"])
    return Attempt(**values)


def _score(record: dict[str, Any]) -> Score:
    interval = tuple(record["ci95"]) if record["ci95"] else None
    return Score(**{**record, "ci95": interval, "returns": tuple(record["returns"]), "seeds": tuple(record["seeds"])})


CURVE_COLUMNS = (
    "attempt",
    "proposed",
    "score",
    "std",
    "best",
    "accepted",
    "failed",
    "calls",
    "tokens_in",
    "tokens_out",
    "usd",
    "episodes",
    "env_steps",
    "wall_seconds",
)


def curve_csv(attempts: Sequence[Attempt]) -> str:
    """One row per attempt: its own score, the best so far, and what had been spent by then (running totals).

    `proposed` is the score before tuning, empty where nothing was tuned.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CURVE_COLUMNS)
    calls = tokens_in = tokens_out = 0
    usd: float | None = 0.0
    for attempt in attempts:
        calls += attempt.calls
        tokens_in += attempt.tokens_in
        tokens_out += attempt.tokens_out
        usd = None if usd is None or attempt.usd is None else usd + attempt.usd
        score = attempt.score
        writer.writerow(
            [
                attempt.number,
                _cell(attempt.proposed_score.mean if attempt.proposed_score else None),
                _cell(score.mean if score else None),
                _cell(score.std if score else None),
                _cell(attempt.best_mean),
                int(attempt.accepted),
                int(attempt.number > 0 and attempt.policy is None),
                calls,
                tokens_in,
                tokens_out,
                _cell(usd),
                attempt.episodes,
                attempt.env_steps,
                f"{attempt.wall_seconds:.3f}",
            ]
        )
    return text.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
