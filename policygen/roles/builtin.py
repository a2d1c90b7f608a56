"""The embedded default: plain search in the place of a language model. It is not a language model.

It needs no key and no network, reads the structured context beside the prompt, and answers in the policy language like
everybody else, so that a first run exercises the whole pipeline. It is also the ablation that a language model's result
is compared with: the same budget without a model.

Tables: certainty-equivalence planning on the replay buffer. Cells are taken as the states of a Markov decision process,
whose transitions and rewards are counted; value iteration gives the next table. Odd attempts explore: they plan on a
process drawn from the posterior of the counts, in which an untried action may turn out as good as possible (posterior
sampling; Osband, Russo and Van Roy 2013, arXiv 1306.0940). Even attempts use what is known: the mean of the counts.

Linear: an evolution strategy with one parent and a self-adapting step (the 1/5th success rule; Rechenberg 1973) on
weights over observations scaled to unit spread, with the mirror image of every failed step tried next. Where proposals
are tuned (`--refine`), it proposes the plain structure, and then what tuning made of it for tuning to go on with; a
search that stalls is followed by another from the plain structure (`starts`). Where memory is asked for (`--memory`), a
clock and integrals are weighed, too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import ProviderError, UsageError
from policygen.llm import Provider
from policygen.llm.base import Diagnosis
from policygen.llm.messages import NO_MODEL, Prompt, Reply
from policygen.llm.retry import ask
from policygen.policies.features import CellReader, Lets, cell_reader
from policygen.policies.linear import LinearPolicy
from policygen.policies.normalise import PREFIX, definitions
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Grid
from policygen.quantities.text import MAX_CHARACTERS, MAX_NODES, format_number, to_text
from policygen.quantities.tree import Name
from policygen.roles import memory
from policygen.roles.proposer import Proposal, read
from policygen.roles.starts import goes_on_with
from policygen.runs.budget import Ledger
from policygen.runs.config import RunConfig
from policygen.runs.correspondence import Correspondence, llm_options
from policygen.runs.state import Context, text_digest
from policygen.runs.tried import tried
from policygen.tasks.task import Task, output_names

NAME = NO_MODEL
# Weight of an imagined first try among the counted ones: how slowly evidence replaces optimism or pessimism.
IMAGINED_VISITS = 0.3
SWEEPS = 3_000
TOLERANCE = 1e-7


class Builtin:
    """Plans on the replay buffer for tables, searches the parameters for linear policies."""

    spec = NAME
    model = NAME
    is_language_model = False

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer with the next policy of the search.

        Raises:
            ProviderError: the prompt carries no structured context (it was not rendered by a run).
        """
        context = prompt.context
        if not isinstance(context, Context):
            raise ProviderError("builtin is a search, not a language model: it only answers the prompts of a run")
        started = time.perf_counter()
        rng = np.random.default_rng([context.seed, context.number])
        note, text = _next_table(context, rng) if context.kind == "table" else _next_linear(context, rng)
        return Reply(
            text=f"{note}\n```\n{text}\n```\n",
            model=NAME,
            tokens_in=0,
            tokens_out=0,
            usd=0.0,
            seconds=time.perf_counter() - started,
            finish_reason="stop",
        )

    def diagnose(self) -> Diagnosis:
        """Nothing to check."""
        return Diagnosis(True, ("builtin is embedded: it needs no key and no server, and it is not a language model",))


