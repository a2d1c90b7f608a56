"""The view of an episode for templates: a column per quantity, rhythms, and the first anomaly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from policygen.episodes.evidence import (
    NOTHING_RELEVANT,
    Episode,
    Relevance,
    Shortfall,
    losses,
    quantities,
    shortfall,
)
from policygen.episodes.signals import Anomaly, Column, Signal, first_anomaly, ranges, rhythms
from policygen.episodes.trajectory import Trajectory
from policygen.policies.cells import action_words
from policygen.policies.features import CellReader, Reader, cell_reader
from policygen.policies.linear import LinearPolicy
from policygen.policies.policy import Policy
from policygen.policies.table import TablePolicy
from policygen.quantities.grid import Grid
from policygen.quantities.operations import decoded
from policygen.quantities.text import to_digits
from policygen.quantities.tree import is_definition, names_in, remembered_in
from policygen.tasks.task import Task

# Fields of a trace's rows: an observation or a feature of such a name is shown with `_` behind it.
FIELDS = frozenset(["step", "cell", "action", "reward", "steps", "count", "first", "last", "total", "turns"])
MOST_TEXT = 300  # characters of an observed text in a trace
STILL = 0.02  # an observation within this share of its range in the episode counts as unchanged
STILL_OF_LIMITS = 0.01  # the same as a share of the task's bounds, if these are less than MOST_RANGE apart
MOST_RANGE = 1e3
MOST_COLUMNS = 12  # quantities of a trace before there is a policy
MOST_READ = 20  # quantities of a trace if the best policy consists of equations
IN_TURN = 2  # places of a trace for the quantities that would be left out; each prompt shows others of them
MOST_RELEVANT = 6  # observations that are shown whether or not the policy reads them
MOST_NAMES = 10  # quantities of a step that is shown alone


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """One episode: its outcome, and a list per quantity with one entry per step."""

    attempt: int
    episode_return: float
    length: int
    ending: str
    failed: bool  # whether it ended early without success; `won`: with success
    won: bool
    still: Mapping[str, float]  # the largest change of each observation that counts as none
    # `step`, every observation, text and feature (of the task and of the best policy), for tables `cell` (bins, in the
    # order of the grid), `action` in the task's words, each continuous actuator by its name, and `reward`
    columns: Mapping[str, Sequence[Any]]
    traced: tuple[str, ...]  # names of the observations and features to show, the most important first
    relevant: tuple[str, ...]  # those of the observations that reward and ends depend on most, the most relevant first
    # the values of such observations where they do not change in this episode, and of set-points
    constant: Mapping[str, float]
    unobserved: tuple[str, ...]  # names of the shown quantities that no policy can read, such as the heights of feet
    outputs: tuple[str, ...]  # names of the columns of actions
    signals: tuple[Signal, ...]  # the range of each quantity, and for linear policies its rhythm
    reference: str  # the signal that lags refer to
    anomaly: Anomaly | None  # the first quantity that left its usual range, if there is one
    terms: Mapping[str, float]  # the sum of each reward term, if the environment reports them
    texts: tuple[str, ...] = ()  # names of the columns of observed texts
    # reward of each step below the mean of the policy's episodes; empty if there is only one
    lost: Sequence[float] = ()
    shortfall: Shortfall | None = None  # the steps in which it lost most, if it lost anything
    # the values of the columns after the last action, None for those without one; empty if the time limit ended the
    # episode
    final: Mapping[str, Any] = field(default_factory=dict)


def episode_view(
    episode: Episode,
    reader: Reader,
    best: Policy | None,
    usual: Mapping[str, tuple[float, float]] | None = None,
    *,
    relevance: Relevance = NOTHING_RELEVANT,
    turn: int = 0,
    mean: Column | None = None,
) -> EpisodeView:
    """Return the view of an episode with the quantities of `reader`.

    Args:
        usual: usual ranges; if given, the view has rhythms, unobserved quantities and the first anomaly.
        relevance: what reward and ends depend on; if given, only some of many quantities are traced.
        turn: number of the prompt, which selects those that would be left out.
        mean: `mean_rewards` of the policy's episodes; if given, the view has the losses against it.
    """
    t, task = episode.trajectory, reader.task
    arrays = quantities(t, reader)
    seen = {name: v.astype(np.float64) for name, v in episode.unobserved} if usual is not None else {}
    unobserved = {name: v[:-1] for name, v in seen.items() if name not in arrays and np.ptp(v[:-1]) > 0}
    ends = {name: float(v[-1]) for name, v in seen.items()}
    columns: dict[str, Sequence[Any]] = {"step": list(range(t.length))}
    columns.update((_shown(name, task), values.tolist()) for name, values in (arrays | unobserved).items())
    columns.update(_cells(t, reader))
    columns.update(_texts(t, task))
    rows = list(map(tuple, t.actions.reshape(t.length, -1).tolist()))
    words = {row: action_words(task.actuators, [to_digits(value, 3) for value in row]) for row in set(rows)}
    columns["action"] = [words[row] for row in rows]
    columns["reward"] = t.rewards.tolist()
    limits = {a.name: (a.low, a.high) for a in task.actuators if not a.is_choice}
    changing = _names_to_show(arrays, task, best)
    traced = [*unobserved, *(ranked(changing, best, relevance, turn) if relevance.variance else changing)]
    relevant = [name for name in relevance.relevant if name in arrays]
    lost = losses(t, mean) if mean is not None else np.zeros(0)
    anomaly, reference, signals = None, "", ranges(arrays)
    if usual is not None:
        found, reference = rhythms(arrays | unobserved, limits)
        signals = tuple(s for s in found if s.name == reference or s.name in traced or s.name in limits)
        described = {name: limits for name, limits in usual.items() if name not in relevance.further}
        anomaly = first_anomaly(arrays, described) if episode.failed else None
    return EpisodeView(
        attempt=episode.attempt,
        episode_return=t.episode_return,
        length=t.length,
        ending="cut by the time limit"
        if not t.terminated
        # Of an environment that only its own documentation describes, a goal is a guess.
        else f"terminated by the environment{', its goal reached' * (episode.reached and not task.documentation)}",
        failed=episode.failed,
        won=episode.reached,
        still=_still(arrays, task),
        columns=columns,
        traced=tuple(_shown(name, task) for name in traced),
        relevant=tuple(_shown(name, task) for name in relevant if name in traced),
        constant={
            _shown(n, task): float(v[0])
            for n, v in arrays.items()
            if n in relevance.set_points or (n in relevant and np.ptp(v) == 0)
        },
        unobserved=tuple(unobserved),
        outputs=tuple(limits) if task.action_space == "box" else ("action", *limits),
        signals=tuple(replace(signal, name=_shown(signal.name, task)) for signal in signals),
        reference=_shown(reference, task),
        anomaly=replace(anomaly, name=_shown(anomaly.name, task)) if anomaly is not None else None,
        terms=dict(t.terms),
        texts=task.text_names,
        lost=lost.tolist(),
        shortfall=shortfall(lost) if len(lost) else None,
        final=dict.fromkeys(columns) | _final(t, reader) | ends if t.terminated else {},
    )


def _shown(name: str, task: Task) -> str:
    """Return the name under which a quantity or an actuator is shown."""
    return f"{name}_" if name in FIELDS and name not in {actuator.name for actuator in task.actuators} else name


def _final(t: Trajectory, reader: Reader) -> dict[str, Any]:
    """Return the result of the last action: observations and, for a policy without memory, features and the cell."""
    rows, task = np.repeat(t.observations[-1:], 2, axis=0), reader.task
    last = replace(t, observations=rows, actions=t.actions[-1:], rewards=t.rewards[-1:])
    arrays = quantities(last, reader)
    if reader.remembered:
        arrays = {name: values for name, values in arrays.items() if name in task.observation_names}
    columns: dict[str, Sequence[Any]] = {_shown(name, task): values.tolist() for name, values in arrays.items()}
    if not reader.remembered:
        columns.update(_cells(last, reader))
    columns.update(_texts(last, task))
    actions = {actuator.name for actuator in task.actuators}
    return {name: column[0] for name, column in columns.items() if name not in actions}


def _cells(t: Trajectory, reader: Reader) -> dict[str, Sequence[Any]]:
    """Return the column `cell`, if the reader has cells."""
    if not isinstance(reader, CellReader):
        return {}
    # An episode visits few different cells: make one tuple for each, not one per step.
    cells, which = np.unique(reader.cells_along((t.observations[:-1], t.actions)), return_inverse=True)
    bins = list(map(tuple, reader.grid.bins_of(cells).tolist()))
    return {"cell": list(map(bins.__getitem__, which.tolist()))}


def _texts(t: Trajectory, task: Task) -> dict[str, list[str]]:
    """Return the observed texts of each step, each text in one line between quotes."""
    first, shown = len(task.observations), {}
    for text in task.texts:
        lines = [" ".join(decoded(row).split()) for row in t.observations[:-1, first : first + text.columns]]
        shown[text.name] = [f'"{one if len(one) <= MOST_TEXT else one[: MOST_TEXT - 3] + "..."}"' for one in lines]
        first += text.columns
    return shown


def _names_to_show(arrays: Mapping[str, Column], task: Task, best: Policy | None) -> list[str]:
    """Return the names of observations and features that change, without copies: equal to an earlier one throughout."""
    left_out = {a.name for a in task.actuators}
    left_out |= {name for name, node in best.lets if is_definition(name, node)} if best is not None else set()
    first: dict[bytes, str] = {}
    for name, values in arrays.items():
        if name not in left_out and np.ptp(values) > 0:
            first.setdefault(values.tobytes(), name)
    return list(first.values())


def _still(arrays: Mapping[str, Column], task: Task) -> dict[str, float]:
    """Return the largest change of each observation that counts as none, by its range in the episode and its bounds."""
    return {
        _shown(o.name, task): max(
            STILL * float(np.ptp(arrays[o.name])),
            STILL_OF_LIMITS * (o.high - o.low) if o.high - o.low < MOST_RANGE else 0.0,
        )
        for o in task.observations
        if o.name in arrays
    }


def reader_for(task: Task, grid: Grid | None, policy: Policy | None = None) -> Reader:
    """Return the reader that computes a trace's columns: all features of a linear policy, or the cells of a table."""
    if isinstance(policy, TablePolicy):
        return policy.reader
    if grid is not None:
        return cell_reader(task, grid)
    return Reader(task, policy.lets if policy is not None else ())


