"""Records of a run and their saved forms: attempts, scores and summaries as JSON values."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from policygen.episodes.requirements import Violations
from policygen.episodes.score import Score
from policygen.errors import PolicyError, explain
from policygen.runs.attempt import Attempt
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


# JSON has no NaN: it is stored as null.
_Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


@dataclass(frozen=True, slots=True)
class FinalScore:
    """A score without the return of each episode, as summaries store it: exact, or over `episodes` with `seeds`."""

    mean: _Number
    std: _Number = 0.0
    ci95: tuple[_Number, _Number] | None = None
    episodes: int = 0
    exact: bool = False
    engine: str = ""
    seeds: tuple[int, ...] = ()
    violations: tuple[Violations, ...] = ()


def final_score(score: Score) -> FinalScore:
    """Return a score in the form that a summary stores."""
    return FinalScore(**{one.name: getattr(score, one.name) for one in fields(FinalScore)})


def score_record(score: Score) -> dict[str, Any]:
    """Return a score as JSON values, without the return of each episode."""
    record = asdict(final_score(score))
    lists = {name: list(record[name]) for name in ("seeds", "violations")}
    return {**record, **lists, "ci95": list(score.ci95) if score.ci95 else None}


@dataclass(frozen=True, slots=True)
class Summary:
    """The report of a run when it ends; `summary.json` is its saved form.

    Attributes:
        iterations: number of proposals that were asked for.
        attempts: number of attempts: one for each proposal, later tuning and simplification.
        llm_calls: number of requests to a language model.
        requests: number of all requests, those to `builtin` included.
        cached: number of answers that came from a cache and cost nothing.
        usd: None if a price is unknown.
        episodes, env_steps: numbers of episodes and steps played before the final score: random actions, scores, tuning
            and validation. Attempts, curves, tables and pages count the same.
        best_attempt: number of the best attempt; None if no reply was a policy, and then `final` is None, too.
        best_score: score of the best policy, exact or on held-out episodes.
        search_score: the score by which the best policy was chosen.
        perturbed: the score of the best policy under the perturbations `perturbed_by`, on the first seeds of `final`;
            None if there are none.
        unperturbed: the mean return of `final` on the seeds of `perturbed`.
        final: the final score.
        solved: whether the final score reaches the task's threshold; None if the task has none.
        optimum: the best known score of the task.
        optimum_reached: whether the final score reaches it: exactly, in every episode, or by its lower one-sided 95%
            bound.
        stopped: the reason why the search ended, as a sentence.
        assumed: assumptions about a task without a task file, as sentences.
        finished: False for an interrupted run, which has results and costs so far but no final score.
    """

    task: str = ""
    gym_id: str = ""
    policy_kind: str = ""
    llm: str = ""
    is_language_model: bool = False
    seed: int = 0
    iterations: int = 0
    attempts: int = 0
    llm_calls: int = 0
    requests: int = 0
    cached: int = 0
    repairs: int = 0
    failed_attempts: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None
    episodes: int = 0
    env_steps: int = 0
    best_attempt: int | None = None
    best_score: float | None = None
    search_score: float | None = None
    final: FinalScore | None = None
    perturbed: FinalScore | None = None
    perturbed_by: tuple[str, ...] = ()
    unperturbed: _Number | None = None
    solved: bool | None = None
    optimum: float | None = None
    optimum_reached: bool | None = None
    stopped: str = ""
    assumed: tuple[str, ...] = ()
    wall_seconds: float = 0.0
    llm_seconds: float = 0.0
    finished: bool = True


SUMMARY = TypeAdapter(Summary)


def summary_to_record(summary: Summary) -> dict[str, Any]:
    """Return the saved form of a summary, as JSON values; NaN is null."""
    record: dict[str, Any] = json.loads(SUMMARY.dump_json(summary))
    return record
