"""The embedded providers: `builtin`, the default, which is a search and not a language model, and `random`.

`builtin` needs no key and no network. It reads the structured context of the prompt and answers in the policy language,
so a first run exercises the whole pipeline. It is also the baseline for language models: the same budget without a
model. `builtin_linear` proposes equations.

Tables are planned on the replay buffer: its transitions and rewards are counted as those of a Markov decision process
whose states are the cells, and value iteration gives the next table. Even attempts exploit: they plan on the mean of
the counts (certainty equivalence). Odd attempts explore: they plan on a process drawn from the posterior of the counts,
in which untried actions may be as good as possible (posterior sampling; Osband, Russo and Van Roy 2013, arXiv
1306.0940).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import ExpressionError, ProviderError, UsageError
from policygen.llm.base import Diagnosis
from policygen.llm.messages import NO_MODEL, Prompt, Reply
from policygen.policies.features import CellReader, cell_reader
from policygen.policies.table import TablePolicy
from policygen.proposers.builtin_linear import CLOCK, next_linear, random_linear, terms_of
from policygen.quantities.text import parse_expression
from policygen.runs.attempt import text_digest
from policygen.runs.config import RunConfig
from policygen.runs.state import Context
from policygen.tasks.task import Task

PRIOR_VISITS = 0.3  # weight of the prior for each cell and action, in visits
MAX_SWEEPS = 3_000  # maximum number of sweeps of value iteration
TOLERANCE = 1e-7  # relative change of the values below which value iteration ends


class Builtin:
    """The provider `builtin`: it plans tables on the replay buffer and searches the weights of equations."""

    spec = NO_MODEL
    model = NO_MODEL
    is_language_model = False

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer with the next policy of the search; ProviderError if the prompt does not come from a run."""
        context = prompt.context
        if not isinstance(context, Context):
            raise ProviderError("builtin is a search, not a language model: it only answers the prompts of a run")
        started = time.perf_counter()
        note, policy = self._next(context, np.random.default_rng([context.seed, context.number]))
        text = f"{note}\n```\n{policy}\n```\n"
        return Reply(text, NO_MODEL, 0, 0, 0.0, time.perf_counter() - started, finish_reason="stop")

    def _next(self, context: Context, rng: np.random.Generator) -> tuple[str, str]:
        return next_table(context, rng) if context.kind == "table" else next_linear(context, rng)

    def diagnose(self) -> Diagnosis:
        """Report that the provider always works."""
        words = f"{self.spec} is embedded: it needs no key and no server, and it is not a language model"
        return Diagnosis(True, (words,))


class Random(Builtin):
    """The provider `random`, the lowest baseline: it draws every policy independently."""

    spec = "random"
    model = "random"

    def _next(self, context: Context, rng: np.random.Generator) -> tuple[str, str]:
        if context.kind == "linear":
            return "Drawn at random.", random_linear(context, rng)
        grid, choices = context.task.grid, _joint_choices(context.task)
        assert grid is not None, "`check_search` refuses tasks without a grid"
        drawn = choices[rng.integers(len(choices), size=grid.size)]
        return "Drawn at random.", TablePolicy.from_actions(context.task, drawn, grid).to_text()


def check_search(task: Task, config: RunConfig) -> None:
    """Raise UsageError for settings that `builtin`, `random` or a replay of them does not support.

    These are `--shape`, tables without a grid, equations too long to parse, and a `--memory` that would define a name
    of the task.
    """
    llm = config.llm
    if config.policy == "table" and task.grid is None:
        raise UsageError(f"task {task.name} has no grid, which a table needs; use --policy equations or add one")
    if config.shape:
        raise UsageError(f"--shape is for language models: {llm} proposes no objectives; add --llm, or leave it out")
    terms = terms_of(task, config.memory)
    if config.policy == "linear":
        try:
            parse_expression(" + ".join([*(f"-0.12345*{name}" for name in terms), "0.12345"]), terms)
        except ExpressionError:
            raise UsageError(
                f"{llm} would weigh {len(terms)} quantities in each equation, more than can be read; name those that "
                "matter as `inputs` in a task file of your own (`policygen new` writes one), or ask a language model"
            ) from None
    own = {CLOCK, *terms} - {*terms_of(task, memory=False)}
    if config.memory and (taken := own & {*task.quantity_names}):
        raise UsageError(f"--memory defines `{min(taken)}`, which task {task.name} has already; rename it there")


# --- tables ----------------------------------------------------------------------------------------------------------


