"""Tables proposed by `builtin`, a search without a language model: planned on the replay buffer.

The cells are the states of a Markov decision process. Its transitions and rewards are counted in the replay buffer, and
value iteration gives the next table. Even attempts exploit: they plan on the mean of the counts (certainty
equivalence). Odd attempts explore: they plan on a process drawn from the posterior of the counts, in which untried
actions may be as good as possible (posterior sampling; Osband, Russo and Van Roy 2013, arXiv 1306.0940).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.policies.features import CellReader, Lets, cell_reader
from policygen.policies.rows import nearest_seen
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Grid
from policygen.runs.attempt import text_digest
from policygen.runs.state import Context

PRIOR_VISITS = 0.3  # weight of the prior of each cell and action, in visits
MOST_SWEEPS = 3_000  # of value iteration
TOLERANCE = 1e-7  # relative change of the values at which value iteration ends


def next_table(context: Context, rng: np.random.Generator) -> tuple[str, str]:
    """Return a sentence about the next table, and the table as text."""
    incumbent = context.incumbent
    grid, lets = (incumbent.grid, incumbent.lets) if isinstance(incumbent, TablePolicy) else (context.task.grid, ())
    assert grid is not None, "`check_search` refuses tasks without a grid"
    if context.number % 2 == 0:
        table = _planned_table(context, grid, lets, rng, explore=False)
        if text_digest(table) not in context.tried:  # a repeated table gives no new information
            return f"Planned from {len(context.buffer)} episodes, on the mean of their counts.", table.to_text()
    table = _planned_table(context, grid, lets, rng, explore=True)
    note = f"Planned from {len(context.buffer)} episodes, on one process drawn from their posterior, to explore."
    return note, table.to_text()


def random_table(context: Context, rng: np.random.Generator) -> str:
    """Return a table whose cells hold actions drawn at random, as text."""
    grid, choices = context.task.grid, _joint_choices(context)
    assert grid is not None, "`check_search` refuses tasks without a grid"
    drawn = choices[rng.integers(len(choices), size=grid.size)]
    return TablePolicy.from_actions(context.task, drawn, grid, ()).to_text()


def _planned_table(context: Context, grid: Grid, lets: Lets, rng: np.random.Generator, *, explore: bool) -> TablePolicy:
    """Plan a table on the mean of the counts or, to explore, on a draw; unvisited cells copy the nearest visited."""
    choices = _joint_choices(context)
    visits, values = _plan(context, cell_reader(context.task, grid, lets), choices, rng if explore else None)
    # Ties are broken at random, or an unvisited region would always get the same action.
    best = np.argmax(values + 1e-9 * rng.random(values.shape), axis=1)
    planned = nearest_seen(choices[best], visits.sum(axis=1) > 0, grid.shape)
    return TablePolicy.from_actions(context.task, planned, grid, lets)


def _joint_choices(context: Context) -> npt.NDArray[np.float64]:
    """Return all combinations of the actuators' values, shape (choices, m): labels, levels, or 3 to 5 numbers."""
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
    """Return visits and action values of the counted decision process, or of one drawn from its `posterior`.

    Both have shape (cells, choices).
    """
    from scipy.sparse import csr_matrix  # start-up time

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
        distance = ((t.actions.reshape(t.length, 1, -1).astype(np.float64) - choices[None]) ** 2).sum(axis=2)
        picks.append(distance.argmin(axis=1))  # the nearest choice
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
    total = visits + PRIOR_VISITS
    imagined = np.zeros(shape)
    if posterior is not None:
        # A Dirichlet draw is gamma draws divided by their sum. The outcome of a prior visit is the highest possible
        # return: the largest reward seen, forever (0 if all are negative). If every reward seen is 0, a reward of 1 is
        # assumed to exist.
        if highest == lowest == 0.0:
            highest = 1.0
        counts.sum_duplicates()
        counts.data = posterior.gamma(counts.data)
        drawn = np.asarray(counts.sum(axis=1)).reshape(shape)
        reward = reward / np.maximum(visits, 1.0) * drawn
        weight = posterior.gamma(PRIOR_VISITS, size=shape)
        imagined = weight * highest / (1 - discount)
        total = drawn + weight + 1e-12
    value = np.zeros(end + 1)
    values = np.zeros(shape)
    for _ in range(MOST_SWEEPS):
        later = (counts @ value).reshape(shape)
        values = (reward + discount * later + imagined) / total
        new = np.append(values.max(axis=1), 0.0)
        if np.abs(new - value).max() <= TOLERANCE * max(1.0, np.abs(new).max()):
            break
        value = new
    return visits, values
