"""Datasets for training language models, made from runs: a row has the chat messages of a request exactly as sent.

A reply is ranked by the score of its policy before tuning, because tuning is not the model's merit.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from policygen.episodes.buffer import ReplayBuffer
from policygen.errors import UsageError
from policygen.extensions.plots.groups import unique_runs
from policygen.extensions.training.reward import scale_of
from policygen.llm.messages import Exchange
from policygen.proposers.proposer import read
from policygen.runs.attempt import best_of
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook
from policygen.runs.state import Context
from policygen.runs.steering import Steering

Form = Literal["sft", "dpo", "grpo"]
Row = dict[str, Any]
_PROMPT_COLUMNS = ("prompt", "task", "run", "attempt", "kind", "incumbent")


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a run with its reply."""

    folder: Path
    config: RunConfig
    round: int  # number of the first attempt of its round, whose prompts differ only in the attempt's number
    first: bool  # whether it is the first request of its attempt; the others ask for repairs
    malformed: bool  # whether its reply had problems, so that no policy was read from it
    row: Row  # its columns; `score` is that of the policy before tuning, None without one


@dataclass(frozen=True, slots=True)
class Dataset:
    """The rows of a dataset, those of the runs held out, and the number of rows left out for each reason."""

    rows: list[Row]
    test: list[Row]
    left_out: Counter[str]


def make_dataset(folders: Sequence[Path], form: Form, *, top: float | None, test: float, comments: bool) -> Dataset:
    """Return a dataset of runs and sweeps. No code from their folders is executed.

    Args:
        form: `sft`: prompts with good replies; `dpo`: prompts with a better and a worse reply; `grpo`: prompts for
            `policygen.reward`.
        top: for `sft`, the share of each task's replies to include, those with the highest scores; None: the replies
            that became the best policy of their run.
        test: share of each task's runs to hold out, 0 for none; at least one run of each task that has two or more.
        comments: whether to include requests made after the first comment of a user.

    Raises:
        UsageError: a run of a sweep is a link, or no task has two runs, of which one could be held out.
        LogbookError: a folder is no run, or is damaged.
    """
    runs, left_out = unique_runs(folders), Counter[str]()
    if links := [run for run in runs if run.is_symlink() and run not in folders]:
        raise UsageError(f"{links[0]} is a link; name the folder that it leads to if you want its rows")
    requests = [request for run in runs for request in _requests_of(run, left_out, comments=comments)]
    if form == "sft":
        chosen = _good_replies(requests, top, left_out)
    else:
        chosen = (_pairs if form == "dpo" else _prompts)(requests, left_out)
    unique: dict[str, Request] = {}
    for one in chosen:  # a replayed run repeats another one, which must not be on the other side of the split
        unique.setdefault(repr([one.row.get(name) for name in ("prompt", "completion", "chosen", "rejected")]), one)
    left_out["repeated"] += len(chosen) - len(unique)
    held_out = _held_out(list(unique.values()), test)
    found = Dataset([], [], left_out)
    for one in unique.values():
        (found.test if one.folder in held_out else found.rows).append(one.row)
    return found


def _requests_of(folder: Path, left_out: Counter[str], *, comments: bool) -> Iterator[Request]:
    """Yield the answered requests of a run in their order, and count the others in `left_out`."""
    logbook = Logbook(folder)
    config, task, attempts = logbook.config(), logbook.task(), logbook.attempts()
    scale = scale_of(task, attempts[0].score.mean if attempts and attempts[0].score is not None else None)
    carried = Steering(folder).read().carried
    commented = min((number for number, some in carried.items() if some and not comments), default=math.inf)
    found: dict[int, list[Exchange]] = {}
    for exchange in logbook.transcript.exchanges():
        if not isinstance(exchange, Exchange) or not 0 < exchange.attempt < len(attempts):
            left_out["without a reply or a result"] += 1
        elif exchange.attempt >= commented:  # later prompts show policies that the comment influenced
            left_out["since a user's comment (--comments includes them)"] += 1
        else:
            found.setdefault(exchange.attempt, []).append(exchange)
    for exchange in (exchange for some in found.values() for exchange in some):
        attempt, last = attempts[exchange.attempt], exchange is found[exchange.attempt][-1]
        first = exchange.attempt - (exchange.attempt - 1) % config.candidates  # the first attempt of its round
        revised = best_of(attempts[:first])
        # Reading a reply uses no scores, attempts or episodes.
        context = Context(task, config.policy, first, config.seed, revised, None, (), {}, ReplayBuffer())
        score = attempt.tuned.proposed_score if attempt.tuned.kept else attempt.score
        mean = score.mean if score is not None and last and math.isfinite(score.mean) else None
        # The run keeps the problems of an attempt's last reply only; the others are read again.
        problems = attempt.problems if last else read(exchange.reply, context, config).problems
        row = {
            "prompt": [{"role": message.role, "content": message.content} for message in exchange.prompt.messages],
            "completion": [{"role": "assistant", "content": exchange.reply.text}],
            "task": task.name,
            "run": folder.name,
            "attempt": exchange.attempt,
            "model": exchange.reply.model,
            "kind": config.policy,
            "incumbent": context.incumbent.to_text(whole=True) if context.incumbent is not None else "",
            "score": mean,
            "normalised": scale(mean) if scale is not None and mean is not None else None,
            "accepted": last and attempt.accepted,
            "problems": "\n".join(map(str, problems)),  # a text, because an empty list has no type
        }
        malformed = not last or bool(attempt.problems)
        yield Request(folder, config, first, exchange.request == 0, malformed, row)