class PlainSearch:
    """Proposes what a search without a language model answers, `builtin` or the replay of one: no token is spent."""

    is_language_model = False

    def __init__(self, provider: Provider, config: RunConfig) -> None:
        self.provider = provider
        self.introduction = f"{config.llm} (search without a language model)"
        self._config = config

    def check(self, task: Task) -> None:
        """Refuse to plan where there is nothing to plan on.

        Raises:
            UsageError: a table is asked for, and the task has no grid; or objectives are; or a linear policy would
                weigh more than can be read.
        """
        if self._config.policy == "table" and task.grid is None:
            raise UsageError(f"task {task.name} has no grid, which a table needs; use --policy linear or add one")
        if self._config.shape:
            raise UsageError(
                "--shape is for language models: builtin proposes no objectives; add --llm, or leave it out"
            )
        terms = _terms(task, self._config.memory) if self._config.policy == "linear" else []
        if len(terms) * _NODES > MAX_NODES or sum(len(f"{name} + {_WEIGHT}") for name in terms) > MAX_CHARACTERS:
            raise UsageError(
                f"builtin would weigh {len(terms)} quantities in each equation, more than can be read; name those that "
                "matter as `inputs` in a task file of your own (`policygen new` writes one), or ask a language model"
            )
        if self._config.memory and (taken := {*memory.names(_inputs(task))} & {*task.quantity_names}):
            raise UsageError(f"--memory defines `{min(taken)}`, which task {task.name} has already; rename it there")

    def propose(self, prompt: Prompt, context: Context, correspondence: Correspondence) -> Proposal:
        """The next policy of the search, read from its reply like any other."""

        def answer() -> Reply:
            return ask(
                self.provider,
                prompt,
                charge=correspondence.ledger.charge_call,
                max_output_tokens=self._config.max_output_tokens,
                options=llm_options(self._config),
            )

        exchange = correspondence.exchange(context.number, 0, prompt, answer)
        return Proposal(
            context.number,
            read(exchange.reply, context, self._config),
            (exchange,),
            standardised=True,
            model=self.provider.spec,
        )

    def model_calls(self, ledger: Ledger) -> int:
        """None: there is no language model."""
        return 0


# --- tables ----------------------------------------------------------------------------------------------------------


def _next_table(context: Context, rng: np.random.Generator) -> tuple[str, str]:
    incumbent = context.incumbent
    grid, lets = (incumbent.grid, incumbent.lets) if isinstance(incumbent, TablePolicy) else (context.task.grid, ())
    if grid is None:
        raise ProviderError(
            f"task {context.task.name} has no grid, which a table needs; use --policy linear or add one"
        )
    if context.number % 2 == 0:
        table = _planned_table(context, grid, lets, rng, explore=False)
        if text_digest(table) not in tried(context):  # playing the same table again would teach nothing
            return f"Planned from {len(context.buffer)} episodes, on the mean of what they show.", table.to_text()
    table = _planned_table(context, grid, lets, rng, explore=True)
    note = f"Planned from {len(context.buffer)} episodes, on one model that they allow, to explore."
    return note, table.to_text()


def _planned_table(context: Context, grid: Grid, lets: Lets, rng: np.random.Generator, *, explore: bool) -> TablePolicy:
    """The table that is best in the counted process, or in a drawn one; unvisited cells do as their neighbours do."""
    from scipy.ndimage import distance_transform_edt

    choices = _joint_choices(context)
    visits, values = _plan(context, cell_reader(context.task, grid, lets), choices, rng if explore else None)
    # Equally good actions are drawn at random, or an untouched corner would always see the same one.
    best = np.argmax(values + 1e-9 * rng.random(values.shape), axis=1)
    seen = visits.sum(axis=1).reshape(grid.shape) > 0
    if seen.any() and not seen.all():
        nearest = distance_transform_edt(~seen, return_distances=False, return_indices=True)
        best = best.reshape(grid.shape)[tuple(nearest)].reshape(-1)
    return TablePolicy.from_actions(context.task, choices[best], grid, lets)


def _joint_choices(context: Context) -> npt.NDArray[np.float64]:
    """The actions a table cell may hold: all labels, or three to five levels of each number; shape (choices, m)."""
    options = []
    for actuator in context.task.actuators:
        if actuator.is_choice:
            options.append(np.arange(len(actuator.labels), dtype=np.float64))
        elif actuator.levels:
            options.append(np.array([value for _, value in actuator.levels]))
        else:
            options.append(np.linspace(actuator.low, actuator.high, 3 if len(context.task.actuators) > 1 else 5))
    return np.stack(np.meshgrid(*options, indexing="ij"), axis=-1).reshape(-1, len(options))


