"""Lists and descriptions of tasks and suites."""

from __future__ import annotations

from policygen.cli.options import installed
from policygen.errors import TaskError
from policygen.files import find_resource, list_resources
from policygen.runs.config import effective_config
from policygen.search.prepare import with_optimum
from policygen.tasks.draft import draft_of
from policygen.tasks.load import load_task
from policygen.tasks.task import KIND_WORDS, environment_words, output_names


def list_tasks() -> str:
    """Return one line per task file and per suite."""
    rows = [("task", "environment", "policy", "cells", "solved")]
    for name in sorted(list_resources("envs", ".toml")):
        try:
            task = load_task(name)
        except TaskError as error:
            rows.append((name, str(error), "", "", ""))
            continue
        cells = str(task.grid.size) if task.grid is not None else "-"
        solved = f"{task.solved:g}" if task.solved is not None else "-"
        rows.append((name, task.gym_id, KIND_WORDS[task.default_policy], cells, solved))
    full = [row for row in rows if row[2]]
    widths = [max(len(row[i]) for row in full) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["", "Any Gymnasium id works too: policygen run Blackjack-v1"]
    if installed("sweeps"):
        from policygen.extensions.sweeps.suites import list_suites, suite_line

        lines += ["", "suites, for policygen sweep:", *map(suite_line, sorted(list_suites()))]
    return "\n".join(lines)


def draft_task(name: str, *, trust: bool = False) -> str:
    """Return the task as a task file to edit."""
    return draft_of(load_task(name, trust=trust))


def describe_task(name: str, *, trust: bool = False) -> str:
    """Describe a task or a suite in plain text."""
    if installed("sweeps") and find_resource("envs", name, ".toml") is None:
        from policygen.extensions.sweeps.suites import describe_suite, find_suite

        if find_suite(name) is not None:
            return describe_suite(name)
    task = with_optimum(load_task(name, trust=trust))
    effective_config(task, name, options={"unseeded": True})  # raises for invalid settings in its [run]
    lines = [f"{task.name}: {environment_words(task)}", "", task.about, ""]
    for o in task.observations:
        unit = f" [{o.unit}]" if o.unit else ""
        lines.append(f"observation {o.name}{unit}: {o.low:g} to {o.high:g}{'; ' + o.about if o.about else ''}")
    lines += [f"observed text {t.name}{'; ' + t.about if t.about else ''}" for t in task.texts]
    lines += [f"feature {feature} = {text}" for feature, text in task.features]
    for a in task.actuators:
        choices = ", ".join(a.labels) if a.is_choice else f"{a.low:g} to {a.high:g}"
        lines.append(f"action {a.name}{f' [{a.unit}]' if a.unit else ''}: {choices}{'; ' + a.about if a.about else ''}")
    if task.grid is not None:
        for d in task.grid.dimensions:
            lines.append(f"bins of {d.name}: {'; '.join(f'{i} = {d.label(i)}' for i in range(d.bins))}")
    lines.append(f"outputs of equations: {', '.join(output_names(task))}")
    lines.append(f"at most {task.max_steps} steps, discount {task.discount:g} (used by builtin only)")
    if task.solved is not None:
        lines.append(f"counts as solved from {task.solved:g}")
    if task.optimum is not None:
        lines.append(f"best known: {task.optimum.value:g} ({task.optimum.source})")
    lines += [f"fact: {fact}" for fact in task.facts]
    lines += [f"hint: {hint}" for hint in task.hints]
    lines += [f"assumed: {sentence}" for sentence in task.assumed]
    return "\n".join(lines)
