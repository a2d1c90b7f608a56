"""The variables of the templates, with example values: what a small search of a shipped task gives them."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policygen.cli.options import installed
from policygen.llm.base import Diagnosis
from policygen.llm.messages import Prompt, Reply
from policygen.policies.lines import Problem
from policygen.prompts.catalogue import catalogue
from policygen.prompts.filters import FILTERS
from policygen.prompts.render import render_prompt, render_repair
from policygen.prompts.templates import mentions, used_templates, watching
from policygen.proposers.make import make_proposer
from policygen.runs.budget import Ledger
from policygen.runs.config import Refinement, effective_config
from policygen.runs.example import Example, Worth, example_of
from policygen.runs.request_log import RequestLog
from policygen.search.loop import new_search, optimize
from policygen.tasks.load import load_task

TemplateVariables = Mapping[str, Any]
TASK = "cartpole"
LONGEST = 60  # characters of an example
_LINEAR = "Push where the pole falls.\n```\n{}\nleft = 0\nright = {}\n```"
_TABLE = (
    "Push where the pole falls.\n```\n| position | velocity | angle | spin | action |\n|---|---|---|---|---|\n{}\n```"
)
_REPLIES = {  # the second is the best, the third is refused
    "linear": [
        _LINEAR.format("", "-1*angle"),
        _LINEAR.format("objective = 0.1*reward - abs(angle)", "2*angle"),
        _LINEAR.format("let strange = 1/(angle - angle)", "0*strange - 2*angle"),
    ],
    "table": [
        _TABLE.format(rows)
        for rows in (
            "| * | * | * | * | left |",
            "| * | * | 0-2 | * | left |\n| * | * | * | * | right |",
            "| * | * | * | * | right |",
        )
    ],
}


class _Scripted:
    """A provider that gives the replies above, one after the other."""

    spec, model, is_language_model = "scripted:example", "example", True

    def __init__(self, kind: str) -> None:
        self._replies = iter(_REPLIES[kind])

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """The next reply."""
        return Reply(next(self._replies), self.model)

    def diagnose(self) -> Diagnosis:
        """It can always be asked."""
        return Diagnosis(True, ())


def variables_of(name: str) -> tuple[list[tuple[str, str, str]], list[str]]:
    """The variables that a template and its parts read, each as a path with its type and an example; and the others.

    A template of the user's own is given what the shipped one is that it is most like.

    Raises:
        TemplateError: there is no such template, or one is malformed.
    """
    texts = list(used_templates([name]).values())
    given = given_variables()
    stem = name.removesuffix(".j2")
    like = {entry.name: entry.origin for entry in catalogue()}.get(stem, "")
    variables = given.get(stem) or given.get(like) or given["improve_linear"]
    read = [variable for variable in variables if mentions(texts, variable)]
    rows = [row for variable in read for row in paths(variable, variables[variable])]
    return rows, [variable for variable in variables if variable not in read]


@functools.cache
def given_variables() -> dict[str, TemplateVariables]:
    """Return the variables that a small search gives each shipped template, by the template's name."""
    found: dict[str, TemplateVariables] = {}
    with watching() as of_table:
        best = _search("table")
    with watching() as of_linear:
        _search("linear", best)
    _gather(found, of_linear, "linear")
    _gather(found, of_table, "table")
    with watching() as watched:
        if installed("seats"):
            _drive()
            _mediate()
    _gather(found, watched, "")
    return found


def _gather(found: dict[str, TemplateVariables], watched: Mapping[str, TemplateVariables], kind: str) -> None:
    for name, variables in watched.items():
        for part in used_templates([name], {"kind": kind}):
            found.setdefault(part, variables)


def _search(kind: str, example: Example | None = None) -> Example | None:
    """Ask for the prompts of a search with scripted replies; its best policy."""
    task = load_task(TASK)
    options: dict[str, Any] = {"iterations": 3, "episodes": 8, "warmup_episodes": 8, "max_episodes": 200}
    options |= {"policy": kind, "normalise": kind == "linear", "shape": True}
    options["refine"] = "cma:60" if kind == "linear" else "coordinate:60"
    config = effective_config(task, TASK, options=options)
    untuned = config.model_copy(update={"refine": Refinement()})  # tuning would take long
    search = new_search(task, config, example)
    for _ in optimize(search, untuned, make_proposer(_Scripted(kind), untuned), RequestLog(Ledger(untuned))):
        pass
    context = search.context(len(search.attempts), config)
    context = dataclasses.replace(context, comments=("Keep the cart near the centre.",))
    problems = (Problem(1, "there is no quantity `lean`", "angle"),)
    render_repair(render_prompt(context, config), "left = lean", problems, context, config)
    policy, score = context.incumbent, context.best_score
    return example_of(policy, Worth(score.mean, score.ci95, 8, exact=False, fresh=True)) if policy and score else None


def _drive() -> None:
    """Ask the questions of `policygen drive`."""
    import numpy as np

    from policygen.extensions.seats.driving_prompts import Questions, Situation, Step, Window

    task = load_task(TASK)
    questions, shown = Questions(task, memory=1), Window(task).shown(np.array([0.0, 0.1, 0.02, -0.3]))
    prompt = questions.prompt(Situation(shown, (Step(shown, "left", 1.0),)))
    questions.repair(prompt, "", "it is empty")


def _mediate() -> None:
    """Ask the questions of `policygen mediate`."""
    from policygen.extensions.seats.mediating_prompts import PlanQuestions
    from policygen.extensions.worlds.locked.planner import Report

    questions = PlanQuestions("KeyInBox")
    questions.repair(questions.prompt(Report(("box", "door"), "key")), "", "it is empty")


def paths(path: str, value: Any) -> Iterator[tuple[str, str, str]]:
    """A variable as a template reaches it, its type in plain words, and an example; of a record every field."""
    if _is_record(value):
        fields = (
            value if isinstance(value, Mapping) else {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        )
        for name, one in fields.items():
            yield from paths(f"{path}.{name}", one)
        if not fields:
            yield path, "record", "{}"
    elif isinstance(value, list | tuple) and value and _is_record(value[-1]):
        yield from paths(f"{path}[-1]", value[-1])
    else:
        yield path, _type(value), _example(value)


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) or isinstance(value, Mapping)


def _type(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"list of {_type(value[0])}s" if value and not isinstance(value[0], list | tuple) else "list"
    if value is None:
        return "none"
    return "yes or no" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _example(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value if len(value) <= LONGEST else f"{value[: LONGEST - 4]} ...", ensure_ascii=False)
    if isinstance(value, Sequence):
        items = ", ".join(map(_example, value[:2]))
        return f"[{items}{', ...' if len(value) > 2 else ''}]"
    return str(FILTERS["brief"](value, 4))
