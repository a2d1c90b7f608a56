"""The content of the page of a run, before layout: task, scores, attempts, costs, settings."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from policygen.llm import read_spec, reads_prompts
from policygen.llm.messages import Exchange, FailedExchange
from policygen.runs.attempt import Attempt, best_of
from policygen.runs.config import RunConfig
from policygen.runs.facts import OPTIMAL, SOLVED, Fact, RunRecord, read_record, run_facts, task_facts
from policygen.runs.logbook import Logbook
from policygen.tasks.environments import NAMESPACE
from policygen.tasks.task import Task
from policygen.tasks.trust import why_refused

MOST_ATTEMPTS = 100  # of a longer run the page shows only former bests and the latest attempts
_MOST_CHANGES = 80  # lines


@dataclass(frozen=True)
class ShownAttempt:
    """An attempt as the page shows it; `attempt` is None while its proposal is not scored."""

    number: int
    attempt: Attempt | None
    state: str  # its style on the page, too
    changes: tuple[str, ...]  # lines of the proposed policy, each with `+`, `-` or a space before it
    requests: tuple[tuple[str, str], ...]  # the last message of each prompt, and the reply or why there is none


@dataclass(frozen=True)
class RunContent:
    """The content of a run's page, finished or not."""

    run: RunRecord
    views: list[ShownAttempt]  # the attempts to show
    versions: dict[str, str]  # versions of the packages that made the run

    @cached_property
    def facts(self) -> list[Fact]:
        """The facts of the run as a whole."""
        return [*run_facts(self.run), *task_facts(self.run.task)]

    def section(self, *names: str) -> dict[str, str]:
        """The facts of some sections as texts by name, without the headline."""
        return {one.name: str(one) for one in self.facts[1:] if one.section in names}

    @property
    def headline(self) -> Fact:
        """The final score, or the best so far."""
        return self.facts[0]

    @property
    def badge(self) -> str:
        """The words beside the score: `unfinished`, `the best known score`, `solved`, `not solved`, or none."""
        found = {one.name: one.value for one in self.facts}
        if self.run.summary is None:
            return "unfinished"
        if found.get(OPTIMAL):
            return "the best known score"
        return "" if SOLVED not in found else SOLVED if found[SOLVED] else f"not {SOLVED}"

    @property
    def commands(self) -> dict[str, str]:
        """The commands that repeat the run and that replay its replies, by what they do; empty if there is none."""
        config, task = self.run.config, self.run.task
        found = {"A run with these settings": command_of(config, task)}
        if reads_prompts(config.llm):
            place, here = self.run.folder.resolve(), Path.cwd()
            place = place.relative_to(here) if place.is_relative_to(here) else place
            replayed = config.model_copy(update={"llm": f"replay:{place}"})
            found["A replay of the recorded replies, without a model"] = command_of(replayed, task)
        return found


def read_run(folder: Path) -> RunContent:
    """Read the content of a run's page.

    Raises:
        LogbookError: it is not a run folder, or is damaged.
    """
    logbook, run = Logbook(folder), read_record(folder)
    return RunContent(run, _views(run.attempts, logbook.transcript.exchanges()), logbook.versions())


def _views(attempts: Sequence[Attempt], exchanges: Iterable[Exchange | FailedExchange]) -> list[ShownAttempt]:
    """Return the attempts to show, the last first, and before them those in progress."""
    requests: dict[int, list[tuple[str, str]]] = {}
    for one in exchanges:
        if isinstance(one, Exchange):
            reply = one.reply
            text = f"{reply.text or '(empty)'}{' (cut off by its length limit)' if reply.truncated else ''}"
        else:
            text = f"No reply: {one.error}"
        prompt = one.prompt.messages[-1].content if one.prompt.messages else ""
        requests.setdefault(one.attempt, []).append((prompt, text))
    best, parent, views = best_of(attempts), None, []
    for attempt in attempts:
        if attempt.accepted or attempt.number >= len(attempts) - MOST_ATTEMPTS:
            state = "became the best" if attempt.accepted else "not kept" if attempt.score is not None else "failed"
            state = "start" if not attempt.number else "best" if attempt is best else state
            own = tuple(requests.get(attempt.number, ()))
            views.append(ShownAttempt(attempt.number, attempt, state, _changes(attempt, parent), own))
        parent = attempt if attempt.accepted else parent
    open_numbers = sorted(requests.keys() - {attempt.number for attempt in attempts})
    views += [ShownAttempt(number, None, "in progress", (), tuple(requests[number])) for number in open_numbers]
    return views[::-1]


def _changes(attempt: Attempt, parent: Attempt | None) -> tuple[str, ...]:
    """Return the lines in which a proposed policy differs from the best before it, with one line of context."""
    if attempt.proposed is None:
        return ()
    before = parent.policy.to_text() if parent is not None and parent.policy is not None else ""
    lines = list(difflib.unified_diff(before.splitlines(), attempt.proposed.to_text().splitlines(), n=1, lineterm=""))
    changes = [line for line in lines[2:] if not line.startswith("@@")]  # after a head of two lines
    left_out = len(changes) - _MOST_CHANGES
    return (*changes[:_MOST_CHANGES], *([f" ... ({left_out:,} more lines)"] if left_out > 0 else []))


def command_of(config: RunConfig, task: Task) -> str:
    """Return the command that starts a run with the same settings; empty if only a user's program can start it.

    It includes --trust if a task file names a module or a path.
    """
    if task.gym_id.startswith(NAMESPACE) or read_spec(config.llm).entry is None:
        return ""
    words = ["policygen", "run", config.task]
    words += ["--trust"] * bool(config.task != task.gym_id and (":" in task.gym_id or why_refused(task)))
    defaults: dict[str, Any] = RunConfig.model_validate({"task": config.task}).model_dump()
    always = {"seed", "policy", "episodes", "final_episodes", *dict(task.run)}  # defaults that depend on the task
    for name, value in config.model_dump(exclude_none=True).items():
        if name == "llm":
            words += ["--llm", value]
        elif name not in ("task", "jobs") and (name in always or value != defaults[name]):
            plainly = json.dumps(value) if isinstance(value, bool | dict) or name == "start" else value
            words += ["--set", f"{name}={plainly}"]
    words += [word for one in task.perturb for word in ("--perturb", str(one))]
    return shlex.join(words)
