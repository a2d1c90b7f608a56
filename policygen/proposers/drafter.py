"""Have a model write the task file of an environment: names, units, prose. Replies are checked and repaired."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from policygen.errors import BudgetExhausted, TaskError, explain
from policygen.files import toml_of
from policygen.llm import Provider
from policygen.llm.messages import Message, Prompt, Reply
from policygen.policies.lines import Problem
from policygen.prompts.described import task_view
from policygen.prompts.render import Show
from policygen.prompts.templates import render_template
from policygen.quantities.grid import Grid
from policygen.quantities.text import is_name
from policygen.runs.request_log import RequestLog
from policygen.tasks.environments import opened
from policygen.tasks.faults import STEP_TIMEOUT
from policygen.tasks.load import task_from_file
from policygen.tasks.task import Task
from policygen.tasks.taskfile import draft_of
from policygen.tasks.warmup import WarmUp, warm_up

REPAIRS = 2
_ALL = 1_000_000  # characters; the prompt for a draft is not shortened
_FENCED = re.compile(r"^```\w*[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PLACE = re.compile(r"at line (\d+)")


class _Observation(BaseModel, extra="forbid", frozen=True):
    name: str
    unit: str = ""
    about: str = ""
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None
    set_point: bool = False


class _Action(BaseModel, extra="forbid", frozen=True):
    name: str
    unit: str = ""
    about: str = ""
    labels: list[str] = []


class _Reply(BaseModel, extra="forbid", frozen=True):
    about: str = Field(min_length=1)
    hints: list[str] = []
    observations: list[_Observation] = []
    actions: list[_Action]


@dataclass(frozen=True, slots=True)
class Draft:
    """A task as a model described it, and all replies; if the last one has problems, the task is unchanged."""

    task: Task
    problems: tuple[Problem, ...]
    replies: tuple[Reply, ...]


def described_by(provider: Provider, task: Task, log: RequestLog, step_timeout: float = STEP_TIMEOUT) -> Draft:
    """Return the task with names, units, ranges, labels and prose by a model, after at most `REPAIRS` repairs.

    If the budget of `log` does not cover a request, that is the last problem.

    Raises ProviderError if the model cannot be asked; EnvironmentFault if the environment fails.
    """
    with opened(task, cut=False) as env:
        warm = warm_up(env, task.width, step_timeout)
    given: dict[str, Any] = {"task": task_view(task), "show": Show(prose=_ALL, facts=_ALL), "kind": "task"}
    prompt = Prompt(
        (Message("system", render_template("draft_system", given)), Message("user", render_template("draft", given)))
    )
    replies: list[Reply] = []
    problems: list[Problem] = []
    for repair in range(REPAIRS + 1):
        try:
            reply = log.ask(provider, 1, repair, prompt).reply
        except BudgetExhausted as error:
            problems.append(Problem(None, str(error), "raise the budget, or name the quantities yourself"))
            break
        replies.append(reply)
        found, problems = read_draft(reply.text, task, warm)
        if found is not None:
            return Draft(found, (), tuple(replies))
        lines = reply.text.splitlines()
        request = render_template("repair", {**given, "problems": problems, "reply_lines": lines})
        prompt = prompt.followed_by(Message("assistant", reply.text or "(empty)"), Message("user", request))
    return Draft(task, tuple(problems), tuple(replies))


def read_draft(text: str, task: Task, warm: WarmUp) -> tuple[Task | None, list[Problem]]:
    """Return the task as a reply describes it, or None and all its problems, given what a warm-up observed."""
    blocks = list(_FENCED.finditer(text))
    body, first = (blocks[-1][1], text[: blocks[-1].start(1)].count("\n")) if blocks else (text, 0)
    try:
        stated = _Reply.model_validate(toml_of(body))
    except ValidationError as error:
        return None, [Problem(None, explain(error, _Reply.model_fields), "write the keys as shown")]
    except (ValueError, RecursionError) as error:
        place = _PLACE.search(str(error))
        line = int(place[1]) + first if place else None
        fault = "is nested too deeply" if isinstance(error, RecursionError) else error
        return None, [Problem(line, f"this {fault}", "write TOML inside one fenced block")]
    if problems := _problems(stated, task, warm):
        return None, problems
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.toml"
        path.write_text(draft_of(_described(stated, task)), encoding="utf-8")
        try:
            return replace(task_from_file(path, trust=True), assumed=task.assumed), []
        except TaskError as error:
            return None, [Problem(None, str(error).removeprefix("task.toml: "), "correct it")]


def _problems(stated: _Reply, task: Task, warm: WarmUp) -> list[Problem]:
    found: list[Problem] = []

    def refuse(problem: str, expected: str) -> None:
        found.append(Problem(None, problem, expected))

    for what, given, wanted in (
        ("observations", stated.observations, task.observations),
        ("actions", stated.actions, task.actuators),
    ):
        if len(given) != len(wanted):
            refuse(f"`{what}` has {len(given)} entries", f"write {len(wanted)}, in the order of the environment")
    names = [*(one.name for one in stated.observations), *(one.name for one in stated.actions)]
    for name, count in Counter(map(str.lower, names)).items():
        if count > 1:
            refuse(f"the name `{name}` stands {count} times", "give each quantity a name of its own")
        if not is_name(name):
            refuse(f"`{name:.60}` is not a name", "use letters, digits, underscores and no word of Python")
    starts = np.flatnonzero(np.diff(warm.episodes, prepend=-1))[1:]
    for one, column in zip(stated.observations, warm.rows.T, strict=False):
        low, high = float(column.min()), float(column.max())
        if (one.low is not None and low < one.low) or (one.high is not None and high > one.high):
            refuse(f"{one.name} is said to go from {one.low} to {one.high}", f"{low:.4g} to {high:.4g} was seen")
        if one.set_point and any(np.ptp(part) > 0 for part in np.split(column, starts)):
            refuse(f"{one.name} is said to be a set-point", "it changes within an episode")
    for action, actuator in zip(stated.actions, task.actuators, strict=False):
        if action.labels and len(action.labels) != len(actuator.labels):
            refuse(f"{action.name} has {len(action.labels)} labels", f"it has {len(actuator.labels)} choices")
    return found


def _described(stated: _Reply, task: Task) -> Task:
    observations = tuple(
        replace(
            o,
            name=one.name,
            unit=one.unit,
            about=", ".join(filter(None, (one.about, "set-point" * one.set_point))),
            low=o.low if one.low is None else max(o.low, one.low),
            high=o.high if one.high is None else min(o.high, one.high),
            seen="",
        )
        for o, one in zip(task.observations, stated.observations, strict=True)
    )
    actuators = tuple(
        replace(a, name=one.name, unit=one.unit, about=one.about, labels=tuple(one.labels) or a.labels)
        for a, one in zip(task.actuators, stated.actions, strict=True)
    )
    names = {o.name: new.name for o, new in zip(task.observations, observations, strict=True)}
    dimensions = [replace(d, name=names.get(d.name, d.name)) for d in (task.grid.dimensions if task.grid else ())]
    return replace(
        task,
        observations=observations,
        actuators=actuators,
        about=stated.about.strip(),
        hints=tuple(hint.strip() for hint in stated.hints),
        documentation="",
        grid=Grid(tuple(dimensions)) if dimensions else None,
    )
