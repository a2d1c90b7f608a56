"""The variables that each shipped template is given, found by a small search with scripted replies.

`python tests/given.py` writes them into the package, for `policygen templates show NAME --variables`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jinja2
import numpy as np
from searched import attempts_of
from support import Written

import policygen
from policygen.extensions.plants.plant import FITTED_PLANT, PlantRecord, PredictionError
from policygen.extensions.seats.drive import StepQuestions
from policygen.extensions.seats.session import question, repaired, system_message
from policygen.policies.lines import Problem
from policygen.prompts.filters import FILTERS
from policygen.prompts.render import render_prompt, render_repair
from policygen.prompts.templates import used_templates
from policygen.proposers.drafter import described_by
from policygen.runs.budget import Ledger
from policygen.runs.config import Refinement, RunConfig, effective_config
from policygen.runs.request_log import RequestLog
from policygen.search.loop import new_search
from policygen.tasks.load import load_task
from policygen.tasks.task import Requirement, Task

FILE = Path(policygen.__file__).parent / "cli" / "variables.txt"
TASK = "cartpole"
LONGEST = 60  # characters of an example
LINEAR = "Push where the pole falls.\n```\n{}\nleft = 0\nright = {}\n```"
TABLE = "Push where the pole falls.\n```\n| position | velocity | angle | spin | action |\n|-|-|-|-|-|\n{}\n```"
REPLIES = {  # the second is the best, the third is refused
    "linear": [
        LINEAR.format("", "-1*angle"),
        LINEAR.format("objective = 0.1*reward - abs(angle)", "2*angle"),
        LINEAR.format("let strange = 1/(angle - angle)", "0*strange - 2*angle"),
    ],
    "table": [
        TABLE.format(rows)
        for rows in (
            "| * | * | * | * | left |",
            "| * | * | 0-2 | * | left |\n| * | * | * | * | right |",
            "| * | * | * | * | right |",
        )
    ],
}


def _task() -> Task:
    return dataclasses.replace(load_task(TASK), requirements=(Requirement("upright", always="abs(angle) < 0.15"),))


PLANT = PlantRecord(
    "next position = position + 0.02*velocity\nnext angle = angle + 0.02*spin\nreward = 1",
    330,
    (PredictionError("angle", 0.02, 0.31),),
)


def given() -> dict[str, Mapping[str, Any]]:
    """The variables of each shipped template, by its name."""
    found: dict[str, Mapping[str, Any]] = {}
    with watching() as of_table:
        _search("table")
    with watching() as of_linear:
        _search("linear")
    with watching() as of_plants:
        _search("linear", tune_in_plant=True)
    with watching() as of_seats:
        _seats()
    with watching() as of_drafts:
        described_by(Written([""] * 3), _task(), RequestLog(Ledger(RunConfig(task="cartpole"))))
    found |= {"_plant": of_plants["improve"], "_plant_language": of_plants["system"]}
    for watched, kind in ((of_linear, "linear"), (of_table, "table"), (of_seats, ""), (of_drafts, "")):
        for name, variables in watched.items():
            for part in used_templates([name]):
                if kind != "linear" or not (part.endswith("_table") or part in ("_grid", "_visits")):
                    found.setdefault(part, variables)
    filled = {name: value for name, value in of_table["improve"].items() if not found["improve"][name]}
    return found | {"improve": {**found["improve"], **filled}}  # what only tables have, too


@contextlib.contextmanager
def watching() -> Iterator[dict[str, Mapping[str, Any]]]:
    """Within it, nothing is rendered, and the last variables that each template was given are kept, by its name."""
    kept: dict[str, Mapping[str, Any]] = {}

    def keep(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        name = str(template.name)
        kept[name] = variables
        return name

    with mock.patch.object(jinja2.Template, "render", keep):
        yield kept


def _search(kind: str, *, tune_in_plant: bool = False) -> None:
    """Ask for the prompts of a search, which may have tuned in a plant."""
    task = _task()
    options: dict[str, Any] = {"iterations": 3, "episodes": 8, "warmup_episodes": 8, "max_episodes": 200}
    options |= {"policy": kind, "shape": True}
    options["refine"] = "model" if tune_in_plant else "cma:60" if kind == "linear" else "coordinate:60"
    config = effective_config(task, TASK, options=options)
    untuned = config.model_copy(update={"refine": Refinement()})  # tuning would take long
    search = new_search(task)
    provider = Written(REPLIES[kind], tokens_in=None, tokens_out=None)
    list(attempts_of(search, untuned, provider))
    context = search.context(config)
    context = dataclasses.replace(context, comments=("Keep the cart near the centre.",))
    if tune_in_plant:
        *earlier, last = context.attempts
        context = dataclasses.replace(
            context, attempts=(*earlier, dataclasses.replace(last, notes={FITTED_PLANT.key: PLANT}))
        )
    problems = (Problem(1, "there is no quantity `lean`", "angle"),)
    render_repair(render_prompt(context, config), "left = lean", problems, context, config)


def _seats() -> None:
    """Ask the questions of `policygen drive` and `policygen mediate`."""
    task = _task()
    questions = StepQuestions(task, memory=1)
    observation = np.array([0.0, 0.1, 0.02, -0.3])
    shown = questions.shown(observation)
    step = {"shown": shown, "action": "left", "reward": 1.0}
    repaired("drive", questions.prompt(shown, [step], observation), "", "it is empty", questions.form)
    system = system_message("mediate", {"room": "KeyInBox", "coloured": False})
    report = {"seen": ("box", "door"), "carried": "key"}
    repaired("mediate", question("mediate", system, report, None, 6_000), "", "it is empty", "")


def paths(path: str, value: Any) -> Iterator[tuple[str, str, str]]:
    """A variable as a template reaches it, its type in plain words, and an example; of a record every field."""
    if _is_record(value):
        names = value if isinstance(value, Mapping) else inspect.get_annotations(type(value))
        for name in names:
            one = value[name] if isinstance(value, Mapping) else getattr(value, name)
            yield from paths(f"{path}.{name}", one)
        if not names:
            yield path, "record", "{}"
    elif isinstance(value, list | tuple) and value and _is_record(value[-1]):
        yield from paths(f"{path}[-1]", value[-1])
    else:
        yield path, _type(value), _example(value)


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) or isinstance(value, Mapping) or hasattr(value, "_fields")


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


def written(given: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of the file: behind the templates in brackets, one line for each variable, or for a field of one."""
    templates: dict[str, list[str]] = {}
    for name, variables in given.items():
        for row in (row for variable, value in variables.items() for row in paths(variable, value)):
            templates.setdefault("\t".join(row), []).append(name)
    groups: dict[str, list[str]] = {}
    for row, names in templates.items():
        groups.setdefault(" ".join(names), []).append(row)
    return "\n\n".join("\n".join([f"[{names}]", *rows]) for names, rows in groups.items()) + "\n"


if __name__ == "__main__":
    FILE.write_text(written(given()), encoding="utf-8")
