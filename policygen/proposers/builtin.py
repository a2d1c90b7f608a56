"""The embedded providers: `builtin`, the default, which is a search and not a language model, and `random`.

`builtin` needs no key and no network. It reads the structured context beside the prompt and answers in the policy
language, so that a first run exercises the whole pipeline. It is also the baseline for language models: the same budget
without a model.

`builtin_tables` proposes tables, `builtin_linear` equations.
"""

from __future__ import annotations

import time

import numpy as np

from policygen.errors import ProviderError, UsageError
from policygen.llm.base import Diagnosis
from policygen.llm.messages import NO_MODEL, Prompt, Reply
from policygen.proposers.builtin_linear import (
    inputs_of,
    is_too_long,
    memory_names,
    next_linear,
    random_linear,
    terms_of,
)
from policygen.proposers.builtin_tables import next_table, random_table
from policygen.runs.config import RunConfig
from policygen.runs.state import Context
from policygen.tasks.task import Task


class Builtin:
    """The provider `builtin`: it plans tables on the replay buffer and searches the weights of equations."""

    spec = NO_MODEL
    model = NO_MODEL
    is_language_model = False

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer with the next policy of the search.

        Raises ProviderError if the prompt carries no structured context (it was not rendered by a run).
        """
        context = prompt.context
        if not isinstance(context, Context):
            raise ProviderError("builtin is a search, not a language model: it only answers the prompts of a run")
        started = time.perf_counter()
        note, text = self._next(context, np.random.default_rng([context.seed, context.number]))
        return Reply(
            text=f"{note}\n```\n{text}\n```\n",
            model=NO_MODEL,
            tokens_in=0,
            tokens_out=0,
            usd=0.0,
            seconds=time.perf_counter() - started,
            finish_reason="stop",
        )

    def _next(self, context: Context, rng: np.random.Generator) -> tuple[str, str]:
        """Return a sentence about the next policy, and the policy as text."""
        return next_table(context, rng) if context.kind == "table" else next_linear(context, rng)

    def diagnose(self) -> Diagnosis:
        """Report that the provider always works."""
        return Diagnosis(
            True, (f"{self.spec} is embedded: it needs no key and no server, and it is not a language model",)
        )


class Random(Builtin):
    """The provider `random`: it draws each policy at random, independently of the others; the lowest baseline."""

    spec = "random"
    model = "random"

    def _next(self, context: Context, rng: np.random.Generator) -> tuple[str, str]:
        draw = random_table if context.kind == "table" else random_linear
        return "Drawn at random.", draw(context, rng)


def check_search(task: Task, config: RunConfig) -> None:
    """Refuse settings that `builtin`, `random` or a replay of them do not support.

    Raises UsageError for `--shape`, for tables without a grid, for equations too long to parse, and for a `--memory`
    that would define a name of the task.
    """
    llm = config.llm
    if config.policy == "table" and task.grid is None:
        raise UsageError(f"task {task.name} has no grid, which a table needs; use --policy equations or add one")
    if config.shape:
        raise UsageError(f"--shape is for language models: {llm} proposes no objectives; add --llm, or leave it out")
    if config.policy == "linear" and is_too_long(terms := terms_of(task, config.memory)):
        raise UsageError(
            f"{llm} would weigh {len(terms)} quantities in each equation, more than can be read; name those that "
            "matter as `inputs` in a task file of your own (`policygen new` writes one), or ask a language model"
        )
    if config.memory and (taken := {*memory_names(inputs_of(task))} & {*task.quantity_names}):
        raise UsageError(f"--memory defines `{min(taken)}`, which task {task.name} has already; rename it there")
