"""The variables of the templates with example values, as a small search of a shipped task renders them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policygen.cli.options import installed
from policygen.llm.base import Diagnosis
from policygen.llm.messages import Prompt, Reply
from policygen.policies.lines import Problem
from policygen.policies.policy import Policy
from policygen.prompts.catalogue import catalogue
from policygen.prompts.filters import FILTERS
from policygen.prompts.render import render_prompt, render_repair
from policygen.prompts.templates import mentions, used_templates, watching
from policygen.proposers.make import make_proposer
from policygen.runs.budget import Ledger
from policygen.runs.config import effective_config
from policygen.runs.example import Worth, example_of
from policygen.runs.request_log import RequestLog
from policygen.search.loop import new_search, optimize
from policygen.tasks.load import load_task

Given = Mapping[str, Any]
TASK = "cartpole"
LONGEST = 60  # characters of an example
_LINEAR = "The cart follows the pole.\n```\n{}\nleft = {} - 0.1*spin\nright = 10*angle + 0.1*spin\n```"
_TABLE = "Push where the pole falls.\n```\n| angle | action |\n|---|---|\n| {} | left |\n| * | right |\n```"
_REPLIES = {  # the second is the best, the third is refused
    "linear": [
        _LINEAR.format("let lean = 0.5*angle", "lean"),
        _LINEAR.format("objective = 0.1*reward - abs(angle)", "-10*angle"),
        _LINEAR.format("let strange = 1/(angle - angle)", "10*angle + 0*strange"),
    ],
    "table": [_TABLE.format("0-4"), _TABLE.format("0-2"), _TABLE.format("3-5")],
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


def given_variables() -> dict[str, Given]:
    """What each shipped template is really given, by name."""
    found: dict[str, Given] = {}
    best: Policy | None = None
    for kind in ("linear", "table"):
        with watching() as watched:
            best = _search(kind, best)
        _gather(found, watched, kind)
    with watching() as watched:
        if installed("seats"):
            _drive()
            _mediate()
    _gather(found, watched, "")
    return found


def _gather(found: dict[str, Given], watched: Mapping[str, Given], kind: str) -> None:
    for name, variables in watched.items():
        for part in used_templates([name], {"kind": kind}):
            found.setdefault(part, variables)


def _search(kind: str, example: Policy | None) -> Policy | None:
    """Render the prompts of a search with scripted replies; its best policy."""
    task = load_task(TASK)
    options: dict[str, Any] = {"iterations": 3, "episodes": 8, "warmup_episodes": 8, "shape": True}
    options |= {"policy": kind, "normalise": kind == "linear", "grid": "fixed"}
    options["refine"] = "cma:60" if kind == "linear" else "coordinate:60"
    config = effective_config(task, TASK, options=options)
    shown = example_of(example, Worth(500.0, (500.0, 500.0), 100, exact=False, fresh=True)) if example else None
    search = new_search(task, config, shown)
    for _ in optimize(search, config, make_proposer(_Scripted(kind), config), RequestLog(Ledger(config))):
        pass
    context = search.context(len(search.attempts), config)
    context = dataclasses.replace(context, comments=("Keep the cart near the centre.",))
    problems = (Problem(1, "there is no quantity `lean`", "angle"),)
    render_repair(render_prompt(context, config), "left = lean", problems, context, config)
    return search.best.policy if search.best is not None else None


def _drive() -> None:
    """Render the questions of `policygen drive`."""
    from policygen.extensions.seats.driving_prompts import Questions, Situation, Step, Window

    task = load_task(TASK)
    questions, shown = Questions(task, memory=1), Window(task).shown([0.0, 0.1, 0.02, -0.3])
    prompt = questions.prompt(Situation(shown, (Step(shown, "left", 1.0),)))
    questions.repair(prompt, "", "it is empty")


def _mediate() -> None:
    """Render the questions of `policygen mediate`."""
    from policygen.extensions.seats.mediating_prompts import PlanQuestions
    from policygen.extensions.worlds.locked.planner import Report

    questions = PlanQuestions("KeyInBox")
    questions.repair(questions.prompt(Report(("box", "door"), "key")), "", "it is empty")


def paths(path: str, value: Any) -> Iterator[tuple[str, str, str]]:
    """A variable as a template reaches it, its type in plain words, and an example; of a record every field."""
    if dataclasses.is_dataclass(value) or isinstance(value, Mapping):
        fields = value if isinstance(value, Mapping) else {f.name: getattr(value, f.name) for f in _fields(value)}
        for name, one in fields.items():
            yield from paths(f"{path}.{name}", one)
        if not fields:
            yield path, "record", "empty"
    elif isinstance(value, list | tuple) and value and (dataclasses.is_dataclass(value[0]) or isinstance(value[0], Mapping)):
        yield from paths(f"{path}[0]", value[0])
    else:
        yield path, _type(value), _example(value)


def _fields(value: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(value)


def _type(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"list of {_type(value[0])}s" if value and not isinstance(value[0], list | tuple) else "list"
    if value is None:
        return "none"
    return "yes or no" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _example(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value if len(value) <= LONGEST else f"{value[: LONGEST - 4]} ...", ensure_ascii=False)
    if isinstance(value, Sequence):
        items = ", ".join(map(_example, value[:2]))
        return f"[{items}{', ...' if len(value) > 2 else ''}]"
    return str(FILTERS["brief"](value, 4))
