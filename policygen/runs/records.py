"""Records of a run and their saved forms: attempts, scores and summaries as JSON values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from policygen.episodes.score import Score
from policygen.errors import PolicyError, explain
from policygen.runs.attempt import Attempt, Costs
from policygen.tasks.task import Task

_ATTEMPT = TypeAdapter(Attempt)


def attempt_to_record(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as JSON values; tuples stand for lists."""
    record: dict[str, Any] = _ATTEMPT.dump_python(attempt, by_alias=True)
    return record


def attempt_from_record(record: dict[str, Any], task: Task, log: Path | None = None) -> Attempt:
    """Read an attempt that `attempt_to_record` wrote; its policies are parsed on first access.

    Args:
        task: the task of the policies.
        log: the file that the record comes from, for the message about a damaged policy.

    Raises PolicyError if it is damaged; the message says where.
    """
    try:
        attempt = _ATTEMPT.validate_python(record, context=(task, log))
    except ValidationError as error:
        raise PolicyError(explain(error)) from None
    if attempt.score is not None and len(attempt.score.returns) != len(attempt.score.seeds):
        raise PolicyError("its score needs one seed for each return")
    played = attempt.played
    columns = (played.lengths, played.terminated, *played.terms.values(), attempt.returns)
    if len(set(map(len, columns))) > 1:
        raise PolicyError("its episodes need a return, a length, an ending and the terms of each")
    return attempt


_SCORE = TypeAdapter(Score)


def score_record(score: Score) -> dict[str, Any]:
    """Return a score as JSON values, with its number of episodes; NaN is null."""
    record: dict[str, Any] = json.loads(_SCORE.dump_json(score))
    return {**record, "episodes": score.episodes}


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a run; `summary.json` is its saved form. The other figures of a run follow from its attempts.

    Attributes:
        final: the final score; None if no reply was a policy.
        perturbed: the score of the best policy under the perturbations `perturbed_by`, on the first seeds of `final`;
            None if there are none.
        stopped: the reason why the search ended, as a sentence.
        seconds: the time of the final score.
        asks_a_model: whether replies came from a language model.
        spent: the costs of all requests, those of a reply that never came included.
    """

    final: Score | None = None
    perturbed: Score | None = None
    perturbed_by: tuple[str, ...] = ()
    stopped: str = ""
    seconds: float = 0.0
    asks_a_model: bool = True
    spent: Costs = field(default_factory=Costs)


SUMMARY = TypeAdapter(Summary)
