"""Datasets for training language models, made from runs: rows with the chat messages of a request exactly as sent.

A reply is ranked by its policy's score before tuning, because the model did not do the tuning.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from policygen.errors import UsageError
from policygen.extensions.plots.groups import unique_runs
from policygen.llm.messages import Exchange
from policygen.outgoing import redacted
from policygen.runs.attempt import best_of
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook

Form = Literal["sft", "dpo", "grpo"]
Row = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Request:
    """A request of a run with its reply."""

    folder: Path
    config: RunConfig
    first: bool  # whether it is the first request of its attempt; the others ask for repairs
    malformed: bool  # whether the reply had problems, so that no policy was read from it
    accepted: bool  # whether the reply's policy became the best of the run
    row: Row  # `score` is that of the policy before tuning; None without one


def make_dataset(
    folders: Sequence[str | Path], form: Form, *, top: float | None = None, test: float = 0.0
) -> tuple[list[Row], list[Row]]:
    """Return the rows of a dataset made from runs and sweeps, and the held-out rows. No code from the folders is run.

    Every row has the columns `prompt` (chat messages), `task`, `run`, `attempt`, `kind`, and `incumbent` (the text of
    the policy to revise, or empty). Rows of `sft` and `dpo` also have `score`.

    Args:
        form: `sft`: rows also have a good reply, `completion`. `dpo`: they also have a better and a worse reply,
            `chosen` and `rejected`. `grpo`: prompts only, for `policygen.reward`.
        top: for `sft`, the share of each task's replies to include, those with the highest scores; None: the replies
            whose policy became the best of the run.
        test: the share of each task's runs to hold out. If it is not 0, at least one run of each task with two or more.

    Raises:
        UsageError: a run of a sweep is a link, `top` is not for this form, or no task has two runs.
        LogbookError: a folder is not a run, or is damaged.
    """
    if top is not None and form != "sft":
        raise UsageError("--top chooses replies for --method sft; leave it out")
    paths = [Path(folder) for folder in folders]
    runs = unique_runs(paths)
    if links := [run for run in runs if run.is_symlink() and run not in paths]:
        raise UsageError(f"{links[0]} is a link; name the folder that it leads to if you want its rows")
    requests = [request for run in runs for request in _requests_of(run)]
    if form == "sft":
        chosen = list(_good_replies(requests, top))
    else:
        chosen = list(_pairs(requests) if form == "dpo" else _prompts(requests))
    unique: dict[str, tuple[Path, Row]] = {}
    for folder, row in chosen:  # a replayed run repeats another one, and both must be on one side of the split
        key = repr([row.get(name) for name in ("prompt", "completion", "chosen", "rejected")])
        unique.setdefault(key, (folder, row))
    held_out = _held_out(list(unique.values()), test)
    kept = [row for folder, row in unique.values() if folder not in held_out]
    return kept, [row for folder, row in unique.values() if folder in held_out]


def _requests_of(folder: Path) -> Iterator[_Request]:
    """Yield the requests of a run that have a reply and a result, in order."""
    logbook = Logbook(folder)
    config, task, attempts = logbook.config(), logbook.task(), logbook.attempts()
    found: dict[int, list[Exchange]] = {}
    for exchange in logbook.transcript.exchanges():
        if isinstance(exchange, Exchange) and 0 < exchange.attempt < len(attempts):
            found.setdefault(exchange.attempt, []).append(exchange)
    for exchange in (exchange for some in found.values() for exchange in some):
        attempt, last = attempts[exchange.attempt], exchange is found[exchange.attempt][-1]
        revised = best_of(attempts[: exchange.attempt])
        incumbent = revised.policy if revised is not None else None
        score = attempt.tuned.proposed_score if attempt.tuned.kept else attempt.score
        row = {
            "prompt": [{"role": one.role, "content": redacted(one.content)} for one in exchange.prompt.messages],
            "completion": [{"role": "assistant", "content": redacted(exchange.reply.text)}],
            "task": task.name,
            "run": folder.name,
            "attempt": exchange.attempt,
            "kind": config.policy,
            "incumbent": incumbent.to_text(whole=True) if incumbent is not None else "",
            "score": score.mean if score is not None and last and math.isfinite(score.mean) else None,
        }
        malformed = not last or bool(attempt.problems)
        yield _Request(folder, config, exchange.request == 0, malformed, last and attempt.accepted, row)


def _good_replies(requests: Sequence[_Request], top: float | None) -> Iterator[tuple[Path, Row]]:
    """Yield the accepted replies, or the share `top` of each task's replies with the highest scores."""
    scored = [one for one in requests if one.row["score"] is not None]
    if top is not None:
        scored = best_share(scored, top, lambda one: one.row)
    yield from ((one.folder, one.row) for one in scored if top is not None or one.accepted)


def best_share(scored: Sequence[T], share: float, row: Callable[[T], Row]) -> list[T]:
    """Return the share of each task's members with the highest scores; `row` returns the row of a member."""
    tasks: dict[str, list[T]] = {}
    for one in sorted(scored, key=lambda one: -row(one)["score"]):
        tasks.setdefault(row(one)["task"], []).append(one)
    return [one for some in tasks.values() for one in some[: math.ceil(share * len(some))]]


def _pairs(requests: Sequence[_Request]) -> Iterator[tuple[Path, Row]]:
    """Yield pairs of a better and a worse reply, with the folder of the better one.

    Of the replies to a prompt, the best is paired with the worst, the second best with the second worst, and so on. A
    malformed reply is also paired with its repair.
    """
    usable = [one for one in requests if one.malformed or one.row["score"] is not None]
    groups: dict[str, list[_Request]] = {}
    for one in usable:
        groups.setdefault(json.dumps(one.row["prompt"]), []).append(one)
    pairs: list[tuple[_Request, _Request]] = []
    for some in groups.values():
        some.sort(key=_rank)
        pairs += zip(reversed(some), some[: len(some) // 2], strict=False)
    repairs = {(one.folder, one.row["attempt"]): one for one in usable if not one.first}
    pairs += [(repairs[key], one) for one in usable if (key := (one.folder, one.row["attempt"])) in repairs]
    for better, worse in pairs:
        if worse.first and _rank(better) > _rank(worse):
            row = {**better.row, "prompt": worse.row["prompt"], "rejected": worse.row["completion"]}
            yield better.folder, row | {"chosen": row.pop("completion")}


def _rank(request: _Request) -> float:
    score = request.row["score"]
    return -math.inf if score is None else float(score)


def _prompts(requests: Sequence[_Request]) -> Iterator[tuple[Path, Row]]:
    """Yield the first prompt of each attempt, in runs whose replies a reward would read as the run did."""
    for one in requests:
        if one.first and one.config.grid == "free":
            yield one.folder, {name: value for name, value in one.row.items() if name not in ("completion", "score")}


def _held_out(chosen: Sequence[tuple[Path, Row]], share: float) -> set[Path]:
    """Return the runs to hold out of every task that has two or more; their names determine the choice."""
    found: set[Path] = set()
    for task in {row["task"] for _, row in chosen} if share else ():
        runs = {folder for folder, row in chosen if row["task"] == task}
        ordered = sorted(runs, key=lambda run: hashlib.sha256(run.name.encode()).digest())
        found.update(ordered[: min(len(runs) - 1, max(1, round(share * len(runs))))])
    if share and chosen and not found:
        raise UsageError("--test holds out whole runs, but no task has two; name more runs, or leave --test out")
    return found