def ranked(names: Sequence[str], best: Policy | None, relevance: Relevance, turn: int) -> list[str]:
    """Return the quantities to show, the most important first; if there are many, the last ones change with `turn`.

    The order is: observations that reward and ends depend on; features of `best` that remember themselves (a clock, a
    latch); the quantities that it reads, alternately an observation and a feature, those of its outputs before those of
    its features; and the rest, by variance.
    """
    lines = [names_in(node) for _, node in best.equations] if isinstance(best, LinearPolicy) else []
    lets = [names_in(node) for _, node in best.lets] if isinstance(best, LinearPolicy) else []
    direct, read = (frozenset().union(*some) for some in (lines, lets))
    states = {name for name, node in best.lets if name in remembered_in(node)} if isinstance(best, LinearPolicy) else ()
    variance = relevance.variance
    order = dict.fromkeys(name for name in relevance.relevant[:MOST_RELEVANT] if name in names)
    order |= dict.fromkeys(name for name in names if name in states)
    observed = [name for name in names if name in variance and name in direct]
    observed += [name for name in names if name in variance and name in read]
    features = [name for name in names if name not in variance and name in direct]
    features += [name for name in reversed(names) if name not in variance and name in read]  # decisive ones come last
    order |= dict.fromkeys(name for pair in zip_longest(observed, features) for name in pair if name is not None)
    order |= dict.fromkeys(sorted(names, key=lambda name: (name in relevance.further, -variance.get(name, 0.0))))
    most = MOST_READ if lines else MOST_COLUMNS
    if len(order) <= most:
        return list(order)
    kept, rest = list(order)[: most - IN_TURN], list(order)[most - IN_TURN :]
    return kept + [rest[(turn * IN_TURN + i) % len(rest)] for i in range(IN_TURN)]


def rows_at(policy: Policy | None, episode: Episode, steps: Sequence[int], task: Task) -> list[dict[str, Any]]:
    """Return those of the steps that an episode of a policy has, with their most informative columns."""
    view = episode_view(episode, reader_for(task, None, policy), policy)
    traced = view.traced
    if len(traced) > MOST_NAMES:  # observations come first, the decisive features last
        traced = traced[: MOST_NAMES // 2] + traced[-(MOST_NAMES - MOST_NAMES // 2) :]
    names = ("step", *traced, *(["cell"] if "cell" in view.columns else []), *view.outputs, "reward")
    return [{name: view.columns[name][step] for name in names} for step in steps if 0 <= step < view.length]