def next_table(context: Context, rng: np.random.Generator) -> tuple[str, str]:
    """Return a sentence about the next table, and the table as text."""
    incumbent = context.incumbent
    grid, lets = (incumbent.grid, incumbent.lets) if isinstance(incumbent, TablePolicy) else (context.task.grid, ())
    assert grid is not None, "`check_search` refuses tasks without a grid"
    choices, reader = _joint_choices(context.task), cell_reader(context.task, grid, lets)

    def planned(posterior: np.random.Generator | None) -> TablePolicy:
        visits, values = _plan(context, reader, choices, posterior)
        # Break ties at random, or an unvisited region would always get the same action.
        best = choices[np.argmax(values + 1e-9 * rng.random(values.shape), axis=1)]
        seen = visits.sum(axis=1) > 0
        if seen.any():
            best = best[_nearest(seen.reshape(grid.shape))]
        return TablePolicy.from_actions(context.task, best, grid, lets)

    note = f"Planned from {len(context.buffer)} episodes, on"
    if context.number % 2 == 0:
        table = planned(None)
        if text_digest(table) not in context.tried:  # a repeated table would give no new information
            return f"{note} the mean of their counts.", table.to_text()
    return f"{note} one process drawn from their posterior, to explore.", planned(rng).to_text()


def _nearest(seen: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Return for each cell the index of the nearest visited cell, shape (cells,)."""
    from scipy.ndimage import distance_transform_edt  # start-up time

    nearest = distance_transform_edt(~seen, return_distances=False, return_indices=True)
    return np.asarray(np.ravel_multi_index(tuple(nearest), seen.shape)).ravel()


def _joint_choices(task: Task) -> npt.NDArray[np.float64]:
    """Return all combinations of actuator values, shape (choices, actuators): labels, levels, or 3 or 5 numbers."""
    options = []
    for actuator in task.actuators:
        if actuator.is_choice:
            options.append(np.arange(len(actuator.labels), dtype=np.float64))
        elif actuator.levels:
            options.append(np.array([value for _, value in actuator.levels]))
        else:
            options.append(np.linspace(actuator.low, actuator.high, 3 if len(task.actuators) > 1 else 5))
    return np.stack(np.meshgrid(*options, indexing="ij"), axis=-1).reshape(-1, len(options))


def _plan(
    context: Context, reader: CellReader, choices: npt.NDArray[np.float64], posterior: np.random.Generator | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return visits and action values, shape (cells, choices), of the counted process or one drawn from `posterior`."""
    from scipy.sparse import csr_matrix  # start-up time

    end = reader.grid.size
    froms, picks, rewards, afters = [], [], [], []
    for episode in context.buffer:
        t = episode.trajectory
        cells = reader.cells_along((t.observations, t.actions))
        after = cells[1:].copy()
        if t.terminated:
            after[-1] = end
        froms.append(cells[:-1])
        distance = ((t.actions.reshape(t.length, 1, -1).astype(np.float64) - choices[None]) ** 2).sum(axis=2)
        picks.append(distance.argmin(axis=1))  # the nearest choice
        rewards.append(t.rewards)
        afters.append(after)
    shape = (end, len(choices))
    if not froms:
        return np.zeros(shape), np.zeros(shape)
    pairs = np.concatenate(froms).astype(np.int64) * len(choices) + np.concatenate(picks)
    visits = np.bincount(pairs, minlength=end * len(choices)).reshape(shape).astype(np.float64)
    seen = np.concatenate(rewards)
    reward = np.bincount(pairs, seen, minlength=visits.size).reshape(shape)
    counts = csr_matrix((np.ones(len(pairs)), (pairs, np.concatenate(afters))), shape=(visits.size, end + 1))
    discount = min(context.task.discount, 0.9999)
    total = visits + PRIOR_VISITS
    imagined = np.zeros(shape)
    if posterior is not None:
        # A Dirichlet draw is a set of gamma draws divided by their sum. The outcome of a prior visit is the highest
        # possible return: the largest reward seen (1 if all were 0, 0 if none was positive), forever.
        highest = max(0.0, float(seen.max())) if seen.any() else 1.0
        counts.sum_duplicates()
        counts.data = posterior.gamma(counts.data)
        drawn = np.asarray(counts.sum(axis=1)).reshape(shape)
        reward = reward / np.maximum(visits, 1.0) * drawn
        weight = posterior.gamma(PRIOR_VISITS, size=shape)
        imagined = weight * highest / (1 - discount)
        total = drawn + weight + 1e-12
    value = np.zeros(end + 1)
    values = np.zeros(shape)
    for _ in range(MAX_SWEEPS):
        later = (counts @ value).reshape(shape)
        values = (reward + discount * later + imagined) / total
        new = np.append(values.max(axis=1), 0.0)
        if np.abs(new - value).max() <= TOLERANCE * max(1.0, np.abs(new).max()):
            break
        value = new
    return visits, values
