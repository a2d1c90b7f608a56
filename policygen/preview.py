"""What `policygen prompt` and `policygen tasks` print: a prompt without a call, tasks in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policygen.ablation import without_knowledge
from policygen.budget import Ledger
from policygen.config import effective_config
from policygen.discovery import load_task
from policygen.errors import TaskError, UsageError
from policygen.llm.prices import cost
from policygen.loop import Judge, new_search
from policygen.messages import Prompt
from policygen.prompts import improve_template, render_prompt
from policygen.propose import llm_options
from policygen.resources import find_run, list_resources
from policygen.runner import load_run, read_example
from policygen.tasks import output_names
from policygen.workers import Players


@dataclass(frozen=True, slots=True)
class Preview:
    """A rendered prompt and a remark on its size and cost."""

    prompt: Prompt
    remark: str


def preview(name: str, config_file: Path | None, assignments: Sequence[str], options: Mapping[str, Any]) -> Preview:
    """The first prompt of a task, or the next prompt of a run, exactly as a model would get it.

    Raises:
        PolicygenError: wrong input, or a broken template.
    """
    folder = find_run(name) if name == "latest" else Path(name)
    if (folder / "config.toml").is_file():
        loaded = load_run(folder)
        search = loaded.search
        config = effective_config(
            search.task,
            loaded.config.task,
            base=loaded.config,
            file=config_file,
            assignments=assignments,
            options=options,
        )
        if config.ablate != loaded.config.ablate:
            raise UsageError(f"the policies of {folder} are written with the names it knew; preview the task instead")
        if config.example != loaded.config.example:
            search.example = read_example(find_run(config.example)) if config.example else None
    else:
        task = load_task(name)
        config = effective_config(task, name, file=config_file, assignments=assignments, options=options)
        if config.ablate == "knowledge":
            task = without_knowledge(task)
        search = new_search(task, config, read_example(find_run(config.example)) if config.example else None)
        with Players(task, config.jobs) as players:
            Judge(search, config, Ledger(config), players).random_actions()
    context = search.context(len(search.attempts), config)
    earlier = search.turns if config.conversation == "continued" else []
    prompt = render_prompt(context, config, earlier)
    provider, _, model = config.llm.partition(":")
    usd = cost(llm_options(config), provider, (model,), prompt.estimated_tokens, 0)
    price = "" if provider == "builtin" else ", cost unknown" if usd is None else f", about ${usd:.5f} to send"
    remark = (
        f"--- {prompt.characters:,} characters, about {prompt.estimated_tokens:,} tokens{price}; "
        f"template {improve_template(config)} ---"
    )
    return Preview(prompt, remark)


def list_tasks() -> str:
    """One line per task file that is found, and how to use others."""
    rows = [("task", "environment", "policy", "cells", "solved")]
    for name in sorted(list_resources("envs", ".toml")):
        try:
            task = load_task(name)
        except TaskError as error:
            rows.append((name, str(error), "", "", ""))
            continue
        cells = str(task.grid.size) if task.grid is not None else "-"
        solved = f"{task.solved:g}" if task.solved is not None else "-"
        rows.append((name, task.gym_id, task.default_policy, cells, solved))
    full = [row for row in rows if row[2]]
    widths = [max(len(row[i]) for row in full) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", "Any Gymnasium id works too: policygen run Blackjack-v1"])


def describe_task(name: str) -> str:
    """All that a task says, in plain text."""
    task = load_task(name)
    lines = [f"{task.name}: {task.gym_id}" + (f" with {dict(task.kwargs)}" if task.kwargs else ""), "", task.about, ""]
    for o in task.observations:
        unit = f" [{o.unit}]" if o.unit else ""
        lines.append(f"observation {o.name}{unit}: {o.low:g} to {o.high:g}{'; ' + o.about if o.about else ''}")
    lines += [f"feature {feature} = {text}" for feature, text in task.features]
    for a in task.actuators:
        choices = ", ".join(a.labels) if a.is_choice else f"{a.low:g} to {a.high:g}"
        lines.append(f"action {a.name}: {choices}{'; ' + a.about if a.about else ''}")
    if task.grid is not None:
        for d in task.grid.dimensions:
            lines.append(f"bins of {d.name}: {'; '.join(f'{i} = {d.label(i)}' for i in range(d.bins))}")
    lines.append(f"linear outputs: {', '.join(output_names(task))}")
    lines.append(f"at most {task.max_steps} steps, discount {task.discount:g} (used by builtin only)")
    if task.solved is not None:
        lines.append(f"counts as solved from {task.solved:g}")
    if task.optimum is not None:
        lines.append(f"best known: {task.optimum.value:g} ({task.optimum.source})")
    lines += [f"fact: {fact}" for fact in task.facts]
    lines += [f"hint: {hint}" for hint in task.hints]
    lines += [f"assumed: {sentence}" for sentence in task.assumed]
    return "\n".join(lines)