def _plan(
    context: Context, reader: CellReader, choices: npt.NDArray[np.float64], posterior: np.random.Generator | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Visits and action values of the counted decision process, or of one drawn from its `posterior`.

    Both have shape (cells, choices).
    """
    from scipy.sparse import csr_matrix

    task, grid = context.task, reader.grid
    end = grid.size
    froms, picks, rewards, afters = [], [], [], []
    highest, lowest = 0.0, 0.0
    for episode in context.buffer:
        t = episode.trajectory
        cells = reader.cells_along((t.observations, t.actions))
        after = cells[1:].copy()
        if t.terminated:
            after[-1] = end
        froms.append(cells[:-1])
        picks.append(_nearest(choices, t.actions.reshape(t.length, -1)))
        rewards.append(t.rewards)
        afters.append(after)
        highest = max(highest, float(t.rewards.max(initial=0.0)))
        lowest = min(lowest, float(t.rewards.min(initial=0.0)))
    shape = (grid.size, len(choices))
    if not froms:
        return np.zeros(shape), np.zeros(shape)
    pairs = np.concatenate(froms).astype(np.int64) * len(choices) + np.concatenate(picks)
    visits = np.bincount(pairs, minlength=grid.size * len(choices)).reshape(shape).astype(np.float64)
    reward = np.bincount(pairs, np.concatenate(rewards), minlength=visits.size).reshape(shape)
    counts = csr_matrix((np.ones(len(pairs)), (pairs, np.concatenate(afters))), shape=(visits.size, end + 1))
    discount = min(task.discount, 0.9999)
    total = visits + IMAGINED_VISITS
    imagined = np.zeros(shape)
    if posterior is not None:
        # A Dirichlet draw is a set of gamma draws over their sum. What was never tried is taken for a return that
        # nothing can exceed: the highest reward seen, forever; where no reward was seen at all, there may yet be one.
        if highest == lowest == 0.0:
            highest = 1.0
        counts.sum_duplicates()
        counts.data = posterior.gamma(counts.data)
        drawn = np.asarray(counts.sum(axis=1)).reshape(shape)
        reward = reward / np.maximum(visits, 1.0) * drawn
        weight = posterior.gamma(IMAGINED_VISITS, size=shape)
        imagined = weight * highest / (1 - discount)
        total = drawn + weight + 1e-12
    value = np.zeros(end + 1)
    values = np.zeros(shape)
    for _ in range(SWEEPS):
        later = (counts @ value).reshape(shape)
        values = (reward + discount * later + imagined) / total
        new = np.append(values.max(axis=1), 0.0)
        if np.abs(new - value).max() <= TOLERANCE * max(1.0, np.abs(new).max()):
            break
        value = new
    return visits, values


def _nearest(choices: npt.NDArray[np.float64], actions: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Index of the choice closest to each action, shape (T,)."""
    distance = ((actions[:, None, :].astype(np.float64) - choices[None]) ** 2).sum(axis=2)
    return np.asarray(distance.argmin(axis=1), np.int64)


# --- linear policies -------------------------------------------------------------------------------------------------

_FIRST_STEP = 1.0
_RANDOM_STARTS = 4
_NODES, _WEIGHT = 4, "-0.12345*"  # of a term in an equation: its name, a weight, a product, a sum
_FASTER = 0.5  # change of the logarithm of a clock's rate, beside a weight's of 1


def _inputs(task: Task) -> Sequence[str]:
    return task.inputs or task.observation_names or task.quantity_names


def _terms(task: Task, remembering: bool) -> list[str]:
    """What a linear policy weighs: the standardised inputs, and with memory a clock's waves and integrals."""
    inputs = _inputs(task)
    return [PREFIX + name for name in inputs] + list(memory.terms(inputs) if remembering else ())


def _next_linear(context: Context, rng: np.random.Generator) -> tuple[str, str]:
    inputs = _inputs(context.task)
    terms = _terms(context.task, context.memory)
    scored = [a for a in context.attempts if a.number > 0 and a.score is not None]
    best = context.best.policy if context.best is not None else None
    shape = (len(terms) + 1, len(output_names(context.task)))
    rate, faster = memory.rate_of(best), 0.0
    if context.tuning is not None:
        # The numbers are the refinement's business: it gets the plain structure, and then goes on where it stopped.
        if (tuned := _to_tune_on(context)) is not None:
            return "A policy once more, for the numerical search to tune on.", tuned.to_text()
        matrix, rate = np.zeros(shape), memory.RATE
        note = "A linear map over standardised quantities, for a numerical search to tune from the start."
    elif len(scored) < _RANDOM_STARTS or not isinstance(best, LinearPolicy):
        matrix, faster = rng.normal(size=shape), 1.0
        note = "Random weights over standardised quantities."
    else:
        parent = _weights(best, terms)
        step = faster = _step_size(context)
        last = scored[-1].policy
        if isinstance(last, LinearPolicy) and not scored[-1].accepted and len(scored) % 2 == 1:
            matrix, faster = 2 * parent - _weights(last, terms), 0.0
            rate *= rate / memory.rate_of(last)
            note = "The mirror image of the last step, which did not help."
        else:
            matrix = parent + step * rng.normal(size=shape)
            note = f"A random step of size {step:.2g} from the best weights."
    matrix[:, ~_free_outputs(context)] = 0.0
    remembered: list[str] = []
    if context.memory:
        remembered = memory.lines(inputs, float(np.clip(rate * np.exp(_FASTER * faster * rng.normal()), 0.01, 3.0)))
    return note, _standardised_policy(context, inputs, remembered, terms, matrix)


def _to_tune_on(context: Context) -> Policy | None:
    """What tuning goes on with: the best policy where it is another's, else one of its own; None to begin anew."""
    own = ("", NAME)  # nobody is asked for what is only tuned on
    best = context.best.policy if context.best is not None else None
    if context.best is not None and context.best.model not in own and isinstance(best, LinearPolicy):
        return best
    return goes_on_with([one for one in context.attempts if one.model in own])


def _free_outputs(context: Context) -> npt.NDArray[np.bool_]:
    """Only differences between the scores of a choice matter: its first label's score stays 0."""
    free: list[bool] = []
    for actuator in context.task.actuators:
        free += [False] + [True] * (len(actuator.labels) - 1) if actuator.is_choice else [True]
    return np.array(free)


def _weights(policy: LinearPolicy, names: Sequence[str]) -> npt.NDArray[np.float64]:
    """Weights of the terms `names` and, last, the bias: shape (terms + 1, outputs). Other terms count as 0."""
    weights = np.zeros((len(names), len(policy.equations)))
    for term, row in zip(policy.terms, policy.weights, strict=True):
        if isinstance(term, Name) and term.name in names:
            weights[names.index(term.name)] = row
    return np.vstack([weights, policy.bias])


def _step_size(context: Context) -> float:
    """One step for the whole run: smaller after failures, larger after successes (1/5th rule)."""
    step = _FIRST_STEP
    for attempt in context.attempts[_RANDOM_STARTS + 1 :]:
        if attempt.score is not None:
            step *= 1.5 if attempt.accepted else 1.5**-0.25
    return float(np.clip(step, 0.02, 4.0))


def _standardised_policy(
    context: Context,
    inputs: Sequence[str],
    remembered: Sequence[str],
    terms: Sequence[str],
    matrix: npt.NDArray[np.float64],
) -> str:
    """Equations over `n_NAME = (NAME - mean) / spread`, the mean and spread those of random actions.

    They are written into the policy as features (see `normalise`), and stay the same for a whole run, so that weights
    keep their meaning. `remembered` are the definitions that follow them.
    """
    task = context.task
    first = [e.trajectory.observations for e in context.buffer if e.attempt == 0]
    first = first or [e.trajectory.observations for e in context.buffer]
    lines = [f"let {d.name} = {to_text(d.node)}" for d in definitions(task, first, inputs)]
    lines += remembered
    for output, column in zip(output_names(task), matrix.T.tolist(), strict=True):
        weighed = [f"{_digits(weight)}*{name}" for weight, name in zip(column, terms, strict=False)]
        lines.append(f"{output} = {' + '.join([*weighed, _digits(column[-1])])}".replace("+ -", "- "))
    return "\n".join(lines)


def _digits(value: float) -> str:
    return format_number(float(f"{value:.4g}"))