def _good_replies(requests: Sequence[Request], top: float | None, left_out: Counter[str]) -> list[Request]:
    """Return the accepted replies, or the share `top` of each task's replies with the highest scores."""
    scored = [one for one in requests if one.row["score"] is not None]
    left_out["malformed"] += sum(one.malformed for one in requests)
    left_out["without a score before tuning"] += sum(not one.malformed for one in requests) - len(scored)
    good = [one for one in scored if one.row["accepted"]]
    if top is not None:
        scored.sort(key=lambda one: -one.row["score"])
        tasks = dict.fromkeys(one.row["task"] for one in scored)
        each = [[one for one in scored if one.row["task"] == task] for task in tasks]
        good = [one for some in each for one in some[: math.ceil(top * len(some))]]
    left_out["not accepted" if top is None else f"not in the top {top:g}"] += len(scored) - len(good)
    return good


def _pairs(requests: Sequence[Request], left_out: Counter[str]) -> list[Request]:
    """Pair each reply to a first prompt with the best one of its round, and a malformed one also with its repair."""
    scored = sorted((one for one in requests if one.row["score"] is not None), key=lambda one: one.row["score"])
    best = {(one.folder, one.round): one for one in scored if one.first}
    own = {(one.folder, one.row["attempt"]): one for one in scored}
    pairs: list[Request] = []
    for worse in (one for one in requests if one.first and (one.malformed or one.row["score"] is not None)):
        score, repair = worse.row["score"], own.get((worse.folder, worse.row["attempt"]))
        others = {id(one): one for one in (best.get((worse.folder, worse.round)), repair) if one is not None}
        betters = [one for one in others.values() if score is None or one.row["score"] > score]
        for one in betters:
            row = {**one.row, "prompt": worse.row["prompt"], "problems": worse.row["problems"]}
            row |= {"chosen": row.pop("completion"), "rejected": worse.row["completion"]}
            pairs.append(replace(one, row=row))
        left_out["without a better reply to the same prompt"] += not betters
    return pairs


def _prompts(requests: Sequence[Request], left_out: Counter[str]) -> list[Request]:
    """Return the first prompts of attempts, if a reward would read their replies as the run did."""
    first = [one for one in requests if one.first]
    known = [one for one in first if not one.config.normalise and one.config.grid == "free"]
    left_out["repairs"] += len(requests) - len(first)
    left_out["of runs with --normalise or --grid fixed, which a reward does not know"] += len(first) - len(known)
    return [replace(one, row={name: one.row[name] for name in _PROMPT_COLUMNS}) for one in known]


def _held_out(chosen: Sequence[Request], share: float) -> set[Path]:
    """Return the runs to hold out, chosen by their names, of every task that has two or more."""
    found: set[Path] = set()
    for task in {one.row["task"] for one in chosen} if share else ():
        runs = {one.folder for one in chosen if one.row["task"] == task}
        ordered = sorted(runs, key=lambda run: hashlib.sha256(run.name.encode()).digest())
        found.update(ordered[: min(len(runs) - 1, max(1, round(share * len(runs))))])
    if share and chosen and not found:
        raise UsageError("--test holds out whole runs, but no task has two; name more runs, or leave --test out")
    return found
