"""Render a prompt without sending it, for `policygen prompt`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policygen.errors import UsageError
from policygen.files import find_run
from policygen.llm import read_spec
from policygen.llm.base import cost
from policygen.llm.messages import Prompt
from policygen.prompts.catalogue import own_templates
from policygen.prompts.render import improve_template, render_prompt
from policygen.runs.budget import Ledger
from policygen.runs.config import effective_config, load_limits
from policygen.runs.request_log import Comments, llm_options
from policygen.search.assess import assess_random_actions
from policygen.search.loop import new_search
from policygen.search.prepare import prepared
from policygen.search.resume import load_run
from policygen.search.runner import EpisodeRunner
from policygen.tasks.load import load_task


@dataclass(frozen=True, slots=True)
class Preview:
    """A rendered prompt, and a line on its size, its cost and its templates."""

    prompt: Prompt
    remark: str


def preview(
    name: str,
    config_file: Path | None,
    assignments: Sequence[str],
    options: Mapping[str, Any],
    *,
    trust: bool = False,
) -> Preview:
    """Render the first prompt of a task, or the next prompt of a run, exactly as a model would get it.

    Args:
        trust: let the task name modules to import and paths to read.

    Raises PolicygenError for wrong input and for a broken template.
    """
    folder = find_run(name)
    is_run = (folder / "config.toml").is_file()
    if is_run:
        loaded = load_run(folder, trust=trust)
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
            raise UsageError(
                f"{folder} was run with --ablate {loaded.config.ablate}, and its policies use those names; preview the "
                "task itself to see another --ablate"
            )
    else:
        task = load_task(name, trust=trust, **load_limits(config_file, assignments, options))
        config = effective_config(task, name, file=config_file, assignments=assignments, options=options)
        task, config = prepared(task, config)
        search = new_search(task)
        with EpisodeRunner(search, config, Ledger(config, env_steps=task.steps_taken)) as runner:
            search.keep(assess_random_actions(runner))
    context = search.context(config)
    if is_run:
        context = replace(context, comments=Comments(folder, loaded.commented).new())
    prompt = render_prompt(context, config, search.turns)
    asked = read_spec(config.llm)
    price = ""  # of a search without a language model
    if asked.entry is None or asked.entry.is_language_model:
        usd = cost(llm_options(config), config.llm, asked.argument, prompt.estimated_tokens, 0)
        price = ", cost unknown" if usd is None else f", about ${usd:.5f} to send"
    own = ", ".join(own_templates(config))
    remark = (
        f"--- {prompt.characters:,} characters, about {prompt.estimated_tokens:,} tokens{price}; "
        f"template {improve_template(config)}{f'; not shipped: {own}' if own else ''} ---"
    )
    return Preview(prompt, remark)
