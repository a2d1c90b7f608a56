"""Costs, settings and versions of a run as table rows, and the command that repeats it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policygen.errors import LogbookError, PolicygenError
from policygen.files import read_plain, toml_of
from policygen.llm import read_spec, specs_of
from policygen.progress import duration
from policygen.runs.attempt import Attempt
from policygen.runs.config import RunConfig
from policygen.runs.records import Summary
from policygen.tasks.task import Task
from policygen.tasks.trust import why_refused
from policygen.tasks.user_env import NAMESPACE

_LARGEST_SETTINGS = 2**20  # bytes
# Settings that have an option of their own in `policygen run`; --set gives the others.
_OPTIONS = ("llm", "policy", "seed", "iterations", "refine", "template", "base_url", "max_calls", "max_usd")
_ALWAYS = ("llm", "seed", "policy", "episodes", "final_episodes")  # their defaults depend on the task, or may change
_NEVER = ("task", "jobs")


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of a two-column table."""

    name: str
    value: str


def spending(summary: Summary | None, attempts: Sequence[Attempt]) -> list[Fact]:
    """List the costs of a run: requests, tokens, episodes, time."""
    calls, tokens_in, tokens_out = (
        sum(getattr(a.requests, n) for a in attempts) for n in ("calls", "tokens_in", "tokens_out")
    )
    last = attempts[-1] if attempts else None
    known = [attempt.requests.usd for attempt in attempts if attempt.requests.usd is not None]
    usd: float | None = sum(known) if len(known) == len(attempts) else None
    waited = sum(attempt.requests.llm_seconds for attempt in attempts)
    if summary is not None:
        calls, tokens_in, tokens_out, usd = summary.requests, summary.tokens_in, summary.tokens_out, summary.usd
    wall = summary.wall_seconds if summary is not None else last.standing.wall_seconds if last is not None else 0.0
    model = tokens_in + tokens_out > 0
    failed = sum(attempt.failed for attempt in attempts)
    facts = [
        Fact("attempts", f"{max(0, len(attempts) - 1)}{f', {failed} of them failed' if failed else ''}"),
        Fact(
            "requests",
            f"{calls:,}, {sum(a.requests.repairs for a in attempts)} of them repairs" if model else "none to a model",
        ),
        Fact("tokens", f"{tokens_in:,} in, {tokens_out:,} out"),
        Fact("cost", "unknown" if usd is None else f"${usd:.4f}" if model else "nothing"),
        Fact("time waiting for the model", duration(summary.llm_seconds if summary is not None else waited)),
        Fact("total time", duration(wall)),
        Fact(
            "episodes while searching",
            f"{last.standing.episodes:,} ({last.standing.env_steps:,} steps)" if last is not None else "0",
        ),
    ]
    return [fact for fact in facts if model or fact.name not in ("tokens", "time waiting for the model")]


def said(value: Any) -> str:
    """Format the value of a setting."""
    return "yes" if value is True else "no" if value is False else str(value)


def command_of(config: RunConfig, task: Task) -> str:
    """Return the command that starts a run with the same settings; empty if only a program can.

    It includes --trust if a task file names a module or a path, or if demonstrations come from a model.
    """
    if task.gym_id.startswith(NAMESPACE) or any(read_spec(spec).entry is None for spec in specs_of(config.llm)):
        return ""
    words = ["policygen", "run", config.task]
    from_file = config.task != task.gym_id and (":" in task.gym_id or why_refused(task))
    words += ["--trust"] * bool(from_file or re.match(r"\w+:", config.demonstrations or ""))
    defaults, of_the_task = RunConfig.model_validate({"task": config.task}).model_dump(), dict(task.run)
    for name, value in config.model_dump(exclude_none=True).items():
        if name in _NEVER or (name not in (*_ALWAYS, *of_the_task) and value == defaults[name]):
            continue
        if name == "llm":
            words += [word for spec in specs_of(value) for word in ("--llm", spec)]
        elif name in _OPTIONS:
            words += [f"--{name.replace('_', '-')}", str(value)]
        else:
            plainly = json.dumps(value) if isinstance(value, bool | dict) else value
            words += ["--set", f"{name}={plainly}"]
    return shlex.join(words)


def versions_of(folder: Path) -> tuple[Fact, ...]:
    """List the versions of the packages that made the run.

    Raises:
        LogbookError: the settings are damaged.
    """
    try:
        versions = toml_of(read_plain(folder / "config.toml", _LARGEST_SETTINGS)).get("versions", {})
    except (PolicygenError, ValueError, RecursionError, OSError) as error:
        raise LogbookError(f"{folder / 'config.toml'} is damaged: {error}") from None
    return tuple(Fact(str(k), str(v)) for k, v in versions.items()) if isinstance(versions, dict) else ()
